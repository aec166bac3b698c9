# SPDX-License-Identifier: BSD-3-Clause
"""What numba-cuda needs to compile a call of a ufunc of this package (entry point
numba_cuda_extensions), and whether it is there.

Releases of numba-cuda up to 0.30 at least do not look at entry points when a kernel is launched:
hence `import fastgelu.cuda` does the same.
"""

import functools
import importlib.metadata
import re

MINIMUM = (0, 30)
INSTALL = "pip install -U 'fastgelu[cuda]'"


def version_problem(version):
    """What is wrong with this version of numba-cuda; None if nothing is."""
    if version is None:
        return f"fastgelu.cuda needs numba-cuda, which is not installed: {INSTALL}"
    if tuple(map(int, re.findall(r"\d+", version)[:2])) < MINIMUM:
        wanted = ".".join(map(str, MINIMUM))
        return (
            f"fastgelu.cuda needs numba-cuda {wanted} or newer, and this is numba-cuda {version}: "
            f"{INSTALL}"
        )
    return None


def import_cuda():
    """The module numba.cuda, or an ImportError that says why not and what to do."""
    try:
        version = importlib.metadata.version("numba-cuda")
    except importlib.metadata.PackageNotFoundError:
        version = None
    problem = version_problem(version)
    if problem is not None:
        raise ImportError(problem)
    try:
        from numba import cuda

        init()
    except Exception as error:  # of a lost library, too new a Numba, ...: whatever it is
        raise ImportError(
            f"fastgelu.cuda needs numba-cuda, and importing it failed with "
            f"{type(error).__name__}: {error}; a newer one may help: {INSTALL}"
        ) from error
    return cuda


@functools.cache
def init():
    """Teach numba-cuda the ufuncs, once in a process; its simulator calls them as they are."""
    from numba.core import config

    if not config.ENABLE_CUDASIM:
        from fastgelu import _cuda_overloads  # noqa: F401 (registers as it is imported)
