# SPDX-License-Identifier: BSD-3-Clause
"""Builds libfastgelu, and fastgelu._ufuncs on top of it.

The sources are compiled once and linked twice: into the extension, which keeps its copy to itself,
and as the shared library for C programs, which the package carries with its header, pkg-config and
CMake files. Two copies, since an extension that needs libfastgelu.so.0 would get whichever library
of that name, and whichever functions of these names, its process has already: another version's,
perhaps. The second copy is a fifth of a megabyte (CONTRIBUTING.md).

Environment: CC chooses the compiler, FASTGELU_WERROR=1 makes warnings errors,
FASTGELU_OPENMP=0 builds without OpenMP and FASTGELU_OPENMP=1 fails where the compiler has none.
"""

import copy
import os
import re
import shlex
import shutil
import struct
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
# The shared library's names, as in native/CMakeLists.txt. Untested except on Linux.
if os.name == "nt":
    SHARED, LINK_SHARED = "fastgelu.dll", []
elif sys.platform == "darwin":
    SHARED = "libfastgelu.0.dylib"
    LINK_SHARED = [*LINK, "-Wl,-install_name,@rpath/" + SHARED]
else:
    SHARED = "libfastgelu.so.0"
    LINK_SHARED = [
        "-fno-fast-math",
        "-fno-lto",
        f"-Wl,-soname,{SHARED},--version-script={NATIVE}/src/fastgelu.map,-Bsymbolic",
        "-Wl,-z,defs,-z,noexecstack,-z,relro,-z,now",
    ]
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
    """Makes the archive anew, since ar only adds, and the shared library of the same objects."""

    def build_libraries(self, libraries):
        for archive in Path(self.build_clib).glob("*fastgelu.*"):
            archive.unlink()
        super().build_libraries(libraries)
        self.link_shared()

    def link_shared(self):
        objects = self.compiler.object_filenames(native, output_dir=self.build_temp)
        exported = None
        if sys.platform == "darwin":
            linker = self.compiler.linker_so
            self.compiler.linker_so = ["-dynamiclib" if x == "-bundle" else x for x in linker]
        elif os.name == "nt":  # elsewhere the header and the map say it
            declared = re.findall(r"^FASTGELU_API .*?(\w+)\(", HEADER.read_text(), re.MULTILINE)
            exported = declared
        self.compiler.link_shared_object(
            objects,
            str(Path(self.build_clib) / SHARED),
            libraries=LIBM,
            export_symbols=exported,
            extra_postargs=LINK_SHARED,
        )


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
    """Builds the library first, adds OpenMP to the extension where the compiler has it, and lays
    out the package's part for C programs."""

    def run(self):
        self.run_command("build_clib")
        super().run()
        package = Path(self.get_ext_fullpath("fastgelu._ufuncs")).parent
        self.lay_out(package, Path(self.get_finalized_command("build_clib").build_clib))

    def build_extensions(self):
        openmp = self.openmp()
        if openmp:
            for ext in self.extensions:
                ext.extra_compile_args = [*ext.extra_compile_args, "-fopenmp"]
                ext.extra_link_args = [*ext.extra_link_args, "-fopenmp"]
        # an extension built the other way is not up to date, whatever its age
        built = Path(self.build_temp, "openmp")
        self.force = self.force or not built.exists() or built.read_text() != str(openmp)
        super().build_extensions()
        built.parent.mkdir(parents=True, exist_ok=True)
        built.write_text(str(openmp))

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

    def lay_out(self, package, built):
        include, lib = package / "include", package / "lib"
        cmake, pkgconfig = lib / "cmake" / "fastgelu", lib / "pkgconfig"
        for folder in (include, lib, cmake, pkgconfig):
            folder.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(HEADER, include / "fastgelu.h")
        shutil.copy(built / SHARED, lib / SHARED)
        link = "-L${libdir} -Wl,-rpath,${libdir} -lfastgelu"
        if os.name == "nt":
            shutil.copy(built / "fastgelu.lib", lib)
            link = "-L${libdir} -lfastgelu"
        elif sys.platform == "darwin":
            link = "${libdir}/" + SHARED + " -Wl,-rpath,${libdir}"
        else:
            # A wheel holds no symbolic links: what -lfastgelu finds is a linker script.
            script = f"/* libfastgelu.so: to link with; the library is {SHARED} */\n"
            (lib / "libfastgelu.so").write_text(f"{script}INPUT({SHARED})\n")
        values = {
            "PROJECT_VERSION": version,
            "PC_PREFIX": "${pcfiledir}/../..",
            "PC_INCLUDEDIR": "${prefix}/include",
            "PC_LIBDIR": "${prefix}/lib",
            "PC_LIBS": link,
            "PC_LIBS_PRIVATE": "",
            "CMAKE_SIZEOF_VOID_P": str(struct.calcsize("P")),
            "LIBRARY": SHARED,
            "SONAME": "@rpath/" + SHARED if sys.platform == "darwin" else SHARED,
        }
        names = ["Config", "ConfigVersion", "Targets"]
        for path in [pkgconfig / "fastgelu.pc", *(cmake / f"fastgelu{n}.cmake" for n in names)]:
            text = (NATIVE / (path.name + ".in")).read_text()
            path.write_text(re.sub(r"@(\w+)@", lambda match: values[match[1]], text))


drop_forbidden_flags()
version = re.search(r'^#define FASTGELU_VERSION "(.+)"$', HEADER.read_text(), re.MULTILINE)[1]
native = files(NATIVE / "src", "*.c")
depends = [*files(NATIVE / "src", "*.h", "*.def", "*.inc", "*.map"), str(HEADER), "setup.py"]

library = {
    "sources": native,
    "include_dirs": [str(HEADER.parent), str(NATIVE / "src")],
    "cflags": COMPILE + STRICT if os.name != "nt" else COMPILE,
    "obj_deps": {"": depends},
}
extension = Extension(
    "fastgelu._ufuncs",
    ["fastgelu/_ufuncs.pyx"]
    + [f"fastgelu/_{n}.c" for n in ("calls", "loops", "plan", "threads", "workers")],
    include_dirs=[str(HEADER.parent), str(NATIVE / "src"), "fastgelu", numpy.get_include()],
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
    ext_modules=cythonize(
        [extension],
        build_dir="build/cython",
        language_level=3,
        # All state is set at import; the library's dispatch pointer is atomic.
        compiler_directives={"freethreading_compatible": True},
    ),
)
