# SPDX-License-Identifier: BSD-3-Clause
"""The oracle itself: against formulas it does not use, and against published numbers."""

import math
from fractions import Fraction

import mpmath
import numpy as np
import oracle
import pytest
from mpmath import mp

UNARY = [form + kind for form in oracle.FORMS for kind in ("", "_grad", "_grad2")]

# The zeros of the slopes.
ZEROS = {
    "gelu": "-0.751791524693564457457904947",
    "gelu_tanh": "-0.752461422071016258488",
    "gelu_sigmoid": "-0.751154255441288951298",
    "silu": "-1.278464542761073795109",
}


SECOND_ZEROS = {
    "gelu": "-1.4142135623730950488016887",
    "gelu_tanh": "-1.418504008790828355548",
    "gelu_sigmoid": "-1.409728131912730709655",
    "silu": "-2.399357280515467667833",
}


def relative(got, want):
    """|got - want| / |want|, free of rounding and of the range of float."""
    with mp.workprec(5000):
        return abs(mp.mpf(got) - mp.mpf(want)) / abs(mp.mpf(want))


def naive(form, x):
    """The form as its definition reads; cancels, so it is called with bits to spare."""
    x = mp.mpf(x)
    if form == "gelu":
        return x * mp.ncdf(x)
    if form == "gelu_tanh":
        inner = mp.sqrt(2 / mp.pi) * (x + mp.mpf("0.044715") * x**3)
        return x * (1 + mp.tanh(inner)) / 2
    return x / (1 + mp.exp(-x * (mp.mpf("1.702") if form == "gelu_sigmoid" else 1)))


POINTS = [-20.0, -14.25, -5.5, -2.7, -1.0, -0.75179, -0.1, -1e-10, 1e-300, 0.3, 1.0, 4.0, 17.0]


@pytest.mark.parametrize("form", oracle.FORMS)
@pytest.mark.parametrize("x", POINTS)
def test_value_and_slope_against_the_definition(form, x):
    with mp.workprec(5000):
        value = naive(form, x)
        # A central difference of a step so small that its error of h^2 is far below 40 digits.
        step = mp.ldexp(1, -1200)
        slope = (naive(form, x + step) - naive(form, x - step)) / (2 * step)
        step = mp.ldexp(1, -600)
        second = (naive(form, x + step) - 2 * value + naive(form, x - step)) / step**2
    assert relative(oracle.exact(form, x), value) < mp.mpf(10) ** -44
    assert relative(oracle.exact(form + "_grad", x), slope) < mp.mpf(10) ** -44
    assert relative(oracle.exact(form + "_grad2", x), second) < mp.mpf(10) ** -44


@pytest.mark.parametrize("t", [0.25, 1.0, 5.5, 13.0, 36.0, 54.0, 999.0, 1000.0, 12345.0])
def test_gelu_tail_against_an_integral(t):
    """Phi(-t) = phi(t) * integral of exp(-t s - s^2/2) over s > 0, which cancels nowhere."""
    with mp.workprec(300):
        unit = 1 / mp.mpf(max(t, 1))
        cuts = [k * 4 * unit for k in range(12)] + [mp.inf]
        integral = mp.quad(lambda s: mp.exp(-t * s - s * s / 2), cuts)
        density = mp.exp(-(mp.mpf(t) ** 2) / 2) / mp.sqrt(2 * mp.pi)
        value = -t * density * integral
        slope = density * (integral - t)
    assert relative(oracle.exact("gelu", -t), value) < mp.mpf(10) ** -44
    assert relative(oracle.exact("gelu_grad", -t), slope) < mp.mpf(10) ** -40


@pytest.mark.parametrize("function", UNARY)
def test_forty_digits_at_every_magnitude(function, rng, monkeypatch):
    form, kind = oracle.split(function)
    zero = oracle.second_zero(form) if kind == "grad2" else oracle.slope_zero(form)
    points = [zero, math.nextafter(zero, 0), math.nextafter(zero, -1), zero * (1 + 1e-9)]
    points += rng.uniform(-60, 10, 30).tolist()
    points += rng.integers(0, 2**64, 16, np.uint64).view(np.float64).tolist()
    points += [sign * 2.0**e for e in range(-1074, 1024, 97) for sign in (-1, 1)]
    points = [x for x in points if math.isfinite(x)]
    got = [oracle.exact(function, x) for x in points]
    monkeypatch.setattr(oracle, "PRECISION", 500)
    for x, value in zip(points, got, strict=True):
        want = oracle.exact(function, x)
        difference = oracle._mp.fsub(value, want, prec=500)
        assert abs(difference) <= abs(want) * oracle._mp.mpf(10) ** -45, x.hex()


@pytest.mark.parametrize("form", oracle.FORMS)
def test_zeros_of_the_slopes(form):
    with mp.workdps(40):
        zero = mp.mpf(ZEROS[form])
        digits = len(ZEROS[form].split(".")[1])
        high, low, _ = oracle._zero_of_slope(form)
        assert abs(mp.mpf(high) + mp.mpf(low) - zero) < mp.mpf(10) ** -digits
    high = oracle.slope_zero(form)
    signs = [
        oracle.exact(form + "_grad", x) > 0
        for x in (math.nextafter(high, -9), math.nextafter(high, 9))
    ]
    assert signs == [False, True]


@pytest.mark.parametrize("form", oracle.FORMS)
def test_zeros_of_the_second_derivatives(form):
    with mp.workdps(40):
        zero = mp.mpf(SECOND_ZEROS[form])
        high, low, _ = oracle._zero_of_second(form)
        assert abs(mp.mpf(high) + mp.mpf(low) - zero) < mp.mpf(10) ** -20
    high = oracle.second_zero(form)
    for sign in (-1, 1):
        signs = [
            oracle.exact(form + "_grad2", sign * x) > 0
            for x in (math.nextafter(high, -9), math.nextafter(high, 9))
        ]
        assert signs == [False, True]


@pytest.mark.parametrize(
    "form, at, distance", [("gelu_tanh", 2.70, 4.732e-4), ("gelu_sigmoid", 2.27, 0.020335)]
)
def test_distance_of_the_approximations(form, at, distance):
    x = np.arange(-8, 8, 2**-10)
    apart = np.abs(oracle.reference(form, x) - oracle.reference("gelu", x))
    assert abs(apart.max() / distance - 1) < 1e-4
    assert abs(abs(x[apart.argmax()]) - at) < 0.02


def test_backward_keeps_the_slope_unrounded():
    for x in (-19.0, -30.0):
        slope = oracle.exact("gelu_grad", x)
        assert oracle.round_to(slope, "f32") == 0x80000000
    dx = oracle.exact("gelu_backward", 3e38, -19.0)
    assert relative(dx / 3e38, oracle.exact("gelu_grad", -19.0)) < 2.0**-150
    assert oracle.round_to(dx, "f32") not in (0, 0x80000000)
    # A tie of dy/2 that only the unrounded slope decides.
    assert oracle.round_to(oracle.exact("silu_backward", 5e-324, 1e-300), "f64") == 1
    assert oracle.round_to(oracle.exact("silu_backward", 5e-324, -1e-300), "f64") == 0


@pytest.mark.parametrize("form", oracle.FORMS)
def test_special_arguments(form):
    inf, nan = math.inf, math.nan

    def bits(function, *args):
        return [
            oracle.round_to(result(function, *args), "f64")
            for result in (oracle.exact, lambda *a: float(oracle.reference(*a)))
        ]

    def same(want):
        return [oracle.round_to(want, "f64")] * 2

    for x in (0.0, -0.0):
        assert bits(form, x) == same(x)
        assert bits(form + "_grad", x) == same(0.5)
        assert bits(form + "_backward", -3.0, x) == same(-1.5)
    assert bits(form, inf) == same(inf)
    assert bits(form, -inf) == same(-0.0)
    assert bits(form, nan) == same(nan)
    assert bits(form + "_grad", inf) == same(1.0)
    assert bits(form + "_grad", -inf) == same(-0.0)
    assert bits(form + "_grad", nan) == same(nan)
    assert bits(form + "_grad2", inf) == bits(form + "_grad2", -inf) == same(-0.0)
    assert bits(form + "_grad2", nan) == same(nan)
    at_0 = {"gelu_sigmoid": 0.851, "silu": 0.5}.get(form, math.sqrt(2 / math.pi))
    assert bits(form + "_grad2", 0.0)[0] == bits(form + "_grad2", -0.0)[0] == same(at_0)[0]
    assert bits(form + "_backward", 2.5, inf) == same(2.5)
    assert bits(form + "_backward", -2.5, -inf) == same(0.0)
    assert bits(form + "_backward", inf, -inf) == same(nan)
    assert bits(form + "_backward", inf, inf) == same(inf)
    assert bits(form + "_backward", inf, -2.0) == same(-inf)
    assert bits(form + "_backward", -0.0, -2.0) == same(0.0)
    assert bits(form + "_backward", nan, -2.0) == same(nan)
    assert bits(form + "_backward", 1.0, nan) == same(nan)


def test_unknown_function():
    for function in ("relu", "gelu_", "gelu_grad_grad"):
        with pytest.raises(ValueError, match=f"no reference for '{function}'"):
            oracle.exact(function, 1.0)


# ---- rounding ----------------------------------------------------------------------------


def hardware(dtype):
    if dtype == "bf16":
        pytest.importorskip("ml_dtypes", reason="ml_dtypes rounds to bfloat16")
    return oracle.FORMATS[dtype].numpy


@pytest.mark.parametrize("dtype", oracle.FORMATS)
def test_rounding_agrees_with_numpy(dtype, rng):
    target = hardware(dtype)
    f = oracle.FORMATS[dtype]
    scale = rng.integers(f.tiny - 3, f.emax, 3000)
    doubles = [
        rng.integers(0, 2**64, 3000, np.uint64).view(np.float64),
        np.ldexp(rng.uniform(-2, 2, 3000), scale),
        [0.0, -0.0, math.inf, -math.inf, 5e-324, -5e-324],
    ]
    # Ties, and their neighbours: halfway between floats of the format, at every scale.
    odd = 2.0 * rng.integers(2 ** (f.precision - 1), 2**f.precision, 3000) + 1
    if f.precision < 53:
        ties = np.ldexp(odd, rng.integers(f.tiny - f.precision - 3, f.emax - f.precision, 3000))
        doubles += [ties, np.nextafter(ties, 0), np.nextafter(ties, np.inf)]
    doubles = np.concatenate([np.asarray(d) for d in doubles])
    doubles = doubles[~np.isnan(doubles)]
    with np.errstate(over="ignore", under="ignore"):
        if dtype == "bf16":  # ml_dtypes rounds a float64 twice, to float32 first
            doubles = doubles.astype(np.float32).astype(np.float64)
        want = oracle.bits_of(doubles.astype(target))
    got = [oracle.round_to(float(x), dtype) for x in doubles]
    assert got == want.tolist()
    assert np.isnan(oracle.from_bits(oracle.round_to(math.nan, dtype), dtype))


@pytest.mark.parametrize("dtype", ["f16", "bf16"])
def test_every_16_bit_encoding_there_and_back(dtype):
    target = hardware(dtype)
    bits = np.arange(65536)
    with np.errstate(invalid="ignore"):  # signalling NaN
        want = oracle.array_from_bits(bits, dtype).astype(np.float64)
    assert oracle.array_from_bits(bits, dtype).dtype == target
    for b, x in zip(bits.tolist(), want.tolist(), strict=True):
        value = oracle.from_bits(b, dtype)
        if math.isnan(x):
            assert math.isnan(value)
        else:
            assert value == x and math.copysign(1, value) == math.copysign(1, x)
            assert oracle.round_to(value, dtype) == b


def test_rounding_looks_past_any_precision():
    tie = oracle._mp.mpf(1) + oracle._mp.mpf(2) ** -24
    assert oracle.round_to(tie, "f32") == 0x3F800000
    sticky = oracle._mp.ldexp(1, -3000)
    above = oracle._mp.fadd(tie, sticky, exact=True)
    below = oracle._mp.fsub(tie, sticky, exact=True)
    assert oracle.round_to(above, "f32") == 0x3F800001
    assert oracle.round_to(below, "f32") == 0x3F800000
    assert oracle.round_to(oracle._mp.mpf(2) ** -150, "f32") == 0
    assert oracle.round_to(-(oracle._mp.mpf(2) ** -150), "f32") == 0x80000000
    assert oracle.round_to(oracle._mp.mpf(2) ** -150 * 1.5, "f32") == 1
    assert oracle.round_to(oracle._mp.mpf(2) ** (-(10**6)), "f64") == 0
    assert oracle.round_to(-(oracle._mp.mpf(2) ** (10**6)), "f64") == 0xFFF0000000000000
    top = oracle._mp.mpf(2) ** 128
    assert oracle.round_to(top - 2**103, "f32") == 0x7F800000  # the tie at overflow
    assert oracle.round_to(top - 2**103 - 1, "f32") == 0x7F7FFFFF
    with pytest.raises(ValueError, match="not finite"):
        oracle.round_to(oracle._mp.inf, "f32")


# ---- errors ------------------------------------------------------------------------------


def test_ulp_error_by_hand():
    mpf = oracle._mp.mpf
    one = mpf(1)
    assert oracle.ulp_error(1 + 2**-23, one, "f32") == 1.0
    # The unit is that of the exact value's binade, not of the result's.
    assert oracle.ulp_error(1 - 2**-24, one, "f32") == 0.5
    assert oracle.ulp_error(1.0, mpf(1 - 2**-24), "f32") == 1.0
    assert oracle.ulp_error(1.0, one + one / 2**25, "f32") == 0.25
    assert oracle.ulp_error(1.0, one + one / 2**150, "f64") == 2.0**-98
    # Subnormals: the unit stays 2^-149.
    assert oracle.ulp_error(2**-149, mpf(2) ** -151, "f32") == 0.75
    assert oracle.ulp_error(0.0, mpf(2) ** -149 * 3, "f32") == 3.0
    assert oracle.ulp_error(-0.0, -(mpf(2) ** -(10**30)), "f32") == 0.0
    # Specials and signs.
    assert oracle.ulp_error(0.0, -(mpf(2) ** -200), "f32") == math.inf
    assert oracle.ulp_error(-0.0, 0.0, "f32") == math.inf
    assert oracle.ulp_error(0.0, 0.0, "f32") == 0.0
    assert oracle.ulp_error(-(2.0**-149), -0.0, "f32") == 1.0
    assert oracle.ulp_error(math.nan, one, "f32") == math.inf
    assert oracle.ulp_error(1.0, math.nan, "f32") == math.inf
    assert oracle.ulp_error(math.nan, math.nan, "f32") == 0.0
    assert oracle.ulp_error(1.0, math.inf, "f32") == math.inf
    assert oracle.ulp_error(math.inf, math.inf, "f32") == 0.0
    # Overflow.
    top = mpf(2) ** 128
    assert oracle.ulp_error(math.inf, top * 2, "f32") == 0.0
    assert oracle.ulp_error(-math.inf, top * 2, "f32") == math.inf
    assert oracle.ulp_error(math.inf, top - mpf(2) ** 103, "f32") == 0.5
    assert oracle.ulp_error(math.inf, top - mpf(2) ** 106, "f32") == 4.0
    assert oracle.ulp_error(float(top - mpf(2) ** 104), top, "f32") == 0.5
    assert oracle.ulp_error(math.inf, one, "f32") > 1e38


def test_ulp_error_is_an_exact_distance(rng):
    for _ in range(300):
        want = Fraction(int(rng.integers(2**60, 2**61)), 2 ** int(rng.integers(0, 120)))
        got = float(np.float32(float(want) * (1 + rng.uniform(-4, 4) * 2**-23)))
        unit = Fraction(2) ** (want.numerator.bit_length() - want.denominator.bit_length() - 23)
        while unit * 2**23 > want:
            unit /= 2
        exact = oracle._mp.fdiv(want.numerator, want.denominator, prec=200)
        assert oracle.ulp_error(got, exact, "f32") == float(abs(Fraction(got) - want) / unit)


@pytest.mark.parametrize("dtype", ["f16", "bf16", "f32"])
def test_ulp_errors_is_ulp_error_vectorised(dtype, rng):
    f = oracle.FORMATS[dtype]
    hardware(dtype)
    want = np.concatenate(
        [
            np.ldexp(rng.uniform(-2, 2, 2000), rng.integers(f.tiny - 6, f.emax + 3, 2000)),
            [0.0, -0.0, math.inf, -math.inf, math.nan, 1e300, -1e300],
        ]
    )
    bits = np.array([oracle.round_to(float(w), dtype) for w in want], np.int64)
    moved = np.where(rng.random(len(bits)) < 0.5, bits + rng.integers(-3, 4, len(bits)), bits)
    moved = np.clip(moved, 0, (1 << f.width) - 1)
    with np.errstate(invalid="ignore"):
        got = oracle.array_from_bits(moved, dtype)
        errors = oracle.ulp_errors(got, want, dtype)
        got = got.astype(np.float64)
    for g, w, e in zip(got.tolist(), want.tolist(), errors, strict=True):
        single = w if not math.isfinite(w) or w == 0 else oracle._mp.mpf(w)
        assert oracle.ulp_error(g, single, dtype) == pytest.approx(e, rel=1e-12), (g, w)
    assert np.isinf(errors).any() and 0.1 < np.median(errors) < 3.5


# ---- the fast reference ------------------------------------------------------------------


def reference_points(function, rng):
    """float32 numbers over every regime of the fast reference."""
    form, kind = oracle.split(function)
    zero = oracle.second_zero(form) if kind == "grad2" else oracle.slope_zero(form)
    zero = np.float32(zero)
    near = [zero]
    for direction in (np.float32(-9), np.float32(9)):
        x = zero
        for _ in range(20):
            x = np.nextafter(x, direction)
            near.append(x)
    deep = {"gelu": 37, "gelu_tanh": 20, "gelu_sigmoid": 405, "silu": 690}[form]
    radius = oracle._NEAR
    parts = [
        near,
        zero + rng.uniform(-2 * radius, 2 * radius, 150),
        zero + np.array([-1, 1, -1.001, 1.001, -0.999, 0.999]) * radius,
        rng.uniform(-deep, 12, 250),
        rng.uniform(-6, 6, 150),
        [s * 2.0**e for e in range(-149, 128, 9) for s in (-1, 1)],
    ]
    x = np.concatenate([np.asarray(p, np.float32) for p in parts])
    x = x[x > -deep] if form != "gelu_tanh" else x[x > -19]
    x = np.concatenate([x, -x[np.abs(x) < 30]])
    if kind == "grad2":  # which falls on both sides
        x = x[np.abs(x) < (19 if form == "gelu_tanh" else deep)]
    return x


@pytest.mark.parametrize("function", UNARY)
def test_reference_against_the_exact_oracle(function, rng):
    x = reference_points(function, rng)
    worst = 0.0
    for point, value in zip(x.tolist(), oracle.reference(function, x).tolist(), strict=True):
        error = float(relative(value, oracle.exact(function, point)))
        worst = max(worst, error)
        assert error < 2.0**-45, (point.hex(), math.log2(error))
        assert float(oracle.reference(function, point)) == value
    print(f"{function}: worst relative error of {len(x)} points 2^{math.log2(worst):.1f}")


@pytest.mark.parametrize("function", UNARY)
def test_reference_where_it_underflows(function):
    x = -np.ldexp(np.float32(1.5), np.arange(9, 127)).astype(np.float32)
    got = oracle.reference(function, x)
    assert np.all(np.abs(got) < 2.0**-400) and np.all(np.signbit(got))
    got = oracle.reference(function, -x)
    if function.endswith("_grad2"):
        assert np.all(np.abs(got) < 2.0**-400) and np.all(np.signbit(got))
    else:
        assert np.array_equal(got, -x if function in oracle.FORMS else np.ones(len(x)))


@pytest.mark.parametrize("form", oracle.FORMS)
def test_reference_of_backward(form, rng):
    x = rng.uniform(-17, 8, 300).astype(np.float32)
    dy = np.ldexp(rng.uniform(-2, 2, 300), rng.integers(-140, 126, 300)).astype(np.float32)
    got = oracle.reference(form + "_backward", dy, x)
    for a, b, y in zip(dy.tolist(), x.tolist(), got.tolist(), strict=True):
        assert relative(y, oracle.exact(form + "_backward", a, b)) < 2.0**-45


def test_the_context_of_mpmath_is_left_alone():
    before = mpmath.mp.prec
    oracle.exact("gelu_grad", -1e300)
    assert mpmath.mp.prec == before
    assert oracle._mp.prec == 160
