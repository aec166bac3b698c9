# SPDX-License-Identifier: BSD-3-Clause
"""The names of activations in model files and frameworks, and the functions that they mean."""

from typing import NamedTuple

import numpy as np

from fastgelu._arguments import operand
from fastgelu._ufuncs import ALL_UFUNCS


class Activation(NamedTuple):
    """A line of the table of names.

    Attributes
    ----------
    name : str
        As people write it; case does not matter.
    function : str
        The function of this package, "numpy.maximum(x, 0)" for ReLU.
    choice : str
        What `approximate` the name takes: "" for none, "string" ("none", "tanh"), "bool" (true is
        tanh). `function` is what it means without.
    meaning : str
        Whose name it is.
    """

    name: str
    function: str
    choice: str
    meaning: str


RELU, CLIPPED = "numpy.maximum(x, 0)", "numpy.clip(fastgelu.gelu(x), -10, 10)"
_HF = "HuggingFace transformers"

# The README and the documentation print this table. tests/data/activations.csv holds values of the
# packages themselves for each name that has one in front, and for HuggingFace's.
TABLE = tuple(
    Activation(*line)
    for line in (
        ("gelu", "gelu", "string", f"{_HF}, and the exact form in general"),
        ("gelu_python", "gelu", "", _HF),
        ("gelu_none", "gelu", "", 'PyTorch\'s approximate="none"'),
        ("gelu_new", "gelu_tanh", "", f"{_HF}: GPT-2, BERT's own code"),
        ("gelu_fast", "gelu_tanh", "", _HF),
        ("gelu_pytorch_tanh", "gelu_tanh", "", f"{_HF}: Gemma, ViT"),
        ("gelu_python_tanh", "gelu_tanh", "", _HF),
        ("gelu_accurate", "gelu_tanh", "", f"{_HF}: Mega"),
        ("gelu_tanh", "gelu_tanh", "", 'PyTorch\'s approximate="tanh"'),
        ("gelu_10", CLIPPED, "", f"{_HF}: for quantisation"),
        ("quick_gelu", "gelu_sigmoid", "", f"{_HF}: CLIP"),
        ("gelu_sigmoid", "gelu_sigmoid", "", "the name of this package"),
        ("silu", "silu", "", f"{_HF}: LLaMA"),
        ("swish", "silu", "", _HF),
        ("relu", RELU, "", "everywhere"),
        ("torch.nn.functional.gelu", "gelu", "string", "PyTorch"),
        ("torch.nn.functional.silu", "silu", "", "PyTorch"),
        ("torch.nn.functional.relu", RELU, "", "PyTorch"),
        ("torch.nn.GELU", "gelu", "string", "PyTorch"),
        ("torch.nn.SiLU", "silu", "", "PyTorch"),
        ("torch.nn.ReLU", RELU, "", "PyTorch"),
        ("jax.nn.gelu", "gelu_tanh", "bool", "JAX"),
        ("jax.nn.silu", "silu", "", "JAX"),
        ("jax.nn.swish", "silu", "", "JAX"),
        ("jax.nn.relu", RELU, "", "JAX"),
        ("keras.ops.gelu", "gelu_tanh", "bool", "Keras 3"),
        ("keras.ops.silu", "silu", "", "Keras 3"),
        ("keras.ops.swish", "silu", "", "Keras 3"),
        ("keras.ops.relu", RELU, "", "Keras 3"),
        ("keras.activations.gelu", "gelu", "bool", "Keras 3"),
        ("keras.activations.silu", "silu", "", "Keras 3"),
        ("keras.activations.swish", "silu", "", "Keras 3"),
        ("keras.activations.relu", RELU, "", "Keras 3"),
        ("onnx.Gelu", "gelu", "string", "ONNX operator set 20"),
        ("onnx.Swish", "silu", "", "ONNX operator set 24, alpha = 1"),
        ("onnx.Relu", RELU, "", "ONNX"),
        ("com.microsoft.Gelu", "gelu", "", "ONNX Runtime"),
        ("com.microsoft.FastGelu", "gelu_tanh", "", "ONNX Runtime, without a bias"),
        ("com.microsoft.QuickGelu", "gelu_sigmoid", "", "ONNX Runtime, alpha = 1.702"),
    )
)

# What may stand for the framework in front, as it is imported.
_PREFIXES = {
    "f.": "torch.nn.functional.",
    "nn.functional.": "torch.nn.functional.",
    "nn.": "torch.nn.",
    "tf.keras.": "keras.",
    "ai.onnx.": "onnx.",
}
_HF_PREFIXES = ("transformers.activations.", "transformers.")
_NAMES = {line.name.lower(): line for line in TABLE}
_BARE = [line.name for line in TABLE if "." not in line.name]


def relu(x, out=None):
    """The larger of x and 0, element by element: NumPy's maximum."""
    return np.maximum(operand(x, "x"), 0, out=out)


def gelu_10(x, out=None):
    """GELU, but at most 10 (and at least -10), element by element."""
    return np.clip(ALL_UFUNCS["gelu"](operand(x, "x"), out=out), -10, 10, out=out)


def _find(name):
    key = name.lower()
    if key in _NAMES:
        return _NAMES[key]
    for prefix, whole in _PREFIXES.items():
        if key.startswith(prefix) and whole + key.removeprefix(prefix) in _NAMES:
            return _NAMES[whole + key.removeprefix(prefix)]
    for prefix in _HF_PREFIXES:
        if key.startswith(prefix) and key.removeprefix(prefix) in map(str.lower, _BARE):
            return _NAMES[key.removeprefix(prefix)]
    import difflib

    near = difflib.get_close_matches(key, _NAMES, n=4, cutoff=0.6)
    tail = key.rpartition(".")[2]
    if not near and tail != key:  # an unknown framework: what others call so
        near = [known for known in _NAMES if known.rpartition(".")[2] == tail][:6]
    told = [_NAMES[known].name for known in near] or _BARE
    told = ", ".join(map(repr, told))
    told = f"did you mean one of {told}?" if near else f"choose one of {told}"
    raise KeyError(f"unknown activation {name!r}; {told}")


def get_activation(name, approximate=None):
    """Look up an activation by the name that it has in a model file or a framework.

    Parameters
    ----------
    name : str
        One of the names below; case does not matter. "nn." and "F." in front are PyTorch's,
        "transformers." is HuggingFace's, "tf.keras." is Keras'.
    approximate : {"none", "tanh", "sigmoid"} or bool, optional
        The framework's own argument or attribute, for the names that have one: a string for
        PyTorch, ONNX and the plain "gelu", true (tanh) or false (exact) for JAX and Keras.
        Default: the framework's own default, which is not the same everywhere.

    Returns
    -------
    function : callable
        ``function(x, out=None)``; a ufunc of this package where there is one.

    Raises
    ------
    KeyError
        The name is unknown; the message suggests near ones.
    ValueError
        `approximate` is none of the choices, or the name has no such argument.
    TypeError
        `name` is no string.

    Notes
    -----
    {table}

    Examples
    --------
    >>> import fastgelu
    >>> fastgelu.get_activation("jax.nn.gelu")
    <ufunc 'gelu_tanh'>
    >>> fastgelu.get_activation("torch.nn.functional.gelu")
    <ufunc 'gelu'>
    """
    if not isinstance(name, str):
        raise TypeError(f"name must be a string, not {type(name).__name__}")
    line = _find(name)
    function = line.function
    if approximate is not None:
        function = _choose(line, approximate)
    return {RELU: relu, CLIPPED: gelu_10}.get(function) or ALL_UFUNCS[function]


def _choose(line, approximate):
    choices = {
        "": {},
        "string": {"none": "gelu", "tanh": "gelu_tanh", "sigmoid": "gelu_sigmoid"},
        "bool": {False: "gelu", True: "gelu_tanh"},
    }[line.choice]
    if not choices:
        raise ValueError(f"{line.name} has no approximate=: it is {line.function}")
    if isinstance(approximate, bytes):  # as ONNX stores its attributes
        approximate = approximate.decode("ascii", "replace")
    if isinstance(approximate, (bool, np.bool_)) != (line.choice == "bool"):
        known = False
    else:
        known = isinstance(approximate, (str, bool, np.bool_)) and approximate in choices
    if not known:
        told = ", ".join(map(repr, choices))
        raise ValueError(
            f"approximate={approximate!r} is unknown for {line.name}; choose one of {told}"
        )
    return choices[approximate]


def _shown(line):
    function = line.function if "(" in line.function else f"fastgelu.{line.function}"
    choice = {"": "", "string": '"none", "tanh", "sigmoid"', "bool": "False, True"}[line.choice]
    return line.name, function, choice, line.meaning


def markdown_table():
    """The table of names in Markdown.

    Returns
    -------
    table : str
        With the columns name, function, approximate= and whose name it is.
    """
    rows = [("name", "function", "`approximate=`", "of"), ("---",) * 4]
    for name, function, choice, meaning in map(_shown, TABLE):
        choice = ", ".join(f"`{c}`" for c in choice.split(", ")) if choice else ""
        rows.append((f"`{name}`", f"`{function}`", choice, meaning))
    return "\n".join(f"| {' | '.join(row)} |" for row in rows) + "\n"


def _numpydoc_table():
    rows = [("name", "function", "approximate", "of"), *map(_shown, TABLE)]
    widths = [max(len(row[i]) for row in rows) for i in range(3)]
    ruler = "  ".join("=" * width for width in [*widths, 4])
    lines = [
        "  ".join((*(c.ljust(w) for c, w in zip(row, widths)), row[3])).rstrip() for row in rows
    ]
    return "\n    ".join([ruler, lines[0], ruler, *lines[1:], ruler])


if get_activation.__doc__:  # not under python -OO
    get_activation.__doc__ = get_activation.__doc__.replace("{table}", _numpydoc_table())

if __name__ == "__main__":
    print(markdown_table(), end="")
