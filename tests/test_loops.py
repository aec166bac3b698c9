# SPDX-License-Identifier: BSD-3-Clause
"""The inner loops: NumPy calls them with overlapping operands, and counts on element-wise order."""

import numpy as np
import oracle
import pytest

import fastgelu

N = 1000  # several blocks and a tail


def same(got, want):
    assert got.dtype == want.dtype
    np.testing.assert_array_equal(got.view(f"u{got.itemsize}"), want.view(f"u{want.itemsize}"))


def numpy_dtype(entry):
    return np.dtype(entry.dtype.replace("f", "float"))


# ---- the output overlaps an input: as if the input had been copied first ------


@pytest.mark.parametrize("step", [1, -1, 2, -3])
@pytest.mark.parametrize("shift", [-65, -8, -3, -1, 0, 1, 2, 8, 65])
def test_shifted_output(entry, rng, shift, step):
    array = rng.normal(size=4 * N).astype(numpy_dtype(entry))
    x = array[100:-100][::step][:N]
    out = array[100 + shift : len(array) - 100 + shift][::step][:N]
    others = [rng.normal(size=N).astype(array.dtype) for _ in range(entry.inputs - 1)]
    want = entry.ufunc(*others, x.copy())
    same(entry.ufunc(*others, x, out=out).copy(), want)


def test_interleaved_columns(entry, rng):
    table = rng.normal(size=(N, 3)).astype(numpy_dtype(entry))
    args = [table[:, i] for i in range(entry.inputs)]
    want = entry.ufunc(*[arg.copy() for arg in args])
    entry.ufunc(*args, out=table[:, 2])
    same(table[:, 2].copy(), want)


def test_random_views_of_one_buffer(rng):
    for dtype in ["f4", "f8", "i4", "i8", "u2"] * 60:
        out_dtype = dtype if dtype[0] == "f" else "f8"
        buffer = np.empty(8 * int(rng.integers(2, 600)), np.uint8)
        array = buffer.view(dtype)
        array[:] = rng.integers(-9, 9, len(array)) if dtype[0] != "u" else 3

        def view(dtype, length, buffer=buffer):
            array = buffer.view(dtype)
            step = int(rng.choice([1, 1, 2, 3, -1, -2]))
            start = int(rng.integers(0, len(array) - (length - 1) * abs(step)))
            window = array[start : start + (length - 1) * abs(step) + 1]
            return window[:: abs(step)][:: np.sign(step)]

        length = int(rng.integers(1, len(buffer) // 8 // 3 + 2))
        inputs = [view(dtype, length) for _ in range(int(rng.integers(1, 3)))]
        ufunc = [fastgelu.gelu, fastgelu.gelu_backward][len(inputs) - 1]
        want = ufunc(*[x.copy() for x in inputs])
        same(ufunc(*inputs, out=view(out_dtype, length)).copy(), want)


# ---- reduce and its kin: each element needs the result of the one before ------


def fold(ufunc, values):
    results = [values[0]]
    for value in values[1:]:
        results.append(ufunc(results[-1], value))
    return np.array(results, values.dtype)


@pytest.fixture
def column(binary, rng):
    """Arguments near which no slope vanishes, so that the fold neither dies nor explodes."""
    return rng.uniform(0.5, 1.0, 300).astype(numpy_dtype(binary))


def test_accumulate_and_reduce(binary, column):
    want = fold(binary.ufunc, column)
    few = oracle.FORMATS[binary.dtype].width == 16  # so few numbers that some come twice
    assert len(set(want.tolist())) > (9 if few else len(want) - 1)
    same(binary.ufunc.accumulate(column), want)
    same(binary.ufunc.accumulate(column[::-1]), fold(binary.ufunc, column[::-1]))
    same(binary.ufunc.reduce(column), want[-1])
    same(
        binary.ufunc.reduceat(column, [0, 7]),
        np.array([want[6], fold(binary.ufunc, column[7:])[-1]]),
    )
    in_place = column.copy()
    binary.ufunc.accumulate(in_place, out=in_place)
    same(in_place, want)


@pytest.mark.parametrize("axis", [0, 1])
def test_accumulate_and_reduce_of_a_table(binary, rng, axis):
    table = rng.uniform(0.5, 1.0, (40, 50)).astype(numpy_dtype(binary))
    want = np.apply_along_axis(lambda values: fold(binary.ufunc, values), axis, table)
    same(binary.ufunc.accumulate(table, axis=axis), want)
    same(binary.ufunc.reduce(table, axis=axis), want.take(-1, axis=axis))


def test_reduce_of_integers():
    got = fastgelu.silu_backward.reduce(np.array([3, 2, 1], np.int8))
    same(got, fold(fastgelu.silu_backward, np.array([3.0, 2.0, 1.0]))[-1])


def test_at_takes_repeated_indices_in_turn(unary):
    array = np.linspace(-1, 2, 5).astype(numpy_dtype(unary))
    want = array.copy()
    for index in [1, 3, 3, 0]:
        want[index] = unary.ufunc(want[index])
    unary.ufunc.at(array, [1, 3, 3, 0])
    same(array, want)


# ---- integers ---------------------------------------------------------------


@pytest.mark.parametrize("code", "?bBhHiIlLqQ")
@pytest.mark.parametrize("step", [1, 2, -1])
def test_integers_are_the_doubles_of_the_same_value(name, code, step, rng):
    dtype = np.dtype(code)
    if code == "?":
        x = rng.integers(0, 2, N).astype(bool)
    else:
        info = np.iinfo(dtype)
        x = rng.integers(max(info.min, -40), 40, N).astype(dtype)
        x[:2] = info.min, info.max
    ufunc = getattr(fastgelu, name)
    x = x[::step]
    same(ufunc(*[x] * ufunc.nin), ufunc(*[x.astype(float)] * ufunc.nin))


def test_any_nonzero_byte_is_true():
    same(
        fastgelu.gelu(np.array([0, 1, 2, 255], np.uint8).view(bool)), fastgelu.gelu([0.0, 1, 1, 1])
    )
