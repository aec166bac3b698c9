# SPDX-License-Identifier: BSD-3-Clause
"""fastgelu.cuda without a device: under Numba's simulator, and the PTX that comes out."""

import functools
import importlib.metadata
import importlib.util
import os
import re
import shutil
import subprocess
import sys
from collections import Counter
from pathlib import Path

import numpy as np
import pytest
import sweep

import fastgelu
from fastgelu import _cuda, _operations

try:
    importlib.metadata.version("numba-cuda")
except importlib.metadata.PackageNotFoundError:
    pytest.skip("numba-cuda is not installed", allow_module_level=True)

COMPILED_ONLY = True
HERE = Path(__file__).parent
BENCHMARKS = HERE.parent / "benchmarks"
CAPABILITIES = [(7, 5), (8, 0), (9, 0)]
TYPES = {"f16": "float16", "bf16": "bfloat16", "f32": "float32", "f64": "float64"}
WIDER = {"f16": "f32", "bf16": "f32"}
# What loads and stores look like: a vector, and one element.
WIDTHS = {"f16": "v4.u32 b16", "bf16": "v4.u32 u16", "f32": "v4.f32 f32", "f64": "v2.f64 f64"}


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
    assert int(re.search(r"(\d+) passed", done.stdout)[1]) > 250


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


def arithmetic_of(found, dtype):
    """The instructions that compute with reals."""
    return {i for i in found if re.match(rf"(add|sub|mul|fma|mad|div|rcp).*\.{dtype}$", i)}


@pytest.mark.parametrize("capability", CAPABILITIES, ids=str)
def test_arithmetic_is_what_the_formula_says(cuda, entry, capability):
    name, dtype = entry.name, WIDER.get(entry.dtype, entry.dtype)
    other = {"f32": "f64", "f64": "f32"}[dtype]
    for layout, dimensions in (("contiguous", 0), ("strided", 2)):
        ptx = kernel_ptx(layout, name, entry.dtype, capability, dimensions)
        conversions = {"cvt.f32.f16", "cvt.rn.f16.f32"} if entry.dtype == "f16" else set()
        if entry.dtype == "bf16" and capability >= (8, 0):
            conversions = {"cvt.rn.bf16.f32"}
            conversions |= {"cvt.rn.bf16x2.f32"} if layout == "contiguous" else set()
        assert f".target sm_{capability[0]}{capability[1]}" in ptx
        found = instructions(ptx)
        assert ".local" not in ptx and not re.search(r"\bcall\b", ptx)
        assert not [i for i in found if re.search(r"\.(approx|ftz|sat)\b", i)]
        assert not [
            i
            for i in found
            if re.search(rf"\.({other}|f16|f16x2|bf16|bf16x2)\b", i) and i not in conversions
        ]
        assert {i for i in found if re.match(r"cvt.*f(16|32|64)", i)} == conversions
        # each one rounded by name, so that ptxas contracts nothing
        arithmetic = arithmetic_of(found, dtype)
        known = {f"{operation}.rn.{dtype}" for operation in ("add", "mul", "fma", "div", "rcp")}
        assert arithmetic <= known
        assert f"fma.rn.{dtype}" in arithmetic


@pytest.mark.parametrize("capability", CAPABILITIES, ids=str)
def test_contiguous_kernels_load_and_store_16_bytes(cuda, entry, capability):
    from fastgelu._cuda_kernels import IN_FLIGHT

    ptx = kernel_ptx("contiguous", entry.name, entry.dtype, capability)
    found = instructions(ptx)
    vector, one = WIDTHS[entry.dtype].split()
    assert found[f"ld.global.{vector}"] == IN_FLIGHT * entry.inputs
    assert found[f"st.global.{vector}"] == IN_FLIGHT
    memory = {i for i in found if re.match(r"(ld|st)\b", i) and not i.startswith("ld.param")}
    memory -= {"ld.global.nc.f32", "ld.global.nc.v2.f64"}  # the tables
    assert memory == {f"{i}.global.{v}" for i in ("ld", "st") for v in (vector, one)}
    # several in flight: what is loaded in the loop does not wait for what is stored in it
    accesses = re.findall(rf"\b(ld|st)\.global\.{re.escape(vector)}", ptx)
    assert accesses == ["ld"] * IN_FLIGHT * entry.inputs + ["st"] * IN_FLIGHT


@pytest.mark.parametrize("others", [0, 1, 2])
def test_shorter_ways(cuda, monkeypatch, others):
    """Each is written once for all elements of a thread; what they load and store is the same. The
    division is that of the long way, where all has to come out right."""
    from fastgelu import _cuda_overloads as overloads

    ways = tuple((0.5, 4.0 + i, True) for i in range(others))
    monkeypatch.setattr(overloads, "ways", lambda name, dtype: ways)
    kernel_ptx.cache_clear()
    ptx = kernel_ptx("contiguous", "silu_grad", "f32", (9, 0))
    kernel_ptx.cache_clear()
    loop = ptx[ptx.index("ld.global.v4.f32") : ptx.rindex("st.global.v4.f32")]
    elements = overloads.IN_FLIGHT * overloads.VECTOR_BYTES // 4
    assert loop.count("div.rn.f32") == elements
    columns = _operations.constants("f32").silu_grad_columns
    assert loop.count("ld.global.nc.f32") == (others + 1) * elements * columns
    assert loop.count("ld.global.v4.f32") == overloads.IN_FLIGHT
    assert ptx.count("st.global.v4.f32") == overloads.IN_FLIGHT
    for i in range(others):  # the limit of each, for each element
        limit = np.float32(4 + i).view("u4")
        assert len(re.findall(rf"setp\.\w+\.f32.*0f{limit:08X}", loop)) >= elements


@pytest.mark.parametrize("layout, dimensions", [("contiguous", 0), ("strided", 1)])
def test_addresses_have_64_bits(cuda, entry, layout, dimensions):
    """Every index that is multiplied by a count of blocks or a stride."""
    ptx = kernel_ptx(layout, entry.name, entry.dtype, (8, 0), dimensions)
    products = Counter(re.findall(r"\b((?:mul|mad)\.(?:lo|hi|wide)\.[us]\d\d)\b", ptx))
    assert products["mul.lo.s64"] + products["mad.lo.s64"] > 0
    # 32 bits: the number of a thread in the whole grid only, which is not larger than the device
    assert products["mul.lo.s32"] + products["mad.lo.s32"] <= 2
    addresses = set(re.findall(r"(?:ld|st)\.global\S*\s.*?\[(%\w+?)\d", ptx))
    assert addresses == {"%rd"}


@pytest.mark.parametrize("dimensions", [1, 3, 5])
def test_strided_kernels_of_more_dimensions(cuda, dimensions):
    ptx = kernel_ptx("strided", "gelu_backward", "f32", (8, 0), dimensions)
    found = instructions(ptx)
    assert ".local" not in ptx
    assert found["ld.global.f32"] >= 2 and found["st.global.f32"] >= 1


@pytest.mark.parametrize("capability", CAPABILITIES, ids=str)
def test_lookup(cuda, capability):
    """One address for all tables, each at its constant distance; through the read-only cache."""
    from numba.cuda import types
    from numba.cuda.extending import intrinsic

    from fastgelu import _cuda_overloads

    tables = tuple(tuple(float(8 * k + i) for i in range(8)) for k in range(3))

    @intrinsic
    def polynomial(context, x):
        def codegen(context, builder, signature, args):
            reals = _cuda_overloads.NvvmReals(builder, "f32", tables)
            index = reals.bits(reals.add(args[0], reals.set(1.5 * 2.0**23)))
            row = reals.row(sum(tables, ()), 8, 3, index)
            value = reals.entry(row, 0)
            for n in (1, 2):
                value = reals.fma(value, args[0], reals.entry(row, n))
            return value

        return types.float32(types.float32), codegen

    def kernel(x, y):
        i = cuda.grid(1)
        if i < x.size:
            y[i] = polynomial(x[i])

    ptx = cuda.compile_ptx(kernel, (types.float32[::1],) * 2, cc=capability)[0]
    array = re.search(r"\.global \.align 64 \.b8 (fastgelu_table_\w+)\[96\] = {(.*?)}", ptx)
    entries = np.array(array[2].split(","), np.uint8).view(np.float32)
    assert entries.tolist() == [float(i) for i in range(24)]
    assert len(re.findall(rf"mov\.u64 .*{array[1]};", ptx)) == 1
    loads = re.findall(r"ld\.global\.nc\.f32 .*\[(%rd\d+)(\+\d+)?\]", ptx)
    assert len({base for base, _ in loads}) == 1
    assert sorted(distance for _, distance in loads) == ["", "+32", "+64"]
    found = instructions(ptx)
    assert ".local" not in ptx and ".const" not in ptx and not found["selp.f32"]
    assert re.search(r"and\.b(32|64) .*, 28;|and\.b(32|64) .*, 7;|bfe\.u32", ptx)  # 3 bits count


def test_rounding_to_bfloat16_in_integers(cuda, rng):
    """What compute capability 7.5 does, compiled for the CPU: with the NaN of devices."""
    from numba import njit, types
    from numba.extending import intrinsic

    from fastgelu import _cuda_overloads

    @intrinsic
    def rounded(context, x):
        def codegen(context, builder, signature, args):
            return builder.trunc(
                _cuda_overloads.round_bfloat16(builder, args[0]), _cuda_overloads.HALF
            )

        return types.uint16(types.float32), codegen

    @njit
    def loop(x, y):
        for i in range(x.size):
            y[i] = rounded(x[i])

    every = np.arange(1 << 16, dtype=np.uint32) << 16
    about = [(every + low).view(np.float32) for low in (0, 1, 0x7FFF, 0x8000, 0x8001, 0xFFFF)]
    x = np.concatenate(about)
    y = np.empty(x.size, np.uint16)
    loop(x, y)
    np.testing.assert_array_equal(y, _operations.rounded("bf16", x))
    assert y[np.flatnonzero(x.view(np.uint32) == 0x7FFFFFFF)[0]] == 0x7FC0


# ---- the user's kernels --------------------------------------------------------------------


@pytest.mark.parametrize("fastmath", [False, True])
def test_ufuncs_in_a_kernel(cuda, entry, fastmath):
    """Their operations are those of the package's own kernels, whatever the caller's are."""
    from numba.cuda import types

    name, dtype = entry.name, WIDER.get(entry.dtype, entry.dtype)
    f = entry.ufunc
    real = getattr(types, TYPES[entry.dtype])
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
    own = instructions(kernel_ptx("strided", name, entry.dtype, (8, 0), 1))
    assert arithmetic_of(found, dtype) <= arithmetic_of(own, dtype)
    assert found[f"fma.rn.{dtype}"] > 0


def compile_for(cuda, f, *given):
    if len(given) == 1:
        return cuda.compile_ptx(lambda x: f(x), given, cc=(8, 0), device=True)
    return cuda.compile_ptx(lambda x1, x2: f(x1, x2), given, cc=(8, 0), device=True)


def test_types_of_scalars(cuda):
    from numba.cuda import types

    single, double = types.float32, types.float64
    half, brain = types.float16, types.bfloat16
    for given, want in (
        ([single], single),
        ([double], double),
        ([types.int32], double),
        ([types.uint8], double),
        ([single, single], single),
        ([single, double], double),
        ([types.int64, single], double),
        ([half], half),
        ([brain, brain], brain),
    ):
        f = fastgelu.silu if len(given) == 1 else fastgelu.silu_backward
        assert compile_for(cuda, f, *given)[1] == want


@pytest.mark.parametrize(
    "given",
    ["complex64", "unicode_type", "float16 float32", "bfloat16 float16", "int32 bfloat16"],
)
def test_other_scalars_are_typing_errors(cuda, given):
    from numba.core.errors import TypingError
    from numba.cuda import types

    given = [getattr(types, type_) for type_ in given.split()]
    f = fastgelu.gelu if len(given) == 1 else fastgelu.gelu_backward
    with pytest.raises(TypingError, match=r"in CUDA kernels takes scalars"):
        compile_for(cuda, f, *given)


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


@pytest.mark.parametrize("first", ["njit", "cuda"])
def test_compiled_functions_of_both_kinds_in_a_process(cuda, run_python, first):
    """numba-cuda sees what is registered with Numba for the CPU."""
    run_python(
        f"first = {first!r}"
        """
import numpy as np
import fastgelu, fastgelu._numba, fastgelu.cuda
from numba import cuda, njit
from numba.core.errors import TypingError
from numba.cuda import types
fastgelu._numba.init()
@njit
def on_cpu(x):
    return fastgelu.gelu(x), fastgelu.silu_backward(x, x)
def on_device(x, y):
    y[0] = fastgelu.gelu(x[0]) + fastgelu.silu_backward(x[0], y[0])
def use_cpu():
    assert on_cpu(np.float32(1.5))[0] == fastgelu.gelu(np.float32(1.5))
    assert on_cpu(np.ones(3))[1].shape == (3,)
def use_device():
    for type_ in (types.float32, types.float64, types.int32):
        ptx, _ = cuda.compile_ptx(on_device, (type_[::1], types.float64[::1]), cc=(8, 0))
        assert "fma.rn" in ptx and "fastgelu_plan" not in ptx
    try:
        cuda.compile_ptx(lambda x: fastgelu.gelu(x), (types.float32[::1],), cc=(8, 0), device=True)
    except TypingError as error:
        assert "fastgelu.gelu in CUDA kernels takes scalars" in str(error), error
    else:
        raise AssertionError("an array was taken")
steps = [use_cpu, use_device]
for step in steps if first == "njit" else steps[::-1]:
    step()
use_cpu()
use_device()
"""
    )


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


# ---- the scripts ---------------------------------------------------------------------------


def script(name, *args, **environment):
    return subprocess.run(
        [sys.executable, "-P", "-W", "error", BENCHMARKS / name, *args],
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        timeout=300,
    )


def test_gpu_benchmark_in_the_simulator():
    names, dtypes = ("silu", "gelu_backward"), [TYPES[dtype] for dtype in TYPES]
    if importlib.util.find_spec("ml_dtypes") is None:
        dtypes.remove("bfloat16")
    done = script("gpu.py", "--simulate", "--functions", *names, "--dtypes", *dtypes)
    assert done.returncode == 0, done.stderr + done.stdout
    assert f"{2 * len(dtypes)} functions and dtypes compared" in done.stdout
    assert "all bits are the CPU's" in done.stdout
    table = done.stdout[done.stdout.index("| function |") :].splitlines()
    assert table[0] == "| function | " + " | ".join(dtypes) + " |"
    assert [row.split(" | ")[0] for row in table[2:]] == [f"| {name}" for name in names]
    cells = [cell.strip(" |") for row in table[2:] for cell in row.split(" | ")[1:]]
    assert all(re.fullmatch(r"\d+ \d+\.\d\d -", cell) for cell in cells), table


@pytest.mark.parametrize("wrong, want", [(0, 0), (1, 1)])
def test_gpu_benchmark_finds_wrong_bits(run_python, wrong, want):
    run_python(
        f"wrong, want = {wrong}, {want}"
        """
import sys
sys.argv = ["gpu.py", "--simulate", "--functions", "silu", "--dtypes", "float32"]
sys.path.append(sys.path[0])
import gpu
functions, device = gpu.load(True)
from fastgelu import _cuda_simulated
formulas = _cuda_simulated.FORMULAS["f32"]
right = formulas["silu"]
def nudged(x, near):
    y = right(x, near)
    return y if not wrong else (y.view("i4") + (x == 3)).view("f4")
formulas["silu"] = nudged
try:
    gpu.main()
except SystemExit as end:
    assert end.code == want, end.code
""",
        PYTHONPATH=os.pathsep.join(
            filter(None, [str(BENCHMARKS), str(HERE), os.environ.get("PYTHONPATH")])
        ),
    )


def test_gpu_benchmark_without_a_device(cuda):
    if cuda.is_available():
        pytest.skip("there is a device")
    done = script("gpu.py", NUMBA_ENABLE_CUDASIM="0")
    assert done.returncode == 3 and "there is no CUDA device here" in done.stderr
    assert not done.stdout


def test_table_of_the_kernels(cuda):
    select = ("--functions", "silu", "gelu_backward", "--dtypes", "float32", "float16")
    done = script("ptx_table.py", *select, "--capability", "8.0")
    assert done.returncode == 0, done.stderr
    rows = [line.strip("| ").split(" | ") for line in done.stdout.splitlines() if "| " in line]
    assert rows[0][2] in ("registers (ptxas)", "virtual registers of 32 bits (no ptxas found)")
    assert len(rows) == 1 + 4
    for name, _, registers, loads, stores, _ in rows[1:]:
        assert int(registers) > 10
        assert (loads, stores) == ({"silu": "2 x 16", "gelu_backward": "4 x 16"}[name], "2 x 16")


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
    from fastgelu import _cuda_kernels

    before = _cuda_kernels.stamp()
    for part in _cuda_kernels.PARTS:
        shutil.copy(_cuda_kernels.FOLDER / f"{part}.py", tmp_path)
    monkeypatch.setattr(_cuda_kernels, "FOLDER", tmp_path)
    assert _cuda_kernels.stamp.__wrapped__() == before
    for part in _cuda_kernels.PARTS:
        with open(tmp_path / f"{part}.py", "a") as file:
            file.write("\n")
        assert _cuda_kernels.stamp.__wrapped__() != before
        before = _cuda_kernels.stamp.__wrapped__()
    _cuda_kernels.kernel.__wrapped__("contiguous", "gelu", "f32")  # can be made without a device


def test_dtypes():
    assert set(TYPES) == {*sweep.FRACTION_BITS, *_operations.WIDER}
    assert _operations.WIDER == WIDER
