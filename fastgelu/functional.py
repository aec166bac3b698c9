# SPDX-License-Identifier: BSD-3-Clause
"""The functions under the names, and with the argument order, of deep-learning frameworks."""

import numpy as np

from fastgelu._arguments import check_broadcast, choose, normal_axis, operand
from fastgelu._ffn import ffn, ffn_backward, ffn_glu
from fastgelu._ufuncs import ALL_UFUNCS

__all__ = [
    "bias_gelu",
    "ffn",
    "ffn_backward",
    "ffn_glu",
    "geglu",
    "geglu_backward",
    "gelu",
    "gelu_backward",
    "silu",
    "silu_backward",
    "swiglu",
    "swiglu_backward",
]

# What each `approximate` chooses.
_GELU = {"none": "gelu", "tanh": "gelu_tanh", "sigmoid": "gelu_sigmoid"}
_BIAS = {"none": "bias_gelu", "tanh": "bias_gelu_tanh", "sigmoid": "bias_gelu_sigmoid"}
_GEGLU = {"none": "geglu", "tanh": "geglu_tanh", "sigmoid": "geglu_sigmoid"}
_GATES = {"first": "first", "second": "second"}


def gelu(x, approximate="none", out=None):
    """GELU, exact or approximate, element by element.

    Parameters
    ----------
    x : array_like
        The argument. Arrays of JAX, PyTorch and others that speak DLPack are looked at without a
        copy; the result is NumPy's.
    approximate : {"none", "tanh", "sigmoid"}
        Which function: x·Φ(x), x·(1 + tanh(√(2/π)·(x + 0.044715·x³)))/2, or x·σ(1.702·x).
    out : ndarray, optional
        Where the result goes; may be `x` itself.

    Returns
    -------
    y : ndarray or scalar
        The values, of the shape of `x`. dtypes, error bounds and special values are those
        of the ufunc that is called.

    Raises
    ------
    ValueError
        `approximate` is none of the choices, or shapes do not fit.
    TypeError
        A dtype that the ufuncs do not take, or an array in the memory of a device.

    See Also
    --------
    fastgelu.gelu, fastgelu.gelu_tanh, fastgelu.gelu_sigmoid : The ufuncs.

    Examples
    --------
    >>> from fastgelu import functional
    >>> functional.gelu([0.0, float("inf")], approximate="tanh")
    array([ 0., inf])
    """
    ufunc = ALL_UFUNCS[choose("approximate", approximate, _GELU)]
    return ufunc(operand(x, "x"), out=out)


def silu(x, out=None):
    """SiLU, x·σ(x), element by element.

    Parameters
    ----------
    x : array_like
        The argument. Arrays of JAX, PyTorch and others that speak DLPack are looked at without a
        copy; the result is NumPy's.
    out : ndarray, optional
        Where the result goes; may be `x` itself.

    Returns
    -------
    y : ndarray or scalar
        The values, of the shape of `x`.

    See Also
    --------
    fastgelu.silu : The ufunc, with dtypes, error bounds and special values.
    """
    return ALL_UFUNCS["silu"](operand(x, "x"), out=out)


def _backward(ufunc, grad_output, x, out):
    grad_output, x = operand(grad_output, "grad_output"), operand(x, "x")
    check_broadcast(("grad_output", grad_output), ("x", x))
    return ufunc(grad_output, x, out=out)


def gelu_backward(grad_output, x, approximate="none", out=None):
    """The backward pass of `gelu`: `grad_output` times the slope at `x`, element by element.

    Parameters
    ----------
    grad_output : array_like
        The gradient of the output.
    x : array_like
        The argument of the forward pass. Broadcast against `grad_output`.
    approximate : {"none", "tanh", "sigmoid"}
        Which function's slope, as in `gelu`.
    out : ndarray, optional
        Where the result goes; may be an input itself.

    Returns
    -------
    grad_input : ndarray or scalar
        The gradient of the input, of the broadcast shape.

    Raises
    ------
    ValueError
        `approximate` is none of the choices, or shapes do not fit.
    TypeError
        A dtype that the ufuncs do not take, or an array in the memory of a device.

    See Also
    --------
    fastgelu.gelu_backward, fastgelu.gelu_tanh_backward, fastgelu.gelu_sigmoid_backward :
        The ufuncs, with dtypes, error bounds and special values.
    """
    name = choose("approximate", approximate, _GELU) + "_backward"
    return _backward(ALL_UFUNCS[name], grad_output, x, out)


def silu_backward(grad_output, x, out=None):
    """The backward pass of `silu`: `grad_output` times the slope at `x`, element by element.

    Parameters
    ----------
    grad_output : array_like
        The gradient of the output.
    x : array_like
        The argument of the forward pass. Broadcast against `grad_output`.
    out : ndarray, optional
        Where the result goes; may be an input itself.

    Returns
    -------
    grad_input : ndarray or scalar
        The gradient of the input, of the broadcast shape.

    See Also
    --------
    fastgelu.silu_backward : The ufunc, with dtypes, error bounds and special values.
    """
    return _backward(ALL_UFUNCS["silu_backward"], grad_output, x, out)


def bias_gelu(x, b, approximate="none", out=None):
    """GELU of x + b, element by element, without a temporary array.

    Parameters
    ----------
    x, b : array_like
        What is added, broadcast against each other: as a rule a layer's product and its bias.
    approximate : {"none", "tanh", "sigmoid"}
        Which function, as in `gelu`.
    out : ndarray, optional
        Where the result goes; may be an input itself.

    Returns
    -------
    y : ndarray or scalar
        `gelu` of the sum, of the broadcast shape. The sum is rounded once, to float32 or float64;
        for 16-bit dtypes it stays in float32.

    Raises
    ------
    ValueError
        `approximate` is none of the choices, or shapes do not broadcast.
    TypeError
        A dtype that the ufuncs do not take, or an array in the memory of a device.
    """
    ufunc = ALL_UFUNCS[choose("approximate", approximate, _BIAS)]
    x, b = operand(x, "x"), operand(b, "b")
    check_broadcast(("x", x), ("b", b))
    return ufunc(x, b, out=out)


def _halves(x, axis, gate):
    """The gate and the value that one array holds along an axis."""
    x = operand(x, "x")
    if not hasattr(x, "__array_function__"):  # labels (pandas, xarray) would be aligned
        x = np.asarray(x)
    axis = normal_axis(axis, x.ndim)
    length = x.shape[axis]
    if length % 2:
        raise ValueError(
            f"x has {length} elements along axis {axis}; gate and value need an even number"
        )
    before = (slice(None),) * axis
    first, second = x[(*before, slice(length // 2))], x[(*before, slice(length // 2, None))]
    return (first, second) if gate == "first" else (second, first)


def _gated(name, a, b, axis, gate, out):
    if b is None:
        gate = choose("gate", "first" if gate is None else gate, _GATES)
        a, b = _halves(a, -1 if axis is None else axis, gate)
    elif axis is not None or gate is not None:
        given = "axis" if axis is not None else "gate"
        raise ValueError(
            f"{given}= is for one array that holds both halves; with two, a is the gate"
        )
    else:
        a, b = operand(a, "a"), operand(b, "b")
        check_broadcast(("a", a), ("b", b))
    return ALL_UFUNCS[name](a, b, out=out)


def geglu(a, b=None, approximate="none", *, axis=None, gate=None, out=None):
    """GEGLU: GELU of the gate, times the value.

    Called with two arrays, gelu(a)·b; with one, its halves along an axis.

    Parameters
    ----------
    a : array_like
        The gate; or, without `b`, the array that holds gate and value.
    b : array_like, optional
        The value. Broadcast against `a`.
    approximate : {"none", "tanh", "sigmoid"}
        Which function, as in `gelu`.
    axis : int, optional
        With one array: the axis that is halved. Default: the last.
    gate : {"first", "second"}, optional
        With one array: which half goes through GELU. Default: "first". See the notes.
    out : ndarray, optional
        Where the result goes; may be `a` or `b` itself.

    Returns
    -------
    y : ndarray or scalar
        Of the broadcast shape; with one array half as long along `axis`.

    Raises
    ------
    ValueError
        `approximate` or `gate` is none of the choices, `axis` is out of range or of odd length,
        shapes do not broadcast, or `axis` or `gate` is given beside two arrays.
    TypeError
        A dtype that the ufuncs do not take, an axis that is no integer, or an array in the memory
        of a device.

    Notes
    -----
    Frameworks disagree on which half of one array is the gate:

    ========  =================================================================================
    "first"   Phi-3 and GLM in HuggingFace transformers (``gate, up = h.chunk(2)``), Megatron-LM,
              vLLM's ``silu_and_mul`` and ``gelu_and_mul``
    "second"  ``torch.nn.functional.glu``, ``jax.nn.glu``, GEGLU in HuggingFace diffusers
    ========  =================================================================================

    Models with two matrices (LLaMA, Gemma, T5 v1.1) need no choice: pass two arrays.

    Examples
    --------
    >>> from fastgelu import functional
    >>> x = [[1.0, 2.0, 10.0, 20.0]]
    >>> functional.geglu(x, gate="first").round(3)
    array([[ 8.413, 39.09 ]])
    >>> functional.geglu(x, gate="second").round(3)
    array([[10., 40.]])
    """
    return _gated(choose("approximate", approximate, _GEGLU), a, b, axis, gate, out)


def swiglu(a, b=None, *, axis=None, gate=None, out=None):
    """SwiGLU: SiLU of the gate, times the value.

    Called with two arrays, silu(a)·b; with one, its halves along an axis.

    Parameters
    ----------
    a, b, axis, gate, out
        As in `geglu`.

    Returns
    -------
    y : ndarray or scalar
        Of the broadcast shape; with one array half as long along `axis`.

    Raises
    ------
    ValueError, TypeError
        As in `geglu`.
    """
    return _gated("swiglu", a, b, axis, gate, out)


def _gated_backward(name, grad_output, a, b, out):
    arrays = grad_output, a, b = [
        operand(x, label) for x, label in ((grad_output, "grad_output"), (a, "a"), (b, "b"))
    ]
    check_broadcast(*zip(("grad_output", "a", "b"), arrays))
    if out is None:
        return ALL_UFUNCS[name](grad_output, a, b)
    if not isinstance(out, tuple) or len(out) != 2:
        raise TypeError(f"out must be a tuple of two arrays, for da and db, not {out!r}")
    return ALL_UFUNCS[name](grad_output, a, b, out=out)


def geglu_backward(grad_output, a, b, approximate="none", out=None):
    """The backward pass of `geglu` of two arrays.

    Parameters
    ----------
    grad_output : array_like
        The gradient of the output.
    a, b : array_like
        Gate and value of the forward pass. All three are broadcast against each other.
    approximate : {"none", "tanh", "sigmoid"}
        Which function, as in `gelu`.
    out : tuple of two ndarrays or None, optional
        Where the results go; may be inputs themselves.

    Returns
    -------
    da, db : ndarray or scalar
        The gradients of the gate, ``grad_output * b * slope(a)``, and of the value,
        ``grad_output * gelu(a)``, both of the broadcast shape.

    Raises
    ------
    ValueError
        `approximate` is none of the choices, or shapes do not broadcast.
    TypeError
        A dtype that the ufuncs do not take, an array in the memory of a device, or an `out` that is
        no pair.
    """
    name = choose("approximate", approximate, _GEGLU) + "_backward"
    return _gated_backward(name, grad_output, a, b, out)


def swiglu_backward(grad_output, a, b, out=None):
    """The backward pass of `swiglu` of two arrays.

    Parameters
    ----------
    grad_output, a, b, out
        As in `geglu_backward`.

    Returns
    -------
    da, db : ndarray or scalar
        The gradients of the gate and of the value, both of the broadcast shape.

    Raises
    ------
    ValueError, TypeError
        As in `geglu_backward`.
    """
    return _gated_backward("swiglu_backward", grad_output, a, b, out)
