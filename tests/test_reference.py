# SPDX-License-Identifier: BSD-3-Clause
"""Every row of data/reference.csv: the correctly rounded results at chosen inputs."""

import csv
import functools
import math
from pathlib import Path

import oracle
import pytest

COMPILED_ONLY = True  # the file has no second derivatives

# The file takes the results here for exact ties and rounds to even, to 0. They are not: at the
# smallest float64 s, f(s) = s/2 + c s^2 with c > 0 is above half the spacing, and rounds to s.
# Seeing it takes more than 1,074 bits.
TAKEN_FOR_TIES = {(form, "f64", 1) for form in oracle.FORMS}


@functools.cache
def rows():
    """{(function, dtype): [(input bits, correctly rounded bits)]}"""
    found = {}
    with open(Path(__file__).with_name("data") / "reference.csv", newline="") as file:
        for row in csv.DictReader(file):
            bits = int(row["input_bits"], 16), int(row["correctly_rounded_bits"], 16)
            found.setdefault((row["function"], row["dtype"]), []).append(bits)
    return found


def test_the_file_is_whole():
    assert sum(map(len, rows().values())) == 2624
    functions = [form + kind for form in oracle.FORMS for kind in ("", "_grad")]
    assert set(rows()) == {(f, d) for f in functions for d in oracle.FORMATS}


@pytest.mark.parametrize("dtype", oracle.FORMATS)
def test_the_file_against_the_oracle(dtype):
    differ = set()
    for (function, row_dtype), pairs in rows().items():
        for x, want in pairs if row_dtype == dtype else ():
            got = oracle.round_to(oracle.exact(function, oracle.from_bits(x, dtype)), dtype)
            if got != want:
                differ.add((function, dtype, x))
                assert (got, want) == (1, 0), (function, hex(x), hex(got), hex(want))
    assert differ == {row for row in TAKEN_FOR_TIES if row[1] == dtype}


def test_every_function_has_rows(unary):
    assert (unary.name, unary.dtype) in rows()


@pytest.mark.parametrize("function, dtype", rows())
def test_rows(function, dtype, registered):
    if dtype not in {d for _, d in registered}:
        pytest.skip(f"{dtype} is not registered: its {len(rows()[function, dtype])} rows wait")
    entry = registered[function, dtype]
    pairs = rows()[function, dtype]
    got = oracle.bits_of(entry.ufunc(oracle.array_from_bits([x for x, _ in pairs], dtype)))
    assert got.dtype == oracle.FORMATS[dtype].unsigned
    for (x, want), bits in zip(pairs, got.tolist(), strict=True):
        where = f"{entry} at {oracle.from_bits(x, dtype).hex()} ({x:#x}): {bits:#x}, not {want:#x}"
        point = oracle.from_bits(x, dtype)
        result = oracle.from_bits(bits, dtype)
        if math.isnan(point):
            assert math.isnan(result), where
        elif point == 0 or math.isinf(point):
            assert bits == want, where
        else:
            error = oracle.ulp_error(result, oracle.exact(function, point), dtype)
            assert error <= entry.max_ulp, f"{where}: {error} ULP"
            # The rounded result is at most half an ULP off, and its binade may be the next.
            rounded = oracle.from_bits(want, dtype)
            if rounded and (function, dtype, x) not in TAKEN_FOR_TIES:
                error = oracle.ulp_error(result, oracle._mp.mpf(rounded), dtype)
                assert error <= entry.max_ulp + 0.5, f"{where}: {error} ULP"


def test_dtypes_left_out(registered):
    """Which rows were not compared, by name: all of the dtypes that are not registered, and no
    others."""
    left_out = {pair for pair in rows() if pair not in registered}
    dtypes = {dtype for _, dtype in left_out}
    print(f"not registered: {sorted(dtypes)}, {sum(len(rows()[p]) for p in left_out)} rows")
    assert dtypes == set(oracle.FORMATS) - {dtype for _, dtype in registered}
    assert left_out == {(f, d) for f, d in rows() if d in dtypes}
