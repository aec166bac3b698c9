# SPDX-License-Identifier: BSD-3-Clause
"""DLPack: what lies behind the capsule of an array, as a __cuda_array_interface__.

That has no name for bfloat16, which here is the typestr "bfloat16".
"""

import ctypes

DEVICES = (2, 13)  # kDLCUDA, kDLCUDAManaged
KINDS = {0: "i", 1: "u", 2: "f", 5: "c", 6: "b"}
BFLOAT = 4
NAME, VERSIONED = b"dltensor", b"dltensor_versioned"
READ_ONLY = 1  # of the flags


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


class VersionedTensor(ctypes.Structure):
    """DLManagedTensorVersioned."""

    _fields_ = (
        ("major", ctypes.c_uint32),
        ("minor", ctypes.c_uint32),
        ("context", ctypes.c_void_p),
        ("deleter", ctypes.c_void_p),
        ("flags", ctypes.c_uint64),
        ("tensor", Tensor),
    )


get_pointer = ctypes.pythonapi.PyCapsule_GetPointer
get_pointer.restype, get_pointer.argtypes = ctypes.c_void_p, [ctypes.py_object, ctypes.c_char_p]
is_valid = ctypes.pythonapi.PyCapsule_IsValid
is_valid.restype, is_valid.argtypes = ctypes.c_int, [ctypes.py_object, ctypes.c_char_p]


def interface(x, stream):
    """The interface of x, whose work will be done before what is queued in `stream` from now on.

    None if x does not lie on a CUDA device. The capsule is looked at, not consumed: the array is to
    outlive the call anyway.
    """
    device = getattr(x, "__dlpack_device__", None)
    if device is None or device()[0] not in DEVICES:
        return None
    try:
        capsule = x.__dlpack__(stream=stream, max_version=(1, 0))
    except TypeError:  # from before there were versions
        capsule = x.__dlpack__(stream=stream)
    readonly = False
    if is_valid(capsule, VERSIONED):
        versioned = VersionedTensor.from_address(get_pointer(capsule, VERSIONED))
        tensor, readonly = versioned.tensor, bool(versioned.flags & READ_ONLY)
    else:
        tensor = Tensor.from_address(get_pointer(capsule, NAME))
    itemsize = tensor.bits // 8
    typestr = f"|V{itemsize * tensor.lanes}"
    if tensor.lanes == 1 and tensor.code in KINDS:
        typestr = f"={KINDS[tensor.code]}{itemsize}"
    elif (tensor.lanes, tensor.code, tensor.bits) == (1, BFLOAT, 16):
        typestr = "bfloat16"
    strides = None
    if tensor.strides:
        strides = tuple(s * itemsize for s in tensor.strides[: tensor.ndim])
    return {
        "shape": tuple(tensor.shape[: tensor.ndim]),
        "strides": strides,
        "typestr": typestr,
        "data": ((tensor.data or 0) + tensor.byte_offset, readonly),
        "stream": stream,
        "capsule": capsule,
    }
