# SPDX-License-Identifier: BSD-3-Clause
"""What the documents say is so: their programs run, the files that they name exist."""

import doctest
import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import fastgelu

ROOT = Path(__file__).parents[1]
DOCUMENTS = [
    "README.md",
    "CONTRIBUTING.md",
    "CHANGELOG.md",
    "benchmarks/README.md",
    "examples/README.md",
]


def block(language, containing):
    """The code block of README.md in a language that holds some text."""
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    found = re.findall(rf"^```{language}\n(.*?)^```", text, re.MULTILINE | re.DOTALL)
    (match,) = (code for code in found if containing in code)
    return match


def test_python_quick_start():
    text = block("python", ">>> import numpy") + block("python", "set_num_threads")
    parser, runner = doctest.DocTestParser(), doctest.DocTestRunner()
    test = parser.get_doctest(text, {}, "README.md", None, 0)
    # what it sets ends here
    with np.printoptions(), fastgelu.num_threads(fastgelu.get_num_threads()):
        results = runner.run(test)
    assert results.attempted > 12 and results.failed == 0


def test_dask_quick_start(tmp_path):
    pytest.importorskip("distributed", reason="dask.distributed (pip install distributed)")
    script = tmp_path / "cluster.py"
    script.write_text(block("python", "distributed"), encoding="utf-8")
    done = subprocess.run(
        [sys.executable, "-P", script], cwd=tmp_path, capture_output=True, text=True, timeout=120
    )
    assert done.returncode == 0, done.stderr
    assert float(done.stdout) == pytest.approx(0.5 / np.sqrt(np.pi), rel=1e-3)


@pytest.mark.skipif(shutil.which("cc") is None, reason="there is no C compiler named cc")
def test_c_quick_start(tmp_path):
    (tmp_path / "demo.c").write_text(block("c", "main"), encoding="utf-8")
    command = block("sh", "demo.c").strip().replace("python", shlex.quote(sys.executable))
    commands = f'eval "{command}"'  # as the text below says, for a path with a space
    done = subprocess.run(
        ["sh", "-e", "-c", commands], cwd=tmp_path, capture_output=True, text=True, timeout=300
    )
    assert done.returncode == 0 and done.stderr == "", done.stderr
    printed = [line.partition(" = ")[2] for line in done.stdout.splitlines()]
    x = np.array([-5.5, -1, 0, 2], np.float32)
    assert printed == [f"{y:.4g}" for y in fastgelu.gelu(x).tolist()]


@pytest.mark.parametrize("document", DOCUMENTS)
def test_files_that_documents_name_exist(document):
    path = ROOT / document
    text = path.read_text(encoding="utf-8")
    links = [link for link in re.findall(r"\]\(([^)#]+)\)", text) if ":" not in link]
    for link in links:
        assert (path.parent / link).exists(), link
    folders = "native|fastgelu|tests|benchmarks|examples"
    named = re.findall(rf"\b((?:{folders})/[\w./<>*]+\w)", text)
    for name in named:  # target_<name>.c stands for all
        assert any(ROOT.glob(re.sub("<.*?>", "*", name))), name
    assert links or named or document == "CHANGELOG.md"


def test_tables_name_every_function():
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    for entry in fastgelu.functions():
        assert f"`{entry.name}`" in text
        for table in ("accuracy", "speed") if entry.compiled else ("accuracy",):
            generated = text.partition(f"<!-- begin: {table} -->")[2].partition("<!-- end")[0]
            row = rf"^\| {entry.name} +\| {entry.dtype} +\|"
            assert re.search(row, generated, re.MULTILINE), (table, entry)


def test_the_accuracy_table_states_the_registry_bounds():
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    rows = re.findall(r"^\| (\w+) +\| (\w+) +\| +([\d.]+) \| +([\d.]+) \|", text, re.MULTILINE)
    found = {
        (name, dtype): (float(bound), float(measured)) for name, dtype, bound, measured in rows
    }
    for entry in fastgelu.functions():
        bound, measured = found[entry.name, entry.dtype]
        assert bound == entry.max_ulp and measured <= bound, entry


def test_cuda_quick_start(run_python):
    pytest.importorskip("numba_cuda", reason="numba-cuda is not installed")
    check = """
import fastgelu
x = np.linspace(-3, 3, 1000, dtype=np.float32)
np.testing.assert_array_equal(y.copy_to_host(), fastgelu.gelu(x))
"""
    run_python(block("python", "numba_cuda") + check, NUMBA_ENABLE_CUDASIM="1")


def test_numba_quick_start():
    pytest.importorskip("numba", reason="Numba is not installed")
    code, names = block("python", "prange"), {}
    code = code.replace(", cache=True", "")  # there is no file to keep a cache for
    exec(compile(code, "README.md", "exec"), names)
    x, y = names["x"], names["y"]
    np.testing.assert_array_equal(y[1:], fastgelu.silu(x[1:]))
    np.testing.assert_array_equal(y[0], fastgelu.gelu(x[0] + x[1]) * x[2])
