# SPDX-License-Identifier: BSD-3-Clause
"""Operations for _formulas.py: the constants of a dtype, and NumPy's scalars and arrays.

A formula is run with two objects, V and I, that have the operations v_... and i_... of
native/src/vocabulary.h as methods. What a method does with its operands is its own affair: those
below compute; those of _llvm.py write the instruction of a compiler. So one text of the formulas
serves every compiler, and a new one needs these methods only.

Each operation rounds once, as IEEE 754 says. An operation that is missing here is an AttributeError
where a formula uses it.
"""

import ctypes
import functools
from types import SimpleNamespace

import numpy as np

from fastgelu import _coefficients

# The width of the fraction field.
FRACTION_BITS = {"f32": 23, "f64": 52}


@functools.cache
def constants(dtype):
    """The generated constants of a dtype ("f32"), their names in lower case: GELU_LIMIT_F32 is
    constants("f32").gelu_limit."""
    suffix = f"_{dtype.upper()}"
    return SimpleNamespace(
        **{
            name.removesuffix(suffix).lower(): value
            for name, value in vars(_coefficients).items()
            if name.endswith(suffix)
        }
    )


@functools.cache
def _fma_of_libm():
    library = ctypes.CDLL(None) if hasattr(ctypes, "pythonapi") else ctypes.cdll.msvcrt
    fma = library.fma
    fma.restype, fma.argtypes = ctypes.c_double, [ctypes.c_double] * 3
    return np.frompyfunc(fma, 3, 1)


def _fma_f64(a, b, c):
    return np.asarray(_fma_of_libm()(a, b, c), np.float64)[()]


def _fma_f32(a, b, c):
    """By way of float64, where the product is exact, and the sum is rounded to odd: no information
    that the second rounding needs is lost."""
    product = np.multiply(a, b, dtype=np.float64)
    c = np.asarray(c, np.float64)
    total = product + c
    part = total - product
    rest = (product - (total - part)) + (c - part)
    inexact_even = (rest != 0) & np.isfinite(rest) & (total.view(np.int64) & 1 == 0)
    toward = np.where(rest > 0, np.inf, -np.inf)
    return np.where(inexact_even, np.nextafter(total, toward), total).astype(np.float32)[()]


class NumpyReals:
    """V for NumPy's scalars and arrays of dtype "f32" or "f64"."""

    def __init__(self, dtype):
        self._real = np.dtype(dtype.replace("f", "float")).type
        self._integer = np.dtype(dtype.replace("f", "int")).type
        self._fma = {"f32": _fma_f32, "f64": _fma_f64}[dtype]
        self.add, self.sub, self.mul, self.div = np.add, np.subtract, np.multiply, np.divide
        self.abs, self.neg, self.copysign = np.abs, np.negative, np.copysign

    def real(self, i):
        return np.asarray(i, self._integer).view(self._real)[()]

    def set(self, c):
        return self._real(c)

    def bits(self, a):
        return np.asarray(a, self._real).view(self._integer)[()]

    def fma(self, a, b, c):
        return self._fma(a, b, c)

    def fnma(self, a, b, c):
        return self._fma(-a, b, c)

    def fms(self, a, b, c):
        return self._fma(a, b, -c)

    def select_above(self, t, limit, a, b):
        return np.where(t > limit, a, b)[()]

    def select_negative(self, s, a, b):
        return np.where(np.signbit(s), a, b)[()]

    def select_infinite(self, s, a, b):
        return np.where(np.isinf(s), a, b)[()]

    def row(self, table, rows, columns, i):
        table = np.array(table, self._real)
        if self._real is np.float32:
            table = table.reshape(columns, rows).T
        else:
            table = table.reshape(rows, columns)
        return table[np.asarray(i) & (rows - 1)]

    def entry(self, row, n):
        return row[..., n]


class NumpyIntegers:
    """I, likewise."""

    def __init__(self, dtype):
        self._fraction_bits = FRACTION_BITS[dtype]
        self.add, self.sub, self.max, self.min = np.add, np.subtract, np.maximum, np.minimum

    def to_exponent(self, i):
        return np.left_shift(i, i.dtype.type(self._fraction_bits))
