# SPDX-License-Identifier: BSD-3-Clause
"""fastgelu.functional: fused and gated units, and the feed-forward block, forward and backward."""

import tracemalloc

import numpy as np
import oracle
import pytest

import fastgelu
from fastgelu import _ffn, functional

ml_dtypes = pytest.importorskip("ml_dtypes", reason="ml_dtypes (pip install ml_dtypes)")

DTYPES = ["float16", "bfloat16", "float32", "float64"]
FORMS = {"none": "gelu", "tanh": "gelu_tanh", "sigmoid": "gelu_sigmoid"}
ACTIVATIONS = [("gelu", "none"), ("gelu", "tanh"), ("gelu", "sigmoid"), ("silu", "none")]
ACTIVATIONS += [("relu", "none")]


def numpy_dtype(name):
    return np.dtype(getattr(ml_dtypes, name) if name == "bfloat16" else name)


def draw(rng, shape, dtype="float64", scale=1.0):
    return rng.normal(0, scale, shape).astype(numpy_dtype(dtype))


def equal(got, want):
    return got.dtype == want.dtype and np.array_equal(oracle.bits_of(got), oracle.bits_of(want))


# ---- element by element --------------------------------------------------------------------------


@pytest.mark.parametrize("approximate, form", FORMS.items())
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_bias_gelu(rng, dtype, approximate, form):
    x, b = draw(rng, (5, 33), dtype, 3), draw(rng, 33, dtype)
    want = getattr(fastgelu, form)(x + b)
    assert equal(functional.bias_gelu(x, b, approximate), want)
    out = np.empty_like(x)
    assert functional.bias_gelu(x, b, approximate=approximate, out=out) is out
    assert equal(out, want)
    assert equal(functional.bias_gelu(x, b, approximate, x), want)


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_16_bits_are_rounded_once(rng, dtype):
    x, b = draw(rng, (40, 33), dtype, 3), draw(rng, 33, dtype)
    dtype = numpy_dtype(dtype)
    truth = x.astype(np.float64)
    exact = fastgelu.gelu(truth + b.astype(np.float64))
    step = np.maximum(np.abs(exact), 2.0**-14) * 2.0 ** -(ml_dtypes.finfo(dtype).nmant + 1)
    got = functional.bias_gelu(x, b)
    assert got.dtype == dtype
    assert (np.abs(got.astype(np.float64) - exact) <= 1.01 * step).all()
    twice = fastgelu.gelu(x + b).astype(np.float64)
    assert (np.abs(twice - exact) > 1.01 * step).any()  # the sum rounded too
    exact = fastgelu.gelu(truth) * b.astype(np.float64)
    got = functional.geglu(x, b).astype(np.float64)
    step = np.maximum(np.abs(exact), 2.0**-14) * 2.0 ** -(ml_dtypes.finfo(dtype).nmant + 1)
    assert (np.abs(got - exact) <= 1.01 * step).all()


@pytest.mark.parametrize("approximate, form", FORMS.items())
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_geglu(rng, dtype, approximate, form):
    a, b = draw(rng, (5, 33), dtype, 3), draw(rng, (5, 33), dtype)
    want = getattr(fastgelu, form)(a) * b
    assert equal(functional.geglu(a, b, approximate), want)
    out = np.empty_like(a)
    assert functional.geglu(a, b, approximate, out=out) is out
    assert equal(out, want)
    assert equal(functional.geglu(a, b[0], approximate), getattr(fastgelu, form)(a) * b[0])


def test_swiglu(rng):
    a, b = draw(rng, (5, 33), "float32", 3), draw(rng, (5, 33), "float32")
    assert equal(functional.swiglu(a, b), fastgelu.silu(a) * b)
    assert functional.swiglu(a, b, out=b) is b


GATED = [functional.geglu, functional.swiglu]


@pytest.mark.parametrize("function", GATED)
@pytest.mark.parametrize("axis", [0, 1, 2, -1, -2, np.int64(-3)])
def test_one_array(rng, function, axis):
    x = draw(rng, (4, 6, 8), "float32")
    first, second = np.split(x, 2, axis=axis)
    assert equal(function(x, axis=axis), function(first, second))
    assert equal(function(x, axis=axis, gate="first"), function(first, second))
    assert equal(function(x, axis=axis, gate="second"), function(second, first))
    out = np.empty_like(first)
    assert function(x, axis=axis, gate="second", out=out) is out
    assert equal(out, function(second, first))


def test_one_array_defaults_to_the_last_axis(rng):
    x = draw(rng, (4, 6), "float32")
    assert equal(
        functional.geglu(x, approximate="tanh"), functional.geglu(x[:, :3], x[:, 3:], "tanh")
    )
    assert functional.swiglu(x.tolist()).shape == (4, 3)
    assert functional.geglu(np.ones((3, 0))).shape == (3, 0)


@pytest.mark.parametrize("function", GATED)
@pytest.mark.parametrize(
    "arguments, keywords, error, words",
    [
        ((np.ones((2, 3)),), {}, ValueError, ["3 elements", "axis 1", "even"]),
        ((np.ones((2, 4)),), {"axis": 2}, ValueError, ["axis=2", "2 dimensions", "-2 to 1"]),
        ((np.ones((2, 4)),), {"axis": -3}, ValueError, ["axis=-3"]),
        ((np.ones((2, 4)),), {"axis": 1.0}, TypeError, ["axis", "integer", "1.0"]),
        ((np.ones((2, 4)),), {"axis": "x"}, TypeError, ["axis", "integer", "'x'"]),
        ((1.0,), {}, ValueError, ["axis", "scalar"]),
        ((np.ones(4),), {"gate": "left"}, ValueError, ["gate='left'", "'first', 'second'"]),
        ((np.ones(4), np.ones(4)), {"gate": "first"}, ValueError, ["gate=", "two"]),
        ((np.ones(4), np.ones(4)), {"axis": -1}, ValueError, ["axis=", "two"]),
        ((np.ones(4), np.ones(3)), {}, ValueError, ["a (4,)", "b (3,)"]),
        ((np.ones(4), np.ones(4) * 1j), {}, TypeError, ["b", "complex128", "float32"]),
        ((np.ones(4, "longdouble"),), {}, TypeError, ["x", "longdouble|float128", "bfloat16"]),
        (("text",), {}, TypeError, ["x", "<U4"]),
    ],
)
def test_wrong_arguments_of_gated_units(function, arguments, keywords, error, words):
    with pytest.raises(error) as caught:
        function(*arguments, **keywords)
    for word in words:
        assert any(choice in str(caught.value) for choice in word.split("|")), word


@pytest.mark.parametrize(
    "call",
    [
        lambda a: functional.bias_gelu(1.0, 1.0, a),
        lambda a: functional.geglu([1.0, 1.0], approximate=a),
        lambda a: functional.geglu(1.0, 1.0, a),
        lambda a: functional.geglu_backward(1.0, 1.0, 1.0, a),
        lambda a: functional.ffn(*ffn_arguments(), approximate=a),
        lambda a: functional.ffn_glu(*glu_arguments(), approximate=a, activation="gelu"),
        lambda a: functional.ffn_backward(np.ones((3, 2)), *ffn_arguments(), approximate=a),
    ],
)
@pytest.mark.parametrize("approximate", ["erf", None, True, 0])
def test_unknown_approximate(call, approximate):
    with pytest.raises(ValueError, match="choose one of 'none', 'tanh', 'sigmoid'") as caught:
        call(approximate)
    assert f"approximate={approximate!r}" in str(caught.value)


@pytest.mark.parametrize(
    "call, names",
    [
        (lambda a: functional.gelu(a), ["x"]),
        (lambda a: functional.silu(a), ["x"]),
        (lambda a: functional.gelu_backward(a, 1.0), ["grad_output"]),
        (lambda a: functional.gelu_backward(1.0, a), ["x"]),
        (lambda a: functional.silu_backward(1.0, a), ["x"]),
        (lambda a: functional.bias_gelu(1.0, a), ["b"]),
        (lambda a: functional.geglu_backward(1.0, 1.0, a), ["b"]),
        (lambda a: functional.swiglu_backward(a, 1.0, 1.0), ["grad_output"]),
    ],
)
@pytest.mark.parametrize(
    "wrong",
    [np.ones(2, complex), np.ones(2, "longdouble"), np.array(["1"]), np.ones(2, "M8[s]"), [None]],
    ids=lambda a: str(np.asarray(a).dtype),
)
def test_wrong_dtypes_are_named(call, names, wrong):
    with pytest.raises(TypeError, match="choose one of float16, bfloat16, float32") as caught:
        call(wrong)
    assert str(caught.value).startswith(f"{names[0]} has dtype {np.asarray(wrong).dtype};")


def test_shapes_that_do_not_broadcast_are_named():
    with pytest.raises(ValueError, match=r"grad_output \(3,\), x \(4,\)"):
        functional.gelu_backward(np.ones(3), np.ones(4))
    with pytest.raises(ValueError, match=r"x \(3,\), b \(4,\)"):
        functional.bias_gelu(np.ones(3), np.ones(4))
    with pytest.raises(ValueError, match=r"grad_output \(3,\), a \(3,\), b \(4,\)"):
        functional.geglu_backward(np.ones(3), np.ones(3), np.ones(4))


@pytest.mark.parametrize("approximate, form", [*FORMS.items(), (None, "silu")])
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_gated_backward(rng, dtype, approximate, form):
    dy, a, b = (draw(rng, (5, 33), dtype, 2) for _ in range(3))
    if approximate is None:
        function, more = functional.swiglu_backward, {}
    else:
        function, more = functional.geglu_backward, {"approximate": approximate}
    da, db = function(dy, a, b, **more)
    slope = getattr(fastgelu, form + "_grad")(a.astype(np.float64))
    eps = np.finfo(dtype).eps
    wide_dy, wide_b = dy.astype(np.float64), b.astype(np.float64)
    np.testing.assert_allclose(da, wide_dy * wide_b * slope, rtol=8 * eps)
    want = wide_dy * getattr(fastgelu, form)(a.astype(np.float64))
    np.testing.assert_allclose(db, want, rtol=8 * eps)
    outs = np.empty_like(a), np.empty_like(b)
    got = function(dy, a, b, out=outs, **more)
    assert got[0] is outs[0] and got[1] is outs[1]
    assert equal(outs[0], da) and equal(outs[1], db)
    got = function(dy, a, b, out=(a, b), **more)  # in place
    assert equal(a, da) and equal(b, db)
    with pytest.raises(TypeError, match="out must be a tuple of two arrays"):
        function(dy, a, b, out=a, **more)


def test_gated_backward_is_the_derivative(rng):
    dy, a, b = (draw(rng, 50) for _ in range(3))
    h = 1e-6
    for value, backward in (
        (functional.geglu, functional.geglu_backward),
        (functional.swiglu, functional.swiglu_backward),
    ):
        da, db = backward(dy, a, b)
        np.testing.assert_allclose(
            da, dy * (value(a + h, b) - value(a - h, b)) / (2 * h), rtol=1e-5
        )
        np.testing.assert_allclose(
            db, dy * (value(a, b + h) - value(a, b - h)) / (2 * h), rtol=1e-5
        )


SPECIAL = np.array([-np.inf, -1e30, -0.0, 0.0, 1e30, np.inf, np.nan])


def test_special_values_are_those_of_the_composition():
    a, b = SPECIAL[:, None], SPECIAL[None, :]
    with np.errstate(invalid="ignore"):
        assert oracle_equal(functional.geglu(a, b), fastgelu.gelu(a) * b)
        assert oracle_equal(functional.swiglu(a, b), fastgelu.silu(a) * b)
        assert oracle_equal(functional.bias_gelu(a, b), fastgelu.gelu(a + b))


def oracle_equal(got, want):
    """Equal encodings; any NaN is as good as another."""
    nan = np.isnan(want)
    return np.array_equal(np.isnan(got), nan) and equal(got[~nan], want[~nan])


# ---- the feed-forward block --------------------------------------------------------------------


def ffn_arguments(rows=(3,), n=4, hidden=5, m=2, dtype="float64", rng=None, scale=0.5):
    rng = rng or np.random.default_rng(1)
    shapes = (*rows, n), (hidden, n), hidden, (m, hidden), m
    return [draw(rng, shape, dtype, scale) for shape in shapes]


def glu_arguments(rows=(3,), n=4, hidden=5, m=2, dtype="float64", rng=None):
    rng = rng or np.random.default_rng(1)
    shapes = (*rows, n), (hidden, n), (hidden, n), (m, hidden), hidden, hidden, m
    return [draw(rng, shape, dtype, 0.5) for shape in shapes]


def act(activation, approximate):
    if activation == "relu":
        return lambda x: np.maximum(x, 0)
    return getattr(fastgelu, "silu" if activation == "silu" else FORMS[approximate])


def plain(x, w1, b1, w2, b2, f=fastgelu.gelu):
    """The composition, in float64."""
    x, w1, b1, w2, b2 = (np.asarray(a).astype(np.float64) for a in (x, w1, b1, w2, b2))
    return f(x @ w1.T + b1) @ w2.T + b2


def reach(x, w1, b1, w2, b2):
    """The composition of absolute values: what the rounding errors are relative to."""
    return plain(*(np.abs(np.asarray(a).astype(np.float64)) for a in (x, w1, b1, w2, b2)), np.abs)


def close(got, want, size, dtype, terms=16):
    eps = float(ml_dtypes.finfo(np.float32 if np.dtype(dtype).itemsize == 2 else dtype).eps)
    step = float(ml_dtypes.finfo(dtype).eps)
    error = np.abs(got.astype(np.float64) - want)
    return bool((error <= terms * eps * size + step * np.abs(want) + 1e-30).all())


ROWS = [0, 1, 2, 3, 4, 5, 255, 256, 257, 600]


def in_order(args, order):
    """The same with all matrices but the first in that order."""
    return [args[0], *(np.asarray(a, order=order) for a in args[1:])]


@pytest.mark.parametrize("order", ["C", "F"])
@pytest.mark.parametrize("rows", ROWS)
@pytest.mark.parametrize("dtype", DTYPES)
def test_ffn(rng, dtype, rows, order):
    args = in_order(ffn_arguments((rows,), 24, 96, 20, dtype, rng), order)
    got = functional.ffn(*args)
    assert got.dtype == numpy_dtype(dtype) and got.shape == (rows, 20)
    assert close(got, plain(*args), reach(*args), numpy_dtype(dtype))


@pytest.mark.parametrize("activation, approximate", ACTIVATIONS)
@pytest.mark.parametrize("rows", [2, 30])
def test_ffn_activations(rng, small_blocks, rows, activation, approximate):
    args = ffn_arguments((rows,), 8, 60, 6, "float64", rng)
    got = functional.ffn(*args, approximate=approximate, activation=activation)
    want = plain(*args, act(activation, approximate))
    assert close(got, want, reach(*args), np.float64)
    if activation == "gelu" and approximate == "none":
        assert not close(got, plain(*args, fastgelu.gelu_tanh), reach(*args), np.float64)


@pytest.fixture
def small_blocks(monkeypatch):
    """Blocks of 16 rows and 4 units."""
    monkeypatch.setattr(_ffn, "ROWS", 16)
    monkeypatch.setattr(_ffn, "BLOCK", 64)
    monkeypatch.setattr(_ffn, "AT_ONCE", 64)


def test_blocks_are_whole_vectors():
    for count, most in (832, 341), (300, 256), (47, 4), (1, 256), (0, 256), (5, 1), (50, 17):
        blocks = _ffn._blocks(count, most)
        assert [i for b in blocks for i in range(count)[b]] == list(range(count))
        assert all(0 < b.stop - b.start <= most for b in blocks)
        if most >= 256:
            assert all(b.start % _ffn.WHOLE == 0 for b in blocks)


@pytest.mark.parametrize("order", ["C", "F"])
@pytest.mark.parametrize("dtype", DTYPES)
def test_ffn_of_many_blocks(rng, small_blocks, dtype, order):
    """The outputs of blocks of units are added up, and not in 16 bits."""
    assert len(_ffn._units(47, 16)) == 12
    args = in_order(ffn_arguments((50,), 8, 47, 6, dtype, rng), order)
    assert close(functional.ffn(*args), plain(*args), reach(*args), numpy_dtype(dtype))
    args = in_order(ffn_arguments((50,), 8, 3, 6, dtype, rng), order)  # one block of units
    assert close(functional.ffn(*args), plain(*args), reach(*args), numpy_dtype(dtype))
    x, wg, wu, wd, bg, bu, bd = args = glu_arguments((50,), 8, 47, 6, "float64", rng)
    want = (fastgelu.silu(x @ wg.T + bg) * (x @ wu.T + bu)) @ wd.T + bd
    got = functional.ffn_glu(*(a.astype(numpy_dtype(dtype)) for a in args))
    eps = float(ml_dtypes.finfo(numpy_dtype(dtype)).eps)
    np.testing.assert_allclose(got.astype(np.float64), want, rtol=0, atol=8 * eps)


@pytest.mark.parametrize("shape", [(), (7,), (2, 3), (0, 3), (2, 2, 300)])
def test_ffn_shapes(rng, shape):
    args = ffn_arguments(shape, rng=rng)
    got = functional.ffn(*args)
    assert got.shape == (*shape, 2)
    assert close(got, plain(*args), reach(*args), np.float64)


def test_ffn_empty_layers():
    x = np.ones((300, 4))
    got = functional.ffn(x, np.ones((0, 4)), None, np.ones((2, 0)), [1.0, 2.0])
    np.testing.assert_array_equal(got, np.broadcast_to([1.0, 2.0], (300, 2)))
    got = functional.ffn(x[:, :0], np.ones((5, 0)), np.zeros(5), np.ones((2, 5)), None)
    np.testing.assert_array_equal(got, np.zeros((300, 2)))
    assert functional.ffn(x, np.ones((5, 4)), None, np.ones((0, 5)), None).shape == (300, 0)


def test_ffn_without_biases(rng):
    x, w1, b1, w2, b2 = ffn_arguments((9,), rng=rng)
    want = functional.ffn(x, w1, np.zeros_like(b1), w2, np.zeros_like(b2))
    np.testing.assert_array_equal(functional.ffn(x, w1, None, w2, None), want)


@pytest.mark.parametrize("rows", [2, 300])
def test_ffn_of_strided_and_swapped_arrays(rng, rows):
    x, w1, b1, w2, b2 = args = ffn_arguments((rows, 2), 24, 96, 20, "float64", rng)
    want = plain(*args)
    size = reach(*args)
    strange = [
        np.asfortranarray(x),
        np.repeat(w1, 2, axis=1)[:, ::2],
        b1[::-1].copy()[::-1],
        np.asfortranarray(w2),
        b2.astype(">f8"),
    ]
    assert close(functional.ffn(*strange), want, size, np.float64)
    read_only = [a.copy() for a in args]
    for a in read_only:
        a.flags.writeable = False
    assert close(functional.ffn(*read_only), want, size, np.float64)
    swapped = [a.astype(a.dtype.newbyteorder()) for a in args]
    assert close(functional.ffn(*swapped), want, size, np.float64)
    assert close(functional.ffn(*(a.tolist() for a in args)), want, size, np.float64)


@pytest.mark.parametrize("rows", [2, 300])
def test_ffn_out(rng, rows):
    args = ffn_arguments((rows,), 6, 96, 6, "float32", rng)
    want = functional.ffn(*args)
    out = np.full_like(want, np.nan)
    assert functional.ffn(*args, out=out) is out
    np.testing.assert_array_equal(out, want)
    wider = np.empty(want.shape)
    assert functional.ffn(*args, out=wider) is wider
    np.testing.assert_array_equal(wider, want)
    strided = np.full((6, 2 * rows), np.nan, np.float32).T[::2]
    assert functional.ffn(*args, out=strided) is strided
    np.testing.assert_array_equal(strided, want)
    swapped = np.empty(want.shape, ">f4")
    np.testing.assert_array_equal(functional.ffn(*args, out=swapped), want)
    x = args[0].copy()
    assert functional.ffn(x, *args[1:], out=x) is x  # in place
    np.testing.assert_array_equal(x, want)
    memory = np.zeros((rows + 1, 6), np.float32)
    memory[:-1] = args[0]
    functional.ffn(memory[:-1], *args[1:], out=memory[1:])  # overlapping
    np.testing.assert_array_equal(memory[1:], want)


def test_ffn_promotes_as_numpy_does(rng):
    x, w1, b1, w2, b2 = ffn_arguments((5,), rng=rng)
    assert functional.ffn(x.astype("f4"), w1.astype("f4"), b1, w2.astype("f4"), b2).dtype == "f8"
    ones = np.ones((5, 4), np.int64)
    assert (
        functional.ffn(ones, np.ones((5, 4), bool), None, np.ones((2, 5), int), None).dtype == "f8"
    )
    bfloat16 = numpy_dtype("bfloat16")
    mixed = functional.ffn(x.astype("f2"), w1.astype(bfloat16), None, w2.astype("f2"), None)
    assert mixed.dtype == np.float32


WRONG = [
    ({"x": np.ones((3, 5))}, ValueError, ["w1 (5, 4)", "x (3, 5)", "5 columns"]),
    ({"x": np.ones(())}, ValueError, ["x", "scalar"]),
    ({"w1": np.ones(4)}, ValueError, ["w1", "1 dimensions", "(out, in)"]),
    ({"w2": np.ones((5, 2))}, ValueError, ["w2 (5, 2)", "w1 (5, 4)", "5 columns"]),
    ({"b1": np.ones(4)}, ValueError, ["b1", "(4,)", "(5,)"]),
    ({"b2": np.ones((1, 2))}, ValueError, ["b2", "(1, 2)", "(2,)"]),
    ({"x": np.ones((3, 4), complex)}, TypeError, ["x", "complex128", "float32"]),
    ({"w2": np.ones((2, 5), object)}, TypeError, ["w2", "object"]),
    ({"b1": np.ones(5, "longdouble")}, TypeError, ["b1"]),
    ({"x": np.ma.ones((3, 4))}, TypeError, ["x", "masked"]),
    ({"activation": "tanh"}, ValueError, ["activation='tanh'", "'gelu', 'silu', 'relu'"]),
    ({"activation": "silu", "approximate": "tanh"}, ValueError, ["approximate", "'silu'"]),
]


@pytest.mark.parametrize("change, error, words", WRONG)
@pytest.mark.parametrize("backward", [False, True])
def test_wrong_arguments_of_ffn(change, error, words, backward):
    arguments = dict(zip(("x", "w1", "b1", "w2", "b2"), ffn_arguments())) | change
    if backward:
        arguments["grad_output"] = np.ones((3, 2))
    with pytest.raises(error) as caught:
        (functional.ffn_backward if backward else functional.ffn)(**arguments)
    assert all(word in str(caught.value) for word in words), caught.value


@pytest.mark.parametrize(
    "out, error, words",
    [
        (np.ones((3, 3)), ValueError, ["out", "(3, 3)", "(3, 2)"]),
        (np.ones((3, 2), int), TypeError, ["out", "int64", "float64"]),
        ([[0.0] * 2] * 3, TypeError, ["out", "list"]),
        (np.broadcast_to(0.0, (3, 2)), ValueError, ["out", "read-only"]),
    ],
)
def test_wrong_out_of_ffn(out, error, words):
    with pytest.raises(error) as caught:
        functional.ffn(*ffn_arguments(), out=out)
    assert all(word in str(caught.value) for word in words)


@pytest.mark.parametrize("activation, approximate", ACTIVATIONS)
@pytest.mark.parametrize("rows", [2, 30])
def test_ffn_glu(rng, small_blocks, rows, activation, approximate):
    x, wg, wu, wd, bg, bu, bd = args = glu_arguments((rows,), 8, 60, 6, "float64", rng)
    f = act(activation, approximate)
    got = functional.ffn_glu(*args, approximate=approximate, activation=activation)
    want = (f(x @ wg.T + bg) * (x @ wu.T + bu)) @ wd.T + bd
    np.testing.assert_allclose(got, want, rtol=0, atol=1e-13 * np.abs(want).max())
    got = functional.ffn_glu(x, wg, wu, wd, activation=activation, approximate=approximate, out=got)
    want = (f(x @ wg.T) * (x @ wu.T)) @ wd.T
    np.testing.assert_allclose(got, want, rtol=0, atol=1e-13 * np.abs(want).max())


@pytest.mark.parametrize("dtype", DTYPES)
def test_ffn_glu_dtypes(rng, dtype):
    args = glu_arguments((5,), dtype=dtype, rng=rng)
    got = functional.ffn_glu(*args)
    assert got.dtype == numpy_dtype(dtype)
    want = functional.ffn_glu(*(a.astype(np.float64) for a in args))
    eps = float(ml_dtypes.finfo(numpy_dtype(dtype)).eps)
    np.testing.assert_allclose(got.astype(np.float64), want, rtol=8 * eps, atol=8 * eps)


def test_wrong_arguments_of_ffn_glu():
    x, wg, wu, wd, *_ = glu_arguments()
    with pytest.raises(ValueError, match=r"w_up \(4, 4\) must have the shape of w_gate, \(5, 4\)"):
        functional.ffn_glu(x, wg, wu[:4], wd)
    with pytest.raises(ValueError, match=r"w_up \(5, 3\) does not fit x \(3, 4\)"):
        functional.ffn_glu(x, wg, wu[:, :3], wd)
    with pytest.raises(ValueError, match=r"b_up has shape \(2,\); with w_up it must be \(5,\)"):
        functional.ffn_glu(x, wg, wu, wd, b_up=np.ones(2))


def numeric_gradient(f, a):
    """Central differences of the scalar f with respect to the array a, changed in place."""
    result, h = np.empty_like(a), 1e-5
    for i in np.ndindex(a.shape):
        kept = a[i]
        a[i] = kept + h
        above = f()
        a[i] = kept - h
        below = f()
        a[i] = kept
        result[i] = (above - below) / (2 * h)
    return result


@pytest.mark.parametrize("activation, approximate", ACTIVATIONS)
def test_ffn_backward_by_finite_differences(rng, activation, approximate):
    how = {"activation": activation, "approximate": approximate}
    args = ffn_arguments((6,), rng=rng)
    grad = draw(rng, (6, 2))

    def loss():
        return np.sum(grad * functional.ffn(*args, **how))

    for got, a in zip(functional.ffn_backward(grad, *args, **how), args, strict=True):
        np.testing.assert_allclose(got, numeric_gradient(loss, a), rtol=1e-6, atol=1e-8)


def plain_backward(g, x, w1, b1, w2, b2, form="gelu"):
    z = x @ w1.T + b1
    dz = getattr(fastgelu, form + "_backward")(g @ w2, z)
    return dz @ w1, dz.T @ x, dz.sum(0), g.T @ getattr(fastgelu, form)(z), g.sum(0)


@pytest.mark.parametrize("rows, hidden", [(0, 9), (1, 9), (16, 4), (50, 47)])
@pytest.mark.parametrize("dtype", DTYPES)
def test_ffn_backward(rng, small_blocks, dtype, rows, hidden):
    args = ffn_arguments((rows,), 8, hidden, 6, dtype, rng, 0.2)
    grad = draw(rng, (rows, 6), dtype)
    got = functional.ffn_backward(grad, *args)
    want = plain_backward(*(a.astype(np.float64) for a in (grad, *args)))
    eps = float(ml_dtypes.finfo(numpy_dtype(dtype)).eps)
    for g, w, a in zip(got, want, args, strict=True):
        assert g.dtype == numpy_dtype(dtype) and g.shape == a.shape
        np.testing.assert_allclose(
            g.astype(np.float64), w, rtol=eps, atol=8 * eps * np.abs(w).max(initial=0)
        )


def test_ffn_backward_of_three_axes_out_and_no_bias(rng):
    x, w1, b1, w2, b2 = args = ffn_arguments((2, 3), rng=rng)
    grad = draw(rng, (2, 3, 2))
    want = functional.ffn_backward(grad, *args)
    assert want[0].shape == (2, 3, 4)
    out = tuple(np.full_like(a, np.nan) for a in args)
    got = functional.ffn_backward(grad, *args, out=out)
    assert all(g is o for g, o in zip(got, out))
    for g, w in zip(got, want):
        np.testing.assert_array_equal(g, w)
    got = functional.ffn_backward(grad, *args, out=(x, None, None, w2, None))  # in place
    assert got[0] is x and got[3] is w2
    for g, w in zip(got, want):
        np.testing.assert_array_equal(g, w)
    x, w1, b1, w2, b2 = ffn_arguments((2, 3))
    none = functional.ffn_backward(grad, x, w1, None, w2, None)
    for g, w in zip(none, functional.ffn_backward(grad, x, w1, b1 * 0, w2, b2 * 0)):
        np.testing.assert_array_equal(g, w)
    with pytest.raises(ValueError, match=r"grad_output has shape \(2, 3, 3\)"):
        functional.ffn_backward(np.ones((2, 3, 3)), *args)
    with pytest.raises(TypeError, match="out must be a tuple of five arrays or None, not numpy"):
        functional.ffn_backward(grad, *args, out=x)
    with pytest.raises(ValueError, match=r"out\[1\] has shape"):
        functional.ffn_backward(grad, *args, out=(None, x, None, None, None))


@pytest.mark.parametrize("n", [384, 768])
def test_the_hidden_layer_never_exists_whole(n):
    """Peak extra memory at 2048 rows: at most a tenth of the hidden layer's."""
    rows, hidden = 2048, 4 * n
    args = ffn_arguments((rows,), n, hidden, n, "float32", scale=0.05)
    out = np.empty((rows, n), np.float32)
    tracemalloc.start()
    try:
        functional.ffn(*args, out=out)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak <= rows * hidden * 4 / 10
    some = slice(700, 1300, 37)
    want = plain(args[0][some], *args[1:])
    assert close(out[some], want, reach(args[0][some], *args[1:]), np.float32)


def test_activation_has_the_same_bits_in_any_block(rng):
    """Products of integers are exact, so that all that could differ is the activation."""
    x = rng.integers(-8, 8, (700, 4)).astype(np.float32)
    w1, w2 = np.eye(4, dtype=np.float32), np.eye(4, dtype=np.float32)
    b1 = np.array([0.3, -0.7, 0.1, 2], np.float32)
    want = fastgelu.gelu(x + b1)
    for threads in (1, 2):
        with fastgelu.num_threads(threads):
            for rows in (1, 3, 4, 300, 700):
                got = functional.ffn(x[:rows], w1, b1, w2, None)
                assert equal(got, want[:rows])
