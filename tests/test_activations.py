# SPDX-License-Identifier: BSD-3-Clause
"""fastgelu.get_activation: every name gives what the package that it is from gives."""

import csv
import pickle
from itertools import groupby
from pathlib import Path

import numpy as np
import pytest

import fastgelu
from fastgelu import _activations

DATA = Path(__file__).with_name("data") / "activations.csv"
CHOICES = {"": None, "True": True, "False": False}


def recorded():
    """[(name, approximate, x, y)] of data/activations.csv."""
    with DATA.open(encoding="utf-8", newline="") as file:
        rows = list(csv.DictReader(line for line in file if not line.startswith("#")))
    result = []
    for (name, choice), group in groupby(rows, lambda row: (row["name"], row["approximate"])):
        x, y = np.array([(row["x"], row["y"]) for row in group]).astype(np.float32).T
        result.append((name, CHOICES.get(choice, choice), x, y))
    return result


def limit(x):
    """How far the packages' own roundings may lead: their sums cancel, so relative to x."""
    return 8 * 2.0**-24 * np.abs(x.astype(np.float64))


@pytest.mark.parametrize(
    "spelling, choice, x, y",
    recorded(),
    ids=lambda value: "" if isinstance(value, np.ndarray) else None,
)
def test_values_of_the_packages(spelling, choice, x, y):
    got = fastgelu.get_activation(spelling, choice)(x)
    assert got.dtype == np.float32
    assert (np.abs(got.astype(np.float64) - y) <= limit(x)).all()


def test_the_limit_tells_the_forms_apart():
    x = recorded()[0][2]
    names = ["gelu", "gelu_tanh", "gelu_sigmoid", "silu", "gelu_10"]
    values = [fastgelu.get_activation(name)(x).astype(np.float64) for name in names]
    for i, left in enumerate(values):
        for right in values[:i]:
            assert (np.abs(left - right) > 10 * limit(x)).any()


def test_every_name_of_a_package_is_recorded():
    names = {name for name, *_ in recorded()}
    ours = {"gelu_none", "gelu_tanh", "gelu_sigmoid"}
    assert {line.name for line in _activations.TABLE} == names | ours


@pytest.mark.parametrize(
    "spelling, function",
    [
        ("GELU", "gelu"),
        ("Gelu", "gelu"),
        ("SiLU", "silu"),
        ("F.gelu", "gelu"),
        ("nn.GELU", "gelu"),
        ("nn.functional.silu", "silu"),
        ("transformers.gelu_new", "gelu_tanh"),
        ("transformers.activations.quick_gelu", "gelu_sigmoid"),
        ("tf.keras.activations.gelu", "gelu"),
        ("ai.onnx.Gelu", "gelu"),
        ("gelu_none", "gelu"),
        ("gelu_tanh", "gelu_tanh"),
        ("gelu_sigmoid", "gelu_sigmoid"),
    ],
)
def test_other_spellings(spelling, function):
    assert fastgelu.get_activation(spelling) is getattr(fastgelu, function)


@pytest.mark.parametrize("spelling", ["gelu", "torch.nn.GELU", "onnx.Gelu"])
def test_choice_by_string(spelling):
    assert fastgelu.get_activation(spelling, "none") is fastgelu.gelu
    assert fastgelu.get_activation(spelling, approximate="tanh") is fastgelu.gelu_tanh
    assert fastgelu.get_activation(spelling, b"tanh") is fastgelu.gelu_tanh  # an attribute of ONNX


@pytest.mark.parametrize("spelling", ["jax.nn.gelu", "keras.ops.gelu", "keras.activations.gelu"])
def test_choice_by_bool(spelling):
    assert fastgelu.get_activation(spelling, False) is fastgelu.gelu
    assert fastgelu.get_activation(spelling, np.True_) is fastgelu.gelu_tanh


@pytest.mark.parametrize(
    "spelling, approximate, words",
    [
        ("gelu", "erf", ["approximate='erf'", "'none', 'tanh', 'sigmoid'"]),
        ("gelu", True, ["approximate=True", "'none'"]),
        ("jax.nn.gelu", "tanh", ["approximate='tanh'", "False, True"]),
        ("jax.nn.gelu", 1, ["approximate=1", "False, True"]),
        ("gelu_new", "tanh", ["gelu_new has no approximate=", "gelu_tanh"]),
        ("silu", False, ["silu has no approximate="]),
    ],
)
def test_wrong_choice(spelling, approximate, words):
    with pytest.raises(ValueError, match="approximate=") as caught:
        fastgelu.get_activation(spelling, approximate)
    assert all(word in str(caught.value) for word in words)


@pytest.mark.parametrize(
    "spelling, near",
    [
        ("gelu_nwe", "gelu_new"),
        ("quickgelu", "quick_gelu"),
        ("swich", "swish"),
        ("torch.nn.functional.glu", "torch.nn.functional.gelu"),
        ("keras.activation.gelu", "keras.activations.gelu"),
        ("framework.of.mine.gelu", "jax.nn.gelu"),
        ("tanh", "gelu_tanh"),
        ("", "gelu"),
    ],
)
def test_unknown_names(spelling, near):
    with pytest.raises(KeyError) as caught:
        fastgelu.get_activation(spelling)
    assert f"unknown activation {spelling!r}" in caught.value.args[0]
    assert repr(near) in caught.value.args[0]


@pytest.mark.parametrize("spelling", [None, 3, b"gelu"])
def test_names_are_strings(spelling):
    with pytest.raises(TypeError, match="name must be a string"):
        fastgelu.get_activation(spelling)


@pytest.mark.parametrize("spelling", ["relu", "gelu_10"])
def test_functions_that_are_no_ufuncs(spelling):
    function = fastgelu.get_activation(spelling)
    x = np.array([-20, -1, 0, 1, 20, np.nan], np.float32)
    want = np.maximum(x, 0) if spelling == "relu" else np.clip(fastgelu.gelu(x), -10, 10)
    np.testing.assert_array_equal(function(x), want)
    out = x.copy()
    assert function(out, out=out) is out
    np.testing.assert_array_equal(out, want)
    assert pickle.loads(pickle.dumps(function)) is function


def test_table_in_the_documentation():
    text = _activations.markdown_table()
    assert text.count("\n") == len(_activations.TABLE) + 2
    for line in _activations.TABLE:
        assert f"| `{line.name}` |" in text
        assert f"\n    {line.name} " in fastgelu.get_activation.__doc__
