# SPDX-License-Identifier: BSD-3-Clause
"""ffn.c by way of ctypes: the C library from Python, without NumPy: python ffn_ctypes.py"""

import ctypes
import os
import sys

import fastgelu

NAMES = {"linux": "libfastgelu.so.0", "darwin": "libfastgelu.0.dylib", "win32": "fastgelu.dll"}
library = ctypes.CDLL(os.path.join(fastgelu.get_library_dir(), NAMES[sys.platform]))
doubles = ctypes.POINTER(ctypes.c_double)
library.fastgelu_gelu_f64.argtypes = [ctypes.c_size_t, doubles, doubles]
library.fastgelu_gelu_f64.restype = None
library.fastgelu_gelu_backward_f64.argtypes = [ctypes.c_size_t, doubles, doubles, doubles]
library.fastgelu_gelu_backward_f64.restype = None


def call(function, *inputs):
    """Call a function of the library on matrices that are lists of rows."""
    rows, columns = len(inputs[0]), len(inputs[0][0])
    array = ctypes.c_double * (rows * columns)
    out = array()
    function(len(out), *(array(*(v for row in m for v in row)) for m in inputs), out)
    return [list(out[i * columns : (i + 1) * columns]) for i in range(rows)]


def gelu(h):
    return call(library.fastgelu_gelu_f64, h)


def gelu_backward(dy, h):
    return call(library.fastgelu_gelu_backward_f64, dy, h)


def dot(row, column):
    total = 0.0  # not sum(), which compensates since Python 3.12
    for p, q in zip(row, column):
        total += p * q
    return total


def times(a, b):
    return [[dot(row, column) for column in zip(*b)] for row in a]


def transposed(a):
    return [list(column) for column in zip(*a)]


def loss(x, a, b):
    """Half the sum of the squares of y = gelu(x A) B."""
    total = 0.0
    for row in times(gelu(times(x, a)), b):
        for y in row:
            total += y * y / 2
    return total


def main():
    x = [[((4 * i + j) * 37 % 41 - 20) / 10 for j in range(4)] for i in range(5)]
    a = [[((16 * i + j) * 29 % 31 - 15) / 16 for j in range(16)] for i in range(4)]
    b = [[((4 * i + j) * 23 % 29 - 14) / 16 for j in range(4)] for i in range(16)]

    h = times(x, a)
    g = gelu(h)
    dy = times(g, b)  # y, and the gradient of the loss
    db = times(transposed(g), dy)
    dh = gelu_backward(times(dy, transposed(b)), h)
    da = times(transposed(x), dh)
    dx = times(dh, transposed(a))

    total = loss(x, a, b)
    print(f"loss {total:.9g}")
    for name, d in {"dx": dx, "dA": da, "dB": db}.items():
        print(f"{name}   {d[0][0]:.9g} {d[0][1]:.9g} ...")

    step = 1 / (1 << 17)
    worst = 0.0
    for parameter, gradient in ((x, dx), (a, da), (b, db)):
        for row, slopes in zip(parameter, gradient):
            for j, slope in enumerate(slopes):
                kept = row[j]
                row[j] = kept + step
                above = loss(x, a, b)
                row[j] = kept - step
                below = loss(x, a, b)
                row[j] = kept
                worst = max(worst, abs((above - below) / (2 * step) - slope))
    ok = worst < 1e-6 * total
    print("finite differences", "agree" if ok else "DISAGREE")
    return 0 if ok else 1


if __name__ == "__main__":
    sys.exit(main())
