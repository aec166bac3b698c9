# SPDX-License-Identifier: BSD-3-Clause
"""The formulas in Python: they are the C text, and computed with NumPy they give the C bits."""

import importlib.util
import re
import subprocess
import sys
from fractions import Fraction
from pathlib import Path

import numpy as np
import pytest
import sweep

from fastgelu import _formulas, _formulas16, _operations

COMPILED_ONLY = True
ROOT = Path(__file__).parents[1]
GENERATOR = ROOT / "native" / "tools" / "generate_formulas.py"


@pytest.fixture(scope="module")
def generator():
    spec = importlib.util.spec_from_file_location("generate_formulas", GENERATOR)
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    yield module
    del sys.modules[spec.name]


# ---- the translation --------------------------------------------------------------------


def test_formulas_are_those_of_algorithms_h():
    done = subprocess.run(
        [sys.executable, GENERATOR, "--check"], capture_output=True, text=True, timeout=60
    )
    assert done.returncode == 0, done.stderr


def translated(generator, text):
    """The functions of a C text, run with numbers: v_add adds."""
    translator = generator.Translator(generator.preprocess(text))
    translator.file()
    source = "\n".join(line for lines in translator.functions.values() for line in lines)
    names = {"V": Numbers, "K": Constants}
    names |= {
        name: __import__("collections").namedtuple(name, fields)
        for name, fields in translator.structs.items()
    }
    exec(source, names)
    return names


class Numbers:
    def add(a, b):
        return a + b

    def mul(a, b):
        return a * b

    def set(c):
        return c


class Constants:
    one = 1
    table = (5, 7, 11, 13)


C_PAIR = "typedef struct pair { V hi, lo; } pair;\n"


@pytest.mark.parametrize(
    "text, arguments, want",
    [
        ("static FG_INLINE V f(V a, V b) { return v_add(v_mul(a, b), FG_C(one)); }", (2, 3), 7),
        ("static V f(int near) { if (near) return v_set(1); else { return v_set(2); } }", (1,), 1),
        ("static V f(int near) { return near ? v_set(1) : v_set(2); }", (0,), 2),
        (
            "static V f(int n) { V s = v_set(0); for (int i = n - 1; i >= 0; i--) "
            "s = v_add(v_mul(s, v_set(10)), v_set(FG_NAME(fg_table)[i])); return s; }",
            (4,),
            14175,
        ),
        ("static V f(int a) { int b = a; b -= 1; b *= 3; return v_set(b % 4 + b / 4); }", (6,), 6),
        ("static int f(int a) { return -(a + 1) * 2 - (3 - (a - 1)); }", (4,), -10),
        ("static int f(int a) { return !(a > 1 && a != 3) || a == 2; }", (3,), True),
        (
            "#define TWICE(x) v_add(x, \\\n    x)\nstatic V f(V a) { return TWICE(TWICE(a)); }",
            (3,),
            12,
        ),
        (
            "#define MAKE(kind) static V kind##_g(V a) { return v_add(a, FG_C(kind)); }\n"
            "MAKE(one)\n#undef MAKE\nstatic V f(V a) { return one_g(a); }",
            (3,),
            4,
        ),
        (
            "static V FG_NAME(f)(const T *c) { return v_set(c[FG_COUNT(FG_NAME(fg_table)) - 1]); }",
            ((1, 2, 3, 4),),
            4,
        ),
        ("static V f(V from, V in) { const V is = v_add(from, in); return is; }", (3, 4), 7),
        (
            "#define FG_H(name) FG_PASTE(name, FG_HALF)\n"
            "static V FG_H(g)(V a, const fg_f32 *c, int n) { return v_add(a, v_set(c[n])); }\n"
            "static V f(V a) { return FG_H(g)(a, FG_H(fg_table), FG_DEGREE(table)); }",
            (3,),
            16,
        ),
        (
            "typedef struct FG_H(two) { V a, b; } FG_H(two);\n"
            "#define TWICE(x) v_add(x, x)\n#define APPLY(WHAT, x) WHAT(x)\n"
            "static V f(V a) { (void)a; const FG_H(two) r = {a, APPLY(TWICE, a)}; return r.b; }",
            (4,),
            8,
        ),
    ],
)
def test_translation(generator, text, arguments, want):
    assert translated(generator, text)["f"](*arguments) == want


def test_structs_are_values(generator):
    text = (
        C_PAIR
        + """
/* an argument that is changed stays what it was for the caller */
static pair g(pair p) { p.lo = v_add(p.hi, p.lo); return p; }
static V f(V a) {
    pair r;
    r.hi = a;
    r.lo = v_mul(r.hi, a); // uses a part
    const pair s = {r.lo, r.hi}, t = g(r);
    r.hi = v_set(100);
    return v_add(v_add(s.hi, s.lo), v_add(v_mul(r.hi, r.lo), t.lo));
}
"""
    )
    assert translated(generator, text)["f"](3) == 9 + 3 + 900 + 12


@pytest.mark.parametrize(
    "text, message",
    [
        ("#if 1\n#endif", "1: directive not understood"),
        ("static V f(V a) {\n  while (1) return a; }", "2: while is not a variable"),
        ("static V f(V a) {\n  return v_add(a, b); }", "2: b is not a variable"),
        ("static V f(V a) {\n  return g(a); }", "2: g is neither an operation"),
        ("static V f(V a) { float b = a; return b; }", "1: float is not a variable"),
        ("static V f(V a) { V b = a; { V b = a; } return b; }", "1: b hides another b"),
        ("static V f(V a) { return (float)a; }", "float is not a variable"),
        ("static V f(V a) { return a.hi }", "1: expected ';'"),
        ("static V f(V a) { return 1.5f; }", "1: '5f; }' is no token"),
        ("static V f(V a);", "1: f has no body"),
        ("enum { A };", "1: neither a typedef nor a static function"),
        ("static V f(V a) { return a; }\nstatic V f(V a) { return a; }", "2: f is defined twice"),
        (C_PAIR + "static V f(V a) { pair r; r.hi = a; return r.lo; }", "2: r.lo is not set yet"),
        (C_PAIR + "static pair f(V a) { pair r; r.hi = a; return r; }", "2: r is not wholly set"),
        (C_PAIR + "static V f(V a, int n) { pair r; if (n) r.hi = a; return a; }", "one branch"),
        (C_PAIR + "static V f(V a) { pair r = {a}; return r.hi; }", "2: pair has 2 fields"),
    ],
)
def test_what_is_not_known_is_an_error_with_its_line(generator, text, message):
    with pytest.raises(generator.Unknown, match=re.escape(message)):
        translated(generator, text)


def test_check_finds_a_stale_file(generator, monkeypatch, tmp_path):
    stale = tmp_path / "_formulas.py"
    monkeypatch.setattr(generator, "OUTPUT", stale)
    monkeypatch.setattr(generator, "ROOT", tmp_path)
    monkeypatch.setattr(sys, "argv", ["generate_formulas.py", "--check"])
    with pytest.raises(SystemExit, match="out of date"):
        generator.main()
    stale.write_text(generator.render(generator.SOURCE.read_text()))
    generator.main()
    monkeypatch.setattr(generator, "OUTPUT16", tmp_path / "_formulas16.py")
    with pytest.raises(SystemExit, match=r"out of date: _formulas16\.py"):
        generator.main()
    source16 = generator.SOURCE16
    generator.OUTPUT16.write_text(generator.render(source16.read_text(), source16))
    generator.main()
    text = stale.read_text()
    assert "V.mul(a, b)" in text
    stale.write_text(text.replace("V.mul(a, b)", "V.mul(b, a)"))
    with pytest.raises(SystemExit, match="out of date"):
        generator.main()


# ---- NumPy's operations -----------------------------------------------------------------


def operations(dtype):
    return _operations.NumpyReals(dtype), _operations.NumpyIntegers(dtype)


@pytest.mark.parametrize("dtype", ["f32", "f64"])
def test_every_operation_that_occurs_is_there(dtype):
    reals, integers = operations(dtype)
    for operation in {*_formulas.OPERATIONS, *_formulas16.OPERATIONS}:
        kind, _, name = operation.partition("_")
        assert callable(getattr(reals if kind == "v" else integers, name)), operation


def fma_arguments(dtype, rng, count):
    """Of all magnitudes; in a third of them the sum nearly cancels, in another it nearly ties."""
    digits = sweep.FRACTION_BITS[dtype] + 1
    real = np.dtype(dtype.replace("f", "float")).type
    most = 40 if dtype == "f32" else 300

    def draw():
        mantissa = rng.integers(1 << (digits - 1), 1 << digits, count)
        return real(mantissa) * real(2.0) ** rng.integers(-most, most, count).astype(real)

    a, b, c = draw(), -draw(), draw()
    with np.errstate(over="ignore", under="ignore"):
        product = a * b
    third = count // 3
    c[:third] = -product[:third]
    tiny = np.spacing(product) / 2
    c[third : 2 * third] = (tiny * (1 + rng.integers(-1, 2, count) * np.finfo(real).eps))[
        third : 2 * third
    ]
    return a, b, c


@pytest.mark.parametrize("dtype", ["f32", "f64"])
def test_numpy_fma_rounds_once(dtype, rng):
    reals, _ = operations(dtype)
    a, b, c = fma_arguments(dtype, rng, 3000)
    got = reals.fma(a, b, c)
    assert got.dtype == a.dtype
    twice = 0
    for i in range(len(a)):
        exact = Fraction(float(a[i])) * Fraction(float(b[i])) + Fraction(float(c[i]))
        if not np.isfinite(got[i]):
            continue
        error = abs(Fraction(float(got[i])) - exact)
        for neighbour in (np.nextafter(got[i], -np.inf), np.nextafter(got[i], np.inf)):
            if np.isfinite(neighbour):
                other = abs(Fraction(float(neighbour)) - exact)
                even = int(got[i].view(f"u{a.itemsize}")) % 2 == 0
                assert error < other or (error == other and even), (a[i], b[i], c[i])
        with np.errstate(all="ignore"):
            twice += bool(a[i] * b[i] + c[i] != got[i])
    assert twice > 100  # it is not just a product and a sum


def operations_of(dtype):
    return operations(_operations.WIDER.get(dtype, dtype))


@pytest.mark.parametrize("way", ["", "near_", "far_"])
@pytest.mark.parametrize("some", [False, True])
def test_numpy_gives_the_bits_of_the_kernels(entry, way, some):
    """Of each way where it is right: everywhere (""), near and far from 0."""
    if entry.dtype in _operations.WIDER:
        pytest.skip("computed for every input below")
    dy, x = sweep.arguments(entry.dtype)
    constants = _operations.constants(entry.dtype)
    near = np.abs(x) < getattr(constants, f"{entry.name}_far")
    right = {"": np.full(len(x), True), "near_": near, "far_": ~near}[way]
    come_in = np.full(len(x), True)
    if way and not some:
        come_in = right & (np.abs(x) <= getattr(constants, f"{entry.name}_end"))
    chosen = np.flatnonzero(come_in)
    chosen = chosen[:: max(1, len(chosen) // 3000)]
    dy, x, right = dy[chosen], x[chosen], right[chosen]
    assert right.sum() > 500
    function = _formulas.formulas(*operations(entry.dtype), constants)[way + entry.name]
    arguments = (dy, x)[-entry.inputs :]
    with np.errstate(all="ignore"):
        got = function(*arguments, *([some] if way else []))
        want = entry.ufunc(*arguments)
    assert got.dtype == want.dtype
    np.testing.assert_array_equal(sweep.canonical(got[right]), sweep.canonical(want[right]))


@pytest.mark.parametrize("way", ["everywhere", "near", "far", "plain"])
def test_16_bits_for_every_input(entry, way, rng):
    """Of each way where it is right. Backward with some dy for each x: all are dy too."""
    if entry.dtype not in _operations.WIDER:
        pytest.skip("more than 16 bits")
    constants = _operations.constants(entry.dtype)
    functions = _operations.formulas(entry.dtype, *operations_of(entry.dtype))
    function = functions[f"plain_{entry.name}" if way == "plain" else entry.name]
    near = {"everywhere": [0], "near": [1], "far": [-1], "plain": []}[way]
    every = np.arange(1 << 16, dtype=np.uint16)
    real = np.dtype("float16" if entry.dtype == "f16" else "bfloat16")
    t = every & 0x7FFF
    low, far, end = (getattr(constants, f"{entry.name}_{w}_bits") for w in ("low", "far", "end"))
    right, fewest = {
        "everywhere": (t >= 0, 1 << 16),
        "near": (t < far, 30_000),
        "far": ((t >= low) & (t <= end), 300),
        "plain": (~np.isfinite(_operations.widened(entry.dtype, every)), 256),
    }[way]
    assert np.count_nonzero(right) >= fewest
    for _ in range(1 if entry.inputs == 1 else 6 if way == "everywhere" else 3):
        bits = [b[right] for b in [rng.permutation(every), every][-entry.inputs :]]
        with np.errstate(all="ignore"):
            wide = [_operations.widened(entry.dtype, b) for b in bits]
            got = _operations.rounded(entry.dtype, function(*wide, *near)).view(real)
            want = entry.ufunc(*(b.view(real) for b in bits))
            assert got.dtype == want.dtype
            np.testing.assert_array_equal(sweep.canonical(got), sweep.canonical(want))


@pytest.mark.parametrize("dtype", _operations.WIDER)
def test_conversions_of_16_bits(dtype, rng):
    """Against those of NumPy and ml_dtypes: every encoding, and float32 numbers about ties."""
    if dtype == "bf16":
        pytest.importorskip("ml_dtypes", reason="ml_dtypes has bfloat16")
    real = np.dtype("float16" if dtype == "f16" else "bfloat16")
    every = np.arange(1 << 16, dtype=np.uint16)
    with np.errstate(all="ignore"):
        wide = _operations.widened(dtype, every)
        want = every.view(real).astype(np.float32)
        np.testing.assert_array_equal(sweep.canonical(wide), sweep.canonical(want))
        finite = wide[np.isfinite(wide)]
        ties = (finite.view(np.int32)[:, None] + (1 << (12 if dtype == "f16" else 15))).ravel()
        about = np.concatenate([ties - 1, ties, ties + 1]).astype(np.int32)
        anything = rng.integers(-(1 << 31), 1 << 31, 200_000).astype(np.int32)
        devices = np.array([0x7FFFFFFF, -1, 0x7F800001], np.int32)  # NaN of devices, and others
        numbers = np.concatenate([about, anything, devices]).view(np.float32)
        got = _operations.rounded(dtype, numbers).view(real)
        want = numbers.astype(real)
        np.testing.assert_array_equal(sweep.canonical(got), sweep.canonical(want))


@pytest.mark.parametrize("dtype, rows", [("f32", 8), ("f64", 128)])
def test_numpy_reads_rows(dtype, rows, rng):
    reals, _ = operations(dtype)
    integer, columns = np.dtype(dtype.replace("f", "int")), 4
    table = tuple(rng.normal(size=rows * columns).astype(dtype.replace("f", "float")).tolist())
    index = rng.integers(-(1 << 31), 1 << 31, 1000).astype(integer)
    row = reals.row(table, rows, columns, index)
    for n in range(columns):
        got = reals.entry(row, n)
        assert got.dtype == np.dtype(dtype.replace("f", "float"))
        at = [int(i) % rows for i in index]
        assert got.tolist() == [
            table[n * rows + k] if dtype == "f32" else table[k * columns + n] for k in at
        ]


def test_tables_are_found_in_any_way(monkeypatch):
    low, high = tuple(range(16)), tuple(range(16, 32))

    def formulas(dtype, reals, integers):
        def f(x, near):
            reals.row(low if near else high, 8, 2, reals.bits(x))

        return {"f": f}

    monkeypatch.setattr(_operations, "formulas", formulas)
    monkeypatch.setattr(_operations, "ways", lambda name, dtype: ((0.5, 4.0, True),))
    assert _operations.tables.__wrapped__("f", "f32") == (low[:8], low[8:], high[:8], high[8:])


def test_numpy_scalars_are_enough():
    functions = _operations.formulas("f32", *operations("f32"))
    y = functions["gelu"](np.float32(1.5), False)
    assert type(y) is np.float32
    assert 1.39 < y < 1.41
