# SPDX-License-Identifier: BSD-3-Clause
"""The ufuncs on the containers of other packages, each tested where it is installed."""

import subprocess
import sys

import numpy as np
import oracle
import pytest

import fastgelu
from fastgelu import functional


@pytest.fixture
def f(name):
    return getattr(fastgelu, name)


def inputs(f, shape=(6, 10), dtype=np.float32):
    rng = np.random.default_rng(2)
    return [rng.normal(0, 3, shape).astype(dtype) for _ in range(f.nin)]


def equal(got, want):
    got = np.asarray(got)
    return got.dtype == want.dtype and np.array_equal(oracle.bits_of(got), oracle.bits_of(want))


def test_dask(f):
    array = pytest.importorskip("dask.array", reason="dask (pip install 'dask[array]')")
    args = inputs(f)
    touched = []

    def block(a):
        touched.append(1)
        return a

    lazy = [
        array.from_array(a, chunks=(2, 5)).map_blocks(block, dtype=a.dtype, meta=a[:0])
        for a in args
    ]
    got = f(*lazy)
    assert isinstance(got, array.Array)
    assert not touched
    assert got.dtype == np.float32
    assert got.chunks == lazy[0].chunks
    assert equal(got.compute(scheduler="synchronous"), f(*args))
    assert len(touched) == 6 * f.nin


def test_dask_in_worker_threads(f):
    array = pytest.importorskip("dask.array", reason="dask (pip install 'dask[array]')")
    args = inputs(f, (40, 500))
    got = f(*(array.from_array(a, chunks=(3, 77)) for a in args))
    assert equal(got.compute(scheduler="threads", num_workers=4), f(*args))


def test_dask_in_worker_processes():
    """The graph, pickled, names the ufunc."""
    pytest.importorskip("dask.array", reason="dask (pip install 'dask[array]')")
    import pickle

    import dask.array as array

    x = inputs(fastgelu.gelu)[0]
    lazy = pickle.loads(pickle.dumps(fastgelu.gelu(array.from_array(x, chunks=3))))
    assert equal(lazy.compute(scheduler="synchronous"), fastgelu.gelu(x))


CLUSTER = """
import os
import numpy as np
import dask.array
import fastgelu
from distributed import Client, LocalCluster

def threads_of_a_call():
    # on a worker: the threads allowed, and how many more there are after a large call
    before = len(os.listdir("/proc/self/task")) if os.path.isdir("/proc/self/task") else 0
    y = fastgelu.gelu(np.linspace(-9, 9, 1 << 21))
    after = len(os.listdir("/proc/self/task")) if before else 0
    return os.getpid(), fastgelu.get_num_threads(), after - before

if __name__ == "__main__":
    x = np.random.default_rng(3).normal(size=(64, 40_000)).astype(np.float32)
    want = fastgelu.gelu(x)
    options = dict(n_workers=2, threads_per_worker=1, processes=True, dashboard_address=None)
    with LocalCluster(**options) as cluster, Client(cluster) as client:
        lazy = fastgelu.gelu(dask.array.from_array(x, chunks=(8, 10_000)))
        assert isinstance(lazy, dask.array.Array)
        got = lazy.compute()
        assert np.array_equal(got.view("u4"), want.view("u4"))
        workers = client.run(threads_of_a_call)
        assert len({pid for pid, _, _ in workers.values()} - {os.getpid()}) == 2, workers
        assert all((count, more) == (1, 0) for _, count, more in workers.values()), workers
        got = client.gather([client.submit(fastgelu.gelu, row, pure=False) for row in x[:4]])
        assert np.array_equal(np.array(got).view("u4"), want[:4].view("u4"))
        print("two workers")
"""


def test_dask_distributed(tmp_path):
    """Two worker processes: the same bits, within their budget of threads, by pickled ufuncs."""
    pytest.importorskip("distributed", reason="dask.distributed (pip install distributed)")
    script = tmp_path / "cluster.py"
    script.write_text(CLUSTER, encoding="utf-8")
    done = subprocess.run(
        [sys.executable, "-P", script], cwd=tmp_path, capture_output=True, text=True, timeout=120
    )
    assert done.returncode == 0 and done.stdout == "two workers\n", done.stderr


def test_xarray(f):
    xarray = pytest.importorskip("xarray", reason="xarray (pip install xarray)")
    args = inputs(f)
    coords = {"row": list("abcdef"), "column": np.arange(10) * 0.5}
    labelled = [xarray.DataArray(a, dims=("row", "column"), coords=coords, name="h") for a in args]
    got = f(*labelled)
    assert isinstance(got, xarray.DataArray)
    assert got.dims == ("row", "column")
    assert got.coords["row"].values.tolist() == coords["row"]
    assert got.coords["column"].equals(labelled[0].coords["column"])
    assert equal(got.values, f(*args))


def test_xarray_broadcasts_by_name():
    xarray = pytest.importorskip("xarray", reason="xarray (pip install xarray)")
    dy = xarray.DataArray(np.linspace(-1, 1, 4), dims="row")
    x = xarray.DataArray(np.linspace(-3, 3, 5), dims="column")
    got = fastgelu.gelu_backward(dy, x)
    assert got.dims == ("row", "column")
    assert equal(got.values, fastgelu.gelu_backward(dy.values[:, None], x.values))


def test_xarray_of_dask_stays_lazy(f):
    xarray = pytest.importorskip("xarray", reason="xarray (pip install xarray)")
    array = pytest.importorskip("dask.array", reason="dask (pip install 'dask[array]')")
    args = inputs(f)
    lazy = [xarray.DataArray(array.from_array(a, chunks=4), dims=("p", "q")) for a in args]
    got = f(*lazy)
    assert isinstance(got.data, array.Array)
    assert equal(got.compute(scheduler="synchronous").values, f(*args))


def test_xarray_dataset():
    xarray = pytest.importorskip("xarray", reason="xarray (pip install xarray)")
    x = inputs(fastgelu.silu)[0]
    data = xarray.Dataset({"u": (("p", "q"), x), "v": (("p", "q"), -x)})
    got = fastgelu.silu(data)
    assert isinstance(got, xarray.Dataset)
    assert equal(got["v"].values, fastgelu.silu(-x))


def test_pandas(f):
    pandas = pytest.importorskip("pandas", reason="pandas (pip install pandas)")
    args = inputs(f, (6,))
    index = list("uvwxyz")
    got = f(*(pandas.Series(a, index=index) for a in args))
    assert isinstance(got, pandas.Series)
    assert got.index.tolist() == index
    assert equal(got.to_numpy(), f(*args))
    tables = [pandas.DataFrame({"p": a, "q": -a}, index=index) for a in args]
    got = f(*tables)
    assert isinstance(got, pandas.DataFrame)
    assert got.columns.tolist() == ["p", "q"] and got.index.tolist() == index
    assert equal(got["q"].to_numpy(), f(*(-a for a in args)))


def test_pandas_aligns_by_label():
    pandas = pytest.importorskip("pandas", reason="pandas (pip install pandas)")
    dy = pandas.Series([1.0, 2.0, 3.0], index=list("abc"))
    x = pandas.Series([0.5, -0.5, 1.5], index=list("cab"))
    got = fastgelu.gelu_backward(dy, x)
    assert equal(got.to_numpy(), fastgelu.gelu_backward([1.0, 2.0, 3.0], [-0.5, 1.5, 0.5]))


def test_pandas_in_functional():
    pandas = pytest.importorskip("pandas", reason="pandas (pip install pandas)")
    x = pandas.Series([-1.0, 2.0], index=["p", "q"])
    got = functional.bias_gelu(x, 0.5)
    assert isinstance(got, pandas.Series) and got.index.tolist() == ["p", "q"]
    assert equal(got.to_numpy(), fastgelu.gelu(np.array([-0.5, 2.5])))
    table = pandas.DataFrame({"p": x, "q": -x})
    got = functional.gelu(table, approximate="tanh")
    assert isinstance(got, pandas.DataFrame) and got.columns.tolist() == ["p", "q"]
    got = functional.swiglu(table)  # halves have no common labels: a plain array
    assert equal(got, functional.swiglu(table.to_numpy()))


def test_dask_in_functional():
    array = pytest.importorskip("dask.array", reason="dask (pip install 'dask[array]')")
    x = np.random.default_rng(4).normal(0, 2, (6, 10)).astype(np.float32)
    lazy = array.from_array(x, chunks=(2, 5))
    for got, want in (
        (functional.gelu(lazy, "tanh"), functional.gelu(x, "tanh")),
        (functional.gelu_backward(lazy, lazy), functional.gelu_backward(x, x)),
        (functional.bias_gelu(lazy, x[0]), functional.bias_gelu(x, x[0])),
        (functional.geglu(lazy, gate="second"), functional.geglu(x, gate="second")),
        (functional.swiglu(lazy, axis=0), functional.swiglu(x, axis=0)),
    ):
        assert isinstance(got, array.Array)
        assert equal(got.compute(scheduler="synchronous"), want)


def test_xarray_in_functional():
    xarray = pytest.importorskip("xarray", reason="xarray (pip install xarray)")
    x = xarray.DataArray(np.linspace(-2, 2, 6), dims="p", coords={"p": list("abcdef")})
    got = functional.bias_gelu(x, x)
    assert isinstance(got, xarray.DataArray) and got.coords["p"].values.tolist() == list("abcdef")
    assert equal(got.values, fastgelu.gelu(2 * x.values))


def masked(a):
    return np.ma.array(a, mask=np.arange(a.size).reshape(a.shape) % 3 == 1)


def test_masked_arrays(f):
    args = inputs(f)
    got = f(*map(masked, args))
    assert isinstance(got, np.ma.MaskedArray)
    np.testing.assert_array_equal(got.mask, masked(args[0]).mask)
    want = f(*args)
    np.testing.assert_array_equal(got.compressed(), want[~got.mask])


def test_masks_are_joined():
    a, b = (
        np.ma.array([1.0, 2.0, 3.0], mask=[1, 0, 0]),
        np.ma.array([1.0, 2.0, 3.0], mask=[0, 1, 0]),
    )
    for f in (fastgelu.gelu_backward, functional.gelu_backward):
        assert f(a, b).mask.tolist() == [True, True, False]


@pytest.mark.filterwarnings("ignore:the matrix subclass:PendingDeprecationWarning")
def test_matrix(f):
    args = inputs(f)
    got = f(*map(np.matrix, args))
    assert type(got) is np.matrix
    assert equal(got, f(*args))


class Producer:
    """An array that speaks DLPack and nothing else, as many libraries' do."""

    def __init__(self, array):
        self.array = array

    def __dlpack__(self, **keywords):
        return self.array.__dlpack__(**keywords)

    def __dlpack_device__(self):
        return self.array.__dlpack_device__()


def test_dlpack_producers_are_read_only_input():
    x = inputs(fastgelu.gelu)[0]
    kept = x.copy()
    got = functional.gelu(Producer(x))
    assert type(got) is np.ndarray and equal(got, fastgelu.gelu(x))
    assert equal(functional.gelu_backward(Producer(x), x), fastgelu.gelu_backward(x, x))
    assert equal(functional.geglu(Producer(x)), functional.geglu(x))
    w = np.ones((4, 10), np.float32)
    got = functional.ffn(Producer(x), Producer(w), None, w.T, None)
    assert equal(got, functional.ffn(x, w, None, w.T, None))
    with pytest.raises(TypeError, match="return arrays must be of ArrayType"):
        functional.gelu(x, out=Producer(x))
    with pytest.raises(TypeError, match=r"out must be an ndarray, not .*Producer"):
        functional.ffn(x, w, None, w.T, None, out=Producer(x))
    assert equal(x, kept)


class OnDevice:
    """As CuPy's arrays: memory of a device, and no ufuncs but CuPy's own."""

    @property
    def __cuda_array_interface__(self):
        return {"shape": (3,), "typestr": "<f4", "data": (4096, False), "version": 3}

    def __array_ufunc__(self, ufunc, method, *args, **keywords):
        return NotImplemented

    def __array__(self, dtype=None, copy=None):
        raise TypeError("Implicit conversion to a NumPy array is not allowed")


class ByDLPack:
    """Memory of a CUDA device, by DLPack."""

    def __dlpack_device__(self):
        return (2, 0)

    def __dlpack__(self, **keywords):
        raise AssertionError("asked for")


@pytest.mark.parametrize("x", [OnDevice(), ByDLPack()], ids=["interface", "DLPack"])
def test_arrays_on_a_device_are_refused(x):
    w = np.ones((3, 3))
    for call, label in (
        (lambda: functional.gelu(x), "x"),
        (lambda: functional.silu_backward(1.0, x), "x"),
        (lambda: functional.bias_gelu(1.0, x), "b"),
        (lambda: functional.swiglu(x), "x"),
        (lambda: functional.geglu_backward(x, 1.0, 1.0), "grad_output"),
        (lambda: functional.ffn(x, w, None, w, None), "x"),
        (lambda: functional.ffn(w, w, None, x, None), "w2"),
        (lambda: fastgelu.get_activation("relu")(x), "x"),
    ):
        with pytest.raises(TypeError, match=f"{label} is a .* fastgelu.cuda") as caught:
            call()
        assert type(x).__name__ in str(caught.value)
    with pytest.raises(TypeError, match="gelu"):  # NumPy's own message
        fastgelu.gelu(x)


def test_torch_without_a_copy():
    torch = pytest.importorskip("torch", reason="torch (pip install torch)")
    x = torch.linspace(-3, 3, 1000)
    y = torch.empty_like(x)
    view = y.numpy()
    assert fastgelu.gelu(x.numpy(), out=view) is view  # out of and into torch's memory
    assert equal(y.numpy(), fastgelu.gelu(x.numpy().copy()))
    back = torch.from_numpy(fastgelu.silu(x.numpy()))
    assert equal(back.numpy(), fastgelu.silu(x.numpy().copy()))
    assert fastgelu.gelu(x.numpy(), out=x.numpy()).ctypes.data == x.data_ptr()
    assert equal(x.numpy(), y.numpy())


def test_torch_tensors_are_read_only_input():
    torch = pytest.importorskip("torch", reason="torch (pip install torch)")
    x, w, b = torch.linspace(-3, 3, 40).reshape(10, 4), torch.ones(8, 4) / 8, torch.ones(8)
    kept = x.clone()
    got = functional.gelu(x)
    assert type(got) is np.ndarray and equal(got, fastgelu.gelu(x.numpy()))
    gated = torch.nn.functional.silu(x[:, 2:]) * x[:, :2]
    np.testing.assert_allclose(functional.swiglu(x, gate="second"), gated.numpy(), rtol=1e-5)
    layers = torch.nn.functional
    want = layers.linear(layers.gelu(layers.linear(x, w, b)), w.T, None)
    np.testing.assert_allclose(functional.ffn(x, w, b, w.T, None), want.numpy(), rtol=1e-5)
    assert torch.equal(x, kept)
    with pytest.raises(RuntimeError, match="requires grad"):
        functional.gelu(x.requires_grad_())


def test_torch_gradients():
    torch = pytest.importorskip("torch", reason="torch (pip install torch)")
    rng = np.random.default_rng(5)
    arrays = [rng.normal(0, 0.5, shape) for shape in ((30, 8), (20, 8), 20, (6, 20), 6)]
    grad = rng.normal(size=(30, 6))
    layers = torch.nn.functional
    for approximate in ("none", "tanh"):
        x, w1, b1, w2, b2 = tensors = [torch.tensor(a, requires_grad=True) for a in arrays]
        hidden = layers.gelu(layers.linear(x, w1, b1), approximate=approximate)
        layers.linear(hidden, w2, b2).backward(torch.tensor(grad))
        got = functional.ffn_backward(grad, *arrays, approximate=approximate)
        for g, t in zip(got, tensors, strict=True):
            np.testing.assert_allclose(g, t.grad.numpy(), rtol=1e-10, atol=1e-12)


def test_jax():
    jax = pytest.importorskip("jax", reason="JAX (pip install jax)")
    x = inputs(fastgelu.gelu)[0]
    theirs = jax.numpy.asarray(x)
    for got in (fastgelu.gelu(theirs), functional.gelu(theirs)):
        assert type(got) is np.ndarray and equal(got, fastgelu.gelu(x))
    short = theirs.astype("bfloat16")
    assert equal(functional.silu(short), fastgelu.silu(np.asarray(short)))
    assert equal(functional.bias_gelu(theirs, theirs), functional.bias_gelu(x, x))
    with pytest.raises(TypeError, match="return arrays must be of ArrayType"):
        functional.gelu(x, out=theirs)
    assert equal(np.asarray(theirs), x)
    np.testing.assert_allclose(jax.nn.gelu(theirs), fastgelu.gelu_tanh(x), rtol=1e-4, atol=1e-6)
