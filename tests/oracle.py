# SPDX-License-Identifier: BSD-3-Clause
"""The truth that the tests compare with: exact values, correct rounding, errors in ULP.

`exact` evaluates a function in multiple precision (mpmath), right to more than 40 digits for
every finite argument. `reference` is the same in vectorised float64, for millions of points of
a dtype of at most 24 bits. Neither shares a formula with the kernels.
"""

import functools
import math

import mpmath
import numpy as np

FORMS = ("gelu", "gelu_tanh", "gelu_sigmoid", "silu")

# Bits of a result that are right. 40 digits are 133 bits; the rest is margin.
PRECISION = 160

# A context of its own: nobody else's mp.prec changes a result, and this changes nobody else's.
# Only `_at` may change its precision.
_mp = mpmath.MPContext()
_mp.prec = PRECISION


class Format:
    """A binary floating-point format: `width` bits, `precision` significant ones."""

    def __init__(self, name, width, precision):
        self.name = name
        self.width = width
        self.precision = precision
        self.emax = (1 << (width - precision - 1)) - 1  # the largest number is below 2^(emax+1)
        self.tiny = 2 - self.emax - precision  # the smallest subnormal is 2^tiny
        self.sign_bit = 1 << (width - 1)
        self.infinity = ((1 << (width - precision)) - 1) << (precision - 1)
        self.quiet_nan = self.infinity | 1 << (precision - 2)

    @functools.cached_property
    def numpy(self):
        """The NumPy dtype. bfloat16 needs ml_dtypes."""
        if self.name == "bf16":
            import ml_dtypes

            return np.dtype(ml_dtypes.bfloat16)
        return np.dtype(f"f{self.width // 8}")

    @property
    def unsigned(self):
        """The NumPy dtype of the encodings."""
        return np.dtype(f"u{self.width // 8}")

    def __repr__(self):
        return self.name


FORMATS = {
    name: Format(name, width, precision)
    for name, width, precision in [
        ("f16", 16, 11),
        ("bf16", 16, 8),
        ("f32", 32, 24),
        ("f64", 64, 53),
    ]
}


def split(function):
    """("gelu_tanh", "grad") from "gelu_tanh_grad"; the kind is value, grad, backward or grad2."""
    for kind in ("grad", "backward", "grad2"):
        form = function.removesuffix("_" + kind)
        if form != function:
            break
    else:
        kind = "value"
    if form not in FORMS:
        raise ValueError(f"no reference for {function!r}")
    return form, kind


# ---- encodings ---------------------------------------------------------------------------


def from_bits(bits, dtype):
    """The Python float that the encoding `bits` stands for."""
    f = FORMATS[dtype]
    sign = -1.0 if bits & f.sign_bit else 1.0
    magnitude = bits & (f.sign_bit - 1)
    if magnitude >= f.infinity:
        return sign * math.inf if magnitude == f.infinity else math.nan
    exponent, fraction = divmod(magnitude, 1 << (f.precision - 1))
    if exponent:
        fraction += 1 << (f.precision - 1)
        exponent -= 1
    return sign * math.ldexp(fraction, exponent + f.tiny)


def array_from_bits(bits, dtype):
    """The array of `dtype` with these encodings."""
    f = FORMATS[dtype]
    return np.asarray(bits, f.unsigned).view(f.numpy)


def bits_of(array):
    """The encodings of an array, as an unsigned integer array of its shape."""
    array = np.asarray(array)
    return array.view(f"u{array.dtype.itemsize}")


def round_to(value, dtype):
    """The encoding of `value` correctly rounded to `dtype`: to nearest, ties to even.

    `value` is an mpf, or a float (signed zeros, infinities and NaN among them).
    """
    f = FORMATS[dtype]
    if isinstance(value, float):
        if math.isnan(value):
            return f.quiet_nan
        sign = math.copysign(1.0, value) < 0
        if math.isinf(value):
            return f.infinity | (f.sign_bit if sign else 0)
        mantissa, exponent = math.frexp(abs(value))
        mantissa, exponent = int(math.ldexp(mantissa, 53)), exponent - 53
    else:
        sign, mantissa, exponent, _ = value._mpf_
        if not mantissa and exponent:
            raise ValueError(f"{value} is not finite: pass a float")
        mantissa = int(mantissa)
    magnitude = 0
    if mantissa:
        top = mantissa.bit_length() + exponent  # 2^(top-1) <= |value| < 2^top
        unit = max(top - f.precision, f.tiny)
        if top > f.emax + 1:
            magnitude = f.infinity
        elif top >= f.tiny:  # below, it is less than half the smallest subnormal
            shift = unit - exponent
            if shift <= 0:
                quotient, half = mantissa << -shift, -1
            else:
                quotient = mantissa >> shift
                rest = 2 * (mantissa - (quotient << shift))
                half = (rest > 1 << shift) - (rest < 1 << shift)
            if half > 0 or (half == 0 and quotient & 1):
                quotient += 1
            # A carry out of the significand runs into the exponent field, as it should, up to
            # infinity.
            magnitude = ((unit - f.tiny) << (f.precision - 1)) + quotient
    return magnitude | (f.sign_bit if sign else 0)


# ---- errors ------------------------------------------------------------------------------


def ulp_error(got, want, dtype):
    """The error of `got` (a float) against the exact `want` (an mpf or a float), in ULP of
    `dtype`: the spacing in the binade of the exact value, at least that of the subnormals.

    Infinite where a NaN, an infinity or the sign of a zero is not the exact one. An overflow
    counts as 2^(emax+1), and past that number as right.
    """
    f = FORMATS[dtype]
    got = float(got)
    if isinstance(want, float):
        if math.isnan(want) or math.isnan(got):
            return 0.0 if math.isnan(want) and math.isnan(got) else math.inf
        if want == got:
            return 0.0 if math.copysign(1.0, want) == math.copysign(1.0, got) else math.inf
        if math.isinf(want):
            return math.inf
        want = _mp.mpf(want)
    elif math.isnan(got):
        return math.inf
    if got == 0 and (want > 0) != (math.copysign(1.0, got) > 0):
        return math.inf
    limit = _mp.ldexp(1, f.emax + 1)
    if math.isinf(got):
        if got * want > 0 and abs(want) >= limit:
            return 0.0
        if got * want <= 0:
            return math.inf
        got = limit * (1 if got > 0 else -1)
    unit = f.tiny if want == 0 else max(_mp.mag(want) - f.precision, f.tiny)
    with _mp.workprec(2 * PRECISION):
        return float(abs(got - want) * _mp.ldexp(1, -int(unit)))


def ulp_errors(got, want, dtype):
    """`ulp_error` for arrays: `want` in float64 from `reference`, whose own error of 2^-45
    makes the results uncertain by 2^(precision - 45) ULP."""
    f = FORMATS[dtype]
    want = np.asarray(want, np.float64)
    with np.errstate(all="ignore"):
        got = np.asarray(got).astype(np.float64)
        limit = math.ldexp(1, f.emax + 1)
        unit = np.maximum(np.frexp(want)[1].astype(np.int64) - f.precision, f.tiny)
        unit = np.where(want == 0, f.tiny, unit)
        clipped = np.clip(got, -limit, limit)
        clipped = np.where(
            np.isinf(got) & (np.abs(want) >= limit), np.clip(want, -1e300, 1e300), clipped
        )
        error = np.abs(clipped - want)
        # Scaled in two steps: 2^-unit alone may overflow.
        error = np.ldexp(np.ldexp(error, -(unit // 2)), -(unit - unit // 2))
        wrong = np.isnan(got) | ((got == 0) & (np.signbit(got) != np.signbit(want)))
        wrong |= np.isinf(got) & (np.signbit(got) != np.signbit(want))
        error = np.where(np.isinf(want), np.where(got == want, 0.0, math.inf), error)
        error = np.where(wrong, math.inf, error)
        return np.where(np.isnan(want), np.where(np.isnan(got), 0.0, math.inf), error)


# ---- exact values ------------------------------------------------------------------------


def _exp(v):
    """exp(v), where v may be huge."""
    if abs(v) > 1000:
        # mpmath raises e to the power of a huge integer bit by bit. The last bit of v keeps it
        # from that, and is worth nothing: see `_at`.
        v += _mp.ldexp(v, 8 - _mp.prec)
        # All bits of v count, but only so many of the result.
        with _mp.workprec(PRECISION + 32):
            return _mp.exp(v)
    return _mp.exp(v)


def _steepness(form, x):
    """v and dv/dx of the form's sigmoid s(v), at the working precision."""
    if form == "silu":
        return x, _mp.mpf(1)
    if form == "gelu_sigmoid":
        c = _mp.mpf("1.702")
        return c * x, c
    c = 2 * _mp.sqrt(2 / _mp.pi)
    k = _mp.mpf("0.044715")
    return c * (x + k * x**3), c * (1 + 3 * k * x**2)


def _far_tail(t):
    """Phi(-t) for t >= 1000, by the asymptotic series (mpmath's erfc gives up past 1e154).

    The error is below the first term left out; the terms fall by more than 2^18 each.
    """
    total = term = _mp.mpf(1)
    k = 1
    while _mp.mag(term) > -PRECISION - 32:
        term *= -k / t**2
        total += term
        k += 2
    return _exp(-t * t / 2) / (t * _mp.sqrt(2 * _mp.pi)) * total


def _gate(form, x):
    """The factor of x: Phi(x), or s(v)."""
    if form == "gelu":
        if abs(x) < 1000:
            return _mp.erfc(-x / _mp.sqrt(2)) / 2
        tail = _far_tail(abs(x))
        return tail if x < 0 else 1 - tail
    v, _ = _steepness(form, x)
    return 1 / (1 + _exp(-v))


def _slope(form, x):
    """(slope, bits cancelled in it), at the working precision."""
    if form == "gelu":
        first = _gate(form, x)
        second = x * _exp(-x * x / 2) / _mp.sqrt(2 * _mp.pi)
        total = first + second
        return total, _mp.mag(first) - _mp.mag(total)
    v, dv = _steepness(form, x)
    gate = 1 / (1 + _exp(-v))
    factor = 1 + x * dv / (1 + _exp(v))
    return gate * factor, -_mp.mag(factor)


def _second(form, x):
    """(second derivative, bits cancelled in it), at the working precision."""
    if form == "gelu":
        factor = 2 - x * x
        return _exp(-x * x / 2) / _mp.sqrt(2 * _mp.pi) * factor, 2 - _mp.mag(factor)
    v, dv = _steepness(form, x)
    d2v = 12 * _mp.sqrt(2 / _mp.pi) * _mp.mpf("0.044715") * x if form == "gelu_tanh" else 0
    first = 2 * dv + x * d2v
    one, other = 1 / (1 + _exp(-v)), 1 / (1 + _exp(v))
    factor = first + x * dv**2 * (other - one)
    return one * other * factor, _mp.mag(first) - _mp.mag(factor)


def _at(x):
    """The working precision that PRECISION right bits need at x.

    A large x amplifies the rounding of v, which goes with x^3; at a small x the bits past 0.5
    begin |log2 x| places further on, and decide ties when a result is rounded.
    """
    magnitude = math.frexp(x)[1]
    return _mp.workprec(PRECISION + 32 + max(-magnitude, 3 * magnitude, 0))


@functools.lru_cache(maxsize=1 << 15)
def _exact_slope(form, x, precision):
    """The slope with `precision` right bits; the cache is why that is an argument."""
    assert precision == PRECISION
    if math.isnan(x):
        return math.nan
    if math.isinf(x):
        return 1.0 if x > 0 else -0.0
    if x == 0:
        return 0.5
    return _uncancelled(_slope, form, x)


@functools.lru_cache(maxsize=1 << 15)
def _exact_second(form, x, precision):
    """The second derivative likewise."""
    assert precision == PRECISION
    if math.isnan(x):
        return math.nan
    return -0.0 if math.isinf(x) else _uncancelled(_second, form, x)


def _uncancelled(function, form, x):
    """function(form, x), which says how many bits cancel, with as many more to start with."""
    with _at(x):
        start = _mp.prec
    lost = 0
    while True:
        with _mp.workprec(start + lost):
            result, cancelled = function(form, _mp.mpf(x))
        if result != 0 and cancelled <= lost + 16:
            return result
        lost = 2 * lost + 64


def exact(function, *args):
    """The exact value of `function` ("gelu", "silu_grad", "gelu_tanh_backward", ...).

    Takes floats: (x), or (dy, x) for a backward function. Returns an mpf with at least
    `PRECISION` right bits, or a float where the result is a zero, an infinity or a NaN.
    The truth of backward is dy times the exact slope, not times the rounded one. Where dy is
    infinite, that means an infinity for every finite x.
    """
    form, kind = split(function)
    args = [float(a) for a in args]
    x = args[-1]
    if kind == "value":
        if math.isnan(x) or x == 0 or x == math.inf:
            return x
        if x == -math.inf:
            return -0.0
        with _at(x):
            return _mp.mpf(x) * _gate(form, _mp.mpf(x))
    if kind == "grad2":
        return _exact_second(form, x, PRECISION)
    slope = _exact_slope(form, x, PRECISION)
    if kind == "grad":
        return slope
    dy = args[0]
    if dy == 0 or not math.isfinite(dy):
        # The product with a float of the slope's sign: IEEE 754 then says zero, infinity, NaN.
        if not isinstance(slope, float):
            slope = 1.0 if slope > 0 else -1.0
        return dy * slope
    if isinstance(slope, float):
        if slope == 0 or math.isnan(slope):
            return dy * slope
    return _mp.fmul(dy, slope, exact=True)


# ---- the fast reference ------------------------------------------------------------------

# Around the zero of a slope its terms cancel, so a Taylor series stands there instead. The
# nearest singularity, 1.8 from the zero, makes 24 terms plenty for this radius.
_NEAR = 0.125
_TERMS = 24


@functools.cache
def _zero_of_slope(form):
    """(zero as hi + lo, Taylor coefficients of the slope there, constant term left out)."""
    guess = {"gelu": -0.75, "gelu_tanh": -0.75, "gelu_sigmoid": -0.75, "silu": -1.28}[form]
    return _series_at_zero(lambda x: _slope(form, x)[0], guess)


@functools.cache
def _zero_of_second(form):
    """The same of the second derivative, for the zero below 0."""
    guess = -2.4 if form == "silu" else -1.41
    return _series_at_zero(lambda x: _second(form, x)[0], guess)


def _series_at_zero(f, guess):
    with _mp.workprec(4 * PRECISION):
        zero = _mp.findroot(f, guess)
        high = float(zero)
        series = _mp.taylor(f, zero, _TERMS)
        return high, float(zero - high), [float(c) for c in series[1:]]


def slope_zero(form):
    """The float64 nearest to the zero of the form's slope."""
    return _zero_of_slope(form)[0]


def second_zero(form):
    """The float64 nearest to the negative zero of the form's second derivative."""
    return _zero_of_second(form)[0]


def _two_product(a, b):
    """a*b as an unevaluated sum hi + lo, exactly (Dekker; no fma needed)."""

    def halves(u):
        c = 134217729.0 * u
        high = c - (c - u)
        return high, u - high

    product = a * b
    a1, a2 = halves(a)
    b1, b2 = halves(b)
    return product, a2 * b2 - (((product - a1 * b1) - a2 * b1) - a1 * b2)


@functools.cache
def _constant(name):
    """A constant as hi + lo float64."""
    with _mp.workprec(PRECISION):
        c = {
            "sigmoid": _mp.mpf("1.702"),
            "tanh": 2 * _mp.sqrt(2 / _mp.pi),
            "tanh3": 2 * _mp.sqrt(2 / _mp.pi) * _mp.mpf("0.044715"),
        }[name]
        return float(c), float(c - float(c))


def _fast_steepness(form, t):
    """v as hi + lo and dv/dx, for t >= 0 of at most 24 bits."""
    if form == "silu":
        return t, 0.0, 1.0
    if form == "gelu_sigmoid":
        high, low = _constant("sigmoid")
        p, e = _two_product(t, high)
        return p, e + t * low, high
    c, c_low = _constant("tanh")
    k, k_low = _constant("tanh3")
    square = t * t  # exact in 48 bits
    cube, cube_low = _two_product(square, t)
    p, p_low = _two_product(cube, k)
    q, q_low = _two_product(t, c)
    v = p + q
    part = v - p
    low = (p - (v - part)) + (q - part)
    return v, low + p_low + q_low + cube_low * k + cube * k_low + t * c_low, c + 3 * k * square


def reference(function, *args):
    """`exact` in float64, vectorised: relative error below 2^-45 where |result| > 2^-1000.

    The arguments must be of at most 24 significant bits and of the range of float32 (any of
    float16, bfloat16, float32). Needs SciPy (its erfcx).
    """
    form, kind = split(function)
    with np.errstate(all="ignore"):
        args = [np.asarray(a).astype(np.float64) for a in args]
        x = args[-1]
        y = _fast(form, kind, np.atleast_1d(x)).reshape(x.shape)
        return args[0] * y if kind == "backward" else y


def _fast(form, kind, x):
    """The value, the slope or the second derivative at the array x."""
    # Past these bounds every result is x, 1 or less than 2^-1000, and nothing may overflow.
    t = np.minimum(np.abs(x), 2000.0 if form in ("silu", "gelu_sigmoid") else 60.0)
    t = np.where(np.isnan(x), 1.0, t)
    negative = np.signbit(x)
    if form == "gelu":
        from scipy.special import erfcx

        density = np.exp(-0.5 * (t * t))  # t*t is exact
        tail = 0.5 * density * erfcx(t * math.sqrt(0.5))
        slope = density * (0.5 * erfcx(t * math.sqrt(0.5)) - t * (1 / math.sqrt(2 * math.pi)))
        second = density * (1 / math.sqrt(2 * math.pi)) * (2 - t * t)
    else:
        v, low, dv = _fast_steepness(form, t)
        e = np.exp(-v) * (1 - low)
        tail = e / (1 + e)
        slope = tail * (1 - t * dv / (1 + e))
        # w' + t w''/2 of the tanh form, since w'' t = 2 (w' - w'(0))
        first = dv + (dv - _constant("tanh")[0] if form == "gelu_tanh" else 0)
        second = tail / (1 + e) * (2 * first - t * dv * dv * ((1 - e) / (1 + e)))
    if kind == "value":
        y = np.where(negative, x * tail, x * (1 - tail))
        return np.where(x == -math.inf, -0.0, np.where(np.isinf(x) & ~negative, x, y))
    if kind == "grad2":
        _mend_near_zero(second, t, _zero_of_second(form))
        return np.where(np.isnan(x), math.nan, np.where(np.isinf(x), -0.0, second))
    _mend_near_zero(slope, t, _zero_of_slope(form))
    y = np.where(negative, slope, 1 - slope)
    y = np.where(x == -math.inf, -0.0, y)
    return np.where(np.isnan(x), math.nan, y)


def _mend_near_zero(y, t, zero_and_series):
    """The Taylor series in y where -t is near the zero."""
    zero, zero_low, series = zero_and_series
    d = (-t - zero) - zero_low
    near = np.abs(d) < _NEAR
    if near.any():
        close = d[near]
        total = np.zeros_like(close)
        for c in reversed(series):
            total = total * close + c
        y[near] = close * total
