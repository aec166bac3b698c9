# SPDX-License-Identifier: BSD-3-Clause
"""Every registered function of every dtype, beside all that computes the same (pytest-benchmark).

A group is one function, dtype and size. All in it read and write the same arrays, on one thread,
and allocate nothing. The groups "memory" are the roof: the same bytes moved by NumPy's product.
"""

import bench_common as common
import numpy as np
import pytest
import rivals

import fastgelu

pytestmark = pytest.mark.benchmark(min_time=2e-5, max_time=0.2, min_rounds=3, disable_gc=True)


def cases():
    """(entry, size, contender), the cases that share their data one after the other."""
    registry = fastgelu.functions()
    for dtype in dict.fromkeys(entry.dtype for entry in registry):
        for size in common.SIZES:
            entries = [entry for entry in registry if entry.dtype == dtype]
            for inputs in sorted({entry.inputs for entry in entries}):
                memory = fastgelu.Function("memory", dtype, inputs, 0.0)
                yield memory, size, rivals.memory(inputs)
            for entry in entries:
                for contender in rivals.contenders(entry.name, dtype):
                    yield entry, size, contender


def name(case):
    entry, size, contender = case
    return f"{entry.name}-{entry.dtype}-{common.size_name(size)}-{contender.label}"


CASES = list(cases())


@pytest.mark.parametrize("case", CASES, ids=map(name, CASES))
def test_speed(case, benchmark, report):
    entry, size, contender = case
    inputs = common.data(entry.dtype, size)[-entry.inputs :]
    out = np.empty_like(inputs[0])
    call = contender.bind(inputs, out)
    call()  # warm
    size_name = common.size_name(size)
    group = f"{entry.name} {entry.dtype} {size_name}"
    if entry.name == "memory":
        group += f" {contender.label}"
    benchmark.group = group
    benchmark(call)
    if benchmark.stats is None:  # --benchmark-disable
        return
    seconds = benchmark.stats.stats.median
    benchmark.extra_info.update(
        function=entry.name,
        dtype=entry.dtype,
        elements=size,
        by=contender.label,
        ns_per_element=seconds / size * 1e9,
        gigabytes_per_second=common.bytes_moved(entry, size) / seconds / 1e9,
    )
    report.append(benchmark.extra_info)
