# SPDX-License-Identifier: BSD-3-Clause
"""DLPack: what lies behind the capsule of an array, as a __cuda_array_interface__."""

import ctypes

DEVICES = (2, 13)  # kDLCUDA, kDLCUDAManaged
KINDS = {0: "i", 1: "u", 2: "f", 5: "c", 6: "b"}
NAME = b"dltensor"


class Tensor(ctypes.Structure):
    """DLTensor of dlpack.h."""

    _fields_ = (
        ("data", ctypes.c_void_p),
        ("device_type", ctypes.c_int32),
        ("device_id", ctypes.c_int32),
        ("ndim", ctypes.c_int32),
        ("code", ctypes.c_uint8),
        ("bits", ctypes.c_uint8),
        ("lanes", ctypes.c_uint16),
        ("shape", ctypes.POINTER(ctypes.c_int64)),
        ("strides", ctypes.POINTER(ctypes.c_int64)),
        ("byte_offset", ctypes.c_uint64),
    )


get_pointer = ctypes.pythonapi.PyCapsule_GetPointer
get_pointer.restype, get_pointer.argtypes = ctypes.c_void_p, [ctypes.py_object, ctypes.c_char_p]


def interface(x, stream):
    """The interface of x, whose work will be done before what is queued in `stream` from now on.

    None if x does not lie on a CUDA device. The capsule is looked at, not consumed: the array is to
    outlive the call anyway.
    """
    device = getattr(x, "__dlpack_device__", None)
    if device is None or device()[0] not in DEVICES:
        return None
    capsule = x.__dlpack__(stream=stream)
    tensor = Tensor.from_address(get_pointer(capsule, NAME))
    itemsize = tensor.bits // 8
    known = tensor.lanes == 1 and tensor.code in KINDS
    strides = None
    if tensor.strides:
        strides = tuple(s * itemsize for s in tensor.strides[: tensor.ndim])
    return {
        "shape": tuple(tensor.shape[: tensor.ndim]),
        "strides": strides,
        "typestr": f"={KINDS[tensor.code]}{itemsize}" if known else f"|V{itemsize * tensor.lanes}",
        "data": ((tensor.data or 0) + tensor.byte_offset, False),
        "stream": stream,
        "capsule": capsule,
    }
