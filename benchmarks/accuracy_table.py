# SPDX-License-Identifier: BSD-3-Clause
"""The registry's error bounds against measured errors, ours beside NumPy's, SciPy's and torch's.

    python benchmarks/accuracy_table.py
    python benchmarks/accuracy_table.py --functions gelu --points 2000000

Prints two markdown tables in ULP. For dtypes of up to 32 bits the truth is a vectorised float64
reference, for float64 it is mpmath, at fewer points. Both come from tests/oracle.py, and need
SciPy and mpmath.
"""

import sys
from pathlib import Path

sys.path.append(str(Path(__file__).parent))  # not there already under python -P
sys.path.append(str(Path(__file__).parents[1] / "tests"))

import bench_common as common
import numpy as np
import rivals

try:
    import oracle
    import scipy.special  # noqa: F401  the oracle imports it when first used
except ImportError as error:
    sys.exit(f"accuracy_table: {error}; to install what it needs: pip install scipy mpmath")

# Where the others are compared: past -14 exact GELU underflows in float32.
LOW, HIGH = -14.0, 6.0
FAMILIES = ("NumPy/SciPy", "torch")


def registered(dtype):
    """The registry's name of a dtype: "float32" -> "f32"."""
    return dtype.replace("float", "f")


def truth(entry, args):
    """The exact results: float64 to 45 bits for dtypes of up to 32 bits, otherwise mpmath."""
    if entry.dtype != "float64":
        return oracle.reference(entry.name, *args)
    return [oracle.exact(entry.name, *point) for point in zip(*(a.tolist() for a in args))]


def errors(got, want, dtype):
    """The error of each element of got, in ULP of its dtype."""
    short = registered(dtype)
    if dtype != "float64":
        return oracle.ulp_errors(got, want, short)
    return np.array([oracle.ulp_error(g, w, short) for g, w in zip(got.tolist(), want)])


def everywhere(entry, count, rng):
    """Random encodings of finite numbers, and as many numbers where the results are not trivial."""
    f = oracle.FORMATS[registered(entry.dtype)]
    if f.width == 16:
        bits = np.arange(1 << 16)
        bits = bits[(bits & (f.sign_bit - 1)) < f.infinity]
    else:
        magnitude = rng.integers(0, f.infinity, count // 2, dtype=np.uint64)
        bits = magnitude | rng.choice([0, f.sign_bit], count // 2).astype(np.uint64)
    random = oracle.array_from_bits(bits.astype(f.unsigned), f.name)
    # To where the last result vanishes: exact GELU and the tanh form, or those with e^x.
    end = {"f32": (-16, -110), "f64": (-40, -760)}.get(f.name, (-10, -60))
    form = rivals.split(entry.name)[0].removesuffix("_grad2")
    low = end[0] if form in ("gelu", "gelu_tanh") else end[1]
    middle = np.concatenate(
        [rng.uniform(low, 10, count // 4), rng.uniform(-4, 4, count - count // 2 - count // 4)]
    )
    x = np.concatenate([random, middle.astype(f.numpy)])
    return with_dy(entry, x, rng)


def between(entry, count, rng):
    """A grid on [LOW, HIGH], its points moved a little."""
    step = (HIGH - LOW) / count
    x = LOW + step * (np.arange(count) + rng.uniform(0, 1, count))
    return with_dy(entry, x.astype(common.numpy_dtype(entry.dtype)), rng)


def with_dy(entry, x, rng):
    """The arguments: x, or dy and x."""
    dy = rng.standard_normal(len(x)).astype(x.dtype)
    return [dy, x][-entry.inputs :]


def measure(entry, contender, args, want, signed_zeros=True):
    """The largest error of a contender in ULP, and the x of it."""
    out = np.empty_like(args[-1])
    with np.errstate(all="ignore"):
        contender.bind(args, out)()
    found = errors(out, want, entry.dtype)
    if not signed_zeros:
        (zero,) = np.nonzero(out == 0)
        want = want[zero] if isinstance(want, np.ndarray) else [want[i] for i in zero]
        found[zero] = np.minimum(found[zero], errors(-out[zero], want, entry.dtype))
    worst = int(np.argmax(found))
    return float(found[worst]), float(args[-1][worst])


def miscount(entry, contender):
    """(finite inputs, results not correctly rounded, NaN) over every input of a 16-bit dtype."""
    f = oracle.FORMATS[registered(entry.dtype)]
    bits = np.arange(1 << 16)
    bits = bits[(bits & (f.sign_bit - 1)) < f.infinity]
    x = oracle.array_from_bits(bits.astype(f.unsigned), f.name)
    out = np.empty_like(x)
    with np.errstate(all="ignore"):
        contender.bind([x], out)()
        got = out.astype(np.float64)
        nan = np.isnan(got)
        found = np.where(nan, np.inf, oracle.ulp_errors(out, truth(entry, [x]), f.name))
    for i in np.flatnonzero(np.abs(found - 0.5) < 1e-6).tolist():  # about a tie: mpmath
        want = oracle.exact(entry.name, float(x[i]))
        found[i] = 0 if oracle.round_to(want, f.name) == int(oracle.bits_of(out)[i]) else 1
    return len(x), int(np.count_nonzero(found > 0.5)), int(np.count_nonzero(nan))


def rounding_row(entry, field):
    """A row of the table of 16-bit dtypes."""
    row = [entry.name, entry.dtype, "", "", ""]
    for contender in field:
        if contender.label in ("fastgelu", "torch"):
            inputs, wrong, nan = miscount(entry, contender)
            row[2] = f"{inputs:,}"
            row[3 if contender.label == "fastgelu" else 4] = f"{wrong:,}" + (
                f" ({nan:,} NaN)" if nan else ""
            )
    return row


def main(argv=None):
    parser = common.parser(__doc__.splitlines()[0])
    parser.add_argument(
        "--points",
        type=common.at_least(100),
        default=1_000_000,
        metavar="N",
        help="for each function of up to 32 bits; default: 1000000",
    )
    parser.add_argument(
        "--float64-points",
        type=common.at_least(100),
        default=4000,
        metavar="N",
        help="for each function in float64; default: 4000",
    )
    args = parser.parse_args(argv)

    bounds, comparison, rounding = [], [], []
    for entry in common.chosen(args):
        print(f"{entry.name} {entry.dtype}", file=sys.stderr)
        points = args.float64_points if entry.dtype == "float64" else args.points
        rng = np.random.default_rng(common.SEED)
        field = rivals.contenders(entry.name, entry.dtype)
        samples = [everywhere(entry, points, rng), between(entry, points, rng)]
        wants = [truth(entry, sample) for sample in samples]
        error, x = max(measure(entry, field[0], *pair) for pair in zip(samples, wants))
        bounds.append([entry.name, entry.dtype, f"{entry.max_ulp:g}", f"{error:.3f}", f"{x:.9g}"])
        if entry.inputs == 1 and oracle.FORMATS[registered(entry.dtype)].width == 16:
            rounding.append(rounding_row(entry, field))
        found = {}
        for contender in field:
            error, _ = measure(entry, contender, samples[1], wants[1], signed_zeros=False)
            found[contender] = common.number(error)
        cells = [
            "; ".join(
                number if c.label == family else f"{c.label} {number}"
                for c, number in found.items()
                if c.family == family and c.label != "torch-repeat"  # the same numbers as torch
            )
            for family in FAMILIES
        ]
        comparison.append([entry.name, entry.dtype, found[field[0]], *cells])

    print(common.table(["function", "dtype", "bound", "measured", "at x"], bounds))
    print()
    print(
        "Max error in ULP. Measured: on random numbers of all magnitudes, evenly where the results "
        f"are not trivial, and on [{LOW:g}, {HIGH:g}]: {2 * args.points:,} points for each "
        f"function, {2 * args.float64_points:,} in float64 (mpmath); backward with normal(0, 1) dy."
    )
    print()
    header = ["function", "dtype", "fastgelu", *FAMILIES]
    print(common.table(header, comparison))
    print()
    print(
        f"Max error in ULP on [{LOW:g}, {HIGH:g}]: {args.points:,} points, {args.float64_points:,} "
        "in float64, the same for all. inf is a NaN; the sign of a zero is not judged here."
    )
    print(
        "Formulas, where v is the argument of the sigmoid: "
        + ", ".join(f"{label} is {formula}" for label, formula in rivals.LABELS.items())
        + "; slopes likewise."
    )
    print(common.describe() + ".")
    if rounding:
        print()
        print(common.table(["function", "dtype", "inputs", "fastgelu", "torch"], rounding))
        print()
        print("Results that are not correctly rounded, of all finite inputs.")


if __name__ == "__main__":
    main()
