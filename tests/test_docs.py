# SPDX-License-Identifier: BSD-3-Clause
"""Every code block of README.md and of docs/ runs, and the pages hold together.

The Python blocks of a page run one after the other in one namespace; where a block is a session
(>>>), its output is compared. C blocks are compiled and run, commands are looked up: what they name
exists. A comment before a block says otherwise:

    <!-- run: needs jax -->       where that is installed, in a namespace for it
    <!-- run: process -->         as a program
    <!-- run: simulator -->       in a process with Numba's simulator of CUDA
    <!-- run: no: why -->         not at all; Python is compiled
    <!-- output -->               not code, but what the program before it prints
"""

import argparse
import ast
import contextlib
import doctest
import importlib.util
import io
import os
import re
import shlex
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pytest

import fastgelu

ROOT = Path(__file__).parents[1]
DOCS = ROOT / "docs"
PAGES = ["README.md", *sorted(f"docs/{path.name}" for path in DOCS.glob("*.md"))]


class Block(NamedTuple):
    page: str
    line: int
    language: str
    text: str
    how: str

    def __str__(self):
        return f"{self.page}:{self.line}"


def blocks(page):
    """The fenced blocks of a page; directives of Sphinx are none."""
    found, how, fence, language, first, lines = [], "", None, "", 0, []
    for number, line in enumerate((ROOT / page).read_text(encoding="utf-8").splitlines(), 1):
        if fence is not None and line != fence:
            lines.append(line + "\n")
        elif fence is not None:
            if not language.startswith("{"):
                found.append(Block(page, first, language, "".join(lines), how))
            how, fence = "", None
        elif match := re.fullmatch(r"<!-- (?:run: (.+)|(output)) -->", line):
            how = match[1] or match[2]
        elif match := re.fullmatch(r"(`{3,})(.*)", line):
            fence, language, first, lines = match[1], match[2], number, []
        elif how and line:
            raise ValueError(f"{page}:{number}: the comment before is before no block")
    if fence is not None:
        raise ValueError(f"{page}:{first}: the block does not end")
    return found


BLOCKS = {page: blocks(page) for page in PAGES}
ALL = [block for page in PAGES for block in BLOCKS[page]]
OUTPUTS = {}  # of a program: the commands that run it may stand between
for i, block in enumerate(ALL):
    if block.how == "output":
        program = next(b for b in reversed(ALL[:i]) if b.language in ("python", "c"))
        assert program.page == block.page and program not in OUTPUTS
        OUTPUTS[program] = block.text


def test_every_block_is_known():
    for block in ALL:
        kind = block.how.partition(" ")[0]
        known = {"python": ("", "needs", "process", "simulator", "no:"), "c": ("",), "sh": ("",)}
        known |= {"cmake": ("",), "text": ("output", "no:")}
        assert kind in known[block.language], block
    assert len(ALL) > 50


# ---- Python ----------------------------------------------------------------------------------


def is_session(block):
    return block.text.startswith(">>> ")


def run_session(block, names):
    name = str(block)
    test = doctest.DocTestParser().get_doctest(block.text, names, name, name, 0)
    report = io.StringIO()
    results = doctest.DocTestRunner(optionflags=doctest.ELLIPSIS).run(
        test, out=report.write, clear_globs=False
    )
    names.update(test.globs)
    assert results.attempted and not results.failed, report.getvalue()


def run_python_blocks(chosen):
    names = {"__name__": "__main__"}
    for block in chosen:
        if is_session(block):
            run_session(block, names)
            continue
        printed = io.StringIO()
        source = "\n" * block.line + block.text  # a traceback names the line
        with contextlib.redirect_stdout(printed):
            exec(compile(source, block.page, "exec"), names)
        assert printed.getvalue() == OUTPUTS.get(block, printed.getvalue()), block


def python_cases():
    for page in PAGES:
        ways = [b.how for b in BLOCKS[page] if b.language == "python"]
        for need in dict.fromkeys(
            how.removeprefix("needs ") for how in ways if how == "" or how.startswith("needs ")
        ):
            yield pytest.param(page, need, id=f"{page}-{need}" if need else page)


@pytest.mark.parametrize("page, need", list(python_cases()))
def test_python_blocks(page, need, tmp_path, monkeypatch):
    if need and importlib.util.find_spec(need) is None:
        pytest.skip(f"{need} is not installed")
    monkeypatch.setenv("KERAS_BACKEND", os.environ.get("KERAS_BACKEND", "jax"))
    monkeypatch.chdir(tmp_path)
    wanted = f"needs {need}" if need else ""
    chosen = [b for b in BLOCKS[page] if b.language == "python" and b.how == wanted]
    # what a page sets ends here
    with np.printoptions(), fastgelu.num_threads(fastgelu.get_num_threads()):
        run_python_blocks(chosen)


@pytest.mark.parametrize(
    "block", [b for b in ALL if b.language == "python" and b.how == "process"], ids=str
)
def test_programs(block, tmp_path):
    if "distributed" in block.text:
        pytest.importorskip("distributed", reason="dask.distributed (pip install distributed)")
    script = tmp_path / "program.py"  # spawned workers import it
    script.write_text(block.text, encoding="utf-8")
    done = subprocess.run(
        [sys.executable, "-P", script], cwd=tmp_path, capture_output=True, text=True, timeout=120
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout == OUTPUTS[block]


@pytest.mark.parametrize("page", [p for p in PAGES if any(b.how == "simulator" for b in BLOCKS[p])])
def test_kernels_in_the_simulator(page, run_python):
    pytest.importorskip("numba_cuda", reason="numba-cuda is not installed")
    source = "".join(b.text for b in BLOCKS[page] if b.how == "simulator")
    check = """
if "x" in globals():
    x = np.linspace(-3, 3, 1000, dtype=np.float32)
    np.testing.assert_array_equal(y.copy_to_host(), fastgelu.gelu(x))
"""
    run_python(source + "import fastgelu\n" + check, NUMBA_ENABLE_CUDASIM="1")


def test_python_that_does_not_run_here_compiles():
    for block in ALL:
        if block.language == "python" and not is_session(block):
            ast.parse(block.text, str(block))


# ---- C ---------------------------------------------------------------------------------------

COMPILE = "cc demo.c $(python -P -m fastgelu config --cflags --libs) -o demo"
needs_cc = pytest.mark.skipif(shutil.which("cc") is None, reason="there is no C compiler named cc")


@needs_cc
@pytest.mark.parametrize("block", [b for b in ALL if b.language == "c"], ids=str)
def test_c_blocks(block, tmp_path):
    (tmp_path / "demo.c").write_text(block.text, encoding="utf-8")
    command = COMPILE.replace("python", shlex.quote(sys.executable))
    command = f'eval "{command} -Wall -Wextra -Werror" && ./demo'  # for a path with a space
    done = subprocess.run(
        ["sh", "-e", "-c", command], cwd=tmp_path, capture_output=True, text=True, timeout=300
    )
    assert done.returncode == 0 and done.stderr == "", done.stderr
    assert done.stdout == OUTPUTS.get(block, done.stdout)
    assert done.stdout


@needs_cc
@pytest.mark.skipif(shutil.which("cmake") is None, reason="CMake is not installed")
@pytest.mark.parametrize("block", [b for b in ALL if b.language == "cmake"], ids=str)
def test_cmake_blocks(block, tmp_path):
    (program, *_) = (b for b in BLOCKS[block.page] if b.language == "c")
    (tmp_path / "demo.c").write_text(program.text, encoding="utf-8")
    (tmp_path / "CMakeLists.txt").write_text(block.text, encoding="utf-8")
    package = Path(fastgelu.get_library_dir()) / "cmake"
    for command in (
        ["cmake", "-S", ".", "-B", "build", f"-DCMAKE_PREFIX_PATH={package}"],
        ["cmake", "--build", "build"],
        ["build/demo"],
    ):
        done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=300)
        assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout == OUTPUTS.get(program, done.stdout)


# ---- commands --------------------------------------------------------------------------------

# What the tests of the C library run: native/tests/install.sh, test_c_library.py, and above.
RUN_ELSEWHERE = {
    f"{COMPILE} && ./demo",
    f'eval "{COMPILE}" && ./demo',
    "cmake -S native -B build && cmake --build build && (cd build && ctest)",
    'cmake --install build --prefix "$HOME/.local"',
}


def check_pip(arguments):
    with open(ROOT / "pyproject.toml", "rb") as file:
        extras = tomllib.load(file)["project"]["optional-dependencies"]
    assert arguments[0] == "install"
    named = [re.fullmatch(r"\.(?:\[(\w+)\])?", a) for a in arguments[1:]]
    assert any(named)
    for match in filter(None, named):
        assert match[1] is None or match[1] in extras


def check_make(arguments):
    parser = argparse.ArgumentParser()
    parser.add_argument("-C", default=".")
    parser.add_argument("words", nargs="+")
    options = parser.parse_args(arguments)
    text = (ROOT / options.C / "Makefile").read_text(encoding="utf-8")
    for word in options.words:
        if "=" not in word:
            assert re.search(rf"^(?:[\w-]+ )*{word}(?: [\w-]+)*:", text, re.MULTILINE), word


def check_command_line(arguments):
    from fastgelu.__main__ import make_parser

    make_parser().parse_args(arguments)


def check_python(arguments):
    arguments = [a for a in arguments if a != "-P"]
    if arguments[0] == "-c":
        exec(compile(arguments[1], "command", "exec"), {})
    elif arguments[:2] == ["-m", "fastgelu"]:
        check_command_line(arguments[2:])
    else:
        text = (ROOT / arguments[0]).read_text(encoding="utf-8")
        for argument in arguments[1:]:
            assert not argument.startswith("-") or f'"{argument}"' in text, argument


CHECKS = {
    "pip": check_pip,
    "make": check_make,
    "fastgelu": check_command_line,
    "python": check_python,
}


def commands():
    for block in ALL:
        if block.language == "sh":
            for line in filter(None, block.text.replace("\\\n", " ").splitlines()):
                yield pytest.param(line, id=f"{block}-{line.split('  ')[0][:40]}")


@pytest.mark.parametrize("line", list(commands()))
def test_commands(line, capsys):
    if line in RUN_ELSEWHERE:
        return
    words = shlex.split(line, comments=True)
    while re.match(r"[A-Z_]+=", words[0]):
        variable = words.pop(0).partition("=")[0]
        assert f"`{variable}`" in (DOCS / "guide.md").read_text(encoding="utf-8")
    if words[0] == ".ci/run":
        assert os.access(ROOT / words[0], os.X_OK)
    else:
        CHECKS[words[0]](words[1:])


# ---- the pages -------------------------------------------------------------------------------


def slug(heading):
    """The anchor that viewers of repositories, and MyST, give a heading."""
    text = re.sub(r"[`*]|\]\(.*?\)|\[", "", heading).strip().lower()
    return re.sub(r"[^\w\- ]", "", text).replace(" ", "-")


def without_code(page):
    text = (ROOT / page).read_text(encoding="utf-8")
    return re.sub(r"^```.*?^```$", "", text, flags=re.MULTILINE | re.DOTALL)


def headings(page):
    return re.findall(r"^(#+) (.+)$", without_code(page), re.MULTILINE)


@pytest.mark.parametrize("page", PAGES)
def test_links_resolve(page):
    for link in re.findall(r"\]\(([^)]+)\)", without_code(page)):
        if "://" in link:
            continue
        name, _, anchor = link.partition("#")
        target = (ROOT / page).parent / name if name else ROOT / page
        assert target.exists(), link
        if anchor:
            anchors = {slug(text) for _, text in headings(target.relative_to(ROOT))}
            assert anchor in anchors, (link, anchors)


@pytest.mark.parametrize("page", PAGES)
def test_no_line_begins_a_list_by_chance(page):
    assert not re.findall(r"^[^-+* \d].*\w\n(?:[-+*]|\d+[.)]) .*", without_code(page), re.MULTILINE)


def test_pictures_are_there_and_small():
    pictures = sorted(DOCS.glob("pictures/*.png"))
    text = "".join((ROOT / page).read_text(encoding="utf-8") for page in PAGES)
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    assert len(pictures) >= 3
    for path in pictures:
        name = f"docs/pictures/{path.name}"
        assert path.stat().st_size < 150_000, path
        assert f"pictures/{path.name})" in text and f"--output {name}" in text, path
        assert f"--output {name}" in makefile, path


def test_the_contents_list_every_page():
    index = (DOCS / "index.md").read_text(encoding="utf-8")
    listed = set(
        re.findall(r"^([\w.-]+)$", "".join(re.findall(r"```\{toc.*?```", index, re.S)), re.M)
    )
    assert listed == {path.stem for path in DOCS.glob("*.md")} - {"index"}


def test_the_chinese_page_says_the_same():
    english, chinese = "docs/what-is-gelu.md", "docs/what-is-gelu.zh.md"
    assert [len(level) for level, _ in headings(english)] == [
        len(level) for level, _ in headings(chinese)
    ]

    def code(page):  # comments are translated
        return [re.sub(r" *# .*", "", block.text) for block in BLOCKS[page]]

    def rows(page):  # of tables: what is code or a number
        lines = re.findall(r"^\|.*\|$", without_code(page), re.MULTILINE)
        return [sorted(re.findall(r"`[^`]*`|\d+\.\d+", line)) for line in lines]

    assert code(english) == code(chinese)
    assert rows(english) == rows(chinese)


@pytest.fixture
def inserted(monkeypatch):
    monkeypatch.syspath_prepend(DOCS)
    import inserted

    return inserted


def test_the_reference_has_every_public_name(inserted):
    text = (DOCS / "api.md").read_text(encoding="utf-8")
    for module in ("fastgelu", "fastgelu.functional", "fastgelu.numba", "fastgelu.cuda"):
        assert f"<!-- insert: python {module} -->" in text
    listed = inserted.python("fastgelu") + inserted.python("fastgelu.functional")
    for name in fastgelu.__all__:
        assert f":: fastgelu.{name}\n" in listed or name == "functional"
    for name in fastgelu.functional.__all__:
        assert f":: fastgelu.functional.{name}\n" in listed


@pytest.mark.skipif(shutil.which("awk") is None, reason="there is no awk")
def test_the_c_reference_has_every_declaration(inserted):
    header = (ROOT / "native/include/fastgelu.h").read_text(encoding="utf-8")
    declared = set(re.findall(r"\b(fastgelu_\w+)\(size_t|\b(fastgelu_\w+)\(", header))
    text = inserted.c()
    for name in {a or b for a, b in declared}:
        assert f"{name}(" in text, name
    for entry in fastgelu.functions():
        assert re.search(rf"^{entry.name} +[\d. ]+$", text, re.MULTILINE), entry


def test_the_guide_has_every_name_of_an_activation(inserted):
    source = [(DOCS / "guide.md").read_text(encoding="utf-8")]
    inserted.fill(source)
    for line in fastgelu._activations.TABLE:
        assert f"\n| `{line.name}` | " in source[0], line


def test_tables_come_from_the_readme(inserted):
    source = ["<!-- insert: README speed -->\n[x](../native/NOTES.md)"]
    inserted.fill(source)
    assert "| gelu " in source[0] and "](path:../native/NOTES.md)" in source[0]
    with pytest.raises(ValueError, match="no markers for 'weather'"):
        inserted.readme("weather")
