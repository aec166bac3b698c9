# SPDX-License-Identifier: BSD-3-Clause
"""Writes activations.csv: what other packages' activations give, found by calling them.

    pip install torch transformers jax keras onnx onnxruntime
    KERAS_BACKEND=jax python tests/data/generate_activations.py

Each line has a name that fastgelu.get_activation knows, the value of `approximate` ("" for the
package's default), x and y, float32 in the shortest decimal form that gives it back.
"""

import csv
import importlib
import os
from pathlib import Path

os.environ.setdefault("KERAS_BACKEND", "jax")

import numpy as np

TARGET = Path(__file__).with_name("activations.csv")
PACKAGES = ("torch", "transformers", "jax", "keras", "onnx", "onnxruntime")
X = np.unique(
    np.concatenate(
        [
            np.linspace(-4, 4, 33),
            [-12, -9, -6, -5.5, -2.7, -0.7517916, -1e-3, 1e-3, 2.27, 6, 9, 12],
        ]
    ).astype(np.float32)
)
BARE = [
    "gelu",
    "gelu_python",
    "gelu_new",
    "gelu_fast",
    "gelu_pytorch_tanh",
    "gelu_python_tanh",
    "gelu_accurate",
    "gelu_10",
    "quick_gelu",
    "silu",
    "swish",
    "relu",
]


def onnx_call(domain, operator, version, **attributes):
    """An operator, by the reference implementation of ONNX or by ONNX Runtime."""
    import onnx
    import onnx.reference
    import onnxruntime
    from onnx import TensorProto, helper

    node = helper.make_node(operator, ["x"], ["y"], domain=domain, **attributes)
    values = [helper.make_tensor_value_info(n, TensorProto.FLOAT, [None]) for n in "xy"]
    graph = helper.make_graph([node], "g", values[:1], values[1:])
    opset = [helper.make_opsetid("", version)] + [helper.make_opsetid(domain, 1)] * bool(domain)
    model = helper.make_model(graph, opset_imports=opset, ir_version=10)
    if not domain:
        return lambda x: onnx.reference.ReferenceEvaluator(model).run(None, {"x": x})[0]
    session = onnxruntime.InferenceSession(
        model.SerializeToString(), providers=["CPUExecutionProvider"]
    )
    return lambda x: session.run(None, {"x": x})[0]


def named(path, module, argument=None):
    """(name, approximate, function) of what lies at a dotted path of jax or keras."""
    value = importlib.import_module(path.rpartition(".")[0])
    function = getattr(value, path.rpartition(".")[2])
    keywords = {} if argument is None else {"approximate": argument}
    return path, argument, lambda x: function(module(x), **keywords)


def calls():
    """(name, approximate, function) of each line."""
    import jax.numpy
    import keras
    import torch
    from transformers.activations import ACT2FN

    def by_torch(function, **keywords):
        return lambda x: function(torch.from_numpy(x), **keywords).numpy()

    for name in BARE:
        yield name, None, by_torch(ACT2FN[name])
    functional = torch.nn.functional
    for name in ("gelu", "silu", "relu"):
        yield f"torch.nn.functional.{name}", None, by_torch(getattr(functional, name))
    for name in ("GELU", "SiLU", "ReLU"):
        yield f"torch.nn.{name}", None, by_torch(getattr(torch.nn, name)())
    for choice in ("none", "tanh"):
        keywords = {"approximate": choice}
        yield "torch.nn.functional.gelu", choice, by_torch(functional.gelu, **keywords)
        yield "torch.nn.GELU", choice, by_torch(torch.nn.GELU(**keywords))
        yield "onnx.Gelu", choice, onnx_call("", "Gelu", 20, **keywords)
    for place, module in (
        ("jax.nn", jax.numpy.asarray),
        ("keras.ops", keras.ops.convert_to_tensor),
        ("keras.activations", keras.ops.convert_to_tensor),
    ):
        for name in ("gelu", "silu", "swish", "relu"):
            yield named(f"{place}.{name}", module)
        for choice in (False, True):
            yield named(f"{place}.gelu", module, choice)
    yield "onnx.Gelu", None, onnx_call("", "Gelu", 20)
    yield "onnx.Swish", None, onnx_call("", "Swish", 24)
    yield "onnx.Relu", None, onnx_call("", "Relu", 20)
    for name in ("Gelu", "FastGelu", "QuickGelu"):
        yield f"com.microsoft.{name}", None, onnx_call("com.microsoft", name, 20)


def main():
    versions = ", ".join(f"{n} {importlib.import_module(n).__version__}" for n in PACKAGES)
    with TARGET.open("w", newline="\n", encoding="utf-8") as file:
        file.write("# Made by generate_activations.py; do not edit.\n")
        file.write(f"# {versions}\n")
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(("name", "approximate", "x", "y"))
        for name, choice, function in calls():
            y = np.asarray(function(X))
            if y.dtype != np.float32 or y.shape != X.shape:
                raise SystemExit(f"{name}: {y.dtype} {y.shape}")
            shown = "" if choice is None else str(choice)
            for pair in zip(X, y, strict=True):
                writer.writerow((name, shown, *(f"{v!s}" for v in pair)))
    print(f"{TARGET.name}: {versions}")


if __name__ == "__main__":
    main()
