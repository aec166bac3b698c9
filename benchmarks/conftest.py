# SPDX-License-Identifier: BSD-3-Clause
"""One thread for everyone, and a report in ns an element instead of pytest-benchmark's tables."""

import sys
from pathlib import Path

import pytest

sys.path.append(str(Path(__file__).parent))

import bench_common as common

import fastgelu

common.set_threads(1)

REPORT = []


@pytest.hookimpl(tryfirst=True)
def pytest_configure(config):
    config.option.benchmark_quiet = True  # --benchmark-verbose brings its tables back


def pytest_report_header():
    return common.describe()


@pytest.fixture(scope="session")
def report():
    """Where a benchmark leaves its extra_info for the report."""
    return REPORT


def pytest_terminal_summary(terminalreporter):
    if not REPORT:
        return
    ours = {
        (info["function"], info["dtype"], info["elements"]): info["ns_per_element"]
        for info in REPORT
        if info["by"] == "fastgelu"
    }
    rows = []
    # By function instead of by dtype, the roof first.
    registry = [*fastgelu.functions(), *fastgelu.fused_functions()]
    functions = ["memory", *(entry.name for entry in registry)]
    for info in sorted(REPORT, key=lambda info: functions.index(info["function"])):
        own = ours.get((info["function"], info["dtype"], info["elements"]))
        ns = info["ns_per_element"]
        numbers = [ns, info["gigabytes_per_second"], *([] if own is None else [ns / own])]
        row = [info["function"], info["dtype"], common.size_name(info["elements"]), info["by"]]
        rows.append([*row, *map(common.number, numbers), *["" for _ in range(3 - len(numbers))]])
    header = ["function", "dtype", "elements", "by", "ns/element", "GB/s", "ratio to ours"]
    terminalreporter.section("medians, one thread")
    terminalreporter.write_line(common.table(header, rows))
    terminalreporter.write_line("")
    terminalreporter.write_line(common.same_instructions())
