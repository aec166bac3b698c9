# SPDX-License-Identifier: BSD-3-Clause
"""fastgelu.cuda on a device: the CPU's bits first, then times beside a copy and PyTorch.

    python benchmarks/gpu.py                       # all of it: under eight minutes
    python benchmarks/gpu.py --functions gelu --dtypes bfloat16
    python benchmarks/gpu.py --simulate            # tiny sizes in Numba's simulator: that it runs

Needs numba-cuda, and ml_dtypes for bfloat16; PyTorch is compared with where it is installed. Every
function and dtype is compared with the CPU over 2^24 arguments, or pairs of them, and the special
values; then strided, misaligned and in place; then an array of more than 2^31 elements. It is
timed on normal(0, 1) data, 512 MiB an operand: the least of interleaved rounds between events,
after a warm-up. The last thing printed is a table: GB/s, that as a ratio to the copy from device to
device in the same rounds, and as a ratio to PyTorch's function.

Exit status: 0, or 1 if bits differ from the CPU's, 2 if something is not installed, 3 if there is
no device.
"""

import argparse
import math
import os
import sys
import time
from pathlib import Path

sys.path.append(str(Path(__file__).parent))  # not there already under python -P

import numpy as np

import fastgelu

NO_PACKAGE, NO_DEVICE = 2, 3
SWEEP, OPERAND_BYTES, HUGE = 1 << 24, 512 << 20, (1 << 31) + (1 << 20)
TINY = 96
ROUNDS, LAUNCHES = 12, 5
GOALS = {"copy": 0.92, "torch": 1.0}
SEED = 20240229
FINITE = [0.0, 5e-324, 1e-310, 1e-45, 1e-40, 1e-20, 1e-5, 0.5, 0.7517915, 1.0, 3.0, 4.0, 5.0, 9.0]
FINITE += [14.0, 38.0, 90.0, 1e30, 1e38, 1e300]


def options(argv=None):
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    names = list(dict.fromkeys(entry.name for entry in fastgelu.functions()))
    dtypes = list(dict.fromkeys(entry.dtype for entry in fastgelu.functions()))
    parser.add_argument("--functions", nargs="+", choices=names, default=names, metavar="NAME")
    parser.add_argument("--dtypes", nargs="+", choices=dtypes, default=dtypes, metavar="DTYPE")
    parser.add_argument("--seconds", type=float, default=420, help="no more rows after this time")
    parser.add_argument("--blocks", type=int, help="at most so many a multiprocessor and launch")
    parser.add_argument(
        "--simulate", action="store_true", help="tiny sizes, without a device: times mean nothing"
    )
    return parser.parse_args(argv)


def numpy_dtype(name):
    if name == "bfloat16":
        import ml_dtypes

        return np.dtype(ml_dtypes.bfloat16)
    return np.dtype(name)


# ---- arguments -------------------------------------------------------------------------------


def special(dtype):
    with np.errstate(all="ignore"):
        values = [*FINITE, *(-x for x in FINITE), np.inf, -np.inf, np.nan]
        return np.array(values, np.float64).astype(dtype)


def sweep(dtype, inputs, count, seed=0):
    """The special values, or all pairs of them, random encodings, and numbers about 0."""
    rng = np.random.default_rng([SEED, seed])
    unsigned = np.dtype(f"u{dtype.itemsize}")
    first = special(dtype)
    pairs = [first] if inputs == 1 else [a.ravel() for a in np.meshgrid(first, first)]
    columns = []
    for column in pairs:
        half = count // 2
        if dtype.itemsize == 2:  # every encoding, again and again
            every = np.resize(np.arange(1 << 16, dtype=unsigned), half)
            anything = rng.permutation(every) if inputs == 2 else every
        else:
            anything = rng.integers(0, np.iinfo(unsigned).max, half, unsigned, endpoint=True)
        near = rng.normal(0, 3, max(0, count - half - column.size)).astype(dtype)
        columns.append(np.concatenate([column, anything.view(dtype), near]))
    return columns


def canonical(y):
    """The bits, every NaN the same."""
    bits = y.view(f"u{y.itemsize}").copy()
    with np.errstate(all="ignore"):
        bits[np.isnan(y)] = np.array(np.nan, y.dtype).view(bits.dtype)
    return bits


# ---- the device ------------------------------------------------------------------------------


class Device:
    """What the benchmark wants of numba-cuda, or of its simulator."""

    def __init__(self, cuda, simulated):
        self.cuda, self.simulated = cuda, simulated

    def describe(self):
        if self.simulated:
            return "Numba's simulator: times mean nothing"
        device = self.cuda.get_current_device()
        name = device.name.decode() if isinstance(device.name, bytes) else device.name
        capability = ".".join(map(str, device.compute_capability))
        _, total = self.cuda.current_context().get_memory_info()
        return (
            f"{name}, compute capability {capability}, {device.MULTIPROCESSOR_COUNT} "
            f"multiprocessors, {total >> 30} GiB"
        )

    def put(self, array):
        return self.cuda.to_device(array)

    def get(self, array):
        return array.copy_to_host()

    def empty(self, count, dtype):
        return self.cuda.device_array(count, dtype)

    def copy(self, out, source):
        """From device to device, whatever the dtype."""
        if self.simulated:
            np.copyto(out._ary, source._ary)
        else:
            unsigned = f"u{out.dtype.itemsize}"
            out.view(unsigned).copy_to_device(source.view(unsigned))

    def filled(self, block, count):
        """`count` elements, a block of numbers again and again."""
        out, source, at = self.empty(count, block.dtype), self.put(block), 0
        while at < count:
            n = min(block.size, count - at)
            self.copy(out[at : at + n], source[:n])
            at += n
        return out

    def milliseconds(self, call, launches):
        """Of one call, of several in a row."""
        if self.simulated:
            start = time.perf_counter()
            call()
            return (time.perf_counter() - start) * 1e3
        first, last = self.cuda.event(), self.cuda.event()
        first.record()
        for _ in range(launches):
            call()
        last.record()
        last.synchronize()
        return first.elapsed_time(last) / launches


# ---- bits ------------------------------------------------------------------------------------


def compare(label, got, want, arguments):
    """0, or the number of wrong bits after a line that tells of the first."""
    wrong = np.flatnonzero(canonical(got) != canonical(want))
    if wrong.size:
        i = wrong[0]
        at = ", ".join(f"{float(a[i])!r}" for a in arguments)
        print(
            f"  {label}: {wrong.size} of {want.size} differ, the first at ({at}): "
            f"{float(got[i])!r}, the CPU's {float(want[i])!r}"
        )
    return wrong.size


def check(device, functions, entry, count):
    """How many results differ from the CPU's."""
    dtype = numpy_dtype(entry.dtype)
    ours, cpu = getattr(functions, entry.name), getattr(fastgelu, entry.name)
    arguments = sweep(dtype, entry.inputs, count)
    with np.errstate(all="ignore"):
        want = cpu(*arguments)
    label = f"{entry.name} {entry.dtype}"
    arrays = [device.put(a) for a in arguments]
    wrong = compare(label, device.get(ours(*arrays)), want, arguments)
    few = min(count, 1 << 16)
    for what, cut in (("every second", slice(0, few, 2)), ("misaligned", slice(1, few))):
        got = device.put(np.zeros_like(want[cut]))
        ours(*(a[cut] for a in arrays), out=got)
        wrong += compare(
            f"{label}, {what}", device.get(got), want[cut], [a[cut] for a in arguments]
        )
    ours(*arrays, out=arrays[-1])
    return wrong + compare(f"{label}, in place", device.get(arrays[-1]), want, arguments)


def check_huge(device, functions, count):
    """More elements than 31 bits count, in place: the first and the last of them."""
    block = sweep(np.dtype("f2"), 1, min(count, 1 << 22))[0]
    x = device.filled(block, count)
    functions.silu(x, out=x)
    with np.errstate(all="ignore"):
        want = fastgelu.silu(block)
    whole = count // block.size * block.size
    rest = count - whole
    wrong = compare("huge, first", device.get(x[: block.size]), want, [block])
    if rest:
        wrong += compare("huge, last", device.get(x[whole:]), want[:rest], [block])
    return wrong


# ---- times -----------------------------------------------------------------------------------


def torch_call(torch, name, dtype, arrays):
    """PyTorch's function on the same memory, or None where it has none."""
    form, backward = name.removesuffix("_backward"), name.endswith("_backward")
    if torch is None or form not in ("gelu", "gelu_tanh", "silu"):
        return None
    tensors = []
    for array in arrays:
        tensor = torch.as_tensor(array.view(np.int16) if dtype == "bfloat16" else array)
        tensors.append(tensor.view(torch.bfloat16) if dtype == "bfloat16" else tensor)
    approximate = {"gelu": {"approximate": "none"}, "gelu_tanh": {"approximate": "tanh"}}
    keywords = approximate.get(form, {})
    if backward:
        function = torch.ops.aten.silu_backward if form == "silu" else torch.ops.aten.gelu_backward
        return lambda: function(*tensors, **keywords)
    function = torch.nn.functional.silu if form == "silu" else torch.nn.functional.gelu
    return lambda: function(tensors[-1], **keywords)


def find_torch(simulated):
    """The module, where it has a device."""
    if simulated:
        return None
    try:
        import torch
    except ImportError:
        return None
    return torch if torch.cuda.is_available() else None


class Row(dict):
    """GB/s by what was called."""

    def cell(self):
        ratios = [
            f"{self['ours'] / self[rival]:.2f}" if rival in self else "-"
            for rival in ("copy", "torch")
        ]
        return f"{self['ours']:.0f} {' '.join(ratios)}"


def measure(device, functions, entries, count, torch, finish):
    """The functions of one dtype: name -> Row; nothing for those that time is too short for."""
    dtype = numpy_dtype(entries[0].dtype)
    rng = np.random.default_rng(SEED)
    blocks = [rng.standard_normal(min(count, 1 << 22), "f4").astype(dtype) for _ in range(2)]
    dy, x = (device.filled(block, count) for block in blocks)
    out = device.empty(count, dtype)
    rounds, launches = (1, 1) if device.simulated else (ROUNDS, LAUNCHES)
    rows = {}
    for entry in entries:
        if time.monotonic() > finish:
            break
        arguments = (dy, x)[-entry.inputs :]
        ours = getattr(functions, entry.name)
        calls = {
            "ours": (lambda f=ours, a=arguments: f(*a, out=out), entry.inputs + 1),
            "copy": (lambda: device.copy(out, x), 2),
        }
        rival = torch_call(torch, entry.name, entry.dtype, arguments)
        if rival is not None:
            calls["torch"] = (rival, entry.inputs + 1)
        best = dict.fromkeys(calls, math.inf)
        for number in range(-2, rounds):  # two to warm up
            for name, (call, _) in calls.items():
                took = device.milliseconds(call, launches)
                if number >= 0 or device.simulated:
                    best[name] = min(best[name], took)
        rows[entry.name] = Row(
            {
                name: operands * count * dtype.itemsize / best[name] / 1e6
                for name, (_, operands) in calls.items()
            }
        )
    return rows


def show_goals(results):
    for rival, goal in GOALS.items():
        held, least = [], None
        for dtype, rows in results.items():
            for name, row in rows.items():
                if rival in row and not name.endswith("_grad") and dtype != "float64":
                    ratio = row["ours"] / row[rival]
                    held.append(ratio >= goal)
                    least = min(least or (ratio, ""), (ratio, f"{name} {dtype}"))
        if held:
            print(
                f"goal {goal} x {rival} (forward and backward, not float64): {sum(held)} of "
                f"{len(held)}; least {least[0]:.2f}, {least[1]}"
            )


def show(results, names):
    print("\nGB/s, ratio to the copy, ratio to PyTorch\n")
    print("| function | " + " | ".join(results) + " |")
    print("|---|" + "---|" * len(results))
    for name in names:
        cells = [rows[name].cell() if name in rows else "" for rows in results.values()]
        print(f"| {name} | " + " | ".join(cells) + " |")


# ---- all of it -------------------------------------------------------------------------------


def load(simulate):
    """fastgelu.cuda and the device; ends the program where there is none."""
    if simulate:
        os.environ["NUMBA_ENABLE_CUDASIM"] = "1"
    try:
        from fastgelu import cuda as functions
    except ImportError as error:
        print(f"gpu: {error}", file=sys.stderr)
        sys.exit(NO_PACKAGE)
    from numba import cuda

    if not functions.SIMULATED and not cuda.is_available():
        print(
            "gpu: there is no CUDA device here, or no driver: nothing was checked or measured "
            "(--simulate shows that the script runs)",
            file=sys.stderr,
        )
        sys.exit(NO_DEVICE)
    return functions, Device(cuda, functions.SIMULATED)


def main():
    arguments = options()
    start = time.monotonic()
    functions, device = load(arguments.simulate)
    if arguments.blocks:
        functions.BLOCKS = arguments.blocks
    tiny = device.simulated
    torch = find_torch(tiny)
    print(f"{device.describe()}; PyTorch: {'no' if torch is None else torch.__version__}")
    entries = [
        entry
        for entry in fastgelu.functions()
        if entry.name in arguments.functions and entry.dtype in arguments.dtypes
    ]
    wrong = 0
    for entry in entries:
        wrong += check(device, functions, entry, TINY if tiny else SWEEP)
    wrong += check_huge(device, functions, TINY if tiny else HUGE)
    took = time.monotonic() - start
    verdict = f"{wrong} results differ" if wrong else "all bits are the CPU's"
    print(f"{len(entries)} functions and dtypes compared in {took:.0f} s: {verdict}")
    results = {}
    for dtype in arguments.dtypes:
        count = TINY if tiny else OPERAND_BYTES // numpy_dtype(dtype).itemsize
        these = [entry for entry in entries if entry.dtype == dtype]
        finish = start + arguments.seconds
        results[dtype] = measure(device, functions, these, count, torch, finish)
    left = len(entries) - sum(map(len, results.values()))
    if left:
        print(f"{left} were not timed: over {arguments.seconds:.0f} s")
    print(f"{time.monotonic() - start:.0f} s in all")
    show_goals(results)
    show(results, arguments.functions)
    sys.exit(1 if wrong else 0)


if __name__ == "__main__":
    main()
