# SPDX-License-Identifier: BSD-3-Clause
"""``python -m fastgelu bench``: our times beside the installed rivals', in one interleaved run."""

import argparse
import contextlib
import json
import math
import platform
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np

import fastgelu
from fastgelu import _command, _rivals, _threads

SEED = 20240229
SIZES = (1 << 10, 16 << 10, 256 << 10, 4 << 20)
BLOCK = 1e-3  # seconds: a clock's tick and a call's cost are nothing beside it
PAUSE = 10e-3  # seconds in which other libraries' threads stop waiting busily for more work
MIN_ROUNDS = 5
COPY = "copy"  # the label of the machine's copy speed: as many bytes, moved by NumPy
INPUTS = {f.name: f.inputs for f in fastgelu.functions()}


# ---- sizes -----------------------------------------------------------------------------------


def size_name(size):
    """65536 -> "64Ki"."""
    for unit, name in ((1 << 20, "Mi"), (1 << 10, "Ki")):
        if size % unit == 0:
            return f"{size // unit}{name}"
    return str(size)


def parse_size(text):
    """ "64Ki" -> 65536."""
    number, unit = text, 1
    for suffix, factor in (("Ki", 1 << 10), ("Mi", 1 << 20), ("Gi", 1 << 30)):
        if text.endswith(suffix):
            number, unit = text.removesuffix(suffix), factor
    if not (number.isascii() and number.isdecimal() and 0 < int(number[:12]) * unit <= 1 << 34):
        raise argparse.ArgumentTypeError(f"{text!r} is no size; write 4096, 64Ki or 16Mi")
    return int(number) * unit


# ---- measuring -------------------------------------------------------------------------------


def merge(dy, x, out):
    """Reads two arrays and writes one: the bits of either."""
    bits = f"u{x.itemsize}"
    np.bitwise_or(dy.view(bits), x.view(bits), out=out.view(bits))


class Copy:
    """Copies an array, or two into one, on as many threads as the others compute on."""

    def __init__(self, threads):
        self._threads = threads
        self._pool = ThreadPoolExecutor(threads) if threads > 1 else None

    def bind(self, inputs, out):
        move = merge if len(inputs) == 2 else lambda x, out: np.copyto(out, x)
        if self._pool is None or out.nbytes < 512 << 10:  # not worth a thread
            return _rivals.Bound(lambda: move(*inputs, out))
        parts = [np.array_split(array, self._threads) for array in (*inputs, out)]

        def call():
            list(self._pool.map(move, *parts))

        return _rivals.Bound(call)


def repetitions(call):
    """How often to call for about BLOCK seconds; warms up."""
    call()
    count = 1
    while True:
        start = time.perf_counter()
        for _ in range(count):
            call()
        spent = time.perf_counter() - start
        if spent >= BLOCK / 4:
            return max(1, math.ceil(count * BLOCK / spent))
        count *= 4


def interleave(calls, seconds, threads=1):
    """Time calls in turns, so that all meet the same disturbances; each round begins with another.

    With threads there is a pause before each turn, and a call that wakes the threads up.

    Returns an array of seconds a call, of shape (rounds, calls).
    """
    counts = [repetitions(call) for call in calls]
    rounds = []
    end = time.perf_counter() + seconds
    while len(rounds) < MIN_ROUNDS or time.perf_counter() < end:
        times = [0.0] * len(calls)
        for turn in range(len(calls)):
            which = (len(rounds) + turn) % len(calls)
            call, count = calls[which], counts[which]
            if threads > 1:
                time.sleep(PAUSE)
                call()
            start = time.perf_counter()
            for _ in range(count):
                call()
            times[which] = (time.perf_counter() - start) / count
        rounds.append(times)
    return np.array(rounds)


def measure(case, libraries, threads, seconds, copy, problems):
    """One result, a dict for JSON: the figures of each contender."""
    name, dtype, size = case
    rng = np.random.default_rng(SEED)
    drawn = np.float64 if dtype == "float64" else np.float32
    inputs = tuple(
        rng.standard_normal(size, drawn).astype(_command.numpy_dtype(dtype), copy=False)
        for _ in range(INPUTS[name])
    )
    out = np.empty_like(inputs[0])
    calls = {}
    for rival in _rivals.contenders(name, dtype, libraries, threads, problems):
        try:
            call = rival.bind(inputs, out).call
            call()  # compiles, where there is something to compile
            calls[rival.label] = call
        except Exception as error:  # the others go on
            problems[rival.library.lower()] = _rivals.brief(error)
    calls[COPY] = copy.bind(inputs, out).call
    times = dict(zip(calls, interleave(list(calls.values()), seconds, threads).T))
    ours = times["fastgelu"]
    moved = (len(inputs) + 1) * out.nbytes
    figures = {}
    for label, of_one in times.items():
        figures[label] = {
            "median_ns": float(np.median(of_one)) / size * 1e9,
            "least_ns": float(of_one.min()) / size * 1e9,
            "gigabytes_per_second": moved / float(np.median(of_one)) / 1e9,
            # in the same round, so that what slows a round down slows both
            "times_ours": float(np.median(of_one / ours)),
        }
    result = {"function": name, "dtype": dtype, "size": size, "rounds": len(ours)}
    return {**result, "fastest_rival": fastest(figures, "median"), "contenders": figures}


def fastest(figures, which):
    """The rival with the least median, or least of all times; None where there is no rival."""
    rivals = [label for label in figures if label not in ("fastgelu", COPY)]
    return min(rivals, key=lambda label: figures[label][f"{which}_ns"], default=None)


# ---- showing ---------------------------------------------------------------------------------

# Columns, as _command.print_table takes them.
SUMMARY = (
    "function",
    "dtype",
    ("size", "right"),
    ("ours", "right"),
    "fastest rival",
    ("rival", "right"),
    ("rival / ours", "right"),
    ("copy", "right"),
)
DETAILS = (
    "elements",
    "by",
    ("median ns", "right"),
    ("least ns", "right"),
    ("GB/s", "right"),
    ("time / ours", "right"),
)


def summary(results):
    """The title, the columns and the rows of a table in ns an element."""
    which = "least" if noisy(results) else "median"
    title, columns, rows = f"Summary: {which} ns an element", list(SUMMARY), []
    for result in results:
        rows.append(summary_row(result, which))
    dtypes = {result["dtype"] for result in results}
    if len(dtypes) == 1:  # then the table fits into 80 columns
        title = f"{title}, {dtypes.pop()}"
        columns.pop(1)
        for row in rows:
            row.pop(1)
    return title, columns, rows


def summary_row(result, which):
    figures, number = result["contenders"], _command.number
    rival = fastest(figures, which)
    ours, copy = (figures[label][f"{which}_ns"] for label in ("fastgelu", COPY))
    row = [result["function"], result["dtype"], size_name(result["size"]), number(ours)]
    if rival is None:
        return [*row, "none", "", "", number(copy)]
    theirs = figures[rival][f"{which}_ns"]
    ratio = figures[rival]["times_ours"] if which == "median" else theirs / ours
    return [*row, rival, number(theirs), number(ratio), number(copy)]


def detail_rows(results):
    rows, sections = [], set()
    for result in results:
        for label, figures in result["contenders"].items():
            first = label == "fastgelu"
            rows.append(
                [
                    size_name(result["size"]) if first else "",
                    label,
                    _command.number(figures["median_ns"]),
                    _command.number(figures["least_ns"]),
                    _command.number(figures["gigabytes_per_second"]),
                    "" if first else _command.number(figures["times_ours"]),
                ]
            )
        sections.add(len(rows) - 1)
    return rows, sections


def grouped(results):
    """{(function, dtype): its results}"""
    groups = {}
    for result in results:
        groups.setdefault((result["function"], result["dtype"]), []).append(result)
    return groups


def noisy(results):
    """Whether the medians tell more about the machine than about the libraries."""
    return any(
        figures["median_ns"] > 3 * figures["least_ns"]
        for result in results
        for figures in result["contenders"].values()
    )


def notes(results, setting):
    threads = setting["threads"]
    lines = [
        "ns an element: the median of interleaved rounds; GB/s: read and written. Ratios: medians "
        "over the rounds; above 1, fastgelu is faster. Preallocated outputs (not JAX), "
        "normal(0, 1) data, warm. copy: the same bytes moved by NumPy, the roof for large sizes.",
        f"Threads: {threads}"
        + (" for all but NumPy and SciPy, which have 1." if threads > 1 else ".")
        + (" JAX chooses its own." if "jax" in setting["rivals"] and threads > 1 else ""),
        f"{setting['machine']}, Python {setting['python']}, fastgelu {setting['fastgelu']} "
        f"({setting['target']}), "
        + ", ".join(f"{name} {version}" for name, version in setting["rivals"].items())
        + ".",
    ]
    if noisy(results):
        lines.append(
            "Some medians are more than three times the least: this machine was not idle, or some "
            "library's threads wait busily. So summary and chart show the least times."
        )
    return lines


def processor():
    with contextlib.suppress(OSError):
        for line in Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    return platform.processor() or platform.machine()


def describe(options, libraries):
    return {
        "machine": processor(),
        "python": platform.python_version(),
        "fastgelu": fastgelu.__version__,
        "target": fastgelu.target(),
        "threads": options.threads,
        "rivals": {name: _rivals.version(name) for name in libraries},
    }


def show(console, results, setting):
    for (name, dtype), of_one in grouped(results).items():
        _command.print_table(console, f"{name}, {dtype}", DETAILS, *detail_rows(of_one))
    _command.print_table(console, *summary(results))
    for line in notes(results, setting):
        console.print(line, markup=False, soft_wrap=not console.is_terminal)


def markdown(results, setting):
    def lines(columns, rows):
        columns = [(column, "left") if isinstance(column, str) else column for column in columns]
        yield f"| {' | '.join(name for name, _ in columns)} |"
        yield f"| {' | '.join('---:' if side == 'right' else '---' for _, side in columns)} |"
        yield from (f"| {' | '.join(row)} |" for row in rows)
        yield ""

    title, *table = summary(results)
    parts = [f"{title}:", "", *lines(*table)]
    for (name, dtype), of_one in grouped(results).items():
        parts += [f"{name}, {dtype}:", "", *lines(DETAILS, detail_rows(of_one)[0])]
    for line in notes(results, setting):
        parts += [line, ""]
    return "\n".join(parts)


def draw(results):
    """A panel for each function and dtype: ns an element over the size."""
    groups = grouped(results)
    which = "least" if noisy(results) else "median"
    columns = 1 if len(groups) == 1 else 2
    lines = -(-len(groups) // columns)
    figure = _command.figure(figsize=(8 * columns, 4.5 * lines))
    for number, ((name, dtype), of_one) in enumerate(groups.items()):
        axes = figure.add_subplot(lines, columns, number + 1)
        sizes = sorted({result["size"] for result in of_one})
        labels = dict.fromkeys(label for result in of_one for label in result["contenders"])
        for label in labels:
            points = sorted(
                (result["size"], result["contenders"][label][f"{which}_ns"])
                for result in of_one
                if label in result["contenders"]
            )
            axes.plot(*zip(*points), marker="o", markersize=3, label=label, **_rivals.style(label))
        axes.set_xscale("log", base=2)
        axes.set_yscale("log")
        axes.set_xticks(sizes, [size_name(size) for size in sizes])
        axes.minorticks_off()
        axes.yaxis.set_major_formatter(lambda value, _: f"{value:g}")
        axes.grid(alpha=0.3)
        axes.set_title(f"{name}, {dtype}")
        axes.set_xlabel("elements")
        axes.set_ylabel(f"ns an element, {which}")
        # beside the lines, which fill the panel
        axes.legend(loc="center left", bbox_to_anchor=(1.01, 0.5), fontsize=8)
    return figure


def write(path, results, setting):
    kind = path.suffix.lower()
    if kind == ".json":
        path.write_text(json.dumps({**setting, "results": results}, indent=1) + "\n")
    elif kind == ".md":
        path.write_text(markdown(results, setting), encoding="utf-8")
    else:
        _command.save(draw(results), path)
        return
    print(f"wrote {path}", file=sys.stderr)


# ---- the command -----------------------------------------------------------------------------


def run(options):
    with fastgelu.num_threads(options.threads):
        return compare(options)


def compare(options):
    for path in options.output or ():
        _command.check_output(path)
        if path.suffix.lower() not in (".json", ".md"):
            _command.optional("matplotlib.figure")
    console = _command.console()
    libraries = _rivals.chosen(options.rivals)
    have = fastgelu.get_num_threads()
    if have != options.threads:
        raise _command.CommandError(
            f"cannot compare on {options.threads} threads: this fastgelu runs on {have}"
        )
    cases = [
        (name, dtype, size)
        for name in options.functions
        for dtype in options.dtypes
        for size in options.sizes
    ]
    results, problems, status = [], {}, 0
    copy = Copy(options.threads)
    try:
        with _command.Progress("bench", len(cases)) as bar:
            for case in cases:
                name, dtype, size = case
                bar.advance(0, f"{name} {dtype} {size_name(size)}")
                seconds = options.seconds / len(cases)
                results.append(measure(case, libraries, options.threads, seconds, copy, problems))
                bar.advance()
    except KeyboardInterrupt:
        status = 1
    except MemoryError as error:
        raise _command.CommandError(f"not enough memory for {size_name(size)} elements") from error
    setting = describe(options, libraries)
    if results:
        show(console, results, setting)
        for path in options.output or ():
            write(path, results, setting)
    for library, problem in problems.items():
        print(f"fastgelu: {library} is left out: {problem}", file=sys.stderr)
    if status:
        done = f"{len(results)} of {len(cases)} measured"
        print(f"fastgelu: interrupted: {done}", file=sys.stderr)
    return status


def add_command(commands):
    """Add `bench` to the subcommands of ``python -m fastgelu``."""
    parser = commands.add_parser(
        "bench",
        help="times beside the installed rivals'",
        description="Measures ns an element and GB/s of fastgelu and of every rival installed, in "
        "turns: same data, same threads, warm. Ctrl-C prints what there is by then.",
    )
    names = _command.registry_names(compiled=True)
    default = ["gelu", "gelu_tanh", "silu", "gelu_grad", "gelu_backward"]
    _command.add_list_option(parser, "--functions", names, default, "functions")
    _command.add_list_option(parser, "--dtypes", _command.registry_dtypes(), ["float32"], "dtypes")
    parser.add_argument(
        "--sizes",
        nargs="+",
        type=parse_size,
        default=list(SIZES),
        metavar="N",
        help=f"elements; default: {' '.join(map(size_name, SIZES))}",
    )
    parser.add_argument(
        "--threads",
        type=_command.between(1, _threads.MOST),
        default=1,
        metavar="N",
        help="default: 1",
    )
    parser.add_argument(
        "--seconds",
        type=_command.between(0, 86400, float),
        default=40.0,
        metavar="S",
        help=f"for all together; more where {MIN_ROUNDS} rounds of each need more, and for what "
        "is to be compiled before; default: 40",
    )
    _rivals.add_option(parser)
    parser.add_argument(
        "--output",
        action="append",
        type=_command.output_path(".png", ".svg", ".pdf", ".json", ".md"),
        metavar="FILE",
        help="a chart, JSON or markdown, by the name's end; may be given more than once; an "
        "existing file is overwritten",
    )
    parser.set_defaults(run=run)
