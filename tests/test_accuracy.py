# SPDX-License-Identifier: BSD-3-Clause
"""The error of every registered function, in ULP, against the bound that the registry gives.

The truth for dtypes of up to 32 bits is the vectorised reference at all points, and then mpmath
at the worst of them; for float64 it is mpmath at all points.
"""

import functools
import math

import numpy as np
import oracle
import pytest

# Random points in each region.
COUNT = {"f16": 40_000, "bf16": 40_000, "f32": 400_000, "f64": 1500}


def check(entry, *args):
    """Fails where the largest error is above the bound. Prints where it is, in any case."""
    name, dtype = entry.name, entry.dtype
    with np.errstate(over="ignore", invalid="ignore"):  # dy * slope may overflow
        result = entry.ufunc(*args)
    assert result.dtype == args[0].dtype == oracle.FORMATS[dtype].numpy
    assert np.size(result) == np.size(args[0]) > 0
    got = oracle.bits_of(result)
    inputs = [oracle.bits_of(a) for a in args]
    judged = np.arange(len(got))
    if dtype != "f64":
        errors = oracle.ulp_errors(result, oracle.reference(name, *args), dtype)
        judged = np.argsort(errors)[-20:]
    worst = (-1.0,)
    for i in judged.tolist():
        point = [oracle.from_bits(int(bits[i]), dtype) for bits in inputs]
        want = oracle.exact(name, *point)
        error = oracle.ulp_error(oracle.from_bits(int(got[i]), dtype), want, dtype)
        if error > worst[0]:
            worst = error, i, want
    error, i, want = worst

    def show(bits):
        return f"{oracle.from_bits(int(bits), dtype).hex()} ({int(bits):#x})"

    print(
        f"{entry}: max error {error:.4f} ULP over {len(got)} points, bound {entry.max_ulp}; "
        f"at {', '.join(show(bits[i]) for bits in inputs)}: got {show(got[i])}, "
        f"want {show(oracle.round_to(want, dtype))}"
    )
    assert error <= entry.max_ulp


# ---- where to look -----------------------------------------------------------------------


def array(magnitudes, negative, dtype):
    """The array with these encodings of |x|, clipped to finite numbers, and signs."""
    f = oracle.FORMATS[dtype]
    bits = np.clip(magnitudes, 0, f.infinity - 1).astype(np.uint64)
    bits |= np.where(negative, np.uint64(f.sign_bit), np.uint64(0))
    return oracle.array_from_bits(bits, dtype)


def rounded(values, dtype):
    with np.errstate(over="ignore"):
        return np.asarray(values, np.float64).astype(oracle.FORMATS[dtype].numpy)


@functools.cache
def last(function, dtype):
    """|x| of the last negative x where the result does not round to zero; for a backward function
    with the largest dy."""
    f = oracle.FORMATS[dtype]
    most = oracle.from_bits(f.infinity - 1, dtype)

    def vanishes(magnitude):
        x = oracle.from_bits(magnitude | f.sign_bit, dtype)
        args = (most, x) if function.endswith("_backward") else (x,)
        return oracle.round_to(oracle.exact(function, *args), dtype) & ~f.sign_bit == 0

    low, high = oracle.round_to(2.0, dtype), f.infinity
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if vanishes(middle) else (middle, high)
    return oracle.from_bits(low, dtype)


def around(value, reach, dtype):
    """|value| in `dtype`, and its `reach` neighbours on either side, as encodings."""
    return oracle.round_to(abs(value), dtype) + np.arange(-reach, reach + 1)


def edges(dtype):
    """Every power of two and its neighbours, subnormal ones and the largest number included."""
    f = oracle.FORMATS[dtype]
    fraction = f.precision - 1
    powers = [1 << i for i in range(fraction)]
    powers += [exponent << fraction for exponent in range(1, 2 * f.emax + 2)]
    magnitudes = np.unique(np.add.outer(np.array(powers, np.int64), [-1, 0, 1]))
    return np.concatenate([array(magnitudes, sign, dtype) for sign in (False, True)])


def everywhere(dtype, count, rng):
    """Random encodings of finite numbers; all of them where the dtype has 16 bits."""
    f = oracle.FORMATS[dtype]
    if f.width == 16:
        return array(np.arange(2 * f.infinity) // 2, np.arange(2 * f.infinity) % 2, dtype)
    return array(rng.integers(0, f.infinity, count), rng.random(count) < 0.5, dtype)


def ordinary(function, dtype, count, rng):
    """What the functions are mostly called with, evenly to where the results vanish on one side
    and the slopes have become 1 on the other."""
    far = last(function, dtype)
    parts = [rng.normal(0, 1.5, count // 2), rng.uniform(-1.02 * far, min(far, 40), count // 2)]
    return rounded(np.concatenate(parts), dtype)


def tail(function, dtype, count, rng):
    """Evenly from -1 to the last result that is not zero, random and equidistant; then every
    number about that place."""
    f = oracle.FORMATS[dtype]
    far = last(function, dtype)
    low, high = oracle.round_to(1.0, dtype), oracle.round_to(far, dtype)
    magnitudes = [
        np.linspace(low, high, count // 2, dtype=np.int64),
        oracle.bits_of(rounded(rng.uniform(0.75 * far, far, count // 2), dtype)).astype(np.int64),
        high + np.arange(-40, 41),
    ]
    if function.endswith("_backward"):
        # And about where the slope alone is no longer representable.
        magnitudes.append(around(last(f"{oracle.split(function)[0]}_grad", dtype), 40, dtype))
    return array(np.minimum(np.concatenate(magnitudes), f.infinity - 1), True, dtype)


def slope_zero(function, dtype, count, rng):
    """To the last number next to the zero of the slope, or of the second derivative, and ever
    further from it."""
    form, kind = oracle.split(function)
    zero = oracle.second_zero(form) if kind == "grad2" else oracle.slope_zero(form)
    f = oracle.FORMATS[dtype]
    centre = oracle.round_to(-zero, dtype)
    reach = 2.0 ** rng.uniform(0, f.precision - 3, count)
    steps = np.where(rng.random(count) < 0.5, reach, -reach).astype(np.int64)
    magnitudes = np.concatenate([centre + steps, around(zero, min(count // 8, 2000), dtype)])
    # On the positive side, at the same distance from 0, the slope passes 1, and the second
    # derivative vanishes too.
    return np.concatenate([array(magnitudes, True, dtype), array(magnitudes[::4], False, dtype)])


def middle(dtype, count, rng):
    """Where the slope's maximum and minimum and the values' minimum are."""
    return rounded(rng.uniform(-4, 4, count), dtype)


REGIONS = {
    "edges": lambda function, dtype, count, rng: edges(dtype),
    "everywhere": lambda function, dtype, count, rng: everywhere(dtype, count, rng),
    "ordinary": ordinary,
    "tail": tail,
    "slope_zero": slope_zero,
    "middle": lambda function, dtype, count, rng: middle(dtype, count, rng),
}


@pytest.mark.parametrize("region", REGIONS)
def test_error(unary, region, rng):
    check(unary, REGIONS[region](unary.name, unary.dtype, COUNT[unary.dtype], rng))


# ---- backward ----------------------------------------------------------------------------


def sizes(dtype, count, rng, low=None, high=None):
    """Numbers of either sign with |dy| from 2^low to 2^high, evenly in the exponent."""
    f = oracle.FORMATS[dtype]
    exponent = rng.integers(f.tiny if low is None else low, f.emax if high is None else high, count)
    return rounded(np.ldexp(rng.choice([-1, 1], count) * rng.uniform(1, 2, count), exponent), dtype)


def crossed(function, dtype, count, rng):
    """Random dy of all magnitudes with the x of a region."""
    x = np.concatenate(
        [
            REGIONS[region](function, dtype, count // 4, rng)
            for region in ("ordinary", "tail", "slope_zero")
        ]
    )
    return sizes(dtype, len(x), rng), x


def largest_dy(function, dtype, count, rng):
    """The largest dy where the slope alone would be rounded to zero or to a subnormal."""
    x = tail(function, dtype, count, rng)
    return sizes(dtype, len(x), rng, oracle.FORMATS[dtype].emax - 12), x


def smallest_dy(function, dtype, count, rng):
    """Subnormal dy, down to the smallest, at slopes about 1/2 and 1."""
    f = oracle.FORMATS[dtype]
    x = np.concatenate(
        [middle(dtype, count // 2, rng), sizes(dtype, count // 2, rng, -2 * f.precision, 0)]
    )
    return sizes(dtype, len(x), rng, f.tiny, f.tiny + f.precision), x


def overflow(function, dtype, count, rng):
    """About the largest number: |dy| * 1.13 overflows, |dy| * 1 does not."""
    f = oracle.FORMATS[dtype]
    x = np.abs(middle(dtype, count, rng))
    dy = sizes(dtype, len(x), rng, f.emax - 1, f.emax + 1)
    dy = np.where(np.isfinite(dy), dy, rounded(1.0, dtype))
    x[: count // 8] = rounded(rng.uniform(4, 100, count // 8), dtype)
    dy[: count // 8] = array(f.infinity - 1, False, dtype)
    return dy, x


def all_dy_edges(function, dtype, count, rng):
    dy = edges(dtype)
    return dy, rounded(rng.uniform(-8, 8, len(dy)), dtype)


def all_x_edges(function, dtype, count, rng):
    x = edges(dtype)
    return sizes(dtype, len(x), rng), x


def any_two(function, dtype, count, rng):
    return everywhere(dtype, count, rng), everywhere(dtype, count, rng)


BACKWARD_REGIONS = [
    crossed,
    largest_dy,
    smallest_dy,
    overflow,
    all_dy_edges,
    all_x_edges,
    any_two,
]


@pytest.mark.parametrize("region", BACKWARD_REGIONS, ids=lambda region: region.__name__)
def test_error_of_backward(binary, region, rng):
    dy, x = region(binary.name, binary.dtype, COUNT[binary.dtype], rng)
    check(binary, dy, x)


@pytest.mark.parametrize("form", oracle.FORMS)
@pytest.mark.parametrize("dtype", oracle.FORMATS)
def test_the_regions_hold_what_they_say(form, dtype, rng):
    """The inputs above reach the cases that they are meant for."""
    f = oracle.FORMATS[dtype]
    if dtype == "bf16":
        pytest.importorskip("ml_dtypes", reason="ml_dtypes has bfloat16")
    for function in (form, f"{form}_grad"):
        x = tail(function, dtype, 800, rng)
        exact = [oracle.round_to(oracle.exact(function, v), dtype) for v in x[-81:].tolist()]
        magnitudes = [b & ~f.sign_bit for b in exact]
        assert 0 in magnitudes and 1 in magnitudes
    x = slope_zero(f"{form}_grad", dtype, 800, rng).astype(np.float64)
    zero = oracle.slope_zero(form)
    spacing = 2.0 ** (math.frexp(zero)[1] - f.precision)
    assert (x < zero).any() and np.abs(x - zero).min() < spacing
    # A slope that is zero in dtype, a product that is not.
    dy, x = largest_dy(f"{form}_backward", dtype, 800, rng)
    pairs = list(zip(dy.tolist(), x.tolist(), strict=True))[-250::5]
    gone = [
        oracle.round_to(oracle.exact(f"{form}_grad", b), dtype) == f.sign_bit
        and oracle.round_to(oracle.exact(f"{form}_backward", a, b), dtype) & ~f.sign_bit > 0
        for a, b in pairs
    ]
    assert any(gone)
    dy, x = overflow(f"{form}_backward", dtype, 400, rng)
    with np.errstate(over="ignore"):
        dx = [oracle.exact(f"{form}_backward", a, b) for a, b in zip(dy.tolist(), x.tolist())]
    infinite = [oracle.round_to(v, dtype) & ~f.sign_bit == f.infinity for v in dx]
    assert any(infinite) and not all(infinite)
    assert len(edges(dtype)) >= 2 * 3 * (2 * f.emax - 1)


# ---- SciPy -------------------------------------------------------------------------------


def scipy_terms(function, x):
    """The terms whose sum is the function, by SciPy's formulas."""
    from scipy import special

    form, kind = oracle.split(function)
    if form == "gelu":
        gate, dv = special.ndtr(x), None
        second = x * np.exp(-x * x / 2) / math.sqrt(2 * math.pi)
        if kind == "grad2":
            density = np.exp(-x * x / 2) / math.sqrt(2 * math.pi)
            return 2 * density, -x * x * density
    else:
        c = {"silu": 1.0, "gelu_sigmoid": 1.702, "gelu_tanh": 2 * math.sqrt(2 / math.pi)}[form]
        k = 0.044715 if form == "gelu_tanh" else 0.0
        v, dv = c * (x + k * x**3), c * (1 + 3 * k * x * x)
        gate = special.expit(v)
        second = x * dv * gate * special.expit(-v)
        if kind == "grad2":
            bell = gate * special.expit(-v)
            return bell * (2 * dv + x * 6 * c * k * x), -x * dv * dv * bell * np.tanh(v / 2)
    return (x * gate, 0.0) if kind == "value" else (gate, second)


# What SciPy's formulas add, in ULP of float64 of their terms, on [-3, 8]: they round the argument
# of the sigmoid, and ndtr that of erfc. A second opinion needs no more.
SCIPY_ULP = 16


def test_against_scipy(unary, rng):
    pytest.importorskip("scipy.special", reason="SciPy has the formulas to compare with")
    # second derivatives fall on the right too, where the argument's rounding shows
    last = 3 if unary.name.endswith("_grad2") else 8
    x = rounded(rng.uniform(-3, last, 100_000), unary.dtype)
    first, second = scipy_terms(unary.name, x.astype(np.float64))
    got = unary.ufunc(x).astype(np.float64)
    allowed = SCIPY_ULP * np.spacing(np.abs(first) + np.abs(second))
    f = oracle.FORMATS[unary.dtype]
    unit = np.ldexp(1.0, np.maximum(np.frexp(first + second)[1] - f.precision, f.tiny))
    assert np.max(np.abs(got - (first + second)) / (allowed + unary.max_ulp * unit)) <= 1
