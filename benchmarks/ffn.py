# SPDX-License-Identifier: BSD-3-Clause
"""The feed-forward block beside torch eager's (linear, gelu, linear), and its products alone.

    python benchmarks/ffn.py [--threads 2] [--seconds 2]

float32, all in turns in one run, with the same number of threads for both and the output of ours
preallocated. Needs torch for its column and threadpoolctl to limit NumPy's BLAS.
"""

import sys
import time
import tracemalloc
from pathlib import Path

sys.path.append(str(Path(__file__).parent))  # not there already under python -P

import numpy as np
from bench_common import at_least, describe, interleave, number, parser, rivals, set_threads, table

from fastgelu import _ffn, functional

WIDTHS = (384, 768)
ROWS = (1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024, 2048)


def limit_blas(count):
    """NumPy's BLAS to so many threads; for the rest of the process."""
    try:
        import threadpoolctl
    except ImportError as error:
        raise SystemExit(f"{error}; pip install threadpoolctl") from error
    threadpoolctl.threadpool_limits(count, user_api="blas")


def peak(call):
    """The most memory that NumPy holds during a call beyond what it did before, in bytes."""
    tracemalloc.start()
    try:
        call()
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


def products_alone(call):
    """The same blocks without bias and activation of the hidden layer."""

    def run():
        kept = _ffn._value
        _ffn._value = lambda form: lambda h, out: None
        try:
            call()
        finally:
            _ffn._value = kept

    return run


def blas_alone(x, w1, w2):
    """The two products of whole matrices into arrays that are there, and nothing else."""
    h, y = np.empty((len(w1), len(x)), np.float32), np.empty((len(w2), len(x)), np.float32)
    xt = x.T if len(x) > 1 else np.ascontiguousarray(x.T)

    def run():
        np.matmul(w1, xt, out=h)
        np.matmul(w2, h, out=y)

    return run


def torch_eager(x, w1, b1, w2, b2):
    """Linear, gelu, linear, without gradients."""
    torch = rivals.torch
    x, w1, b1, w2, b2 = map(torch.from_numpy, (x, w1, b1, w2, b2))
    linear, gelu = torch.nn.functional.linear, torch.nn.functional.gelu

    def run():
        with torch.inference_mode():
            linear(gelu(linear(x, w1, b1)), w2, b2)

    return run


def measure(width, rows, seconds, clock):
    """One line of the table."""
    hidden = 4 * width
    rng = np.random.default_rng(rows)
    shapes = (rows, width), (hidden, width), hidden, (width, hidden), width
    x, w1, b1, w2, b2 = (rng.normal(0, 0.05, shape).astype(np.float32) for shape in shapes)
    x *= 20
    out = np.empty_like(x)

    def ours():
        functional.ffn(x, w1, b1, w2, b2, out=out)

    calls = [ours, products_alone(ours), blas_alone(x, w1, w2)]
    if rivals.torch is not None:
        calls.append(torch_eager(x, w1, b1, w2, b2))
    times = interleave(calls, seconds, clock=clock) * 1e3
    least, median = times.min(axis=0), np.median(times, axis=0)
    cells = [f"{number(m)} ({number(n)})" for m, n in zip(median, least)]
    if rivals.torch is None:
        cells += ["", ""]
    else:
        cells.append(f"{least[3] / least[0]:.2f}")
    return [f"{width}→{hidden}→{width}", rows, *cells, f"{peak(ours) / (rows * hidden * 4):.1%}"]


def main():
    options = parser(__doc__.partition("\n")[0])
    options.add_argument("--threads", type=at_least(1), default=1, help="default: 1")
    options.add_argument("--seconds", type=at_least(0, float), default=1.0, help="for each line")
    options.add_argument("--rows", type=at_least(1), nargs="+", default=ROWS)
    options.add_argument("--widths", type=at_least(1), nargs="+", default=WIDTHS)
    args = options.parse_args()
    set_threads(args.threads)
    limit_blas(args.threads)
    # With one thread the time of the thread: other programs take none of that.
    clock = time.thread_time if args.threads == 1 else time.perf_counter
    header = ("layer", "rows", "ours", "its products", "BLAS alone", "torch", "ratio", "memory")
    print(
        table(
            header,
            [measure(w, rows, args.seconds, clock) for w in args.widths for rows in args.rows],
        )
    )
    print(
        f"\n{describe()}.\n{args.threads} thread{'s'[: args.threads > 1]}, float32; "
        "milliseconds, the median of interleaved rounds (the least). Products: the same without "
        "activation. BLAS alone: both products of whole matrices by NumPy, nothing else. Ratio: "
        "torch's least time to ours; above 1, ours is faster. Memory: the peak beyond inputs and "
        "output, as a share of the hidden layer."
    )


if __name__ == "__main__":
    main()
