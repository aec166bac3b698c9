# SPDX-License-Identifier: BSD-3-Clause
# Type stubs. Any: a scalar, an array, or what the arguments' __array_ufunc__ makes of it.
from typing import Any, Literal, TypeAlias

from numpy.typing import ArrayLike, NDArray

__all__: list[str]

_Approximate: TypeAlias = Literal["none", "tanh", "sigmoid"]

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
