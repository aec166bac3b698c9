# SPDX-License-Identifier: BSD-3-Clause
"""The parts of _cuda_overloads.py for Numba's CUDA simulator, computed with NumPy.

Device memory is the host's there.
"""

import ctypes

import numpy as np

from fastgelu import _ufuncs
from fastgelu._operations import (
    FAR,
    WIDER,
    NumpyIntegers,
    NumpyReals,
    formulas,
    rounded,
    ways,
    widened,
)

SIZES = {"f16": 2, "bf16": 2, "f32": 4, "f64": 8}
VECTOR_BYTES = 16
IN_FLIGHT = 2

FORMULAS = {
    dtype: formulas(
        dtype, NumpyReals(WIDER.get(dtype, dtype)), NumpyIntegers(WIDER.get(dtype, dtype))
    )
    for dtype in SIZES
}


def memory(address, dtype, count, alignment):
    if address % alignment:
        raise ValueError(f"address {address:#x} is not a multiple of {alignment}")
    data = (ctypes.c_char * (SIZES[dtype] * count)).from_address(int(address))
    return np.frombuffer(data, "u2" if dtype in WIDER else dtype.replace("f", "float"))


def compute(name, dtype, addresses, count, alignment, shorter, otherwise=False):
    """The elements at the addresses of x, y or dy, x, y, by a shorter way where `shorter` and they
    all allow it."""
    *inputs, y = (
        memory(address, dtype, count, alignment)
        for address in addresses[-_ufuncs.UFUNCS[name].nin - 1 :]
    )
    with np.errstate(all="ignore"):
        if dtype in WIDER:
            inputs = [widened(dtype, x) for x in inputs]
        way = (shorter and way_of(name, dtype, inputs[-1])) or otherwise
        result = FORMULAS[dtype][name](*inputs, way)
        y[:] = rounded(dtype, result) if dtype in WIDER else result


def way_of(name, dtype, x):
    """The first way that all x allow."""
    for above, most, near in ways(name, dtype):
        if np.all((np.abs(x) > above) & (np.abs(x) <= most)):
            return near
    return False


def one(name, dtype, dy, x, y):
    if dtype in WIDER:
        compute(name, dtype, (dy, x, y), 1, SIZES[dtype], False)
    else:
        compute(name, dtype, (dy, x, y), 1, SIZES[dtype], True, FAR)


def several(name, dtype, dy, x, y, step):
    for k in range(IN_FLIGHT):
        addresses = [address + k * step for address in (dy, x, y)]
        compute(name, dtype, addresses, VECTOR_BYTES // SIZES[dtype], VECTOR_BYTES, True)


def offsets(i, shape, *strides):
    at = np.unravel_index(i, shape)
    return [sum(a * s for a, s in zip(at, each)) for each in strides]
