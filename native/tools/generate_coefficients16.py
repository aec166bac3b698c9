# SPDX-License-Identifier: BSD-3-Clause
"""Fit the coefficients of the float16 and bfloat16 kernels, and write them for C and Python:
native/src/coefficients16.h and fastgelu/_coefficients16.py.

    python native/tools/generate_coefficients16.py [--check | --fits-only]

Needs mpmath. Each fit is computed to 40 digits and rounded once to float32. Then last places are
moved as search16_places.json says, by numbers that native/tools/search16.c found: with these, every
one of the 65,536 results is correctly rounded. The tables of the near way are those that
search16_tables.py has found. --check: compare, write nothing.
"""

import argparse
import contextlib
import json
import math
import struct
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))

from minimax import remez
from mpmath import mp

mp.dps = 40
ROOT = Path(__file__).resolve().parents[2]
OUTPUT = ROOT / "native/src/coefficients16.h"
OUTPUT_PYTHON = ROOT / "fastgelu/_coefficients16.py"
PLACES = Path(__file__).with_name("search16_places.json")
NEAR_WAY = Path(__file__).with_name("search16_tables.json")
SEGMENTS = 8

LOG2E = 1 / mp.log(2)
A = 2 * mp.sqrt(2 / mp.pi)
B = A * mp.mpf("0.044715")
C = mp.mpf("1.702")

# w(t) = t (a + b t^2) of the forms x * s(w(x))
RATES = {"gelu_tanh": (A, B), "gelu_sigmoid": (C, mp.mpf(0)), "silu": (mp.mpf(1), mp.mpf(0))}


class Format:
    """What the kernels of a dtype need.

    unit: 2^-unit is what small results are carried in multiples of, so that their powers of two
    are normal float32 numbers; least: what smaller |x| count as; result, product:
    -log2 of what rounds to zero, and of that with the largest dy; lift: log2 of what slopes are
    made larger by, so that small ones are normal numbers too; exp2, gelu, gelu_grad: the degrees of
    the fits for every x; far: those of the far formulas (see far_away), and from which |x| on they
    are to be right, where that is before the tables end (low).
    """

    def __init__(self, name, precision, emin, **options):
        self.name, self.precision, self.emin = name, precision, emin
        self.result = precision - emin + 2
        self.__dict__.update(options)

    def tolerance(self, y):
        """The relative error that counts as 1: more where the result is subnormal."""
        return max(1, mp.mpf(2) ** self.emin / abs(y)) if y else mp.mpf(1)


class Far:
    """exp2: 4 where a function has none; inverse: of the value and the slope of a form."""

    def __init__(self, low, exp2, gelu, gelu_grad, inverse):
        self.low, self.exp2, self.gelu, self.gelu_grad = low, exp2, gelu, gelu_grad
        self.inverse = {}
        for form, (value, slope) in inverse.items():
            self.inverse |= {form: value, f"{form}_grad": slope}


FORMATS = (
    Format(
        *("f16", 11, -14),
        unit=0,
        least=mp.mpf(2) ** -20,
        product=45,
        lift=0,
        exp2=5,
        gelu=(3, 4),
        gelu_grad=(3, 4),
        far=Far(
            low={
                "gelu": 2.0625,
                "gelu_grad": 2.25,
                "gelu_tanh": 2,
                "gelu_tanh_grad": 2.125,
                "gelu_sigmoid": 3.375,
                "gelu_sigmoid_grad": 3.5,
            },
            exp2={"silu": 5, "silu_grad": 5},
            gelu=(2, 2),
            gelu_grad=(2, 2),
            inverse={"gelu_tanh": (2, 2), "gelu_sigmoid": (2, 2), "silu": (2, 2)},
        ),
    ),
    Format(
        *("bf16", 8, -126),
        unit=64,
        least=mp.mpf(2) ** -14,
        product=267,
        lift=16,
        exp2=4,
        gelu=(3, 4),
        gelu_grad=(3, 3),
        far=Far(
            low={},
            exp2={},
            gelu=(1, 1),
            gelu_grad=(1, 1),
            inverse={"gelu_tanh": (0, 0), "gelu_sigmoid": (1, 1), "silu": (1, 1)},
        ),
    ),
)


def to_bits(value):
    return struct.unpack("<i", struct.pack("<f", value))[0]


def from_bits(bits):
    return struct.unpack("<f", struct.pack("<i", bits))[0]


def single(value):
    """value rounded to float32."""
    with mp.workprec(24):
        return +mp.mpf(value)


def mills(t):
    """Phi(-t) exp(t^2/2)"""
    return mp.exp(t * t / 2) * mp.erfc(t / mp.sqrt(2)) / 2


def solve(f, guess):
    return mp.findroot(f, mp.mpf(guess), tol=mp.mpf(10) ** -60)


def zeros():
    """-x where the slope is zero."""
    z = {"gelu": solve(lambda t: mills(t) - t / mp.sqrt(2 * mp.pi), "0.75")}
    for form, (a, b) in RATES.items():
        guess = "1.3" if form == "silu" else "0.75"
        z[form] = solve(
            lambda t, a=a, b=b: 1 + mp.exp(-t * (a + b * t * t)) - t * (a + 3 * b * t * t), guess
        )
    return z


def limit(form, bits):
    """Where the exponential is 2^-bits, and that times t or t w' is not much more."""
    a = (bits + (3 if form == "gelu" else 9)) * mp.log(2)
    if form == "gelu":
        return mp.sqrt(2 * a)
    linear, cubic = RATES[form]
    return solve(lambda t: t * (linear + cubic * t * t) - a, 4 if cubic else a / linear)


def best(*args):
    """The exchange depends on where it starts: the best of some starts."""
    found = []
    for pole in (None, 1, 2, 4):
        with contextlib.suppress(ArithmeticError):
            found.append(remez(*args, pole=pole, dense=16))
    return min(found, key=lambda fit: fit.error)


HALF = mp.mpf("0.5") + mp.mpf(2) ** -12
GAUSS_RATE = -LOG2E / 2
# the fits make good what the exponent loses by the rounding of its rate
EXCESS = single(GAUSS_RATE) * mp.log(2) + mp.mpf("0.5")


def everywhere(fmt, zero):
    """The tables of the formulas for every x: name -> exact numbers; and the errors of the fits."""
    # 2^f = 1 + f (...): right at 0, about which most inputs are
    exp2 = remez(
        lambda f: mp.expm1(f / LOG2E) / f if abs(f) > mp.mpf("1e-12") else 1 / LOG2E,
        lambda f, y: mp.mpf(2) ** f / max(abs(f), mp.mpf("1e-3")),
        -HALF,
        HALF,
        fmt.exp2 - 1,
    )
    errors = {"exp2": exp2.error}
    powers = [mp.mpf(1), *exp2.num]
    out = {}

    def factor(t):
        return mills(t) * mp.exp(-EXCESS * t * t)

    def grad_factor(t):
        """slope(-t) = 2^(c t^2) (zero - t) grad_factor(t)"""
        d = zero["gelu"] - t
        if abs(d) < mp.mpf("1e-15"):
            d = mp.mpf("1e-15")
        t = zero["gelu"] - d
        return (mills(t) - t / mp.sqrt(2 * mp.pi)) / d * mp.exp(-EXCESS * t * t)

    def gauss(t):
        return mp.exp(-t * t / 2)

    value = best(
        factor,
        lambda t, y: y * fmt.tolerance(t * y * gauss(t)),
        0,
        limit("gelu", fmt.result),
        *fmt.gelu,
    )
    slope = best(
        grad_factor,
        lambda t, y: y * fmt.tolerance((zero["gelu"] - t) * y * gauss(t)) if t < 2 else y,
        0,
        limit("gelu", fmt.product),
        *fmt.gelu_grad,
    )
    for function, fit in (("gelu", value), ("gelu_grad", slope)):
        errors[function] = fit.error
        out[f"{function}_exp2"] = powers
        out[f"{function}_rate"] = [GAUSS_RATE]
        out[f"{function}_num"], out[f"{function}_den"] = fit.num, fit.den
    for form, (a, b) in RATES.items():
        for function in (form, f"{form}_grad"):
            out[f"{function}_exp2"] = powers
            out[f"{function}_rate"] = [-a * LOG2E] + ([-b * LOG2E] if b else [])
        out[f"{form}_grad_slope"] = [a] + ([3 * b] if b else [])
    return out, errors


def low_end(fmt, name, near_way):
    """The least |x| that the formulas are for."""
    return fmt.far.low.get(name, near_way[f"{name}_{fmt.name}"]["far"])


def far_away(fmt, near_way):
    """The same of the far formulas."""
    far, errors, out, powers = fmt.far, {}, {}, {}
    for degree in sorted({4, *far.exp2.values()}):
        fit = remez(lambda f: mp.mpf(2) ** f, lambda _, y: y, -HALF, HALF, degree)
        errors[f"exp2, degree {degree}"], powers[degree] = fit.error, fit.num

    def low(name):
        return mp.mpf(low_end(fmt, name, near_way))

    def factor(u):
        """value(-t) = 2^(c u) factor(u), u = t^2"""
        t = mp.sqrt(u)
        return t * mills(t) * mp.exp(-EXCESS * u)

    def grad_factor(u):
        """slope(-t) = 2^(c u) t grad_factor(u)"""
        t = mp.sqrt(u)
        return (mills(t) / t - 1 / mp.sqrt(2 * mp.pi)) * mp.exp(-EXCESS * u)

    for name, function, end, degrees in (
        ("gelu", factor, fmt.result, far.gelu),
        ("gelu_grad", grad_factor, fmt.product, far.gelu_grad),
    ):
        fit = best(
            function,
            lambda u, y, name=name: (
                y * (fmt.tolerance(y * mp.exp(-u / 2)) if name == "gelu" else 1)
            ),
            low(name) ** 2,
            limit("gelu", end) ** 2,
            *degrees,
        )
        errors[name] = fit.error
        out[f"{name}_exp2"] = powers[4]
        out[f"{name}_rate"] = [GAUSS_RATE]
        out[f"{name}_num"], out[f"{name}_den"] = fit.num, fit.den
    for form, (a, b) in RATES.items():
        for name, power in ((form, 1), (f"{form}_grad", 2)):
            t = low(name)
            inverse = remez(
                lambda e, power=power: (1 + e) ** -power,
                lambda _, y: y,
                0,
                mp.exp(-t * (a + b * t * t)),
                far.inverse[name],
            )
            errors[f"{name}_inverse"] = inverse.error
            out[f"{name}_exp2"] = powers[far.exp2.get(name, 4)]
            out[f"{name}_rate"] = [-a * LOG2E] + ([-b * LOG2E] if b else [])
            out[f"{name}_inverse"] = inverse.num
        out[f"{form}_grad_slope"] = [a] + ([3 * b] if b else [])
    return out, errors


def far_end(fmt, form, name):
    """The greatest |x| of the format that need not be clamped."""
    bits = fmt.product if fmt.unit == 0 and name != form else fmt.result
    if fmt.unit and name.endswith("backward"):
        bits += 1  # a slope is 2^-bits then, and fmt.lift - 8 more are carried
    end = mp.mpf(single(limit(form, bits)))
    step = mp.mpf(2) ** (mp.floor(mp.log(end, 2)) + 1 - fmt.precision)
    return mp.floor(end / step) * step


def constants(fmt, near_way):
    shifter = mp.mpf(3) * 2**22  # the low bits of k = n + shifter are those of n
    unit = mp.mpf(2) ** -fmt.unit
    c = {"zero": 0, "minus_zero": "-0.0", "one": 1, "minus_one": -1, "four": 4}
    c.update(unit=unit, minus_unit=-unit, least=fmt.least)
    c.update(shifter=shifter, unit_shifter=shifter + fmt.unit)
    c.update(split=shifter - 100, split_twice=shifter - 200, split_thrice=shifter - 300)
    c["round"] = mp.mpf(3) * 2**22  # plus this, a number is the nearest integer
    lift = mp.mpf(2) ** fmt.lift
    c.update(lift=lift, unlift=1 / lift, lifted_unit=lift * unit, minus_lifted_unit=-lift * unit)
    c["overflow"] = 1  # not used, but in bfloat16
    if fmt.unit:
        # times what rounds to infinity it overflows float32, times what does not it does not
        top = mp.mpf(2) ** (2 - fmt.emin) * (1 - mp.mpf(2) ** (-1 - fmt.precision))
        float_top = mp.mpf(2) ** 128 * (1 - mp.mpf(2) ** -25)
        c["overflow"] = single(float_top / top * (1 + mp.mpf(2) ** -25))
        assert top * c["overflow"] >= float_top > top * (1 - mp.mpf(2) ** -24) * c["overflow"]
    high = single(zeros()["gelu"])
    c["gelu_zero_hi"], c["gelu_zero_lo"] = high, zeros()["gelu"] - high
    for form in ("gelu", *RATES):
        c[f"{form}_limit"] = limit(form, fmt.result)
        c[f"{form}_grad_limit"] = limit(form, fmt.product if fmt.unit == 0 else fmt.result)
        c[f"{form}_backward_limit"] = limit(form, fmt.product)
        for name in (form, f"{form}_grad"):
            far = near_way[f"{name}_{fmt.name}"]["far"]
            c[f"{name}_near"], c[f"{name}_far"] = from_bits(to_bits(far) - 1), far
            # segments are the numbers that round to an integer
            c[f"{name}_per"] = (SEGMENTS - mp.mpf("0.5")) / far
        c[f"{form}_backward_near"] = c[f"{form}_grad_near"]
    return c


def moved(name, values, places):
    """The numbers of a table, rounded, with last places moved."""
    steps = places.get(name, [0] * len(values))
    return [
        from_bits(to_bits(float(single(value))) + by)
        for value, by in zip(values, steps, strict=True)
    ]


def scalar(value):
    return float(value if value == "-0.0" else single(value))


def encoding(fmt, value):
    """The bits of a positive number of a format."""
    if fmt.name == "bf16":
        return to_bits(float(value)) >> 16
    return struct.unpack("<H", struct.pack("<e", float(value)))[0]


def columns(rows):
    """The entries 0 of all rows, then the entries 1, ..."""
    return [float.fromhex(entry) for column in zip(*rows) for entry in column]


def render(places, near_way):
    """The C text, and the Python text."""
    lines = [
        "/* SPDX-License-Identifier: BSD-3-Clause */",
        "/* coefficients16.h: constants and minimax fits of the float16 and bfloat16 kernels.",
        " * GENERATED by native/tools/generate_coefficients16.py: do not edit. */",
        "/* clang-format off */",
        "#ifndef FG_COEFFICIENTS",
        "#define FG_COEFFICIENTS static const /* the search for last places has other ideas */",
        "#endif",
    ]
    python = [
        "# SPDX-License-Identifier: BSD-3-Clause",
        '"""Constants and minimax fits of float16 and bfloat16, which are computed in float32.',
        "",
        "GENERATED by native/tools/generate_coefficients16.py: do not edit.",
        '"""',
    ]
    for fmt in FORMATS:
        table, errors = everywhere(fmt, zeros())
        for known, found in zip((table, errors), far_away(fmt, near_way)):
            known.update({f"far_{name}": value for name, value in found.items()})
        suffix = fmt.name.upper()
        lines.append("")
        for name, error in errors.items():
            lines.append(
                f"/* {fmt.name} {name}: error of the fit 2^{float(mp.log(error, 2)):.1f} */"
            )
        lines.append(f"enum {{ fg_deep_{fmt.name} = {int(fmt.unit > 0)} }};")
        python += ["", f"DEEP_{suffix} = {int(fmt.unit > 0)}"]
        for form in ("gelu", *RATES):
            for name in (form, f"{form}_grad", f"{form}_backward"):
                of = name.replace("_backward", "_grad")
                far = near_way[f"{of}_{fmt.name}"]["far"]
                low = far if name.endswith("backward") else low_end(fmt, of, near_way)
                bits = {"far": encoding(fmt, far), "low": encoding(fmt, low)}
                bits["end"] = encoding(fmt, far_end(fmt, form, name))
                for what, value in bits.items():
                    lines.append(f"enum {{ fg_{name}_{what}_bits_{fmt.name} = {value:#x} }};")
                    python.append(f"{name.upper()}_{what.upper()}_BITS_{suffix} = 0x{value:X}")
        lines.append(f"enum {{ fg_infinite_bits_{fmt.name} = {encoding(fmt, math.inf):#x} }};")
        for name, value in constants(fmt, near_way).items():
            number = scalar(value).hex()
            lines.append(f"static const fg_f32 fg_{name}_{fmt.name} = {number}f;")
            python.append(f'{name.upper()}_{suffix} = float.fromhex("{number}")')
        for name in (form + end for form in ("gelu", *RATES) for end in ("", "_grad")):
            values = columns(near_way[f"{name}_{fmt.name}"]["rows"])
            lines.append(f"static const fg_f32 fg_{name}_table_{fmt.name}[] = {{")
            lines += [*(f"    {value.hex()}f," for value in values), "};"]
            python += [f"{name.upper()}_TABLE_{suffix} = ("]
            python += [*(f'    float.fromhex("{value.hex()}"),' for value in values), ")"]
        for name, values in table.items():
            numbers = [n.hex() for n in moved(f"{name}_{fmt.name}", values, places)]
            lines.append(f"FG_COEFFICIENTS fg_f32 fg_{name}_{fmt.name}[] = {{")
            lines += [*(f"    {number}f," for number in numbers), "};"]
            numbers = [f'float.fromhex("{number}"),' for number in numbers]
            if len(numbers) == 1:
                python.append(f"{name.upper()}_{suffix} = ({numbers[0]})")
            else:
                python += [f"{name.upper()}_{suffix} = (", *("    " + n for n in numbers), ")"]
    return "\n".join(lines) + "\n", "\n".join(python) + "\n"


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--check", action="store_true", help="fail if a file would change")
    parser.add_argument("--fits-only", action="store_true", help="move no last places")
    args = parser.parse_args()
    places = {} if args.fits_only else json.loads(PLACES.read_text())
    texts = render(places, json.loads(NEAR_WAY.read_text()))
    for output, text in zip((OUTPUT, OUTPUT_PYTHON), texts):
        if not args.check:
            output.write_text(text)
        elif not output.exists() or output.read_text() != text:
            sys.exit(f"out of date: {output.relative_to(ROOT)}; run this without --check")


if __name__ == "__main__":
    main()
