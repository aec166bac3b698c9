# SPDX-License-Identifier: BSD-3-Clause
"""Fit the tables of the near way: polynomials on equal segments of 0 <= t < far.

A row belongs to one segment: a centre m and the coefficients of f(t) = c[0] + c[1] d + ..., where
d = t - m. f is what algorithms.h takes from x or from 1: t G(-t) for values, the slope at -t for
slopes. The centre is near the end of the segment where |f| is smaller, so that most terms have one
sign, or at it beside the segment with the zero of f, and there it is the zero. It is moved a
little to where f(m) is a number of the format but for a small part of an ULP.
"""

from mpmath import mp


def rounded(value, bits):
    with mp.workprec(bits):
        return +value


def solve_least_squares(matrix, right):
    """Through the normal equations: 60 digits leave room for their condition."""
    transposed = matrix.T
    return mp.lu_solve(transposed * matrix, transposed * right)


def fit_row(f, low, high, centre, start, degree, bits):
    """The coefficients, start first, rounded one by one: each makes up for those before."""
    count = 2 * (degree + 2)
    middle, half = (low + high) / 2, (high - low) / 2
    points = [middle + half * mp.cos(mp.pi * (2 * i + 1) / (2 * count)) for i in range(count)]
    points = [(t - centre, f(t)) for t in points]
    row = [start]
    for known in range(1, degree + 1):
        unknown = degree + 1 - known
        matrix, right = mp.matrix(count, unknown), mp.matrix(count, 1)
        for i, (d, value) in enumerate(points):
            weight = 1 / max(abs(value), mp.mpf("1e-6"))
            right[i] = (value - mp.polyval(row[::-1], d)) * weight
            term = d**known * weight
            for j in range(unknown):
                matrix[i, j] = term
                term *= d
        solution = solve_least_squares(matrix, right)
        if bits > 24:  # the segments are so narrow that one solution does
            return row + [rounded(v, bits) for v in solution]
        row.append(rounded(solution[0], bits))
    return row


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
