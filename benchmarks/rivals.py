# SPDX-License-Identifier: BSD-3-Clause
"""What computes the same as each of our functions: NumPy and SciPy formulas, PyTorch, and ours.

The formulas are those of the command `bench`, fastgelu/_rivals.py. A contender is bound to arrays
once; after that, a call takes no argument, allocates nothing and converts nothing.
"""

import functools
from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from fastgelu._rivals import RIVALS, ours, split, torch_tensor

try:
    from scipy import special
except ImportError as error:
    special, NO_SCIPY = None, str(error)
try:
    import torch
except (ImportError, OSError) as error:  # OSError: a shared library does not load
    torch, NO_TORCH = None, str(error)

__all__ = [
    "LABELS",
    "Contender",
    "contenders",
    "memory",
    "special",
    "split",
    "torch",
    "torch_tensor",
]

# What each label stands for, in the exact form's case or the sigmoid forms' (v is the sigmoid's
# argument).
LABELS = {
    "ndtr": "x*ndtr(x)",
    "erf": "0.5*x*(1 + erf(x/sqrt(2)))",
    "tanh": "0.5*x*(1 + tanh(v/2))",
    "expit": "x*expit(v)",
    "exp": "x/(1 + exp(-v))",
}


class Contender(NamedTuple):
    """One way to compute a function. bind(inputs, out) gives the call that fills out."""

    family: str  # "fastgelu", "NumPy/SciPy", "torch" or "memory"
    label: str  # one word, within the family
    bind: Callable


def contenders(name, dtype):
    """Ours, then the others' ways to compute the function `name` in `dtype`, as installed."""
    result = [contender("fastgelu", "fastgelu", ours(name))]
    libraries = {"numpy": "NumPy/SciPy", "scipy": "NumPy/SciPy", "torch": "torch"}
    missing = {"scipy": special is None, "torch": torch is None}
    for library, family in libraries.items():
        if not missing.get(library):
            for rival in RIVALS[library][1](name, dtype, None):
                label = rival.label.removeprefix(f"{rival.library} ")
                result.append(contender(family, label, rival))
    return result


def contender(family, label, rival):
    def bind(inputs, out):
        return rival.bind(inputs, out).call

    return Contender(family, "torch-repeat" if label == "repeat" else label, bind)


def _bind_scale(inputs, out):
    return functools.partial(np.multiply, inputs[0], 0.75, out=out)


def _bind_product(inputs, out):
    return functools.partial(np.multiply, *inputs, out=out)


def memory(inputs):
    """What moves the same bytes and does next to nothing else: y = c·x, or a product."""
    if inputs == 1:
        return Contender("memory", "c*x", _bind_scale)
    return Contender("memory", "dy*x", _bind_product)
