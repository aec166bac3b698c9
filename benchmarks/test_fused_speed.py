# SPDX-License-Identifier: BSD-3-Clause
"""Every fused function beside the sequences of its steps (pytest-benchmark); see fused.py."""

import bench_common as common
import fused
import pytest

pytestmark = pytest.mark.benchmark(min_time=2e-5, max_time=0.2, min_rounds=3, disable_gc=True)

CASES = [
    (entry, size, label)
    for size in fused.SIZES
    for entry in fused.entries().values()
    for label in ("fastgelu", *(steps.label for steps in fused.rival_steps()))
]


def name(case):
    entry, size, label = case
    return f"{entry.name}-{entry.dtype}-{common.size_name(size)}-{label}"


@pytest.mark.parametrize("case", CASES, ids=map(name, CASES))
def test_fused_speed(case, benchmark, report):
    entry, size, label = case
    calls, _ = fused.contenders(entry, entry.dtype, size)
    call = calls[label]
    call()  # warm
    benchmark.group = f"{entry.name} {entry.dtype} {common.size_name(size)}"
    benchmark(call)
    if benchmark.stats is None:  # --benchmark-disable
        return
    seconds = benchmark.stats.stats.median
    arrays = entry.inputs + entry.outputs - entry.name.startswith("bias_")
    moved = arrays * common.numpy_dtype(entry.dtype).itemsize * size
    benchmark.extra_info.update(
        function=entry.name,
        dtype=entry.dtype,
        elements=size,
        by=label,
        ns_per_element=seconds / size * 1e9,
        gigabytes_per_second=moved / seconds / 1e9,
    )
    report.append(benchmark.extra_info)
