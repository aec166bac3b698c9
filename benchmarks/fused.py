# SPDX-License-Identifier: BSD-3-Clause
"""The fused functions beside the sequences of their steps: in torch and in fastgelu itself.

The sequences have their outputs and temporaries preallocated. All take turns in one run, on one
thread and on two; ratios above 1 say that the fused call is faster. A bias is one row for all rows.
Memory is what a call allocates beyond its outputs, and what the sequence needs for temporaries.
"""

import argparse
import functools
import tracemalloc

import bench_common as common
import numpy as np
import rivals

import fastgelu
from fastgelu._docs import fused_shape

COLUMNS = 1024
SIZES = (64 << 10, 4 << 20)


def entries():
    """The fused functions, once each."""
    return {f.name: f for f in fastgelu.fused_functions() if f.dtype == "float32"}


@functools.lru_cache(maxsize=1)
def operands(dtype, size):
    """Three arrays of rows and a row; not to be written to."""
    rng = np.random.default_rng(common.SEED)
    columns = min(size, COLUMNS)
    shape = (size // columns, columns)
    drawn = [rng.standard_normal(s, np.float32) for s in (shape, shape, shape, (columns,))]
    return [x.astype(common.numpy_dtype(dtype), copy=False) for x in drawn]


def arguments(entry, dtype, size):
    *arrays, row = operands(dtype, size)
    if entry.name.startswith("bias_"):
        return [*arrays[: entry.inputs - 1], row]
    return arrays[: entry.inputs]


class Steps:
    """The same by functions of arrays: value(form, x, out), backward(form, dy, x, out), add and
    multiply (a, b, out)."""

    def bind(self, entry, args, outs):
        """The calls of the sequence, and the bytes of its temporaries."""
        shape, form = fused_shape(entry.name), entry.form
        if shape == "value_and_grad":
            x, (y, slope) = args[0], outs
            return [self.value(form, x, y), self.grad(form, x, slope)], self.ones(x)
        t = np.empty_like(outs[0])
        if shape == "bias":
            return [self.add(*args, t), self.value(form, t, outs[0])], t.nbytes
        if shape == "bias_backward":
            return [self.add(*args[1:], t), self.backward(form, args[0], t, outs[0])], t.nbytes
        if shape == "glu":
            return [self.value(form, args[0], t), self.multiply(t, args[1], outs[0])], t.nbytes
        dy, a, b = args
        value = np.empty_like(t)
        calls = [
            self.multiply(dy, b, t),
            self.backward(form, t, a, outs[0]),
            self.value(form, a, value),
            self.multiply(dy, value, outs[1]),
        ]
        return calls, 2 * t.nbytes


class Torch(Steps):
    label = "torch"

    def value(self, form, x, out):
        return rivals._torch_value(form, [x], out)

    def backward(self, form, dy, x, out):
        return rivals._torch_backward(form, [dy, x], out)

    def grad(self, form, x, out):
        return rivals._torch_slope("full", form, [x], out)

    def ones(self, x):
        return x.nbytes

    def _both(self, function, a, b, out):
        return functools.partial(function, *map(rivals.tensor, (a, b)), out=rivals.tensor(out))

    def add(self, a, b, out):
        return self._both(rivals.torch.add, a, b, out)

    def multiply(self, a, b, out):
        return self._both(rivals.torch.mul, a, b, out)


class Ours(Steps):
    label = "fastgelu's steps"

    def value(self, form, x, out):
        return functools.partial(getattr(fastgelu, form), x, out=out)

    def backward(self, form, dy, x, out):
        return functools.partial(getattr(fastgelu, form + "_backward"), dy, x, out=out)

    def grad(self, form, x, out):
        return functools.partial(getattr(fastgelu, form + "_grad"), x, out=out)

    def ones(self, x):
        return 0

    def add(self, a, b, out):
        return functools.partial(np.add, a, b, out=out)

    def multiply(self, a, b, out):
        return functools.partial(np.multiply, a, b, out=out)


def rival_steps():
    return [*([Torch()] if rivals.torch is not None else []), Ours()]


def in_turn(calls):
    def sequence():
        for call in calls:
            call()

    return sequence


def contenders(entry, dtype, size):
    """{label: call}, the fused one first, and the bytes of each sequence's temporaries."""
    args = arguments(entry, dtype, size)
    outs = tuple(np.empty_like(args[0]) for _ in range(entry.outputs))
    calls = {"fastgelu": functools.partial(getattr(fastgelu, entry.name), *args, out=outs)}
    temporaries = {}
    for steps in rival_steps():
        others = tuple(np.empty_like(y) for y in outs)
        sequence, temporaries[steps.label] = steps.bind(entry, args, others)
        calls[steps.label] = in_turn(sequence)
    return calls, temporaries


def extra_memory(call):
    """The most bytes allocated at once during a call."""
    tracemalloc.start()
    call()
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    return peak


def main(argv=None):
    registered = entries()
    dtypes = list(dict.fromkeys(f.dtype for f in fastgelu.fused_functions()))
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    names = list(registered)
    parser.add_argument("--functions", nargs="+", choices=names, default=names, metavar="NAME")
    parser.add_argument("--dtypes", nargs="+", choices=dtypes, default=["float32"], metavar="DTYPE")
    parser.add_argument("--sizes", nargs="+", type=common.parse_size, default=SIZES)
    parser.add_argument("--threads", nargs="+", type=common.at_least(1), default=[1, 2])
    parser.add_argument("--seconds", type=common.at_least(0, float), default=0.5, help="for a row")
    args = parser.parse_args(argv)
    labels = [steps.label for steps in rival_steps()]
    rows = []
    for dtype in args.dtypes:
        for size in args.sizes:
            for count in args.threads:
                common.set_threads(count)
                for name in args.functions:
                    calls, temporaries = contenders(registered[name], dtype, size)
                    times = common.interleave(list(calls.values()), args.seconds)
                    best = dict(zip(calls, times.min(0), strict=True))
                    row = [name, dtype, common.size_name(size), count]
                    row.append(common.number(best["fastgelu"] / size * 1e9))
                    for label in labels:
                        row.append(common.number(best[label] / best["fastgelu"]))
                    row.append(f"{extra_memory(calls['fastgelu']) / 1024:.1f}")
                    row.append(f"{max(temporaries.values()) / 1024:,.0f}")
                    rows.append(row)
    header = ["function", "dtype", "elements", "threads", "ns/element"]
    header += [f"{label} / ours" for label in labels] + ["KiB", "KiB of the steps"]
    print(common.describe(), end="\n\n")
    print(common.table(header, rows), end="\n\n")
    print("The least of interleaved rounds. KiB: allocated beyond the outputs.")


if __name__ == "__main__":
    main()
