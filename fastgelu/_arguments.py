# SPDX-License-Identifier: BSD-3-Clause
"""What the functions of fastgelu.functional take as arrays, and what they say of the rest."""

import operator

import numpy as np

DTYPES = "float16, bfloat16, float32, float64, bool and the integers"
HOST = (1, 3)  # DLPack's kDLCPU and kDLCUDAHost


def type_name(x):
    """The name of the type of x, with its module."""
    return f"{type(x).__module__}.{type(x).__qualname__}".removeprefix("builtins.")


def operand(x, label):
    """x as what a ufunc may be called with: an array, or an object that knows what to do then.

    JAX's and PyTorch's arrays, and all others that speak DLPack only, are looked at as arrays of
    NumPy: without a copy, and never written to.
    """
    if not isinstance(x, np.ndarray):
        device = getattr(x, "__dlpack_device__", None)
        if hasattr(x, "__cuda_array_interface__") or (
            device is not None and device()[0] not in HOST
        ):
            raise TypeError(
                f"{label} is a {type_name(x)} in the memory of a device; fastgelu.cuda has the "
                "functions for arrays there"
            )
        if not hasattr(x, "__array_ufunc__"):
            if device is not None and not hasattr(x, "__array__"):
                x = np.from_dlpack(x)
            else:
                x = np.asarray(x)
    dtype = getattr(x, "dtype", None)
    if isinstance(dtype, np.dtype):
        check_dtype(dtype, label)
    return x


def check_dtype(dtype, label):
    """Refuse a dtype that the ufuncs have no loop for."""
    if dtype.kind in "biu" or dtype.char in "efd":
        return
    if dtype.kind == "V" and np.can_cast(dtype, np.float32):  # bfloat16, float8
        return
    raise TypeError(f"{label} has dtype {dtype}; choose one of {DTYPES}")


def array(x, label):
    """x as an ndarray proper."""
    x = operand(x, label)
    if isinstance(x, np.ma.MaskedArray):
        raise TypeError(f"{label} is a masked array, whose mask would be lost; fill it first")
    x = np.asarray(x)
    check_dtype(x.dtype, label)
    return x


def result_dtype(arrays):
    """The dtype of a result: NumPy's promotion, float64 for integers."""
    dtypes = [np.dtype(np.float64) if a.dtype.kind in "biu" else a.dtype for a in arrays]
    try:
        return np.result_type(*dtypes)
    except TypeError:  # bfloat16 with float16
        return np.dtype(np.float32)


def working_dtype(dtype):
    """What is computed in: float32 for 16 bits and less."""
    return np.dtype(np.float32) if dtype.itemsize < 4 else dtype.newbyteorder("=")


def check_broadcast(*pairs):
    """Refuse shapes, of (label, array), that do not broadcast; others' objects decide alone."""
    if all(isinstance(x, np.ndarray) for _, x in pairs):
        try:
            np.broadcast_shapes(*(x.shape for _, x in pairs))
        except ValueError:
            told = ", ".join(f"{label} {x.shape}" for label, x in pairs)
            raise ValueError(f"shapes do not broadcast: {told}") from None


def choose(label, value, choices):
    """What `value` stands for in `choices`, a dict."""
    if not isinstance(value, str) or value not in choices:
        told = ", ".join(map(repr, choices))
        raise ValueError(f"{label}={value!r} is unknown; choose one of {told}")
    return choices[value]


def normal_axis(axis, ndim):
    """An axis from 0 on."""
    try:
        number = operator.index(axis)
    except TypeError:
        raise TypeError(f"axis must be an integer, not {axis!r}") from None
    if not -ndim <= number < ndim:
        choices = f"{-ndim} to {ndim - 1}" if ndim else "none: it is a scalar"
        raise ValueError(f"axis={axis} is out of range for x of {ndim} dimensions ({choices})")
    return number % ndim
