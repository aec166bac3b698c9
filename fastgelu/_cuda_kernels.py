# SPDX-License-Identifier: BSD-3-Clause
"""The CUDA kernels: one for each function, dtype and layout, compiled when first launched.

Operands are addresses, so that nothing depends on whose arrays they are. A kernel of a function of
one argument does not look at dy.
"""

import functools
import hashlib
from pathlib import Path

import numpy as np
from numba import cuda
from numba.core import config

if config.ENABLE_CUDASIM:
    from fastgelu._cuda_simulated import IN_FLIGHT, SIZES, VECTOR_BYTES, offsets, one, several
else:
    from fastgelu._cuda_overloads import IN_FLIGHT, SIZES, VECTOR_BYTES, offsets, one, several

# What a kernel is made of, beside this file.
PARTS = ("_formulas", "_formulas16", "_coefficients", "_coefficients16")
PARTS += ("_operations", "_llvm", "_cuda_overloads")
FOLDER = Path(__file__).parent
BYTES = VECTOR_BYTES * IN_FLIGHT  # a thread, an operand


def contiguous(name, dtype, stamp):
    """Elements side by side, aligned to VECTOR_BYTES; `tiles` blocks of them are whole."""
    size = SIZES[dtype]

    def kernel(n, tiles, dy, x, y):
        stamp  # noqa: B018 (a part of the key in Numba's cache)
        step = np.int64(cuda.blockDim.x) * VECTOR_BYTES
        tile = step * IN_FLIGHT  # of a block, in bytes
        i = np.int64(cuda.blockIdx.x)
        while i < tiles:
            at = i * tile + cuda.threadIdx.x * VECTOR_BYTES
            several(name, dtype, dy + at, x + at, y + at, step)
            i += cuda.gridDim.x
        at = tiles * tile + np.int64(cuda.grid(1)) * size
        while at < n * size:
            one(name, dtype, dy + at, x + at, y + at)
            at += np.int64(cuda.gridsize(1)) * size

    return kernel


def strided(name, dtype, stamp):
    """Any strides, in bytes, and any alignment to an element."""

    def kernel(n, dy, x, y, shape, dy_strides, x_strides, y_strides):
        stamp  # noqa: B018
        i = np.int64(cuda.grid(1))
        while i < n:
            dy_at, x_at, y_at = offsets(i, shape, dy_strides, x_strides, y_strides)
            one(name, dtype, dy + dy_at, x + x_at, y + y_at)
            i += np.int64(cuda.gridsize(1))

    return kernel


@functools.cache
def stamp():
    """Changes with the formulas, which Numba's cache does not know to be part of a kernel."""
    digest = hashlib.sha256()
    for part in PARTS:
        digest.update((FOLDER / f"{part}.py").read_bytes())
    return digest.hexdigest()[:16]


@functools.cache
def kernel(layout, name, dtype):
    function = {"contiguous": contiguous, "strided": strided}[layout](name, dtype, stamp())
    if config.ENABLE_CUDASIM:
        return cuda.jit(function)
    try:
        return cuda.jit(cache=True)(function)
    except RuntimeError:  # nowhere to keep a cache: neither beside this file nor in a home
        return cuda.jit(function)
