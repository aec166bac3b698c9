# SPDX-License-Identifier: BSD-3-Clause
"""Search the tables of the near way of float16 and bfloat16, and write search16_tables.json.

    python native/tools/search16_tables.py [--degrees] > native/tools/search16_tables.json

Needs mpmath, NumPy and SciPy. A row of a table is a centre m and the coefficients of
P(t) = c[0] + c[1] d + ..., d = t - m, on one of 8 segments of 0 <= t < far. P is what
algorithms16.h takes from 1/2 to 0: G(-t) for values, the slope at -t for slopes.

P need not be near G(-t): it is to lie, for every t of the format in the segment, where both
results, that of t and that of -t, are rounded correctly. These are linear conditions on the
coefficients. A linear program finds those that keep furthest away from the ends of the
intervals, in units of the rounding errors of float32; its solution is rounded coefficient by
coefficient, each time solved anew for those that remain. Then the results are computed as the
kernel does; while one is wrong, the same is tried about another centre. Slopes are also kept near
to right, for backward multiplies them unrounded. --degrees: print the distances, and how many are
wrong, for several degrees instead.
"""

import argparse
import functools
import json
import sys
from fractions import Fraction
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))

import numpy as np
from generate_coefficients16 import FORMATS, RATES, SEGMENTS, zeros
from mpmath import mp
from scipy.optimize import linprog

mp.dps = 60
NOISE = 2.0**-24  # what float32 arithmetic loses, relatively
ENOUGH = 64  # such units away from an end is as good as more
MOST_TRIES = 200

# (form, is a slope) -> format -> where the near way ends, and the degree.
TABLES = {
    ("gelu", False): {"f16": (4, 5), "bf16": (4, 4)},
    ("gelu", True): {"f16": (4, 5), "bf16": (4, 4)},
    ("gelu_tanh", False): {"f16": (3.875, 5), "bf16": (4, 4)},
    ("gelu_tanh", True): {"f16": (4, 5), "bf16": (3.9375, 4)},
    ("gelu_sigmoid", False): {"f16": (4, 5), "bf16": (4, 3)},
    ("gelu_sigmoid", True): {"f16": (4, 6), "bf16": (4, 5)},
    ("silu", False): {"f16": (4, 5), "bf16": (4, 3)},
    ("silu", True): {"f16": (4, 5), "bf16": (5, 4)},
}
# How far from right a slope may be, relatively.
TOLERANCE = {"f16": 2.0**-16.7, "bf16": 2.0**-13.7}


def small(form, slope, t):
    """G(-t), or the slope at -t."""
    if form == "gelu":
        tail = mp.erfc(t / mp.sqrt(2)) / 2
        return tail - t * mp.exp(-t * t / 2) / mp.sqrt(2 * mp.pi) if slope else tail
    a, b = RATES[form]
    e = mp.exp(-t * (a + b * t * t))
    if not slope:
        return e / (1 + e)
    return e * (1 + e - t * (a + 3 * b * t * t)) / (1 + e) ** 2


def to_mp(value):
    return mp.mpf(value.numerator) / value.denominator


def numbers(fmt, far):
    """The positive numbers of a format below far, as fractions."""
    bits, smallest = fmt.precision - 1, Fraction(2) ** (fmt.emin - fmt.precision + 1)
    for code in range(1, 1 << 15):
        field, fraction = code >> bits, code & ((1 << bits) - 1)
        significand = fraction + (1 << bits if field else 0)
        value = significand * smallest * Fraction(2) ** max(field - 1, 0)
        if value >= far:
            return
        yield value


def ties_about(fmt, y):
    """The ties between which all numbers round to the one that y rounds to, and that one."""
    e = max(int(mp.floor(mp.log(abs(y), 2))), fmt.emin)
    places = mp.ldexp(y, fmt.precision - 1 - e)
    n = int(mp.nint(places))
    half = Fraction(2) ** (e - fmt.precision)
    low, high = (2 * n - 1) * half, (2 * n + 1) * half
    if abs(n) == 1 << (fmt.precision - 1) and e > fmt.emin:  # a power of two: nearer on one side
        if n > 0:
            low += half / 2
        else:
            high -= half / 2
    return low, high, 2 * n * half


@functools.cache
def conditions(form, slope, fmt, far):
    """Arrays: x, how far P may be below and above P(|x|), in units of the noise, these units, and
    the result (NaN: a condition that the slope be near to right); and a list, P(|x|)."""
    rows = []
    tolerance = TOLERANCE[fmt.name] / NOISE
    for number in numbers(fmt, far):
        t = to_mp(number)
        p = small(form, slope, t)
        for sign in (-1, 1):
            if slope:
                y = p if sign < 0 else 1 - p
                low, high, result = (to_mp(v) for v in ties_about(fmt, y))
                low, high = (low - p, high - p) if sign < 0 else (1 - high - p, 1 - low - p)
                noise = NOISE * abs(p) + (NOISE / 2 if sign > 0 else 0)
            else:
                y = -t * p if sign < 0 else t - t * p
                low, high, result = (to_mp(v) for v in ties_about(fmt, y))
                if sign < 0:
                    low, high = -high / t, -low / t
                else:
                    low, high = 1 - high / t, 1 - low / t
                low, high = low - p, high - p
                noise = NOISE * (abs(p) + abs(y) / t / 2)
                # the last rounding is to a multiple of the smallest subnormal number too
                noise += mp.mpf(2) ** -150 / t
            rows.append((sign * t, low / noise, high / noise, noise, result, p))
        if slope:
            rows.append((t, -tolerance, tolerance, NOISE * abs(p), mp.nan, p))
    *columns, exact = zip(*rows)
    return *(np.array([float(v) for v in column]) for column in columns), exact


def fma(a, b, c):
    """Rounded once but for a rounding to 64 bits before."""
    return np.float32(np.longdouble(a) * np.longdouble(b) + np.longdouble(c))


def computed(slope, fmt, x, row):
    """The results at x as the kernel computes them, before they are rounded to the format."""
    x, (centre, *coefficients) = np.float32(x), (np.float32(v) for v in row)
    t = np.abs(x)
    u = t if slope else np.maximum(t, np.float32(fmt.least))
    d = u - centre
    p = coefficients[-1]
    for c in coefficients[-2::-1]:
        p = fma(d, p, c)
    if slope:
        return np.where(x < 0, p, np.float32(1) - p)
    return fma(-t, p, np.where(x < 0, np.float32(0), x))


def rounded_to(fmt, y):
    if fmt.name == "f16":
        return y.astype(np.float16).astype(float)
    bits = y.view(np.uint32)
    bits = bits + (0x7FFF + (bits >> 16 & 1)).astype(np.uint32)
    return (bits & np.uint32(0xFFFF0000)).view(np.float32).astype(float)


def single(value):
    return float(np.float32(float(value)))


@functools.cache
def segments(form, slope, far):
    """(low, high, centre) of each."""
    zero = zeros()[form] if slope else None
    width = mp.mpf(far) / (SEGMENTS - mp.mpf("0.5"))
    found = []
    for k in range(SEGMENTS):
        low, high = max(0, (k - mp.mpf("0.5")) * width), (k + mp.mpf("0.5")) * width
        if k == 0:
            centre = 0.0
        elif zero and low <= zero <= high:
            centre = single(zero)
        else:
            down = abs(small(form, slope, low)) < abs(small(form, slope, high))
            centre = single(low + width / 4 if down else high - width / 4)
        found.append((float(low), float(high), centre))
    return found


def fit_segment(form, slope, fmt, far, k, degree):
    """(distance, row, how many results are wrong), of the first centre without a wrong one."""
    low, high, centre = segments(form, slope, far)[k]
    x, *_, results, _ = conditions(form, slope, fmt, far)
    given = ~np.isnan(results) & (np.abs(x) >= low) & (np.abs(x) <= high)
    x, results = x[given], results[given]
    random, best = np.random.default_rng(1), None
    for _ in range(MOST_TRIES):
        distance, row = fit_about(form, slope, fmt, far, k, degree, centre)
        wrong = len(x)
        if row:
            wrong = int(np.sum(rounded_to(fmt, computed(slope, fmt, x, row)) != results))
            if k == 0 and slope and computed(slope, fmt, np.zeros(1), row)[0] != 0.5:
                wrong += 1
        if best is None or wrong < best[2]:
            best = distance, row, wrong
        if wrong == 0 or distance < -9:
            break
        centre = single(low + (high - low) * random.random())
    return best


@functools.cache
def prepared(form, slope, fmt, far, k, degree):
    """About the middle of a segment: a fit, and for the conditions that matter t, how far the fit
    may move, and the unit of that."""
    low, high, _ = segments(form, slope, far)[k]
    x, least, most, noise, _, exact = conditions(form, slope, fmt, far)
    t = np.abs(x)
    slack = np.minimum(-least, most)
    # the first segment has most numbers: those that decide nothing are left out, and seen after
    near_ends = (slack < 512) | (k > 0) | ((fmt.name == "bf16") & (t > 2.0**-16))
    where = np.flatnonzero((t >= low) & (t <= high) & near_ends)
    middle, half = (mp.mpf(low) + high) / 2, (mp.mpf(high) - low) / 2
    count = degree + 7  # so good that it stands for the function
    points = [middle + half * mp.cos(mp.pi * (2 * i + 1) / (2 * count)) for i in range(count)]
    matrix = mp.matrix(count)
    for i, point in enumerate(points):
        for j in range(count):
            matrix[i, j] = (point - middle) ** j
    fit = list(mp.lu_solve(matrix, mp.matrix([small(form, slope, p) for p in points])))
    u = t[where]
    if not slope:
        u = np.maximum(u, float(fmt.least))
    # what the clamped argument and the fit itself have lost
    off = [
        (mp.polyval(fit[::-1], mp.mpf(v) - middle) - exact[i]) / noise[i] for v, i in zip(u, where)
    ]
    off = np.array([float(v) for v in off])
    least, most, noise = least[where] - off, most[where] - off, noise[where]
    if k == 0 and slope:  # at 0 it rounds to 1/2: half of an odd subnormal dy is a tie
        u, noise = np.append(u, 0), np.append(noise, NOISE / 64)
        least, most = np.append(least, -16), np.append(most, 32)
    return middle, fit, u, least, most, noise


def fit_about(form, slope, fmt, far, k, degree, centre):
    """(distance, row)"""
    low, high, _ = segments(form, slope, far)[k]
    middle, fit, t, least, most, noise = prepared(form, slope, fmt, far, k, degree)
    start = [  # the same about the centre
        sum(fit[i] * mp.binomial(i, j) * (centre - middle) ** (i - j) for i in range(j, len(fit)))
        for j in range(len(fit))
    ]
    d = t - centre
    scale = max(abs(high - centre), abs(low - centre))
    size = NOISE * max(abs(float(small(form, slope, mp.mpf(v)))) for v in (low, (low + high) / 2))
    columns = np.stack([(d / scale) ** j * size / noise for j in range(len(start))], 1)
    units = [size / scale**j for j in range(len(start))]
    for j in range(degree + 1, len(start)):  # terms that are left out
        least, most = (v + columns[:, j] * float(start[j] / units[j]) for v in (least, most))

    def solve(first):
        free = columns[:, first : degree + 1]
        ones = np.ones((len(d), 1))
        upper = np.block([[free, ones], [-free, ones]])
        right = np.concatenate([most, -least])
        cost = np.zeros(free.shape[1] + 1)
        cost[-1] = -1
        bounds = [(None, None)] * free.shape[1] + [(None, ENOUGH)]
        found = linprog(cost, upper, right, bounds=bounds, method="highs")
        return found.x[0] if found.status == 0 else None

    coefficients = []
    for j in range(degree + 1):
        change = solve(j)
        if change is None:
            return -np.inf, None
        value = single(start[j] + change * mp.mpf(units[j]))
        coefficients.append(value)
        moved = columns[:, j] * float((mp.mpf(value) - start[j]) / units[j])
        least, most = least - moved, most - moved
    return float(np.min(np.minimum(-least, most))), [centre, *coefficients]


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--degrees", action="store_true", help="compare degrees")
    args = parser.parse_args()
    out = {}
    for fmt in FORMATS:
        for (form, slope), choices in TABLES.items():
            name = f"{form}_grad_{fmt.name}" if slope else f"{form}_{fmt.name}"
            far, degree = choices[fmt.name]
            for tried in (degree - 1, degree, degree + 1) if args.degrees else (degree,):
                fits = [fit_segment(form, slope, fmt, far, k, tried) for k in range(SEGMENTS)]
                distances = " ".join(f"{fit[0]:.2f} ({fit[2]})" for fit in fits)
                print(f"{name} < {far}, degree {tried}: {distances}", file=sys.stderr, flush=True)
                out[name] = {"far": float(far), "rows": [fit[1] for fit in fits]}
    if not args.degrees:
        print(render(out))


def render(out):
    """JSON with a row a line."""
    text = []
    for name, table in out.items():
        rows = [json.dumps([float(v).hex() for v in row]) for row in table["rows"]]
        rows = ",\n  ".join(rows)
        text.append(f'"{name}": {{"far": {table["far"]}, "rows": [\n  {rows}]}}')
    return "{\n" + ",\n".join(text) + "\n}"


if __name__ == "__main__":
    main()
