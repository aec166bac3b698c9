# SPDX-License-Identifier: BSD-3-Clause
"""One short run of one build for gate.py, in a process of its own.

Reads what to measure as JSON on stdin, writes the times as JSON on stdout. Imports nothing of the
other benchmarks: it has to serve builds of any revision.
"""

import ctypes
import functools
import json
import math
import sys
import time

import numpy as np

SEED = 20240229
SHORT = {"float32": "f32", "float64": "f64", "float16": "f16", "bfloat16": "bf16"}


def aligned(size, dtype, offset):
    """An array that begins `offset` bytes past a page, in every process alike."""
    raw = np.empty(size * dtype.itemsize + 8192, np.uint8)
    start = -raw.ctypes.data % 4096 + offset
    return raw[start : start + size * dtype.itemsize].view(dtype)


class Package:
    """The ufuncs of the package in a folder."""

    def __init__(self, path):
        sys.path.insert(0, path)
        import fastgelu

        if not fastgelu.__file__.startswith(path):
            raise SystemExit(f"imported {fastgelu.__file__} instead of the one in {path}")
        fastgelu.set_num_threads(1)
        self.target = fastgelu.target()
        self._module = fastgelu

    def dtype(self, name):
        if name == "bfloat16":
            import ml_dtypes

            return np.dtype(ml_dtypes.bfloat16)
        return np.dtype(name)

    def bind(self, name, dtype, inputs, out):
        return functools.partial(getattr(self._module, name), *inputs, out=out)


class Library:
    """The functions of a shared library, which come with a call by ctypes: for large n."""

    def __init__(self, path):
        self._library = ctypes.CDLL(path)
        self._library.fastgelu_target.restype = ctypes.c_char_p
        self.target = self._library.fastgelu_target().decode()

    def dtype(self, name):
        return np.dtype("uint16" if name in ("float16", "bfloat16") else name)

    def bind(self, name, dtype, inputs, out):
        function = self._library[f"fastgelu_{name}_{SHORT[dtype]}"]
        function.restype = None
        arrays = [ctypes.c_void_p(array.ctypes.data) for array in (*inputs, out)]
        return functools.partial(function, ctypes.c_size_t(out.size), *arrays)


def fill(array, dtype, rng):
    """Numbers of normal(0, 1)."""
    x = rng.standard_normal(array.size, np.float64 if dtype == "float64" else np.float32)
    if array.dtype == np.uint16:  # bits
        array[:] = x.astype("f2").view("u2") if dtype == "float16" else x.view("u4") >> 16
    else:
        array[:] = x.astype(array.dtype)


def repetitions(call, block):
    """How many calls last about `block` seconds."""
    count = 1
    while True:
        start = time.perf_counter()
        for _ in range(count):
            call()
        spent = time.perf_counter() - start
        if spent >= block / 4:
            return max(1, math.ceil(count * block / spent))
        count *= 4


def main():
    task = json.load(sys.stdin)
    build = (Library if task["native"] else Package)(task["path"])
    buffers, calls = {}, []
    for name, dtype, size, inputs in task["cases"]:
        if dtype not in buffers:
            most = max(case[2] for case in task["cases"] if case[1] == dtype)
            # not at the same place of a page: a load would wait for a store to the other array
            buffers[dtype] = [aligned(most, build.dtype(dtype), 1344 * i) for i in range(3)]
            rng = np.random.default_rng(SEED)
            for array in buffers[dtype][:2]:
                fill(array, dtype, rng)
            buffers[dtype][2][:] = buffers[dtype][0]  # its pages are there
        dy, x, out = (array[:size] for array in buffers[dtype])
        calls.append(build.bind(name, dtype, [dy, x][-inputs:], out))
    counts = task["counts"]
    if counts is None:
        for call in calls:
            call()
        counts = [repetitions(call, task["block"]) for call in calls]
    times = []
    clock = time.perf_counter
    for call, count in zip(calls, counts):
        call()
        call()
        of_one = []
        for _ in range(task["blocks"] if count > 1 else (task["blocks"] + 1) // 2):
            start = clock()
            for _ in range(count):
                call()
            of_one.append((clock() - start) / count)
        times.append(of_one)
    json.dump({"target": build.target, "counts": counts, "times": times}, sys.stdout)


if __name__ == "__main__":
    main()
