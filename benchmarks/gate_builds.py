# SPDX-License-Identifier: BSD-3-Clause
"""Builds of revisions for gate.py: each in a folder of its own, kept below .benchmarks/builds.

A build is the Python package, or with `native` the C library alone with one target: a third of the
time. The folder is named by what goes into it, so that one revision is built once.
"""

import hashlib
import os
import platform
import re
import shlex
import shutil
import subprocess
import sys
import tarfile
import tempfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parents[1]
CACHE = ROOT / ".benchmarks" / "builds"
PACKAGE_PATHS = ("fastgelu", "native", "setup.py", "pyproject.toml")
NATIVE_PATHS = ("native/src", "native/include")
WORKING_TREE = "."


class BuildError(Exception):
    """Why there is no build, in a few lines."""


class Registered(NamedTuple):
    """A line of native/src/functions.def."""

    name: str
    dtype: str  # NumPy's name
    inputs: int


class Build(NamedTuple):
    """What the worker needs to know, and what a report tells."""

    revision: str  # as asked for
    commit: str  # its short hash, or "working tree"
    native: bool
    path: str  # of the folder with the package, or of the library
    functions: tuple
    tree: str = ""


# ---- revisions -------------------------------------------------------------------------------


def git(*arguments, **environment):
    done = subprocess.run(
        ["git", *arguments],
        cwd=ROOT,
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
    )
    if done.returncode:
        raise BuildError(f"git {arguments[0]}: {done.stderr.strip()}")
    return done.stdout.strip()


def tree_of(revision):
    """(hash of the tree, what to call it). The working tree becomes a tree object too."""
    if revision != WORKING_TREE:
        try:
            tree = git("rev-parse", "--verify", "--end-of-options", f"{revision}^{{tree}}")
        except BuildError:
            raise BuildError(f"{revision} is no revision of this repository") from None
        return tree, git("rev-parse", "--short", revision)
    with tempfile.TemporaryDirectory() as folder:
        index = os.path.join(folder, "index")
        git("read-tree", "HEAD", GIT_INDEX_FILE=index)
        git("add", "--all", GIT_INDEX_FILE=index)
        tree = git("write-tree", GIT_INDEX_FILE=index)
    changed = tree != git("rev-parse", "HEAD^{tree}")
    return tree, "working tree" if changed else git("rev-parse", "--short", "HEAD")


def export(tree, folder):
    """The files of a tree, without its history."""
    arguments = ["git", "archive", "--format=tar", tree]
    with (
        subprocess.Popen(arguments, cwd=ROOT, stdout=subprocess.PIPE) as archive,
        tarfile.open(fileobj=archive.stdout, mode="r|") as tar,
    ):
        tar.extractall(folder, filter="data")
    if archive.returncode:
        raise BuildError(f"git archive {tree} failed")


def compiler():
    return shlex.split(os.environ.get("CC", "cc"))


def key(tree, native, slower, target):
    """Names what a build depends on."""
    paths = NATIVE_PATHS if native else PACKAGE_PATHS
    version = subprocess.run([*compiler(), "--version"], capture_output=True, text=True).stdout
    parts = [git("ls-tree", tree, "--", *paths), shlex.join(compiler()), version]
    parts += [target] if native else [sys.version, platform.machine()]
    parts += [os.environ.get(name, "") for name in ("CFLAGS", "LDFLAGS", "FASTGELU_OPENMP")]
    parts += sorted(f"{name} {percent}" for name, percent in slower.items())
    return hashlib.sha256("\n".join(parts).encode()).hexdigest()[:16]


# ---- the registry, and a build that is slower ------------------------------------------------

DTYPES = {"f32": "float32", "f64": "float64", "f16": "float16", "bf16": "bfloat16"}


def registry(source):
    text = (source / "native/src/functions.def").read_text(encoding="utf-8")
    lines = re.findall(r"^FG_FUNCTION(?:_GRAD2)?\((\w+), (\w+), (\d),", text, re.MULTILINE)
    return tuple(Registered(name, DTYPES[dtype], int(inputs)) for name, dtype, inputs in lines)


def slow_down(source, slower):
    """Patch the sources: functions in `slower` compute so many percent of their elements twice.

    The call is repeated where the library hands it to a kernel, so that the patch knows nothing of
    the kernels.
    """
    path = source / "native/src/dispatch.c"
    text = path.read_text(encoding="utf-8")
    short = {long: name for name, long in DTYPES.items()}
    for arguments, again in ("x, y", "n_, x, y"), ("dy, x, dx", "n_, dy, x, dx"):
        inputs = arguments.count(",")
        line = f"#define FG_CALL_{inputs}(slot) table()->slot(n, {arguments})\n"
        if text.count(line) != 1:
            raise BuildError(f"native/src/dispatch.c has no line {line.strip()!r} to slow down")
        text = text.replace(
            line,
            f"#define FG_CALL_{inputs}(slot) table()->slot(n, {arguments}); \\\n"
            f"    if (again_##slot) {{ const size_t n_ = n * again_##slot / 100; \\\n"
            f"        table()->slot({again}); }}\n",
        )
    unknown = set(slower)
    constants = []
    for name, dtype, _ in registry(source):
        percent = slower.get((name, dtype), 0)
        unknown.discard((name, dtype))
        slot = f"{name}_{short[dtype]}"
        constants += [f"again_{slot} = {percent}", f"again_stream_{slot} = {percent}"]
    if unknown:
        raise BuildError(f"nothing to slow down: {unknown}")
    path.write_text(
        text.replace(
            "/* The prototypes in", f"enum {{ {', '.join(constants)} }};\n\n/* The prototypes in", 1
        ),
        encoding="utf-8",
    )


# ---- building --------------------------------------------------------------------------------


def command(arguments, folder, what):
    done = subprocess.run(
        arguments, cwd=folder, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    )
    if done.returncode:
        last = "\n".join(done.stdout.strip().splitlines()[-15:])
        raise BuildError(f"{what} cannot be built:\n{last}")


def build_package(source, folder):
    """Needs what is installed here, and no network."""
    pip = [sys.executable, "-m", "pip", "--disable-pip-version-check", "--quiet", "install"]
    options = ["--no-index", "--no-build-isolation", "--no-deps", "--target", str(folder)]
    command([*pip, *options, str(source)], source, "the package")


def targets(source):
    """The instruction sets of a source tree, best first."""
    text = (source / "native/src/targets.def").read_text(encoding="utf-8")
    return re.findall(r"^FG_TARGET\((\w+)\)", text, re.MULTILINE)


def build_library(source, folder, target):
    """One target of libfastgelu and that of its short arrays, with the flags of setup.py."""
    src = source / "native/src"
    definition = src / "targets.def"
    text = definition.read_text(encoding="utf-8")
    if target not in targets(source):
        raise BuildError(f"this revision has no target {target}")
    own = (src / f"target_{target}.c").read_text(encoding="utf-8")
    needed = [target, *re.findall(r"^#define FG_SHORTER fg_(\w+)", own, re.MULTILINE)]
    other = rf"^(?:#if|#endif|#el).*\n|^FG_TARGET\((?!(?:{'|'.join(needed)})\)).*\n"
    lines = re.sub(other, "", text, flags=re.MULTILINE)
    definition.write_text(lines, encoding="utf-8")
    sources = [path for path in sorted(src.glob("*.c")) if not path.name.startswith("target_")]
    sources += [src / f"target_{name}.c" for name in needed]
    flags = ["-std=c11", "-O3", "-fPIC", "-fvisibility=hidden", "-ffp-contract=off", "-g0"]
    flags += ["-I", str(source / "native/include")]
    objects = [str(folder / f"{path.stem}.o") for path in sources]

    def compile_one(path, to):
        if not (os.path.exists(to) and os.path.getmtime(to) >= path.stat().st_mtime):
            command([*compiler(), *flags, "-c", str(path), "-o", to], source, path.name)

    with ThreadPoolExecutor(os.cpu_count()) as pool:
        list(pool.map(compile_one, sources, objects))
    library = str(folder / "libfastgelu.so")
    command([*compiler(), "-shared", "-o", library, *objects, "-lm"], source, "the library")


def best_target():
    """Of the running machine: what the installed package chooses."""
    import fastgelu

    return fastgelu.target()


def build(revision, native=False, slower=None, say=print):
    """The `Build` of a revision, of "." for the working tree, made now or before."""
    tree, commit = tree_of(revision)
    target = best_target() if native else ""
    slower = slower or {}
    final = CACHE / key(tree, native, slower, target)
    if not final.exists():
        what = "library" if native else "package"
        say(f"building the {what} of {commit}{', slowed down' if slower else ''}")
        CACHE.mkdir(parents=True, exist_ok=True)
        folder = Path(tempfile.mkdtemp(prefix="new-", dir=CACHE))
        try:
            source, built = folder / "source", folder / "built"
            unchanged = CACHE / key(tree, native, {}, target)
            if slower and unchanged.exists():  # with its object files
                for part in source, built if native else source:
                    if not part.exists():
                        shutil.copytree(unchanged / part.name, part, symlinks=True)
            else:
                export(tree, source)
            built.mkdir(exist_ok=True)
            if slower:
                slow_down(source, slower)
            if native:
                build_library(source, built, target)
            else:
                build_package(source, built)
            os.rename(folder, final)
        except OSError:
            if not final.exists():  # another process was faster
                raise
        finally:
            shutil.rmtree(folder, ignore_errors=True)
    path = final / "built" / ("libfastgelu.so" if native else "")
    return Build(revision, commit, native, str(path), registry(final / "source"), tree)
