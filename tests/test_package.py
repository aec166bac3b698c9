# SPDX-License-Identifier: BSD-3-Clause
"""The package as such: import, version, configuration, functional, stubs, docstrings, files."""

import ast
import ctypes
import doctest
import importlib.metadata
import pickle
import pickletools
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import fastgelu
from fastgelu import _ufuncs, functional

ROOT = Path(__file__).parents[1]
HEADER = ROOT / "native" / "include" / "fastgelu.h"
INSTALLED = Path(fastgelu.__file__).parent


def isolated(source):
    """The output of a program that sees the installed package only."""
    done = subprocess.run(
        [sys.executable, "-P", "-W", "error", "-c", source],
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


# ---- import ----------------------------------------------------------------


def test_import_costs_less_than_50_ms_over_numpy():
    source = """
import time, numpy
start = time.process_time()
import fastgelu
print(time.process_time() - start)
"""
    # Of the processor's time, and the least of a few: the machine may be busy.
    assert min(float(isolated(source)) for _ in range(5)) < 0.050


def test_import_brings_no_other_package():
    source = """
import sys, numpy
before = set(sys.modules)
import fastgelu
print(*{name.partition(".")[0] for name in set(sys.modules) - before})
"""
    added = set(isolated(source).split()) - set(sys.stdlib_module_names)
    added -= {name for name in added if "cython" in name}  # the extension's own run-time parts
    # ml_dtypes only where it is installed: see _dtypes.py
    assert added - {"numpy", "ml_dtypes"} == {"fastgelu"}


def test_import_leaves_subnormal_numbers_alone():
    source = """
import numpy as np, fastgelu
assert np.full(9, 5e-324).sum() > 0
assert np.float32(1e-38) * np.float32(0.01) > 0
"""
    isolated(source)


def test_import_from_the_source_tree_says_what_to_do():
    if list((ROOT / "fastgelu").glob("_ufuncs.*.so")):
        pytest.skip("built in place: the source tree is a working package")
    done = subprocess.run(
        [sys.executable, "-c", f"import sys; sys.path.insert(0, {str(ROOT)!r}); import fastgelu"],
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert done.returncode != 0
    assert done.stderr.splitlines()[-1].startswith("ImportError: the compiled part of fastgelu")
    assert "pip install" in done.stderr


# ---- version and configuration ---------------------------------------------


def test_one_version_everywhere():
    macros = dict(re.findall(r"#define FASTGELU_VERSION_?(\w*) \"?([\d.]+)", HEADER.read_text()))
    assert macros[""] == f"{macros['MAJOR']}.{macros['MINOR']}.{macros['PATCH']}"
    assert fastgelu.__version__ == macros[""]
    assert importlib.metadata.version("fastgelu") == macros[""]
    assert fastgelu.show_config("dicts")["version"] == macros[""]


def test_show_config_returns_and_prints_the_same(capsys):
    config = fastgelu.show_config(mode="dicts")
    assert capsys.readouterr().out == ""
    assert list(config) == [
        "version",
        "target",
        "targets",
        "threads",
        "threads_from",
        "ignored",
        "openmp",
        "compiler",
        "python",
        "numpy",
    ]
    assert config["target"] == fastgelu.target()
    assert config["targets"] == fastgelu.targets()
    assert config["targets"][config["target"]] is True
    assert config["threads"] == fastgelu.get_num_threads() >= 1
    assert config["ignored"] == []
    assert config["compiler"].split()[0] in ("gcc", "clang", "msvc")
    assert config["numpy"] == np.__version__
    assert fastgelu.show_config() is None
    printed = capsys.readouterr().out
    for key, value in config.items():
        shown = re.escape(str(value)) if not isinstance(value, (dict, list)) else ""
        assert re.search(rf"^  {key} +{shown}", printed, re.MULTILINE)
    for name in config["targets"]:
        assert name in printed


@pytest.mark.parametrize("mode", ["dict", "", None, []])
def test_show_config_bad_mode(mode):
    with pytest.raises(ValueError, match=r"mode=.* is unknown; choose one of 'stdout', 'dicts'"):
        fastgelu.show_config(mode=mode)


# ---- the registry ----------------------------------------------------------


def test_every_registered_function_is_a_ufunc():
    for name, dtype, inputs, _ in fastgelu.functions():
        ufunc = getattr(fastgelu, name)
        assert type(ufunc) is np.ufunc
        assert (ufunc.__name__, ufunc.nin, ufunc.nout) == (name, inputs, 1)
        if dtype == "bfloat16":  # no type of NumPy's: a user's loop
            one = np.ones(1, pytest.importorskip("ml_dtypes").bfloat16)
            assert ufunc(*[one] * inputs).dtype == one.dtype
        else:
            char = np.dtype(dtype).char
            assert f"{char * inputs}->{char}" in ufunc.types
        assert name in fastgelu.__all__


def test_functions_match_the_registry_file():
    text = (ROOT / "native" / "src" / "functions.def").read_text()
    lines = re.findall(
        r"^FG_FUNCTION(?:_GRAD2)?\((\w+), (\w+), (\d), ([\d.]+)\)", text, re.MULTILINE
    )
    assert [
        (name, dtype.replace("float", "f"), inputs, bound)
        for name, dtype, inputs, bound in fastgelu.functions()
    ] == [(name, dtype, int(inputs), float(bound)) for name, dtype, inputs, bound in lines]


def test_integer_loops_come_before_the_floats():
    for name in dict.fromkeys(function.name for function in fastgelu.functions()):
        ufunc = getattr(fastgelu, name)
        inputs = [types.partition("->")[0][0] for types in ufunc.types]
        assert "".join(inputs).startswith("?bBhHiIlLqQ")
        sizes = [np.dtype(char).itemsize for char in inputs[len("?bBhHiIlLqQ") :]]
        assert sizes == sorted(sizes)


def test_max_ulp():
    for name, dtype, _, bound in fastgelu.functions():
        assert 0 < bound <= 8
        assert fastgelu.max_ulp(name, dtype) == bound
        assert fastgelu.max_ulp(getattr(fastgelu, name), np.dtype(dtype)) == bound
    assert fastgelu.max_ulp("gelu", np.float32) == fastgelu.max_ulp("gelu", ">f4")


@pytest.mark.parametrize("function", ["", "gel", "GELU", None, 1, np.add, [], np.expm1])
def test_max_ulp_of_an_unknown_function(function):
    with pytest.raises(ValueError, match=r"unknown function .*choose one of gelu, "):
        fastgelu.max_ulp(function, "float32")


@pytest.mark.parametrize("dtype", ["int8", "complex64", "longdouble", object])
def test_max_ulp_of_a_dtype_without_a_loop(dtype):
    with pytest.raises(ValueError, match=r"gelu has no loop for .*choose one of .*float32"):
        fastgelu.max_ulp("gelu", dtype)


def test_pickles_as_a_name_in_the_package():
    for name in _ufuncs.UFUNCS:
        data = pickle.dumps(getattr(fastgelu, name))
        assert pickle.loads(data) is getattr(fastgelu, name)
        strings = [text for _, text, _ in pickletools.genops(data) if isinstance(text, str)]
        assert strings == ["fastgelu", name]


# ---- functional ------------------------------------------------------------

X = np.array([-np.inf, -20.0, -0.75, -0.0, 0.0, 1e-300, 0.3, 8.0, np.inf, np.nan])
DY = np.linspace(-2, 3, len(X))
FORMS = {"none": "gelu", "tanh": "gelu_tanh", "sigmoid": "gelu_sigmoid"}


def same(got, want):
    np.testing.assert_array_equal(got.view("u8"), want.view("u8"))


@pytest.mark.parametrize("approximate, form", FORMS.items())
def test_functional_gelu_is_the_ufunc(approximate, form):
    forward, backward = getattr(fastgelu, form), getattr(fastgelu, form + "_backward")
    same(functional.gelu(X, approximate), forward(X))
    same(functional.gelu(X, approximate=approximate), forward(X))
    same(functional.gelu_backward(DY, X, approximate), backward(DY, X))
    same(functional.gelu_backward(grad_output=DY, x=X, approximate=approximate), backward(DY, X))
    out = np.empty_like(X)
    assert functional.gelu(X, approximate, out) is out
    same(out, forward(X))
    assert functional.gelu_backward(DY, X, approximate, out=out) is out
    same(out, backward(DY, X))


def test_functional_defaults_and_silu():
    same(functional.gelu(X), fastgelu.gelu(X))
    same(functional.gelu_backward(DY, X), fastgelu.gelu_backward(DY, X))
    same(functional.silu(X), fastgelu.silu(X))
    same(functional.silu_backward(DY, X), fastgelu.silu_backward(DY, X))
    out = np.empty_like(X)
    assert functional.silu(X, out) is out
    assert functional.silu_backward(DY, X, out=out) is out
    same(out, fastgelu.silu_backward(DY, X))


@pytest.mark.parametrize("approximate", ["erf", "", "None", None, True, ["tanh"]])
@pytest.mark.parametrize(
    "function", [functional.gelu, lambda x, a: functional.gelu_backward(x, x, a)]
)
def test_functional_unknown_approximate(function, approximate):
    with pytest.raises(ValueError, match="choose one of 'none', 'tanh', 'sigmoid'") as caught:
        function(X, approximate)
    assert f"approximate={approximate!r}" in str(caught.value)


# ---- what is installed, stubs and docstrings --------------------------------


def test_installed_files():
    files = {path.name for path in INSTALLED.iterdir() if path.name != "__pycache__"}
    assert {"py.typed", "__init__.pyi", "functional.pyi"} <= files
    assert not [name for name in files if name.endswith((".pyx", ".pxd", ".c", ".h"))]


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="a linker option of Linux")
def test_the_library_inside_is_private():
    module = ctypes.CDLL(_ufuncs.__file__)
    assert hasattr(module, "PyInit__ufuncs")
    assert not hasattr(module, "fastgelu_version")
    assert not hasattr(module, "fastgelu_gelu_f32")


def stub_names(name):
    tree = ast.parse((INSTALLED / name).read_text())
    for node in tree.body:
        if isinstance(node, ast.FunctionDef | ast.ClassDef):
            yield node.name
        elif isinstance(node, ast.AnnAssign):
            yield node.target.id
        elif isinstance(node, ast.ImportFrom):
            yield from (alias.asname for alias in node.names if alias.asname)


@pytest.mark.parametrize(
    "module, stub", [(fastgelu, "__init__.pyi"), (functional, "functional.pyi")]
)
def test_stubs_name_every_public_object(module, stub):
    names = {name for name in stub_names(stub) if not name.startswith("_")}
    assert names == set(module.__all__)
    for name in module.__all__:
        assert hasattr(module, name)


def test_nothing_public_is_left_out():
    public = {name for name in dir(fastgelu) if not name.startswith("_")}
    optional = {"cuda", "numba"}  # there once it is used
    assert public - optional == set(fastgelu.__all__)


SECTIONS = ["Parameters", "Returns", "Notes", "References", "Examples"]


def test_ufunc_docstring(name):
    doc = getattr(fastgelu, name).__doc__
    assert re.findall(r"^(\w+)\n-+$", doc, re.MULTILINE) == SECTIONS
    for function in fastgelu.functions():
        if function.name == name:
            bound = (
                f"below {function.max_ulp:g} ULP"
                if function.max_ulp != 0.5
                else "correctly rounded"
            )
            assert f"{bound} in {function.dtype}" in re.sub(r"\s+", " ", doc)
    assert max(map(len, doc.splitlines()[1:])) <= 100
    assert not re.search(r"[{}]", doc)


@pytest.mark.parametrize("path", [*_ufuncs.UFUNCS, "get_library_dir", "max_ulp", "functional.gelu"])
def test_docstring_examples_run(path):
    value = fastgelu
    for part in path.split("."):
        value = getattr(value, part)
    test = doctest.DocTestParser().get_doctest(value.__doc__, {}, path, None, None)
    assert test.examples
    output = []
    assert doctest.DocTestRunner().run(test, out=output.append).failed == 0, "".join(output)


@pytest.mark.parametrize(
    "function",
    ["functions", "get_include", "get_library_dir", "max_ulp", "show_config", "target", "targets"],
)
def test_public_functions_are_documented(function):
    assert len(getattr(fastgelu, function).__doc__) > 20


@pytest.mark.parametrize("dtype", ["f32", "float32", np.float32])
def test_max_ulp_takes_either_name_of_a_dtype(dtype):
    assert fastgelu.max_ulp("gelu", dtype) == fastgelu.max_ulp(fastgelu.gelu, np.dtype("f4"))


def test_max_ulp_of_an_unknown_dtype():
    with pytest.raises(ValueError, match=r"bogus.*float32"):
        fastgelu.max_ulp("gelu", "bogus")
