# SPDX-License-Identifier: BSD-3-Clause
# Type stubs. The functions are made from the C library's registry at import.
from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any, Literal, NamedTuple, SupportsIndex, overload

import numpy as np
from numpy.typing import DTypeLike

from . import functional as functional

__all__: list[str]
__version__: str

gelu: np.ufunc
gelu_grad: np.ufunc
gelu_backward: np.ufunc
gelu_tanh: np.ufunc
gelu_tanh_grad: np.ufunc
gelu_tanh_backward: np.ufunc
gelu_sigmoid: np.ufunc
gelu_sigmoid_grad: np.ufunc
gelu_sigmoid_backward: np.ufunc
silu: np.ufunc
silu_grad: np.ufunc
silu_backward: np.ufunc
gelu_grad2: np.ufunc
gelu_tanh_grad2: np.ufunc
gelu_sigmoid_grad2: np.ufunc
silu_grad2: np.ufunc
bias_gelu: np.ufunc
bias_gelu_backward: np.ufunc
geglu: np.ufunc
geglu_backward: np.ufunc
gelu_value_and_grad: np.ufunc
bias_gelu_tanh: np.ufunc
bias_gelu_tanh_backward: np.ufunc
geglu_tanh: np.ufunc
geglu_tanh_backward: np.ufunc
gelu_tanh_value_and_grad: np.ufunc
bias_gelu_sigmoid: np.ufunc
bias_gelu_sigmoid_backward: np.ufunc
geglu_sigmoid: np.ufunc
geglu_sigmoid_backward: np.ufunc
gelu_sigmoid_value_and_grad: np.ufunc
bias_silu: np.ufunc
bias_silu_backward: np.ufunc
swiglu: np.ufunc
swiglu_backward: np.ufunc
silu_value_and_grad: np.ufunc

class Function(NamedTuple):
    name: str
    dtype: str
    inputs: int
    max_ulp: float
    @property
    def compiled(self) -> bool: ...

class FusedFunction(NamedTuple):
    name: str
    dtype: str
    inputs: int
    outputs: int
    form: str
    max_ulp: float

def functions() -> tuple[Function, ...]: ...
def fused_functions() -> tuple[FusedFunction, ...]: ...
def get_activation(
    name: str, approximate: str | bytes | bool | None = None
) -> Callable[..., Any]: ...
def get_include() -> str: ...
def get_library_dir() -> str: ...
def get_num_threads() -> int: ...
def max_ulp(function: str | np.ufunc, dtype: DTypeLike) -> float: ...
def num_threads(n: SupportsIndex) -> AbstractContextManager[None]: ...
def set_num_threads(n: SupportsIndex) -> None: ...
@overload
def show_config(mode: Literal["stdout"] = "stdout") -> None: ...
@overload
def show_config(mode: Literal["dicts"]) -> dict[str, Any]: ...
def target() -> str: ...
def targets() -> dict[str, bool]: ...
