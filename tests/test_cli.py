# SPDX-License-Identifier: BSD-3-Clause
"""The command line: info, apply, accuracy, bench, plot. (config: test_c_library.py)"""

import importlib
import json
import os
import re
import shlex
import signal
import stat
import subprocess
import sys
import time
import tomllib
from pathlib import Path

import numpy as np
import oracle
import pytest

import fastgelu
from fastgelu import __main__ as command_line
from fastgelu import (
    _command,
    _command_accuracy,
    _command_apply,
    _command_bench,
    _command_plot,
    _rivals,
)

ROOT = Path(__file__).parents[1]
FUNCTIONS = _command.registry_names((1,), compiled=True)


def failure(capsys, *arguments):
    """The one line that a command fails with."""
    assert command_line.main(list(map(str, arguments))) == 1
    printed = capsys.readouterr()
    assert printed.out == ""
    (line,) = printed.err.splitlines()
    assert line.startswith("fastgelu: ")
    return line


def program(*arguments, before=""):
    """A process that runs the command line, after some Python code."""
    code = f"{before}\nimport sys\nfrom fastgelu.__main__ import main\nsys.exit(main())"
    return subprocess.Popen(
        [sys.executable, "-P", "-W", "error", "-c", code, *map(str, arguments)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


@pytest.fixture
def no_extra(monkeypatch):
    """As if neither rich nor matplotlib nor mpmath were installed."""
    for name in list(sys.modules):
        if name.partition(".")[0] in ("rich", "matplotlib", "mpmath"):
            monkeypatch.delitem(sys.modules, name)
    for name in ("rich", "matplotlib", "mpmath"):
        monkeypatch.setitem(sys.modules, name, None)


# ---- all of them -----------------------------------------------------------------------------


@pytest.mark.parametrize(
    "arguments",
    [
        ["info", "more"],
        ["apply", "gelu", "in.npy"],
        ["apply", "gelu_backward", "in.npy", "out.npy"],
        ["apply", "gelu", "in.npy", "out.npy", "--dtype", "int8"],
        ["accuracy", "--functions", "relu"],
        ["accuracy", "--output", "picture.txt"],
        ["accuracy", "--points", "0"],
        ["bench", "--sizes", "3x"],
        ["bench", "--sizes", "0"],
        ["bench", "--threads", "5000"],
        ["bench", "--seconds", "nan"],
        ["bench", "--rivals", "nonesuch"],
        ["plot", "--output", "picture"],
    ],
)
def test_wrong_usage(arguments, capsys):
    with pytest.raises(SystemExit) as stopped:
        command_line.main(arguments)
    assert stopped.value.code == 2
    assert "usage: " in capsys.readouterr().err


@pytest.mark.parametrize("command", [["info"], ["accuracy"], ["bench"], ["plot"]])
def test_without_the_extra(command, no_extra, capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    line = failure(capsys, *command)
    assert "is not installed" in line and "pip install 'fastgelu[cli]'" in line
    assert not list(tmp_path.iterdir())


def test_script():
    with open(ROOT / "pyproject.toml", "rb") as file:
        project = tomllib.load(file)["project"]
    module, _, function = project["scripts"]["fastgelu"].partition(":")
    assert getattr(importlib.import_module(module), function) is command_line.main
    names = {re.match(r"\w+", line)[0] for line in project["optional-dependencies"]["cli"]}
    assert names == {"rich", "matplotlib", "mpmath"}


def test_the_commands_of_the_readme(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    np.save("x.npy", np.ones(3))
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    (block,) = re.findall(
        r"^```sh\n(pip install '\.\[cli\]'.*?)^```", text, re.MULTILINE | re.DOTALL
    )
    lines = re.findall(r"^fastgelu (.*)", block, re.MULTILINE)
    commands = [shlex.split(line, comments=True) for line in lines]
    assert {command[0] for command in commands} == {
        "info", "apply", "plot", "accuracy", "bench", "config"
    }  # fmt: skip
    for command in commands:
        shorter = {
            "accuracy": ["--points", "50", "--rivals", "numpy", "scipy"],
            "bench": ["--seconds", "0", "--sizes", "64", "--rivals", "numpy", "scipy"],
        }
        options = [*command, *shorter.get(command[0], [])]
        if command[0] != "config":  # needs the C library: test_c_library.py
            assert command_line.main(options) == 0
        else:
            command_line.make_parser().parse_args(options)
    assert {path.name for path in tmp_path.iterdir()} == {
        "x.npy", "y.npy", "curves.png", "errors.png", "times.png", "times.md"
    }  # fmt: skip


def test_the_name_of_the_script_in_its_usage(monkeypatch, capsys):
    monkeypatch.setattr(sys, "argv", ["/usr/bin/fastgelu"])
    with pytest.raises(SystemExit):
        command_line.main([])
    assert "usage: fastgelu [" in capsys.readouterr().err


def test_a_closed_pipe_is_no_traceback():
    with program("info", "--json") as process:
        process.stdout.close()
        assert process.stderr.read() == ""
        assert process.wait(60) == 1


@pytest.mark.parametrize("command", ["accuracy", "bench", "plot"])
def test_an_output_that_cannot_be_written_fails_first(command, tmp_path, capsys):
    missing = tmp_path / "missing" / "picture.png"
    assert "is no folder" in failure(capsys, command, "--output", missing)
    (tmp_path / "folder.png").mkdir()
    assert "is a folder" in failure(capsys, command, "--output", tmp_path / "folder.png")


# ---- info ------------------------------------------------------------------------------------


def test_info_for_programs(no_extra, capsys):
    assert command_line.main(["info", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    config = fastgelu.show_config("dicts")
    assert {key: found[key] for key in config} == json.loads(json.dumps(config))
    assert len(found["bounds"]) == len(fastgelu.functions())
    assert found["include"] is None or (Path(found["include"]) / "fastgelu.h").exists()
    rich = found["optional"]["rich"]
    assert not rich["found"] and "pip install 'fastgelu[cli]'" in rich["problem"]


def test_info_of_a_broken_package(monkeypatch, capsys, tmp_path):
    (tmp_path / "mpmath.py").write_text("raise RuntimeError('first line\\nsecond')")
    monkeypatch.syspath_prepend(tmp_path)
    for name in [name for name in sys.modules if name.partition(".")[0] == "mpmath"]:
        monkeypatch.delitem(sys.modules, name)
    assert command_line.main(["info", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)["optional"]["mpmath"]
    assert found["problem"] == "cannot be imported: RuntimeError: first line"


@pytest.mark.parametrize("width", [32, 50, 80, 200])
def test_info_loses_nothing_on_any_terminal(width, monkeypatch, capsys):
    monkeypatch.setenv("COLUMNS", str(width))
    assert command_line.main(["info"]) == 0
    printed = capsys.readouterr().out
    assert max(map(len, printed.splitlines())) <= width
    together = re.sub(r"\s", "", printed)
    for function in fastgelu.functions():
        assert function.name in together and function.dtype in together
    bounds = {f"{function.max_ulp:g}" for function in fastgelu.functions()}
    assert bounds <= set(re.findall(r"[\d.]+", printed))
    assert fastgelu.target() in together and "…" not in printed


def test_rows_of_a_narrow_table_lose_nothing(monkeypatch, capsys):
    monkeypatch.setenv("COLUMNS", "40")
    columns = ["size", "by", ("median ns", "right"), ("time / ours", "right")]
    rows = [["1Ki", "fastgelu", "1.25", ""], ["", "SciPy ndtr", "8.50", "6.80"]]
    _command.print_table(_command.console(), "gelu, float32", columns, rows)
    assert capsys.readouterr().out.splitlines() == [
        "gelu, float32",
        "  1Ki",
        "    fastgelu: median ns 1.25",
        "    SciPy ndtr: median ns 8.50,",
        "      time / ours 6.80",
        "",
    ]


def test_no_color(monkeypatch, capsys):
    monkeypatch.setenv("FORCE_COLOR", "1")
    monkeypatch.setenv("TERM", "xterm-256color")
    monkeypatch.setenv("NO_COLOR", "1")
    assert command_line.main(["info"]) == 0
    printed = capsys.readouterr().out
    assert "\x1b[" in printed  # bold and italic are no colours
    assert not re.search(r"\x1b\[[\d;]*\b(3[0-7]|38|9[0-7])\b", printed)


# ---- apply -----------------------------------------------------------------------------------


def normal(*shape, dtype=np.float32):
    return np.random.default_rng(1).normal(0, 3, shape).astype(dtype)


def applied(x, folder, *options, function="gelu"):
    np.save(folder / "in.npy", x)
    arguments = ["apply", function, folder / "in.npy", folder / "out.npy", *options]
    assert command_line.main(list(map(str, arguments))) == 0
    assert {path.name for path in folder.iterdir()} == {"in.npy", "out.npy"}
    return np.load(folder / "out.npy")


@pytest.fixture
def small_chunks(monkeypatch):
    monkeypatch.setattr(_command_apply, "CHUNK", 1000)


@pytest.mark.parametrize(
    "x",
    [
        normal(77, 91),
        normal(1234, dtype=np.float64),
        normal(5, 7, 100, dtype=np.float16),
        np.asfortranarray(normal(40, 30)),
        normal(999).astype(">f4"),
        np.arange(-500, 500),
        np.float32(1.5),
        np.empty((3, 0, 2), np.float32),
        np.array([True, False]),
    ],
    ids=lambda x: f"{x.dtype.str}{x.shape}",
)
@pytest.mark.usefixtures("small_chunks")
def test_apply(x, tmp_path):
    got, want = applied(x, tmp_path), np.asarray(fastgelu.gelu(x))
    assert got.dtype == want.dtype and got.shape == want.shape
    assert got.tobytes() == want.tobytes()
    assert got.flags.c_contiguous == np.asarray(x).flags.c_contiguous


@pytest.mark.parametrize("function", _command.registry_names((1,)))
def test_apply_each_function(function, tmp_path):
    x = normal(100)
    assert (applied(x, tmp_path, function=function) == getattr(fastgelu, function)(x)).all()


@pytest.mark.parametrize("to", ["float16", "float32", "float64"])
@pytest.mark.usefixtures("small_chunks")
def test_apply_in_another_dtype(to, tmp_path):
    for x in (normal(3000, dtype=np.float64), np.arange(-9, 9)):
        got = applied(x, tmp_path, "--dtype", to, "--force")
        assert got.dtype == to
        assert (got == fastgelu.gelu(x.astype(to))).all()


def test_apply_bfloat16(tmp_path, capsys):
    ml_dtypes = pytest.importorskip("ml_dtypes", reason="ml_dtypes has bfloat16")
    x = normal(500, dtype=ml_dtypes.bfloat16)
    got = applied(x, tmp_path, "--dtype", "bfloat16").view(ml_dtypes.bfloat16)
    assert (got == fastgelu.gelu(x)).all()
    capsys.readouterr()
    line = failure(capsys, "apply", "gelu", tmp_path / "in.npy", tmp_path / "other.npy")
    assert "--dtype bfloat16" in line


def test_apply_overwrites_only_when_forced(tmp_path, capsys):
    source, target = tmp_path / "in.npy", tmp_path / "out.npy"
    np.save(source, normal(10))
    target.write_text("precious")
    target.chmod(0o640)
    assert "--force" in failure(capsys, "apply", "gelu", source, target)
    assert target.read_text() == "precious"
    assert command_line.main(["apply", "gelu", str(source), str(target), "--force"]) == 0
    assert np.load(target).shape == (10,)
    assert stat.S_IMODE(target.stat().st_mode) == 0o640


def test_apply_does_not_overwrite_what_came_meanwhile(tmp_path, capsys, monkeypatch):
    source, target = tmp_path / "in.npy", tmp_path / "out.npy"
    np.save(source, normal(10))
    write_all = _command_apply.write_all

    def slowly(*arguments):
        write_all(*arguments)
        target.write_text("precious")

    monkeypatch.setattr(_command_apply, "write_all", slowly)
    assert "--force" in failure(capsys, "apply", "gelu", source, target)
    assert target.read_text() == "precious"
    assert {path.name for path in tmp_path.iterdir()} == {"in.npy", "out.npy"}


def test_apply_in_place_and_through_a_link(tmp_path):
    file, link = tmp_path / "file.npy", tmp_path / "link.npy"
    x = normal(5000)
    np.save(file, x)
    link.symlink_to(file)
    assert command_line.main(["apply", "silu", str(link), str(link), "--force"]) == 0
    assert link.is_symlink() and (np.load(file) == fastgelu.silu(x)).all()


def saved(x, **options):
    import io

    file = io.BytesIO()
    np.save(file, x, **options)
    return file.getvalue()


WHOLE = saved(np.ones((30, 20), np.float32))
BAD = {
    "empty": (b"", "is no .npy file"),
    "text": (b"hello, this is no array", "is no .npy file"),
    "npz": (b"PK\x03\x04" + bytes(50), "is no .npy file"),
    "cut in the magic": (WHOLE[:7], "is no .npy file"),
    "cut in the header": (WHOLE[:60], "is no .npy file"),
    "cut in the data": (WHOLE[:-1], "truncated"),
    "header of zeros": (WHOLE[:10] + bytes(118), "damaged"),
    "unclosed header": (WHOLE.replace(b"(30, 20), ", b"(300, 200,"), "damaged"),
    "negative shape": (WHOLE.replace(b"(30, 20)", b"(30, -2)"), "damaged"),
    "huge shape": (WHOLE.replace(b"(30, 20)", b"(1 << 70", 1), "damaged"),
    "objects": (saved(np.array([1, None], object), allow_pickle=True), "Python objects"),
    "text array": (saved(np.array(["a"])), "does not take"),
    "complex": (saved(np.ones(3, complex)), "does not take"),
    "dates": (saved(np.zeros(3, "M8[s]")), "does not take"),
    "records": (saved(np.zeros(3, [("a", "f4")])), "no numbers"),
}


@pytest.mark.parametrize("kind", BAD)
def test_apply_to_a_bad_file(kind, tmp_path, capsys):
    content, message = BAD[kind]
    (tmp_path / "in.npy").write_bytes(content)
    for options in ([], ["--force"]):
        paths = tmp_path / "in.npy", tmp_path / "out.npy"
        assert message in failure(capsys, "apply", "gelu", *paths, *options)
    assert [path.name for path in tmp_path.iterdir()] == ["in.npy"]


def test_apply_to_what_is_no_file(tmp_path, capsys):
    target = tmp_path / "out.npy"
    assert "No such file" in failure(capsys, "apply", "gelu", tmp_path / "none.npy", target)
    assert "no regular file" in failure(capsys, "apply", "gelu", tmp_path, target)
    os.mkfifo(tmp_path / "pipe.npy")
    assert "no regular file" in failure(capsys, "apply", "gelu", tmp_path / "pipe.npy", target)


def test_apply_into_what_is_no_file(tmp_path, capsys):
    np.save(tmp_path / "in.npy", normal(3))
    for target, message in {
        tmp_path: "no regular file",
        os.devnull: "no regular file",
        tmp_path / "missing" / "out.npy": "no folder",
    }.items():
        assert message in failure(capsys, "apply", "gelu", tmp_path / "in.npy", target, "--force")
    assert [path.name for path in tmp_path.iterdir()] == ["in.npy"]


def sparse(path, count):
    """A .npy file of zeros that takes no room on the disk."""
    with open(path, "wb") as file:
        np.lib.format.write_array_header_1_0(
            file, {"descr": "<f4", "fortran_order": False, "shape": (count,)}
        )
        file.truncate(file.tell() + 4 * count)


def test_apply_on_a_full_disk(tmp_path):
    pytest.importorskip("resource", reason="limits of POSIX systems")
    sparse(tmp_path / "in.npy", 5_000_000)
    # a file can grow no further: as on a full disk, a part is written, then no more
    limit = "import resource\nresource.setrlimit(resource.RLIMIT_FSIZE, (17 << 20, 17 << 20))"
    arguments = ["apply", "gelu", tmp_path / "in.npy", tmp_path / "out.npy"]
    with program(*arguments, before=limit) as process:
        out, err = process.communicate(timeout=60)
    assert (process.returncode, out) == (1, "")
    assert re.fullmatch(r"fastgelu: .*out\.npy cannot be written: .*\n", err), err
    assert [path.name for path in tmp_path.iterdir()] == ["in.npy"]


@pytest.mark.parametrize("which", ["SIGINT", "SIGTERM", "SIGHUP"])
def test_apply_interrupted(which, tmp_path):
    sparse(tmp_path / "in.npy", 400_000_000)
    # whatever a shell in the background, or nohup, has set
    defaults = (
        "import signal\n"
        "signal.signal(signal.SIGINT, signal.default_int_handler)\n"
        "signal.signal(signal.SIGHUP, signal.SIG_DFL)"
    )
    arguments = ["apply", "gelu", tmp_path / "in.npy", tmp_path / "out.npy"]
    with program(*arguments, before=defaults) as process:
        end = time.monotonic() + 60
        while not [p for p in tmp_path.glob(".*.part") if p.stat().st_size > 1000]:
            assert time.monotonic() < end and process.poll() is None
            time.sleep(0.005)
        process.send_signal(getattr(signal, which))
        out, err = process.communicate(timeout=60)
    assert (process.returncode, out, err) == (1, "", "fastgelu: interrupted\n")
    assert [path.name for path in tmp_path.iterdir()] == ["in.npy"]


def test_apply_without_the_extra(no_extra, tmp_path, monkeypatch):
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True)
    x = normal(100)
    assert (applied(x, tmp_path) == fastgelu.gelu(x)).all()


# ---- rivals ----------------------------------------------------------------------------------


RIVALS = """
import json
import numpy as np
import fastgelu
from fastgelu import _command, _command_accuracy, _rivals
found, problems = {}, {}
for function in _command.registry_names(compiled=True):
    value = not function.endswith(("_grad", "_backward"))  # Numba takes its time for each
    for dtype in ("float32", "float64") if value else ("float32",):
        x, dy = np.linspace(0.05, 3, 1000).astype(dtype), np.linspace(1, 3, 1000).astype(dtype)
        inputs = (dy, x) if function.endswith("_backward") else (x,)
        want = getattr(fastgelu, function)(*(a.astype(np.float64) for a in inputs))
        want = want, np.zeros(len(x))
        for rival in _rivals.contenders(function, dtype, _rivals.chosen(None), 1, problems):
            got = np.full_like(x, np.nan)
            bound = rival.bind(inputs, got)
            bound.call()
            bound.fetch()
            errors = _command_accuracy.ulp_errors(got, want, dtype)
            assert _rivals.style(rival.label)
            found[f"{function} {dtype} {rival.label}"] = float(errors.max())
print(json.dumps([found, problems]))
"""


MKL = ("gelu float32 MKL ndtr", "gelu_backward float32 MKL erf", "gelu_tanh_grad float32 MKL tanh")


def test_rivals_compute_the_same_function():
    """Where none of them cancels: a wrong constant would be thousands of ULP. In a process of its
    own, since some of them start threads, which the tests that fork do without."""
    done = subprocess.run(
        [sys.executable, "-P", "-c", RIVALS], capture_output=True, text=True, timeout=600
    )
    assert done.returncode == 0, done.stderr
    found, problems = json.loads(done.stdout)
    assert not problems
    assert {key: error for key, error in found.items() if not error < 20} == {}
    for function in _command.registry_names(compiled=True):
        assert len([key for key in found if key.startswith(function + " ")]) >= 4
    for library, labels in {"litert": ("gelu float32 LiteRT",), "mkl": MKL}.items():
        if _rivals.version(library):
            assert set(labels) <= set(found)


def test_a_broken_rival_is_left_out(monkeypatch, capsys):
    def broken(*_):
        raise RuntimeError("broken")

    monkeypatch.setitem(_rivals.RIVALS, "scipy", ("scipy", broken))
    arguments = ["--functions", "silu", "--rivals", "scipy", "numpy"]
    assert command_line.main(["accuracy", "--points", "50", *arguments]) == 0
    printed = capsys.readouterr()
    assert printed.err == "fastgelu: scipy is left out: RuntimeError: broken\n"
    assert "NumPy exp" in printed.out and "SciPy" not in printed.out


def test_a_rival_that_is_not_installed(monkeypatch, capsys):
    monkeypatch.setitem(_rivals.RIVALS, "jax", ("fastgelu-no-such-package", None))
    assert "jax is not installed" in failure(capsys, "bench", "--rivals", "jax")
    assert "jax" not in _rivals.chosen(None)


# ---- accuracy --------------------------------------------------------------------------------


@pytest.mark.parametrize("function", FUNCTIONS)
def test_truth(function):
    exact = _command_accuracy.Exact()
    x = np.array([-13.9, -6.1, -0.751791524693564, -1e-20, 0.3, 5.0])
    high, low = exact.pairs(function, x)
    for value, *parts in zip(x.tolist(), high.tolist(), low.tolist()):
        want = oracle.exact(function, value)
        assert abs((sum(map(type(want), parts)) - want) / want) < 2.0**-100


def test_errors_in_ulp():
    one = np.array([1.0, 1.0, -1.0, 2.0, 1.0])
    got = np.array([1 + 2**-23, 1 - 2**-24, -1, np.nan, np.inf], np.float32)
    found = _command_accuracy.ulp_errors(got, (one, np.zeros(5)), "float32")
    assert found.tolist() == [1, 0.5, 0, np.inf, np.inf]
    subnormal = np.array([3 * 2.0**-149]), np.zeros(1)
    got = np.array([2.0**-149], np.float32)
    assert _command_accuracy.ulp_errors(got, subnormal, "float32") == 2
    got, want = np.array([1.0]), (np.array([1.0]), np.array([2.0**-54]))
    assert _command_accuracy.ulp_errors(got, want, "float64") == 0.25


@pytest.mark.parametrize("of", _command.registry_dtypes())
def test_measured_errors_are_within_the_bounds(of):
    dtype, exact = of, _command_accuracy.Exact()
    points = 60 if dtype == "float64" else 3000
    for name in FUNCTIONS:
        table, _ = _command_accuracy.measure(name, dtype, [], points, exact, False, {}, int)
        assert {label for _, label in table} == {"fastgelu"}
        assert len(table) == len(_command_accuracy.RANGES)
        for errors in table.values():
            assert errors.mean <= errors.most <= fastgelu.max_ulp(name, dtype)
            assert 0.4 < errors.rounded <= 1
            assert errors.rounded == 1 or dtype in ("float32", "float64")


def test_accuracy_shows_the_lost_tail(capsys, tmp_path):
    picture = tmp_path / "errors.png"
    arguments = ["--functions", "gelu", "--rivals", "scipy", "--points", "2000"]
    assert command_line.main(["accuracy", *arguments, "--output", str(picture)]) == 0
    printed = capsys.readouterr().out
    assert re.search(r"-14 to -5.5 +fastgelu +[01]\.\d+ ", printed)
    assert re.search(r"SciPy erf +1\.[67]e7 ", printed)
    assert not_blank(picture)


def not_blank(path):
    image = importlib.import_module("matplotlib.image").imread(path)
    return image.shape[0] > 300 and image[..., :3].std() > 0.02


# ---- plot ------------------------------------------------------------------------------------


def test_plot(tmp_path, capsys):
    picture = tmp_path / "curves.png"
    assert command_line.main(["plot", "--output", str(picture)]) == 0
    assert not_blank(picture)
    assert picture.stat().st_size < 150_000  # fit to be kept in a repository
    values, slopes, off, off_slopes = _command_plot.draw().axes
    for axes in (values, slopes):
        labels = [text.get_text() for text in axes.get_legend().get_texts()]
        assert labels == ["ReLU", *_command_plot.LABELS.values()]
    # the distances that the documentation gives
    tanh, sigmoid = (text.get_text() for text in off.get_legend().get_texts())
    assert "at most 0.000473, at |x| = 2.70" in tanh
    assert "at most 0.0203, at |x| = 2.27" in sigmoid
    assert len(off_slopes.get_legend().get_texts()) == 2


# ---- bench -----------------------------------------------------------------------------------

SHORT = ["--seconds", "0", "--functions", "silu", "--rivals", "numpy", "scipy"]


def test_bench(tmp_path, capsys):
    outputs = [tmp_path / f"bench.{kind}" for kind in ("json", "md", "png")]
    options = [part for path in outputs for part in ("--output", str(path))]
    threads = fastgelu.get_num_threads()
    assert command_line.main(["bench", *SHORT, "--sizes", "64", "2Ki", *options]) == 0
    assert fastgelu.get_num_threads() == threads
    printed = capsys.readouterr().out
    found = json.loads(outputs[0].read_text())
    assert found["threads"] == 1 and set(found["rivals"]) == {"numpy", "scipy"}
    assert [result["size"] for result in found["results"]] == [64, 2048]
    for result in found["results"]:
        assert set(result["contenders"]) == {"fastgelu", "NumPy exp", "SciPy expit", "copy"}
        assert result["rounds"] >= 5
        rivals = {k: v["median_ns"] for k, v in result["contenders"].items() if " " in k}
        assert result["fastest_rival"] == min(rivals, key=rivals.get)
        for figures in result["contenders"].values():
            assert 0 < figures["least_ns"] <= figures["median_ns"]
            speed = figures["gigabytes_per_second"] * figures["median_ns"]
            assert speed == pytest.approx(8)  # bytes an element
    for text in (printed, outputs[1].read_text()):
        for label in ("SciPy expit", "2Ki", "copy", "rival / ours"):
            assert label in text
    assert not_blank(outputs[2])


def test_bench_of_a_backward_pass(tmp_path, capsys):
    output = tmp_path / "bench.json"
    arguments = ["--functions", "silu_backward", "--rivals", "numpy", "--sizes", "64"]
    arguments += ["--seconds", "0", "--dtypes", "float16", "float64", "--output", str(output)]
    assert command_line.main(["bench", *arguments]) == 0
    half, double = json.loads(output.read_text())["results"]
    assert set(half["contenders"]) == {"fastgelu", "copy"}  # NumPy's formulas are for the longer
    assert set(double["contenders"]) == {"fastgelu", "NumPy exp", "copy"}
    for result, size in (half, 2), (double, 8):
        for figures in result["contenders"].values():
            speed = figures["gigabytes_per_second"] * figures["median_ns"]
            assert speed == pytest.approx(3 * size)
    assert "silu_backward, float16" in capsys.readouterr().out


def test_on_a_noisy_machine_the_least_times_count():
    def figures(median, least, ratio):
        return {"median_ns": median, "least_ns": least, "times_ours": ratio}

    contenders = {
        "fastgelu": figures(1.0, 1.0, 1.0),
        "torch": figures(2.5, 2.0, 2.4),
        "LiteRT": figures(2.9, 1.5, 2.8),
        "copy": figures(0.5, 0.25, 0.5),
    }
    result = {"function": "gelu", "dtype": "float32", "size": 1024, "contenders": contenders}
    title, columns, rows = _command_bench.summary([result])
    assert title == "Summary: median ns an element, float32" and len(columns) == 7
    assert rows == [["gelu", "1Ki", "1.00", "torch", "2.50", "2.40", "0.500"]]
    contenders["LiteRT"]["median_ns"] = 9.0
    title, columns, rows = _command_bench.summary([result])
    assert title == "Summary: least ns an element, float32"
    assert rows == [["gelu", "1Ki", "1.00", "LiteRT", "1.50", "1.50", "0.250"]]


def test_the_copy_moves_all():
    for threads, size in (1, 1000), (2, 1 << 20):
        copy = _command_bench.Copy(threads)
        dy, x = np.arange(2.0 * size, dtype=np.float32).reshape(2, size)
        out = np.zeros_like(x)
        copy.bind((x,), out).call()
        assert (out == x).all()
        copy.bind((dy, x), out).call()
        assert (out.view("u4") == dy.view("u4") | x.view("u4")).all()


def test_bench_interleaves_and_divides(monkeypatch):
    now, order = [0.0], []
    monkeypatch.setattr(_command_bench.time, "perf_counter", lambda: now[0])

    def call(name, seconds):
        def run():
            order.append(name)
            now[0] += seconds

        return run

    times = _command_bench.interleave([call("a", 1e-3), call("b", 4e-3)], 0.02)
    assert times.shape == (_command_bench.MIN_ROUNDS, 2)
    assert times.min(axis=0) == pytest.approx([1e-3, 4e-3])
    assert "".join(order[4:]) == "abbaabbaab"  # after a warm-up and a probe of each


def test_bench_interrupted_prints_what_it_has(monkeypatch, capsys, tmp_path):
    measure, count = _command_bench.measure, []

    def interrupted(*arguments):
        count.append(1)
        if len(count) > 1:
            raise KeyboardInterrupt
        return measure(*arguments)

    monkeypatch.setattr(_command_bench, "measure", interrupted)
    output = tmp_path / "bench.json"
    arguments = [*SHORT, "--sizes", "64", "128", "256", "--output", str(output)]
    assert command_line.main(["bench", *arguments]) == 1
    printed = capsys.readouterr()
    assert "interrupted: 1 of 3 measured" in printed.err
    assert "Summary" in printed.out
    assert len(json.loads(output.read_text())["results"]) == 1


@pytest.mark.parametrize("text, size", [("7", 7), ("64Ki", 65536), ("1Mi", 1 << 20)])
def test_sizes(text, size):
    assert _command_bench.parse_size(text) == size
    assert _command_bench.size_name(size) == text
