# SPDX-License-Identifier: BSD-3-Clause
"""FASTGELU_TARGET: the forced instruction set runs, or the import fails and says why."""

import os
import subprocess
import sys

import pytest

import fastgelu

TARGETS = fastgelu.targets()
SUPPORTED = [name for name, supported in TARGETS.items() if supported]

# Every function over a few values of each kind and every length up to 40: prints a hash of the bits
# and, before and after, the target.
SWEEP = """
import hashlib, fastgelu, numpy as np
before = fastgelu.target()
digest = hashlib.sha256()
for name, dtype, inputs, _ in fastgelu.functions():
    if dtype == "bfloat16":
        import ml_dtypes
        info = ml_dtypes.finfo(dtype)
    else:
        info = np.finfo(dtype)
    special = [0.0, -0.0, np.inf, -np.inf, np.nan, info.tiny, -info.smallest_subnormal, info.max]
    x = np.concatenate([np.linspace(-40, 8, 1001), special]).astype(dtype)
    ufunc = getattr(fastgelu, name)
    with np.errstate(all="ignore"):
        results = [ufunc(*[x[i : 2 * i]] * inputs) for i in range(40)] + [ufunc(*[x] * inputs)]
    for y in results:
        y[np.isnan(y)] = np.nan
        digest.update(y.tobytes())
print(before, fastgelu.target(), digest.hexdigest())
"""


def run(target, source=SWEEP):
    environment = {key: value for key, value in os.environ.items() if key != "FASTGELU_TARGET"}
    if target is not None:
        environment["FASTGELU_TARGET"] = target
    return subprocess.run(
        [sys.executable, "-P", "-W", "error", "-c", source],
        env=environment,
        capture_output=True,
        text=True,
        timeout=120,
    )


@pytest.fixture(scope="module")
def default():
    done = run(None)
    assert done.returncode == 0, done.stderr
    return done.stdout.split()


def test_the_default_is_the_best_supported(default):
    assert default[:2] == [SUPPORTED[0]] * 2


def test_empty_means_the_default(default):
    assert run("").stdout.split() == default


def test_forced_target_runs_and_gives_the_same_bits(target, default):
    done = run(target)
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""
    before, after, digest = done.stdout.split()
    assert (before, after) == (target, target)
    assert digest == default[2]


@pytest.mark.parametrize("unknown", ["nonsense", "SCALAR", "scalar ", "scal", "x" * 1000, "\udcff"])
def test_unknown_target_is_an_import_error_that_lists_the_choices(unknown):
    done = run(unknown, "import fastgelu")
    assert done.returncode != 0
    error = done.stderr.splitlines()[-1]
    assert error.startswith("ImportError: FASTGELU_TARGET="), done.stderr
    assert "is unknown" in error
    for name in TARGETS:
        assert name in error.partition("choose one of")[2]


def test_unsupported_target_is_an_import_error_that_lists_the_choices():
    missing = [name for name in TARGETS if name not in SUPPORTED]
    if not missing:
        pytest.skip("this machine has every target")
    for target in missing:
        done = run(target, "import fastgelu")
        assert done.returncode != 0
        error = done.stderr.splitlines()[-1]
        assert error.startswith("ImportError: FASTGELU_TARGET="), done.stderr
        assert "does not run on this machine" in error
        for name in SUPPORTED:
            assert name in error.partition("choose one of")[2]


def test_a_failed_import_can_be_repeated():
    done = run(
        "nonsense",
        """
import os
for _ in range(2):
    try:
        import fastgelu
    except ImportError as error:
        assert "FASTGELU_TARGET='nonsense'" in str(error), error
    else:
        raise AssertionError("imported")
os.environ["FASTGELU_TARGET"] = "scalar"
import fastgelu
print(fastgelu.target())
""",
    )
    assert done.stdout == "scalar\n", done.stderr


def test_the_variable_counts_at_import_only():
    done = run(
        "scalar",
        """
import os, fastgelu
os.environ["FASTGELU_TARGET"] = "nonsense"
fastgelu.gelu(1.0)
print(fastgelu.target())
""",
    )
    assert (done.stdout, done.stderr) == ("scalar\n", "")


def test_scalar_is_last_and_always_supported():
    assert list(TARGETS)[-1] == "scalar"
    assert TARGETS["scalar"] is True
