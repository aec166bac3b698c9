# SPDX-License-Identifier: BSD-3-Clause
"""Threads and memory: large arrays beside the machine's own copy speed, and the gain by size.

    python benchmarks/threads.py
    python benchmarks/threads.py --functions gelu --tables roof

Prints markdown tables. All times are the least of interleaved rounds. Needs a C compiler with
OpenMP, for the machine's own speed.
"""

import ctypes
import os
import shlex
import subprocess
import sys
import tempfile
import time
from pathlib import Path

sys.path.append(str(Path(__file__).parent))  # not there already under python -P

import bench_common as common
import numpy as np
import rivals

import fastgelu
from fastgelu import _ufuncs

IN_CACHE = 64 << 10
TABLES = ("machine", "roof", "sizes", "stores")


def aligned(n, fill=0.0):
    """A float32 array that begins at a page."""
    raw = np.empty(4 * n + 4096, np.uint8)
    start = -raw.ctypes.data % 4096
    array = raw[start : start + 4 * n].view(np.float32)
    array[:] = fill
    return array


def load_roof():
    """roof.c, compiled for this machine."""
    source = Path(__file__).with_name("roof.c")
    with tempfile.TemporaryDirectory() as folder:
        library = Path(folder, "roof.so")
        command = [*shlex.split(os.environ.get("CC", "cc")), "-O3", "-march=native", "-fopenmp"]
        try:
            subprocess.run([*command, "-shared", "-fPIC", source, "-o", library], check=True)
        except (OSError, subprocess.CalledProcessError) as error:
            raise SystemExit(f"needs a C compiler with OpenMP (CC chooses it): {error}") from error
        roof = ctypes.CDLL(str(library))
    pointer, size, integer = ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int
    roof.fg_roof_move.argtypes = [size, pointer, pointer, pointer, integer, integer]
    roof.fg_roof_move.restype = None
    roof.fg_roof_compute.argtypes = [size, integer]
    roof.fg_roof_compute.restype = ctypes.c_float
    return roof


def least(calls, rounds):
    """{name: least seconds} of {name: (prepare, call, repeats)}, in turns."""
    result = dict.fromkeys(calls, float("inf"))
    for _ in range(rounds + 1):
        for name, (prepare, call, repeats) in calls.items():
            prepare()
            start = time.perf_counter()
            for _ in range(repeats):
                call()
            result[name] = min(result[name], (time.perf_counter() - start) / repeats)
    return result


def nothing():
    pass


class Bench:
    def __init__(self, size, rounds):
        self.roof, self.size, self.rounds = load_roof(), size, rounds
        drawn = common.data("float32", size)
        self.dy, self.x = (aligned(size, values) for values in drawn)
        self.y = aligned(size)

    def mover(self, inputs, threads, past, in_place=False):
        dy = self.dy.ctypes.data if inputs == 2 else None
        x, y = self.x.ctypes.data, self.y.ctypes.data
        x = y if in_place else x
        return lambda: self.roof.fg_roof_move(self.size, dy, x, y, threads, past)

    def machine(self, counts):
        """What the machine does by itself."""
        calls = {}
        for t in counts:
            calls["FMA in registers", t] = (
                nothing,
                lambda t=t: self.roof.fg_roof_compute(200_000, t),
                1,
            )
            for inputs, what in ((1, "c*x"), (2, "dy*x")):
                calls[f"{what}, plain stores", t] = (nothing, self.mover(inputs, t, 0), 1)
                calls[f"{what}, non-temporal stores", t] = (nothing, self.mover(inputs, t, 1), 1)
            calls["c*x in place", t] = (nothing, self.mover(1, t, 0, in_place=True), 1)
        times = least(calls, self.rounds)
        rows = []
        for what in dict.fromkeys(name for name, _ in calls):
            row = [what]
            for t in counts:
                seconds = times[what, t]
                if what.startswith("FMA"):  # each thread does all of it
                    row.append(f"{times[what, 1] * t / seconds:.2f} times one")
                else:
                    streams = 3 if what.startswith("dy") else 2
                    speed = streams * 4 * self.size / seconds / 1e9
                    row.append(f"{seconds / self.size * 1e9:.3f} ns, {speed:.1f} GB/s")
            rows.append(row)
        return common.table(["machine", *(f"{t} threads" for t in counts)], rows)

    def roofs(self, names, counts):
        """Each function out of the caches, beside in-cache time / threads + copy time."""
        rows = []
        for name in names:
            ufunc = getattr(fastgelu, name)
            inputs = [self.dy, self.x][-ufunc.nin :]
            small = [a[:IN_CACHE] for a in inputs]
            others = [c for c in rivals.contenders(name, "float32") if c.family == "torch"]
            for t in counts:
                common.set_threads(t)
                place = [*inputs[:-1], self.y]
                calls = {
                    "cache": (
                        lambda: fastgelu.set_num_threads(1),
                        lambda u=ufunc, s=small: u(*s, out=self.y[:IN_CACHE]),
                        16,
                    ),
                    "plain": (
                        lambda t=t: fastgelu.set_num_threads(t),
                        lambda u=ufunc, a=inputs: u(*a, out=self.y),
                        1,
                    ),
                    "in place": (
                        lambda: np.copyto(self.y, self.x),
                        lambda u=ufunc, a=place: u(*a, out=self.y),
                        1,
                    ),
                    "copy": (nothing, self.mover(ufunc.nin, t, 0), 1),
                    "copy past": (nothing, self.mover(ufunc.nin, t, 1), 1),
                    "copy in place": (nothing, self.mover(1, t, 0, in_place=True), 1),
                }
                for other in others:
                    calls[other.label] = (nothing, other.bind(inputs, self.y), 1)
                    calls[other.label, "in place"] = (
                        lambda: np.copyto(self.y, self.x),
                        other.bind(place, self.y),
                        1,
                    )
                times = least(calls, self.rounds)
                ns = {what: seconds / self.size * 1e9 for what, seconds in times.items()}
                cache = times["cache"] / IN_CACHE * 1e9 / t
                for mode in ("plain", "in place"):
                    if mode == "plain":
                        copy = min(ns["copy"], ns["copy past"])
                        rival = min((ns[o.label] for o in others), default=None)
                    else:
                        # backward in place reads a third array
                        copy = (
                            ns["copy in place"]
                            if ufunc.nin == 1
                            else min(ns["copy"], ns["copy past"])
                        )
                        rival = min((ns[o.label, mode] for o in others), default=None)
                    roof = cache + copy
                    moved = 4 * (ufunc.nin + 1)
                    row = [name, t, mode, f"{ns[mode]:.3f}", f"{moved / ns[mode]:.1f}"]
                    row += [f"{cache:.3f}", f"{copy:.3f}", f"{roof:.3f}", f"{ns[mode] / roof:.2f}"]
                    row += [f"{rival:.3f}", f"{rival / ns[mode]:.2f}"] if rival else ["", ""]
                    rows.append(row)
        header = ["function", "threads", "output", "ns", "GB/s", "in cache / threads", "copy"]
        return common.table([*header, "sum", "ns / sum", "torch", "torch / ours"], rows)

    def sizes(self, names, threads):
        """One thread and several by size, split however small."""
        rows = []
        before = _ufuncs.threads_piece(1024)

        def one():
            fastgelu.set_num_threads(1)

        def more():
            fastgelu.set_num_threads(threads)

        def pause():
            time.sleep(0.002)  # workers sleep soon after their last work

        try:
            for name in names:
                ufunc = getattr(fastgelu, name)
                for shift in range(12, self.size.bit_length()):
                    n = 1 << shift
                    args = [a[:n] for a in [self.dy, self.x][-ufunc.nin :]]
                    call = lambda u=ufunc, a=args, n=n: u(*a, out=self.y[:n])  # noqa: E731
                    repeats = max(1, (1 << 22) // n)
                    us = least(
                        {
                            "one": (one, call, repeats),
                            "more": (more, call, repeats),
                            "one, paused": (lambda: (pause(), one()), call, 1),
                            "more, paused": (lambda: (pause(), more()), call, 1),
                        },
                        2 * self.rounds,
                    )
                    us = {what: seconds * 1e6 for what, seconds in us.items()}
                    row = [name, common.size_name(n)]
                    for when in ("", ", paused"):
                        first, second = us["one" + when], us["more" + when]
                        row += [f"{first:.1f}", f"{second:.1f}", f"{first / second:.2f}"]
                    rows.append([*row, "yes" if n * 4 >= 2 * before else "no"])
        finally:
            _ufuncs.threads_piece(before)
        header = ["function", "elements", "1 thread, µs", f"{threads} threads", "gain"]
        header += ["1 thread after a pause", f"{threads} threads", "gain", "split by default"]
        return common.table(header, rows)

    def stores(self, names, counts):
        """Plain and non-temporal stores by size."""
        rows = []
        before = _ufuncs.stream_above()
        try:
            for name in names:
                ufunc = getattr(fastgelu, name)
                for t in counts:
                    for shift in range(19, self.size.bit_length()):
                        n = 1 << shift
                        args = [a[:n] for a in [self.dy, self.x][-ufunc.nin :]]
                        call = lambda u=ufunc, a=args, n=n: u(*a, out=self.y[:n])  # noqa: E731
                        fastgelu.set_num_threads(t)
                        times = least(
                            {
                                "plain": (lambda: _ufuncs.stream_above(1 << 40), call, 2),
                                "past": (lambda: _ufuncs.stream_above(1), call, 2),
                            },
                            2 * self.rounds,
                        )
                        ns = {k: v / n * 1e9 for k, v in times.items()}
                        default = "past" if n * 4 > before else "plain"
                        rows.append(
                            [
                                name,
                                t,
                                common.size_name(n),
                                f"{ns['plain']:.3f}",
                                f"{ns['past']:.3f}",
                            ]
                            + [f"{ns['plain'] / ns['past']:.2f}", default]
                        )
        finally:
            _ufuncs.stream_above(before)
        header = ["function", "threads", "elements", "plain, ns", "past the caches, ns"]
        return common.table([*header, "gain", "by default"], rows)


def main(argv=None):
    parser = common.parser(__doc__.splitlines()[0])
    few = ["gelu", "gelu_tanh", "silu", "gelu_backward", "silu_backward"]
    parser.set_defaults(functions=few)
    parser.add_argument(
        "--threads",
        type=common.at_least(1),
        nargs="+",
        default=[1, 2],
        metavar="N",
        help="default: 1 2",
    )
    parser.add_argument("--size", type=common.parse_size, default=16 << 20, help="default: 16Mi")
    parser.add_argument(
        "--rounds", type=common.at_least(1), default=9, metavar="N", help="default: 9"
    )
    parser.add_argument("--tables", nargs="+", choices=TABLES, default=TABLES)
    args = parser.parse_args(argv)
    bench = Bench(args.size, args.rounds)
    tables = {
        "machine": lambda: bench.machine(args.threads),
        "roof": lambda: bench.roofs(args.functions, args.threads),
        "sizes": lambda: bench.sizes(args.functions, max(args.threads)),
        "stores": lambda: bench.stores(args.functions, args.threads),
    }
    print(common.describe() + ". float32; nanoseconds an element, the least of interleaved rounds.")
    for name in args.tables:
        print(f"\n{tables[name].__doc__ or ''}{tables[name]()}", flush=True)


if __name__ == "__main__":
    main()
