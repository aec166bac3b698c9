# SPDX-License-Identifier: BSD-3-Clause
"""The regression gate: is a revision slower than another, on this machine?

    python benchmarks/gate.py HEAD~1                 # the working tree beside HEAD~1
    python benchmarks/gate.py v0.1 --new main --functions gelu silu
    python benchmarks/gate.py --check 20 10 --load   # the gate itself

Builds both, and lets short runs of the two take turns, each in a process of its own. The exit
status is 1 if a function became slower, with a table of which and by how much; 2 if they cannot be
compared. The times are kept in pytest-benchmark's format, for `pytest-benchmark compare`.

A function is slower if the ratio of its least times is above the threshold, in a first measurement
and then in two more of the suspects alone. Least times, since what disturbs a run on a machine that
others use too only ever adds to it; turns, so that a slow minute of the machine meets both.
"""

import argparse
import contextlib
import functools
import itertools
import json
import os
import random
import signal
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import NamedTuple

sys.path.append(str(Path(__file__).parent))  # not there already under python -P

import gate_builds

WORKER = Path(__file__).with_name("gate_worker.py")
STORAGE = gate_builds.ROOT / ".benchmarks" / "compare"

# From runs of one commit beside itself under load (benchmarks/README.md): the ratio that no case of
# them reached in three measurements, and the difference of a call's times below which a ratio of
# two calls of some 100 ns says nothing.
THRESHOLD = 1.1
FLOOR = 20e-9  # seconds a call
CONFIRMATIONS = 2
ROUNDS = 10  # processes of each build in a measurement
BLOCKS = 6  # timed blocks of a case in a process; half as many of calls longer than a block
BLOCK = 2e-4  # seconds: often enough one fits between two disturbances

SIZES = (64, 16 << 10, 1 << 20)
SHORT = (
    ("gelu", "float32"),
    ("gelu", "float64"),
    ("gelu", "bfloat16"),
    ("gelu_backward", "float32"),
    ("gelu_tanh", "float32"),
    ("gelu_sigmoid_grad", "float64"),
    ("silu", "float32"),
    ("silu_grad", "float16"),
)
# What --check slows down by so many percent: each has to be found, and nothing else.
SLOWER = {("gelu", "float32"): 30, ("silu_grad", "float16"): 30, ("gelu_backward", "float32"): 30}


class Case(NamedTuple):
    """One thing that is timed."""

    name: str
    dtype: str
    size: int
    inputs: int

    def __str__(self):
        return f"{self.name}-{self.dtype}-{size_name(self.size)}"


class Result(NamedTuple):
    """What was found about a case: seconds a call, and whether it is a regression."""

    case: Case
    base: float
    new: float
    ratio: float
    slower: bool


def size_name(size):
    """65536 -> "64Ki"."""
    for unit, name in ((1 << 20, "Mi"), (1 << 10, "Ki")):
        if size % unit == 0:
            return f"{size // unit}{name}"
    return str(size)


def parse_size(text):
    """ "64Ki" -> 65536."""
    number, unit = text, 1
    for suffix, factor in (("Ki", 1 << 10), ("Mi", 1 << 20)):
        if text.endswith(suffix):
            number, unit = text.removesuffix(suffix), factor
    if not (number.isascii() and number.isdecimal() and 0 < int(number) * unit <= 1 << 28):
        raise argparse.ArgumentTypeError(f"{text!r} is no size; write 4096, 64Ki or 16Mi")
    return int(number) * unit


# ---- the decision: no clock, no process ------------------------------------------------------


def level(times):
    """The time of a case from the times of its blocks, a list for each process: the least.

    Interference only adds. The least of all is one block of many, though, and a timer may be wrong
    once: so the second least of the processes' least ones.
    """
    least = sorted(min(of_process) for of_process in times)
    return least[min(1, len(least) - 1)]


def compare(case, base, new, threshold, floor):
    """The `Result` for the times of one measurement."""
    base, new = level(base), level(new)
    slower = new > base * threshold and new - base > floor
    return Result(case, base, new, new / base, slower)


def decide(cases, measure, threshold=THRESHOLD, floor=FLOOR, confirmations=CONFIRMATIONS):
    """All `Result`s, and the times of the first measurement.

    measure(cases) returns {case: (times of base, times of new)}, each a list of the blocks' times
    for each process. A case is slower if every measurement of it says so; its figures are then
    those of the last one.
    """
    first = measure(cases)
    results = {case: compare(case, *first[case], threshold, floor) for case in cases}
    for _ in range(confirmations):
        suspects = [case for case in cases if results[case].slower]
        if not suspects:
            break
        again = measure(suspects)
        for case in suspects:
            results[case] = compare(case, *again[case], threshold, floor)
    return list(results.values()), first


# ---- measuring -------------------------------------------------------------------------------


def run_worker(build, cases, counts, blocks):
    """{"target", "counts", "times"} of one process."""
    task = {
        "native": build.native,
        "path": build.path,
        "cases": cases,
        "counts": counts,
        "blocks": blocks,
        "block": BLOCK,
    }
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}
    environment.pop("PYTHONPATH", None)
    done = subprocess.run(
        [sys.executable, "-P", str(WORKER)],
        input=json.dumps(task),
        env=environment,
        capture_output=True,
        text=True,
    )
    if done.returncode:
        last = (done.stderr.strip().splitlines() or [f"exit status {done.returncode}"])[-1]
        raise gate_builds.BuildError(f"{build.commit} does not run: {last}")
    return json.loads(done.stdout)


class Measure:
    """measure(cases) of `decide`, for two builds."""

    def __init__(self, base, new, rounds=ROUNDS, blocks=BLOCKS):
        self._builds, self._rounds, self._blocks = (base, new), rounds, blocks
        self.counts = {}
        self.target = None

    def __call__(self, cases):
        missing = [case for case in cases if case not in self.counts]
        if missing:  # calls a block, for both builds the same
            found = run_worker(self._builds[0], missing, None, 1)
            self.counts.update(zip(missing, found["counts"]))
        times = {case: ([], []) for case in cases}
        targets = set()
        for turn in range(self._rounds):
            order = cases[turn % len(cases) :] + cases[: turn % len(cases)]
            counts = [self.counts[case] for case in order]
            for side in (0, 1) if turn % 2 == 0 else (1, 0):
                found = run_worker(self._builds[side], order, counts, self._blocks)
                targets.add(found["target"])
                for case, of_case in zip(order, found["times"]):
                    times[case][side].append(of_case)
        if len(targets) > 1:
            raise gate_builds.BuildError(f"the two run on different targets: {sorted(targets)}")
        (self.target,) = targets
        return times


# ---- what is compared, and how it is told ----------------------------------------------------


def choose(base, new, sizes, functions=None, dtypes=None, short=False):
    """The cases that both builds have."""
    common = [line for line in base.functions if line in new.functions]
    return [
        Case(line.name, line.dtype, size, line.inputs)
        for size in sizes
        for line in common
        if (functions is None or line.name in functions)
        and (dtypes is None or line.dtype in dtypes)
        and (not short or (line.name, line.dtype) in SHORT)
    ]


def nanoseconds(seconds):
    return f"{seconds * 1e9:,.0f}"


def table(results):
    """Lines of text: a function each, the worst ratio first."""
    rows = [("function", "dtype", "elements", "base, ns", "new, ns", "change")]
    for result in sorted(results, key=lambda result: -result.ratio):
        name, dtype, size, _ = result.case
        change = f"{100 * (result.ratio - 1):+.1f} %"
        times = nanoseconds(result.base), nanoseconds(result.new)
        rows.append((name, dtype, size_name(size), *times, change))
    widths = [max(map(len, column)) for column in zip(*rows)]
    for row in rows:
        cells = [cell.ljust(width) for cell, width in zip(row[:2], widths)]
        cells += [cell.rjust(width) for cell, width in zip(row[2:], widths[2:])]
        yield "  ".join(cells).rstrip()


def report(results, every, threshold):
    slower = [result for result in results if result.slower]
    faster = [result for result in results if result.ratio < 1 / threshold]
    if every or slower:
        yield from table(results if every else slower)
    elif faster:
        yield from table(faster)
    ratios = sorted(result.ratio for result in results)
    yield (
        f"{len(slower)} of {len(results)} slower by more than {100 * (threshold - 1):.0f} %, "
        f"{len(faster)} faster; ratios of new to base from {ratios[0]:.3f} to {ratios[-1]:.3f}, "
        f"median {ratios[len(ratios) // 2]:.3f}"
    )


def store(build, side, times, counts, target):
    """Write one side as pytest-benchmark does; returns the file."""
    from pytest_benchmark.plugin import pytest_benchmark_generate_machine_info
    from pytest_benchmark.stats import Stats

    benchmarks = []
    for case, sides in times.items():
        stats = Stats()
        for seconds in itertools.chain.from_iterable(sides[side]):
            stats.update(seconds)
        benchmarks.append(
            {
                "group": f"{case.name} {case.dtype} {size_name(case.size)}",
                "name": str(case),
                "fullname": f"benchmarks/gate.py::{case}",
                "params": None,
                "param": None,
                "extra_info": {**case._asdict(), "ns_per_element": stats.min / case.size * 1e9},
                "options": {"timer": "perf_counter", "disable_gc": False, "warmup": True},
                "stats": {**stats.as_dict(), "iterations": counts[case], "data": stats.data},
            }
        )
    machine = pytest_benchmark_generate_machine_info()
    content = {
        "machine_info": {**machine, "fastgelu_target": target},
        "commit_info": {"id": build.commit, "dirty": build.commit == "working tree"},
        "benchmarks": benchmarks,
        "datetime": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
        "version": __import__("pytest_benchmark").__version__,
    }
    STORAGE.mkdir(parents=True, exist_ok=True)
    path = STORAGE / f"{('base', 'new')[side]}.json"
    path.write_text(json.dumps(content, indent=1) + "\n", encoding="utf-8")
    return path


def say(text):
    print(text, flush=True)


def gate(options):
    """Compare two revisions. Returns the exit status."""
    with ThreadPoolExecutor(2) as pool:
        revisions = (options.base, options.new)
        build = functools.partial(gate_builds.build, native=options.native, say=say)
        base, new = pool.map(build, revisions)
    if base.path == new.path:
        say(f"{base.commit} and {new.commit} are built of the same sources: nothing to compare")
        return 0
    cases = choose(base, new, options.sizes, options.functions, options.dtypes, options.short)
    if not cases:
        raise gate_builds.BuildError("the two have none of these functions in common")
    measure = Measure(base, new, options.rounds)
    start = time.monotonic()
    results, times = decide(cases, measure, options.threshold, options.floor * 1e-9)
    spent = time.monotonic() - start
    say(f"base: {base.commit}, new: {new.commit}; {measure.target}, one thread, {spent:.0f} s")
    for line in report(results, options.all, options.threshold):
        say(line)
    with contextlib.suppress(ImportError):  # the gate needs no pytest-benchmark, its files do
        files = [
            store(*side, times, measure.counts, measure.target) for side in ((base, 0), (new, 1))
        ]
        say("all times: pytest-benchmark compare " + " ".join(map(os.path.relpath, files)))
    return int(any(result.slower for result in results))


# ---- the gate itself -------------------------------------------------------------------------


def load():
    """Computes and copies in bursts, until it is stopped, on the last CPU."""
    import numpy as np

    with contextlib.suppress(AttributeError, OSError):
        os.sched_setaffinity(0, {max(os.sched_getaffinity(0))})
    x, y = np.ones((2, 4 << 20))
    draw = random.Random(1)
    while os.getppid() == LOADED_BY:
        end = time.monotonic() + draw.uniform(0.01, 1)
        busy = draw.choice((np.copyto, lambda y, x: np.exp(x[:10000], out=y[:10000]), None))
        while time.monotonic() < end:
            if busy is None:
                time.sleep(0.01)
            else:
                busy(y, x)


LOADED_BY = int(os.environ.get("FASTGELU_GATE_LOADED_BY", "0"))


@contextlib.contextmanager
def loaded(wanted):
    """With a load on the other core."""
    if not wanted:
        yield
        return
    environment = {**os.environ, "FASTGELU_GATE_LOADED_BY": str(os.getpid())}
    process = subprocess.Popen([sys.executable, "-P", __file__, "--run-load"], env=environment)
    try:
        yield
    finally:
        process.send_signal(signal.SIGKILL)
        process.wait()


def check(options):
    """Compare a build with itself, and with one that is slower. Returns the exit status."""
    quiet_runs, slow_runs = options.check
    base = gate_builds.build(options.new, options.native, say=say)
    slow = slow_runs and gate_builds.build(base.tree, options.native, SLOWER, say=say)
    cases = choose(base, base, options.sizes, options.functions, options.dtypes, options.short)
    wanted = {pair for pair in SLOWER if any(case[:2] == pair for case in cases)}
    alarms = missed = wrong = 0
    with loaded(options.load):
        for number in range(quiet_runs + slow_runs):
            new = base if number < quiet_runs else slow
            measure = Measure(base, new, options.rounds)
            start = time.monotonic()
            results, times = decide(cases, measure, options.threshold, options.floor * 1e-9)
            found = {result.case[:2] for result in results if result.slower}
            if new is base:
                label, good = "itself", not found
                alarms += not good
            else:
                label, good = "slower build", found >= wanted
                missed += not good
                wrong += bool(found - wanted)
            say(f"run {number + 1}, {label}, {time.monotonic() - start:.0f} s")
            for line in report(results, options.all, options.threshold):
                say(f"  {line}")
            if options.log:
                raw = [[case, *times[case]] for case in cases]
                with open(options.log, "a", encoding="utf-8") as log:
                    log.write(json.dumps({"slower": new is slow, "times": raw}) + "\n")
    say(f"{quiet_runs} runs of one build beside itself: {alarms} with an alarm")
    names = ", ".join(f"{name} {dtype}" for name, dtype in sorted(wanted))
    say(
        f"{slow_runs} runs beside a build with kernels slower by 30 % ({names}): "
        f"{slow_runs - missed} found all, {wrong} named others too"
    )
    return int(bool(alarms or missed))


def at_least(minimum, kind=int):
    """A type for argparse: a number not below the minimum."""

    def parse(text):
        value = kind(text)
        if not value >= minimum:
            raise argparse.ArgumentTypeError(f"must be at least {minimum}, not {text}")
        return value

    parse.__name__ = "number"
    return parse


def main(argv=None):
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("base", nargs="?", metavar="BASE", help="a revision: a commit, tag, branch")
    parser.add_argument(
        "--new", default=".", metavar="REVISION", help="default: the working tree as it is"
    )
    parser.add_argument("--functions", nargs="+", metavar="NAME", help="default: all")
    parser.add_argument("--dtypes", nargs="+", metavar="DTYPE", help="default: all")
    parser.add_argument("--sizes", nargs="+", type=parse_size, metavar="N")
    parser.add_argument("--short", action="store_true", help="a few functions, one size")
    parser.add_argument(
        "--native",
        action="store_true",
        help="build and call the C library alone, with this machine's target: no call's cost",
    )
    parser.add_argument(
        "--rounds",
        type=at_least(3),
        default=ROUNDS,
        metavar="N",
        help=f"processes of each; default: {ROUNDS}",
    )
    parser.add_argument(
        "--threshold",
        type=at_least(1, float),
        default=THRESHOLD,
        help=f"ratio above which a function is slower; default: {THRESHOLD}",
    )
    parser.add_argument(
        "--floor",
        type=at_least(0, float),
        default=FLOOR * 1e9,
        metavar="NS",
        help=f"nanoseconds a call that never count; default: {FLOOR * 1e9:.0f}",
    )
    parser.add_argument("--all", action="store_true", help="every function in the table")
    parser.add_argument(
        "--check",
        nargs=2,
        type=at_least(0),
        metavar=("RUNS", "SLOW_RUNS"),
        help="check the gate: so many comparisons of a build with itself, which must be silent, "
        "and with one that is slower, which must be found",
    )
    parser.add_argument("--load", action="store_true", help="--check: with a load on another core")
    parser.add_argument("--log", metavar="FILE", help="--check: add all times to this file")
    parser.add_argument("--run-load", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args(argv)
    if options.run_load:
        return load()
    if (options.base is None) == (options.check is None):
        parser.error("give either BASE or --check")
    if options.sizes is None:
        options.sizes = (16 << 10,) if options.short or options.native else SIZES
    try:
        return check(options) if options.check else gate(options)
    except gate_builds.BuildError as error:
        print(f"gate: {error}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        print("gate: interrupted", file=sys.stderr)
        return 2


if __name__ == "__main__":
    sys.exit(main())
