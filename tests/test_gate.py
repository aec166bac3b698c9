# SPDX-License-Identifier: BSD-3-Clause
"""The regression gate: its decision on synthetic times, its builds, and a run of two real ones."""

import json
import re
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import fastgelu

sys.path.append(str(Path(__file__).parents[1] / "benchmarks"))

import gate
import gate_builds

ROOT = Path(__file__).parents[1]
NEEDS_CC = pytest.mark.skipif(shutil.which("cc") is None, reason="there is no C compiler named cc")
NEEDS_GIT = pytest.mark.skipif(shutil.which("git") is None, reason="git is not installed")

CASES = [
    gate.Case(name, dtype, size, 1)
    for name in ("gelu", "silu")
    for dtype in ("float32", "float64")
    for size in (64, 16384)
]

# ---- the decision ----------------------------------------------------------------------------


class Machine:
    """Times of a machine that others use too, for two builds of which one may be slower."""

    def __init__(self, rng, slower=None, rounds=gate.ROUNDS):
        self._rng, self._slower, self._rounds = rng, slower or {}, rounds
        self.asked = []

    def _process(self, seconds):
        rng = self._rng
        if rng.random() < 0.3:  # the other core is busy all the time
            seconds *= rng.uniform(1.2, 3)
        times = seconds * (1 + rng.exponential(0.03, gate.BLOCKS))
        stolen = rng.random(gate.BLOCKS) < 0.2  # a block in which something else ran
        return list(times + stolen * rng.exponential(4e-3, gate.BLOCKS))

    def __call__(self, cases):
        self.asked.append(list(cases))
        found = {}
        for case in cases:
            seconds = 3e-7 + case.size * 1e-9
            new = seconds * self._slower.get(case, 1)
            found[case] = (
                [self._process(seconds) for _ in range(self._rounds)],
                [self._process(new) for _ in range(self._rounds)],
            )
        return found


def slower(measure, **options):
    results, _ = gate.decide(CASES, measure, **options)
    assert [result.case for result in results] == CASES
    return {result.case for result in results if result.slower}


def test_one_build_beside_itself_is_no_alarm(rng):
    assert [slower(Machine(rng)) for _ in range(100)] == [set()] * 100


def test_a_kernel_slower_by_30_percent_is_found(rng):
    case = CASES[3]
    assert [slower(Machine(rng, {case: 1.3})) for _ in range(100)] == [{case}] * 100


def test_a_faster_one_and_one_below_the_threshold_are_no_alarm(rng):
    changed = {CASES[1]: 0.5, CASES[3]: 1.04}
    assert [slower(Machine(rng, changed)) for _ in range(50)] == [set()] * 50


def constant(base, new):
    return {case: ([[base] * 3] * 4, [[new] * 3] * 4) for case in CASES}


def test_only_what_every_measurement_says():
    answers = [constant(1e-5, 1.5e-5), constant(1e-5, 1.4e-5), constant(1e-5, 1.01e-5)]
    asked = []

    def measure(cases):
        asked.append(list(cases))
        return answers[len(asked) - 1]

    assert slower(measure) == set()
    assert asked == [CASES, CASES, CASES]
    answers[2], asked[:] = constant(1e-5, 1.3e-5), []
    results, first = gate.decide(CASES, measure)
    assert all(result.slower for result in results)
    assert [result.ratio for result in results] == pytest.approx([1.3] * len(CASES))  # the last
    assert first is answers[0]


def test_suspects_alone_are_measured_again(rng):
    machine = Machine(rng, {CASES[5]: 2.0})
    slower(machine)
    assert machine.asked == [CASES, [CASES[5]], [CASES[5]]]
    machine = Machine(rng)
    slower(machine)
    assert machine.asked == [CASES]


def test_the_floor():
    few_ns = constant(1e-7, 1e-7 + 0.9 * gate.FLOOR)
    assert slower(lambda cases: few_ns, threshold=1.05) == set()
    more = constant(1e-7, 1e-7 + 1.1 * gate.FLOOR)
    assert slower(lambda cases: more, threshold=1.05) == set(CASES)


def test_the_level_is_one_that_two_processes_reached():
    assert gate.level([[5.0, 3.0], [9.0, 8.0], [4.0, 6.0]]) == 4
    assert gate.level([[0.001], [3.0], [4.0]]) == 3  # a timer that was wrong once
    assert gate.level([[3.0]]) == 3


# ---- tables, files, options ------------------------------------------------------------------


def test_the_report_says_what_and_by_how_much():
    results = [
        gate.Result(gate.Case("gelu", "float32", 16384, 1), 1e-5, 1.31e-5, 1.31, True),
        gate.Result(gate.Case("silu_backward", "float64", 64, 2), 4e-7, 4e-7, 1.0, False),
    ]
    header, row, last = gate.report(results, False, 1.1)
    assert header.split() == [
        "function",
        "dtype",
        "elements",
        "base,",
        "ns",
        "new,",
        "ns",
        "change",
    ]
    assert row.split() == ["gelu", "float32", "16Ki", "10,000", "13,100", "+31.0", "%"]
    assert last.startswith("1 of 2 slower by more than 10 %, 0 faster")
    assert len(list(gate.report(results, True, 1.1))) == 4


@pytest.mark.parametrize("text, size", [("64", 64), ("16Ki", 16384), ("1Mi", 1 << 20)])
def test_sizes(text, size):
    assert gate.parse_size(text) == size and gate.size_name(size) == text


@pytest.mark.parametrize(
    "arguments",
    [
        [],
        ["HEAD", "--check", "1", "1"],
        ["HEAD", "--sizes", "0"],
        ["HEAD", "--threshold", "nan"],
        ["HEAD", "--rounds", "2"],
    ],
)
def test_wrong_usage(arguments, capsys):
    with pytest.raises(SystemExit) as stopped:
        gate.main(arguments)
    assert stopped.value.code == 2 and "usage: " in capsys.readouterr().err


def test_stored_as_pytest_benchmark_does(tmp_path, monkeypatch):
    pytest.importorskip("pytest_benchmark", reason="the format is pytest-benchmark's")
    monkeypatch.setattr(gate, "STORAGE", tmp_path)
    builds = [gate_builds.Build(name, name, True, "", ()) for name in ("0123abc", "working tree")]
    counts = dict.fromkeys(CASES, 20)
    files = [gate.store(builds[i], i, constant(1e-5, 2e-5), counts, "avx2") for i in (0, 1)]
    stats = json.loads(files[1].read_text())["benchmarks"][0]["stats"]
    assert stats["min"] == 2e-5 and stats["rounds"] == 12 and len(stats["data"]) == 12
    command = [sys.executable, "-P", "-m", "pytest_benchmark", "compare", "--columns=min"]
    done = subprocess.run(
        [*command, *map(str, files)], cwd=tmp_path, capture_output=True, text=True, timeout=60
    )
    assert done.returncode == 0, done.stderr
    assert re.search(r"gelu-float32-16Ki +\(\S*base\S*\) +10\.0", done.stdout)
    assert re.search(r"gelu-float32-16Ki +\(\S*new\S*\) +20\.0", done.stdout)


# ---- builds ----------------------------------------------------------------------------------


def sources(folder):
    """A copy of what the library is built of."""
    shutil.copytree(ROOT / "native/src", folder / "native/src")
    shutil.copytree(ROOT / "native/include", folder / "native/include")
    return folder


def test_the_registry_of_a_source_tree():
    want = [(f.name, f.dtype, f.inputs) for f in fastgelu.functions()]
    assert sorted(gate_builds.registry(ROOT)) == sorted(want)
    assert gate_builds.targets(ROOT)[-1] == "scalar"


def test_the_functions_of_the_short_form_and_the_slower_build():
    names = {(f.name, f.dtype) for f in fastgelu.functions()}
    assert set(gate.SLOWER) <= set(gate.SHORT) <= names


@NEEDS_CC
def test_the_slower_build_compiles_and_repeats_work(tmp_path):
    """The patched dispatch file, over a table whose kernels count their elements."""
    source = sources(tmp_path)
    gate_builds.slow_down(source, {("gelu", "float32"): 30, ("silu_backward", "float64"): 50})
    (source / "counting.c").write_text(
        """
#include "internal.h"
size_t counted;
#define INPUTS_1(name, dtype) static void k_##name##_##dtype(size_t n, const fg_##dtype *x, \\
    fg_##dtype *y) { (void)x; (void)y; counted += n; }
#define INPUTS_2(name, dtype) static void k_##name##_##dtype(size_t n, const fg_##dtype *dy, \\
    const fg_##dtype *x, fg_##dtype *dx) { (void)dy; (void)x; (void)dx; counted += n; }
#define FG_FUNCTION(name, dtype, inputs, max_ulp) INPUTS_##inputs(name, dtype)
#include "functions.def"
const fg_table fg_counting = {"counting",
#define FG_FUNCTION(name, dtype, inputs, max_ulp) k_##name##_##dtype, k_##name##_##dtype,
#include "functions.def"
};
#include <stdio.h>
int main(void)
{
    fastgelu_gelu_f32(1000, NULL, NULL);
    printf("%zu ", counted);
    fastgelu_silu_backward_f64(1000, NULL, NULL, NULL);
    printf("%zu ", counted);
    fastgelu_gelu_f64(1000, NULL, NULL);
    printf("%zu\\n", counted);
    return 0;
}
"""
    )
    src = source / "native/src"
    (src / "targets.def").write_text("FG_TARGET(counting)\n#undef FG_TARGET\n")
    with open(src / "cpu_features.h", "a") as file:
        file.write("static int fg_cpu_has_counting(const fg_cpuid *c) { (void)c; return 1; }\n")
    files = [source / "counting.c", src / "dispatch.c", src / "cpu_features.c"]
    include = [f"-I{source / 'native/include'}", f"-I{src}"]
    program = str(source / "counting")
    subprocess.run(["cc", "-std=c11", *include, *map(str, files), "-o", program], check=True)
    assert subprocess.run([program], capture_output=True, text=True).stdout == "1300 2800 3800\n"


def test_a_slower_build_of_what_is_not_there(tmp_path):
    source = sources(tmp_path)
    with pytest.raises(gate_builds.BuildError, match="mish"):
        gate_builds.slow_down(source, {("mish", "float32"): 30})
    (source / "native/src/dispatch.c").write_text("int x;\n")
    with pytest.raises(gate_builds.BuildError, match="has no line"):
        gate_builds.slow_down(source, {("gelu", "float32"): 30})


@pytest.fixture
def repository(tmp_path, monkeypatch):
    """A repository with one commit."""
    monkeypatch.setattr(gate_builds, "ROOT", tmp_path)
    monkeypatch.setattr(gate_builds, "CACHE", tmp_path / "cache")
    for name in ("AUTHOR", "COMMITTER"):
        monkeypatch.setenv(f"GIT_{name}_NAME", "nobody")
        monkeypatch.setenv(f"GIT_{name}_EMAIL", "nobody@example.org")
    (tmp_path / "native/src").mkdir(parents=True)
    (tmp_path / "native/src/a.c").write_text("one\n")
    (tmp_path / "README.md").write_text("text\n")
    (tmp_path / ".gitignore").write_text("cache\n")
    subprocess.run(["git", "init", "--quiet"], cwd=tmp_path, check=True)
    subprocess.run(["git", "add", "."], cwd=tmp_path, check=True)
    subprocess.run(["git", "commit", "--quiet", "-m", "first"], cwd=tmp_path, check=True)
    return tmp_path


@NEEDS_GIT
def test_the_working_tree_is_a_revision(repository):
    head = gate_builds.tree_of("HEAD")
    assert gate_builds.tree_of(".") == head
    assert re.fullmatch("[0-9a-f]{7,}", head[1])

    def key(revision):
        return gate_builds.key(gate_builds.tree_of(revision)[0], True, {}, "scalar")

    (repository / "README.md").write_text("other text\n")
    assert gate_builds.tree_of(".")[1] == "working tree"
    assert key(".") == key("HEAD")  # nothing to build anew
    (repository / "native/src/b.c").write_text("two\n")  # not known to git yet
    assert key(".") != key("HEAD")
    gate_builds.export(gate_builds.tree_of(".")[0], repository / "cache/exported")
    assert (repository / "cache/exported/native/src/b.c").read_text() == "two\n"
    status = subprocess.run(
        ["git", "status", "--short"], cwd=repository, capture_output=True, text=True
    )
    assert status.stdout == " M README.md\n?? native/src/b.c\n"  # as before


@NEEDS_GIT
def test_no_such_revision(repository, capsys):
    assert gate.main(["nonesuch"]) == 2
    assert "nonesuch is no revision" in capsys.readouterr().err


# ---- real times ------------------------------------------------------------------------------

LIBRARY = """
#include <stddef.h>
const char *fastgelu_target(void) { return "test"; }
void fastgelu_gelu_f32(size_t n, const float *x, float *y)
{
    for (size_t i = 0; i < n; i++)
        y[i] = x[i];
    for (size_t i = 0; i < n; i++) {
        volatile float sum = 0;
        for (int k = 0; k < TERMS; k++)
            sum = sum * x[i] + 1;
        y[i] = sum;
    }
}
"""


def library(folder, terms):
    (folder / "library.c").write_text(LIBRARY)
    path = str(folder / f"library{terms}.so")
    flags = ["-O2", "-shared", "-fPIC", f"-DTERMS={terms}"]
    subprocess.run(["cc", *flags, str(folder / "library.c"), "-o", path], check=True)
    functions = (gate_builds.Registered("gelu", "float32", 1),)
    return gate_builds.Build(str(terms), str(terms), True, path, functions)


@NEEDS_CC
def test_two_libraries(tmp_path, monkeypatch, capsys):
    builds = {revision: library(tmp_path, int(revision)) for revision in ("4", "6", "40")}
    builds["copy"] = builds["4"]._replace(path=str(tmp_path / "copy.so"))
    shutil.copy(builds["4"].path, builds["copy"].path)
    monkeypatch.setattr(gate, "STORAGE", tmp_path)
    monkeypatch.setattr(gate_builds, "build", lambda revision, native, say: builds[revision])
    short = ["--native", "--sizes", "1Ki", "--rounds", "3"]
    assert gate.main(["4", "--new", "6", *short]) == 1
    assert re.search(r"gelu +float32 +1Ki +[\d,]+ +[\d,]+ +\+\d\d\.\d %", capsys.readouterr().out)
    assert gate.main(["4", "--new", "copy", *short]) == 0
    assert gate.main(["40", "--new", "4", *short]) == 0
    assert "1 faster" in capsys.readouterr().out
    assert gate.main(["4", "--new", "4", *short]) == 0
    assert "nothing to compare" in capsys.readouterr().out


def test_a_package():
    """The worker on the installed one: every function and dtype."""
    path = str(Path(fastgelu.__file__).resolve().parents[1])
    build = gate_builds.Build(".", "installed", False, path, gate_builds.registry(ROOT))
    cases = gate.choose(build, build, [64])
    found = gate.run_worker(build, cases, [2] * len(cases), 3)
    assert found["target"] == fastgelu.target()
    assert np.array(found["times"]).shape == (len(fastgelu.functions()), 3)
    assert np.min(found["times"]) > 0


def test_what_does_not_run_is_told(tmp_path):
    build = gate_builds.Build("x", "x", True, str(tmp_path / "missing.so"), ())
    with pytest.raises(gate_builds.BuildError, match=r"x does not run: .*missing\.so"):
        gate.run_worker(build, CASES[:1], None, 1)
