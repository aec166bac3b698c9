# SPDX-License-Identifier: BSD-3-Clause
"""``python -m fastgelu accuracy``: errors in ULP by range, ours and the rivals'.

The truth for float64 is mpmath. For the shorter dtypes it is our own float64 functions, whose error
is less than 1e-7 ULP of float32, and which are checked against mpmath in the same run.
"""

import sys
from typing import NamedTuple

import numpy as np

import fastgelu
from fastgelu import _command, _rivals

SEED = 20240229
# In float32 exact GELU underflows at -14. (label, low, high); the last one has logarithmic steps.
RANGES = (
    ("-14 to -5.5", -14.0, -5.5),
    ("-5.5 to -1", -5.5, -1.0),
    ("-1 to 1", -1.0, 1.0),
    ("1 to 14", 1.0, 14.0),
    ("|x| 1e-30 to 1e-3", 1e-30, 1e-3),
)
PICTURE = (-14.0, 6.0)
BINS = 400
# (bits of the significand, exponent of the smallest normal number)
FORMATS = {
    "float16": (11, -14),
    "bfloat16": (8, -126),
    "float32": (24, -126),
    "float64": (53, -1022),
}


class Errors(NamedTuple):
    """What one contender's errors in one range were."""

    most: float
    mean: float
    rounded: float  # the share of results that are correctly rounded
    worst: float  # the x of the largest error


# ---- the truth -------------------------------------------------------------------------------


class Exact:
    """The functions in 160 bits."""

    def __init__(self):
        self.mp = _command.optional("mpmath").MPContext()  # nobody else's precision
        self.mp.prec = 160

    def __call__(self, name, x):
        mp, (form, slope) = self.mp, _rivals.split(name)
        x = mp.mpf(x)
        if form == "gelu":
            gate = mp.erfc(-x / mp.sqrt(2)) / 2
            if not slope:
                return x * gate
            return gate + x * mp.exp(-x * x / 2) / mp.sqrt(2 * mp.pi)
        c, k = {
            "gelu_tanh": (2 * mp.sqrt(2 / mp.pi), 2 * mp.sqrt(2 / mp.pi) * mp.mpf(44715) / 10**6),
            "gelu_sigmoid": (mp.mpf(1702) / 1000, 0),
            "silu": (1, 0),
        }[form]
        gate = 1 / (1 + mp.exp(-(c * x + k * x**3)))
        if not slope:
            return x * gate
        return gate * (1 + x * (c + 3 * k * x * x) * (1 - gate))

    def pairs(self, name, x):
        """Two float64 arrays, whose sum is exact to more than 100 bits."""
        high, low = np.empty(len(x)), np.empty(len(x))
        for i, value in enumerate(x.tolist()):
            want = self(name, value)
            high[i] = float(want)
            low[i] = float(want - self.mp.mpf(high[i]))
        return high, low


def truth(name, x, exact):
    """The exact results at x as two float64 arrays (high, low)."""
    if x.dtype == np.float64:
        return exact.pairs(name, x)
    return getattr(fastgelu, name)(x.astype(np.float64)), np.zeros(len(x))


def ulp_errors(got, want, dtype):
    """The errors in ULP: in units of the dtype's spacing at the exact value."""
    precision, least = FORMATS[dtype]
    high, low = want
    _, exponent = np.frexp(high)
    # float64's subnormal spacing is 2**-1074, which ldexp has
    unit = np.ldexp(1.0, np.maximum(exponent - 1, least) - (precision - 1))
    with np.errstate(all="ignore"):
        found = np.abs((got.astype(np.float64) - high) - low) / unit
    return np.where(np.isnan(found), np.inf, found)


def self_check(exact, rng, points=200):
    """The largest error in ULP of our float64 functions against mpmath: the truth's own."""
    x = np.concatenate([rng.uniform(-14, 14, points // 2), rng.uniform(-3, 3, points // 2)])
    names = _command.registry_names((1,), compiled=True)
    return max(
        float(np.max(ulp_errors(getattr(fastgelu, n)(x), exact.pairs(n, x), "float64")))
        for n in names
    )


# ---- measuring -------------------------------------------------------------------------------


def points_in(low, high, count, dtype, rng):
    """Distinct numbers of a dtype, spread evenly; where |x| is tiny evenly in its logarithm."""
    if low > 0 and high < 1:
        x = np.exp(rng.uniform(np.log(low), np.log(high), count)) * rng.choice([-1, 1], count)
    else:
        x = rng.uniform(low, high, count)
    return np.unique(x.astype(_command.numpy_dtype(dtype)))


def results(rival, x):
    out = np.empty_like(x)
    with np.errstate(all="ignore"):
        bound = rival.bind((x,), out)
        bound.call()
        bound.fetch()
    return out


def summary(found, x):
    worst = int(np.argmax(found))
    # A hair more than half an ULP: what the truth's own error may make of a tie.
    return Errors(
        float(found[worst]),
        float(found.mean()),
        float(np.mean(found <= 0.5 + 1e-7)),
        float(x[worst]),
    )


def bin_maxima(found, x):
    """The largest error in each of the BINS parts of PICTURE; nan where there is no point."""
    low, high = PICTURE
    index = ((x.astype(np.float64) - low) * (BINS / (high - low))).astype(int).clip(0, BINS - 1)
    most = np.full(BINS, -1.0)
    np.maximum.at(most, index, found)
    return np.where(most < 0, np.nan, most)


def measure(name, dtype, libraries, points, exact, picture, problems, advance):
    """({(range, label): Errors}, {label: maxima for the picture})"""
    rng = np.random.default_rng(SEED)
    contenders = _rivals.contenders(name, dtype, libraries, 1, problems)
    table, curves = {}, {}
    spans = [(*span, False) for span in RANGES]
    if picture:
        spans.append(("", *PICTURE, True))
    for label, low, high, drawn in spans:
        x = points_in(low, high, points, dtype, rng)
        want = truth(name, x, exact)
        for rival in contenders:
            if rival.library.lower() in problems:
                continue
            try:
                found = ulp_errors(results(rival, x), want, dtype)
            except Exception as error:  # the others go on
                problems[rival.library.lower()] = _rivals.brief(error)
                continue
            if drawn:
                curves[rival.label] = bin_maxima(found, x)
            else:
                table[label, rival.label] = summary(found, x)
        advance()
    return table, curves


# ---- showing ---------------------------------------------------------------------------------


def show(console, name, dtype, table):
    rows, sections, last = [], set(), None
    for (span, label), errors in table.items():
        if last not in (None, span):
            sections.add(len(rows) - 1)
        rows.append(
            (
                "" if span == last else span,
                label,
                _command.number(errors.most),
                _command.number(errors.mean),
                f"{100 * errors.rounded:.1f}",
                f"{errors.worst:.4g}",
            )
        )
        last = span
    bound = fastgelu.max_ulp(name, dtype)
    title = f"{name}, {dtype}: errors in ULP (our bound: {bound:g})"
    right = [(text, "right") for text in ("max", "mean", "% rounded correctly", "worst x")]
    _command.print_table(console, title, ["x", "by", *right], rows, sections)


def draw(curves):
    """A panel for each function and dtype: the largest error near each x."""
    count = len(curves)
    columns = 1 if count == 1 else 2
    lines = -(-count // columns)
    figure = _command.figure(figsize=(8 * columns, 4.5 * lines))
    low, high = PICTURE
    x = low + (np.arange(BINS) + 0.5) * ((high - low) / BINS)
    for number, ((name, dtype), of_one) in enumerate(curves.items()):
        axes = figure.add_subplot(lines, columns, number + 1)
        top = 2.0 ** FORMATS[dtype][0]  # the result 0 is that wrong
        for label, most in reversed(of_one.items()):  # ours last, on top
            axes.semilogy(x, np.clip(most, 0.05, 4 * top), label=label, **_rivals.style(label))
        axes.axhline(0.5, color="black", linewidth=0.6, linestyle=":")
        axes.axhline(top, color="black", linewidth=0.6, linestyle=":")
        note = {"fontsize": 8, "bbox": {"color": "white", "alpha": 0.8, "pad": 1}}
        axes.text(low, 0.45, " below: correctly rounded", ha="left", va="top", **note)
        axes.text(high, 0.9 * top, "no digit right ", ha="right", va="top", **note)
        axes.set_ylim(0.1, 8 * top)
        axes.set_xlim(low, high)
        axes.set_title(f"{name}, {dtype}")
        axes.set_xlabel("x")
        axes.set_ylabel("max error in ULP")
        handles, texts = axes.get_legend_handles_labels()
        axes.legend(handles[::-1], texts[::-1], loc="center right", fontsize=8)
    return figure


def notes(options, libraries, exact):
    yield "Points: even in x, and in log |x| in the last range. inf is a NaN or an infinity."
    if set(options.dtypes) - {"float64"}:
        if exact is None:
            yield "Truth: our float64 functions, not checked: mpmath is not installed."
        else:
            error = self_check(exact, np.random.default_rng(SEED))
            yield (
                f"Truth: our float64 functions; checked against mpmath: {error:.2f} ULP of float64."
            )
    versions = [f"fastgelu {fastgelu.__version__}", _rivals.describe(libraries)]
    yield f"Measured: {', '.join(filter(None, versions))}."


def run(options):
    _command.check_output(options.output)
    console = _command.console()
    if options.output is not None:
        _command.optional("matplotlib.figure")
    libraries = _rivals.chosen(options.rivals)
    exact = None
    try:
        exact = Exact()
    except _command.CommandError:
        if "float64" in options.dtypes:
            raise
    entries = [(name, dtype) for name in options.functions for dtype in options.dtypes]
    problems, curves = {}, {}
    steps = len(entries) * (len(RANGES) + (options.output is not None))
    tables = {}
    with _command.Progress("accuracy", steps) as bar:
        for name, dtype in entries:
            points = options.points or (1000 if dtype == "float64" else 100_000)
            bar.advance(0, f"{name} {dtype}")
            tables[name, dtype], curves[name, dtype] = measure(
                name,
                dtype,
                libraries,
                points,
                exact,
                options.output is not None,
                problems,
                bar.advance,
            )
    for entry, table in tables.items():
        show(console, *entry, table)
    for line in notes(options, libraries, exact):
        console.print(line, markup=False, soft_wrap=not console.is_terminal)
    for library, problem in problems.items():
        print(f"fastgelu: {library} is left out: {problem}", file=sys.stderr)
    if options.output is not None:
        _command.save(draw(curves), options.output)
    return 0


def add_command(commands):
    """Add `accuracy` to the subcommands of ``python -m fastgelu``."""
    parser = commands.add_parser(
        "accuracy",
        help="errors in ULP by range, ours and the installed rivals'",
        description="Measures the largest and the mean error in ULP and the share of correctly "
        "rounded results, by range, of fastgelu and of every rival installed.",
    )
    names = _command.registry_names((1,), compiled=True)
    _command.add_list_option(
        parser, "--functions", names, [n for n in _command.FORMS if n in names], "functions"
    )
    _command.add_list_option(parser, "--dtypes", _command.registry_dtypes(), ["float32"], "dtypes")
    _rivals.add_option(parser)
    parser.add_argument(
        "--points",
        type=_command.between(10, 100_000_000),
        metavar="N",
        help="in each range; default: 100000, and 1000 in float64, where mpmath takes its time",
    )
    parser.add_argument(
        "--output",
        type=_command.output_path(".png", ".svg", ".pdf"),
        metavar="FILE",
        help="a picture of the error against x; an existing file is overwritten",
    )
    parser.set_defaults(run=run)
