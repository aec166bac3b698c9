# SPDX-License-Identifier: BSD-3-Clause
"""Builds libfastgelu as a static library and fastgelu._ufuncs on top of it.

Environment: CC chooses the compiler, FASTGELU_WERROR=1 makes warnings errors,
FASTGELU_OPENMP=0 builds without OpenMP and FASTGELU_OPENMP=1 fails where the compiler has none.
"""

import copy
import os
import re
import shlex
import sys
import tempfile
from pathlib import Path

import numpy
from Cython.Build import cythonize
from setuptools import Extension, setup
from setuptools.command.build_clib import build_clib
from setuptools.command.build_ext import build_ext
from setuptools.errors import CompileError, LinkError

NATIVE = Path("native")
HEADER = NATIVE / "include" / "fastgelu.h"

if os.name == "nt":  # untested
    COMPILE = ["/std:c11", "/O2", "/fp:precise"]
    LINK, LIBM = [], []
else:
    # No -m flags: each target file enables its own instruction set. The last ones come after the
    # flags of the environment and of Python itself, and hold against them. -g0, since Python's -g
    # would make the extension ten times as large; profilers find the symbols all the same.
    COMPILE = ["-std=c11", "-O3", "-fvisibility=hidden", "-Wall", "-Wextra"]
    COMPILE += ["-ffp-contract=off", "-fno-fast-math", "-fno-lto", "-g0"]
    LINK, LIBM = ["-fno-fast-math", "-fno-lto"], ["m"]
    if sys.platform.startswith("linux"):
        # The library stays private: neither exported by the extension, nor replaced at load time
        # by a libfastgelu that the process has already.
        LINK.append("-Wl,--exclude-libs,ALL")
    if os.environ.get("FASTGELU_WERROR", "0") not in ("", "0"):
        COMPILE.append("-Werror")
# For the library alone: NumPy's headers and Cython's C would not pass.
STRICT = ["-Wshadow", "-Wstrict-prototypes", "-Wmissing-prototypes", "-Wundef"]

# -Ofast brings fast-math along, whatever follows it, and at link time an object file that makes
# the whole process flush subnormal numbers to zero.
FORBIDDEN = re.compile(
    r"-Ofast|-ffast-math|-funsafe-math-optimizations|-fassociative-math|-freciprocal-math"
    r"|-ffinite-math-only|-fno-signed-zeros|-flto(=.*)?"
)


def drop_forbidden_flags():
    for variable in ("CC", "CFLAGS", "CPPFLAGS", "LDFLAGS", "LDSHARED"):
        flags = shlex.split(os.environ.get(variable, ""))
        dropped = [flag for flag in flags if FORBIDDEN.fullmatch(flag)]
        if dropped:
            print(f"fastgelu: {variable}: ignoring {' '.join(dropped)}", file=sys.stderr)
            os.environ[variable] = shlex.join(flag for flag in flags if flag not in dropped)


def files(folder, *patterns):
    return sorted(str(path) for pattern in patterns for path in Path(folder).glob(pattern))


class BuildLibrary(build_clib):
    """Starts the archive anew: ar only adds, and would keep what has no source any more."""

    def build_libraries(self, libraries):
        for archive in Path(self.build_clib).glob("*fastgelu.*"):
            archive.unlink()
        super().build_libraries(libraries)


# What starts a team of two and counts it, or fails to build: clang comes without its runtime.
PROBE = """
#include <omp.h>
int main(void) {
    int threads = 0;
#pragma omp parallel num_threads(2) reduction(+ : threads)
    threads += 1;
    return threads + omp_get_max_threads() == 0;
}
"""


class BuildExtension(build_ext):
    """Adds OpenMP to the extension where the compiler has it."""

    def build_extensions(self):
        if self.openmp():
            for ext in self.extensions:
                ext.extra_compile_args = [*ext.extra_compile_args, "-fopenmp"]
                ext.extra_link_args = [*ext.extra_link_args, "-fopenmp"]
        super().build_extensions()

    def openmp(self):
        wanted = os.environ.get("FASTGELU_OPENMP", "")
        if wanted not in ("", "0", "1"):
            sys.exit(f"fastgelu: FASTGELU_OPENMP={wanted!r}: must be 0 or 1")
        if wanted == "0" or os.name == "nt":
            return False
        compiler = copy.copy(self.compiler)
        compiler.libraries = []  # it has libfastgelu
        with tempfile.TemporaryDirectory() as folder:
            source = Path(folder, "openmp.c")
            source.write_text(PROBE)
            try:
                objects = compiler.compile(
                    [str(source)], output_dir="/", extra_postargs=["-fopenmp"]
                )
                # with the flags of the extension's own link
                compiler.link_shared_object(
                    objects, str(Path(folder, "openmp.so")), extra_postargs=["-fopenmp"]
                )
                return True
            except (CompileError, LinkError) as error:
                if wanted == "1":
                    raise
                print(f"fastgelu: built without OpenMP, serial: {error}", file=sys.stderr)
                return False


drop_forbidden_flags()
version = re.search(r'^#define FASTGELU_VERSION "(.+)"$', HEADER.read_text(), re.MULTILINE)[1]
native = files(NATIVE / "src", "*.c")
depends = [*files(NATIVE / "src", "*.h", "*.def", "*.inc"), str(HEADER), "setup.py"]

library = {
    "sources": native,
    "include_dirs": [str(HEADER.parent), str(NATIVE / "src")],
    "cflags": COMPILE + STRICT if os.name != "nt" else COMPILE,
    "obj_deps": {"": depends},
}
extension = Extension(
    "fastgelu._ufuncs",
    ["fastgelu/_ufuncs.pyx", "fastgelu/_loops.c", "fastgelu/_plan.c", "fastgelu/_threads.c"],
    include_dirs=[str(HEADER.parent), "fastgelu", numpy.get_include()],
    define_macros=[
        ("NPY_NO_DEPRECATED_API", "NPY_1_25_API_VERSION"),
        ("NPY_TARGET_VERSION", "NPY_1_25_API_VERSION"),
    ],
    libraries=["fastgelu", *LIBM],
    depends=[*native, *depends, *files("fastgelu", "*.h")],
    extra_compile_args=COMPILE,
    extra_link_args=LINK,
)

setup(
    version=version,
    cmdclass={"build_clib": BuildLibrary, "build_ext": BuildExtension},
    libraries=[("fastgelu", library)],
    ext_modules=cythonize([extension], build_dir="build/cython", language_level=3),
)
