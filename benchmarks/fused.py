# SPDX-License-Identifier: BSD-3-Clause
"""The fused functions beside the sequences of their steps: in torch and in fastgelu itself.

The sequences have their outputs and temporaries preallocated. All take turns in one run, on one
thread and on two; ratios above 1 say that the fused call is faster. A bias is one row for all rows.
Memory is what a call allocates beyond its outputs, and what the sequence needs for temporaries.
"""

import argparse
import functools
import sys
import tracemalloc
from pathlib import Path

sys.path.append(str(Path(__file__).parent))  # not there already under python -P

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
        return torch_call(form, [x], out)

    def backward(self, form, dy, x, out):
        return torch_call(form + "_backward", [dy, x], out)

    def grad(self, form, x, out):
        return torch_call(form + "_grad", [x], out)

    def ones(self, x):
        return x.nbytes

    def _both(self, function, a, b, out):
        a, b, out = map(rivals.torch_tensor, (a, b, out))
        return functools.partial(function, a, b, out=out)

    def add(self, a, b, out):
        return self._both(rivals.torch.add, a, b, out)

    def multiply(self, a, b, out):
        return self._both(rivals.torch.mul, a, b, out)


def torch_call(name, inputs, out):
    """The call of torch's own `name`; of a slope the backward pass of ones."""
    for contender in rivals.contenders(name, out.dtype.name):
        if contender.family == contender.label == "torch":
            return contender.bind(inputs, out)
    raise ValueError(f"torch has no {name}")


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


def contenders(entry, dtype, size, only=None):
    """{label: call}, the fused one first, each one's outputs, and the bytes of temporaries."""
    args = arguments(entry, dtype, size)
    fields = [None, *rival_steps()]
    calls, outputs, temporaries = {}, {}, {}
    for steps in fields:
        label = steps.label if steps else "fastgelu"
        if only not in (None, label):
            continue
        outs = outputs[label] = tuple(np.empty_like(args[0]) for _ in range(entry.outputs))
        if steps:
            sequence, temporaries[label] = steps.bind(entry, args, outs)
            calls[label] = in_turn(sequence)
        else:
            calls[label] = functools.partial(getattr(fastgelu, entry.name), *args, out=outs)
    return calls, outputs, temporaries


def extra_memory(call):
    """The most bytes allocated at once during a call."""
    tracemalloc.start()
    call()
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    return peak


# ---- errors --------------------------------------------------------------------------------------


def exact_results(function, entry, args):
    """What the bounds are against; `function(name, *args)` gives exact values."""
    shape, form = fused_shape(entry.name), entry.form
    computed = [a if a.dtype == np.float64 else a.astype(np.float32) for a in args]
    if shape == "bias":
        return [function(form, computed[0] + computed[1])]
    if shape == "bias_backward":
        return [function(form + "_backward", args[0], computed[1] + computed[2])]
    if shape == "value_and_grad":
        return [function(form, args[0]), function(form + "_grad", args[0])]
    if shape == "glu":
        return [function(form, args[0]) * factors(function, args[1])]
    dy, b = (factors(function, x) for x in (args[0], args[2]))
    return [dy * b * function(form + "_grad", args[1]), dy * function(form, args[1])]


def factors(function, x):
    """Numbers that multiply exact values."""
    return np.array(x.tolist(), object) if function.__name__ == "exactly" else x.astype(np.float64)


def largest_error(entry, points):
    """In ULP over the arguments from -12 to 6 and factors of normal(0, 1)."""
    sys.path.append(str(Path(__file__).parents[1] / "tests"))
    import oracle

    def exactly(name, *args):
        return np.array([oracle.exact(name, *p) for p in zip(*(a.tolist() for a in args))], object)

    dtype = entry.dtype.replace("float", "f")
    rng = np.random.default_rng(common.SEED)
    wide = dtype == "f64"
    points = points // 500 if wide else points
    drawn = [rng.standard_normal(points) for _ in range(entry.inputs)]
    last = entry.inputs - 1
    argument = last - (fused_shape(entry.name) != "value_and_grad")
    drawn[argument] = rng.uniform(-12, 6, points)
    if fused_shape(entry.name).startswith("bias"):
        drawn[argument] -= drawn[last]
    args = [x.astype(common.numpy_dtype(entry.dtype)) for x in drawn]
    got = getattr(fastgelu, entry.name)(*args)
    got = got if entry.outputs == 2 else (got,)
    function = exactly if wide else oracle.reference
    worst = 0.0
    for y, want in zip(got, exact_results(function, entry, args), strict=True):
        if wide:
            errors = [oracle.ulp_error(a, w, dtype) for a, w in zip(y.tolist(), want)]
        else:
            errors = oracle.ulp_errors(y, want, dtype)
        worst = max(worst, float(np.max(errors)))
    return worst


def print_errors(names, points):
    functions = [f for f in fastgelu.fused_functions() if f.name in names]
    dtypes = list(dict.fromkeys(f.dtype for f in functions))
    rows = []
    for name in names:
        row = [name]
        for dtype in dtypes:
            entry = next(f for f in functions if (f.name, f.dtype) == (name, dtype))
            row.append(f"{largest_error(entry, points):.3f} ({entry.max_ulp:g})")
        rows.append(row)
    print(common.table(["function", *dtypes], rows), end="\n\n")
    print(f"Max error in ULP of {points:,} random arguments, {points // 500:,} in float64 (bound).")


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
    parser.add_argument(
        "--errors",
        nargs="?",
        type=common.at_least(1000),
        const=200_000,
        metavar="N",
        help="measure errors, at N arguments, instead of times (needs SciPy and mpmath)",
    )
    args = parser.parse_args(argv)
    if args.errors:
        print_errors(args.functions, args.errors)
        return
    labels = [steps.label for steps in rival_steps()]
    rows = []
    for dtype in args.dtypes:
        for size in args.sizes:
            for count in args.threads:
                common.set_threads(count)
                for name in args.functions:
                    calls, _, temporaries = contenders(registered[name], dtype, size)
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
