# SPDX-License-Identifier: BSD-3-Clause
"""Write the constants of the second derivatives (--check: compare, write nothing).

    python native/tools/generate_coefficients_grad2.py [--check]

Needs mpmath. Every number is computed to 60 digits and rounded to float64 once, or to a sum of two
float64. native/src/algorithms_grad2.h says what each is for.
"""

import argparse
import itertools
import sys
from pathlib import Path

from mpmath import mp

mp.dps = 60
ROOT = Path(__file__).resolve().parents[2]
OUTPUTS = {
    "library": ROOT / "native/src/coefficients_grad2.h",
    "tests": ROOT / "native/tests/grad2_series.h",
}

A = 2 * mp.sqrt(2 / mp.pi)
CUBIC = mp.mpf("0.044715")
C = mp.mpf("1.702")
EXP_TERMS = 15  # of exp(g), |g| <= ln2/2: the first that is left out is below 2^-64 g
LEAST = -1077  # results below 2^LEAST are far enough from the smallest number to be -0
SERIES_TERMS = 16  # the nearest singularity is 2.1 from a zero: 2^-55 of it at 1/8

# w(t) = rate (t + cubic t^3) of the forms x s(w(x))
GATES = {"gelu_tanh": (A, CUBIC), "gelu_sigmoid": (C, mp.mpf(0)), "silu": (mp.mpf(1), mp.mpf(0))}


def gated(rate, cubic):
    """The second derivative of x s(w(x)) at t."""

    def f(t):
        w, dw, d2w = (
            rate * (t + cubic * t**3),
            rate * (1 + 3 * cubic * t**2),
            6 * rate * cubic * t,
        )
        gate = 1 / (1 + mp.exp(w))
        return gate * (1 - gate) * (2 * dw + t * d2w - t * dw**2 * (1 - 2 * gate))

    return f


def functions():
    """The second derivative of each form."""
    exact = {"gelu": lambda t: mp.npdf(t) * (2 - t * t)}
    return exact | {form: gated(*gate) for form, gate in GATES.items()}


def only_zero(form):
    """The zero above 0, after a look for others up to where the results vanish."""
    f = functions()[form]
    signs = [f(mp.mpf(i) / 64) > 0 for i in range(64 * 40)]
    if sum(a != b for a, b in itertools.pairwise(signs)) != 1:
        raise ArithmeticError(f"{form}: not one zero")
    return mp.findroot(f, mp.mpf(signs.index(False)) / 64, tol=mp.mpf(10) ** -100)


def limit(form):
    """Where the magnitude reaches 2^LEAST."""
    f = functions()[form]
    low, high = mp.mpf(3), mp.mpf(2000)
    while high - low > mp.mpf(2) ** -20:
        middle = (low + high) / 2
        low, high = (low, middle) if abs(f(middle)) < mp.mpf(2) ** LEAST else (middle, high)
    return high


def two(value):
    """value as a sum of two float64."""
    high = float(value)
    return high, float(value - mp.mpf(high))


def gate_constants(form):
    """name -> coefficients, lowest first, of one form x s(w(x))."""
    rate, k = GATES[form]
    t0 = only_zero(form)
    w0 = rate * (t0 + k * t0**3)
    e0 = mp.exp(-w0)
    h0 = mp.tanh(w0 / 2)
    share = 2 * e0 / (1 + e0)
    a = h0 * rate
    distance = [
        a * (1 + 6 * k * t0**2 + 9 * k**2 * t0**4) - 12 * k * t0,
        a * (6 * k * t0 + 9 * k**2 * t0**3) - 12 * k,
        a * (6 * k + 9 * k**2 * t0**2),
        a * 9 * k**2 * t0,
        a * 9 * k**2,
    ]
    lists = {
        "zero": [t0],
        "exponent": [rate * (1 + k * t0**2), rate * k * t0, rate * k],
        "distance": distance,
        "change": [share * rate, share * rate * 6 * k, share * rate * 9 * k**2],
        "e0": [e0],
        "scale": [rate * e0],
    }
    if k == 0:
        lists = {name: values[:1] for name, values in lists.items()}
    if min(min(values) for values in lists.values()) <= 0:
        raise ArithmeticError(f"{form}: terms of both signs, which cancel")
    return lists


def literal(value):
    return float(value).hex()


def array(name, values, kind="fg_f64"):
    """A C array of numbers, or of pairs."""
    pairs = isinstance(values[0], tuple)
    lines = [f"static const {kind} {name}[]{'[2]' if pairs else ''} = {{"]
    for value in values:
        text = ", ".join(map(literal, value)) if pairs else literal(value)
        lines.append(f"    {{{text}}}," if pairs else f"    {text},")
    return [*lines, "};"]


def down(value, bits):
    """value cut to so many bits."""
    with mp.workprec(bits):
        return +value


def library():
    ln2 = mp.log(2)
    ln2_hi = down(ln2, 42)  # times an integer below 2^11 it is exact
    scalars = {
        "log2e": 1 / ln2,
        "ln2_hi": ln2_hi,
        "ln2_lo": ln2 - ln2_hi,
        # a number n is carried as n + shifter, whose low bits are those of n + 1023
        "shifter": mp.mpf(3) * 2**51 + 1023,
        "split": mp.mpf(3) * 2**51 + 1023 - 900,
        "one": 1,
        "minus_one": -1,
        "two": 2,
        "half": 0.5,
        "tiny": mp.mpf(2) ** -100,
        "minus_half": -0.5,
        # to 16 bits: splits off what float16 and bfloat16 keep of a normal number; their smallest
        # one; and what rounds to a multiple of the smallest subnormal one
        "splitter_f16": 2**42 + 1,
        "splitter_bf16": 2**45 + 1,
        "normal_f16": mp.mpf(2) ** -14,
        "normal_bf16": mp.mpf(2) ** -126,
        "rounder_f16": 1.5 * mp.mpf(2) ** (-24 + 52),
        "rounder_bf16": 1.5 * mp.mpf(2) ** (-133 + 52),
    }
    lines = [
        "/* SPDX-License-Identifier: BSD-3-Clause */",
        "/* coefficients_grad2.h: constants of algorithms_grad2.h.",
        " * GENERATED by native/tools/generate_coefficients_grad2.py: do not edit. */",
        "/* clang-format off */",
    ]
    lines += [f"static const fg_f64 fg_grad2_{n} = {literal(v)};" for n, v in scalars.items()]
    lines.append("static const fg_f64 fg_grad2_minus_zero = -0x0.0p+0;")
    inverse = [1 / mp.factorial(k) for k in range(3, EXP_TERMS)]
    lines += array("fg_grad2_exp", inverse)
    for form in functions():
        lines.append(f"static const fg_f64 fg_grad2_{form}_limit = {literal(limit(form))};")
    lines += array("fg_grad2_gelu_scale", [two(1 / mp.sqrt(2 * mp.pi))])
    for form in GATES:
        for name, values in gate_constants(form).items():
            lines += array(f"fg_grad2_{form}_{name}", [two(v) for v in values])
    return lines


def tests():
    lines = [
        "/* SPDX-License-Identifier: BSD-3-Clause */",
        "/* grad2_series.h: second derivative at +-t = d (c[0] + c[1] d + ...), d = t - zero.",
        " * GENERATED by native/tools/generate_coefficients_grad2.py: do not edit. */",
        "/* clang-format off */",
    ]
    for form, f in functions().items():
        zero = only_zero(form)
        high, low = two(zero)
        series = mp.taylor(f, zero, SERIES_TERMS)[1:]
        lines.append(f"static const double {form}_grad2_zero_hi = {literal(high)};")
        lines.append(f"static const double {form}_grad2_zero_lo = {literal(low)};")
        lines += array(f"{form}_grad2_series", series, "double")
    return lines


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--check", action="store_true", help="fail if a file would change")
    args = parser.parse_args()
    for name, lines in (("library", library()), ("tests", tests())):
        text = "\n".join(lines) + "\n"
        path = OUTPUTS[name]
        if not args.check:
            path.write_text(text)
        elif not path.exists() or path.read_text() != text:
            sys.exit(f"out of date: {path.relative_to(ROOT)}; run this without --check")


if __name__ == "__main__":
    main()
