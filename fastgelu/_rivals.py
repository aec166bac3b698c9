# SPDX-License-Identifier: BSD-3-Clause
"""Who else computes our functions, and how: for `accuracy`, `bench` and the benchmarks.

A rival is bound to its inputs and an output array once. After that a call converts nothing, and
allocates nothing where the library has a way to; `fetch` brings the result into the output array.
Each is what the library itself offers, or the formula that its users write.
"""

import contextlib
import ctypes
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
FORMS = ("gelu", *SIGMOID)
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
        As RIVALS lists it, but for upper case.
    label : str
        Unique among those of the function.
    bind : callable
        Of (inputs, out): a tuple (x,) or (dy, x) and the output, contiguous arrays of one dimension
        and dtype; returns a `Bound`.
    """

    library: str
    label: str
    bind: object


def split(name):
    """("gelu_tanh", "_grad") from "gelu_tanh_grad"; "" and "_backward" are the other kinds."""
    for kind in ("_grad", "_backward"):
        if name.endswith(kind):
            return name.removesuffix(kind), kind
    return name, ""


def ours(name):
    def bind(inputs, out):
        return Bound(functools.partial(getattr(fastgelu, name), *inputs, out=out))

    return Rival("fastgelu", "fastgelu", bind)


# ---- formulas over whole arrays: NumPy, SciPy, MKL -------------------------------------------

# A gate fills out with Φ(x), or with σ(v). `exp`, `tanh`, ... are a library's functions of an array
# with out=, which may be the array itself.


def argument(x, c, k, out):
    """c·x + k·x³, which may be x itself."""
    if k:
        np.multiply(x, x, out=out)
        out *= k
        out += c
        out *= x
        return out
    return x if c == 1 else np.multiply(x, c, out=out)


def one_plus_exp(exp, c, k, x, out):
    """1 + exp(-v)."""
    exp(argument(x, -c, -k, out), out=out)
    out += 1


def gate_exp(exp, c, k, x, out):
    one_plus_exp(exp, c, k, x, out)
    np.reciprocal(out, out=out)


def gate_tanh(tanh, c, k, x, out):
    tanh(argument(x, c / 2, k / 2, out), out=out)
    out += 1
    out *= 0.5


def gate_expit(expit, c, k, x, out):
    expit(argument(x, c, k, out), out=out)


def gate_erf(erf, x, out):
    erf(np.multiply(x, math.sqrt(0.5), out=out), out=out)
    out += 1
    out *= 0.5


def gate_ndtr(ndtr, x, out):
    ndtr(x, out=out)


def value(gate, x, out):
    """x·gate(x)."""
    gate(x, out)
    out *= x


def value_exp(exp, c, k, x, out):
    """x/(1 + exp(-v)): a pass less than by the gate."""
    one_plus_exp(exp, c, k, x, out)
    np.divide(x, out, out=out)


def value_erf(erf, x, out):
    """x/2·(1 + erf(x/√2)), as it is written everywhere."""
    erf(np.multiply(x, math.sqrt(0.5), out=out), out=out)
    out += 1
    out *= x
    out *= 0.5


def slope_exact(gate, exp, x, out, one, two):
    """Φ(x) + x·φ(x)."""
    gate(x, out)
    np.multiply(x, x, out=one)
    one *= -0.5
    exp(one, out=one)
    one *= x
    one *= 1 / math.sqrt(2 * math.pi)
    out += one


def slope_sigmoid(gate, c, k, x, out, one, two):
    """σ(v)·(1 + x·v'·(1 - σ(v)))."""
    gate(x, out)
    np.subtract(1, out, out=one)
    one *= x
    if k:
        np.multiply(x, x, out=two)
        two *= 3 * k
        two += c
        one *= two
    elif c != 1:
        one *= c
    one += 1
    out *= one


def gates_of(form, exp=None, tanh=None, expit=None, erf=None, ndtr=None):
    """{label: (gate, a better value than x·gate(x), or None)} by the functions there are."""
    found = {}
    if form == "gelu":
        if ndtr:
            found["ndtr"] = functools.partial(gate_ndtr, ndtr), None
        if erf:
            gate = functools.partial(gate_erf, erf)
            found["erf"] = gate, functools.partial(value_erf, erf)
    elif form in SIGMOID:
        c, k = SIGMOID[form]
        if exp:
            gate = functools.partial(gate_exp, exp, c, k)
            found["exp"] = gate, functools.partial(value_exp, exp, c, k)
        if expit:
            found["expit"] = functools.partial(gate_expit, expit, c, k), None
        if tanh and form == "gelu_tanh":
            found["tanh"] = functools.partial(gate_tanh, tanh, c, k), None
    return found


def formulas(library, name, exp_of_slope=np.exp, **functions):
    """The rivals that a library's functions make."""
    form, kind = split(name)
    for label, (gate, short) in gates_of(form, **functions).items():
        if not kind:
            run, temporaries = short or functools.partial(value, gate), 0
        elif form in SIGMOID:
            run, temporaries = functools.partial(slope_sigmoid, gate, *SIGMOID[form]), 2
        else:
            run, temporaries = functools.partial(slope_exact, gate, exp_of_slope), 2
        bind = functools.partial(bind_formula, run, temporaries)
        yield Rival(library, f"{library} {label}", bind)


def bind_formula(run, temporaries, inputs, out):
    x = inputs[-1]
    run = functools.partial(run, x, out, *(np.empty_like(x) for _ in range(temporaries)))
    if len(inputs) == 1:
        return Bound(run)

    def backward():
        run()
        np.multiply(out, inputs[0], out=out)

    return Bound(backward)


def numpy_rivals(name, dtype, threads):
    if dtype in REALS:  # and it has no erf
        yield from formulas("NumPy", name, exp=np.exp, tanh=np.tanh)


def scipy_rivals(name, dtype, threads):
    special = importlib.import_module("scipy.special")
    if dtype in REALS:
        yield from formulas("SciPy", name, expit=special.expit, ndtr=special.ndtr, erf=special.erf)


@functools.cache
def mkl_library(parallel):
    """oneMKL, as its wheel installs it. It takes a layer of threads only before its first call."""
    files = importlib.metadata.files("mkl") or ()
    names = [file for file in files if "mkl_rt" in file.name]
    if not names:
        raise ImportError("the package mkl has no mkl_rt")
    library = ctypes.CDLL(str(names[0].locate().resolve()))
    # none, or those of libgomp: no second OpenMP runtime in the process
    library.MKL_Set_Threading_Layer(3 if parallel else 1)
    return library


def mkl_rivals(name, dtype, threads):
    """MKL's vector functions in their default mode, high accuracy, and NumPy's products."""
    library = mkl_library(bool(threads) and threads > 1)
    library.MKL_Set_Num_Threads(threads or 1)
    if dtype not in REALS:
        return

    def function(mkl_name):
        run = library[("vs" if dtype == "float32" else "vd") + mkl_name]
        run.restype = None
        run.argtypes = ctypes.c_int, ctypes.c_void_p, ctypes.c_void_p

        def call(x, out):
            run(x.size, x.ctypes.data, out.ctypes.data)

        return call

    functions = {"exp": "Exp", "tanh": "Tanh", "ndtr": "CdfNorm", "erf": "Erf"}
    functions = {key: function(mkl_name) for key, mkl_name in functions.items()}
    yield from formulas("MKL", name, functions["exp"], **functions)


# ---- frameworks ------------------------------------------------------------------------------


def torch_tensor(array):
    """A tensor on the array's own memory."""
    torch = importlib.import_module("torch")
    if array.dtype.name == "bfloat16":  # NumPy itself has none
        return torch.from_numpy(array.view(np.int16)).view(torch.bfloat16)
    return torch.from_numpy(array)


def torch_rivals(name, dtype, threads):
    torch = importlib.import_module("torch")
    if threads is not None:
        torch.set_num_threads(threads)
    form, kind = split(name)
    aten = torch.ops.aten
    if form not in FORMS:
        return

    def bind_value(inputs, out):
        x, out = torch_tensor(inputs[0]), torch_tensor(out)
        if form in ("gelu", "gelu_tanh"):
            approximate = "tanh" if form == "gelu_tanh" else "none"
            return Bound(lambda: aten.gelu.out(x, approximate=approximate, out=out))
        if form == "silu":
            return Bound(lambda: aten.silu.out(x, out=out))
        c = SIGMOID[form][0]

        def sigmoid_form():
            torch.mul(x, c, out=out)
            torch.sigmoid(out, out=out)
            torch.mul(x, out, out=out)

        return Bound(sigmoid_form)

    def product(dy, x, out):
        if form in ("gelu", "gelu_tanh"):
            approximate = "tanh" if form == "gelu_tanh" else "none"
            run = aten.gelu_backward.grad_input
            return Bound(lambda: run(dy, x, approximate=approximate, grad_input=out))
        if form == "silu":
            return Bound(lambda: aten.silu_backward.grad_input(dy, x, grad_input=out))
        c = SIGMOID[form][0]
        scaled = torch.empty_like(x)

        def backward():  # x·σ(c·x) is silu(c·x)/c, and has the slope of silu at c·x
            torch.mul(x, c, out=scaled)
            aten.silu_backward.grad_input(dy, scaled, grad_input=out)

        return Bound(backward)

    def bind_backward(inputs, out):
        return product(*map(torch_tensor, inputs), torch_tensor(out))

    def bind_ones(ones, inputs, out):
        """torch has backward passes only: of ones."""
        x = torch_tensor(inputs[0])
        return product(ones(x), x, torch_tensor(out))

    def one_repeated(x):
        return torch.ones((), dtype=x.dtype).expand(x.shape)

    if kind == "":
        yield Rival("torch", "torch", bind_value)
    elif kind == "_backward":
        yield Rival("torch", "torch", bind_backward)
    else:
        yield Rival("torch", "torch", functools.partial(bind_ones, torch.ones_like))
        yield Rival("torch", "torch repeat", functools.partial(bind_ones, one_repeated))


def jax_rivals(name, dtype, threads):
    """JAX allocates each result, and takes a number of threads only before it starts: one."""
    if threads == 1 and "jax" not in sys.modules:
        flags = "--xla_cpu_multi_thread_eigen=false intra_op_parallelism_threads=1"
        os.environ["XLA_FLAGS"] = f"{os.environ.get('XLA_FLAGS', '')} {flags}"
    jax = importlib.import_module("jax")
    if dtype == "float64":
        jax.config.update("jax_enable_x64", True)
    form, kind = split(name)
    function = {
        "gelu": functools.partial(jax.nn.gelu, approximate=False),
        "gelu_tanh": functools.partial(jax.nn.gelu, approximate=True),
        "gelu_sigmoid": lambda x: x * jax.nn.sigmoid(x * x.dtype.type(1.702)),
        "silu": jax.nn.silu,
    }[form]
    forward = function
    if kind == "_grad":
        function = jax.vmap(jax.grad(forward))
    elif kind == "_backward":

        def function(dy, x):
            return jax.vjp(forward, x)[1](dy)[0]

    compiled = jax.jit(function)

    def bind(inputs, out):
        inputs = [jax.device_put(array, jax.devices("cpu")[0]) for array in inputs]
        result = [None]

        def call():
            result[0] = compiled(*inputs).block_until_ready()

        def fetch():
            out[:] = np.asarray(result[0])

        return Bound(call, fetch)

    yield Rival("JAX", "JAX", bind)


def onnxruntime_rivals(name, dtype, threads):
    onnxruntime = importlib.import_module("onnxruntime")
    onnx = importlib.import_module("onnx")
    form, kind = split(name)
    if kind or dtype != "float32":
        return
    make = onnx.helper.make_node
    if form in ("gelu", "gelu_tanh"):
        approximate = "tanh" if form == "gelu_tanh" else "none"
        nodes, constants = [make("Gelu", ["x"], ["y"], approximate=approximate)], []
    else:
        c = onnx.numpy_helper.from_array(np.float32(SIGMOID[form][0]), "c")
        nodes = [make("Mul", ["x", "c"], ["v"])] if form == "gelu_sigmoid" else []
        nodes += [make("Sigmoid", ["v" if nodes else "x"], ["s"]), make("Mul", ["x", "s"], ["y"])]
        constants = [c] if form == "gelu_sigmoid" else []
    info = onnx.helper.make_tensor_value_info
    real = onnx.TensorProto.FLOAT
    graph = onnx.helper.make_graph(
        nodes, "g", [info("x", real, ["n"])], [info("y", real, ["n"])], constants
    )
    opsets = [onnx.helper.make_opsetid("", 20)]
    model = onnx.helper.make_model(graph, opset_imports=opsets, ir_version=9)
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = threads
    session = onnxruntime.InferenceSession(
        model.SerializeToString(), options, providers=["CPUExecutionProvider"]
    )

    def bind(inputs, out):
        binding = session.io_binding()
        for side, label, array in (
            (binding.bind_input, "x", inputs[0]),
            (binding.bind_output, "y", out),
        ):
            side(label, "cpu", 0, array.dtype.type, array.shape, array.ctypes.data)
        return Bound(functools.partial(session.run_with_iobinding, binding))

    yield Rival("onnxruntime", "onnxruntime", bind)


def litert_model(form, size):
    """A model of one function, in the format of LiteRT (TensorFlow Lite)."""
    flatbuffers = importlib.import_module("flatbuffers")
    schema = importlib.import_module("ai_edge_litert.schema_py_generated")
    operators = schema.BuiltinOperator
    model, graph = schema.ModelT(), schema.SubGraphT()
    model.version, model.buffers, model.operatorCodes = 3, [schema.BufferT()], []
    graph.tensors, graph.operators, model.subgraphs = [], [], [graph]

    def tensor(shape, constant=None):
        made = schema.TensorT()
        made.name, made.type = f"t{len(graph.tensors)}", schema.TensorType.FLOAT32
        made.shape, made.buffer = np.array(shape, np.int32), 0
        if constant is not None:
            buffer, made.buffer = schema.BufferT(), len(model.buffers)
            buffer.data = np.frombuffer(np.float32(constant).tobytes(), np.uint8)
            model.buffers.append(buffer)
        graph.tensors.append(made)
        return len(graph.tensors) - 1

    def operator(code, inputs, output, kind=0, options=None):
        made, entry = schema.OperatorT(), schema.OperatorCodeT()
        entry.builtinCode, entry.version = code, 1
        entry.deprecatedBuiltinCode = min(code, 127)
        made.opcodeIndex = len(model.operatorCodes)
        model.operatorCodes.append(entry)
        made.inputs, made.outputs = np.array(inputs, np.int32), np.array([output], np.int32)
        made.builtinOptionsType, made.builtinOptions = kind, options
        graph.operators.append(made)

    def multiply(a, b, output):
        kind = schema.BuiltinOptions.MulOptions
        operator(operators.MUL, [a, b], output, kind, schema.MulOptionsT())

    x, y = tensor([size]), tensor([size])
    if form in ("gelu", "gelu_tanh"):
        options = schema.GeluOptionsT()
        options.approximate = form == "gelu_tanh"
        operator(operators.GELU, [x], y, schema.BuiltinOptions.GeluOptions, options)
    else:
        argument, gate = x, tensor([size])
        if form == "gelu_sigmoid":
            argument = tensor([size])
            multiply(x, tensor([], SIGMOID[form][0]), argument)
        operator(operators.LOGISTIC, [argument], gate)
        multiply(x, gate, y)
    graph.inputs, graph.outputs = np.array([x], np.int32), np.array([y], np.int32)
    builder = flatbuffers.Builder(1024)
    builder.Finish(model.Pack(builder), b"TFL3")
    return bytes(builder.Output())


@contextlib.contextmanager
def quiet():
    """What a library's C++ code writes to stderr goes nowhere."""
    sys.stderr.flush()
    kept = os.dup(2)
    null = os.open(os.devnull, os.O_WRONLY)
    try:
        os.dup2(null, 2)
        yield
    finally:
        os.dup2(kept, 2)
        os.close(kept)
        os.close(null)


def litert_rivals(name, dtype, threads):
    """Computes in arrays of its own, by XNNPACK; no slopes."""
    interpreter = importlib.import_module("ai_edge_litert.interpreter")
    form, kind = split(name)
    if kind or dtype != "float32":
        return

    def bind(inputs, out):
        with quiet():  # it tells that it uses XNNPACK
            made = interpreter.Interpreter(
                model_content=litert_model(form, out.size), num_threads=threads
            )
            made.allocate_tensors()
        (x,), (y,) = made.get_input_details(), made.get_output_details()
        made.set_tensor(x["index"], inputs[0])

        def fetch():
            out[:] = made.get_tensor(y["index"])

        return Bound(made.invoke, fetch)

    yield Rival("LiteRT", "LiteRT", bind)


# ---- compilers of expressions ----------------------------------------------------------------

# What a user writes. The constants have the dtype of x.
NAIVE = {
    "gelu": "half * x * (one + erf(x * root_half))",
    "gelu_tanh": "half * x * (one + tanh(root_2_pi * (x + cubic * x * x * x)))",
    "gelu_sigmoid": "x / (one + exp(-factor * x))",
    "silu": "x / (one + exp(-x))",
}
T = "tanh(root_2_pi * (x + cubic * x * x * x))"
S = "(one / (one + exp(-x)))"
Q = "(one / (one + exp(-factor * x)))"
NAIVE_SLOPE = {
    "gelu": "half * (one + erf(x * root_half)) + x * phi_0 * exp(-half * x * x)",
    "gelu_tanh": f"half * (one + {T}) + half * x * (one - {T} * {T})"
    " * root_2_pi * (one + three * cubic * x * x)",
    "gelu_sigmoid": f"{Q} * (one + factor * x * (one - {Q}))",
    "silu": f"{S} * (one + x * (one - {S}))",
}


def naive(form, kind):
    """The expression of a function."""
    if not kind:
        return NAIVE[form]
    return f"dy * ({NAIVE_SLOPE[form]})" if kind == "_backward" else NAIVE_SLOPE[form]


def naive_constants(dtype):
    values = {
        "half": 0.5,
        "one": 1.0,
        "three": 3.0,
        "root_half": math.sqrt(0.5),
        "root_2_pi": math.sqrt(2 / math.pi),
        "phi_0": 1 / math.sqrt(2 * math.pi),
        "cubic": 0.044715,
        "factor": 1.702,
    }
    return {name: np.dtype(dtype).type(value) for name, value in values.items()}


def numba_rivals(name, dtype, threads):
    """The formula in a loop, with fastmath=True."""
    numba = importlib.import_module("numba")
    form, kind = split(name)
    if form not in FORMS or dtype not in REALS:
        return
    names = {"erf": math.erf, "tanh": math.tanh, "exp": math.exp, **naive_constants(dtype)}
    names["span"] = numba.prange if threads and threads > 1 else range
    variables = "dy, x" if kind == "_backward" else "x"
    elements = "dy[i], x[i]" if kind == "_backward" else "x[i]"
    exec(f"def loop({variables}, y):\n for i in span(x.size): y[i] = f({elements})\n", names)
    exec(f"def f({variables}): return {naive(form, kind)}", names)
    names["f"] = numba.njit(fastmath=True)(names["f"])
    parallel = names["span"] is not range
    loop = numba.njit(fastmath=True, parallel=parallel)(names["loop"])
    if parallel:
        numba.set_num_threads(min(threads, numba.config.NUMBA_NUM_THREADS))

    def bind(inputs, out):
        return Bound(functools.partial(loop, *inputs, out))

    yield Rival("Numba", "Numba naive", bind)


def numexpr_rivals(name, dtype, threads):
    numexpr = importlib.import_module("numexpr")
    form, kind = split(name)
    if form not in SIGMOID or dtype not in REALS:  # it has no erf
        return
    numexpr.set_num_threads(threads)
    constants = naive_constants(dtype)
    expression = naive(form, kind)

    def bind(inputs, out):
        names = dict(zip(("dy", "x")[-len(inputs) :], inputs))
        names.update((k, v) for k, v in constants.items() if k in expression)
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
    "litert": ("ai-edge-litert", litert_rivals),
    "mkl": ("mkl", mkl_rivals),
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
    "MKL exp": ("#332288", "-"),
    "MKL tanh": ("#332288", "--"),
    "MKL erf": ("#332288", "-"),
    "MKL ndtr": ("#332288", "--"),
    "torch": ("#CC79A7", "-"),
    "torch repeat": ("#CC79A7", "--"),
    "Numba naive": ("#E69F00", "-"),
    "JAX": ("#56B4E9", "-"),
    "onnxruntime": ("#7F7F7F", "-"),
    "LiteRT": ("#882255", "-"),
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
