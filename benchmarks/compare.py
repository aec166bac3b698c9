# SPDX-License-Identifier: BSD-3-Clause
"""Our functions beside those of NumPy, SciPy and PyTorch, in one interleaved run.

    python benchmarks/compare.py
    python benchmarks/compare.py --functions gelu silu --dtypes float32 --sizes 64Ki --each

Prints a markdown table of nanoseconds an element.
"""

import sys
from pathlib import Path

sys.path.append(str(Path(__file__).parent))  # not there already under python -P

import bench_common as common
import numpy as np
import rivals

FAMILIES = ("NumPy/SciPy", "torch")


def measure(entry, size, seconds):
    """{contender: seconds of one call, an array of one number a round}."""
    inputs = common.data(entry.dtype, size)[-entry.inputs :]
    out = np.empty_like(inputs[0])
    field = [*rivals.contenders(entry.name, entry.dtype), rivals.memory(entry.inputs)]
    times = common.interleave([c.bind(inputs, out) for c in field], seconds)
    return dict(zip(field, times.T, strict=True))


def median_and_least(times, size):
    ns = times / size * 1e9
    return f"{common.number(np.median(ns))} ({common.number(ns.min())})"


def ratio(times, ours):
    """The median over the rounds of the other's time to ours in the same round."""
    return common.number(np.median(times / ours))


def best(results, family):
    """The contender of a family with the least median, or None."""
    candidates = [c for c in results if c.family == family]
    return min(candidates, key=lambda c: np.median(results[c]), default=None)


def summary(entries, sizes, results):
    """One row a function and dtype."""
    header = ["function", "dtype"]
    for size in sizes:
        header.append(f"{common.size_name(size)}: fastgelu")
        for family in FAMILIES:
            header += [family, "ratio"]
    rows = []
    for entry in entries:
        row = [entry.name, entry.dtype]
        for size in sizes:
            of_size = results[entry, size]
            ours = of_size[best(of_size, "fastgelu")]
            row.append(median_and_least(ours, size))
            for family in FAMILIES:
                rival = best(of_size, family)
                if rival is None:
                    row += ["", ""]
                    continue
                label = "" if rival.label == family else f" {rival.label}"
                row += [
                    median_and_least(of_size[rival], size) + label,
                    ratio(of_size[rival], ours),
                ]
        rows.append(row)
    return common.table(header, rows)


def each(entries, sizes, results):
    """One row a function, dtype, size and contender."""
    header = ["function", "dtype", "elements", "by", "median", "least", "GB/s", "ratio"]
    rows = []
    for entry in entries:
        for size in sizes:
            of_size = results[entry, size]
            ours = of_size[best(of_size, "fastgelu")]
            for contender, times in of_size.items():
                ns = times / size * 1e9
                speed = common.bytes_moved(entry, size) / np.median(times) / 1e9
                row = [entry.name, entry.dtype, common.size_name(size), contender.label]
                row += map(common.number, [np.median(ns), ns.min(), speed])
                rows.append([*row, ratio(times, ours)])
    return common.table(header, rows)


def memory_line(entries, sizes, results):
    """The time that moving the bytes alone takes, from the same rounds."""
    parts = []
    for inputs in (1, 2):
        for dtype in dict.fromkeys(entry.dtype for entry in entries):
            for size in sizes:
                runs = [
                    results[entry, size][rivals.memory(inputs)]
                    for entry in entries
                    if entry.inputs == inputs and entry.dtype == dtype
                ]
                if runs:
                    ns = np.median(np.concatenate(runs)) / size * 1e9
                    what = f"{dtype} {common.size_name(size)}"
                    parts.append(f"{rivals.memory(inputs).label} {what} {common.number(ns)}")
    return f"For comparison, NumPy's product, ns an element: {'; '.join(parts)}."


def main(argv=None):
    parser = common.parser(__doc__.splitlines()[0])
    parser.add_argument(
        "--sizes",
        nargs="+",
        type=common.parse_size,
        default=[64 << 10, 16 << 20],
        metavar="N",
        help="elements; default: 64Ki 16Mi",
    )
    parser.add_argument(
        "--threads", type=common.at_least(1), default=1, metavar="N", help="default: 1"
    )
    parser.add_argument(
        "--seconds",
        type=common.at_least(0, float),
        default=1.0,
        metavar="S",
        help="for each function, dtype and size; more where 5 rounds need more; default: 1",
    )
    parser.add_argument("--each", action="store_true", help="one row for each contender")
    args = parser.parse_args(argv)
    common.set_threads(args.threads)

    entries = common.chosen(args)
    results = {}
    for size in args.sizes:
        for entry in sorted(entries, key=lambda entry: entry.dtype):  # keeps common.data's cache
            print(f"{entry.name} {entry.dtype} {common.size_name(size)}", file=sys.stderr)
            results[entry, size] = measure(entry, size, args.seconds)

    print((each if args.each else summary)(entries, args.sizes, results))
    print()
    print(common.describe() + ".")
    threads = "1 thread" if args.threads == 1 else f"{args.threads} threads (NumPy and SciPy: 1)"
    print(
        f"{threads}, preallocated outputs, normal(0, 1) data. Nanoseconds an element: the median "
        "of interleaved rounds (the least). Ratio: the other's time to ours, the median over the "
        "rounds; above 1, ours is faster. NumPy/SciPy and torch: their fastest variant."
    )
    print(memory_line(entries, args.sizes, results))
    if common.same_instructions():
        print(common.same_instructions())


if __name__ == "__main__":
    main()
