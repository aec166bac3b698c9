# SPDX-License-Identifier: BSD-3-Clause
"""The functions under the names, and with the argument order, of deep-learning frameworks."""

from fastgelu._ufuncs import UFUNCS

__all__ = ["gelu", "gelu_backward", "silu", "silu_backward"]

# What each `approximate` chooses.
_FORMS = {"none": "gelu", "tanh": "gelu_tanh", "sigmoid": "gelu_sigmoid"}


def _choose(approximate, kind):
    if not isinstance(approximate, str) or approximate not in _FORMS:
        choices = ", ".join(map(repr, _FORMS))
        raise ValueError(f"approximate={approximate!r} is unknown; choose one of {choices}")
    return UFUNCS[_FORMS[approximate] + kind]


def gelu(x, approximate="none", out=None):
    """GELU, exact or approximate, element by element.

    Parameters
    ----------
    x : array_like
        The argument.
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
        `approximate` is none of the choices.

    See Also
    --------
    fastgelu.gelu, fastgelu.gelu_tanh, fastgelu.gelu_sigmoid : The ufuncs.

    Examples
    --------
    >>> from fastgelu import functional
    >>> functional.gelu([0.0, float("inf")], approximate="tanh")
    array([ 0., inf])
    """
    return _choose(approximate, "")(x, out=out)


def silu(x, out=None):
    """SiLU, x·σ(x), element by element.

    Parameters
    ----------
    x : array_like
        The argument.
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
    return UFUNCS["silu"](x, out=out)


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
        `approximate` is none of the choices.

    See Also
    --------
    fastgelu.gelu_backward, fastgelu.gelu_tanh_backward, fastgelu.gelu_sigmoid_backward :
        The ufuncs, with dtypes, error bounds and special values.
    """
    return _choose(approximate, "_backward")(grad_output, x, out=out)


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
    return UFUNCS["silu_backward"](grad_output, x, out=out)
