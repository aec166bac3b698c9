# SPDX-License-Identifier: BSD-3-Clause
"""Shared by all tests: fixed seeds, and parametrisation by the registry and by target.

A test that takes one of these arguments runs once for each of

    entry          every line of the registry
    unary, binary  those with one input, and those with two
    name           every function's name; unary_name and binary_name likewise
    target         every instruction set that this machine has
"""

import os
import subprocess
import sys
import zlib
from typing import NamedTuple

import numpy as np
import pytest

SEED = int(os.environ.get("FASTGELU_TEST_SEED", "20240229"))


class Entry(NamedTuple):
    """A line of the registry; the dtype is "f32", "bf16", ..."""

    name: str
    dtype: str
    inputs: int
    max_ulp: float

    @property
    def ufunc(self):
        import fastgelu

        return getattr(fastgelu, self.name)

    def __str__(self):
        return f"{self.name}-{self.dtype}"


def registry():
    import fastgelu

    return [
        Entry(name, dtype.replace("float", "f"), inputs, max_ulp)
        for name, dtype, inputs, max_ulp in fastgelu.functions()
    ]


class Fused(NamedTuple):
    """A line of a fused function."""

    name: str
    dtype: str
    inputs: int
    outputs: int
    form: str
    max_ulp: float

    ufunc, __str__ = Entry.ufunc, Entry.__str__


def fused_registry():
    import fastgelu

    return [
        Fused(line.name, line.dtype.replace("float", "f"), *line[2:])
        for line in fastgelu.fused_functions()
    ]


def names(inputs=(1, 2)):
    return list(dict.fromkeys(entry.name for entry in registry() if entry.inputs in inputs))


def supported_targets():
    import fastgelu

    return [name for name, supported in fastgelu.targets().items() if supported]


PARAMETERS = {
    "entry": registry,
    "unary": lambda: [entry for entry in registry() if entry.inputs == 1],
    "binary": lambda: [entry for entry in registry() if entry.inputs == 2],
    "name": names,
    "unary_name": lambda: names([1]),
    "binary_name": lambda: names([2]),
    "target": supported_targets,
}


def pytest_generate_tests(metafunc):
    for argument, values in PARAMETERS.items():
        if argument in metafunc.fixturenames:
            metafunc.parametrize(argument, values(), ids=str)


def pytest_report_header(config):
    return f"fastgelu: random inputs from seed {SEED} (set FASTGELU_TEST_SEED for others)"


@pytest.fixture
def rng(request):
    """A generator with a seed of its own for each test, whatever the order of the tests."""
    seed = [SEED, zlib.crc32(request.node.nodeid.rpartition("/")[2].encode())]
    print(f"seed {seed}")
    return np.random.default_rng(seed)


@pytest.fixture(scope="session")
def registered():
    """{(name, dtype): line of the registry}"""
    return {(entry.name, entry.dtype): entry for entry in registry()}


@pytest.fixture
def run_python():
    """Runs Python source in a process of its own, which finds the test helpers; returns stdout."""

    def run(source, *args, **environment):
        here = os.path.dirname(__file__)
        path = os.pathsep.join(filter(None, [here, os.environ.get("PYTHONPATH")]))
        done = subprocess.run(
            [sys.executable, "-P", "-W", "error", "-c", source, *map(str, args)],
            env={**os.environ, "PYTHONPATH": path, **environment},
            capture_output=True,
            text=True,
            timeout=300,
        )
        assert done.returncode == 0, f"exit {done.returncode}\n{done.stdout}\n{done.stderr}"
        return done.stdout

    return run
