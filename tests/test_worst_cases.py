# SPDX-License-Identifier: BSD-3-Clause
"""Every row of data/worst_cases.csv: inputs at which kernels, present or past, erred most.

The float64 rows are what native/tools/search_f64.py found.
"""

import csv
import functools
from pathlib import Path

import numpy as np
import oracle
import pytest

COLUMNS = ["function", "dtype", "x_bits", "dy_bits", "correctly_rounded_bits"]


@functools.cache
def rows():
    """{(function, dtype): [(input bits, in the order of the arguments; correctly rounded bits)]}"""
    found = {}
    with open(Path(__file__).with_name("data") / "worst_cases.csv", newline="") as file:
        reader = csv.DictReader(file, strict=True)
        assert reader.fieldnames == COLUMNS
        for row in reader:
            inputs = tuple(int(row[c], 16) for c in ("dy_bits", "x_bits") if row[c])
            case = inputs, int(row["correctly_rounded_bits"], 16)
            found.setdefault((row["function"], row["dtype"]), []).append(case)
    return found


def cases(entry):
    """The rows of a line of the registry."""
    if (entry.name, entry.dtype) not in rows():
        assert entry.dtype != "f64", f"no worst cases of {entry}"
        pytest.skip(f"no worst cases of {entry} are kept")
    return rows()[entry.name, entry.dtype]


def test_every_row_has_a_function(registered):
    assert set(rows()) <= set(registered)


def test_rows_against_the_oracle(entry):
    kept = cases(entry)
    assert len({inputs for inputs, _ in kept}) == len(kept)
    for inputs, want in kept:
        assert len(inputs) == entry.inputs
        floats = [oracle.from_bits(bits, entry.dtype) for bits in inputs]
        assert oracle.round_to(oracle.exact(entry.name, *floats), entry.dtype) == want, floats


def test_error(entry):
    kept = cases(entry)
    columns = zip(*(inputs for inputs, _ in kept))
    arguments = [oracle.array_from_bits(bits, entry.dtype) for bits in columns]
    with np.errstate(over="ignore"):  # dy * slope may overflow
        got = oracle.bits_of(entry.ufunc(*arguments)).tolist()
    worst = 0.0
    for (inputs, want), bits in zip(kept, got, strict=True):
        floats = [oracle.from_bits(b, entry.dtype) for b in inputs]
        exact = oracle.exact(entry.name, *floats)
        error = oracle.ulp_error(oracle.from_bits(bits, entry.dtype), exact, entry.dtype)
        worst = max(worst, error)
        where = ", ".join(f.hex() for f in floats)
        assert error <= entry.max_ulp, f"{where}: {bits:#x}, not {want:#x}: {error} ULP"
    print(f"{entry}: max error {worst:.4f} ULP over {len(kept)} rows, bound {entry.max_ulp}")
