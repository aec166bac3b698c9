# SPDX-License-Identifier: BSD-3-Clause
"""What Numba needs to compile a call of a ufunc of this package (entry point numba_extensions).

Numba calls `init` before it compiles, or loads from its cache, the first function of a process.

A call on scalars becomes the formula itself, written into the calling function (_llvm.py): there
is no exception, no status and no function to inline, so LLVM can vectorise the loop around it. A
call on whole arrays goes to the C kernel, by its name: compiled code that a cache keeps holds no
address.
"""

import re

MINIMUM = (0, 60)


def version_problem(version):
    """What is wrong with this version of Numba; None if nothing is."""
    numbers = tuple(map(int, re.findall(r"\d+", version)[:2]))
    if numbers >= MINIMUM:
        return None
    wanted = ".".join(map(str, MINIMUM))
    return (
        f"fastgelu needs Numba {wanted} or newer in compiled functions, and this is {version}; "
        "to update it: pip install -U 'fastgelu[numba]'"
    )


def init():
    """Teach Numba the ufuncs, once in a process."""
    import numba

    problem = version_problem(numba.__version__)
    if problem is None:
        import fastgelu._numba_overloads
    else:
        _refuse(problem)


def _refuse(problem):
    """Make every use in a compiled function an error that says why; no use, no message."""
    from numba.core.errors import TypingError
    from numba.extending import overload

    from fastgelu._ufuncs import UFUNCS

    def refusal(*args, **kwargs):
        raise TypingError(problem)

    for ufunc in UFUNCS.values():
        overload(ufunc)(refusal)
