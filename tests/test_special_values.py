# SPDX-License-Identifier: BSD-3-Clause
"""Special values by encoding, floating-point flags, and the same bits wherever a value stands."""

import itertools
import math

import numpy as np
import oracle
import pytest

INF, NAN = math.inf, math.nan
FLAGS = dict(invalid="raise", over="raise", divide="raise")


def encodings(values, dtype):
    return [oracle.round_to(v, dtype) for v in values]


def canonical(array):
    """Encodings, with one for every NaN: sign and payload of a NaN are unspecified."""
    bits = oracle.bits_of(array)
    with np.errstate(invalid="ignore"):
        return np.where(np.isnan(array), np.array(-1).astype(bits.dtype), bits)


def same(got, want):
    return np.array_equal(canonical(got), canonical(want))


def nan_encodings(dtype):
    """Quiet and signalling, of both signs."""
    f = oracle.FORMATS[dtype]
    quiet = [f.quiet_nan, f.quiet_nan | 1, f.sign_bit - 1]
    signalling = [f.infinity | 1, f.quiet_nan - 1]
    return [b | sign for sign in (0, f.sign_bit) for b in quiet + signalling]


def limits(function):
    """The results at +inf, -inf, 0 and -0."""
    form, kind = oracle.split(function)
    at_0 = {"gelu_sigmoid": 0.851, "silu": 0.5}.get(form, math.sqrt(2 / math.pi))
    return {
        "value": [INF, -0.0, 0.0, -0.0],
        "grad": [1.0, -0.0, 0.5, 0.5],
        "grad2": [-0.0, -0.0, at_0, at_0],
    }[kind]


def is_quiet_nan(bits, dtype):
    f = oracle.FORMATS[dtype]
    return bits & f.quiet_nan == f.quiet_nan


# ---- values and slopes -------------------------------------------------------------------


def test_infinities_and_zeros(unary):
    x = oracle.array_from_bits(encodings([INF, -INF, 0.0, -0.0], unary.dtype), unary.dtype)
    with np.errstate(**FLAGS):
        got = oracle.bits_of(unary.ufunc(x))
        one_by_one = [int(oracle.bits_of(unary.ufunc(v))) for v in x]
    assert got.tolist() == encodings(limits(unary.name), unary.dtype)
    assert one_by_one == got.tolist()


def test_huge(unary):
    """Past the last result that is not zero: the limits, or x."""
    f = oracle.FORMATS[unary.dtype]
    with np.errstate(over="ignore"):
        huge = np.array([2e3, 1e5, 1e9, 1e19, 3e38, 1e100, 1e300]).astype(f.numpy)
    huge = np.append(huge[np.isfinite(huge)], oracle.array_from_bits([f.infinity - 1], unary.dtype))
    with np.errstate(**FLAGS):
        right, left = unary.ufunc(huge), unary.ufunc(-huge)
    limit = limits(unary.name)[0]
    want = huge if math.isinf(limit) else np.full_like(huge, limit)
    assert same(right, want)
    assert oracle.bits_of(left).tolist() == [f.sign_bit] * len(huge)


def test_subnormal_inputs_are_kept(unary):
    f = oracle.FORMATS[unary.dtype]
    fraction = f.precision - 1
    magnitudes = [1, 2, 3, 5, 7, (1 << fraction) - 1, 1 << fraction, (1 << fraction) + 1]
    for sign in (0, f.sign_bit):
        x = oracle.array_from_bits([m | sign for m in magnitudes], unary.dtype)
        got = oracle.bits_of(unary.ufunc(x)).tolist()
        at_0 = limits(unary.name)[2]
        if at_0 != 0:
            assert got == encodings([at_0] * len(x), unary.dtype)
            continue
        # x/2 to the nearest: half of an odd number may go either way.
        for m, bits in zip(magnitudes, got, strict=True):
            assert bits & f.sign_bit == sign
            assert bits & ~f.sign_bit in {m // 2, (m + 1) // 2}


def test_nan(unary):
    x = oracle.array_from_bits(nan_encodings(unary.dtype), unary.dtype)
    with np.errstate(invalid="ignore"):  # the signalling ones may raise it
        got = oracle.bits_of(unary.ufunc(x)).tolist()
    assert all(is_quiet_nan(b, unary.dtype) for b in got)


# ---- backward ----------------------------------------------------------------------------


def test_backward_at_special_values(binary):
    """dy times the slope of the special x, by the rules of IEEE 754: 1, -0.0, 0.5, NaN."""
    dy = np.array([0.0, -0.0, 1.0, -2.5, INF, -INF, NAN])
    for x, slope in [(INF, 1.0), (-INF, -0.0), (0.0, 0.5), (-0.0, 0.5), (NAN, NAN)]:
        with np.errstate(invalid="ignore"):
            want = dy * slope
            dtype = oracle.FORMATS[binary.dtype].numpy
            got = binary.ufunc(dy.astype(dtype), np.full_like(dy, x).astype(dtype))
        assert same(got, want.astype(dtype)), (x, got)
        bits = oracle.bits_of(got)[np.isnan(want)]
        assert all(is_quiet_nan(b, binary.dtype) for b in bits.tolist())


def test_backward_with_special_dy(binary):
    """A zero, an infinity or a NaN times an ordinary slope of either sign."""
    dtype = oracle.FORMATS[binary.dtype].numpy
    x = np.array([-5.0, -2.0, -1.5, -0.5, -1e-3, 1e-3, 0.5, 2.0, 5.0, 300.0]).astype(dtype)
    sign = np.array([1.0 if oracle.exact(binary.name, 1.0, v) > 0 else -1.0 for v in x.tolist()])
    assert 0 < (sign < 0).sum() < len(x)
    for dy in (0.0, -0.0, INF, -INF, NAN):
        with np.errstate(**FLAGS):
            got = binary.ufunc(np.full_like(x, dy), x)
        assert same(got, (dy * sign).astype(dtype)), dy


def test_backward_far_out(binary):
    """Huge x: the slope is 1 or -0.0, whatever the finite dy; never NaN."""
    f = oracle.FORMATS[binary.dtype]
    with np.errstate(over="ignore"):
        huge = np.array([2e3, 1e9, 1e19, 3e38, 1e300]).astype(f.numpy)
        dy = np.array([1e-45, 1e-30, 1.0, -3e4, 3e38, -1e308]).astype(f.numpy)
    most = oracle.array_from_bits([f.infinity - 1], binary.dtype)
    huge = np.append(huge[np.isfinite(huge)], most)
    dy = dy[np.isfinite(dy)]
    dy = np.append(dy, oracle.array_from_bits([1, f.infinity - 1], binary.dtype))
    dy, huge = (a.ravel() for a in np.meshgrid(dy, huge))
    with np.errstate(**FLAGS):
        right, left = binary.ufunc(dy, huge), binary.ufunc(dy, -huge)
    assert same(right, dy)
    assert same(left, np.copysign(np.zeros_like(dy), -dy))


# ---- flags -------------------------------------------------------------------------------


def sweep(dtype):
    """Every exponent with some significands, both signs, the infinities and quiet NaN."""
    f = oracle.FORMATS[dtype]
    fraction = f.precision - 1
    most = (1 << fraction) - 1
    rng = np.random.default_rng(17)
    count = 12 if f.width == 64 else 60
    fractions = np.unique([0, 1, 2, most // 3, most - 1, most, *rng.integers(0, most, count)])
    exponents = np.arange(2 * f.emax + 1, dtype=np.uint64) << np.uint64(fraction)
    magnitudes = np.bitwise_or.outer(exponents, fractions.astype(np.uint64)).ravel()
    magnitudes = np.append(magnitudes, np.array([f.infinity, f.quiet_nan], np.uint64))
    return oracle.array_from_bits(
        np.concatenate([magnitudes, magnitudes | np.uint64(f.sign_bit)]), dtype
    )


def test_no_spurious_flags(unary):
    x = sweep(unary.dtype)
    with np.errstate(**FLAGS):
        together = unary.ufunc(x)
        strided = unary.ufunc(x[::-3])
        for i in range(0, len(x), max(1, len(x) // 2000)):
            assert same(unary.ufunc(x[i]), together[i])
    assert same(strided, together[::-3])


def test_no_spurious_flags_of_backward(binary):
    """|dy| of at most 1/2 cannot overflow; the largest dy does not where the slope is not above
    1, even if it is above it by too little to see."""
    f = oracle.FORMATS[binary.dtype]
    x = sweep(binary.dtype)
    with np.errstate(invalid="ignore"):  # bfloat16's own comparisons raise it for NaN
        flat = (x < 0) & (np.abs(x) > 1e-3) | (x > 200)
    with np.errstate(**FLAGS):
        for bits in [0, 1, 1 << (f.precision - 1), *encodings([1e-20, 0.5], binary.dtype)]:
            for sign in (0, f.sign_bit):
                dy = oracle.array_from_bits(np.full(len(x), bits | sign), binary.dtype)
                binary.ufunc(dy, x)
        most = oracle.array_from_bits([f.infinity - 1], binary.dtype)
        x = x[flat]
        assert len(x) > 1000
        assert not np.isinf(binary.ufunc(most, x)).any()
        assert not np.isinf(binary.ufunc(-most, x)).any()
        quiet = np.full(len(x), NAN, f.numpy)
        assert np.isnan(binary.ufunc(quiet, x)).all()


@pytest.mark.parametrize("length", [1, 3, 8, 33, 1000])
def test_overflow_is_reported(binary, length):
    f = oracle.FORMATS[binary.dtype]
    dy = np.full(length, 0.25, f.numpy)
    x = np.full(length, 2.0, f.numpy)  # a slope of 1.09 for all four forms
    with np.errstate(**FLAGS):
        binary.ufunc(dy, x)
        dy[-1] = oracle.array_from_bits([f.infinity - 1], binary.dtype)[0]
        with pytest.raises(FloatingPointError, match="overflow"):
            binary.ufunc(dy, x)
    with np.errstate(over="ignore"):
        got = binary.ufunc(dy, x)
    assert np.isposinf(got[-1]) and np.isfinite(got[:-1]).all()


@pytest.mark.parametrize("length", [1, 3, 8, 33, 1000])
def test_infinity_times_zero_is_reported(binary, length):
    f = oracle.FORMATS[binary.dtype]
    dy, x = np.full(length, 1.0, f.numpy), np.full(length, -1.0, f.numpy)
    dy[-1], x[-1] = INF, -INF
    with np.errstate(**FLAGS), pytest.raises(FloatingPointError, match="invalid"):
        binary.ufunc(dy, x)


# ---- the same bits wherever a value stands -----------------------------------------------


def mixture(dtype, count, seed=5):
    """Ordinary numbers, tails, subnormals and specials in no order."""
    f = oracle.FORMATS[dtype]
    rng = np.random.default_rng(seed)
    with np.errstate(over="ignore", under="ignore"):
        x = np.concatenate(
            [
                rng.normal(0, 2, count),
                rng.uniform(-40, 0, count // 2),
                rng.uniform(-800, 100, count // 4),
                rng.choice([0.0, -0.0, INF, -INF, NAN, 1e300, -1e300, 1e-300, -1e-310], count // 8),
            ]
        ).astype(f.numpy)
    random = oracle.array_from_bits(rng.integers(0, 1 << 62, count // 4) >> (62 - f.width), dtype)
    if f.width == 64:
        random = oracle.array_from_bits(rng.integers(0, 2**64, count // 4, np.uint64), dtype)
    x = np.concatenate([x, random[~np.isnan(random)]])
    rng.shuffle(x)
    return x[:count]


def operands(entry, count):
    return [mixture(entry.dtype, count, seed=5 + i) for i in range(entry.inputs)]


def alone(entry, args):
    """Each result from a call of its own."""
    return np.array([entry.ufunc(*point) for point in zip(*args, strict=True)], args[0].dtype)


@pytest.fixture(autouse=True)
def quiet():
    with np.errstate(over="ignore", invalid="ignore"):
        yield


def test_every_length_and_offset(entry):
    args = operands(entry, 216)
    want = alone(entry, args)
    for offset in (0, 1, 2, 3, 5, 7, 11):
        for n in range(201):
            got = entry.ufunc(*(a[offset : offset + n] for a in args))
            assert same(got, want[offset : offset + n]), (offset, n)


def test_every_alignment(entry):
    """The address in bytes, aligned to the element or not."""
    n = 100
    args = operands(entry, n)
    want = alone(entry, args)
    size = args[0].itemsize

    def moved(a, shift):
        raw = np.zeros(a.nbytes + 128, np.uint8)
        start = -raw.ctypes.data % 64 + shift
        view = raw[start : start + a.nbytes].view(a.dtype)
        view[...] = a
        assert view.ctypes.data % 64 == shift
        return view

    for shift in [*range(0, 64, size), *range(1, size)]:
        shifted = [moved(a, shift) for a in args]
        other = moved(args[0], 7 * shift % 64 // size * size)
        assert same(entry.ufunc(*shifted), want), shift
        assert same(entry.ufunc(*shifted, out=other), want), shift
        assert same(entry.ufunc(*shifted, out=moved(args[0], shift)), want), shift
    for shift in (1, size - 1):
        assert same(entry.ufunc(*args, out=moved(args[0], shift)), want), shift


@pytest.mark.parametrize("step", [-7, -3, -2, -1, 1, 2, 3, 5, 16])
def test_every_stride(entry, step):
    n = 1300
    args = operands(entry, n)
    want = entry.ufunc(*args)
    for count in (1, 2, 7, 64, 81):
        views = [a[::step][:count] for a in args]
        expected = want[::step][:count]
        assert same(entry.ufunc(*views), expected)
        # Into memory of another stride, whose gaps stay as they are.
        out = np.full(3 * len(expected) + 2, 77, args[0].dtype)
        entry.ufunc(*views, out=out[1::3][: len(expected)])
        assert same(out[1::3][: len(expected)], expected)
        out[1::3][: len(expected)] = 77
        assert (out == 77).all()
        out = np.full(2 * len(expected), 77, args[0].dtype)[::-2]
        assert same(entry.ufunc(*views, out=out), expected)


def test_long_strides_cross_the_blocks(entry):
    """More elements than any buffer that strided calls go through."""
    args = operands(entry, 5003)
    want = entry.ufunc(*args)
    table = [np.stack([a, a, a], axis=1) for a in args]
    assert same(entry.ufunc(*(t[:, 1] for t in table)), want)
    assert same(entry.ufunc(*(t[::-1, 2] for t in table)), want[::-1])


def test_zero_stride(entry):
    for x in mixture(entry.dtype, 25):
        one = entry.ufunc(*[x] * entry.inputs)
        spread = np.broadcast_to(x, 45)
        assert spread.strides == (0,)
        assert same(entry.ufunc(*[spread] * entry.inputs), np.full(45, one, x.dtype))


def test_backward_with_one_stride_zero(binary):
    dy, x = operands(binary, 60)
    for i in range(0, 60, 7):
        assert same(binary.ufunc(dy, x[i]), binary.ufunc(dy, np.full_like(x, x[i])))
        assert same(binary.ufunc(dy[i], x), binary.ufunc(np.full_like(dy, dy[i]), x))


def test_in_place(entry):
    for n in (1, 2, 5, 8, 31, 100, 1000):
        args = operands(entry, n)
        want = entry.ufunc(*args)
        for i in range(entry.inputs):
            copies = [a.copy() for a in args]
            result = entry.ufunc(*copies, out=copies[i])
            assert result is copies[i]
            assert same(result, want)
            spaced = [np.repeat(a, 2) for a in args]
            entry.ufunc(*(s[::2] for s in spaced), out=spaced[i][::2])
            assert same(spaced[i][::2], want)
            assert same(spaced[i][1::2], args[i])


def test_one_array_for_both_inputs(binary):
    x = mixture(binary.dtype, 100)
    want = binary.ufunc(x, x.copy())
    assert same(binary.ufunc(x, x), want)
    assert same(binary.ufunc(x, x, out=x), want)


# ---- the same bits from every instruction set --------------------------------------------

CHILD = """
import hashlib, sys
import numpy as np
import fastgelu, oracle
from test_special_values import canonical, mixture, sweep
assert fastgelu.target() == sys.argv[1], fastgelu.target()
np.seterr(over="ignore", invalid="ignore")
for name, dtype, inputs, max_ulp in fastgelu.functions():
    short = dtype.replace("float", "f")
    x = np.concatenate([sweep(short), mixture(short, 200_000)])
    dy = np.random.default_rng(3).permutation(x)
    y = getattr(fastgelu, name)(*[dy, x][-inputs:])
    print(name, short, hashlib.sha256(canonical(y).tobytes()).hexdigest())
"""


def test_every_target_gives_the_same_bits(run_python):
    import fastgelu

    supported = [name for name, has in fastgelu.targets().items() if has]
    assert "scalar" in supported
    printed = {t: run_python(CHILD, t, FASTGELU_TARGET=t).splitlines() for t in supported}
    assert len(printed["scalar"]) == len(fastgelu.functions())
    assert len(set(printed["scalar"])) == len(printed["scalar"])
    for a, b in itertools.combinations(supported, 2):
        assert printed[a] == printed[b], (a, b)
