# SPDX-License-Identifier: BSD-3-Clause
"""What the pages take from elsewhere, so that nothing is written twice.

A comment in a page is where it goes, which a viewer of markdown does not show:

    <!-- insert: README speed -->       a generated table of README.md, between its markers
    <!-- insert: python fastgelu -->    the public names of a module, with their docstrings
    <!-- insert: c -->                  the public header, by native/tools/manual.awk
    <!-- insert: activations -->        the names that fastgelu.get_activation knows
"""

import importlib
import inspect
import re
import subprocess
import sys
import types
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]


def readme(table):
    """The table between the markers of that name."""
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    _, begin, rest = text.partition(f"<!-- begin: {table} -->")
    found, end, _ = rest.partition(f"<!-- end: {table} -->")
    if not begin or not end:
        raise ValueError(f"README.md has no markers for {table!r}")
    return found


def python(module_name):
    """Directives for all that a module's `__all__` lists, modules left out."""
    module = importlib.import_module(module_name)
    lines = []
    for name in module.__all__:
        member = getattr(module, name)
        if inspect.ismodule(member):
            continue
        directive = "autoclass" if inspect.isclass(member) else "autofunction"
        lines += [f".. {directive}:: {module_name}.{name}", ""]
    return "\n".join(["```{eval-rst}", *lines, "```"])


def c():
    """The contracts and the declarations of fastgelu.h, in markdown."""
    sources = ["src/functions.def", "include/fastgelu.h"]
    return subprocess.run(
        ["awk", "-v", "markdown=1", "-f", "tools/manual.awk", *sources],
        cwd=ROOT / "native",
        capture_output=True,
        text=True,
        check=True,
    ).stdout


def activations():
    """The table of names of activations."""
    from fastgelu import _activations

    return _activations.markdown_table()


PARTS = {"README": readme, "python": python, "c": c, "activations": activations}


def fill(source):
    """Replace the comments in the text of a page, which is source[0]."""

    def part(match):
        kind, *arguments = match[1].split()
        return PARTS[kind](*arguments)

    text = re.sub(r"<!-- insert: (.+?) -->", part, source[0])
    # Markdown outside this folder is no page: a file to download.
    source[0] = re.sub(r"\]\((\.\./[^)#]+\.md)\)", r"](path:\1)", text)


def pretend_cuda():
    """Make fastgelu.cuda importable, for its docstrings, where numba-cuda is missing."""
    import importlib.metadata

    try:
        importlib.metadata.version("numba-cuda")
        return
    except importlib.metadata.PackageNotFoundError:
        pass
    from fastgelu import _cuda

    kernels = types.ModuleType("fastgelu._cuda_kernels")
    sys.modules[kernels.__name__] = kernels
    _cuda.import_cuda = lambda: None
