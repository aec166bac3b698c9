# SPDX-License-Identifier: BSD-3-Clause
"""The examples in NumPy run, and print what is so."""

import os
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import fastgelu

EXAMPLES = Path(__file__).resolve().parents[1] / "examples"


def run(name, *arguments):
    return subprocess.run(
        [sys.executable, "-P", "-W", "error", EXAMPLES / name, *arguments],
        capture_output=True,
        encoding="utf-8",
        timeout=300,
        env={**os.environ, "PYTHONUTF8": "1"},
    )


def numbers(text):
    return [float(n) for n in re.findall(r"-?\d+\.?\d*(?:e[+-]\d+)?", text)]


def test_first_steps():
    done = run("first_steps.py")
    assert (done.returncode, done.stderr) == (0, "")
    one, two, three, four = re.split(r"\n\n", done.stdout)
    x, y = (numbers(line) for line in one.splitlines()[1:])
    np.testing.assert_array_equal(y, np.round(fastgelu.gelu(np.array(x)), 4))
    rows = np.array([numbers(line) for line in two.splitlines()[2:]])
    assert rows.shape == (9, 4)
    np.testing.assert_array_equal(rows[:, 1], np.maximum(rows[:, 0], 0))
    np.testing.assert_array_equal(rows[:, 2], fastgelu.gelu(rows[:, 0]).round(3))
    np.testing.assert_array_equal(rows[:, 3], fastgelu.gelu_grad(rows[:, 0]).round(3))
    odds = np.array([numbers(line) for line in three.splitlines()[1:]])
    assert odds.shape == (2, 3)
    assert np.abs(odds.sum(axis=1) - 1).max() <= 0.002
    by_hand, distance = (numbers(line)[-1] for line in four.splitlines()[1:])
    assert by_hand < 1e-14
    assert distance == 4.7e-4


def test_training():
    done = run("training.py")
    assert (done.returncode, done.stderr) == (0, "")
    checks = re.findall(r"d (\w+): (\S+), finite differences (\S+)", done.stdout)
    assert [name for name, *_ in checks] == ["w1", "b1", "w2", "b2"]
    for _, exact, numeric in checks:
        assert float(exact) == pytest.approx(float(numeric), rel=1e-5)
    losses = [float(loss) for loss in re.findall(r"loss (\d\S+)\n", done.stdout)]
    assert len(losses) == 5 and losses[-1] < losses[0] / 20
    assert float(re.search(r"([\d.]+)% of the points", done.stdout)[1]) >= 95


def test_training_that_fails_says_so():
    done = run("training.py", "--steps", "1")
    assert done.returncode == 1
    assert "of the points are told apart" in done.stdout
