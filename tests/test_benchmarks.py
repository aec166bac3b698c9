# SPDX-License-Identifier: BSD-3-Clause
"""The benchmarks: that the contenders compute the same, the timing, and each script's tables."""

import itertools
import json
import math
import os
import re
import shutil
import subprocess
import sys
import tracemalloc
from pathlib import Path

import numpy as np
import oracle
import pytest

import fastgelu

sys.path.append(str(Path(__file__).parents[1] / "benchmarks"))

import bench_common
import rivals

BENCHMARKS = Path(rivals.__file__).parent
NEEDS_SCIPY = pytest.mark.skipif(
    rivals.special is None, reason="SciPy, which the rivals' formulas need, is not installed"
)
NEEDS_TORCH = pytest.mark.skipif(rivals.torch is None, reason="torch is not installed")


def run(script, *args, **environment):
    """What a script prints."""
    done = subprocess.run(
        [sys.executable, "-P", "-W", "error", str(BENCHMARKS / script), *map(str, args)],
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def tables(text):
    """Every markdown table in it: a list of dicts by column, two columns of a name told apart."""
    found = []
    for block in re.findall(r"(?:^\|.*\n)+", text, re.MULTILINE):
        header, ruler, *rows = (
            [cell.strip() for cell in line.strip("|\n").split("|")] for line in block.splitlines()
        )
        assert all(re.fullmatch(r"-{2,}[-:]", cell) for cell in ruler)
        names = [name if name not in header[:i] else f"{name} {i}" for i, name in enumerate(header)]
        assert all(len(row) == len(names) for row in rows)
        found.append([dict(zip(names, row)) for row in rows])
    return found


@NEEDS_TORCH
@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
@pytest.mark.parametrize("form", ["gelu", "gelu_tanh", "silu", "gelu_sigmoid"])
@pytest.mark.parametrize("kind", ["", "_backward"])
def test_what_gpu_compares_with(form, kind, dtype):
    """On the CPU, the arrays NumPy's: torch's function of the same name."""
    import gpu

    real = gpu.numpy_dtype(dtype)
    rng = np.random.default_rng(1)
    dy, x = (rng.standard_normal(100, "f4").astype(real) for _ in range(2))
    arguments = (dy, x)[-2 if kind else -1 :]
    call = gpu.torch_call(rivals.torch, form + kind, dtype, arguments)
    assert (call is None) == (form == "gelu_sigmoid")
    if call is not None:
        got, want = call().float().numpy(), getattr(fastgelu, form + kind)(*arguments)
        assert np.allclose(
            got, want.astype("f4"), rtol=2e-2 if dtype == "bfloat16" else 1e-4, atol=1e-2
        )


def value(cell):
    """The number that a cell begins with."""
    return float(re.match(r"-?[\d,.]+(?:e\d+)?|inf", cell)[0].replace(",", ""))


# ---- the contenders ------------------------------------------------------------------------


def sample(entry, count, rng):
    """Positive arguments, where no formula cancels."""
    dtype = oracle.FORMATS[entry.dtype].numpy
    dy, x = rng.normal(0, 1, count).astype(dtype), rng.uniform(0.25, 4, count).astype(dtype)
    return [dy, x][-entry.inputs :]


def test_contenders_compute_the_same(entry, rng):
    args = sample(entry, 40, rng)
    before = [a.tobytes() for a in args]
    want = [oracle.exact(entry.name, *point) for point in zip(*(a.tolist() for a in args))]
    field = rivals.contenders(entry.name, args[0].dtype.name)
    assert field[0].family == "fastgelu"
    assert len({contender.label for contender in field}) == len(field)
    for contender in field:
        out = np.full_like(args[0], np.nan)
        contender.bind(args, out)()
        pairs = zip(out.tolist(), want)
        error = max(oracle.ulp_error(got, exact, entry.dtype) for got, exact in pairs)
        print(f"{contender.family} {contender.label}: {error:.1f} ULP")
        assert error <= 32, contender
        assert [a.tobytes() for a in args] == before


def families(name):
    return [(c.family, c.label) for c in rivals.contenders(name, "float32")]


@NEEDS_SCIPY
def test_every_form_has_formulas():
    labels = {
        "gelu": {"ndtr", "erf"},
        "gelu_tanh": {"tanh", "expit", "exp"},
        "gelu_sigmoid": {"expit", "exp"},
        "silu": {"expit", "exp"},
    }
    for form, expected in labels.items():
        for kind in ("", "_grad", "_backward"):
            found = {label for family, label in families(form + kind) if family == "NumPy/SciPy"}
            assert found == expected
            assert found <= set(rivals.LABELS)


@NEEDS_TORCH
def test_every_form_has_torch():
    for form in oracle.FORMS:
        for kind in ("", "_grad", "_backward"):
            assert ("torch", "torch") in families(form + kind)


def test_an_unknown_form_is_benchmarked_alone():
    assert families("mish_backward") == [("fastgelu", "fastgelu")]


def test_contenders_allocate_nothing(entry, rng):
    args = sample(entry, 100_000, rng)
    for contender in rivals.contenders(entry.name, args[0].dtype.name):
        call = contender.bind(args, np.empty_like(args[0]))
        call()
        tracemalloc.start()
        call()
        _, peak = tracemalloc.get_traced_memory()
        tracemalloc.stop()
        assert peak < args[0].nbytes / 8, contender  # torch's memory is not seen here


# ---- timing and tables ---------------------------------------------------------------------


class Machine:
    """A clock that only the calls move."""

    def __init__(self):
        self.now = 0.0
        self.log = []

    def clock(self):
        return self.now

    def call(self, name, seconds):
        def run():
            self.now += seconds
            self.log.append(name)

        return run


def test_interleave_takes_turns_and_divides_by_the_repeats():
    machine = Machine()
    calls = [machine.call("a", 1e-5), machine.call("b", 4e-2), machine.call("c", 1e-3)]
    times = bench_common.interleave(calls, 0, min_rounds=6, block=1e-3, clock=machine.clock)
    assert times.shape == (6, 3)
    np.testing.assert_allclose(times, [[1e-5, 4e-2, 1e-3]] * 6, rtol=1e-9)
    turns = [(name, len(list(run))) for name, run in itertools.groupby(machine.log)]
    order = "".join(name for name, _ in turns)
    assert order.endswith("abcbcacababcbcacab")
    # Each turn lasts a block of 1e-3, or one call. (Where a round ends as the next begins, none.)
    lengths = dict(turns[-3:])
    assert 99 <= lengths["a"] <= 102 and lengths["b"] == 1 and 1 <= lengths["c"] <= 2


def test_interleave_goes_on_for_the_given_time():
    machine = Machine()
    times = bench_common.interleave([machine.call("a", 0.01)], 1.0, clock=machine.clock)
    assert 99 <= len(times) <= 102


@pytest.mark.parametrize(
    "text, size", [("1", 1), ("4096", 4096), ("64Ki", 65536), ("16Mi", 1 << 24)]
)
def test_sizes(text, size):
    assert bench_common.parse_size(text) == size
    assert bench_common.parse_size(bench_common.size_name(size)) == size


@pytest.mark.parametrize(
    "number, text",
    [
        (0.0, "0.00"),
        (0.0451, "0.045"),
        (0.85, "0.850"),
        (1.2345, "1.23"),
        (12.345, "12.3"),
        (4567.8, "4,568"),
        (16777216.0, "1.7e7"),
        (math.inf, "inf"),
    ],
)
def test_numbers(number, text):
    assert bench_common.number(number) == text


def test_data_is_the_same_every_time_and_a_prefix_of_more():
    few, more = bench_common.data("float32", 64), bench_common.data("float32", 128)
    assert np.array_equal(few[0], more[0][:64])
    assert few[0].dtype == np.float32 and not np.array_equal(few[0], few[1])
    bench_common.data.cache_clear()
    assert np.array_equal(bench_common.data("float32", 64), few)
    assert abs(np.std(bench_common.data("float64", 4096)[1]) - 1) < 0.05


# ---- the scripts ---------------------------------------------------------------------------

FEW = ("--functions", "gelu", "silu_grad", "gelu_tanh_backward", "--dtypes", "float32", "float64")


@NEEDS_SCIPY
def test_compare():
    text = run("compare.py", *FEW, "--sizes", "64", "1Ki", "--seconds", "0")
    (rows,) = tables(text)
    assert [(row["function"], row["dtype"]) for row in rows] == [
        (e.name, e.dtype) for e in fastgelu.functions() if e.name in FEW and e.dtype in FEW
    ]
    for row in rows:
        assert [name for name in row if "fastgelu" in name] == ["64: fastgelu", "1Ki: fastgelu"]
        cells = [cell for name, cell in row.items() if not name.startswith("torch")]
        for cell in cells[2:5]:
            assert value(cell) > 0
        median, least = map(float, re.findall(r"[\d.]+", row["64: fastgelu"].replace(",", "")))
        assert least <= median
        assert row["NumPy/SciPy"].split()[-1] in rivals.LABELS
    assert f"({fastgelu.target()})" in text
    assert "1 thread" in text and "dy*x float64 1Ki" in text
    if rivals.torch is None:
        assert "no torch" in text and not any(row["torch"] for row in rows)
    else:
        assert rivals.torch.backends.cpu.get_cpu_capability() in text
        assert all(value(row["torch"]) > 0 for row in rows)


@NEEDS_SCIPY
def test_compare_each():
    arguments = ("--functions", "gelu", "--dtypes", "float64", "--sizes", "256", "--seconds", "0")
    (rows,) = tables(run("compare.py", *arguments, "--each"))
    assert [row["by"] for row in rows] == [
        *(c.label for c in rivals.contenders("gelu", "float64")),
        "c*x",
    ]
    assert rows[0]["ratio"] == "1.00"
    for row in rows:
        assert row["elements"] == "256"
        # Both are rounded to three digits.
        assert value(row["GB/s"]) * value(row["median"]) == pytest.approx(16, rel=0.05)


def test_compare_without_scipy_and_torch(tmp_path):
    for name in ("scipy", "torch"):
        (tmp_path / f"{name}.py").write_text("raise ImportError('not here')\n")
    path = os.pathsep.join(filter(None, [str(tmp_path), os.environ.get("PYTHONPATH")]))
    text = run("compare.py", *FEW, "--sizes", "64", "--seconds", "0", PYTHONPATH=path)
    (rows,) = tables(text)
    assert "no SciPy" in text and "no torch" in text
    for row in rows:
        assert row["torch"] == ""
        # NumPy alone has no erf, and so no exact form.
        assert bool(row["NumPy/SciPy"]) == (row["function"] != "gelu")


@pytest.mark.parametrize(
    "arguments, status, message",
    [
        (["--functions", "gellu"], 2, "gelu_tanh"),
        (["--dtypes", "float80"], 2, "float64"),
        (["--sizes", "0"], 2, "64Ki"),
        (["--sizes", "1.5Mi"], 2, "64Ki"),
        (["--threads", "0"], 2, "at least 1"),
        (["--seconds", "nan"], 2, "at least 0"),
        (["--threads", "4096"], 1, "4096"),
    ],
)
def test_compare_says_what_is_wrong(arguments, status, message, capsys):
    import compare

    with pytest.raises(SystemExit) as exit:
        compare.main(arguments)
    text = capsys.readouterr().err
    if isinstance(exit.value.code, str):  # printed, with status 1, when it leaves the program
        text, exit.value.code = exit.value.code, 1
    assert exit.value.code == status and message in text


@NEEDS_SCIPY
@pytest.mark.skipif(shutil.which("cc") is None, reason="there is no C compiler named cc")
def test_threads():
    if fastgelu.show_config("dicts")["openmp"] == "not built in":
        pytest.skip("this fastgelu was built without OpenMP")
    names = ["gelu", "silu_backward"]
    text = run("threads.py", "--functions", *names, "--size", "2Mi", "--rounds", 1)
    machine, roof, sizes, stores = tables(text)
    assert len(machine) == 6
    assert [(row["function"], row["threads"], row["output"]) for row in roof] == [
        (name, threads, output)
        for name in names
        for threads in "12"
        for output in ("plain", "in place")
    ]
    for row in roof:
        assert value(row["sum"]) == pytest.approx(
            value(row["in cache / threads"]) + value(row["copy"]), abs=0.002
        )
        assert value(row["ns"]) / value(row["sum"]) == pytest.approx(
            value(row["ns / sum"]), rel=0.02, abs=0.01
        )
    assert [row["elements"] for row in sizes if row["function"] == "gelu"] == [
        *(f"{1 << i}Ki" for i in range(2, 10)),
        "1Mi",
        "2Mi",
    ]
    assert {row["split by default"] for row in sizes} == {"no", "yes"}
    assert {row["function"] for row in stores} == set(names)


def test_cliff():
    text = run("cliff.py", *FEW, "--elements", "256", "--seconds", "0")
    data, calls = tables(text)
    expected = [(e.name, e.dtype) for e in fastgelu.functions() if {e.name, e.dtype} <= {*FEW}]
    assert [(row["function"], row["dtype"]) for row in data] == expected
    assert [(row["function"], row["dtype"]) for row in calls] == expected
    kinds = ["negative", "deep tail", "subnormal result", "subnormal x", "inf", "NaN"]
    assert list(data[0])[2:] == ["normal, ns", *kinds, "every second element"]
    highest = max(value(row[kind]) for row in data for kind in kinds)
    assert f"is {bench_common.number(highest)} (" in text
    for row in data:
        assert all(value(row[column]) > 0 for column in list(row)[2:])
    for row in calls:
        assert all(value(row[column]) > 0 for column in ("fastgelu", "to np.exp", "np.exp"))


def test_cliff_data_is_what_it_says(entry):
    import cliff

    count = 500
    of_name = [f for f in fastgelu.functions() if f.name == entry.name]
    (line,) = (f for f in of_name if f.dtype == oracle.FORMATS[entry.dtype].numpy.name)
    info = cliff.finfo(line.dtype)
    form, kind = oracle.split(entry.name)
    slope = "_grad" if kind == "backward" else f"_{kind}"
    function = getattr(fastgelu, form if kind == "value" else f"{form}{slope}")
    data = cliff.kinds(line, count)
    assert all(x.dtype == info.dtype and len(x) == count for x in data.values())
    assert (data["negative"] < 0).all()
    y = np.abs(function(data["deep tail"]).astype(np.float64))
    assert (y >= info.tiny).all() and np.median(y) < (0.1 if info.dtype == np.float16 else 1e-6)
    y = np.abs(function(data["subnormal result"]).astype(np.float64))
    assert (y < info.tiny).all() and np.mean(y > 0) > 0.9
    x = data["subnormal x"].astype(np.float64)
    assert (np.abs(x) < info.tiny).all() and np.mean(x != 0) > 0.9
    assert np.isinf(data["inf"]).all()
    for x in data["subnormal x"], data["inf"]:
        assert 0 < np.count_nonzero(np.signbit(x)) < count
    assert np.isnan(data["NaN"]).all()


@NEEDS_SCIPY
def test_accuracy_table():
    text = run("accuracy_table.py", *FEW, "--points", "20000", "--float64-points", "100")
    bounds, comparison = tables(text)
    expected = [e for e in fastgelu.functions() if {e.name, e.dtype} <= {*FEW}]
    assert len(bounds) == len(comparison) == len(expected)
    for entry, row, others in zip(expected, bounds, comparison):
        assert (row["function"], row["dtype"]) == (entry.name, entry.dtype)
        assert (others["function"], others["dtype"]) == (entry.name, entry.dtype)
        assert float(row["bound"]) == entry.max_ulp
        assert 0.3 < value(row["measured"]) <= entry.max_ulp
        assert value(others["fastgelu"]) <= value(row["measured"]) * 1.01
    by_label = dict(cell.split() for cell in comparison[0]["NumPy/SciPy"].split("; "))
    assert 5 < value(by_label["ndtr"]) < 20
    assert value(by_label["erf"]) > 1e5
    assert bool(comparison[0]["torch"]) == (rivals.torch is not None)


@NEEDS_SCIPY
def test_accuracy_table_counts_16_bits():
    arguments = ("--functions", "gelu", "gelu_tanh_grad", "--dtypes", "float16", "bfloat16")
    *_, rows = tables(run("accuracy_table.py", *arguments, "--points", "1000"))
    assert [(row["function"], row["dtype"]) for row in rows] == [
        (name, dtype) for dtype in ("float16", "bfloat16") for name in ("gelu", "gelu_tanh_grad")
    ]
    for row in rows:
        assert row["inputs"] == {"float16": "63,488", "bfloat16": "65,280"}[row["dtype"]]
        assert row["fastgelu"] == "0"
        assert bool(row["torch"]) == (rivals.torch is not None)
    if rivals.torch is not None:
        assert all(value(row["torch"]) > 100 for row in rows)


# ---- the pytest-benchmark suite ------------------------------------------------------------


def run_suite(*arguments):
    pytest.importorskip("pytest_benchmark", reason="pytest-benchmark runs the benchmarks")
    done = subprocess.run(
        [sys.executable, "-P", "-W", "error", "-m", "pytest", "-p", "no:cacheprovider"]
        + [str(BENCHMARKS), *map(str, arguments)],
        cwd=BENCHMARKS.parent,
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_the_suite_has_every_registered_function():
    text = run_suite("--collect-only", "-q")
    collected = set(re.findall(r"\[(.+)\]", text))
    for entry in fastgelu.functions():
        for size in ("1", "64", "4Ki", "64Ki", "1Mi", "16Mi"):
            for contender in rivals.contenders(entry.name, entry.dtype):
                assert f"{entry.name}-{entry.dtype}-{size}-{contender.label}" in collected
    assert {"memory-float32-16Mi-c*x", "memory-float64-64Ki-dy*x"} <= collected


def test_the_suite_reports(tmp_path):
    path = tmp_path / "numbers.json"
    cases = "(silu-f or silu_backward or memory) and float32-64-"
    text = run_suite("-k", cases, "--benchmark-json", path)
    results = json.loads(path.read_text())["benchmarks"]
    names = {"silu", "silu_backward"}
    assert {f"{name} float32 64" for name in names} < {result["group"] for result in results}
    for result in results:
        info = result["extra_info"]
        assert info["elements"] == 64
        assert info["ns_per_element"] == pytest.approx(result["stats"]["median"] / 64 * 1e9)
        arrays = 3 if info["function"] == "silu_backward" or info["by"] == "dy*x" else 2
        moved = info["gigabytes_per_second"] * info["ns_per_element"]
        assert moved == pytest.approx(4 * arrays)
    (rows,) = tables(text)
    assert len(rows) == len(results)
    assert [row["ratio to ours"] for row in rows if row["by"] == "fastgelu"] == ["1.00"] * len(
        names
    )


# ---- fused.py ------------------------------------------------------------------------------


def fused_entries():
    import fused

    return fused.entries().values()


@pytest.mark.parametrize("fused_entry", fused_entries(), ids=lambda entry: entry.name)
def test_fused_steps_compute_the_same(fused_entry):
    import fused

    calls, outputs, temporaries = fused.contenders(fused_entry, "float32", 4096)
    assert len(calls) == 2 + (rivals.torch is not None) and all(
        b >= 0 for b in temporaries.values()
    )
    for label, call in calls.items():
        call()
        for got, want in zip(outputs[label], outputs["fastgelu"], strict=True):
            scale = np.finfo(np.float32).eps * np.maximum(
                np.abs(want), np.spacing(np.abs(want)) + 1
            )
            assert np.all(np.abs(got - want) <= 32 * scale), label
    alone = fused.contenders(fused_entry, "float32", 4096, only="fastgelu")[0]
    assert list(alone) == ["fastgelu"]


def test_fused_tables():
    names = ["bias_gelu", "swiglu_backward"]
    arguments = ("--functions", *names, "--sizes", "4096", "--threads", "1", "--seconds", "0")
    (rows,) = tables(run("fused.py", *arguments))
    assert [row["function"] for row in rows] == names
    for row in rows:
        assert value(row["ns/element"]) > 0 and value(row["fastgelu's steps / ours"]) > 0
        assert value(row["KiB"]) < 16 <= value(row["KiB of the steps"])
    (rows,) = tables(run("fused.py", "--functions", *names, "--errors", "1000"))
    for row in rows:
        for cell in list(row.values())[1:]:
            error, bound = map(float, re.fullmatch(r"([\d.]+) \(([\d.]+)\)", cell).groups())
            assert 0 < error <= bound
