# SPDX-License-Identifier: BSD-3-Clause
"""The double reference that judges the float kernels in C (native/tests/reference.c), against
mpmath: every variant that this machine runs, every piece of every form."""

import ctypes
import math
import os
import shlex
import subprocess
from pathlib import Path

import numpy as np
import oracle
import pytest

DIRECTORY = Path(__file__).parents[1] / "native/tests"
FLAGS = "-std=c11 -O3 -ffp-contract=fast -fno-math-errno -fno-trapping-math -fPIC -shared"
TOLERANCE = 2.0**-45
TINY = 2.0**-400  # below it, results are only known to be so small
# the |x| that stands for all beyond it, by form
LIMITS = {"gelu": 28.0, "gelu_tanh": 17.0, "gelu_sigmoid": 235.0, "silu": 400.0}
SERIES_RADIUS = 2.0**-4


@pytest.fixture(scope="module")
def library(tmp_path_factory):
    """reference.c, compiled for this test with the flags of its Makefile."""
    path = tmp_path_factory.mktemp("native") / "reference.so"
    compiler = shlex.split(os.environ.get("CC", "cc"))
    command = [*compiler, *FLAGS.split(), str(DIRECTORY / "reference.c"), "-o", str(path), "-lm"]
    subprocess.run(command, check=True)
    loaded = ctypes.CDLL(str(path))
    loaded.reference_variant_name.restype = ctypes.c_char_p
    loaded.reference_judge.restype = ctypes.c_size_t
    loaded.reference_judge.argtypes = [
        ctypes.c_size_t,
        ctypes.c_void_p,
        ctypes.c_void_p,
        ctypes.c_double,
    ]
    loaded.reference_block.argtypes = [
        ctypes.c_int,
        ctypes.c_size_t,
        *[ctypes.c_void_p] * 3,
    ]
    loaded.reference_second.argtypes = [
        ctypes.c_int,
        ctypes.c_size_t,
        *[ctypes.c_void_p] * 2,
    ]
    return loaded


def variants(library):
    """Chooses one variant after the other, and yields its name."""
    for i in range(library.reference_variants()):
        library.reference_use(i)
        yield library.reference_variant_name(i).decode()


def evaluate(library, form, x):
    """(values, slopes, second derivatives) of the C reference, in blocks of different lengths."""
    value, slope, second = np.empty((3, x.size))
    start, length = 0, 1
    while start < x.size:
        n = min(length, x.size - start)
        library.reference_block(
            oracle.FORMS.index(form),
            n,
            x[start:].ctypes.data,
            value[start:].ctypes.data,
            slope[start:].ctypes.data,
        )
        library.reference_second(
            oracle.FORMS.index(form), n, x[start:].ctypes.data, second[start:].ctypes.data
        )
        start, length = start + n, length % 2048 + 89
    return value, slope, second


def steepness(form, t):
    """w, where exp(-w) is what the form needs at t."""
    if form == "gelu":
        return t * t / 2
    return float(oracle._steepness(form, oracle._mp.mpf(t))[0])


def where_the_exponent_changes(form):
    """t where w is between two multiples of ln 2, or at one."""
    points = []
    for k in [*range(1, 24), *range(24, 1154, 40)]:
        low, high = 0.0, LIMITS[form]
        for _ in range(40):
            middle = (low + high) / 2
            if steepness(form, middle) < k * math.log(2) / 2:
                low = middle
            else:
                high = middle
        points.append(low)
    return points


def neighbours(points, count):
    """The floats next to each point, on both sides."""
    bits = np.asarray(points, np.float32).view(np.int32)
    return (bits[:, None] + np.arange(-count, count + 1)).ravel().astype(np.int32).view(np.float32)


def inputs(form, rng):
    """The points for a form: both signs of each, shuffled."""
    zero, limit = -oracle.slope_zero(form), LIMITS[form]
    second_zero = -oracle.second_zero(form)
    edges = [
        zero,
        zero - SERIES_RADIUS,
        zero + SERIES_RADIUS,
        second_zero,
        second_zero - SERIES_RADIUS,
        second_zero + SERIES_RADIUS,
        limit,
        *where_the_exponent_changes(form),
    ]
    binades = np.arange(1, 255, dtype=np.int32) << 23
    t = [
        neighbours(edges, 3),
        neighbours(binades.view(np.float32), 1),
        rng.integers(0, 255 << 23, 500).astype(np.int32).view(np.float32),  # any
        rng.uniform(0, limit, 800).astype(np.float32),
        np.exp2(rng.uniform(-30, 5, 800)).astype(np.float32),
        (zero + SERIES_RADIUS * rng.uniform(-1.1, 1.1, 300)).astype(np.float32),
        # at all distances from the zero
        (zero + rng.choice([-1, 1], 300) * np.exp2(rng.uniform(-24, -3, 300))).astype(np.float32),
        (second_zero + SERIES_RADIUS * rng.uniform(-1.1, 1.1, 300)).astype(np.float32),
    ]
    t = np.abs(np.concatenate(t))
    return rng.permutation(np.concatenate([t, -t]))


@pytest.mark.parametrize("form", oracle.FORMS)
def test_against_mpmath(library, form, rng):
    x = inputs(form, rng)
    results = {name: evaluate(library, form, x) for name in variants(library)}
    worst = {}
    for i, point in enumerate(x.tolist()):
        for kind, function in enumerate((form, form + "_grad", form + "_grad2")):
            want = oracle.exact(function, point)
            for name, got in results.items():
                got = got[kind][i]
                if abs(want) < TINY:
                    assert abs(got) < TINY and math.copysign(1, got) == math.copysign(1, want), (
                        function, name, point.hex())  # fmt: skip
                    continue
                error = float(abs(got / want - 1))
                if error >= worst.get((name, function), (0,))[0]:
                    worst[name, function] = error, point.hex()
    for (name, function), (error, point) in worst.items():
        print(f"{function} {name}: 2^{math.log2(error):.1f} at {point}")
    assert len(worst) == 3 * len(results)
    for where, (error, point) in worst.items():
        assert error < TOLERANCE, f"{where} at {point}: 2^{math.log2(error):.1f}"


def assert_same_encodings(rows, wants, name):
    for row, want in zip(rows, wants, strict=True):
        assert (oracle.bits_of(row) == oracle.bits_of(np.float64(want))).all(), (name, want)


@pytest.mark.parametrize("form", oracle.FORMS)
def test_special_values(library, form):
    x = np.array([0.0, -0.0, np.inf, -np.inf, np.nan], np.float32)
    for name in variants(library):
        value, slope, second = np.reshape(evaluate(library, form, np.repeat(x, 40)), (3, 5, 40))
        assert_same_encodings(second[2:4], [-0.0, -0.0], name)
        assert np.isnan(second[4]).all(), name
        assert_same_encodings(value[:4], [0.0, -0.0, np.inf, -0.0], name)
        assert_same_encodings(slope[2:4], [1.0, -0.0], name)
        assert (abs(2 * slope[:2] - 1) < TOLERANCE).all(), name
        assert np.isnan(value[4]).all() and np.isnan(slope[4]).all(), name


def test_judging(library, rng):
    """The errors in ULP, against the oracle's."""
    want = np.ldexp(rng.uniform(-2, 2, 4000), rng.integers(-155, 129, 4000))
    want[:8] = [0.0, -0.0, np.inf, -np.inf, np.nan, 1.0, -(2.0**-126), 2.0**-149]
    with np.errstate(over="ignore", under="ignore"):
        got = want.astype(np.float32)
        got = (got.view(np.int32) + rng.integers(-3, 4, got.size)).astype(np.int32).view(np.float32)
        got[:8] = want[:8]
    got[rng.integers(8, 4000, 60)] *= -1
    got[rng.integers(8, 4000, 60)] = np.inf
    got[rng.integers(8, 4000, 60)] = np.nan
    got[rng.integers(8, 4000, 60)] = 0
    got[4] = np.nan

    def above(g, w, ulp):
        one_got, one_want = np.array([g]), np.array([w])
        return library.reference_judge(1, one_got.ctypes.data, one_want.ctypes.data, ulp)

    counts = set()
    for name in variants(library):
        for g, w in zip(got, want):
            exact = w.item() if w == 0 or not np.isfinite(w) else oracle._mp.mpf(w.item())
            error = oracle.ulp_error(g, exact, "f32")
            if np.signbit(g) != np.signbit(w) and not np.isnan(w):
                error = math.inf
            if np.isinf(g) and np.isfinite(w) and abs(w) < 1.99999997 * 2.0**127:
                error = math.inf
            where = name, float(g), float(w), error
            if abs(w) > 1.99999998 * 2.0**127:
                assert above(g, w, 0) == (not (np.isinf(g) and g * w > 0)) or np.isnan(w), where
            elif math.isinf(error):
                assert above(g, w, 1e300) == 1, where
            else:
                assert above(g, w, error * (1 + 1e-12)) == 0, where
                assert error == 0 or above(g, w, error * (1 - 1e-12)) == 1, where
        counts.add(library.reference_judge(got.size, got.ctypes.data, want.ctypes.data, 0.7))
    assert len(counts) == 1 and 1000 < counts.pop() < 4000
