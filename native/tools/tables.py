# SPDX-License-Identifier: BSD-3-Clause
"""Fit the tables of the near way: polynomials on equal segments of 0 <= t < far.

A row belongs to one segment: a centre m and the coefficients of f(t) = c[0] + c[1] d + ..., where
d = t - m. f is what algorithms.h takes from x or from 1: t G(-t) for values, the slope at -t for
slopes. The centre is near the end of the segment where |f| is smaller, so that most terms have one
sign, or at it beside the segment with the zero of f, and there it is the zero. It is moved a
little to where f(m) is a number of the format but for a small part of an ULP.
"""

import struct

from mpmath import mp


def rounded(value, bits):
    with mp.workprec(bits):
        return +value


def solve_least_squares(matrix, right):
    """Through the normal equations: 60 digits leave room for their condition."""
    transposed = matrix.T
    return mp.lu_solve(transposed * matrix, transposed * right)


# A float64 in the table may hold a second coefficient in so many low bits, as its own upper bits:
# sign, exponent, and 16 bits of the significand.
SECOND = 28


def upper_bits(value, count):
    """The upper bits of value as a float64, rounded, as an integer."""
    lost = 64 - count
    return (struct.unpack("<Q", struct.pack("<d", float(value)))[0] + (1 << (lost - 1))) >> lost


def from_bits(bits):
    return mp.mpf(struct.unpack("<d", struct.pack("<Q", bits))[0])


def with_second(value, second):
    """The float64 nearest to value of those with these low bits."""
    first = upper_bits(value, 64 - SECOND)
    near = (from_bits(first + i << SECOND | second) for i in (-1, 0, 1))
    return min(near, key=lambda v: abs(v - value))


def fit_row(f, low, high, centre, start, degree, bits):
    """The coefficients, start first, each rounded so that those after it make up for that.

    In float32 they are rounded from the first on. In float64, where the segments are narrow and
    high coefficients count little, from the last on: that is in the low bits of the one before.
    """
    count = 2 * (degree + 2)
    middle, half = (low + high) / 2, (high - low) / 2
    points = [middle + half * mp.cos(mp.pi * (2 * i + 1) / (2 * count)) for i in range(count)]
    points = [(t - centre, f(t)) for t in points]

    def solution(known):
        """The other coefficients, by their powers."""
        unknown = [power for power in range(degree + 1) if power not in known]
        matrix, right = mp.matrix(count, len(unknown)), mp.matrix(count, 1)
        for i, (d, value) in enumerate(points):
            weight = 1 / max(abs(value), mp.mpf("1e-6"))
            right[i] = (value - sum(c * d**power for power, c in known.items())) * weight
            for j, power in enumerate(unknown):
                matrix[i, j] = d**power * weight
        return dict(zip(unknown, solve_least_squares(matrix, right)))

    known = {0: start}
    if bits == 24:
        for power in range(1, degree + 1):
            known[power] = rounded(solution(known)[power], bits)
    else:
        second = upper_bits(solution(known)[degree], SECOND)
        known[degree] = from_bits(second << (64 - SECOND))
        known[degree - 1] = with_second(solution(known)[degree - 1], second)
        known |= {power: rounded(c, bits) for power, c in solution(known).items()}
    return [known[power] for power in range(degree + 1)]


def centre_near(f, end, reach, bits, tries):
    """The number of the format near `end` at which f is nearest to one."""
    end = rounded(end, bits)

    def distance(m):
        value = f(m)
        return abs(rounded(value, bits) / value - 1)

    step = reach / tries
    return min((rounded(end + i * step, bits) for i in range(tries)), key=distance)


def table(f, zero, far, segments, degree, bits):
    """(number of segments per unit, rows): a row is the centre and the coefficients."""
    width = mp.mpf(far) / (segments - mp.mpf("0.5"))
    if zero and bits > 24:  # a little wider, so that the zero is in the middle of its segment
        width = zero / mp.floor(zero / width)
    rows = []
    for k in range(segments):
        low, high = max(0, (k - mp.mpf("0.5")) * width), (k + mp.mpf("0.5")) * width
        if k == 0:
            centre = mp.mpf(0)
        elif zero and low <= zero <= high:
            centre = rounded(zero, bits)
        else:
            low_end = abs(f(low)) < abs(f(high))
            end, inward = (low, width) if low_end else (high, -width)
            if not zero or abs(end - zero) > width:
                end += inward / 4
            reach = inward / 50
            centre = centre_near(f, end, reach, bits, 400 if bits == 24 else 30)
        start = rounded(f(centre), bits)
        rows.append([centre, *fit_row(f, low, high, centre, start, degree, bits)])
    return 1 / width, rows
