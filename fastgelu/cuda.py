# SPDX-License-Identifier: BSD-3-Clause
"""The functions on arrays in the memory of a CUDA device (pip install 'fastgelu[cuda]').

    from fastgelu import cuda
    y = cuda.gelu(x)          # x: of CuPy, PyTorch, Numba, ...
    cuda.gelu(x, out=x)

float16, bfloat16, float32 and float64, with the results of the CPU, bit for bit. In a kernel of
one's own (`@numba.cuda.jit`), once this module is imported, `fastgelu.gelu` is a function of
scalars: numba-cuda looks at no entry point when a kernel is launched.
"""

import functools
import math
import sys
from contextlib import nullcontext
from typing import NamedTuple

import numpy as np

from fastgelu import _cuda, _dlpack, _ufuncs
from fastgelu._docs import split
from fastgelu._dtypes import bfloat16, from_numpy

_cuda_module = _cuda.import_cuda()

from numba.core import config as _config  # noqa: E402

from fastgelu import _cuda_kernels  # noqa: E402

__all__ = list(_ufuncs.COMPILED)

SIMULATED = bool(_config.ENABLE_CUDASIM)
BLOCK = 8 if SIMULATED else 256  # the simulator starts a Python thread for each of a block

ITEMSIZES = {"float16": 2, "bfloat16": 2, "float32": 4, "float64": 8}
BLOCKS = 1024  # a multiprocessor and launch, at most
FEWEST_BLOCKS = 1 if SIMULATED else 128  # Numba warns of less, and idle ones cost nothing
LEGACY_STREAM = 1


# ---- arrays ----------------------------------------------------------------------------------


class Operand(NamedTuple):
    """An array in device memory."""

    source: object
    pointer: int
    shape: tuple
    strides: tuple  # in bytes
    dtype: str  # NumPy's name, or bfloat16
    readonly: bool
    stream: int | None  # where the last work on it is queued; None: nothing to wait for
    keep: object  # what must live until the kernel is queued

    @property
    def size(self):
        return math.prod(self.shape)

    @property
    def itemsize(self):
        return ITEMSIZES[self.dtype]

    @property
    def range(self):
        """The first byte, and the one after the last."""
        reach = [(n - 1) * s for n, s in zip(self.shape, self.strides)]
        first = self.pointer + sum(r for r in reach if r < 0)
        return first, self.pointer + sum(r for r in reach if r > 0) + self.itemsize


def _library(x):
    """Whose array it is: the module "torch" or "cupy", or None."""
    for name, kind in (("torch", "Tensor"), ("cupy", "ndarray")):
        module = sys.modules.get(name)
        if module is not None and isinstance(x, getattr(module, kind, ())):
            return module
    return None


def _interface(x, stream):
    if SIMULATED and hasattr(x, "_ary"):  # an array of the simulator has no interface
        return {**x._ary.__array_interface__, "stream": None}
    try:
        found = getattr(x, "__cuda_array_interface__", None)
    except Exception:  # JAX and older PyTorch have none for bfloat16, and DLPack has
        if not _is_bfloat16(x):
            raise
        found = None
    return _dlpack.interface(x, stream or LEGACY_STREAM) if found is None else found


def _is_bfloat16(x):
    """By the name of its dtype, whoever's it is. The interface has no type of its own for it:
    ml_dtypes, CuPy and PyTorch say "<V2", some releases of PyTorch "<f2"."""
    return str(getattr(x, "dtype", None)) in ("bfloat16", "torch.bfloat16")


def _dtype(x, interface):
    """The name of a dtype that is supported; otherwise any other text."""
    if interface["typestr"] == "bfloat16" or _is_bfloat16(x):
        return "bfloat16"
    dtype = np.dtype(interface["typestr"])
    return dtype.name if dtype.isnative and dtype.kind == "f" else str(dtype)


def _current_stream(x, interface):
    """The handle of the stream that work on x is queued in, None where it does not matter."""
    library = _library(x)
    if library is None:
        return interface.get("stream")
    if library.__name__ == "torch":
        return library.cuda.current_stream(x.device).cuda_stream
    return library.cuda.get_current_stream().ptr


def _c_strides(shape, itemsize):
    strides = []
    for n in reversed(shape):
        strides.append(itemsize)
        itemsize *= n
    return tuple(reversed(strides))


def _operand(name, label, x, stream):
    interface = _interface(x, stream)
    if interface is None:
        kind = f"{type(x).__module__}.{type(x).__qualname__}".removeprefix("builtins.")
        raise TypeError(
            f"fastgelu.cuda.{name}: {label} is no array in device memory, but a {kind}; "
            f"for host arrays there is fastgelu.{name}"
        )
    if interface.get("mask") is not None:
        raise TypeError(f"fastgelu.cuda.{name}: {label} has a mask, which is not supported")
    dtype = _dtype(x, interface)
    if dtype not in ITEMSIZES:
        raise TypeError(
            f"fastgelu.cuda.{name}: {label} must be float16, bfloat16, float32 or float64, in the "
            f"processor's byte order, not {dtype}"
        )
    itemsize = ITEMSIZES[dtype]
    pointer, readonly = interface["data"]
    shape = tuple(map(int, interface["shape"]))
    strides = interface.get("strides")
    strides = _c_strides(shape, itemsize) if strides is None else tuple(map(int, strides))
    if any(value % itemsize for value in (pointer or 0, *strides)):
        raise ValueError(f"fastgelu.cuda.{name}: {label} is not aligned to its elements")
    stream = _current_stream(x, interface)
    keep = interface.get("capsule")
    return Operand(x, pointer or 0, shape, strides, dtype, bool(readonly), stream, keep)


def _broadcast(operand, shape):
    missing = len(shape) - len(operand.shape)
    strides = [
        0 if have == 1 and want != 1 else stride
        for have, want, stride in zip(operand.shape, shape[missing:], operand.strides)
    ]
    return operand._replace(shape=shape, strides=(*[0] * missing, *strides))


def _result_shape(name, inputs):
    try:
        return np.broadcast_shapes(*(x.shape for x in inputs))
    except ValueError:
        shapes = " and ".join(str(x.shape) for x in inputs)
        raise ValueError(f"fastgelu.cuda.{name}: shapes {shapes} do not broadcast") from None


def _check_inputs(name, inputs):
    if len({x.dtype for x in inputs}) > 1:
        dtypes = " and ".join(str(x.dtype) for x in inputs)
        raise TypeError(f"fastgelu.cuda.{name}: the arguments have different dtypes, {dtypes}")


def _check_out(name, inputs, shape, out):
    """out against the inputs, which are broadcast already."""
    prefix = f"fastgelu.cuda.{name}: out"
    if out.dtype != inputs[0].dtype:
        raise TypeError(f"{prefix} has dtype {out.dtype}, and the arguments {inputs[0].dtype}")
    if out.shape != shape:
        raise ValueError(f"{prefix} has shape {out.shape}, and the result {shape}")
    if out.readonly:
        raise ValueError(f"{prefix} is read-only")
    if out.size == 0:
        return
    covered = out.itemsize
    for stride, n in sorted((abs(s), n) for n, s in zip(out.shape, out.strides) if n > 1):
        if stride < covered:
            raise ValueError(f"{prefix} has elements that share memory")
        covered += stride * (n - 1)
    first, end = out.range
    for x in inputs:
        x_first, x_end = x.range
        same = (x.pointer, _moving(x)) == (out.pointer, _moving(out))
        if not same and x_first < end and first < x_end and _share(x, out):
            raise ValueError(
                f"{prefix} shares memory with an argument, but not element by element; "
                "copy the argument first"
            )


def _moving(x):
    """The strides that matter."""
    return [s for n, s in zip(x.shape, x.strides) if n > 1]


def _share(a, b):
    """Whether two operands share an element; NumPy finds out from addresses alone."""

    class Addresses:
        def __init__(self, x):
            self.__array_interface__ = {
                "version": 3,
                "data": (x.pointer, True),
                "shape": x.shape,
                "strides": x.strides,
                "typestr": f"|V{x.itemsize}",
            }

    try:
        return np.shares_memory(np.asarray(Addresses(a)), np.asarray(Addresses(b)), 100_000)
    except np.exceptions.TooHardError:
        return True


# ---- devices and streams ---------------------------------------------------------------------


def _device(name, operands):
    """The number of the device that all operands lie on; None where all are empty."""
    if SIMULATED:
        return None
    from cuda.bindings import driver

    attribute = driver.CUpointer_attribute.CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL
    devices = set()
    for x in operands:
        if x.pointer and x.size:
            error, device = driver.cuPointerGetAttribute(attribute, x.pointer)
            if error != driver.CUresult.CUDA_SUCCESS:
                raise ValueError(
                    f"fastgelu.cuda.{name}: an array is not in device memory ({error!r})"
                )
            devices.add(int(device))
    if len(devices) > 1:
        listed = ", ".join(map(str, sorted(devices)))
        raise ValueError(f"fastgelu.cuda.{name}: the arrays lie on different devices, {listed}")
    return devices.pop() if devices else None


def _handle(name, stream):
    """The handle of a stream of any library's."""
    if stream is None or isinstance(stream, int):
        return stream
    for attribute in ("cuda_stream", "ptr"):  # torch, CuPy
        if isinstance(handle := getattr(stream, attribute, None), int):
            return handle
    if hasattr(stream, "__cuda_stream__"):
        return int(stream.__cuda_stream__()[1])
    if SIMULATED:
        return 0
    raise TypeError(
        f"fastgelu.cuda.{name}: stream must be a stream of Numba, CuPy or PyTorch, or a handle, "
        f"not a {type(stream).__name__}"
    )


def _numba_stream(handle):
    """What Numba takes for a stream."""
    return _cuda_module.external_stream(handle) if handle and not SIMULATED else 0


def _same_stream(a, b):
    """0 is the legacy default stream too."""
    return (a or LEGACY_STREAM) == (b or LEGACY_STREAM)


def _after(earlier, later):
    """Let the work that will be queued in `later` wait for what is queued in `earlier`."""
    event = _cuda_module.event(timing=False)
    event.record(_numba_stream(earlier))
    event.wait(_numba_stream(later))


@functools.cache
def _most_blocks(device):
    """Many times what a device runs at once, so that it is busy to the end, and yet so few that a
    block of a very large array does several tiles."""
    if SIMULATED:
        return 3
    return _cuda_module.gpus[device].MULTIPROCESSOR_COUNT * BLOCKS


# ---- launches --------------------------------------------------------------------------------


def _collapse(operands):
    """The common shape with as few dimensions as possible, and the strides of each operand."""
    axes = [
        (n, strides)
        for n, *strides in zip(operands[0].shape, *(x.strides for x in operands))
        if n > 1
    ]
    axes.sort(key=lambda axis: [abs(s) for s in reversed(axis[1])], reverse=True)
    merged = []
    for n, strides in axes:
        if merged and all(s == n * inner for s, inner in zip(merged[-1][1], strides)):
            merged[-1] = (merged[-1][0] * n, strides)
        else:
            merged.append((n, strides))
    merged = merged or [(1, [0] * len(operands))]
    return tuple(n for n, _ in merged), [tuple(s) for s in zip(*(s for _, s in merged))]


def _launch(name, inputs, out, stream, device):
    """Queue the kernel on the current device; the operands have one shape."""
    n, dtype, size = out.size, from_numpy(out.dtype), out.itemsize
    operands = (*inputs, out)
    shape, strides = _collapse(operands)
    addresses = [x.pointer for x in operands]
    contiguous = n == 1 or (len(shape) == 1 and all(s == (size,) for s in strides))
    fast = contiguous and not any(a % _cuda_kernels.VECTOR_BYTES for a in addresses)
    if len(inputs) == 1:
        addresses.insert(0, 0)
        strides.insert(0, (0,) * len(shape))
    tile = BLOCK * _cuda_kernels.BYTES // size if fast else BLOCK
    blocks = max(FEWEST_BLOCKS, min(-(-n // tile), _most_blocks(device)))
    if fast:
        kernel = _cuda_kernels.kernel("contiguous", name, dtype)
        arguments = (n, n // tile, *addresses)
    else:
        kernel = _cuda_kernels.kernel("strided", name, dtype)
        arguments = (n, *addresses, shape, *strides)
    kernel[blocks, BLOCK, _numba_stream(stream)](*arguments)


def _new(inputs, shape, stream):
    """A new array of the first argument's kind; its order of elements, if it has all the shape."""
    x = inputs[0]
    library = _library(x.source)
    if library is not None:
        if x.shape == shape:
            return library.empty_like(x.source)
        device = {"device": x.source.device} if library.__name__ == "torch" else {}
        return library.empty(shape, dtype=x.source.dtype, **device)
    fortran = x.shape == shape and x.strides == _c_strides(shape[::-1], x.itemsize)[::-1]
    order = "F" if fortran and len(shape) > 1 else "C"
    dtype = bfloat16() if x.dtype == "bfloat16" else np.dtype(x.dtype)
    if dtype is None:
        raise ImportError(
            "fastgelu.cuda needs ml_dtypes for a new array of bfloat16, or the argument out: "
            "pip install ml_dtypes"
        )
    return _cuda_module.device_array(shape, dtype, order=order, stream=_numba_stream(stream))


def _call(name, inputs, out, stream):
    labels = ("x",) if len(inputs) == 1 else ("x1", "x2")
    stream = _handle(name, stream)
    inputs = [_operand(name, label, x, stream) for label, x in zip(labels, inputs)]
    _check_inputs(name, inputs)
    shape = _result_shape(name, inputs)
    views = [_broadcast(x, shape) for x in inputs]
    given = []
    if out is not None:
        given = [_operand(name, "out", out, stream)]
        _check_out(name, views, shape, *given)
    if stream is None:
        stream = next((x.stream for x in (*inputs, *given) if x.stream is not None), 0)
    device = _device(name, (*inputs, *given))
    with nullcontext() if device is None else _cuda_module.gpus[device]:
        if out is None:
            out = _new(inputs, shape, stream)
        target = given[0] if given else _operand(name, "out", out, stream)
        if target.size == 0:
            return out
        others = {
            x.stream or LEGACY_STREAM
            for x in (*inputs, target)
            if x.stream is not None and not _same_stream(x.stream, stream)
        }
        for other in others:
            _after(other, stream)
        _launch(name, views, target, stream, device)
        for other in others:
            _after(stream, other)
    return out


# ---- the functions ---------------------------------------------------------------------------

DOCSTRING = """\
`fastgelu.{name}` on a CUDA device.

Parameters
----------
{parameters} : array in device memory
    {what}: any object with ``__cuda_array_interface__`` or
    ``__dlpack__``, of float16, bfloat16, float32 or float64, of any shape and strides.
out : array in device memory, optional
    Where the result goes, of the same dtype; may be an input itself.
stream : stream or int, optional
    Where the work is queued: a stream of Numba, CuPy or PyTorch, or a handle. Without it, the
    current one of PyTorch or CuPy, or the one that a Numba array is bound to.

Returns
-------
{result} : array in device memory
    `out`, or a new array: of PyTorch or CuPy if {first} is, otherwise of Numba.

Raises
------
TypeError
    An argument is in host memory, or has another dtype.
ValueError
    `out` has another shape, is read-only, or shares memory with an argument otherwise than element
    by element; or the arrays lie on different devices. All errors come before any work is queued.
ImportError
    A new array of bfloat16 is to be Numba's, and ml_dtypes is not installed.

Notes
-----
Results are those of the CPU, bit for bit (but for the payload of a NaN); error bounds and special
values are those of `fastgelu.{name}`.

The call returns as soon as the work is queued. If an argument belongs to another stream, the
streams wait for each other on the device.

See Also
--------
fastgelu.{name} : The ufunc, for arrays in host memory.
"""


def _function(ufunc):
    name = ufunc.__name__
    if ufunc.nin == 1:

        def function(x, out=None, stream=None):
            return _call(name, (x,), out, stream)

    else:

        def function(x1, x2, out=None, stream=None):
            return _call(name, (x1, x2), out, stream)

    backward = split(name)[1] == "_backward"
    function.__name__ = function.__qualname__ = name
    function.__doc__ = DOCSTRING.format(
        name=name,
        parameters="x1, x2" if backward else "x",
        what="The gradient of the output, and the argument" if backward else "The argument",
        result="dx" if backward else "y",
        first="`x1`" if backward else "`x`",
    )
    return function


globals().update({name: _function(ufunc) for name, ufunc in _ufuncs.COMPILED.items()})
