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
    "exp": {"f32": 4, "f64": 9},
    "gelu": {"f32": (4, 5), "f64": (10, 11)},
    "gelu_grad": {"f32": (5, 5), "f64": (10, 10)},
}


def mills(t):
    """R(t) = Phi(-t) exp(t^2/2)."""
    return mp.exp(t * t / 2) * mp.erfc(t / mp.sqrt(2)) / 2


def solve(f, guess):
    return mp.findroot(f, mp.mpf(guess), tol=mp.mpf(10) ** -100)


A = 2 * mp.sqrt(2 / mp.pi)
B = A * mp.mpf("0.044715")
C = mp.mpf("1.702")
GELU_SCALE = mp.mpf(13) / 32  # near Phi(-t) t exp(t^2/2) at infinity, which is 0.3989


def exponents():
    """w(t) and w'(t) of the forms x * s(w(x))."""
    return {
        "gelu_tanh": (lambda t: t * (A + B * t * t), lambda t: A + 3 * B * t * t),
        "gelu_sigmoid": (lambda t: C * t, lambda t: C),
        "silu": (lambda t: t, lambda t: mp.mpf(1)),
    }


def zeros():
    """-x where the slope is zero."""
    z = {"gelu": solve(lambda t: mills(t) - t / mp.sqrt(2 * mp.pi), "0.75")}
    for form, (w, dw) in exponents().items():
        guess = "1.3" if form == "silu" else "0.75"
        z[form] = solve(lambda t, w=w, dw=dw: 1 + mp.exp(-w(t)) - t * dw(t), guess)
    return z


def limits(fmt):
    """Where the exponential reaches 2^-bits, by form.

    limit: beyond it -t gives -0 (value, slope), with room for a factor t w' beside the
    exponential; backward_limit: likewise for slopes that a large dy can lift; near: up to it
    no power of two needs a second step.
    """
    low = fmt.emax + fmt.precision + 14
    out = {}
    for kind, bits in (
        ("limit", low),
        ("backward_limit", low + fmt.emax + 1),
        ("near", fmt.split - 1),
        ("grad_near", fmt.split - 3),  # there the exponential is taken about the zero
        ("backward_near", fmt.split - 3),
    ):
        a = bits * mp.log(2)
        out[f"gelu_{kind}"] = mp.sqrt(2 * a)
        if kind == "near":  # of the sigmoid forms: 1 + 2^n is exact
            a = (fmt.precision - 2) * mp.log(2)
        for form, (w, _) in exponents().items():
            guess = 4 if form == "gelu_tanh" else a
            out[f"{form}_{kind}"] = solve(lambda t, w=w, a=a: w(t) - a, guess)
    return out


def fits(fmt):
    """Every polynomial: name -> list of exact coefficients, lowest first; and the errors."""
    polys, errors = {}, {}
    half_ln2 = mp.log(2) / 2 * (1 + mp.mpf(2) ** -12)

    def expm1_rest(f):
        if abs(f) < mp.mpf("1e-12"):
            return mp.mpf(1) / 2 + f / 6
        return (mp.expm1(f) - f) / f**2

    fit = remez(
        expm1_rest,
        lambda f, y: mp.exp(f) / max(abs(f), mp.mpf("1e-3")) ** 2,
        -half_ln2,
        half_ln2,
        DEGREES["exp"][fmt.name],
    )
    polys["exp"], errors["exp"] = fit.num, fit.error

    def first(*args):
        """The exchange depends on where it starts: take the first start that works."""
        for pole in (1, 2, mp.mpf("1.5"), mp.mpf("0.5"), 3):
            try:
                return remez(*args, pole=pole)
            except ArithmeticError as e:
                problem = e
        raise problem

    def h_over_t(t):
        t = max(t, mp.mpf("1e-20"))
        return (mills(t) * (t + 2 * GELU_SCALE) / GELU_SCALE - 1) / t

    lim = limits(fmt)
    fit = first(
        h_over_t,
        lambda t, y: (1 + y * t) / max(t, mp.mpf("1e-3")),
        0,
        lim["gelu_limit"],
        *DEGREES["gelu"][fmt.name],
    )
    polys["gelu_num"], polys["gelu_den"], errors["gelu"] = fit.num, fit.den, fit.error

    zero = zeros()["gelu"]

    def g(t):
        d = t - zero
        if abs(d) < mp.mpf("1e-20"):
            d = mp.mpf("1e-20")
        return 2 * ((zero + d) / mp.sqrt(2 * mp.pi) - mills(zero + d)) / d - 1

    fit = first(
        g, lambda t, y: 1 + y, 0, lim["gelu_backward_limit"], *DEGREES["gelu_grad"][fmt.name]
    )
    # D(0) just below a power of two: its rounding counts most where the slope is just below 1/2
    top = mp.mpf(63) / 32
    polys["gelu_grad_num"] = [top * v for v in fit.num]
    polys["gelu_grad_den"] = [top * v for v in fit.den]
    errors["gelu_grad"] = fit.error
    return polys, errors


def constants(fmt):
    """Every single constant: name -> number of the format."""
    c = {"minus_zero": "-0.0", "zero": 0, "one": 1, "half": mp.mpf("0.5")}
    c["log2e"] = 1 / mp.log(2)
    # the bias makes the low bits of k = n + shifter the exponent field of 2^n
    shifter = mp.mpf(3) * mp.mpf(2) ** (fmt.precision - 2) + fmt.emax
    split = fmt.split
    c["shifter"], c["split"], c["split_twice"] = shifter, shifter - split, shifter - 2 * split
    c["split_thrice"], c["split_above"] = shifter - 3 * split, shifter + split

    def pair(name, value):
        c[name + "_hi"] = fmt.round(value)
        c[name + "_lo"] = value - c[name + "_hi"]

    pair("ln2", mp.log(2))
    z = zeros()
    c["gelu_scale"], c["gelu_shift"] = GELU_SCALE, 2 * GELU_SCALE
    c["gelu_inverse_scale"] = 1 / GELU_SCALE
    pair("gelu_half_zero", z["gelu"] / 2)
    for form in exponents():
        pair(f"{form}_zero", z[form])
    # exp(-w) at the zero: it is the same number for silu and gelu_sigmoid
    pair("silu_exp_zero", mp.exp(-z["silu"]))
    pair("gelu_tanh_exp_zero", mp.exp(-exponents()["gelu_tanh"][0](z["gelu_tanh"])))
    pair("minus_sigmoid_factor", -C)
    c["minus_sigmoid_factor_log2e"] = -C / mp.log(2)
    pair("tanh_cubic", B)
    pair("tanh_zero_square", z["gelu_tanh"] ** 2)
    c["tanh_linear_top"] = fmt.round(A, fmt.precision - 6)
    c["tanh_linear_rest"] = A - c["tanh_linear_top"]
    c.update(limits(fmt))
    return {name: value if value == "-0.0" else fmt.round(value) for name, value in c.items()}


NOTE = "GENERATED by native/tools/generate_coefficients.py: do not edit."


def render_format(fmt):
    """The lines for C and for Python of one format."""
    name = fmt.name
    polys, errors = fits(fmt)
    c, py = [""], []
    for fit, error in errors.items():
        c.append(f"/* {name} {fit}: relative error of the fit 2^{float(mp.log(error, 2)):.1f} */")
    for constant, value in constants(fmt).items():
        value = fmt.hex(value)
        c.append(f"static const fg_{name} fg_{constant}_{name} = {value}{fmt.suffix};")
        py.append(f'{constant.upper()}_{name.upper()} = float.fromhex("{value}")')
    for poly, values in polys.items():
        values = [fmt.hex(fmt.round(v)) for v in values]
        c.append(f"static const fg_{name} fg_{poly}_{name}[] = {{")
        c += [f"    {v}{fmt.suffix}," for v in values] + ["};"]
        py.append(f"{poly.upper()}_{name.upper()} = (")
        py += [f'    float.fromhex("{v}"),' for v in values] + [")"]
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
    py += ['"""', ""]
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
