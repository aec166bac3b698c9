# SPDX-License-Identifier: BSD-3-Clause
"""Where the C library of this installation lies, and the flags that compile and link with it."""

import re
import sys
from pathlib import Path

from fastgelu import _ufuncs

__all__ = ["add_command", "get_include", "get_library_dir"]

PACKAGE = Path(__file__).absolute().parent


def folder(name, holds):
    path = PACKAGE / name
    if not (path / holds).exists():
        raise FileNotFoundError(
            f"{path / holds} does not exist: this installation of fastgelu carries no C library"
        )
    return str(path)


def get_include():
    """Find the folder of the C library's header, fastgelu.h.

    Returns
    -------
    path : str
        The folder's absolute path, for the compiler's option ``-I``.

    Raises
    ------
    FileNotFoundError
        This installation carries no C library.

    See Also
    --------
    get_library_dir

    Notes
    -----
    ``python -m fastgelu config --cflags --libs`` prints the options ready for a shell.
    """
    return folder("include", "fastgelu.h")


def get_library_dir():
    """Find the folder of the C library.

    On Linux the library is ``libfastgelu.so.0``. Since a wheel holds no symbolic links,
    ``libfastgelu.so`` beside it is a linker script, for ``-lfastgelu``: it cannot be loaded.

    Returns
    -------
    path : str
        The folder's absolute path, for the linker's options ``-L`` and ``-rpath``.

    Raises
    ------
    FileNotFoundError
        This installation carries no C library.

    See Also
    --------
    get_include

    Examples
    --------
    >>> import ctypes, fastgelu, os, sys
    >>> if sys.platform.startswith("linux"):
    ...     path = os.path.join(fastgelu.get_library_dir(), "libfastgelu.so.0")
    ...     library = ctypes.CDLL(path)
    """
    return folder("lib", "")


def linker_flags():
    directory = get_library_dir()
    # commas separate the parts of -Wl
    rpath = [f"-Wl,-rpath,{directory}"]
    if "," in directory:
        rpath = ["-Xlinker", "-rpath", "-Xlinker", directory]
    if sys.platform == "win32":
        return [f"-L{directory}", "-lfastgelu"]
    if sys.platform == "darwin":
        return [str(Path(directory, "libfastgelu.0.dylib")), *rpath]
    return [f"-L{directory}", *rpath, "-lfastgelu"]


def quoted(flags):
    """Join flags for the shell.

    With backslashes: CMake removes apostrophes around the value of an option -D, and hands a
    linker's flags on as they are.
    """
    return " ".join(re.sub(r"[^\w@%+=:,./-]", r"\\\g<0>", flag) for flag in flags)


def run(options):
    if not options.wanted:
        options.parser.error("nothing asked for: give one or more of the options")
    flags = []
    if "cflags" in options.wanted:
        flags.append(f"-I{get_include()}")
    if "libs" in options.wanted:
        flags += linker_flags()
    if flags:
        print(quoted(flags))
    for name, value in {
        "cmakedir": lambda: str(Path(get_library_dir(), "cmake", "fastgelu")),
        "pkgconfigdir": lambda: str(Path(get_library_dir(), "pkgconfig")),
        "version": _ufuncs.version,
    }.items():
        if name in options.wanted:
            print(value())
    return 0


def add_command(commands):
    """Add `config` to the subcommands of ``python -m fastgelu``."""
    parser = commands.add_parser(
        "config",
        help="flags to compile and link C programs with",
        description="Prints what C programs need of this installation: flags on one line, quoted "
        "for the shell, then each path or version on a line of its own.",
        epilog="Example: cc demo.c $(python -m fastgelu config --cflags --libs). Where the path "
        'has a space in it: eval "cc demo.c $(python -m fastgelu config --cflags --libs)".',
    )
    for name, text in {
        "cflags": "the compiler's flags",
        "libs": "the linker's flags; programs find the library without LD_LIBRARY_PATH",
        "cmakedir": "the folder for CMake's fastgelu_DIR",
        "pkgconfigdir": "the folder for PKG_CONFIG_PATH",
        "version": "the version of the library",
    }.items():
        parser.add_argument(
            f"--{name}", dest="wanted", action="append_const", const=name, help=text
        )
    parser.set_defaults(run=run, parser=parser)
