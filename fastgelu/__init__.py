# SPDX-License-Identifier: BSD-3-Clause
"""fastgelu: fast and accurate GELU and SiLU, with slopes and backward passes, as NumPy ufuncs.

    gelu           gelu_grad           gelu_backward             exact: x·Φ(x)
    gelu_tanh      gelu_tanh_grad      gelu_tanh_backward        tanh approximation
    gelu_sigmoid   gelu_sigmoid_grad   gelu_sigmoid_backward     sigmoid approximation
    silu           silu_grad           silu_backward             x·σ(x)
    gelu_grad2, gelu_tanh_grad2, gelu_sigmoid_grad2, silu_grad2  second derivatives

Several steps in one pass over memory, with the bits of the steps:

    bias_gelu      bias_gelu_backward     bias_..._tanh, bias_..._sigmoid, bias_silu: f(x + b)
    geglu          geglu_backward         geglu_tanh, geglu_sigmoid, swiglu: f(a)·b
    gelu_value_and_grad                   and of the other three: f(x) and its slope

`fastgelu.functional` has these under the argument order of deep-learning frameworks, and the
feed-forward block; `get_activation` knows the names in model files. The functions can be called in
functions that Numba compiles, `fastgelu.numba` runs them on Numba's threads, and `fastgelu.cuda` on
arrays in the memory of a CUDA device.
The environment variable FASTGELU_TARGET forces an instruction set, FASTGELU_NUM_THREADS the
number of threads for large arrays; `set_num_threads` and `num_threads` change that.
"""

import importlib as _importlib
import os

try:
    import fastgelu._ufuncs as _ufuncs
except ModuleNotFoundError as error:
    if error.name != "fastgelu._ufuncs":
        raise
    raise ImportError(
        f"the compiled part of fastgelu is missing from {__path__[0]}. In a source tree: install "
        "it (pip install .), then start Python from another directory or with the option -P"
    ) from error

if os.environ.get("FASTGELU_TARGET"):
    _ufuncs.force_target(os.environ["FASTGELU_TARGET"])

from fastgelu import functional
from fastgelu._activations import get_activation
from fastgelu._config import get_include, get_library_dir
from fastgelu._info import (
    Function,
    FusedFunction,
    functions,
    fused_functions,
    max_ulp,
    show_config,
    target,
    targets,
)
from fastgelu._threads import get_num_threads, num_threads, set_num_threads

__version__ = _ufuncs.version()
globals().update(_ufuncs.ALL_UFUNCS)

del os

__all__ = [
    *_ufuncs.ALL_UFUNCS,
    "Function",
    "FusedFunction",
    "functional",
    "functions",
    "fused_functions",
    "get_activation",
    "get_include",
    "get_library_dir",
    "get_num_threads",
    "max_ulp",
    "num_threads",
    "set_num_threads",
    "show_config",
    "target",
    "targets",
]


def __getattr__(name):
    # Not imported before they are used: Numba takes a while, and need not be there.
    if name in ("cuda", "numba"):
        return _importlib.import_module(f"fastgelu.{name}")
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
