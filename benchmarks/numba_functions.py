# SPDX-License-Identifier: BSD-3-Clause
"""The functions in code that Numba compiles: bits, errors and times, beside what users write.

    python benchmarks/numba_functions.py
    python benchmarks/numba_functions.py --functions gelu --dtypes float32 --seconds 3

Needs Numba, SciPy and mpmath. Prints three markdown tables: each function in a compiled loop, by
an array call and as the ufunc, beside the formula that a user writes with math.erf, tanh or exp and
fastmath=True; a user's fused loop beside passes over arrays; the parallel functions on large
arrays.
"""

import math
import sys
from pathlib import Path

sys.path.append(str(Path(__file__).parent))  # not there already under python -P

import accuracy_table
import bench_common as common
import numpy as np
import rivals

import fastgelu

try:
    import numba

    import fastgelu.numba
except ImportError as error:
    sys.exit(f"numba_functions: {error}; to install what it needs: pip install 'fastgelu[numba]'")

RANGE = (-14, 6)

# What a user writes, whose accuracy stands beside its time.
NAIVE = {
    "gelu": "0.5 * x * (one + math.erf(x * root_half))",
    "gelu_tanh": "0.5 * x * (one + math.tanh(root_2_pi * (x + cubic * x * x * x)))",
    "gelu_sigmoid": "x / (one + math.exp(-factor * x))",
    "silu": "x / (one + math.exp(-x))",
}


def naive_loop(name, dtype):
    """The formula in a loop, its constants of the dtype, compiled with fastmath=True."""
    real = np.dtype(dtype).type
    names = {
        "math": math,
        "one": real(1),
        "root_half": real(math.sqrt(0.5)),
        "root_2_pi": real(math.sqrt(2 / math.pi)),
        "cubic": real(0.044715),
        "factor": real(1.702),
    }
    formula = NAIVE[name].replace("0.5", "half")
    names["half"] = real(0.5)
    exec(
        f"def loop(x, y):\n    for i in range(x.size):\n        y[i] = naive(x[i])\n"
        f"def naive(x):\n    return {formula}\n",
        names,
    )
    names["naive"] = numba.njit(fastmath=True)(names["naive"])
    return numba.njit(fastmath=True)(names["loop"])


def compiled(name):
    """(a loop over scalars, an array call), both of (inputs..., out)."""
    f = getattr(fastgelu, name)
    if f.nin == 1:

        @numba.njit
        def loop(x, y):
            for i in range(x.size):
                y[i] = f(x[i])

        @numba.njit
        def arrays(x, y):
            f(x, out=y)

    else:

        @numba.njit
        def loop(dy, x, y):
            for i in range(x.size):
                y[i] = f(dy[i], x[i])

        @numba.njit
        def arrays(dy, x, y):
            f(dy, x, out=y)

    return loop, arrays


def bound(function, *args):
    return lambda: function(*args)


def contender(function):
    """A function (inputs..., out) as accuracy_table wants it."""
    return rivals.Contender("Numba", "loop", lambda inputs, out: bound(function, *inputs, out))


def least(times, size):
    """ns an element: the median of the rounds, and the least."""
    ns = times / size * 1e9
    return [
        f"{common.number(median)} ({common.number(low)})"
        for median, low in zip(np.median(ns, axis=0), ns.min(axis=0))
    ]


def functions_row(entry, size, points, seconds):
    ufunc = getattr(fastgelu, entry.name)
    loop, arrays = compiled(entry.name)
    inputs = common.data(entry.dtype, size)[-entry.inputs :]
    out = np.empty_like(inputs[0])
    calls = [bound(f, *inputs, out) for f in (loop, arrays, ufunc)]
    rng = np.random.default_rng(common.SEED)
    x = rng.uniform(*RANGE, points).astype(entry.dtype)
    args = accuracy_table.with_dy(entry, x, rng)
    got = np.empty_like(x)
    loop(*args, got)
    want = ufunc(*args)
    unsigned = f"u{x.itemsize}"
    equal = np.count_nonzero(got.view(unsigned) == want.view(unsigned))
    naive_error = ""
    if entry.name in NAIVE:
        naive = naive_loop(entry.name, entry.dtype)
        calls.append(bound(naive, *inputs, out))
        truth = accuracy_table.truth(entry, args)
        ours, theirs = (
            common.number(accuracy_table.measure(entry, contender(f), args, truth, False)[0])
            for f in (loop, naive)
        )
        naive_error = f"{theirs} (ours {ours})"
    times = least(common.interleave(calls, seconds), size)
    times += [""] * (4 - len(times))
    return [entry.name, entry.dtype, f"{equal:,} of {points:,}", *times, naive_error]


@numba.njit
def fused(x, b, g, y):
    for i in range(x.size):
        y[i] = fastgelu.gelu(x[i] + b[i]) * g[i]


def passes(x, b, g, y):
    np.add(x, b, out=y)
    fastgelu.gelu(y, out=y)
    np.multiply(y, g, out=y)


def fused_row(dtype, size, seconds):
    x, b = common.data(dtype, size)
    g = b[::-1].copy()
    y, z = np.empty_like(x), np.empty_like(x)
    fused(x, b, g, y)
    passes(x, b, g, z)
    assert (y == z).all()
    times = common.interleave([bound(fused, x, b, g, y), bound(passes, x, b, g, y)], seconds)
    ratio = np.median(times[:, 1] / times[:, 0])
    return [dtype, common.size_name(size), *least(times, size), common.number(ratio)]


def parallel_row(entry, size, seconds):
    ufunc, ours = getattr(fastgelu, entry.name), getattr(fastgelu.numba, entry.name)
    inputs = common.data(entry.dtype, size)[-entry.inputs :]
    out = np.empty_like(inputs[0])
    calls = [lambda: ours(*inputs, out=out), lambda: ufunc(*inputs, out=out)]
    times = common.interleave(calls, seconds)
    ratio = np.median(times[:, 1] / times[:, 0])
    row = [entry.name, entry.dtype, common.size_name(size)]
    return [*row, *least(times, size), common.number(ratio)]


def main(argv=None):
    parser = common.parser(__doc__.splitlines()[0])
    kinds = {"type": common.at_least(0.0, float), "default": 0.5, "metavar": "S"}
    parser.add_argument("--seconds", help="for each row of a table (default 0.5)", **kinds)
    parser.add_argument("--points", type=common.at_least(1), default=2000, metavar="N")
    parser.add_argument("--threads", type=common.at_least(1), default=1, metavar="N")
    parser.add_argument(
        "--sizes", nargs="+", type=common.parse_size, default=[1 << 20, 16 << 20], metavar="SIZE"
    )
    args = parser.parse_args(argv)
    # the others cannot be called in compiled functions
    entries = [e for e in common.chosen(args) if e.compiled and e.dtype in ("float32", "float64")]
    if not entries:
        parser.error("compiled functions have float32 and float64 only, and no second derivatives")
    common.set_threads(1)

    header = ["function", "dtype", "equal bits", "compiled loop", "compiled, out=", "ufunc"]
    header += ["naive loop", "naive: max ULP"]
    rows = [functions_row(entry, 1 << 16, args.points, args.seconds) for entry in entries]
    print(common.table(header, rows), end="\n\n")
    print(
        f"ns an element at 64Ki, one thread: the median of interleaved rounds (the least). Naive: "
        f"math.erf, tanh or exp, fastmath=True. Max ULP: {args.points:,} points in {RANGE}.\n"
    )
    dtypes = list(dict.fromkeys(entry.dtype for entry in entries))
    header = ["gelu(x + b) * g", "size", "one fused loop", "three passes", "ratio"]
    rows = [fused_row(dtype, size, args.seconds) for dtype in dtypes for size in args.sizes]
    print(common.table(header, rows), end="\n\n")

    common.set_threads(args.threads)
    numba.set_num_threads(args.threads)
    header = ["function", "dtype", "size", "fastgelu.numba", "ufunc", "ratio"]
    rows = [parallel_row(entry, size, args.seconds) for entry in entries for size in args.sizes]
    print(common.table(header, rows), end="\n\n")
    print(
        f"Threads: {args.threads} each. Ratio: the other's time to ours; above 1, ours is faster."
    )
    print(f"{common.describe()}, Numba {numba.__version__}.")


if __name__ == "__main__":
    main()
