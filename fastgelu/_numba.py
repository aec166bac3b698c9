# SPDX-License-Identifier: BSD-3-Clause
"""What Numba needs to compile a call of a ufunc of this package (entry point numba_extensions).

Numba calls `init` before it compiles, or loads from its cache, the first function of a process.

A call on scalars is one of the formula (_llvm.py): it has no exception and no status, and there is
a formula of vectors, so LLVM can vectorise the loop around it. A call on whole arrays goes to the C
kernel, by its name: compiled code that a cache keeps holds no address.
"""

import functools
import os
import re

MINIMUM = (0, 60)


def version_problem(version):
    """What is wrong with this version of Numba; None if nothing is."""
    numbers = tuple(map(int, re.findall(r"\d+", version)[:2]))
    if numbers >= MINIMUM:
        return None
    wanted = ".".join(map(str, MINIMUM))
    return (
        f"fastgelu needs Numba {wanted} or newer, and this is Numba {version}; to update it: "
        "pip install -U 'fastgelu[numba]'"
    )


def import_numba():
    """Numba, or an ImportError that says why not and what to do."""
    try:
        import numba
    except ModuleNotFoundError as error:
        if error.name != "numba":
            raise _broken(error) from error
        raise ImportError(
            "fastgelu.numba needs Numba, which is not installed: pip install 'fastgelu[numba]'"
        ) from error
    except Exception as error:  # of too new a NumPy, a lost library, ...: whatever it is
        raise _broken(error) from error
    problem = version_problem(getattr(numba, "__version__", "0 (unknown)"))
    if problem is not None:
        raise ImportError(problem)
    return numba


def _broken(error):
    return ImportError(
        f"fastgelu.numba needs Numba, and importing it failed with {type(error).__name__}: "
        f"{error}; a newer one may help: pip install -U 'fastgelu[numba]'"
    )


class Process:
    """Whether this process is the child of a fork."""

    forked = False

    @classmethod
    def note_fork(cls):
        cls.forked = True


@functools.cache
def init():
    """Teach Numba the ufuncs, once in a process."""
    import numba

    # Before any parallel code of Numba's can have run: a thread pool from before the fork is
    # broken in the child.
    if hasattr(os, "register_at_fork"):
        os.register_at_fork(after_in_child=Process.note_fork)
    problem = version_problem(numba.__version__)
    if problem is None:
        from fastgelu import _numba_overloads  # noqa: F401 (registers as it is imported)
    else:
        _refuse(problem)


def _refuse(problem):
    """Make every use in a compiled function an error that says why; no use, no message."""
    from numba.core.errors import TypingError
    from numba.extending import type_callable

    from fastgelu._ufuncs import UFUNCS

    def refusal(*args, **kwargs):
        raise TypingError(problem)

    for ufunc in UFUNCS.values():
        type_callable(ufunc)(lambda context: refusal)
