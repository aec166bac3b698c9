# SPDX-License-Identifier: BSD-3-Clause
"""Minimax fits in arbitrary precision: weighted rational Remez exchange on an interval."""

from mpmath import mp


def _horner(c, x):
    s = mp.mpf(0)
    for a in reversed(c):
        s = s * x + a
    return s


class Fit:
    """N(x)/D(x) with D(0) = 1, and the largest weighted error met on a dense grid."""

    def __init__(self, num, den, error):
        self.num, self.den, self.error = num, den, error

    def __call__(self, x):
        return _horner(self.num, x) / _horner(self.den, x)


def grid(a, b, n, pole):
    """Chebyshev points of v = x/(x+pole), dense near a when pole is small; linear if None."""
    a, b = mp.mpf(a), mp.mpf(b)
    if pole is None:
        return [(a + b) / 2 - (b - a) / 2 * mp.cos(mp.pi * k / (n - 1)) for k in range(n)]
    va, vb = a / (a + pole), b / (b + pole)
    pts = []
    for k in range(n):
        v = (va + vb) / 2 - (vb - va) / 2 * mp.cos(mp.pi * k / (n - 1))
        pts.append(pole * v / (1 - v))
    return pts


def _interpolate(xs, fx, nodes, p, q, scale):
    """The rational of degree p over q through p + q + 1 of the points."""
    m = p + q + 1
    A, rhs = mp.matrix(m, m), mp.matrix(m, 1)
    for row, i in enumerate(nodes):
        for k in range(p + 1):
            A[row, k] = xs[i] ** k / scale[k]
        for k in range(1, q + 1):
            A[row, p + k] = -fx[i] * xs[i] ** k / scale[k]
        rhs[row] = fx[i]
    sol = mp.lu_solve(A, rhs)
    return _unscale(sol, p, q, scale)


def _unscale(sol, p, q, scale):
    num = [sol[k] / scale[k] for k in range(p + 1)]
    return num, [mp.mpf(1)] + [sol[p + k] / scale[k] for k in range(1, q + 1)]


def _levelled(xs, fx, wx, ref, num, den, scale, level):
    """The rational whose error alternates with one height over ref; Newton's method."""
    p, q = len(num) - 1, len(den) - 1
    m = p + q + 2
    for _ in range(1 if q == 0 else 12):
        A, rhs = mp.matrix(m, m), mp.matrix(m, 1)
        for row, i in enumerate(ref):
            sign = (-1) ** row
            target = fx[i] + sign * level * wx[i]
            for k in range(p + 1):
                A[row, k] = xs[i] ** k / scale[k]
            for k in range(1, q + 1):
                A[row, p + k] = -target * xs[i] ** k / scale[k]
            d = _horner(den, xs[i])
            A[row, m - 1] = -sign * wx[i] * d
            # linearised about (den, level): the unknowns are the new coefficients and level
            rhs[row] = target - sign * wx[i] * level * d
        sol = mp.lu_solve(A, rhs)
        num, den = _unscale(sol, p, q, scale)
        old, level = level, sol[m - 1]
        if abs(level - old) <= abs(level) * mp.mpf("1e-6"):
            break
    return num, den, level


def remez(f, weight, a, b, p, q=0, pole=None, dense=24, rounds=40, tol=0.02):
    """Fit f on [a, b] by a rational of degree p over q, minimising max |N/D - f| / weight.

    pole maps the points (see grid). Raises ArithmeticError where the exchange fails.
    """
    m = p + q + 2
    count = dense * m + 1
    xs = grid(a, b, count, pole)
    fx = [f(x) for x in xs]
    wx = [weight(x, y) for x, y in zip(xs, fx)]
    scale = [max(abs(xs[0]), abs(xs[-1])) ** k for k in range(max(p, q) + 1)]
    nodes = [round((k + 0.5) * (count - 1) / (m - 1)) for k in range(m - 1)]
    num, den = _interpolate(xs, fx, nodes, p, q, scale)
    level = mp.mpf(0)
    for step in range(rounds):
        err = []
        for x, y, w in zip(xs, fx, wx):
            d = _horner(den, x)
            if d <= 0:
                raise ArithmeticError(f"pole in [{a}, {b}] for degree {p}/{q} in round {step}")
            err.append((_horner(num, x) / d - y) / w)
        worst = max(abs(e) for e in err)
        if step and worst <= abs(level) * (1 + tol):
            return Fit(num, den, worst)
        # one extremum for every run of equal sign, then the best m consecutive ones
        runs, start = [], 0
        for i in range(1, count + 1):
            if i == count or (err[i] > 0) != (err[start] > 0):
                runs.append(max(range(start, i), key=lambda j: abs(err[j])))
                start = i
        if len(runs) < m:
            raise ArithmeticError(f"{len(runs)} of {m} alternations for degree {p}/{q}")
        while len(runs) > m:
            runs.pop(0 if abs(err[runs[0]]) < abs(err[runs[-1]]) else -1)
        if not step:
            level = -sum((-1) ** k * err[i] for k, i in enumerate(runs)) / m
        num, den, level = _levelled(xs, fx, wx, runs, num, den, scale, level)
    raise ArithmeticError(f"no convergence for degree {p}/{q}: {mp.nstr(worst, 3)}")
