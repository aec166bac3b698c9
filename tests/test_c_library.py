# SPDX-License-Identifier: BSD-3-Clause
"""The C library that the package carries: flags, pkg-config and CMake files, programs in C, C++,
Rust and ctypes. All of it as installed, and again after a move to a path with a space."""

import ctypes
import importlib.metadata
import os
import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import fastgelu
from fastgelu import __main__ as command_line
from fastgelu import _config

ROOT = Path(__file__).parents[1]
NATIVE, EXAMPLES = ROOT / "native", ROOT / "examples" / "c"
INSTALLED = Path(fastgelu.__file__).parent

pytestmark = pytest.mark.skipif(
    not sys.platform.startswith("linux"), reason="names and tools of Linux"
)


def tool(name, variable=None):
    """The command of a build tool; a test that needs a missing one is skipped."""
    command = shlex.split(os.environ.get(variable or "", "")) or [name]
    if not shutil.which(command[0]):
        pytest.skip(f"{command[0]} is not installed")
    return command


def environment(**changes):
    hidden = (
        "LD_LIBRARY_PATH",
        "PKG_CONFIG_PATH",
        "CMAKE_PREFIX_PATH",
        "CFLAGS",
        "FASTGELU_TARGET",
    )
    return {**{k: v for k, v in os.environ.items() if k not in hidden}, **changes}


def output(command, cwd=None, **changes):
    done = subprocess.run(
        command,
        cwd=cwd,
        env=environment(**changes),
        shell=isinstance(command, str),
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert done.returncode == 0, f"{command}\n{done.stdout}\n{done.stderr}"
    return done.stdout


class Installation:
    """An installed package: where it lies, and how its interpreter is called."""

    def __init__(self, package):
        self.package = package
        self.environment = {"PYTHONPATH": str(package.parent)}
        self.python = [sys.executable, "-P"]

    def config(self, *options):
        command = [*self.python, "-m", "fastgelu", "config", *options]
        return output(command, **self.environment).rstrip("\n")

    @property
    def library(self):
        return self.package / "lib" / "libfastgelu.so.0"


@pytest.fixture(scope="module", params=["installed", "moved"])
def installation(request, tmp_path_factory):
    if request.param == "installed":
        return Installation(INSTALLED)
    place = tmp_path_factory.mktemp("moved") / "a place" / "with spaces"
    shutil.copytree(INSTALLED, place / "fastgelu", symlinks=True)
    bundled = INSTALLED.with_name("fastgelu.libs")  # of a repaired wheel: OpenMP's run-time library
    if bundled.exists():
        shutil.copytree(bundled, place / bundled.name)
    return Installation(place / "fastgelu")


# ---- what is there -----------------------------------------------------------


def test_files():
    names = {
        str(path.relative_to(INSTALLED))
        for folder in ("include", "lib")
        for path in (INSTALLED / folder).rglob("*")
        if path.is_file()
    }
    assert names == {
        "include/fastgelu.h",
        "lib/libfastgelu.so",
        "lib/libfastgelu.so.0",
        "lib/pkgconfig/fastgelu.pc",
        "lib/cmake/fastgelu/fastgeluConfig.cmake",
        "lib/cmake/fastgelu/fastgeluConfigVersion.cmake",
        "lib/cmake/fastgelu/fastgeluTargets.cmake",
    }
    assert not [path for path in INSTALLED.rglob("*") if path.is_symlink()]
    header = (INSTALLED / "include" / "fastgelu.h").read_text()
    assert header == (NATIVE / "include" / "fastgelu.h").read_text()


def test_library_exports_what_the_header_declares():
    library = ctypes.CDLL(INSTALLED / "lib" / "libfastgelu.so.0")
    header = (INSTALLED / "include" / "fastgelu.h").read_text()
    declared = set(re.findall(r"^FASTGELU_API .*?(\w+)\(", header, re.MULTILINE))
    assert len(declared) > len(fastgelu.functions())
    for name in declared:
        assert hasattr(library, name)
    listed = output([*tool("nm"), "-D", "--defined-only", INSTALLED / "lib" / "libfastgelu.so.0"])
    exported = {line.split()[2].partition("@")[0] for line in listed.splitlines()}
    assert exported - {"FASTGELU_0"} == declared


def test_library_gives_the_bits_of_the_ufunc():
    library = ctypes.CDLL(INSTALLED / "lib" / "libfastgelu.so.0")
    library.fastgelu_version.restype = ctypes.c_char_p
    assert library.fastgelu_version().decode() == fastgelu.__version__
    x = np.linspace(-15, 6, 10_001)
    y = np.empty_like(x)
    pointers = [ctypes.c_void_p(array.ctypes.data) for array in (x, y)]
    library.fastgelu_gelu_f64(ctypes.c_size_t(len(x)), *pointers)
    np.testing.assert_array_equal(y.view("u8"), fastgelu.gelu(x).view("u8"))


IMPOSTOR = """
#include <stddef.h>
const char *fastgelu_version(void) { return "impostor"; }
void fastgelu_gelu_f64(size_t n, const double *x, double *y) { while (n--) y[n] = x[n] - x[n]; }
"""

ASK_BOTH = """
import ctypes, sys, fastgelu
library = ctypes.CDLL(sys.argv[1])
library.fastgelu_find_function.restype = ctypes.POINTER(ctypes.c_char_p * 6)
found = library.fastgelu_find_function(b"gelu", b"f64")
kernel = ctypes.cast(found, ctypes.POINTER(ctypes.c_void_p * 5)).contents[4]
kernel = ctypes.CFUNCTYPE(None, ctypes.c_size_t, *[ctypes.POINTER(ctypes.c_double)] * 2)(kernel)
y = ctypes.c_double()
kernel(1, ctypes.c_double(1), y)
print(fastgelu.__version__, float(fastgelu.gelu(1.0)) == y.value > 0.8)
"""


def test_another_library_of_that_name_changes_nothing(tmp_path):
    """Neither the extension nor calls within the library go to one that was loaded before."""
    (tmp_path / "impostor.c").write_text(IMPOSTOR)
    soname = "-Wl,-soname,libfastgelu.so.0"
    compiler = [*tool("cc", "CC"), "-shared", "-fPIC", soname, "impostor.c", "-o", "impostor.so"]
    output(compiler, cwd=tmp_path)
    printed = output(
        [sys.executable, "-P", "-c", ASK_BOTH, INSTALLED / "lib" / "libfastgelu.so.0"],
        PYTHONPATH=str(INSTALLED.parent),
        LD_PRELOAD=str(tmp_path / "impostor.so"),
    )
    assert printed.split() == [fastgelu.__version__, "True"]


def test_templates_are_filled_in():
    for path in [*(INSTALLED / "lib").rglob("*.cmake"), *(INSTALLED / "lib").rglob("*.pc")]:
        text = path.read_text()
        assert not re.search(r"@\w*@", text), path
        assert str(INSTALLED.parent) not in text, path


def test_entry_points():
    values = {"pkg_config": "fastgelu.lib.pkgconfig", "cmake.prefix": "fastgelu"}
    for group, value in values.items():
        [point] = (
            point
            for point in importlib.metadata.distribution("fastgelu").entry_points
            if point.group == group
        )
        assert (point.name, point.value) == ("fastgelu", value)
    script = "import fastgelu.lib.pkgconfig as module; print(*module.__path__, sep='\\n')"
    paths = output([sys.executable, "-P", "-c", script], PYTHONPATH=str(INSTALLED.parent))
    assert [path for path in paths.splitlines() if Path(path, "fastgelu.pc").exists()]


# ---- python -m fastgelu config ------------------------------------------------


def test_paths(installation):
    script = "import fastgelu; print(fastgelu.get_include()); print(fastgelu.get_library_dir())"
    include, lib = output(
        [*installation.python, "-c", script], **installation.environment
    ).splitlines()
    assert Path(include) == installation.package / "include"
    assert Path(lib) == installation.package / "lib"
    assert installation.config("--cmakedir") == f"{lib}/cmake/fastgelu"
    assert installation.config("--pkgconfigdir") == f"{lib}/pkgconfig"
    assert installation.config("--version") == fastgelu.__version__
    flags = [f"-I{include}", f"-L{lib}", f"-Wl,-rpath,{lib}", "-lfastgelu"]
    assert shlex.split(installation.config("--cflags")) == flags[:1]
    assert shlex.split(installation.config("--libs")) == flags[1:]
    assert shlex.split(installation.config("--libs", "--cflags")) == flags
    both = installation.config("--version", "--cflags").splitlines()
    assert both == [installation.config("--cflags"), fastgelu.__version__]


def test_a_comma_in_the_path(monkeypatch, tmp_path):
    shutil.copytree(INSTALLED / "lib", tmp_path / "a,b" / "lib")
    monkeypatch.setattr(_config, "PACKAGE", tmp_path / "a,b")
    assert not [flag for flag in _config.linker_flags() if flag.startswith("-Wl,")]


@pytest.mark.parametrize("arguments", [[], ["config"], ["config", "--nonsense"], ["nonsense"]])
def test_wrong_usage(arguments, capsys):
    with pytest.raises(SystemExit) as stopped:
        command_line.main(arguments)
    assert stopped.value.code == 2
    assert "usage: python -m fastgelu" in capsys.readouterr().err


def test_an_installation_without_the_library(monkeypatch, tmp_path, capsys):
    monkeypatch.setattr(_config, "PACKAGE", tmp_path)
    for function in (fastgelu.get_include, fastgelu.get_library_dir):
        with pytest.raises(FileNotFoundError, match="carries no C library"):
            function()
    assert command_line.main(["config", "--cflags"]) == 1
    assert "carries no C library" in capsys.readouterr().err


# ---- programs -------------------------------------------------------------------


def check_program(program, installation):
    """The program runs with no LD_LIBRARY_PATH, on the library of that installation."""
    printed = output([program])
    libraries = output([*tool("ldd"), program])
    assert re.search(r"libfastgelu\.so\.0 => (.*) \(", libraries), libraries
    found = re.search(r"libfastgelu\.so\.0 => (.*) \(", libraries)[1]
    assert Path(found).samefile(installation.library)
    return printed


@pytest.mark.parametrize("standard", ["c99", "c17"])
def test_c_program(installation, tmp_path, standard):
    compiler = shlex.join([*tool("cc", "CC"), f"-std={standard}", "-Wall", "-Wextra", "-Werror"])
    flags = installation.config("--cflags", "--libs")
    # as a shell would read it; without a space in the path, a plain $(...) does
    source = shlex.quote(str(NATIVE / "tests" / "consumer.c"))
    output(f"{compiler} {source} {flags} -lm -o consumer", cwd=tmp_path)
    printed = check_program(tmp_path / "consumer", installation)
    assert re.search(r"^\d+ passed, 0 failed$", printed, re.MULTILINE)


def test_c_program_without_quotes(tmp_path):
    installation = Installation(INSTALLED)
    if re.search(r"[^\w/.+-]", str(INSTALLED)):
        pytest.skip("the path of this installation needs quotes")
    shutil.copy(NATIVE / "tests" / "consumer.c", tmp_path / "demo.c")
    python = shlex.join(installation.python)
    compiler = shlex.join(tool("cc", "CC"))
    output(
        f"{compiler} demo.c $({python} -m fastgelu config --cflags --libs) -lm && ./a.out",
        cwd=tmp_path,
        **installation.environment,
    )


def test_pkg_config(installation, tmp_path):
    query = [*tool("pkg-config"), "fastgelu"]
    path = {"PKG_CONFIG_PATH": installation.config("--pkgconfigdir")}
    assert output([*query, "--modversion"], **path).strip() == fastgelu.__version__
    flags = output([*query, "--cflags", "--libs"], **path).strip()
    source = shlex.quote(str(NATIVE / "tests" / "consumer.c"))
    output(f"{shlex.join(tool('cc', 'CC'))} {source} {flags} -lm -o consumer", cwd=tmp_path)
    check_program(tmp_path / "consumer", installation)


PROJECT = """
cmake_minimum_required(VERSION 3.18...3.31)
project(consumer C)
find_package(fastgelu {version} REQUIRED COMPONENTS shared)
add_executable(consumer "{source}")
target_link_libraries(consumer fastgelu::fastgelu m)
"""


def test_cmake(installation, tmp_path):
    cmake = tool("cmake")
    text = PROJECT.format(version=fastgelu.__version__, source=NATIVE / "tests" / "consumer.c")
    (tmp_path / "CMakeLists.txt").write_text(text)
    where = installation.config("--cmakedir")
    build = tmp_path / "build"
    output([*cmake, "-S", tmp_path, "-B", build, f"-Dfastgelu_DIR={where}"])
    output([*cmake, "--build", build])
    check_program(build / "consumer", installation)

    (tmp_path / "CMakeLists.txt").write_text(text.replace("shared", "static"))
    done = subprocess.run(
        [*cmake, "-S", tmp_path, "-B", tmp_path / "other", f"-Dfastgelu_DIR={where}"],
        env=environment(),
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert done.returncode != 0 and "has no static library" in done.stderr


FLAGS_PROJECT = """
cmake_minimum_required(VERSION 3.18...3.31)
project(consumer C)
add_executable(consumer "{source}")
separate_arguments(CFLAGS UNIX_COMMAND "${{CFLAGS}}")
target_compile_options(consumer PRIVATE ${{CFLAGS}})
target_link_libraries(consumer PRIVATE "${{LIBS}}" m)
add_executable(plain "{source}")
"""


def test_cmake_with_the_flags(installation, tmp_path):
    cmake, build = tool("cmake"), tmp_path / "build"
    cflags, libs = installation.config("--cflags"), installation.config("--libs")
    text = FLAGS_PROJECT.format(source=NATIVE / "tests" / "consumer.c")
    (tmp_path / "CMakeLists.txt").write_text(text)
    output([*cmake, "-S", tmp_path, "-B", build, f"-DCFLAGS={cflags}", f"-DLIBS={libs}"])
    output([*cmake, "--build", build, "--target", "consumer"])
    check_program(build / "consumer", installation)
    output(
        [*cmake, "-S", tmp_path, "-B", build, f"-DCMAKE_C_FLAGS={cflags}"]
        + [f"-DCMAKE_C_STANDARD_LIBRARIES={libs} -lm"]
    )
    output([*cmake, "--build", build, "--target", "plain"])
    check_program(build / "plain", installation)


@pytest.mark.parametrize("path", ["a b", "a'b", 'a"b', "a$(b)", "a\\b", "a;b", "é,&"])
def test_quoting(path):
    quoted = _config.quoted([f"-I{path}", "-lfastgelu"])
    assert shlex.split(quoted) == [f"-I{path}", "-lfastgelu"]
    printed = output(f"printf '%s\\n' {quoted}")
    assert printed.splitlines() == [f"-I{path}", "-lfastgelu"]


# ---- examples/c -------------------------------------------------------------------


@pytest.fixture(scope="module")
def reference(tmp_path_factory):
    """What the example prints, by way of ctypes."""
    text = output(
        [sys.executable, "-P", EXAMPLES / "ffn_ctypes.py"], PYTHONPATH=str(INSTALLED.parent)
    )
    assert len(text.splitlines()) == 5 and text.endswith("finite differences agree\n")
    return text


@pytest.mark.parametrize(
    "source, compiler, variable",
    [("ffn.c", "cc -std=c11", "CC"), ("ffn.cpp", "c++ -std=c++17", "CXX")],
)
def test_example_in_c(installation, tmp_path, reference, source, compiler, variable):
    name, standard = compiler.split()
    command = shlex.join([*tool(name, variable), standard, "-O2", "-Wall", "-Wextra", "-Werror"])
    flags = installation.config("--cflags", "--libs")
    path = shlex.quote(str(EXAMPLES / source))
    output(f"{command} {path} {flags} -lm -o ffn", cwd=tmp_path)
    assert check_program(tmp_path / "ffn", installation) == reference


def test_example_in_rust(installation, tmp_path, reference):
    lib = installation.package / "lib"
    output(
        [*tool("rustc"), "-D", "warnings", EXAMPLES / "ffn.rs", "-L", lib]
        + ["-C", f"link-arg=-Wl,-rpath,{lib}", "-o", tmp_path / "ffn"]
    )
    assert check_program(tmp_path / "ffn", installation) == reference


def test_the_example_can_fail(tmp_path):
    """Another function in the backward pass is noticed."""
    text = (EXAMPLES / "ffn_ctypes.py").read_text()
    text = text.replace("gelu_backward_f64", "gelu_tanh_backward_f64")
    (tmp_path / "wrong.py").write_text(text)
    done = subprocess.run(
        [sys.executable, "-P", tmp_path / "wrong.py"],
        env=environment(PYTHONPATH=str(INSTALLED.parent)),
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert done.returncode == 1 and "DISAGREE" in done.stdout
