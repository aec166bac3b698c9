# SPDX-License-Identifier: BSD-3-Clause
"""Fit every coefficient and write it for C and for Python (--check: compare, write nothing).

    python native/tools/generate_coefficients.py [--check]

Needs mpmath. Fits and constants are computed to 60 digits; each is rounded once.
"""

import argparse
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))

from minimax import remez
from mpmath import mp
from tables import table

mp.dps = 60
ROOT = Path(__file__).resolve().parents[2]
OUTPUTS = {
    "c": ROOT / "native/src/coefficients.h",
    "python": ROOT / "fastgelu/_coefficients.py",
    "tests": ROOT / "native/tests/slope_series.h",
}


class Format:
    """A binary interchange format: precision in bits, exponent of the largest number."""

    def __init__(self, name, precision, emax, suffix):
        self.name, self.precision, self.emax, self.suffix = name, precision, emax, suffix
        # powers of two beyond 2^-split or 2^split are applied in steps
        self.split = 100 if precision == 24 else 900

    def round(self, value, bits=None):
        """value rounded to the format, or to fewer bits."""
        with mp.workprec(bits or self.precision):
            return +mp.mpf(value)

    def hex(self, value):
        """A hex float literal; value must be a number of the format."""
        if value != "-0.0":  # which mpmath has not
            assert value == self.round(value)
        return float(value).hex()


F32 = Format("f32", 24, 127, "f")
F64 = Format("f64", 53, 1023, "")

# degrees by format, the smallest whose error stays well inside a quarter ULP
DEGREES = {
    "exp": {"f32": 5, "f64": 10},
    "gelu": {"f32": (2, 2), "f64": (5, 6)},
    "gelu_grad": {"f32": (1, 2), "f64": (5, 6)},
}

# The near way (tables.py): where it ends, as far as the error stays well below 2 ULP; the degree
# of the polynomials, odd in float64; the number of segments (NOTES.md). Where there is no table,
# the formulas are faster.
TABLES = {
    "gelu": {"f32": ("4", 7, 8), "f64": ("4.5", 7, 256)},
    "gelu_tanh": {"f32": ("3.875", 7, 8), "f64": ("4.5", 7, 256)},
    "gelu_sigmoid": {"f32": ("3.75", 6, 8)},
    "silu": {"f32": ("5.75", 6, 8)},
    "gelu_grad": {"f32": ("4", 7, 8), "f64": ("4.5", 7, 256)},
    "gelu_tanh_grad": {"f32": ("4", 7, 8), "f64": ("4.5", 7, 256)},
    "gelu_sigmoid_grad": {"f32": ("4.25", 7, 8), "f64": ("4", 7, 256)},
    "silu_grad": {"f32": ("5.5", 7, 8), "f64": ("4", 5, 512)},
}


def mills(t):
    """R(t) = Phi(-t) exp(t^2/2)."""
    return mp.exp(t * t / 2) * mp.erfc(t / mp.sqrt(2)) / 2


def solve(f, guess):
    return mp.findroot(f, mp.mpf(guess), tol=mp.mpf(10) ** -100)


A = 2 * mp.sqrt(2 / mp.pi)
B = A * mp.mpf("0.044715")
C = mp.mpf("1.702")


def gelu_grad_offset(fmt):
    """-P = t/2 exp(-(t^2 + offset)/2) (1 + h). So few bits that adding it rounds nothing."""
    unit = mp.mpf(2) ** (1 - fmt.precision)
    return mp.nint(-2 * mp.log(2 / mp.sqrt(2 * mp.pi)) / unit) * unit


def rates():
    """exp(rate u) is what each form needs."""
    half = mp.mpf("0.5")
    return {"gelu": -half, "silu": mp.mpf(1), "gelu_sigmoid": C, "gelu_tanh": A}


def exponents():
    """w(t) and w'(t) of the forms x * s(w(x))."""
    return {
        "gelu_tanh": (lambda t: t * (A + B * t * t), lambda t: A + 3 * B * t * t),
        "gelu_sigmoid": (lambda t: C * t, lambda t: C),
        "silu": (lambda t: t, lambda t: mp.mpf(1)),
    }


def negative_sides():
    """Of each function the part that algorithms.h takes from x or 1: t G(-t), the slope at -t."""
    sides = {
        "gelu": lambda t: t * mp.erfc(t / mp.sqrt(2)) / 2,
        "gelu_grad": lambda t: mp.erfc(t / mp.sqrt(2)) / 2 - t * mp.npdf(t),
    }
    for form, (w, dw) in exponents().items():
        sides[form] = lambda t, w=w: t / (1 + mp.exp(w(t)))
        sides[f"{form}_grad"] = lambda t, w=w, dw=dw: (
            mp.exp(-w(t)) * (1 + mp.exp(-w(t)) - t * dw(t)) / (1 + mp.exp(-w(t))) ** 2
        )
    return sides


def tables(fmt):
    """name -> (segments per unit, rows, columns, the table as v_row reads it)."""
    out, z = {}, zeros()
    for name, f in negative_sides().items():
        form = name.removesuffix("_grad")
        zero = z[form] if name != form else None
        if fmt.name not in TABLES[name]:
            out[name] = mp.mpf(0), 1, 0, [mp.mpf(0)]  # there is none
            continue
        far, degree, segments = TABLES[name][fmt.name]
        per, rows = table(f, zero, far, segments, degree, fmt.precision)
        if fmt.precision == 24:  # a register holds one coefficient of all segments
            rows = zip(*rows)
        else:  # in the order of use, without the last coefficient, which is in the one before
            rows = [(centre, *row[-2::-1]) for centre, *row in rows]
        values = [value for row in rows for value in row]
        out[name] = per, segments, len(values) // segments, values
    return out


def zeros():
    """-x where the slope is zero."""
    z = {"gelu": solve(lambda t: mills(t) - t / mp.sqrt(2 * mp.pi), "0.75")}
    for form, (w, dw) in exponents().items():
        guess = "1.3" if form == "silu" else "0.75"
        z[form] = solve(lambda t, w=w, dw=dw: 1 + mp.exp(-w(t)) - t * dw(t), guess)
    return z


def deep_bits(fmt, form, kind):
    """E counts as 0 below 2^-bits: a quarter of the last place of what it is added to.

    In float32 that of gelu_tanh does so from half the last place on, where there is room, since the
    terms of E are a quarter of its time and all of the deep tail goes without them so.
    """
    if form == "gelu_tanh" and fmt.name == "f32":
        return "25.5" if kind else "24.85"
    return fmt.precision + 3


def terms(fmt):
    """How many powers of E matter beside 1 where the far way begins, by function."""
    lim = limits(fmt)
    out = {"gelu": 0, "gelu_grad": 0, "gelu_backward": 0}
    for form, (w, _) in exponents().items():
        for kind in ("", "_grad", "_backward"):
            power = w(lim[f"{form}{kind}_far"]) / mp.log(2)  # E = 2^-power there
            out[form + kind] = 1 if 2 * power > fmt.precision + 3 else 2
    return out


def limits(fmt):
    """Where the exponential reaches 2^-bits, by form.

    limit: beyond it -t gives -0 (value, slope), with room for a factor t w' beside the
    exponential; backward_limit: likewise for slopes that a large dy can lift; far: where the near
    way ends; near: the number below far; deep: where E no longer matters; end: up to where the far
    way is right for whole blocks, for backward passes where one factor beside the exponential is
    enough; plain: from where on plain results are.
    """
    low = fmt.emax + fmt.precision + 14
    out = {}
    for kind, bits in (
        ("limit", low),
        ("backward_limit", low + fmt.emax + 1),
        ("backward_end", fmt.split + fmt.emax - 7),
    ):
        a = bits * mp.log(2)
        out[f"gelu_{kind}"] = mp.sqrt(2 * a)
        for form, (w, _) in exponents().items():
            guess = 4 if form == "gelu_tanh" else a
            out[f"{form}_{kind}"] = solve(lambda t, w=w, a=a: w(t) - a, guess)
    for form in ("gelu", *exponents()):
        for kind, limit in (("", "limit"), ("_grad", "limit"), ("_backward", "backward_limit")):
            out[f"{form}{kind}_plain"] = out[f"{form}_{limit}"]
            if kind != "_backward":
                out[f"{form}{kind}_end"] = out[f"{form}_{limit}"]
            far = TABLES[form + kind.replace("backward", "grad")].get(fmt.name)
            if far:
                far = mp.mpf(far[0])
            else:  # 1 + 2^n is exact
                a = (fmt.precision - 2) * mp.log(2)
                w = exponents()[form][0]
                far = fmt.round(
                    solve(lambda t, w=w, a=a: w(t) - a, 4 if form == "gelu_tanh" else a)
                )
            out[f"{form}{kind}_far"] = far
            out[f"{form}{kind}_near"] = far * (1 - mp.mpf(2) ** -fmt.precision)
            if form == "gelu":  # nowhere
                out[f"{form}{kind}_deep"] = mp.mpf(1024)
            else:
                small, w = mp.mpf(deep_bits(fmt, form, kind)) * mp.log(2), exponents()[form][0]
                out[f"{form}{kind}_deep"] = solve(
                    lambda t, w=w, a=small: w(t) - a, 4 if form == "gelu_tanh" else small
                )
    return out


def fits(fmt):
    """Every polynomial: name -> list of exact coefficients, lowest first; and the errors."""
    polys, errors = {}, {}
    # expm1(rate g)/g over an octave of rate g, its error beside 1
    wider = 1 + mp.mpf(2) ** -12
    for form, rate in rates().items():
        fit = remez(
            lambda f: 1 + f / 2 if abs(f) < mp.mpf("1e-12") else mp.expm1(f) / f,
            lambda f, y: mp.exp(f) / max(abs(f), mp.mpf("1e-3")),
            -mp.log(2) / 2 * wider,
            mp.log(2) / 2 * wider,
            DEGREES["exp"][fmt.name],
        )
        errors[f"{form}_exp"] = fit.error
        coefficients = [c * rate ** (i + 1) for i, c in enumerate(fit.num)]
        # what rounding c[0] adds, a multiple of g, is best made up for by so much g^3
        lost = fmt.round(coefficients[0]) - coefficients[0]
        coefficients[2] -= lost * mp.mpf("1.35") / (mp.log(2) / 2 / rate) ** 2
        polys[f"{form}_exp"] = coefficients

    def first_that_works(*args):
        """The exchange depends on where it starts: take the first start that works."""
        for pole in (30, 100, 10, 300):
            try:
                return remez(*args, pole=pole)
            except ArithmeticError as e:
                problem = e
        raise problem

    lim = limits(fmt)
    scale, lowered = fmt.round(1 / mp.sqrt(2 * mp.pi)), mp.exp(gelu_grad_offset(fmt) / 2)
    small = {
        "gelu": lambda t: t * mills(t) / scale - 1,
        "gelu_grad": lambda t: (1 / mp.sqrt(2 * mp.pi) - mills(t) / t) * 2 * lowered - 1,
    }
    for name, h in small.items():
        fit = first_that_works(
            lambda u, h=h: h(mp.sqrt(u)),
            lambda u, y: 1 + y,
            lim[f"{name}_far"] ** 2,
            lim["gelu_limit" if name == "gelu" else "gelu_backward_limit"] ** 2,
            *DEGREES[name][fmt.name],
        )
        polys[f"{name}_num"], polys[f"{name}_den"], errors[name] = fit.num, fit.den, fit.error
    return polys, errors


def constants(fmt):
    """Every single constant: name -> number of the format."""
    c = {
        "two": 2,
        "minus_half": mp.mpf("-0.5"),
        "minus_zero": "-0.0",
        "zero": 0,
        "one": 1,
        "half": mp.mpf("0.5"),
    }
    # the bias makes the low bits of k = n + shifter the exponent field of 2^n
    c["round"] = mp.mpf(3) * mp.mpf(2) ** (fmt.precision - 2)
    shifter = c["round"] + fmt.emax
    split = fmt.split
    c["shifter"], c["split"], c["split_twice"] = shifter, shifter - split, shifter - 2 * split
    up = 64 if fmt.precision == 24 else 512  # far from either end of the exponents
    c["raised"], c["lowered"] = shifter + up, mp.mpf(2) ** -up

    def pair(name, value):
        c[name + "_hi"] = fmt.round(value)
        c[name + "_lo"] = value - c[name + "_hi"]

    c["largest"] = mp.mpf(2) ** fmt.emax * (2 - mp.mpf(2) ** (1 - fmt.precision))
    for form, rate in rates().items():
        step = mp.log(2) / rate
        c[f"{form}_log2e"] = 1 / step
        pair(f"{form}_step", step)
    c["gelu_scale"] = 1 / mp.sqrt(2 * mp.pi)
    c["gelu_grad_offset"] = gelu_grad_offset(fmt)
    pair("gelu_sigmoid_rate", C)
    pair("tanh_cubic", B / A)
    c["tanh_slope_hi"] = fmt.round(A, fmt.precision // 2)
    c["tanh_slope_lo"] = A - c["tanh_slope_hi"]
    pair("tanh_curve", 3 * B)
    c.update(limits(fmt))
    return {name: value if value == "-0.0" else fmt.round(value) for name, value in c.items()}


NOTE = "GENERATED by native/tools/generate_coefficients.py: do not edit."


def render_format(fmt):
    """The lines for C and for Python of one format."""
    name = fmt.name
    polys, errors = fits(fmt)
    single = constants(fmt)
    c, py = [""], []
    upper = name.upper()
    for function, (per, rows, columns, values) in tables(fmt).items():
        single[f"{function}_per"] = fmt.round(per)
        for what, count in (("rows", rows), ("columns", columns)):
            c.append(f"enum {{ fg_{function}_{what}_{name} = {count} }};")
            py.append(f"{function.upper()}_{what.upper()}_{upper} = {count}")
        polys[f"{function}_table"] = values
    for function, count in terms(fmt).items():
        c.append(f"enum {{ fg_{function}_terms_{name} = {count} }};")
        py.append(f"{function.upper()}_TERMS_{upper} = {count}")
    for fit, error in errors.items():
        c.append(f"/* {name} {fit}: relative error of the fit 2^{float(mp.log(error, 2)):.1f} */")
    for constant, value in single.items():
        value = fmt.hex(value)
        c.append(f"static const fg_{name} fg_{constant}_{name} = {value}{fmt.suffix};")
        py.append(f'{constant.upper()}_{name.upper()} = h("{value}")')
    for poly, values in polys.items():
        values = [fmt.hex(fmt.round(v)) for v in values]
        c.append(f"static const fg_{name} fg_{poly}_{name}[] = {{")
        across = 4 if poly.endswith("_table") else 1
        for lines, before, after in ((c, "", fmt.suffix), (py, 'h("', '")')):
            if lines is py:
                lines.append(f"{poly.upper()}_{name.upper()} = (")
            whole = [f"{before}{v}{after}," for v in values]
            lines += [
                "    " + " ".join(whole[i : i + across]) for i in range(0, len(whole), across)
            ]
        c.append("};")
        py.append(")")
    return c, py


def render():
    """Every generated file: kind -> text."""
    c = [
        "/* SPDX-License-Identifier: BSD-3-Clause */",
        "/* coefficients.h: constants and minimax fits.",
        f" * {NOTE} */",
        "/* clang-format off */",
    ]
    py = ["# SPDX-License-Identifier: BSD-3-Clause", '"""Constants and minimax fits.', "", NOTE]
    py += ['"""', "", "h = float.fromhex", ""]
    for fmt in (F32, F64):
        for lines, more in zip((c, py), render_format(fmt)):
            lines += more
    return {"c": "\n".join(c) + "\n", "python": "\n".join(py) + "\n", "tests": slope_series()}


def slope_series():
    """Taylor series of each slope about its zero, for the reference of the C tests."""
    lines = [
        "/* SPDX-License-Identifier: BSD-3-Clause */",
        "/* slope_series.h: slope(-t) = d (c[0] + c[1] d + ...), d = t - zero.",
        f" * {NOTE} */",
        "/* clang-format off */",
    ]
    slopes = {"gelu": lambda t: mp.ncdf(-t) - t * mp.npdf(t)}
    for form, (w, dw) in exponents().items():
        slopes[form] = lambda t, w=w, dw=dw: (
            mp.exp(-w(t)) * (1 + mp.exp(-w(t)) - t * dw(t)) / (1 + mp.exp(-w(t))) ** 2
        )
    for form, slope in slopes.items():
        zero = zeros()[form]
        hi = F64.round(zero)
        lines.append(f"static const double {form}_zero_hi = {F64.hex(hi)};")
        lines.append(f"static const double {form}_zero_lo = {F64.hex(F64.round(zero - hi))};")
        lines.append(f"static const double {form}_series[] = {{")
        lines += [f"    {F64.hex(F64.round(c))}," for c in mp.taylor(slope, zero, 12)[1:]]
        lines.append("};")
    return "\n".join(lines) + "\n"


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--check", action="store_true", help="fail if a file would change")
    args = parser.parse_args()
    stale = []
    for kind, text in render().items():
        path = OUTPUTS[kind]
        if args.check:
            if not path.exists() or path.read_text() != text:
                stale.append(str(path.relative_to(ROOT)))
        else:
            path.parent.mkdir(exist_ok=True)
            path.write_text(text)
    if stale:
        sys.exit(f"out of date: {', '.join(stale)}; run this without --check")


if __name__ == "__main__":
    main()
