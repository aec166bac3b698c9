# SPDX-License-Identifier: BSD-3-Clause
"""What computes the same as each of our functions: NumPy and SciPy formulas, PyTorch, and ours.

A contender is bound to arrays once; after that, a call takes no argument, allocates nothing and
converts nothing. Every temporary array that a formula needs is allocated when it is bound.
"""

import functools
import math
from collections.abc import Callable
from typing import NamedTuple

import numpy as np

import fastgelu

try:
    from scipy import special
except ImportError as error:
    special, NO_SCIPY = None, str(error)
try:
    import torch
except (ImportError, OSError) as error:  # OSError: a shared library does not load
    torch, NO_TORCH = None, str(error)


class Contender(NamedTuple):
    """One way to compute a function. bind(inputs, out) gives the call that fills out."""

    family: str  # "fastgelu", "NumPy/SciPy", "torch" or "memory"
    label: str  # one word, within the family
    bind: Callable


# ---- NumPy and SciPy ---------------------------------------------------------------------------

# The forms x·σ(v): v = c·x + k·x³.
_TANH = 2 * math.sqrt(2 / math.pi)
SIGMOID_FORMS = {
    "silu": (1.0, 0.0),
    "gelu_sigmoid": (1.702, 0.0),
    "gelu_tanh": (_TANH, 0.044715 * _TANH),
}


def _cubic(x, c, k, out):
    """c·x + k·x³, which may be x itself."""
    if k:
        np.multiply(x, x, out=out)
        out *= k
        out += c
        out *= x
        return out
    return x if c == 1 else np.multiply(x, c, out=out)


def _sigma_expit(x, c, k, out):
    special.expit(_cubic(x, c, k, out), out=out)


def _sigma_tanh(x, c, k, out):
    np.tanh(_cubic(x, c / 2, k / 2, out), out=out)
    out += 1
    out *= 0.5


def _one_plus_exp(x, c, k, out):
    """1 + exp(-v)."""
    np.exp(_cubic(x, -c, -k, out), out=out)
    out += 1


def _sigma_exp(x, c, k, out):
    _one_plus_exp(x, c, k, out)
    np.reciprocal(out, out=out)


def _phi_ndtr(x, out):
    special.ndtr(x, out=out)


def _phi_erf(x, out):
    special.erf(np.multiply(x, math.sqrt(0.5), out=out), out=out)
    out += 1
    out *= 0.5


def _exact_slope(phi, x, out, scratch):
    """Φ(x) + x·φ(x)."""
    phi(x, out)
    np.multiply(x, x, out=scratch)
    scratch *= -0.5
    np.exp(scratch, out=scratch)
    scratch *= x
    scratch *= 1 / math.sqrt(2 * math.pi)
    out += scratch


def _sigmoid_slope(sigma, c, k, x, out, scratch, more):
    """σ(v)·(1 + x·v'·(1 - σ(v)))."""
    sigma(x, c, k, out)
    np.subtract(1, out, out=scratch)
    scratch *= x
    if k:
        np.multiply(x, x, out=more)
        more *= 3 * k
        more += c
        scratch *= more
    elif c != 1:
        scratch *= c
    scratch += 1
    out *= scratch


def _formulas(form, kind):
    """{label: function of x, out and temporaries} and how many temporaries there are."""
    if form == "gelu":
        gates = {"ndtr": _phi_ndtr, "erf": _phi_erf} if special else {}
        if kind:
            return {name: functools.partial(_exact_slope, phi) for name, phi in gates.items()}, 1

        def value_ndtr(x, out):
            special.ndtr(x, out=out)
            out *= x

        def value_erf(x, out):
            special.erf(np.multiply(x, math.sqrt(0.5), out=out), out=out)
            out += 1
            out *= x
            out *= 0.5

        return ({"ndtr": value_ndtr, "erf": value_erf} if special else {}), 0
    if form not in SIGMOID_FORMS:
        return {}, 0
    c, k = SIGMOID_FORMS[form]
    gates = {"exp": _sigma_exp}
    if special:
        gates["expit"] = _sigma_expit
    if form == "gelu_tanh":
        gates["tanh"] = _sigma_tanh
    if kind:
        slope = {name: functools.partial(_sigmoid_slope, g, c, k) for name, g in gates.items()}
        return slope, 2

    def value(sigma, x, out):
        sigma(x, c, k, out)
        out *= x

    def value_exp(x, out):
        _one_plus_exp(x, c, k, out)
        np.divide(x, out, out=out)

    values = {name: functools.partial(value, sigma) for name, sigma in gates.items()}
    return {**values, "exp": value_exp}, 0


def _bind_formula(formula, temporaries, kind, inputs, out):
    x = inputs[-1]
    scratch = [np.empty_like(x) for _ in range(temporaries)]
    if kind != "_backward":
        return functools.partial(formula, x, out, *scratch)
    dy = inputs[0]

    def backward():
        formula(x, out, *scratch)
        np.multiply(out, dy, out=out)

    return backward


# What each label stands for, in the exact form's case or the sigmoid forms' (v is the sigmoid's
# argument).
LABELS = {
    "ndtr": "x*ndtr(x)",
    "erf": "0.5*x*(1 + erf(x/sqrt(2)))",
    "tanh": "0.5*x*(1 + tanh(v/2))",
    "expit": "x*expit(v)",
    "exp": "x/(1 + exp(-v))",
}


# ---- PyTorch -----------------------------------------------------------------------------------

_APPROXIMATE = {"gelu": "none", "gelu_tanh": "tanh"}


def tensor(array):
    """A tensor on the array's own memory."""
    if array.dtype.name == "bfloat16":  # NumPy itself has none
        return torch.from_numpy(array.view(np.int16)).view(torch.bfloat16)
    return torch.from_numpy(array)


def _torch_value(form, inputs, out):
    x, out = tensor(inputs[0]), tensor(out)
    if form in _APPROXIMATE:
        return functools.partial(
            torch.ops.aten.gelu.out, x, approximate=_APPROXIMATE[form], out=out
        )
    if form == "silu":
        return functools.partial(torch.ops.aten.silu.out, x, out=out)
    c, _ = SIGMOID_FORMS[form]

    def sigmoid_form():
        torch.mul(x, c, out=out)
        torch.sigmoid(out, out=out)
        torch.mul(x, out, out=out)

    return sigmoid_form


def _torch_backward(form, inputs, out):
    return _torch_product(form, tensor(inputs[0]), tensor(inputs[1]), tensor(out))


def _torch_slope(ones, form, inputs, out):
    """torch has backward passes only: of ones."""
    x = tensor(inputs[0])
    dy = torch.ones_like(x) if ones == "full" else torch.ones((), dtype=x.dtype).expand(x.shape)
    return _torch_product(form, dy, x, tensor(out))


def _torch_product(form, dy, x, out):
    if form in _APPROXIMATE:
        return functools.partial(
            torch.ops.aten.gelu_backward.grad_input,
            dy,
            x,
            approximate=_APPROXIMATE[form],
            grad_input=out,
        )
    silu_backward = torch.ops.aten.silu_backward.grad_input
    if form == "silu":
        return functools.partial(silu_backward, dy, x, grad_input=out)
    c, _ = SIGMOID_FORMS[form]
    scaled = torch.empty_like(x)

    def backward():  # x·σ(c·x) is silu(c·x)/c, and has the slope of silu at c·x
        torch.mul(x, c, out=scaled)
        silu_backward(dy, scaled, grad_input=out)

    return backward


def _torch_contenders(form, kind):
    if form not in {*_APPROXIMATE, *SIGMOID_FORMS}:
        return []
    if kind == "":
        return [Contender("torch", "torch", functools.partial(_torch_value, form))]
    if kind == "_backward":
        return [Contender("torch", "torch", functools.partial(_torch_backward, form))]
    # Ones as an array are read as one; the other way a single one is repeated.
    return [
        Contender("torch", "torch", functools.partial(_torch_slope, "full", form)),
        Contender("torch", "torch-repeat", functools.partial(_torch_slope, "repeated", form)),
    ]


# ---- everything --------------------------------------------------------------------------------


def split(name):
    """The form and the kind: "silu_grad" -> ("silu", "_grad")."""
    for kind in ("_grad", "_backward"):
        if name.endswith(kind):
            return name.removesuffix(kind), kind
    return name, ""


def _bind_ours(name, inputs, out):
    return functools.partial(getattr(fastgelu, name), *inputs, out=out)


def contenders(name, dtype):
    """Ours, then the others' ways to compute the function `name` in `dtype`, as installed."""
    form, kind = split(name)
    result = [Contender("fastgelu", "fastgelu", functools.partial(_bind_ours, name))]
    if dtype in ("float32", "float64"):
        formulas, temporaries = _formulas(form, kind)
        for label, formula in formulas.items():
            bind = functools.partial(_bind_formula, formula, temporaries, kind)
            result.append(Contender("NumPy/SciPy", label, bind))
    if torch is not None:
        result += _torch_contenders(form, kind)
    return result


def _bind_scale(inputs, out):
    return functools.partial(np.multiply, inputs[0], 0.75, out=out)


def _bind_product(inputs, out):
    return functools.partial(np.multiply, *inputs, out=out)


def memory(inputs):
    """What moves the same bytes and does next to nothing else: y = c·x, or a product."""
    if inputs == 1:
        return Contender("memory", "c*x", _bind_scale)
    return Contender("memory", "dy*x", _bind_product)
