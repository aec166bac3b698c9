# SPDX-License-Identifier: BSD-3-Clause
"""fastgelu.cuda without a device: under Numba's simulator, and the PTX that comes out."""

import functools
import importlib.metadata
import os
import re
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest
import sweep

import fastgelu
from fastgelu import _cuda

try:
    importlib.metadata.version("numba-cuda")
except importlib.metadata.PackageNotFoundError:
    pytest.skip("numba-cuda is not installed", allow_module_level=True)

COMPILED_ONLY = True
HERE = Path(__file__).parent
CAPABILITIES = [(7, 5), (8, 0), (9, 0)]
TYPES = {"f32": "float32", "f64": "float64"}


def test_in_the_simulator():
    path = os.pathsep.join(filter(None, [str(HERE), os.environ.get("PYTHONPATH")]))
    command = [sys.executable, "-P", "-W", "error", "-m", "pytest", "-q", "-p", "no:cacheprovider"]
    done = subprocess.run(
        [*command, HERE / "cuda_simulator.py"],
        env={**os.environ, "PYTHONPATH": path, "NUMBA_ENABLE_CUDASIM": "1"},
        capture_output=True,
        text=True,
        timeout=300,
    )
    print(done.stdout[-10_000:], done.stderr[-2_000:])
    assert done.returncode == 0
    assert int(re.search(r"(\d+) passed", done.stdout)[1]) > 150


# ---- PTX ---------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def cuda():
    cuda = pytest.importorskip("numba.cuda", reason="numba.cuda cannot be imported")
    _cuda.init()
    try:
        cuda.compile_ptx(lambda: None, (), cc=(8, 0))
    except Exception as error:
        if not re.search("nvvm|nvrtc", str(error)):
            raise
        pytest.skip(f"numba-cuda cannot compile here: {str(error).splitlines()[0]}")
    return cuda


def instructions(ptx):
    """How often each occurs."""
    return Counter(re.findall(r"^\s+(?:@!?%p\d+ )?([a-z]+[\w.]*)", ptx, re.MULTILINE))


@functools.cache
def kernel_ptx(layout, name, dtype, capability, dimensions=0):
    from numba import cuda, types

    from fastgelu import _cuda_kernels

    function = getattr(_cuda_kernels, layout)(name, dtype, _cuda_kernels.stamp())
    tuples = [types.UniTuple(types.int64, dimensions)] * 4
    extra = [types.int64] if layout == "contiguous" else []
    signature = (*[types.int64] * 4, *extra, *(tuples if dimensions else []))
    return cuda.compile_ptx(function, signature, cc=capability)[0]


@pytest.fixture
def kernels(cuda, entry):
    if entry.dtype not in TYPES:
        pytest.skip(f"fastgelu.cuda has no {entry.dtype}")
    return entry.name, entry.dtype


@pytest.mark.parametrize("capability", CAPABILITIES, ids=str)
def test_arithmetic_is_what_the_formula_says(kernels, entry, capability):
    name, dtype = kernels
    other = {"f32": "f64", "f64": "f32"}[dtype]
    for ptx in (
        kernel_ptx("contiguous", name, dtype, capability),
        kernel_ptx("strided", name, dtype, capability, 2),
    ):
        assert f".target sm_{capability[0]}{capability[1]}" in ptx
        found = instructions(ptx)
        assert ".local" not in ptx and not re.search(r"\bcall\b", ptx)
        assert not [i for i in found if re.search(r"\.(approx|ftz|sat)\b", i)]
        assert not [i for i in found if i.endswith(f".{other}")]
        # each one rounded by name, so that ptxas contracts nothing
        arithmetic = {i for i in found if re.match(rf"(add|sub|mul|fma|mad|div|rcp).*\.{dtype}", i)}
        known = {f"{operation}.rn.{dtype}" for operation in ("add", "mul", "fma", "div", "rcp")}
        assert arithmetic <= known
        assert f"fma.rn.{dtype}" in arithmetic


@pytest.mark.parametrize("capability", CAPABILITIES, ids=str)
def test_contiguous_kernels_load_and_store_16_bytes(kernels, entry, capability):
    from fastgelu._cuda_kernels import IN_FLIGHT

    name, dtype = kernels
    ptx = kernel_ptx("contiguous", name, dtype, capability)
    found = instructions(ptx)
    vector = {"f32": "v4.f32", "f64": "v2.f64"}[dtype]
    assert found[f"ld.global.{vector}"] == IN_FLIGHT * entry.inputs
    assert found[f"st.global.{vector}"] == IN_FLIGHT
    memory = {i for i in found if re.match(r"(ld|st)\b", i) and not i.startswith("ld.param")}
    assert memory == {f"{i}.global.{v}" for i in ("ld", "st") for v in (vector, dtype)}
    # several in flight: what is loaded in the loop does not wait for what is stored in it
    accesses = re.findall(rf"\b(ld|st)\.global\.{re.escape(vector)}", ptx)
    assert accesses == ["ld"] * IN_FLIGHT * entry.inputs + ["st"] * IN_FLIGHT


@pytest.mark.parametrize("dimensions", [1, 3, 5])
def test_strided_kernels_of_more_dimensions(cuda, dimensions):
    ptx = kernel_ptx("strided", "gelu_backward", "f32", (8, 0), dimensions)
    found = instructions(ptx)
    assert ".local" not in ptx
    assert found["ld.global.f32"] >= 2 and found["st.global.f32"] >= 1


# ---- the user's kernels --------------------------------------------------------------------


@pytest.mark.parametrize("fastmath", [False, True])
def test_ufuncs_in_a_kernel(cuda, kernels, entry, fastmath):
    """Their operations are those of the package's own kernels, whatever the caller's are."""
    from numba import types

    name, dtype = kernels
    f = entry.ufunc
    real = getattr(types, TYPES[dtype])
    if f.nin == 1:

        def kernel(x, y):
            i = cuda.grid(1)
            if i < x.size:
                y[i] = f(x[i])

    else:

        def kernel(x, y):
            i = cuda.grid(1)
            if i < x.size:
                y[i] = f(y[i], x[i])

    signature = (real[::1], real[::1])
    found = instructions(cuda.compile_ptx(kernel, signature, cc=(8, 0), fastmath=fastmath)[0])
    own = instructions(kernel_ptx("strided", name, dtype, (8, 0), 1))
    arithmetic = re.compile(rf"(add|sub|mul|fma|mad|div|rcp).*\.{dtype}")
    assert {i for i in found if arithmetic.match(i)} <= {i for i in own if arithmetic.match(i)}
    assert found[f"fma.rn.{dtype}"] > 0


def compile_for(cuda, f, *given):
    if len(given) == 1:
        return cuda.compile_ptx(lambda x: f(x), given, cc=(8, 0), device=True)
    return cuda.compile_ptx(lambda x1, x2: f(x1, x2), given, cc=(8, 0), device=True)


def test_types_of_scalars(cuda):
    from numba import types

    single, double = types.float32, types.float64
    for given, want in (
        ([single], single),
        ([double], double),
        ([types.int32], double),
        ([types.uint8], double),
        ([single, single], single),
        ([single, double], double),
        ([types.int64, single], double),
    ):
        f = fastgelu.silu if len(given) == 1 else fastgelu.silu_backward
        assert compile_for(cuda, f, *given)[1] == want


@pytest.mark.parametrize("type_", ["complex64", "float16", "unicode_type"])
def test_other_scalars_are_typing_errors(cuda, type_):
    from numba import types
    from numba.core.errors import TypingError

    with pytest.raises(TypingError, match=r"fastgelu\.gelu in CUDA kernels takes scalars"):
        compile_for(cuda, fastgelu.gelu, getattr(types, type_))


def test_arrays_are_typing_errors(cuda):
    from numba import types
    from numba.core.errors import TypingError

    with pytest.raises(TypingError, match=r"fastgelu\.gelu in CUDA kernels takes scalars"):
        compile_for(cuda, fastgelu.gelu, types.float32[::1])


def test_the_entry_point_is_installed(cuda, run_python):
    """For the releases of numba-cuda that look at it; see _cuda.py."""
    entries = importlib.metadata.entry_points(group="numba_cuda_extensions", name="init")
    if "fastgelu._cuda:init" not in {entry.value for entry in entries}:
        pytest.skip("built in place: no entry point is installed")
    (entry,) = (entry for entry in entries if entry.value == "fastgelu._cuda:init")
    assert entry.load() is _cuda.init


@pytest.mark.parametrize("first", ["fastgelu.cuda", "numba.cuda"])
def test_import_of_fastgelu_cuda_makes_the_ufuncs_known(cuda, run_python, first):
    run_python(
        f"import {first}"
        """
import fastgelu.cuda
from numba import cuda, types
@cuda.jit
def kernel(x, y):
    y[0] = fastgelu.gelu(x[0])
assert "fma.rn.f32" in cuda.compile_ptx(kernel.py_func, (types.float32[::1],) * 2, cc=(8, 0))[0]
"""
    )


# ---- import --------------------------------------------------------------------------------


def test_versions():
    assert _cuda.version_problem("0.30.4") is None
    assert _cuda.version_problem("1.0rc1") is None
    assert "pip install -U 'fastgelu[cuda]'" in _cuda.version_problem("0.22.1")
    assert "not installed" in _cuda.version_problem(None)


def test_import_without_numba_cuda(run_python):
    run_python("""
import importlib.metadata, sys
version = importlib.metadata.version
def missing(name):
    if name == "numba-cuda":
        raise importlib.metadata.PackageNotFoundError(name)
    return version(name)
importlib.metadata.version = missing
import fastgelu
try:
    fastgelu.cuda
except ImportError as error:
    assert "pip install -U 'fastgelu[cuda]'" in str(error), error
else:
    raise AssertionError("imported")
assert not {"numba", "numba_cuda"} & set(sys.modules)
""")


def test_key_of_the_cache_follows_the_formulas(cuda, monkeypatch, tmp_path):
    from fastgelu import _cuda_kernels, _formulas

    before = _cuda_kernels.stamp()
    changed = tmp_path / "changed.py"
    changed.write_bytes(Path(_formulas.__file__).read_bytes() + b"\n")
    monkeypatch.setattr(_formulas, "__file__", str(changed))
    assert _cuda_kernels.stamp.__wrapped__() != before
    _cuda_kernels.kernel.__wrapped__("contiguous", "gelu", "f32")  # can be made without a device


def test_sweep_has_the_dtypes():
    assert set(TYPES) == set(sweep.FRACTION_BITS)
