# SPDX-License-Identifier: BSD-3-Clause
"""Operations for the formulas: the constants of a dtype, and NumPy's scalars and arrays.

A formula is run with two objects, V and I, that have the operations v_... and i_... of
native/src/vocabulary.h as methods. What a method does with its operands is its own affair: those
below compute; those of _llvm.py write the instruction of a compiler. So one text of the formulas
serves every compiler, and a new one needs these methods only.

Each operation rounds once, as IEEE 754 says. An operation that is missing here is an AttributeError
where a formula uses it.

float16 and bfloat16 have formulas of their own (_formulas16.py), in float32: V and I are those of
"f32", operands come from `widened`, and `rounded` makes the result of what the formula gives.
"""

import ctypes
import functools
from types import SimpleNamespace

import numpy as np

from fastgelu import _coefficients, _coefficients16, _formulas, _formulas16

# What a dtype is computed in, where that is another one.
WIDER = {"f16": "f32", "bf16": "f32"}
TABLE = 8  # entries of a table for `lookup`
FAR = "far"  # see `formulas`

# The width of the fraction field.
FRACTION_BITS = {"f32": 23, "f64": 52}
# i_to_second shifts by so many
SECOND = {"f32": 16, "f64": 36}


@functools.cache
def constants(dtype):
    """The generated constants of a dtype ("f32"), their names in lower case: GELU_LIMIT_F32 is
    constants("f32").gelu_limit."""
    suffix = f"_{dtype.upper()}"
    module = _coefficients16 if dtype in WIDER else _coefficients
    return SimpleNamespace(
        **{
            name.removesuffix(suffix).lower(): value
            for name, value in vars(module).items()
            if name.endswith(suffix)
        }
    )


def formulas(dtype, reals, integers):
    """The functions of a dtype by name, of the operations V and I: (x, near) or (dy, x, near).

    Near is true if all x lie where `ways` says; in float32 and float64 it is FAR if none does.
    """
    module = _formulas16 if dtype in WIDER else _formulas
    found = module.formulas(reals, integers, constants(dtype))
    if dtype in WIDER:
        return found

    def either(name):
        def function(*args):
            *args, near = args
            if near:
                return found[("far_" if near == FAR else "near_") + name](*args, near == FAR)
            return found[name](*args)

        return function

    return {name: either(name) for name in found if "near_" + name in found}


def ways(name, dtype):
    """The shorter ways through a function: (above, most, near), the shortest first. A way may be
    taken for above < |x| <= most; all give the same bits, and near=False is for every x."""
    return ((-1.0, getattr(constants(dtype), f"{name}_near"), True),)


class _Anything:
    """Operations that do nothing."""

    def __getattr__(self, name):
        return lambda *args: None


@functools.cache
def tables(name, dtype):
    """The columns of 8 numbers that a function looks up in, by any way, in order."""
    found = []

    class Reals(_Anything):
        def row(self, table, rows, columns, index):
            if dtype != "f64":
                found.extend(columns_of(table, rows))

    formula = formulas(dtype, Reals(), _Anything())[name]
    operands = 2 if name.endswith("_backward") else 1
    for near in (*(way[-1] for way in ways(name, dtype)), False):
        formula(*[None] * operands, near)
    return tuple(dict.fromkeys(found))


def columns_of(table, rows):
    """The columns of a table that holds one after the other."""
    return [tuple(table[at : at + rows]) for at in range(0, len(table), rows)]


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

    def positive(self, a):
        return self.select_negative(a, self._real(-0.0), a)

    def select_infinite(self, s, a, b):
        return np.where(np.isinf(s), a, b)[()]

    def raised(self, above, a):
        return self.select_infinite(above, above, a)

    def row(self, table, rows, columns, i):
        table = np.array(table, self._real)
        if self._real is np.float32:
            table = table.reshape(columns, rows).T
        else:
            table = table.reshape(rows, columns)
        return table[np.bitwise_and(i, rows - 1)]

    def entry(self, row, n):
        return row[..., n]


class NumpyIntegers:
    """I, likewise."""

    def __init__(self, dtype):
        self._fraction_bits, self._second = FRACTION_BITS[dtype], SECOND[dtype]
        self.add, self.sub, self.max, self.min = np.add, np.subtract, np.maximum, np.minimum

    def to_exponent(self, i):
        return np.left_shift(i, i.dtype.type(self._fraction_bits))

    def to_second(self, i):
        return np.left_shift(i, i.dtype.type(self._second))


# ---- float16 and bfloat16 --------------------------------------------------------------------

INFINITY_F32 = 0x7F800000
NAN_BF16 = 0x7FC0


def widened(dtype, bits):
    """The float32 numbers with the value of 16-bit encodings (uint16), exactly."""
    if dtype == "f16":
        return np.asarray(bits, np.uint16).view(np.float16).astype(np.float32)
    return np.left_shift(np.asarray(bits, np.uint32), np.uint32(16)).view(np.float32)


def rounded(dtype, a):
    """The encodings (uint16) of float32 numbers rounded once, to nearest, ties to even."""
    if dtype == "f16":
        with np.errstate(over="ignore", under="ignore"):
            return np.asarray(a, np.float32).astype(np.float16).view(np.uint16)
    bits = np.asarray(a, np.float32).view(np.uint32)
    tie = np.bitwise_and(np.right_shift(bits, np.uint32(16)), np.uint32(1))
    nan = np.bitwise_and(bits, np.uint32(0x7FFFFFFF)) > np.uint32(INFINITY_F32)
    with np.errstate(over="ignore"):
        near = np.right_shift(bits + (np.uint32(0x7FFF) + tie), np.uint32(16))
    return np.where(nan, np.uint32(NAN_BF16), near).astype(np.uint16)
