# SPDX-License-Identifier: BSD-3-Clause
"""The registry's names of dtypes ("f32", "bf16") and NumPy's ("float32", "bfloat16")."""

import numpy as np


def to_numpy(dtype):
    """NumPy's name of a registered dtype: "f32" -> "float32"."""
    return dtype.replace("f", "float")


def from_numpy(name):
    """The registry's name of a NumPy dtype's name: "float32" -> "f32"."""
    return name.replace("float", "f")


def bfloat16():
    """The dtype of ml_dtypes, or None where that is not installed."""
    try:
        import ml_dtypes
    except ModuleNotFoundError as error:
        if error.name != "ml_dtypes":
            raise
        return None
    return np.dtype(ml_dtypes.bfloat16)
