# SPDX-License-Identifier: BSD-3-Clause
"""Whether some inputs cost more than others, and what a call and a stride cost.

    python benchmarks/cliff.py
    python benchmarks/cliff.py --functions gelu --dtypes float32 --elements 4Ki

Prints two markdown tables: the time on unusual data as a ratio to that on normal(0, 1) data, and
the time of a call for one element.
"""

import functools
import sys
from pathlib import Path

sys.path.append(str(Path(__file__).parent))  # not there already under python -P

import bench_common as common
import numpy as np
import rivals

import fastgelu

# No kind of data should cost more than so many times what normal(0, 1) data does.
GOAL = 1.5


def where_it_falls(function, dtype, magnitude):
    """Negative neighbours in dtype: the result is of that magnitude at the first, not at the next.

    Past -3 all the functions fall.
    """
    near, far = dtype.type(-3), dtype.type(-10000)
    while True:
        middle = dtype.type((near + far) / 2)
        if middle in (near, far):
            return float(near), float(far)
        if abs(function(middle)) >= magnitude:
            near = middle
        else:
            far = middle


def kinds(entry, size):
    """{what: x} for the unusual data; the tails are where this function has them."""
    rng = np.random.default_rng(common.SEED)
    dtype = common.numpy_dtype(entry.dtype)
    info = finfo(entry.dtype)
    form, kind = rivals.split(entry.name)
    function = getattr(fastgelu, f"{form}_grad" if kind == "_backward" else entry.name)
    normal, subnormal = where_it_falls(function, dtype, info.tiny)
    end, _ = where_it_falls(function, dtype, info.smallest_subnormal)
    sign = rng.choice([-1.0, 1.0], size)
    x = {
        "negative": -np.abs(rng.standard_normal(size)),
        "deep tail": rng.uniform(normal, normal / 2, size),
        "subnormal result": rng.uniform(end, subnormal, size),
        "subnormal x": rng.uniform(0, 1, size) * sign * float(info.tiny),
        "inf": np.inf * sign,
        "NaN": np.full(size, np.nan),
    }
    return {what: values.astype(dtype) for what, values in x.items()}


def finfo(dtype):
    """numpy.finfo, for bfloat16 too."""
    if dtype == "bfloat16":
        import ml_dtypes

        return ml_dtypes.finfo(dtype)
    return np.finfo(dtype)


def data_table(entries, size, seconds):
    """Ratios to normal(0, 1) data, and of every second element to adjacent ones."""
    rows, worst = [], (0.0, "")
    for entry in entries:
        print(f"{entry.name} {entry.dtype}", file=sys.stderr)
        function = getattr(fastgelu, entry.name)
        dy, x = common.data(entry.dtype, size)
        data = {"normal": x, **kinds(entry, size)}
        calls = []
        for values in data.values():
            args = [dy, values][-entry.inputs :]
            calls.append(functools.partial(function, *args, out=np.empty_like(x)))
        spread = [np.repeat(values, 2)[::2] for values in [dy, x][-entry.inputs :]]
        calls.append(functools.partial(function, *spread, out=np.empty(2 * size, x.dtype)[::2]))
        with np.errstate(all="ignore"):
            times = common.interleave(calls, seconds)
        ratios = np.median(times / times[:, :1], axis=0)
        names = [*data, "every second element"]
        worst = max(
            worst,
            *((r, f"{entry.name} {entry.dtype}, {what}") for r, what in zip(ratios[:-1], names)),
        )
        ns = np.median(times[:, 0]) / size * 1e9
        rows.append([entry.name, entry.dtype, *map(common.number, [ns, *ratios[1:]])])
    header = ["function", "dtype", "normal, ns", *names[1:]]
    return common.table(header, rows), worst


def call_table(entries, seconds):
    """Nanoseconds of a call for one element, beside np.exp and the fastest of the others."""
    rows = []
    for entry in entries:
        inputs = common.data(entry.dtype, 1)[-entry.inputs :]
        out = np.empty_like(inputs[0])
        field = rivals.contenders(entry.name, entry.dtype)
        calls = [functools.partial(np.exp, inputs[0], out=out)]
        times = common.interleave(calls + [c.bind(inputs, out) for c in field], seconds)
        ns = np.median(times, axis=0) * 1e9
        row = [entry.name, entry.dtype, ns[1], np.median(times[:, 1] / times[:, 0]), ns[0]]
        for family in ("NumPy/SciPy", "torch"):
            row.append(min((t for c, t in zip(field, ns[1:]) if c.family == family), default=None))
        rows.append(row[:2] + ["" if cell is None else common.number(cell) for cell in row[2:]])
    header = ["function", "dtype", "fastgelu", "to np.exp", "np.exp", "NumPy/SciPy", "torch"]
    return common.table(header, rows)


def spread_line(size, seconds):
    """The same for a NumPy function as the last column of the first table has for ours."""
    x = common.data("float32", size)[1]
    near = functools.partial(np.exp, x, out=np.empty_like(x))
    far = functools.partial(np.exp, np.repeat(x, 2)[::2], out=np.empty(2 * size, x.dtype)[::2])
    times = common.interleave([near, far], seconds)
    ratio = common.number(np.median(times[:, 1] / times[:, 0]))
    return f"Every second element costs np.exp {ratio} times as much (float32)."


def main(argv=None):
    parser = common.parser(__doc__.splitlines()[0])
    parser.add_argument(
        "--elements",
        type=common.parse_size,
        default=16 << 10,
        metavar="N",
        help="of the arrays; default: 16Ki",
    )
    parser.add_argument(
        "--seconds",
        type=common.at_least(0, float),
        default=0.5,
        metavar="S",
        help="for each row, at least; default: 0.5",
    )
    args = parser.parse_args(argv)
    common.set_threads(1)

    data, (ratio, where) = data_table(common.chosen(args), args.elements, args.seconds)
    print(data)
    print()
    print(common.describe() + ".")
    print(
        f"{common.size_name(args.elements)} elements, 1 thread; medians over interleaved rounds. "
        f"The highest ratio for a kind of data is {common.number(ratio)} ({where}); the goal is at "
        f"most {GOAL}."
    )
    print(spread_line(args.elements, args.seconds))
    print()
    print(
        "Nanoseconds of a call for one element, out= given; NumPy/SciPy and torch: their fastest."
    )
    print()
    print(call_table(common.chosen(args), args.seconds))


if __name__ == "__main__":
    main()
