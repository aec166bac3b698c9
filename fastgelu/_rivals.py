# SPDX-License-Identifier: BSD-3-Clause
"""Who else computes our functions, and how: for the commands `accuracy` and `bench`.

A rival is bound to an input and an output array once. After that a call converts nothing, and
allocates nothing where the library has a way to; `fetch` brings the result into the output array.
Each is what the library itself offers, or the formula that its users write.
"""

import functools
import importlib
import importlib.metadata
import math
import os
import sys
from typing import NamedTuple

import numpy as np

import fastgelu
from fastgelu import _command

# The sigmoid forms are x·σ(v), v = c·x + k·x³.
SIGMOID = {
    "gelu_tanh": (2 * math.sqrt(2 / math.pi), 2 * math.sqrt(2 / math.pi) * 0.044715),
    "gelu_sigmoid": (1.702, 0.0),
    "silu": (1.0, 0.0),
}
REALS = ("float32", "float64")


class Bound(NamedTuple):
    """A function of no argument that computes, and one that brings the result where it belongs."""

    call: object
    fetch: object = lambda: None


class Rival(NamedTuple):
    """One way to compute one function.

    Attributes
    ----------
    library : str
        As RIVALS lists it.
    label : str
        Unique among those of the function.
    bind : callable
        Of (x, out), two contiguous arrays of one dimension and dtype; returns a `Bound`.
    """

    library: str
    label: str
    bind: object


def split(name):
    """("gelu_tanh", True) from "gelu_tanh_grad"."""
    form = name.removesuffix("_grad")
    return form, form != name


def ours(name):
    function = getattr(fastgelu, name)
    return Rival(
        "fastgelu", "fastgelu", lambda x, out: Bound(functools.partial(function, x, out=out))
    )


# ---- NumPy and SciPy -------------------------------------------------------------------------


def argument(x, c, k, out):
    """out = c·x + k·x³."""
    if k:
        np.multiply(x, x, out=out)
        out *= k
        out += c
        out *= x
    else:
        np.multiply(x, c, out=out)


def sigma_exp(x, c, k, out):
    argument(x, -c, -k, out)
    np.exp(out, out=out)
    out += 1
    np.reciprocal(out, out=out)


def sigma_tanh(x, c, k, out):
    argument(x, c / 2, k / 2, out)
    np.tanh(out, out=out)
    out += 1
    out *= 0.5


def sigma_expit(x, c, k, out):
    special = importlib.import_module("scipy.special")
    argument(x, c, k, out)
    special.expit(out, out=out)


def gate_erf(x, out):
    special = importlib.import_module("scipy.special")
    special.erf(np.multiply(x, math.sqrt(0.5), out=out), out=out)
    out += 1
    out *= 0.5


def gate_ndtr(x, out):
    importlib.import_module("scipy.special").ndtr(x, out=out)


def formula(gate, form, slope):
    """Binds x·gate(x), or its slope by the product rule."""
    c, k = SIGMOID.get(form, (None, None))

    def bind(x, out):
        one, two = (np.empty_like(x), np.empty_like(x)) if slope else (None, None)

        def value():
            gate(x, out)
            np.multiply(out, x, out=out)

        def slope_exact():  # Φ(x) + x·φ(x)
            gate(x, out)
            np.multiply(x, x, out=one)
            np.multiply(one, -0.5, out=one)
            np.exp(one, out=one)
            np.multiply(one, x, out=one)
            np.multiply(one, 1 / math.sqrt(2 * math.pi), out=one)
            np.add(out, one, out=out)

        def slope_sigmoid():  # σ(v)·(1 + x·v'·(1 - σ(v)))
            gate(x, out)
            np.subtract(1, out, out=one)
            np.multiply(one, x, out=one)
            if k:
                np.multiply(x, x, out=two)
                np.multiply(two, 3 * k, out=two)
                np.add(two, c, out=two)
                np.multiply(one, two, out=one)
            else:
                np.multiply(one, c, out=one)
            np.add(one, 1, out=one)
            np.multiply(out, one, out=out)

        if not slope:
            return Bound(value)
        return Bound(slope_sigmoid if form in SIGMOID else slope_exact)

    return bind


def sigmoid_gate(sigma, form):
    c, k = SIGMOID[form]
    return lambda x, out: sigma(x, c, k, out)


def numpy_rivals(name, dtype, threads):
    form, slope = split(name)
    if form not in SIGMOID or dtype not in REALS:
        return  # NumPy has no erf
    gates = {"exp": sigma_exp, "tanh": sigma_tanh} if form == "gelu_tanh" else {"exp": sigma_exp}
    for label, sigma in gates.items():
        bind = formula(sigmoid_gate(sigma, form), form, slope)
        yield Rival("NumPy", f"NumPy {label}", bind)


def scipy_rivals(name, dtype, threads):
    importlib.import_module("scipy.special")
    form, slope = split(name)
    if dtype not in REALS:
        return
    if form in SIGMOID:
        gates = {"expit": sigmoid_gate(sigma_expit, form)}
    else:
        gates = {"erf": gate_erf, "ndtr": gate_ndtr}
    for label, gate in gates.items():
        yield Rival("SciPy", f"SciPy {label}", formula(gate, form, slope))


# ---- frameworks ------------------------------------------------------------------------------


def torch_rivals(name, dtype, threads):
    torch = importlib.import_module("torch")
    torch.set_num_threads(threads)
    form, slope = split(name)

    def tensor(array):
        if array.dtype.name == "bfloat16":  # NumPy itself has none
            return torch.from_numpy(array.view(np.int16)).view(torch.bfloat16)
        return torch.from_numpy(array)

    def bind(x, out):
        x, out = tensor(x), tensor(out)
        aten = torch.ops.aten
        ones = torch.ones_like(x) if slope else None  # torch has backward passes only
        if form in ("gelu", "gelu_tanh"):
            kind = "tanh" if form == "gelu_tanh" else "none"
            if slope:
                run = aten.gelu_backward.grad_input
                return Bound(lambda: run(ones, x, approximate=kind, grad_input=out))
            return Bound(lambda: aten.gelu.out(x, approximate=kind, out=out))
        if form == "silu":
            if slope:
                return Bound(lambda: aten.silu_backward.grad_input(ones, x, grad_input=out))
            return Bound(lambda: aten.silu.out(x, out=out))
        c = SIGMOID[form][0]
        scaled = torch.empty_like(x)

        def value():
            torch.mul(x, c, out=out)
            torch.sigmoid(out, out=out)
            torch.mul(x, out, out=out)

        def gradient():  # x·σ(c·x) is silu(c·x)/c, and has the slope of silu at c·x
            torch.mul(x, c, out=scaled)
            aten.silu_backward.grad_input(ones, scaled, grad_input=out)

        return Bound(gradient if slope else value)

    yield Rival("torch", "torch", bind)


def jax_rivals(name, dtype, threads):
    """JAX allocates each result, and takes a number of threads only before it starts: one."""
    if threads == 1 and "jax" not in sys.modules:
        flags = "--xla_cpu_multi_thread_eigen=false intra_op_parallelism_threads=1"
        os.environ["XLA_FLAGS"] = f"{os.environ.get('XLA_FLAGS', '')} {flags}"
    jax = importlib.import_module("jax")
    if dtype == "float64":
        jax.config.update("jax_enable_x64", True)
    form, slope = split(name)
    functions = {
        "gelu": functools.partial(jax.nn.gelu, approximate=False),
        "gelu_tanh": functools.partial(jax.nn.gelu, approximate=True),
        "gelu_sigmoid": lambda x: x * jax.nn.sigmoid(x * x.dtype.type(1.702)),
        "silu": jax.nn.silu,
    }
    function = functions[form]
    if slope:
        function = jax.vmap(jax.grad(function))
    compiled = jax.jit(function)

    def bind(x, out):
        x = jax.device_put(x, jax.devices("cpu")[0])
        result = [None]

        def call():
            result[0] = compiled(x).block_until_ready()

        def fetch():
            out[:] = np.asarray(result[0])

        return Bound(call, fetch)

    yield Rival("JAX", "JAX", bind)


def onnxruntime_rivals(name, dtype, threads):
    onnxruntime = importlib.import_module("onnxruntime")
    onnx = importlib.import_module("onnx")
    form, slope = split(name)
    if slope or dtype != "float32":
        return
    make = onnx.helper.make_node
    if form in ("gelu", "gelu_tanh"):
        kind = "tanh" if form == "gelu_tanh" else "none"
        nodes, constants = [make("Gelu", ["x"], ["y"], approximate=kind)], []
    else:
        c = onnx.numpy_helper.from_array(np.float32(SIGMOID[form][0]), "c")
        nodes = [make("Mul", ["x", "c"], ["v"])] if form == "gelu_sigmoid" else []
        nodes += [make("Sigmoid", ["v" if nodes else "x"], ["s"]), make("Mul", ["x", "s"], ["y"])]
        constants = [c] if form == "gelu_sigmoid" else []
    info = onnx.helper.make_tensor_value_info
    kind = onnx.TensorProto.FLOAT
    graph = onnx.helper.make_graph(
        nodes, "g", [info("x", kind, ["n"])], [info("y", kind, ["n"])], constants
    )
    opsets = [onnx.helper.make_opsetid("", 20)]
    model = onnx.helper.make_model(graph, opset_imports=opsets, ir_version=9)
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = threads
    session = onnxruntime.InferenceSession(
        model.SerializeToString(), options, providers=["CPUExecutionProvider"]
    )

    def bind(x, out):
        binding = session.io_binding()
        for side, label, array in (
            (binding.bind_input, "x", x),
            (binding.bind_output, "y", out),
        ):
            side(label, "cpu", 0, array.dtype.type, array.shape, array.ctypes.data)
        return Bound(functools.partial(session.run_with_iobinding, binding))

    yield Rival("onnxruntime", "onnxruntime", bind)


# ---- compilers of expressions ----------------------------------------------------------------

# What a user writes. The constants have the dtype of x.
NAIVE = {
    "gelu": "half * x * (one + erf(x * root_half))",
    "gelu_tanh": "half * x * (one + tanh(root_2_pi * (x + cubic * x * x * x)))",
    "gelu_sigmoid": "x / (one + exp(-factor * x))",
    "silu": "x / (one + exp(-x))",
}


def naive_constants(dtype):
    values = {
        "half": 0.5,
        "one": 1.0,
        "root_half": math.sqrt(0.5),
        "root_2_pi": math.sqrt(2 / math.pi),
        "cubic": 0.044715,
        "factor": 1.702,
    }
    return {name: np.dtype(dtype).type(value) for name, value in values.items()}


def numba_rivals(name, dtype, threads):
    """The formula in a loop, with fastmath=True."""
    numba = importlib.import_module("numba")
    form, slope = split(name)
    if slope or dtype not in REALS:
        return
    names = {"erf": math.erf, "tanh": math.tanh, "exp": math.exp, **naive_constants(dtype)}
    names["span"] = numba.prange if threads > 1 else range
    exec("def loop(x, y):\n for i in span(x.size): y[i] = f(x[i])\n", names)
    exec(f"def f(x): return {NAIVE[form]}", names)
    names["f"] = numba.njit(fastmath=True)(names["f"])
    loop = numba.njit(fastmath=True, parallel=threads > 1)(names["loop"])
    if threads > 1:
        numba.set_num_threads(min(threads, numba.config.NUMBA_NUM_THREADS))
    yield Rival("Numba", "Numba naive", lambda x, out: Bound(functools.partial(loop, x, out)))


def numexpr_rivals(name, dtype, threads):
    numexpr = importlib.import_module("numexpr")
    form, slope = split(name)
    if slope or form == "gelu" or dtype not in REALS:  # it has no erf
        return
    numexpr.set_num_threads(threads)
    constants = naive_constants(dtype)
    expression = NAIVE[form]

    def bind(x, out):
        names = {"x": x, **{k: v for k, v in constants.items() if k in expression}}
        return Bound(
            lambda: numexpr.evaluate(expression, local_dict=names, global_dict={}, out=out)
        )

    yield Rival("numexpr", "numexpr", bind)


# ---- all of them -----------------------------------------------------------------------------

# The name that users give, the package, what makes the rivals.
RIVALS = {
    "numpy": ("numpy", numpy_rivals),
    "scipy": ("scipy", scipy_rivals),
    "torch": ("torch", torch_rivals),
    "numba": ("numba", numba_rivals),
    "jax": ("jax", jax_rivals),
    "onnxruntime": ("onnxruntime", onnxruntime_rivals),
    "numexpr": ("numexpr", numexpr_rivals),
}


def version(name):
    """The version of a rival's package, or None where it is not installed."""
    try:
        return importlib.metadata.version(RIVALS[name][0])
    except importlib.metadata.PackageNotFoundError:
        return None


STYLES = {
    "fastgelu": ("#0072B2", "-"),
    "NumPy exp": ("#000000", "-"),
    "NumPy tanh": ("#000000", "--"),
    "SciPy erf": ("#D55E00", "-"),
    "SciPy expit": ("#D55E00", "-"),
    "SciPy ndtr": ("#D55E00", "--"),
    "torch": ("#CC79A7", "-"),
    "Numba naive": ("#E69F00", "-"),
    "JAX": ("#56B4E9", "-"),
    "onnxruntime": ("#7F7F7F", "-"),
    "numexpr": ("#009E73", "-"),
    "copy": ("#7F7F7F", ":"),
}


def style(label):
    """How a contender's line is drawn, the same in every picture."""
    colour, line = STYLES[label]
    return {"color": colour, "linestyle": line, "linewidth": 2 if label == "fastgelu" else 1}


def add_option(parser):
    parser.add_argument(
        "--rivals",
        nargs="*",
        choices=list(RIVALS),
        metavar="NAME",
        help=f"of {', '.join(RIVALS)}; default: those that are installed",
    )


def chosen(asked):
    """The rivals' names; an error where one was asked for that is not installed."""
    if asked is None:
        return [name for name in RIVALS if version(name) is not None]
    for name in asked:
        if version(name) is None:
            raise _command.CommandError(f"{name} is not installed: pip install {RIVALS[name][0]}")
    return list(dict.fromkeys(asked))


def contenders(name, dtype, libraries, threads, problems):
    """Ours and the rivals. Why a library cannot be used is added to problems, a dict by library."""
    result = [ours(name)]
    for library in libraries:
        if library in problems:
            continue
        try:
            result += RIVALS[library][1](name, dtype, threads)
        except Exception as error:  # a broken library is no reason to measure nothing
            problems[library] = brief(error)
    return result


def brief(error):
    """One line about an exception."""
    lines = str(error).strip().splitlines() or ["no message"]
    return f"{type(error).__name__}: {lines[0][:100]}"


def describe(libraries):
    """ "NumPy 2.4.6, SciPy ..." """
    return ", ".join(f"{name} {version(name)}" for name in libraries)
