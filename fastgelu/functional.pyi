# SPDX-License-Identifier: BSD-3-Clause
# Type stubs. Any: a scalar, an array, or what the arguments' __array_ufunc__ makes of it.
from typing import Any, Literal, SupportsIndex, TypeAlias

from numpy.typing import ArrayLike, NDArray

__all__: list[str]

_Approximate: TypeAlias = Literal["none", "tanh", "sigmoid"]
_Activation: TypeAlias = Literal["gelu", "silu", "relu"]
_Gate: TypeAlias = Literal["first", "second"]
_Array: TypeAlias = NDArray[Any] | None
_Five: TypeAlias = tuple[_Array, _Array, _Array, _Array, _Array]

def gelu(
    x: ArrayLike, approximate: _Approximate = "none", out: NDArray[Any] | None = None
) -> Any: ...
def silu(x: ArrayLike, out: NDArray[Any] | None = None) -> Any: ...
def gelu_backward(
    grad_output: ArrayLike,
    x: ArrayLike,
    approximate: _Approximate = "none",
    out: NDArray[Any] | None = None,
) -> Any: ...
def silu_backward(grad_output: ArrayLike, x: ArrayLike, out: NDArray[Any] | None = None) -> Any: ...
def bias_gelu(
    x: ArrayLike,
    b: ArrayLike,
    approximate: _Approximate = "none",
    out: NDArray[Any] | None = None,
) -> Any: ...
def geglu(
    a: ArrayLike,
    b: ArrayLike | None = None,
    approximate: _Approximate = "none",
    *,
    axis: SupportsIndex | None = None,
    gate: _Gate | None = None,
    out: NDArray[Any] | None = None,
) -> Any: ...
def swiglu(
    a: ArrayLike,
    b: ArrayLike | None = None,
    *,
    axis: SupportsIndex | None = None,
    gate: _Gate | None = None,
    out: NDArray[Any] | None = None,
) -> Any: ...
def geglu_backward(
    grad_output: ArrayLike,
    a: ArrayLike,
    b: ArrayLike,
    approximate: _Approximate = "none",
    out: tuple[NDArray[Any] | None, NDArray[Any] | None] | None = None,
) -> tuple[Any, Any]: ...
def swiglu_backward(
    grad_output: ArrayLike,
    a: ArrayLike,
    b: ArrayLike,
    out: tuple[NDArray[Any] | None, NDArray[Any] | None] | None = None,
) -> tuple[Any, Any]: ...
def ffn(
    x: ArrayLike,
    w1: ArrayLike,
    b1: ArrayLike | None,
    w2: ArrayLike,
    b2: ArrayLike | None,
    approximate: _Approximate = "none",
    activation: _Activation = "gelu",
    out: NDArray[Any] | None = None,
) -> NDArray[Any]: ...
def ffn_backward(
    grad_output: ArrayLike,
    x: ArrayLike,
    w1: ArrayLike,
    b1: ArrayLike | None,
    w2: ArrayLike,
    b2: ArrayLike | None,
    approximate: _Approximate = "none",
    activation: _Activation = "gelu",
    out: _Five | None = None,
) -> tuple[NDArray[Any], NDArray[Any], NDArray[Any], NDArray[Any], NDArray[Any]]: ...
def ffn_glu(
    x: ArrayLike,
    w_gate: ArrayLike,
    w_up: ArrayLike,
    w_down: ArrayLike,
    b_gate: ArrayLike | None = None,
    b_up: ArrayLike | None = None,
    b_down: ArrayLike | None = None,
    approximate: _Approximate = "none",
    activation: _Activation = "silu",
    out: NDArray[Any] | None = None,
) -> NDArray[Any]: ...
