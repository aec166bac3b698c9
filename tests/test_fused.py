# SPDX-License-Identifier: BSD-3-Clause
"""Fused functions: the bits of their steps for every dtype, operands of any kind, broadcast calls
on one thread and several, errors, special values, no temporary arrays."""

import pickle
import re
import tracemalloc
from pathlib import Path

import numpy as np
import oracle
import pytest
from conftest import fused_registry

import fastgelu
from fastgelu import _docs, _ufuncs

FUSED = fused_registry()
NAMES = list(dict.fromkeys(entry.name for entry in FUSED))


def shape_of(entry):
    return _docs.fused_shape(entry.name)


def steps(entry, *args):
    """The results as a tuple, by the functions that the fused one is made of."""
    f, grad, backward = (
        getattr(fastgelu, entry.form + kind) for kind in ("", "_grad", "_backward")
    )
    dtype = args[0].dtype
    shape = shape_of(entry)
    if shape == "value_and_grad":
        return f(*args), grad(*args)
    if entry.dtype in ("f16", "bf16"):
        args = [a.astype(np.float32) for a in args]
    with np.errstate(all="ignore"):
        if shape == "bias":
            results = (f(args[0] + args[1]),)
        elif shape == "bias_backward":
            results = (backward(args[0], args[1] + args[2]),)
        elif shape == "glu":
            results = (f(args[0]) * args[1],)
        else:
            results = (backward(args[0] * args[2], args[1]), args[0] * f(args[1]))
        return tuple(y.astype(dtype) for y in results)


def call(entry, *args, **kwargs):
    results = entry.ufunc(*args, **kwargs)
    return results if entry.outputs == 2 else (results,)


def same(got, want):
    """The same encodings, with every NaN alike."""
    assert len(got) == len(want)
    for y, z in zip(got, want, strict=True):
        assert y.dtype == z.dtype and y.shape == z.shape
        nan = np.isnan(y)
        assert np.array_equal(nan, np.isnan(z))
        assert np.array_equal(oracle.bits_of(y)[~nan], oracle.bits_of(z)[~nan])


def arguments(entry, shape, rng):
    """Normal numbers and some special ones."""
    special = [0.0, -0.0, np.inf, -np.inf, np.nan, 1e-40, -1e-40, 30.0, -30.0]
    result = []
    for _ in range(entry.inputs):
        x = rng.normal(0, 3, shape)
        if x.size > 50:
            x.flat[rng.integers(0, x.size, len(special))] = special
        with np.errstate(all="ignore"):
            result.append(x.astype(oracle.FORMATS[entry.dtype].numpy))
    return result


def of(condition):
    """Parametrises a test by the entries for which the condition holds."""
    return pytest.mark.parametrize("fused", [e for e in FUSED if condition(e)], ids=str)


every = of(lambda entry: True)


@pytest.fixture(autouse=True)
def quiet():
    with np.errstate(all="ignore"):
        yield


# ---- what they are -----------------------------------------------------------------------


@every
def test_every_fused_function_is_a_ufunc(fused):
    ufunc = fused.ufunc
    assert type(ufunc) is np.ufunc and ufunc.__name__ == fused.name
    assert (ufunc.nin, ufunc.nout) == (fused.inputs, fused.outputs)
    assert fused.name in fastgelu.__all__
    assert pickle.loads(pickle.dumps(ufunc)) is ufunc
    assert fastgelu.max_ulp(ufunc, oracle.FORMATS[fused.dtype].numpy) == fused.max_ulp
    # of a form that there is, and named after it
    stem = fused.name.removesuffix("_backward").removesuffix("_value_and_grad")
    unit = "swiglu" if fused.form == "silu" else fused.form.replace("gelu", "geglu")
    assert fused.form in oracle.FORMS and stem in (fused.form, f"bias_{fused.form}", unit)


def test_fused_functions_are_apart_from_the_others():
    plain = {function.name for function in fastgelu.functions()}
    assert not plain & set(NAMES)
    assert len(NAMES) == 5 * len(oracle.FORMS)
    assert {entry.dtype for entry in FUSED} == {
        f.dtype.replace("float", "f") for f in fastgelu.functions()
    }


def test_fused_functions_match_the_registry_file():
    path = Path(__file__).parents[1] / "native" / "src" / "functions.def"
    lines = re.findall(r"^FG_FUSED\((\w+), (\w+), (\w+), (\w+)\)", path.read_text(), re.MULTILINE)
    assert lines == [(e.name, e.dtype, shape_of(e), e.form) for e in FUSED]


@pytest.mark.parametrize("fused_name", NAMES)
def test_docstring(fused_name):
    text = getattr(fastgelu, fused_name).__doc__
    assert max(map(len, text.splitlines()[1:])) <= 100
    assert "{" not in text and "}" not in text
    for entry in FUSED:
        if entry.name == fused_name:
            assert f"{entry.max_ulp:g} ULP" in " ".join(text.split()) or entry.max_ulp == 0.5


# ---- bits --------------------------------------------------------------------------------


@every
def test_bits_of_the_steps(fused, rng):
    args = arguments(fused, 5000, rng)
    want = steps(fused, *args)
    same(call(fused, *args), want)
    outs = tuple(np.empty_like(y) for y in want)
    assert all(y is z for y, z in zip(call(fused, *args, out=outs), outs, strict=True))
    same(outs, want)


@every
def test_strides_and_places(fused, rng):
    args = arguments(fused, (60, 50), rng)
    want = steps(fused, *args)
    same(call(fused, *[np.asfortranarray(a) for a in args]), want)
    same(call(fused, *[a[::-1, ::-1] for a in args]), tuple(y[::-1, ::-1] for y in want))
    spread = [np.repeat(a, 2, axis=1)[:, ::2] for a in args]
    same(call(fused, *spread), want)
    for i in range(fused.inputs):  # in place of each input; the second output elsewhere
        copies = [a.copy() for a in args]
        outs = (copies[i], *[np.empty_like(y) for y in want[1:]])
        same(call(fused, *copies, out=outs), want)
        copies = [a.copy() for a in args]
        outs = (*[np.empty_like(y) for y in want[1:]], copies[i])
        same(call(fused, *copies, out=outs), want)
    if fused.outputs == 2 and fused.inputs > 1:
        copies = [a.copy() for a in args]
        same(call(fused, *copies, out=(copies[1], copies[0])), want)
    long = np.concatenate([args[-1].ravel(), args[-1].ravel()[:7]])  # the output is ahead, behind
    for shift in (0, 7):
        buffer = long.copy()
        last = buffer[7 - shift : 7 - shift + 3000]
        rest = [a.ravel() for a in args[:-1]]
        want_flat = steps(fused, *rest, last.copy())
        outs = (buffer[shift : shift + 3000], *[np.empty_like(y) for y in want_flat[1:]])
        same(call(fused, *rest, last, out=outs), want_flat)


@of(lambda entry: entry.dtype == "f64")
def test_integers_and_mixed_dtypes(fused):
    for dtype in (bool, np.int8, np.uint64):
        x = np.array([0, 1, 3, 100, 1, 0, 2], dtype)
        same(call(fused, *[x] * fused.inputs), steps(fused, *[x.astype(float)] * fused.inputs))
    with pytest.raises(TypeError):
        fused.ufunc(*[1j] * fused.inputs)


@every
def test_where(fused, rng):
    args = arguments(fused, 300, rng)
    mask = np.arange(300) % 3 > 0
    want = steps(fused, *args)
    outs = tuple(np.full_like(y, 7) for y in want)
    same(
        call(fused, *args, out=outs, where=mask),
        tuple(np.where(mask, y, outs[0].dtype.type(7)) for y in want),
    )


# ---- accuracy ----------------------------------------------------------------------------


def exactly(entry, args):
    """The truth that the bound is against."""

    def of(kind, x):
        return oracle.exact(entry.form + kind, x)

    shape = shape_of(entry)
    if shape == "bias":
        return (of("", float(args[0] + args[1])),)
    if shape == "bias_backward":
        return (float(args[0]) * of("_grad", float(args[1] + args[2])),)
    if shape == "glu":
        return (of("", float(args[0])) * float(args[1]),)
    dy, a, b = map(float, args)
    return dy * of("_grad", a) * b, dy * of("", a)


@of(lambda entry: entry.dtype in ("f32", "f64") and entry.inputs > 1)
def test_bounds(fused, rng):
    """float32 and float64; native/tests/rounding16.c has every 16-bit argument."""
    dtype = oracle.FORMATS[fused.dtype].numpy
    args = [rng.normal(0, 2, 80).astype(dtype) for _ in range(fused.inputs)]
    results = call(fused, *args)
    for i, point in enumerate(zip(*args, strict=True)):
        for got, want in zip(results, exactly(fused, point), strict=True):
            assert oracle.ulp_error(got[i], want, fused.dtype) <= fused.max_ulp


# ---- special values ----------------------------------------------------------------------


@pytest.mark.parametrize("dtype", ["float32", "float64", "float16"])
def test_special_values(dtype):
    t = np.dtype(dtype).type
    inf = t(np.inf)

    def is_(got, want):
        assert got.dtype == dtype and oracle.bits_of(got) == oracle.bits_of(t(want))

    for name in ("geglu", "geglu_tanh", "geglu_sigmoid", "swiglu"):
        f, backward = getattr(fastgelu, name), getattr(fastgelu, name + "_backward")
        is_(f(-inf, t(3)), -0.0)
        is_(f(-inf, t(-3)), 0.0)
        is_(f(inf, t(-3)), -np.inf)
        is_(f(t(-0.0), t(2)), -0.0)
        assert np.isnan(f(-inf, inf)) and np.isnan(f(inf, t(0))) and np.isnan(f(t(np.nan), t(1)))
        da, db = backward(t(2), inf, t(3))
        is_(da, 6)
        is_(db, np.inf)
        da, db = backward(t(2), t(0), t(3))
        is_(da, 3)
        is_(db, 0.0)
    for name in ("bias_gelu", "bias_gelu_tanh", "bias_gelu_sigmoid", "bias_silu"):
        f, backward = getattr(fastgelu, name), getattr(fastgelu, name + "_backward")
        is_(f(inf, t(-3)), np.inf)
        is_(f(t(1), -inf), -0.0)
        is_(f(t(-0.0), t(-0.0)), -0.0)
        is_(backward(t(3), t(1), t(-1)), 1.5)
        assert np.isnan(f(inf, -inf))
    for form in oracle.FORMS:
        y, slope = getattr(fastgelu, form + "_value_and_grad")(-inf)
        is_(y, -0.0)
        is_(slope, -0.0)


@pytest.mark.parametrize("n", [1, 100, 20_000])
@pytest.mark.parametrize("dtype", dict.fromkeys(e.dtype for e in FUSED))
def test_exceptions(n, dtype):
    """Results that overflow in 16 bits too, where the sum or product was none in float32."""
    real = oracle.FORMATS[dtype].numpy
    largest = np.nextafter(real.type(np.inf), real.type(0))
    x = np.ones((2, n), real)
    with np.errstate(all="raise", under="ignore"):
        fastgelu.bias_gelu(x, x)
        barely = [  # to bfloat16's infinity, from what float32 holds: 1.9989 2^127
            ("bias_gelu", (largest, 2.0**119), "overflow"),
            ("geglu", (250 * 2.0**120, 131 / 128), "overflow"),
            ("swiglu_backward", (250 * 2.0**115, 32.75, 1), "overflow"),
            ("swiglu_backward", (250 * 2.0**113, 40, 131), "overflow"),
        ]
        for name, args, message in [
            ("bias_gelu", (largest, largest), "overflow"),
            ("swiglu", (np.inf, 0), "invalid value"),
            ("geglu", (largest, 2), "overflow"),
            ("swiglu_backward", (largest, 1, largest), "overflow"),
            *(barely if dtype == "bf16" else []),
        ]:
            for rows in ((2, n), (n,)):  # the second is broadcast
                full = [np.ones((2, n), real), *[np.ones(rows, real) for _ in args[1:]]]
                for a, value in zip(full, args, strict=True):
                    a.flat[n // 2] = value
                with pytest.raises(FloatingPointError, match=f"{message} encountered in {name}$"):
                    getattr(fastgelu, name)(*full)
        for form in oracle.FORMS:
            getattr(fastgelu, form + "_value_and_grad")(x * real.type(np.inf))


# ---- broadcast calls, and threads ----------------------------------------------------------


@pytest.fixture(params=[1, 2])
def threads(request):
    before = _ufuncs.threads_piece(1024)
    with fastgelu.num_threads(request.param):
        yield request.param
    _ufuncs.threads_piece(before)


@pytest.mark.parametrize(
    ("fused", "threads"),
    [(e, n) for e in FUSED for n in (1, 2) if e.inputs > 1 and (n == 1 or e.dtype == "f32")],
    ids=str,
    indirect=["threads"],
)
def test_broadcast(fused, threads, rng):
    rows, n = 37, 300
    x, *rest = arguments(fused, (rows, n), rng)
    row, column, one = [[a[i] for a in rest] for i in (np.s_[0], np.s_[:, :1], np.s_[0, 0])]
    cube = [np.broadcast_to(a, (rows, n)).reshape(rows, 3, 100)[:, :1] for a in row]
    for others, whole in [
        (row, x), (column, x), (one, x), (row, x[::-1]), ([a[::-1] for a in row], x),
        (cube, x.reshape(rows, 3, 100)),
    ]:  # fmt: skip
        want = steps(fused, whole, *[np.broadcast_to(a, whole.shape) for a in others])
        same(call(fused, whole, *others), want)
        outs = tuple(np.empty(whole.shape, x.dtype) for _ in want)
        same(call(fused, whole, *others, *outs), want)
        same(call(fused, whole, *others, out=outs), want)
        same(call(fused, whole, *others, out=tuple(y[:, ::-1] for y in outs)), want)
    # the full array is the last operand
    want = steps(fused, np.broadcast_to(row[0], x.shape), *[x] * len(rest))
    same(call(fused, row[0], *[x] * len(rest)), want)
    # in place; and a bias that lies in the output, and is overwritten
    whole = x.copy()
    outs = (whole, *[np.empty_like(x) for _ in range(fused.outputs - 1)])
    same(
        call(fused, whole, *row, out=outs),
        steps(fused, x, *[np.broadcast_to(a, x.shape) for a in row]),
    )
    whole = x.copy()
    outs = (whole, *[np.empty_like(x) for _ in range(fused.outputs - 1)])
    others = [whole[3]] * len(rest)
    same(
        call(fused, whole, *others, out=outs),
        steps(fused, x, *[np.broadcast_to(x[3], x.shape)] * len(rest)),
    )


ROWS = [
    e
    for e in FUSED
    if e.name in ("bias_gelu", "bias_silu_backward", "geglu_backward") and e.dtype != "bf16"
]


@pytest.mark.parametrize("fused", ROWS, ids=str)
@pytest.mark.parametrize("n", [2, 31, 256, 1000, 5000])
def test_rows_of_any_length(fused, n, rng):
    """Pieces of repeated rows begin and end anywhere, and outputs in the middle of a line."""
    rows = 40_000 // n + 1
    x, *rest = arguments(fused, (rows, n), rng)
    row = [a[0].copy() for a in rest]
    whole = [np.tile(a, (rows, 1)) for a in row]
    # every operand but the first; the last alone; the first alone
    for given, full in (
        ([x, *row], [x, *whole]),
        ([x, *rest[:-1], row[-1]], [x, *rest[:-1], whole[-1]]),
        ([row[0], *[x] * len(rest)], [whole[0], *[x] * len(rest)]),
    ):
        want = call(fused, *full)
        same(call(fused, *given), want)
        for start, past in (0, False), (1, False), (5, False), (0, True), (1, True), (16, True):
            outs = tuple(
                np.empty(start + x.size, x.dtype)[start:].reshape(x.shape)
                for _ in range(fused.outputs)
            )
            before = _ufuncs.stream_above(1 if past else 0)
            try:
                same(call(fused, *given, out=outs), want)
            finally:
                _ufuncs.stream_above(before)
    in_place = x.copy()
    outs = (in_place, *(np.empty_like(x) for _ in range(fused.outputs - 1)))
    same(call(fused, in_place, *row, out=outs), call(fused, x, *whole))


@pytest.mark.parametrize("fused", ROWS, ids=str)
@pytest.mark.parametrize("n", [2, 31, 256, 2047, 5000])
@pytest.mark.parametrize("threads", [1, 2], indirect=True)
def test_columns_of_any_length(fused, n, threads, rng):
    """One element of b for a row, or for each channel of a row: short rows are put together."""
    rows = 30_000 // n + 1
    x, *rest = arguments(fused, (rows, 3, n), rng)
    _ufuncs.threads_piece(1000)  # pieces begin within rows
    lie = np.empty(rows * x.itemsize + 1, np.uint8)[1:].view(x.dtype)  # not aligned
    lie[...] = rest[-1][:, 0, 0]
    backwards = rest[-1][::-1, :, :1]
    for last in (
        rest[-1][:, :1, :1], rest[-1][0, :, :1], rest[-1][:, :, :1], lie[:, None, None], backwards
    ):  # fmt: skip
        others = [*rest[:-1], last]
        want = call(fused, x, *rest[:-1], np.broadcast_to(last, x.shape).copy())
        same(call(fused, x, *others), want)
        in_place = x.copy()
        outs = (in_place, *(np.empty_like(x) for _ in range(fused.outputs - 1)))
        same(call(fused, in_place, *others, out=outs), want)
    # b in the output
    outs = tuple(x.copy() for _ in range(fused.outputs))
    b = outs[0][:, :1, :1]
    want = call(fused, x, *rest[:-1], np.broadcast_to(b, x.shape).copy())
    same(call(fused, x, *rest[:-1], b, out=outs), want)


@pytest.mark.parametrize("shape", [(0,), (3, 0), (0, 3), (2, 0, 3)], ids=str)
def test_a_plan_of_nothing(shape):
    lines = [*((*line[:3], 1) for line in _ufuncs.FUNCTIONS), *(e[:4] for e in _ufuncs.FUSED)]
    for index, (_, dtype, inputs, outputs) in enumerate(lines):
        if dtype == "bf16":
            continue  # not one of NumPy's own
        whole = np.zeros(shape, dtype.replace("f", "float"))
        row = np.zeros([1] * len(shape), whole.dtype)
        _ufuncs.Plan(index, *[row] * inputs, *[whole] * outputs).run()
        _ufuncs.Plan(index, *[whole] * (inputs + outputs)).run()


def test_rows_of_a_large_array(rng):
    """By smaller pieces, since memory is the limit there."""
    x = rng.normal(size=(3 << 10, 1000)).astype(np.float32)
    row = x[5].copy()
    assert x.nbytes > 8 << 20
    np.testing.assert_array_equal(fastgelu.bias_gelu(x, row), fastgelu.gelu(x + row))


def test_the_other_functions_broadcast_too(binary, threads, rng):
    x = rng.normal(0, 3, (50, 300)).astype(oracle.FORMATS[binary.dtype].numpy)
    row = x[7].copy()
    full = np.broadcast_to(row, x.shape).copy()
    same((binary.ufunc(row, x),), (binary.ufunc(full, x),))
    same((binary.ufunc(x, row),), (binary.ufunc(x, full),))


def test_wrong_calls_are_numpys(threads):
    x, b = np.ones((50, 300), np.float32), np.ones(300, np.float32)
    with pytest.raises(ValueError, match="broadcast"):
        fastgelu.bias_gelu(x, b[:-1])
    with pytest.raises(ValueError, match="broadcast"):
        fastgelu.bias_gelu(x, b, out=np.empty((49, 300), np.float32))
    with pytest.raises(TypeError, match="ArrayType"):
        fastgelu.bias_gelu(x, b, out=[1])
    with pytest.raises(TypeError):
        fastgelu.bias_gelu(x, b, nonsense=1)
    with pytest.raises(TypeError):
        fastgelu.swiglu_backward(x, b)
    frozen = np.empty_like(x)
    frozen.flags.writeable = False
    with pytest.raises(ValueError, match="read-only"):
        fastgelu.bias_gelu(x, b, out=frozen)
    assert fastgelu.bias_gelu(x, b.astype(np.float64)).dtype == np.float64
    assert fastgelu.bias_gelu(x, b.astype(">f4")).dtype == np.float32

    class Mine(np.ndarray):
        pass

    assert type(fastgelu.bias_gelu(x.view(Mine), b)) is Mine


@pytest.mark.parametrize("fused_name", NAMES)
def test_no_temporary_arrays(fused_name):
    entry = next(e for e in FUSED if e.name == fused_name and e.dtype == "f32")
    n = 1 << 20
    rng = np.random.default_rng(1)
    args = [rng.standard_normal(n, np.float32).reshape(1024, 1024) for _ in range(entry.inputs)]
    outs = tuple(np.empty((1024, 1024), np.float32) for _ in range(entry.outputs))
    for operands in (args, [args[0], *[a[0] for a in args[1:]]]):
        call(entry, *operands, out=outs)
        tracemalloc.start()
        call(entry, *operands, out=outs)
        peak = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        assert peak < 16_384
