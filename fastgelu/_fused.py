# SPDX-License-Identifier: BSD-3-Clause
"""The functions of two arguments by composition of the ufuncs, until they are ufuncs themselves."""

import numpy as np

from fastgelu._ufuncs import UFUNCS


def _wide(*args):
    """The arguments, 16 bits as float32; and what the result is rounded to."""
    args = [np.asarray(a) for a in args]
    try:
        dtype = np.result_type(*args)
    except TypeError:
        dtype = np.dtype(np.float32)
    if dtype.itemsize == 2 and dtype.kind not in "iu":
        return dtype, [a.astype(np.float32) for a in args]
    return None, args


def _done(result, dtype, out):
    if dtype is not None:
        result = result.astype(dtype)
    if out is None:
        return result
    np.copyto(out, result, casting="same_kind")
    return out


def lookup(name):
    """The function of that name."""
    if name in UFUNCS:
        return UFUNCS[name]
    backward = name.endswith("_backward")
    base = name.removesuffix("_backward")
    bias = base.startswith("bias_")
    form = base.replace("bias_", "").replace("geglu", "gelu").replace("swiglu", "silu")
    value, slope = UFUNCS[form], UFUNCS[form + "_backward"]

    def forward_(x, b, out=None):
        dtype, (x, b) = _wide(x, b)
        return _done(value(x + b) if bias else value(x) * b, dtype, out)

    def backward_(dy, x, b, out=None):
        dtype, (dy, x, b) = _wide(dy, x, b)
        if bias:
            return _done(slope(dy, x + b), dtype, out)
        outs = (None, None) if out is None else out
        # Both before either is written: an output may be an input.
        results = slope(dy * b, x), dy * value(x)
        return tuple(_done(r, dtype, o) for r, o in zip(results, outs))

    return backward_ if backward else forward_
