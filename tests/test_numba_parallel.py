# SPDX-License-Identifier: BSD-3-Clause
"""fastgelu.numba: what the ufuncs do, on Numba's threads."""

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import sweep

import fastgelu
from fastgelu import _ufuncs

numba = pytest.importorskip("numba", reason="Numba is not installed")
import fastgelu.numba as parallel  # noqa: E402

COMPILED_ONLY = True
N = 1 << 17  # above the size from which there are threads


@pytest.fixture(autouse=True)
def two_threads():
    before = numba.get_num_threads()
    numba.set_num_threads(min(2, numba.config.NUMBA_NUM_THREADS))
    yield
    numba.set_num_threads(before)


@pytest.fixture
def parts(monkeypatch):
    """Notes how many parts each parallel call had."""
    noted = []
    run = parallel._run

    def noting(address, elements, count):
        noted.append(count)
        run(address, elements, count)

    monkeypatch.setattr(parallel, "_run", noting)
    return noted


def numbers(shape, dtype="f4", seed=1):
    return np.random.default_rng(seed).standard_normal(shape, "f4").astype(dtype)


def same(got, want):
    """Same bits, dtype, shape and memory order."""
    assert got.dtype == want.dtype and got.shape == want.shape and got.strides == want.strides
    np.testing.assert_array_equal(sweep.canonical(got.ravel()), sweep.canonical(want.ravel()))


def test_public_names():
    assert parallel.__all__ == list(
        dict.fromkeys(f.name for f in fastgelu.functions() if f.compiled)
    )
    assert fastgelu.numba is parallel
    for name in parallel.__all__:
        function = getattr(parallel, name)
        assert function.__name__ == name
        assert f"fastgelu.{name}" in function.__doc__ and "{" not in function.__doc__


def test_stores_past_the_caches(entry):
    """The same bits, also where the output is an input, which is read from there."""
    dtype = {"bf16": "bfloat16"}.get(entry.dtype, entry.dtype.replace("f", "float"))
    args = [numbers(N, dtype, seed) for seed in range(entry.inputs)]
    function, want = getattr(parallel, entry.name), entry.ufunc(*args)
    before = _ufuncs.stream_above(1)
    try:
        for offset in range(3):
            out = np.full(N + 8, 77, want.dtype)
            function(*args, out=out[offset : offset + N])
            same(out[offset : offset + N], want)
            assert (out[:offset] == 77).all() and (out[offset + N :] == 77).all()
        for number in range(entry.inputs):
            copies = [arg.copy() for arg in args]
            function(*copies, out=copies[number])
            same(copies[number], want)
    finally:
        assert _ufuncs.stream_above(before) == 1


def test_every_function_and_dtype(entry, parts):
    """The whole sweep: specials, tails and all."""
    if entry.dtype not in sweep.FRACTION_BITS:
        pytest.skip(f"the sweep has no {entry.dtype}")
    arguments = sweep.arguments(entry.dtype)[-entry.inputs :]
    with np.errstate(all="ignore"):
        got = getattr(parallel, entry.name)(*arguments)
        want = entry.ufunc(*arguments)
    same(got, want)
    assert len(parts) == 1 and parts[0] >= 2


def test_out(name, parts):
    f, ufunc = getattr(parallel, name), getattr(fastgelu, name)
    x = numbers(N)
    out = np.empty_like(x)
    assert f(*[x] * ufunc.nin, out=out) is out
    same(out, ufunc(*[x] * ufunc.nin))
    assert f(*[x] * ufunc.nin, out) is out
    y = x.copy()
    assert f(*[y] * ufunc.nin, out=(y,)) is y
    same(y, out)
    assert len(parts) == 3


ROW = numbers(2 * 700 * 300).reshape(700, 600)
VIEWS = {
    "transposed": ROW.T,
    "every second": ROW[:, ::2],
    "backwards": ROW[::-1, ::-1],
    "broadcast": np.broadcast_to(ROW[0], (300, 600)),
    "permuted": ROW.reshape(70, 10, 600).transpose(2, 0, 1),
    "ones": ROW[None, :, :, None],
    "byte-swapped": ROW.astype(">f4"),
    "not aligned": np.zeros(4 * N + 1, "u1")[1:].view("f4"),
    "int8": (100 * ROW).astype("i1"),
    "uint64": np.abs(100 * ROW).astype("u8"),
    "bool": ROW > 0,
    "float16": ROW.astype("f2"),
}


@pytest.mark.parametrize("x", VIEWS.values(), ids=VIEWS)
def test_any_layout_and_dtype(x, parts):
    same(parallel.gelu(x), fastgelu.gelu(x))
    same(parallel.silu_backward(x, x), fastgelu.silu_backward(x, x))
    same(parallel.silu_backward(2, x), fastgelu.silu_backward(2, x))
    want, got = (np.zeros((*x.shape, 2), fastgelu.gelu(x[:0]).dtype)[..., 0] for _ in range(2))
    same(parallel.gelu(x, out=got), fastgelu.gelu(x, out=want))
    assert len(parts) == 4


@pytest.mark.parametrize(
    "dy, x",
    [
        (numbers((600, 1)), numbers(500)),
        (numbers((600, 500)), numbers(500, "f8")),
        (2.0, numbers(N)),
        (np.float64(2), numbers(N)),
        (numbers(N), 1),
        (numbers(N), np.arange(N, dtype="i1")),
        (numbers(N), np.arange(N, dtype="i4")),
    ],
)
def test_broadcasting_and_promotion(dy, x, parts):
    same(parallel.gelu_backward(dy, x), fastgelu.gelu_backward(dy, x))
    assert len(parts) == 1


def test_out_of_a_larger_shape(parts):
    x, got, want = numbers(N), np.empty((3, N), "f4"), np.empty((3, N), "f4")
    same(parallel.gelu(x, out=got), fastgelu.gelu(x, out=want))
    assert len(parts) == 1


@pytest.mark.parametrize(
    "source, written",
    [
        (np.s_[:-1], np.s_[1:]),
        (np.s_[1:], np.s_[:-1]),
        (np.s_[::-1], np.s_[:]),
        (np.s_[:], np.s_[:]),
        (np.s_[0], np.s_[:]),
    ],
)
def test_shared_memory(source, written, parts):
    got, want = numbers((600, 500)), numbers((600, 500))
    fastgelu.gelu_backward(want[source], want[written], out=want[written])
    parallel.gelu_backward(got[source], got[written], out=got[written])
    same(got, want)
    assert len(parts) == 1


def test_small_arrays_scalars_and_others_go_to_the_ufunc(parts):
    class Other(np.ndarray):
        pass

    assert parallel.gelu(1.0) == fastgelu.gelu(1.0)
    assert type(parallel.gelu(np.float32(1))) is np.float32
    same(parallel.gelu(numbers(100)), fastgelu.gelu(numbers(100)))
    assert type(parallel.gelu(numbers(N).view(Other))) is Other
    assert parallel.gelu([1.0] * 3).shape == (3,)
    masked = np.ma.masked_less(numbers(N), 0)
    assert parallel.gelu(masked).mask.sum() == masked.mask.sum()
    assert parts == []


def calls(function):
    read_only = np.zeros(N)
    read_only.flags.writeable = False
    yield lambda: function(np.zeros(N, complex))
    yield lambda: function(np.zeros(N, object))
    yield lambda: function(np.zeros(N, "longdouble"))
    yield lambda: function(np.zeros(N), out=np.zeros(N - 1))
    yield lambda: function(np.zeros(N), out=np.zeros(N, int))
    yield lambda: function(np.zeros(N), out=read_only)
    yield lambda: function(np.zeros(N), out=[0.0] * N)
    yield lambda: function(np.zeros((2, N)), out=np.zeros(N))
    yield lambda: function(np.zeros(N), None, None)
    yield lambda: function()


def test_errors_are_the_ufuncs():
    for ours, numpys in zip(calls(parallel.gelu), calls(fastgelu.gelu)):
        with pytest.raises(Exception) as want:  # noqa: PT011 (compared below)
            numpys()
        with pytest.raises(type(want.value)) as got:
            ours()
        if "argument" not in str(want.value):
            assert str(got.value) == str(want.value)
    with pytest.raises(ValueError, match="could not be broadcast together"):
        parallel.gelu_backward(np.zeros(N), np.zeros(N + 1))


@pytest.mark.parametrize("dtype", ["f4", "f8"])
def test_errstate(binary_name, dtype):
    f = getattr(parallel, binary_name)
    x, largest = np.full(N, 2.0, dtype), np.zeros(N, dtype)
    largest[N - 5] = np.finfo(dtype).max
    with np.errstate(all="raise", under="ignore"):
        f(x, x)
        with pytest.raises(FloatingPointError, match=f"overflow encountered in {binary_name}"):
            f(largest, x)
        infinite = np.full(N, np.inf, dtype)
        with pytest.raises(FloatingPointError, match=f"invalid value encountered in {binary_name}"):
            f(infinite, -infinite)
    with pytest.warns(RuntimeWarning, match="overflow encountered"):
        assert np.isinf(f(largest, x)).sum() == 1
    seen = []
    with np.errstate(over="call", invalid="call", call=lambda kind, _: seen.append(kind)):
        f(largest, x)
    assert seen == ["overflow"]
    with np.errstate(all="raise"):
        np.multiply(x, x)  # nothing is left behind in the flags of this thread


def test_threads_are_those_that_numba_is_told(parts):
    numba.set_num_threads(1)
    same(parallel.gelu(numbers(N)), fastgelu.gelu(numbers(N)))
    assert parts == []
    if numba.config.NUMBA_NUM_THREADS > 1:
        numba.set_num_threads(2)
        parallel.gelu(numbers(N))
        assert len(parts) == 1


# ---- threading layers, forks ----------------------------------------------------------------


def layers():
    """The layers that this Numba has."""
    from numba.np.ufunc import parallel as pool

    found = ["workqueue"]
    for name, module in (("omp", "omppool"), ("tbb", "tbbpool")):
        try:
            __import__(f"{pool.__package__}.{module}")
        except ImportError:
            continue
        found.append(name)
    return found


THREADS = """
import threading
import numpy as np, numba, fastgelu, fastgelu.numba
x = np.random.default_rng(1).standard_normal(1 << 18, "f4")
want = fastgelu.gelu(x)
calls = [0]
run = fastgelu.numba._run
def noting(*args):
    calls[0] += 1
    run(*args)
fastgelu.numba._run = noting
wrong = []
def work():
    for _ in range(20):
        if not (fastgelu.numba.gelu(x) == want).all():
            wrong.append(1)
{first}
threads = [threading.Thread(target=work) for _ in range(4)]
[thread.start() for thread in threads]
[thread.join() for thread in threads]
assert not wrong
work()
assert not wrong
print(numba.threading_layer(), calls[0])
"""


@pytest.mark.parametrize("layer", layers())
@pytest.mark.parametrize("first", ["", "work()"], ids=["threads first", "main first"])
def test_four_python_threads(layer, first, run_python):
    output = run_python(
        THREADS.format(first=first), NUMBA_THREADING_LAYER=layer, NUMBA_NUM_THREADS="2"
    )
    found, calls = output.split()
    print(output)
    assert found == layer
    alone = 20 + 20 * bool(first)
    assert int(calls) == (alone if layer == "workqueue" else alone + 80)


FORK = """
import os, sys
import numpy as np, numba
from numba import njit, prange

@njit(parallel=True)
def users(x):
    for i in prange(x.size):
        x[i] += 1

if sys.argv[1] == "user":  # starts the threads before anything of ours is imported
    users(np.zeros(100000))
import fastgelu
x = np.random.default_rng(1).standard_normal(1 << 18, "f4")
want = fastgelu.gelu(x)
if sys.argv[1] == "ours":
    import fastgelu.numba
    fastgelu.numba.gelu(x)
sys.stdout.flush()
child = os.fork()
if child == 0:
    import fastgelu.numba
    same = (fastgelu.numba.gelu(x) == want).all()
    os._exit(0 if same else 1)
_, status = os.waitpid(child, 0)
import fastgelu.numba
same = (fastgelu.numba.gelu(x) == want).all()
print(numba.threading_layer(), status, same)
"""


@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system has no fork")
@pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning")
@pytest.mark.parametrize("layer", layers())
@pytest.mark.parametrize("before", ["ours", "user"])
def test_after_a_fork(layer, before, run_python):
    source = "import warnings; warnings.simplefilter('ignore', DeprecationWarning)\n" + FORK
    output = run_python(source, before, NUMBA_THREADING_LAYER=layer, NUMBA_NUM_THREADS="2")
    assert output.split() == [layer, "0", "True"]


def test_without_the_compiler(run_python):
    source = """
import numpy as np, fastgelu, fastgelu.numba
from numba import njit
x = np.linspace(-9, 9, 200000)
assert (fastgelu.numba.gelu(x) == fastgelu.gelu(x)).all()
@njit
def user(x):
    return fastgelu.gelu(x)
assert user(1.0) == fastgelu.gelu(1.0)
"""
    run_python(source, NUMBA_DISABLE_JIT="1")


# ---- an installation that cannot be written to ----------------------------------------------


@pytest.mark.skipif(os.name != "posix", reason="paths of POSIX")
def test_read_only_installation_without_a_home(tmp_path):
    """No place for a cache: compiled each time, and nothing fails. Permissions would not stop
    root, so that files are where Numba would make directories."""
    site = tmp_path / "site"
    shutil.copytree(
        Path(fastgelu.__file__).parent,
        site / "fastgelu",
        ignore=shutil.ignore_patterns("__pycache__"),
    )
    (site / "fastgelu" / "__pycache__").write_text("")
    source = f"""
import sys
sys.path.insert(0, {str(site)!r})
import numpy as np, fastgelu, fastgelu.numba
assert fastgelu.__file__.startswith({str(site)!r}), fastgelu.__file__
x = np.linspace(-9, 9, 200000)
assert (fastgelu.numba.gelu(x) == fastgelu.gelu(x)).all()
print(type(fastgelu.numba._run._cache).__name__)
"""
    environment = {
        key: value
        for key, value in os.environ.items()
        if key not in ("HOME", "NUMBA_CACHE_DIR", "PYTHONPYCACHEPREFIX")
    }
    done = subprocess.run(
        [sys.executable, "-P", "-B", "-W", "error", "-c", source],
        env=environment | {"XDG_CACHE_HOME": "/dev/null/none"},
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout == "NullCache\n"


def test_stubs_name_every_function():
    stub = Path(parallel.__file__).with_suffix(".pyi").read_text()
    assert re.findall(r"^def (\w+)\(", stub, re.MULTILINE) == parallel.__all__
