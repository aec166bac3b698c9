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
coefficient, each time solved anew for those that remain. Slopes are also kept near to right, for
backward multiplies them unrounded. --degrees: print the distances for several degrees instead.
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
ENOUGH = 64  # conditions this far away, in such units, are no conditions

# (form, is a slope) -> format -> where the near way ends, and the degree.
TABLES = {
    ("gelu", False): {"f16": (4, 5), "bf16": (4, 3)},
    ("gelu", True): {"f16": (4, 5), "bf16": (4, 4)},
    ("gelu_tanh", False): {"f16": (3.875, 5), "bf16": (4, 3)},
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
    """The ties between which all numbers round to the one that y rounds to."""
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
    return low, high


@functools.cache
def conditions(form, slope, fmt, far):
    """Arrays: t, P there, and how far P may be above or below it, in units of the noise."""
    rows = []
    tolerance = TOLERANCE[fmt.name] / NOISE
    for number in numbers(fmt, far):
        t = to_mp(number)
        p = small(form, slope, t)
        for sign in (-1, 1):
            if slope:
                y = p if sign < 0 else 1 - p
                low, high = (to_mp(v) for v in ties_about(fmt, y))
                low, high = (low - p, high - p) if sign < 0 else (1 - high - p, 1 - low - p)
                noise = NOISE * abs(p) + (NOISE / 2 if sign > 0 else 0)
            else:
                y = -t * p if sign < 0 else t - t * p
                low, high = (to_mp(v) for v in ties_about(fmt, y))
                if sign < 0:
                    low, high = -high / t, -low / t
                else:
                    low, high = 1 - high / t, 1 - low / t
                low, high = low - p, high - p
                # the last rounding is to a multiple of the smallest subnormal number too
                last = max(abs(y) * NOISE, mp.mpf(2) ** -149)
                noise = NOISE * abs(p) + last / t / 2
            rows.append((float(t), low / noise, high / noise, float(noise)))
        if slope:
            y = abs(p)
            rows.append((float(t), -tolerance, tolerance, NOISE * float(y)))
    values = {row[0]: None for row in rows}
    for t in values:
        values[t] = small(form, slope, mp.mpf(t))
    columns = [np.array([float(v) for v in column]) for column in zip(*rows)]
    return *columns, [values[row[0]] for row in rows]


def single(value):
    return float(np.float32(float(value)))


def segments(form, slope, far):
    """(low, high, centre) of each."""
    zero = zeros()[form] if slope else None
    width = mp.mpf(far) / (SEGMENTS - mp.mpf("0.5"))
    for k in range(SEGMENTS):
        low, high = max(0, (k - mp.mpf("0.5")) * width), (k + mp.mpf("0.5")) * width
        if k == 0:
            centre = 0.0
        elif zero and low <= zero <= high:
            centre = single(zero)
        else:
            down = abs(small(form, slope, low)) < abs(small(form, slope, high))
            centre = single(low + width / 4 if down else high - width / 4)
        yield float(low), float(high), centre


def fit_segment(form, slope, fmt, far, k, degree):
    """(distance, coefficients)"""
    low, high, centre = list(segments(form, slope, far))[k]
    t, least, most, noise, exact = conditions(form, slope, fmt, far)
    inside = (t >= low) & (t <= high)
    # the fit that is corrected: through Chebyshev's points, exactly enough
    middle, half = (mp.mpf(low) + high) / 2, (mp.mpf(high) - low) / 2
    points = [
        middle + half * mp.cos(mp.pi * (2 * i + 1) / (2 * degree + 2)) for i in range(degree + 1)
    ]
    matrix = mp.matrix(degree + 1)
    for i, point in enumerate(points):
        for j in range(degree + 1):
            matrix[i, j] = (point - centre) ** j
    solution = mp.lu_solve(matrix, mp.matrix([small(form, slope, p) for p in points]))
    start = [mp.mpf(c) for c in solution]
    at_zero = k == 0 and slope  # exactly 1/2: half of an odd subnormal dy is a tie
    if at_zero:
        start[0] = mp.mpf("0.5")
    where = np.flatnonzero(inside)
    where = where[np.minimum(-least[where], most[where]) < 4096]
    offset = np.array(
        [
            float((mp.polyval(start[::-1], mp.mpf(t[i]) - centre) - exact[i]) / noise[i])
            for i in where
        ]
    )
    d, unit = t[where] - centre, noise[where]
    least, most = least[where] - offset, most[where] - offset
    scale = max(abs(high - centre), abs(low - centre))
    size = NOISE * max(abs(float(small(form, slope, mp.mpf(v)))) for v in (low, (low + high) / 2))
    columns = np.stack([(d / scale) ** j * size / unit for j in range(degree + 1)], 1)
    units = [size / scale**j for j in range(degree + 1)]

    def solve(fixed, least, most):
        free = columns[:, fixed:]
        ones = np.ones((len(d), 1))
        upper = np.block([[free, ones], [-free, ones]])
        right = np.concatenate([most, -least])
        cost = np.zeros(free.shape[1] + 1)
        cost[-1] = -1
        bounds = [(None, None)] * free.shape[1] + [(None, ENOUGH)]
        found = linprog(cost, upper, right, bounds=bounds, method="highs")
        return (found.x[-1], found.x[:-1]) if found.status == 0 else (-np.inf, None)

    coefficients = []
    margin = None
    for j in range(degree + 1):
        if j == 0 and at_zero:
            value = 0.5
            coefficients.append(value)
            continue
        margin, x = solve(j, least, most)
        if x is None:
            return -np.inf, None
        wanted = start[j] + x[0] * mp.mpf(units[j])
        value = single(wanted)
        coefficients.append(value)
        moved = columns[:, j] * float((mp.mpf(value) - start[j]) / units[j])
        least, most = least - moved, most - moved
    margin = float(np.min(np.minimum(-least, most)))
    return margin, [centre, *coefficients]


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
                distances = " ".join(f"{distance:.2f}" for distance, _ in fits)
                print(f"{name} below {far}, degree {tried}: {distances}", file=sys.stderr)
                out[name] = {"far": float(far), "rows": [row for _, row in fits]}
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
