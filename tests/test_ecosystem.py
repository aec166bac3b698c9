# SPDX-License-Identifier: BSD-3-Clause
"""The ufuncs on the containers of other packages, each tested where it is installed."""

import subprocess
import sys

import numpy as np
import oracle
import pytest

import fastgelu


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
