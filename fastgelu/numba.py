# SPDX-License-Identifier: BSD-3-Clause
"""The functions on whole arrays, in parallel on Numba's threads (pip install 'fastgelu[numba]').

    from fastgelu import numba
    numba.gelu(x, out=y)

`numba.set_num_threads` and Numba's environment variables say how many threads, and which threading
layer. This is for programs that have Numba's threads anyway: others need the ufuncs only, such as
`fastgelu.gelu`. Inside compiled functions the ufuncs are to be called too: `fastgelu.gelu(x)` there
is compiled along.
"""

import math
import threading

import numpy as np

from fastgelu import _numba, _ufuncs
from fastgelu._docs import split
from fastgelu._dtypes import from_numpy

_library = _numba.import_numba()
_numba.init()

__all__ = list(_ufuncs.COMPILED)

# Fewer elements are not worth a thread, nor a part of the work.
FEWEST = 1 << 16
PART = 1 << 14

INDEX = {(name, dtype): i for i, (name, dtype, *_) in enumerate(_ufuncs.FUNCTIONS)}


# ---- threads ---------------------------------------------------------------------------------


def _compiled():
    """The parallel loop over the parts of a plan."""
    from llvmlite import ir
    from numba.core import cgutils, types
    from numba.extending import intrinsic

    @intrinsic
    def run_part(typingctx, address, first, end):
        def codegen(context, builder, signature, args):
            function_type = ir.FunctionType(ir.VoidType(), [cgutils.intp_t] * 3)
            function = cgutils.get_or_insert_function(
                builder.module, function_type, "fastgelu_plan_run"
            )
            builder.call(function, args)
            return context.get_dummy_value()

        return types.void(types.intp, types.intp, types.intp), codegen

    def run(address, elements, parts):
        for part in _library.prange(parts):
            # borders at multiples of 64 elements, so that no two threads write one cache line
            first = elements * part // parts // 64 * 64
            end = elements if part == parts - 1 else elements * (part + 1) // parts // 64 * 64
            run_part(address, first, end)

    options = {"parallel": True, "nogil": True}
    try:
        return _library.njit(cache=True, **options)(run)
    except RuntimeError:  # nowhere to keep a cache: neither beside this file nor in a home
        return _library.njit(**options)(run)


_run = _compiled()


def _layer():
    """The name of Numba's threading layer, which this starts."""
    from numba.np.ufunc.parallel import _launch_threads

    _launch_threads()
    return _library.threading_layer()


def _threads():
    """How many threads this call may use."""
    if _library.config.DISABLE_JIT or _numba.Process.forked:
        return 1
    # Numba's own layer ends the process when two threads enter it at once; that other threads of
    # this process do not is only sure if there are none.
    if _layer() == "workqueue" and threading.active_count() > 1:
        return 1
    return _library.get_num_threads()


# ---- calls -----------------------------------------------------------------------------------

# Arguments whose result raises the flag, for a message that is NumPy's own.
RAISING = {"overflow": ("max", 2.0), "invalid": (np.inf, -np.inf)}


def _report(ufunc, flags, dtype):
    """Have NumPy treat the exceptions as np.errstate says, under the ufunc's name."""
    if ufunc.nin == 2 and (flags := sorted(flags & set(RAISING))):
        largest = np.finfo(dtype).max
        dy, x = zip(*(RAISING[flag] for flag in flags))
        ufunc(np.array([largest if v == "max" else v for v in dy], dtype), np.array(x, dtype))


def _plain(x):
    return type(x) is np.ndarray or isinstance(x, int | float | np.generic)


def _dtype(ufunc, inputs):
    """The dtype that the ufunc would compute in, None where it has none."""
    given = [type(x) if type(x) in (int, float) else np.asarray(x).dtype for x in inputs]
    try:
        return ufunc.resolve_dtypes((*given, None))[-1]
    except TypeError:
        return None


def _plan(ufunc, inputs, out):
    """The plan of a call and its output; None where the ufunc had better do it."""
    if not all(map(_plain, inputs)) or not (out is None or type(out) is np.ndarray):
        return None
    most = math.prod(map(np.size, inputs)) if out is None else out.size
    if most < FEWEST or (dtype := _dtype(ufunc, inputs)) is None:
        return None
    index = INDEX.get((ufunc.__name__, from_numpy(dtype.name)))
    if index is None or (out is not None and (out.dtype != dtype or not out.flags.writeable)):
        return None
    arrays = [np.asarray(x, dtype) for x in inputs]
    try:
        if out is None:
            reading, writing = ["readonly"], ["writeonly", "allocate"]
            out = np.nditer(
                [*arrays, None], ["zerosize_ok"], [*[reading] * len(arrays), writing]
            ).operands[-1]
        return None if out.size < FEWEST else (_ufuncs.Plan(index, *arrays, out), out, dtype)
    except ValueError:  # of the shapes: let the ufunc say so
        return None


def _call(ufunc, inputs, out):
    if isinstance(out, tuple) and len(out) == 1:
        (out,) = out
    planned = _plan(ufunc, inputs, out)
    if planned is None:
        return ufunc(*inputs, out=out)
    plan, out, dtype = planned
    parts = min(4 * threads, plan.elements // PART) if (threads := _threads()) > 1 else 1
    if parts > 1:
        _run(plan.address, plan.elements, parts)
    else:
        plan.run()
    _report(ufunc, plan.flags, dtype)
    return out


# ---- the functions ---------------------------------------------------------------------------

DOCSTRING = """\
`fastgelu.{name}` in parallel, on Numba's threads.

Parameters
----------
{parameters} : array_like
    {what}, of any shape and strides.
out : ndarray, optional
    Where the result goes; may be an input itself.

Returns
-------
{result} : ndarray or scalar
    As the ufunc's, bit for bit.

Notes
-----
dtypes, broadcasting, errors, error bounds and special values are those of `fastgelu.{name}`.

Small arrays, and what is no plain NumPy array, go to the ufunc itself. The work is done in one
thread in a process that was forked, and, where Numba's threading layer is "workqueue", as long as
the process has other Python threads.

See Also
--------
fastgelu.{name} : The ufunc.
"""


def _function(ufunc):
    if ufunc.nin == 1:

        def function(x, out=None):
            return _call(ufunc, (x,), out)

    else:

        def function(x1, x2, out=None):
            return _call(ufunc, (x1, x2), out)

    name = ufunc.__name__
    backward = split(name)[1] == "_backward"
    function.__name__ = function.__qualname__ = name
    function.__doc__ = DOCSTRING.format(
        name=name,
        parameters="x1, x2" if backward else "x",
        what="The gradient of the output, and the argument" if backward else "The argument",
        result="dx" if backward else "y",
    )
    return function


globals().update({name: _function(ufunc) for name, ufunc in _ufuncs.COMPILED.items()})
