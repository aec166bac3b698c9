# SPDX-License-Identifier: BSD-3-Clause
"""The functions inside the user's own compiled code."""

import importlib.metadata
import platform
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import sweep

import fastgelu
from fastgelu import _formulas, _formulas16, _numba, _operations

numba = pytest.importorskip("numba", reason="Numba is not installed")
from numba import njit  # noqa: E402
from numba.core.errors import TypingError  # noqa: E402

COMPILED_ONLY = True
SPECIAL = [0.0, -0.0, np.inf, -np.inf, np.nan, 5e-324, 1e-40, 1e308, -1e308, -0.75, -20.0, 3.0]


def same_bits(got, want):
    got, want = np.asarray(got), np.asarray(want)
    assert got.dtype == want.dtype and got.shape == want.shape
    np.testing.assert_array_equal(sweep.canonical(np.ravel(got)), sweep.canonical(np.ravel(want)))


def compiled(name, **options):
    """A function of arrays, a loop over scalars, and one that passes arrays and out."""
    f = getattr(fastgelu, name)
    if f.nin == 1:

        def loop(x, y):
            for i in range(x.size):
                y[i] = f(x[i])

        def into(x, y):
            return f(x, out=y)

        def new(x):
            return f(x)

    else:

        def loop(dy, x, y):
            for i in range(x.size):
                y[i] = f(dy[i], x[i])

        def into(dy, x, y):
            return f(dy, x, out=y)

        def new(dy, x):
            return f(dy, x)

    return [njit(**options)(function) for function in (loop, into, new)]


@pytest.fixture(autouse=True)
def with_formula(request):
    entry = getattr(request.node, "callspec", None) and request.node.callspec.params.get("entry")
    if entry and entry.dtype not in sweep.FRACTION_BITS:
        pytest.skip(f"compiled functions have no {entry.dtype}")


def numbers(shape, dtype="f8", seed=1):
    x = np.random.default_rng(seed).normal(0, 3, shape)
    return x.astype(dtype)


# ---- bits ---------------------------------------------------------------------------------


@njit
def fnv1a(data):
    value = np.uint64(0xCBF29CE484222325)
    for byte in data:
        value = (value ^ np.uint64(byte)) * np.uint64(0x100000001B3)
    return value


def test_bits_of_the_c_kernels_over_the_sweep(entry):
    """Against the kernels that run here, and against the checked-in hash of all targets."""
    arguments = sweep.arguments(entry.dtype)[-entry.inputs :]
    got = np.empty_like(arguments[-1])
    compiled(entry.name)[0](*arguments, got)
    with np.errstate(all="ignore"):
        same_bits(got, entry.ufunc(*arguments))
    digest = fnv1a(sweep.canonical(got).view("u1"))
    assert f"{digest:016x}" == f"{sweep.known_hashes()[entry.name, entry.dtype]:016x}"


@pytest.mark.parametrize("dtype", ["f32", "f64"])
@pytest.mark.parametrize("f", [fastgelu.gelu, fastgelu.silu, fastgelu.gelu_tanh_backward], ids=str)
def test_fastmath_of_the_caller_stops_at_the_call(f, dtype):
    """It concerns the caller's own arithmetic; ours would be simplified to nonsense."""
    arguments = [a[::3].copy() for a in sweep.arguments(dtype)[-f.nin :]]
    got = np.empty_like(arguments[-1])
    compiled(f.__name__, fastmath=True)[0](*arguments, got)
    with np.errstate(all="ignore"):
        same_bits(got, f(*arguments))


def rows_reader(dtype, table, rows, columns):
    """A compiled loop over a polynomial whose coefficients are a row of a table."""
    from numba import types
    from numba.extending import intrinsic

    from fastgelu import _llvm

    real = {"f32": types.float32, "f64": types.float64}[dtype]

    @intrinsic
    def polynomial(context, x):
        def codegen(context, builder, signature, args):
            reals = _llvm.LlvmReals(builder, dtype)
            index = reals.bits(reals.add(args[0], reals.set(1.5 * 2 ** sweep.FRACTION_BITS[dtype])))
            return by_row(reals, reals.row(table, rows, columns, index), columns, args[0])

        return real(real), codegen

    @njit
    def loop(x, y):
        for i in range(x.size):
            y[i] = polynomial(x[i])

    return loop


def by_row(reals, row, columns, x):
    value = reals.entry(row, 0)
    for n in range(1, columns):
        value = reals.fma(value, x, reals.entry(row, n))
    return value


@pytest.mark.parametrize("dtype, rows", [("f32", 8), ("f64", 64)])
def test_rows_of_tables(dtype, rows, rng):
    """In registers (f32), and in memory (f64)."""
    real = np.dtype(dtype.replace("f", "float"))
    columns = 3
    table = tuple(rng.normal(size=rows * columns).astype(real).tolist())
    x = rng.normal(0, 2 * rows, 3000).astype(real)
    got = np.empty_like(x)
    loop = rows_reader(dtype, table, rows, columns)
    loop(x, got)
    reals = _operations.NumpyReals(dtype)
    index = np.rint(x).astype(int)  # the low bits of a number that is large enough
    assert len(set(index % rows)) == rows
    same_bits(got, by_row(reals, reals.row(table, rows, columns, index), columns, x))
    if platform.machine() == "x86_64" and dtype == "f32":
        asm = loop.inspect_asm(loop.signatures[0])
        assert re.search(r"v?blendv?m?ps.*[yz]mm", asm) and "gather" not in asm


OTHERS = {  # processors and what they have, and the lanes of float32 that loops call for
    "no fma": ("generic", "", [4]),  # llvm.fma then calls the C library's
    "avx2": ("haswell", "+avx,+avx2,+fma", [4, 8]),
    "avx512": (
        "skylake-avx512",  # which would rather have vectors of 256 bits
        "+avx,+avx2,+fma,+avx512f,+avx512vl,+avx512dq,-prefer-256-bit",
        [8, 16],
    ),
}


@pytest.mark.parametrize("cpu", OTHERS)
def test_bits_on_other_processors(cpu, run_python):
    model, features, lanes = OTHERS[cpu]
    if cpu != "no fma" and not fastgelu.targets().get(cpu):
        pytest.skip(f"this machine has no {cpu}")
    output = run_python(
        r"""
import re, numpy as np, fastgelu, sweep
from numba import njit
functions = ("gelu f32", "gelu_backward f32", "silu_grad f64", "silu f64")
for name, dtype in map(str.split, functions):
    f = getattr(fastgelu, name)
    if f.nin == 1:
        @njit
        def loop(x, y):
            for i in range(x.size):
                y[i] = f(x[i])
    else:
        @njit
        def loop(dy, x, y):
            for i in range(x.size):
                y[i] = f(dy[i], x[i])
    arguments = [a[::97].copy() for a in sweep.arguments(dtype)[-f.nin :]]
    y = np.empty_like(arguments[0])
    loop(*arguments, y)
    with np.errstate(all="ignore"):
        assert (sweep.canonical(y) == sweep.canonical(f(*arguments))).all(), name
    asm = loop.inspect_asm(loop.signatures[0])
    found = sorted({int(n) for n in re.findall(r"\bfastgelu_formula_\w+?_f32_(\d+)\b", asm)})
    print(any(fma in asm for fma in ("vfmadd", "fmla")), "gather" in asm, found)
""",
        NUMBA_CPU_NAME=model if platform.machine() == "x86_64" else "generic",
        NUMBA_CPU_FEATURES=features,
    )
    if platform.machine() == "x86_64":
        fma = str(cpu != "no fma")
        assert output.splitlines() == [f"{fma} False {lanes}"] * 2 + [f"{fma} False []"] * 2


def test_loops_over_larger_numbers_too():
    """Vectors then have fewer lanes."""

    @njit
    def mixed(x, z, y):
        for i in range(x.size):
            y[i] = z[i] * fastgelu.gelu(x[i])

    x, z = numbers(1000, "f4"), numbers(1000)
    y = np.empty_like(z)
    mixed(x, z, y)
    same_bits(y, z * fastgelu.gelu(x))


def test_a_loop_that_is_no_simd():
    @njit
    def chain(x, n):
        for _ in range(n):
            x = fastgelu.gelu_backward(np.float32(1), x) - np.float32(0.25)
        return x

    want = np.float32(3)
    for _ in range(9):
        want = fastgelu.gelu_backward(np.float32(1), want) - np.float32(0.25)
    assert chain(np.float32(3), 9) == want


def test_cached_code_needs_nothing_of_the_process_that_made_it(run_python, tmp_path):
    (tmp_path / "user.py").write_text(
        """
import fastgelu
from numba import njit
@njit(cache=True)
def loop(x, y):
    for i in range(x.size):
        y[i] = fastgelu.gelu(x[i])
"""
    )
    code = (
        f"import sys; sys.path.append({str(tmp_path)!r})"
        + """
import numpy as np, fastgelu, user
x = np.linspace(-9, 9, 1000)
y = np.empty_like(x)
user.loop(x, y)
assert (y == fastgelu.gelu(x)).all()
print(sum(user.loop.stats.cache_hits.values()))
"""
    )
    assert [run_python(code).strip() for _ in range(2)] == ["0", "1"]


@pytest.mark.skipif(platform.machine() != "x86_64", reason="looks for the registers of x86-64")
@pytest.mark.parametrize("dtype", ["f4", "f8"])
def test_the_users_loop_becomes_simd(name, dtype):
    """With the default error model, and other work in the loop."""
    f = getattr(fastgelu, name)
    if f.nin == 1:

        @njit
        def fused(x, b, g, y):
            for i in range(x.size):
                y[i] = f(x[i] + b[i]) * g[i]

    else:

        @njit
        def fused(x, b, g, y):
            for i in range(x.size):
                y[i] = f(g[i], x[i] + b[i])

    x, b, g = (numbers(100, dtype, seed) for seed in range(3))
    y = np.empty_like(x)
    fused(x, b, g, y)
    same_bits(y, f(x + b) * g if f.nin == 1 else f(g, x + b))
    asm = fused.inspect_asm(fused.signatures[0])
    packed = "ps" if dtype == "f4" else "pd"
    assert len(re.findall(rf"\bvfn?m(?:add|sub)\d+{packed}\b.*%[yz]mm", asm)) > 8
    # what the loop takes the address of, or calls: the formula for vectors
    vectors = rf"fastgelu_formula_{name}_{dict(f4='f32', f8='f64')[dtype]}_\d+\b"
    assert re.search(rf"^\s+(?:mov|call)\w*\s+\$?{vectors}", asm, re.MULTILINE)
    # vectors in memory do not cross lines of the cache
    assert re.search(r"and\w*\s+\$-(?:32|64), %rsp", asm)


def test_every_operation_that_occurs_is_there():
    from fastgelu import _llvm

    for operation in {*_formulas.OPERATIONS, *_formulas16.OPERATIONS}:
        kind, _, name = operation.partition("_")
        assert hasattr(_llvm.LlvmReals if kind == "v" else _llvm.LlvmIntegers, name), operation


# ---- scalars --------------------------------------------------------------------------------


@pytest.mark.parametrize("type_", [np.int8, np.uint8, np.int32, np.uint64, bool, float])
def test_scalars_of_other_types_are_float64(unary_name, type_):
    f = getattr(fastgelu, unary_name)
    y = compiled(unary_name)[2](type_(1))
    assert type(y) is float
    assert y == f(type_(1))


def test_large_unsigned_integers():
    @njit
    def value(x):
        return fastgelu.gelu(x)

    assert value(np.uint64(2**64 - 1)) == 2.0**64


def test_scalar_types_of_two_arguments():
    f = fastgelu.gelu_backward

    @njit
    def value(dy, x):
        return f(dy, x)

    for first in ("f4", "f8", "i1", "i8", "?"):
        for second in ("f4", "f8", "i4", "u1"):
            value(np.ones((), first)[()], np.ones((), second)[()])
            want = f.resolve_dtypes((np.dtype(first), np.dtype(second), None))[-1]
            assert str(value.nopython_signatures[-1].return_type) == want.name, (first, second)


def test_specials_one_by_one(entry):
    with np.errstate(over="ignore"):
        values = np.array(SPECIAL).astype(sweep.Format(entry.dtype).real)
    f = entry.ufunc
    scalar = compiled(entry.name)[2]
    for x in values:
        arguments = [x] * entry.inputs
        with np.errstate(all="ignore"):
            # float32 comes out as Python's float, which holds it exactly
            same_bits(np.array([scalar(*arguments)], x.dtype), np.array([f(*arguments)]))


def test_inside_vectorize():
    @numba.vectorize
    def fused(x, b):
        return fastgelu.gelu_tanh(x + b)

    x = numbers(50, "f4")
    same_bits(fused(x, np.float32(1)), fastgelu.gelu_tanh(x + np.float32(1)))


# ---- arrays ---------------------------------------------------------------------------------

SHAPES = {
    "1-d": ((40,), (40,)),
    "2-d": ((5, 8), (5, 8)),
    "0-d": ((), ()),
    "empty": ((0, 3), (0, 3)),
    "rows, none": ((3,), (0, 3)),
    "columns, none": ((4, 1), (4, 0)),
    "ones, none": ((1, 1, 1), (2, 0, 3)),
    "row": ((8,), (5, 8)),
    "column": ((5, 1), (5, 8)),
    "ones": ((1, 1), (5, 8)),
    "3-d": ((4, 1, 6), (4, 5, 6)),
}


@pytest.mark.parametrize("shape, out_shape", SHAPES.values(), ids=SHAPES)
@pytest.mark.parametrize("dtype", ["f4", "f8"])
def test_out(shape, out_shape, dtype):
    for f in (fastgelu.gelu, fastgelu.silu_backward):
        _, into, _ = compiled(f.__name__)
        x = numbers(shape, dtype)
        arguments = [numbers(out_shape, dtype, 2), x][-f.nin :]
        out, want = np.zeros(out_shape, dtype), np.zeros(out_shape, dtype)
        assert into(*arguments, out) is out
        f(*arguments, out=want)
        same_bits(out, want)


def views(x):
    """Of one shape, (6, 9), in all kinds of memory order."""
    whole = np.zeros((20, 40), x.dtype)
    yield from (x.copy(), x.copy(order="F"), whole[1:7, 2:11], whole[:12:2, 30:3:-3])
    yield from (whole.T[:6, :9], whole[::-1, ::-1][2:8, 3:12])
    packed = np.zeros(6 * 9 * x.itemsize + 1, "u1")[1:].view(x.dtype)
    if sys.byteorder == "little" and platform.machine() in ("x86_64", "aarch64"):
        yield packed.reshape(6, 9)  # not aligned


@pytest.mark.parametrize("dtype", ["f4", "f8"])
def test_strides(dtype):
    for f in (fastgelu.gelu, fastgelu.silu_backward):
        _, into, _ = compiled(f.__name__)
        x = numbers((6, 9), dtype)
        want = f(*[x] * f.nin)
        for source in views(x):
            for out in views(x):
                source[...] = x
                out[...] = 0
                into(*[source] * f.nin, out)
                same_bits(out, want)


@pytest.mark.parametrize("shape", [(0, 8), (4, 0), (0, 0), (3, 0, 8)], ids=str)
def test_strides_of_nothing(shape):
    for f in (fastgelu.gelu, fastgelu.silu_backward):
        _, into, _ = compiled(f.__name__)
        x = np.zeros(shape, "f4")[..., ::2]
        assert into(*[x] * f.nin, np.zeros_like(x)[::-1]).size == 0


def test_out_may_be_an_input_or_share_its_memory():
    _, into, _ = compiled("gelu")
    _, back, _ = compiled("gelu_backward")
    x = numbers((30, 4))
    for source, target in [
        (np.s_[:], np.s_[:]),
        (np.s_[:-1], np.s_[1:]),
        (np.s_[1:], np.s_[:-1]),
        (np.s_[::-1], np.s_[:]),
        (np.s_[:15], np.s_[::2]),
        (np.s_[0], np.s_[:]),
        (np.s_[:, 0], np.s_[:, 1]),
    ]:
        want, got = x.copy(), x.copy()
        fastgelu.gelu(want[source], out=want[target])
        into(got[source], got[target])
        same_bits(got, want)
        want, got = x.copy(), x.copy()
        fastgelu.gelu_backward(want[source], want[target], out=want[target])
        back(got[source], got[target], got[target])
        same_bits(got, want)


@pytest.mark.parametrize(
    "f, dtype", [(fastgelu.gelu, "i1"), (fastgelu.silu_backward, "u8"), (fastgelu.gelu, "f4")]
)
def test_integers_and_wider_out(f, dtype):
    _, into, new = compiled(f.__name__)
    x = np.arange(12).astype(dtype)
    same_bits(new(*[x] * f.nin), f(*[x] * f.nin))
    out, want = np.zeros(12), np.zeros(12)
    same_bits(into(*[x] * f.nin, out), f(*[x] * f.nin, out=want))


def test_mixed_dtypes_of_two_arguments():
    f = fastgelu.gelu_backward
    _, into, new = compiled("gelu_backward")
    arrays = [numbers(9, "f4"), numbers(9), np.arange(9), np.float32(2), 0.5]
    for i, dy in enumerate(arrays):
        for j, x in enumerate(arrays):
            if (i < 3 and j != i) or (j < 3 and i > 3):
                # Numba's scalars have a dtype of their own, as NumPy's have
                dtype = np.result_type(np.asarray(dy).dtype, np.asarray(x).dtype)
                a, b = np.asarray(dy), np.asarray(x)
                want = f(a.astype(dtype), b.astype(dtype))
                same_bits(new(dy, x), want)
                same_bits(into(dy, x, np.zeros_like(want)), want)


def test_float64_into_float32():
    _, into, _ = compiled("gelu")
    x, out, want = numbers(50), np.zeros(50, "f4"), np.zeros(50, "f4")
    into(x, out)
    fastgelu.gelu(x, out=want)
    same_bits(out, want)


@pytest.mark.parametrize(
    "options", [{}, {"no_rewrites": True}, {"parallel": True}, {"error_model": "numpy"}], ids=str
)
def test_array_expressions(options):
    @njit(**options)
    def layer(x, b, g):
        return fastgelu.gelu(x + b) * g + fastgelu.gelu_backward(g, x)

    x, b, g = numbers((7, 9), "f4", 1), numbers((1, 9), "f4", 2), numbers((7, 1), "f4", 3)
    if "parallel" in options:  # where Numba does not broadcast two arguments, NumPy's own neither
        b, g = (np.broadcast_to(a, x.shape).copy() for a in (b, g))
    want = fastgelu.gelu(x + b) * g + fastgelu.gelu_backward(g, x)
    same_bits(layer(x, b, g), want)


def test_new_arrays_of_broadcast_arguments():
    new = compiled("gelu_backward", no_rewrites=True)[2]
    for dy, x in [
        (numbers((3, 1)), numbers(4)),
        (numbers(4), 2.0),
        (2.0, numbers((2, 3))),
        (numbers((2, 3)), numbers((2, 3))),
    ]:
        same_bits(new(dy, x), fastgelu.gelu_backward(dy, x))


def test_in_a_parallel_loop_of_the_user():
    @njit(parallel=True)
    def rows(x, y):
        for i in numba.prange(x.shape[0]):
            fastgelu.silu(x[i], out=y[i])

    x = numbers((64, 100), "f4")
    y = np.empty_like(x)
    rows(x, y)
    same_bits(y, fastgelu.silu(x))


# ---- errors ---------------------------------------------------------------------------------


def test_shapes_that_do_not_fit():
    _, into, _ = compiled("gelu")
    for shape, out_shape in [((3,), (4,)), ((2, 3), (3,)), ((4, 3), (4, 1)), ((1, 3), (3,))]:
        with pytest.raises(ValueError, match=r"fastgelu\.gelu: .*do not broadcast"):
            into(np.zeros(shape), np.zeros(out_shape))


@pytest.mark.parametrize(
    "arguments, message",
    [
        ((np.zeros(3), np.zeros(3, int)), "cannot cast the result from float64 to int64"),
        ((np.zeros(3), np.zeros(3, "f2")), "cannot cast the result from float64 to float16"),
        ((np.zeros(3, complex), np.zeros(3)), "takes float32, float64, integers and bool"),
        ((1.0, 2.0), "out must be an array, not float64"),
    ],
)
def test_bad_arguments(arguments, message):
    with pytest.raises(TypingError, match=rf"fastgelu\.gelu.*{message}"):
        compiled("gelu")[1](*arguments)


def test_read_only_out():
    out = np.zeros(3)
    out.flags.writeable = False
    with pytest.raises(TypingError, match=r"fastgelu\.gelu: out is read-only"):
        compiled("gelu")[1](np.zeros(3), out)


# ---- cache ----------------------------------------------------------------------------------

CACHED = """
import time
import numpy as np
import fastgelu
from numba import njit, prange

@njit(cache=True)
def into(x, y):
    return fastgelu.gelu(x, out=y)

@njit(cache=True)
def strided(dy, x, y):
    return fastgelu.gelu_backward(dy, x, out=y)

@njit("f4(f4)", cache=True)
def eager(x):
    return fastgelu.silu(x)

def main():
    x = np.linspace(-9, 9, 101).astype("f4")
    start = time.perf_counter()
    y = into(x, np.empty_like(x))
    z = strided(x[::2], x[:51], np.empty(101, "f4")[::-2])
    seconds = time.perf_counter() - start
    assert (y == fastgelu.gelu(x)).all()
    assert (z == fastgelu.gelu_backward(x[::2], x[:51])).all()
    assert eager(np.float32(1)) == fastgelu.silu(np.float32(1))
    hits = [sum(f.stats.cache_hits.values()) for f in (into, strided)]
    print(*hits, eager.stats.cache_path != "", f"{seconds:.4f}")
"""


def test_a_second_process_loads_from_the_cache(run_python, tmp_path):
    (tmp_path / "cached.py").write_text(CACHED)
    program = f"import sys; sys.path.insert(0, {str(tmp_path)!r}); import cached; cached.main()"
    first = run_python(program, NUMBA_CACHE_DIR=str(tmp_path / "cache")).split()
    second = run_python(program, NUMBA_CACHE_DIR=str(tmp_path / "cache")).split()
    assert first[:2] == ["0", "0"] and second[:2] == ["1", "1"]
    print(f"seconds until the first results: compiled {first[3]}, from the cache {second[3]}")
    for target in (name for name, supported in fastgelu.targets().items() if supported):
        found = run_python(program, NUMBA_CACHE_DIR=str(tmp_path / "cache"), FASTGELU_TARGET=target)
        assert found.split()[:2] == ["1", "1"]


# ---- Numba missing, old or broken -----------------------------------------------------------


def test_the_entry_point_is_installed():
    (entry_point,) = importlib.metadata.entry_points(
        group="numba_extensions", name="init", module="fastgelu._numba"
    )
    assert entry_point.load() is _numba.init


def test_nothing_needs_numba_before_it_is_used(run_python):
    source = """
import sys, numpy as np, fastgelu
fastgelu.gelu(np.ones(100000))
print("numba" in sys.modules, "llvmlite" in sys.modules)
"""
    assert run_python(source).split() == ["False", "False"]


FAKES = {
    "not installed": (
        "raise ModuleNotFoundError(\"No module named 'numba'\", name='numba')",
        "which is not installed: pip install 'fastgelu[numba]'",
    ),
    "ImportError": (
        "raise ImportError('Numba needs NumPy 2.3 or less. Got NumPy 2.4.')",
        "failed with ImportError: Numba needs NumPy 2.3 or less. Got NumPy 2.4.",
    ),
    "SystemError": (
        "raise SystemError('initialization of _internal failed')",
        "failed with SystemError: initialization of _internal failed",
    ),
    "AttributeError": (
        "raise AttributeError(\"module 'numpy' has no attribute 'long'\")",
        "failed with AttributeError: module 'numpy' has no attribute 'long'",
    ),
    "a part is missing": (
        "import llvmlite_which_is_not_there",
        "failed with ModuleNotFoundError: No module named 'llvmlite_which_is_not_there'",
    ),
    "too old": (
        "__version__ = '0.59.1'",
        "needs Numba 0.60 or newer, and this is Numba 0.59.1",
    ),
}


@pytest.mark.parametrize("source, message", FAKES.values(), ids=FAKES)
def test_a_numba_that_does_not_work(source, message, run_python, tmp_path):
    (tmp_path / "numba.py").write_text(source)
    output = run_python(
        """
import sys
sys.path.insert(0, sys.argv[1])
import numpy as np, fastgelu
assert fastgelu.gelu(0.0) == 0
for _ in range(2):
    try:
        import fastgelu.numba
    except ImportError as error:
        print(error)
try:
    fastgelu.numba
except ImportError as error:
    print(error)
assert fastgelu.gelu(0.0) == 0
""",
        tmp_path,
    )
    lines = output.splitlines()
    assert len(lines) == 3
    for line in lines:
        assert message in line and "pip install" in line


def test_compiled_functions_say_that_numba_is_too_old(run_python):
    output = run_python("""
import numba
numba.__version__ = "0.59.1"
from numba import njit
import fastgelu

@njit
def plain(x):
    return x + 1

@njit
def user(x):
    return fastgelu.gelu(x)

assert plain(1) == 2  # no word of ours where nothing of ours is used
try:
    user(1.0)
except numba.TypingError as error:
    print(error)
""")
    assert "needs Numba 0.60 or newer, and this is Numba 0.59.1" in output
    assert "pip install -U 'fastgelu[numba]'" in output


@pytest.mark.parametrize(
    "version, fine",
    [("0.60.0", True), ("0.61.0rc1", True), ("1.0", True), ("0.59.1", False), ("0.6", False)],
)
def test_versions(version, fine):
    assert (_numba.version_problem(version) is None) == fine


# ---- the benchmark --------------------------------------------------------------------------


def test_the_benchmark_prints_its_tables():
    script = Path(__file__).parents[1] / "benchmarks" / "numba_functions.py"
    options = (
        "--functions silu gelu_backward --dtypes float32 --seconds 0 --points 100 --sizes 64Ki"
    )
    done = subprocess.run(
        [sys.executable, "-P", "-W", "error", script, *options.split()],
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("100 of 100") == 2
    for line in ("gelu(x + b) * g", "fastgelu.numba", "Threads: 1 each"):
        assert line in done.stdout


def test_functions_without_a_formula_are_refused():
    others = [f.name for f in fastgelu.functions() if not f.compiled]
    others += [f.name for f in fastgelu.fused_functions()]
    assert "gelu_grad2" in others and "geglu_backward" in others
    for name in dict.fromkeys(others):
        ufunc = getattr(fastgelu, name)
        arguments = ", ".join(["x"] * ufunc.nin)
        function = njit(eval(f"lambda x: ufunc({arguments})", {"ufunc": ufunc}))
        with pytest.raises(TypingError, match=f"fastgelu.{name} cannot be called in compiled"):
            function(1.0)
