# SPDX-License-Identifier: BSD-3-Clause
"""What this installation offers and how: functions, bounds, instruction sets, configuration."""

import sys
from typing import NamedTuple

import numpy as np

from fastgelu import _threads, _ufuncs
from fastgelu._dtypes import from_numpy, to_numpy
from fastgelu._ufuncs import target, targets

__all__ = [
    "Function",
    "FusedFunction",
    "functions",
    "fused_functions",
    "max_ulp",
    "show_config",
    "target",
    "targets",
]


class Function(NamedTuple):
    """One function of one dtype, as `fastgelu.functions` lists them.

    Attributes
    ----------
    name : str
        The ufunc's name, such as "gelu_grad".
    dtype : str
        NumPy's name of the dtype, such as "float32".
    inputs : int
        The number of arguments: 1, or 2 for a backward pass.
    max_ulp : float
        The error bound in ULP.
    """

    name: str
    dtype: str
    inputs: int
    max_ulp: float


class FusedFunction(NamedTuple):
    """One fused function of one dtype, as `fastgelu.fused_functions` lists them.

    Attributes
    ----------
    name : str
        The ufunc's name, such as "swiglu_backward".
    dtype : str
        NumPy's name of the dtype, such as "float32".
    inputs, outputs : int
        The number of arguments, 1 to 3, and of results, 1 or 2.
    form : str
        The function that it is made of, such as "silu".
    max_ulp : float
        The error bound in ULP of each result; the docstring says against what.
    """

    name: str
    dtype: str
    inputs: int
    outputs: int
    form: str
    max_ulp: float


def functions():
    """List every function of every dtype, but for the fused ones (`fused_functions`).

    Returns
    -------
    functions : tuple of Function
        Named tuples (name, dtype, inputs, max_ulp), in the order of the registry; "bfloat16" where
        ml_dtypes is installed.
    """
    return tuple(
        Function(name, to_numpy(dtype), inputs, bound)
        for name, dtype, inputs, bound in _ufuncs.FUNCTIONS
    )


def fused_functions():
    """List every fused function of every dtype.

    Returns
    -------
    functions : tuple of FusedFunction
        Named tuples (name, dtype, inputs, outputs, form, max_ulp), in the order of the registry;
        "bfloat16" where ml_dtypes is installed.
    """
    return tuple(FusedFunction(line[0], to_numpy(line[1]), *line[2:]) for line in _ufuncs.FUSED)


def max_ulp(function, dtype):
    """Look up the error bound of a function.

    Parameters
    ----------
    function : str or numpy.ufunc
        A function of this package, or its name.
    dtype : dtype_like
        A floating-point dtype that the function has a loop for.

    Returns
    -------
    bound : float
        The error is below this many ULP over all inputs, subnormal results included. One ULP is
        the spacing of the dtype at the exact result.

    Raises
    ------
    ValueError
        There is no such function, or it has no loop for `dtype`.

    Examples
    --------
    >>> import fastgelu
    >>> fastgelu.max_ulp("gelu", "float32") <= 8
    True
    """
    name = function.__name__ if isinstance(function, np.ufunc) else function
    lines = (*_ufuncs.FUNCTIONS, *_ufuncs.FUSED)
    dtypes = [dtype for other, dtype, *_ in lines if other == name]
    if not dtypes or (isinstance(function, np.ufunc) and function is not _ufuncs.ALL_UFUNCS[name]):
        raise ValueError(
            f"unknown function {function!r}; choose one of {', '.join(_ufuncs.ALL_UFUNCS)}"
        )
    try:
        registered = from_numpy(np.dtype(dtype).name)
    except TypeError:
        registered = from_numpy(dtype) if isinstance(dtype, str) else dtype
    if registered not in dtypes:
        choices = ", ".join(map(to_numpy, dtypes))
        raise ValueError(f"{name} has no loop for {dtype}; choose one of {choices}")
    return _ufuncs.max_ulp(name, registered)


def show_config(mode="stdout"):
    """Show how this installation was built and what it runs on.

    Parameters
    ----------
    mode : {"stdout", "dicts"}
        Print it, or return it.

    Returns
    -------
    config : dict or None
        With ``mode="dicts"``: the version; the instruction set in use (target); those compiled in,
        best first, and whether this machine has each (targets); the number of threads that a call
        from this thread may use (threads), where it comes from (threads_from), what in the
        environment was ignored (ignored), OpenMP's version or that it is not built in (openmp);
        the compiler; the versions of Python and NumPy.

    Raises
    ------
    ValueError
        `mode` is none of the choices.
    """
    if mode not in ("stdout", "dicts"):
        raise ValueError(f"mode={mode!r} is unknown; choose one of 'stdout', 'dicts'")
    threads_from, openmp, ignored = _threads.describe()
    config = {
        "version": _ufuncs.version(),
        "target": target(),
        "targets": targets(),
        "threads": _threads.get_num_threads(),
        "threads_from": threads_from,
        "ignored": ignored,
        "openmp": openmp,
        "compiler": _ufuncs.compiler(),
        "python": ".".join(map(str, sys.version_info[:3])),
        "numpy": np.__version__,
    }
    if mode == "dicts":
        return config
    config["targets"] = ", ".join(
        name if supported else f"{name} (not on this machine)"
        for name, supported in config["targets"].items()
    )
    config["ignored"] = "; ".join(ignored) or "nothing"
    print("fastgelu")
    for key, value in config.items():
        print(f"  {key:<12} {value}")
    return None
