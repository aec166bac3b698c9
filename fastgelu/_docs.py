# SPDX-License-Identifier: BSD-3-Clause
"""The ufuncs' docstrings (numpydoc), put together from the form, the kind and the registry."""

import textwrap

from fastgelu._dtypes import to_numpy

# For each form: what it is called, its formula, its slope's formula, the zero of its slope, notes
# and sources.
FORMS = {
    "gelu": {
        "title": "GELU",
        "value": "x·Φ(x), where Φ(x) = erfc(-x/√2)/2 is the normal distribution function",
        "slope": "Φ(x) + x·φ(x), where Φ is the normal distribution function and φ its density",
        "zero": "-0.75179152469356446",
        "note": "",
        "sources": ["gelu"],
    },
    "gelu_tanh": {
        "title": "the tanh approximation of GELU",
        "value": "x·(1 + tanh(√(2/π)·(x + 0.044715·x³)))/2",
        "slope": "(1 + tanh u)/2 + x·u'·(1 - tanh² u)/2, where u = √(2/π)·(x + 0.044715·x³)",
        "zero": "-0.75246142207101626",
        "note": "It differs from the exact form by at most 4.732e-4 (near abs(x) = 2.70).",
        "sources": ["gelu"],
    },
    "gelu_sigmoid": {
        "title": 'the sigmoid approximation of GELU ("quick")',
        "value": "x·σ(1.702·x), where σ(v) = 1/(1 + exp(-v))",
        "slope": "σ(v)·(1 + v·σ(-v)), where v = 1.702·x and σ(v) = 1/(1 + exp(-v))",
        "zero": "-0.75115425544128895",
        "note": "It differs from the exact form by at most 0.020335 (near abs(x) = 2.27).",
        "sources": ["gelu"],
    },
    "silu": {
        "title": "SiLU (swish), the gate of SwiGLU",
        "value": "x·σ(x), where σ(v) = 1/(1 + exp(-v))",
        "slope": "σ(x)·(1 + x·σ(-x)), where σ(v) = 1/(1 + exp(-v))",
        "zero": "-1.2784645427610738",
        "note": "",
        "sources": ["silu", "swish"],
    },
}

SOURCES = {
    "gelu": """D. Hendrycks and K. Gimpel, "Gaussian Error Linear Units (GELUs)",
       arXiv:1606.08415, 2016.""",
    "silu": """S. Elfwing, E. Uchibe and K. Doya, "Sigmoid-weighted linear units for neural
       network function approximation in reinforcement learning", Neural Networks 107,
       3-11, 2018.""",
    "swish": """P. Ramachandran, B. Zoph and Q. V. Le, "Searching for activation functions",
       arXiv:1710.05941, 2017.""",
}

TEMPLATE = """\
{summary}

{formula}

Parameters
----------
{parameters}
out : ndarray, None, or tuple of ndarray and None, optional
    Where the result goes; it may be an input itself. Otherwise a new array is made.
where : array_like, optional
    Elements where this is false are not computed, and keep the value that `out` has there.
**kwargs
    As in every ufunc: `casting`, `order`, `dtype`, `subok`.

Returns
-------
{result} : ndarray or scalar
    {returns}

Notes
-----
{dtypes}

Error: {bounds};
over all inputs, subnormal results included. The truth is the formula above in exact arithmetic,
with exact constants. One ULP is the spacing of the dtype at the exact result.

Special values: {specials}

{note}{reference_marks}

References
----------
{references}

Examples
--------
{example}
"""

SPECIALS = {
    "": "+inf -> +inf, -inf -> -0.0, ±0 -> ±0, NaN -> NaN. A large negative number goes\nto -0.0.",
    "_grad": "+inf -> 1, -inf -> -0.0, ±0 -> 0.5, NaN -> NaN. The slope is zero at\n"
    "x = {zero}, and relative accuracy is kept around it too.",
    "_backward": "`x1` times the slope, by the rules of IEEE 754; the slope is 1 at +inf,\n"
    "-0.0 at -inf, 0.5 at ±0, NaN at NaN. It is zero at x2 = {zero}, and relative\n"
    "accuracy is kept around it too.",
}

KINDS = {
    "": {
        "summary": "{Title}, element by element.",
        "formula": "The value of {value}.",
        "parameters": "x : array_like\n    The argument.",
        "result": "y",
        "returns": "The value at each element of `x`, of the same shape.",
    },
    "_grad": {
        "summary": "The slope (first derivative) of {title}, element by element.",
        "formula": "The value of {slope}.",
        "parameters": "x : array_like\n    The argument.",
        "result": "y",
        "returns": "The slope at each element of `x`, of the same shape.",
    },
    "_backward": {
        "summary": "The backward pass of {title}, element by element.",
        "formula": "The incoming gradient times the slope: ``x1`` times the value, at x = ``x2``, "
        "of\n{slope}.",
        "parameters": "x1 : array_like\n    The gradient of the output, dy.\n"
        "x2 : array_like\n    The argument x of the forward pass. Broadcast against `x1`.",
        "result": "dx",
        "returns": "The gradient of the input, of the broadcast shape.",
    },
}


# The fused functions: by how they are made of a form (fused_shape). {f} is the form's name.
FUSED = {
    "bias": {
        "summary": "{f}(x1 + x2), element by element, in one pass over memory.",
        "formula": "The value, at x = ``x1 + x2``, of\n{value}.",
        "parameters": {
            "x1": "The argument before the bias.",
            "x2": "The bias. Broadcast against `x1`: one row of it serves all rows.",
        },
        "returns": {"y": "The value at each sum, of the broadcast shape."},
        "error": "the sum is rounded once (float16 and bfloat16: to float32), and the error is\n"
        "that at the rounded sum. float32 and float64: the bits of ``{f}(x1 + x2)``.",
        "specials": "those of the sum, by the rules of IEEE 754, and of `{f}` there.",
    },
    "bias_backward": {
        "summary": "The backward pass of {f}(x1 + x2), element by element.",
        "formula": "The incoming gradient times the slope: ``x1`` times the value, at\n"
        "x = ``x2 + x3``, of {slope}.",
        "parameters": {
            "x1": "The gradient of the output, dy.",
            "x2": "The argument x of the forward pass.",
            "x3": "The bias of the forward pass. All are broadcast against each other.",
        },
        "returns": {
            "dx": "The gradient of the sum, so of `x2`; summed over the axes along which `x3` was\n"
            "    broadcast, it is that of `x3`."
        },
        "error": "the sum is rounded once (float16 and bfloat16: to float32), and the error is\n"
        "that at the rounded sum. float32 and float64: the bits of ``{f}_backward(x1, x2 + x3)``.",
        "specials": "those of the sum, and of `{f}_backward` there.",
    },
    "glu": {
        "summary": "{f}(x1)·x2, a gated unit, element by element, in one pass over memory.",
        "formula": "``x2`` times the value, at x = ``x1``, of\n{value}.",
        "parameters": {
            "x1": "The gate's argument, a.",
            "x2": "What the gate multiplies, b. Broadcast against `x1`.",
        },
        "returns": {"y": "The products, of the broadcast shape."},
        "error": "float32 and float64: the bits of ``{f}(x1) * x2``. float16 and bfloat16: of\n"
        "float32 numbers, and one rounding. Where the value is subnormal its rounding is not in\n"
        "the bound.",
        "specials": "x2 times those of `{f}`, by the rules of IEEE 754: x1 = -inf gives\n"
        "``-0.0 * x2``, so NaN for an infinite `x2`.",
    },
    "glu_backward": {
        "summary": "The backward pass of {f}(x1)·x2, element by element.",
        "formula": "The incoming gradient times the two derivatives of {f}(x2)·x3: ``(x1 * x3)``\n"
        "times the slope, and ``x1`` times the value, at x = ``x2``. The value is\n{value},\n"
        "the slope {slope}.",
        "parameters": {
            "x1": "The gradient of the output, dy.",
            "x2": "The gate's argument of the forward pass, a.",
            "x3": "What the gate multiplied, b. All are broadcast against each other.",
        },
        "returns": {
            "da": "The gradient of `x2`, of the broadcast shape.",
            "db": "The gradient of `x3`, of the broadcast shape.",
        },
        "error": "float32 and float64: the bits of ``{f}_backward(x1 * x3, x2)`` and of\n"
        "``x1 * {f}(x2)``. float16 and bfloat16: of float32 numbers, and one rounding. Where\n"
        "``x1 * x3`` or the value is subnormal or overflows, its rounding is not in the bound.",
        "specials": "those of the products, by the rules of IEEE 754.",
    },
    "value_and_grad": {
        "summary": "{f}(x) and its slope (first derivative), element by element, in one pass.",
        "formula": "The value of {value};\nthe slope {slope}.",
        "parameters": {"x": "The argument."},
        "returns": {
            "y": "The value at each element of `x`, of the same shape.",
            "slope": "The slope there.",
        },
        "error": "the bits of `{f}` and `{f}_grad`.",
        "specials": "those of `{f}` and `{f}_grad`.",
    },
}

FUSED_TEMPLATE = """\
{summary}

{formula}

Parameters
----------
{parameters}
out : ndarray, None, or tuple of ndarray and None, optional
    Where the result goes; it may be an input itself. Otherwise a new array is made.
where : array_like, optional
    Elements where this is false are not computed, and keep the value that `out` has there.
**kwargs
    As in every ufunc: `casting`, `order`, `dtype`, `subok`.

Returns
-------
{returns}

Notes
-----
{dtypes}
No temporary array is made.

Error: {bounds};
{error}

Special values: {specials}

Examples
--------
{example}
"""


def fused_shape(name):
    """How a fused function is made: "geglu_tanh_backward" -> "glu_backward"."""
    if name.endswith("_value_and_grad"):
        return "value_and_grad"
    shape = "bias" if name.startswith("bias_") else "glu"
    return shape + ("_backward" if name.endswith("_backward") else "")


def _dtypes_text(bounds):
    return (
        f"dtypes: {', '.join(map(to_numpy, bounds))} each give their own\n(bfloat16: that of "
        "ml_dtypes, where it is installed); bool and every integer give float64.\nlongdouble, "
        "complex, object, str and datetime are a TypeError."
    )


def fused_docstring(name, form, bounds):
    """The docstring of a fused function, given its form and its bound in ULP for each dtype."""
    if form not in FORMS:
        return f"{name}, element by element.\n\nError: {bounds_text(bounds)}.\n"
    texts = {key: text for key, text in FORMS[form].items() if isinstance(text, str)}
    texts |= {"Title": texts["title"][0].upper() + texts["title"][1:], "f": form}
    shape = FUSED[fused_shape(name)]
    parameters = [f"{x} : array_like\n    {text}" for x, text in shape["parameters"].items()]
    returns = [f"{y} : ndarray or scalar\n    {text}" for y, text in shape["returns"].items()]
    arguments = ", ".join(["x", "0.5", "2.0"][: len(parameters)])
    call = f"fastgelu.{name}({arguments})"
    shown = (
        f"[y.shape for y in {call}]\n[(3,), (3,)]" if len(returns) == 2 else call + ".shape\n(3,)"
    )
    example = f">>> import fastgelu, numpy as np\n>>> x = np.array([-1.0, 0.0, 1.0])\n>>> {shown}"
    return FUSED_TEMPLATE.format(
        summary=shape["summary"].format(**texts),
        formula=shape["formula"].format(**texts),
        parameters="\n".join(parameters),
        returns="\n".join(returns),
        dtypes=_dtypes_text(bounds),
        bounds=textwrap.fill(bounds_text(bounds), 75),
        error=shape["error"].format(**texts),
        specials=shape["specials"].format(**texts),
        example=example,
    )


def split(name):
    """The form and the kind: "silu_grad" -> ("silu", "_grad")."""
    for kind in ("_grad", "_backward"):
        if name.endswith(kind):
            return name.removesuffix(kind), kind
    return name, ""


def bounds_text(bounds):
    """{"f32": 2.0, "f64": 2.5} -> "below 2 ULP in float32, below 2.5 ULP in float64"."""
    return ", ".join(
        f"correctly rounded in {to_numpy(dtype)}"
        if bound == 0.5
        else f"below {bound:g} ULP in {to_numpy(dtype)}"
        for dtype, bound in bounds.items()
    )


def docstring(name, bounds):
    """The docstring of a function, given its bound in ULP for each dtype.

    NumPy puts the signature in front. A form that has no entry in FORMS gets the bounds alone.
    """
    form, kind = split(name)
    if form not in FORMS:
        return f"{name}, element by element.\n\nError: {bounds_text(bounds)}.\n"
    texts = {key: text for key, text in FORMS[form].items() if isinstance(text, str)}
    texts["Title"] = texts["title"][0].upper() + texts["title"][1:]
    sources = FORMS[form]["sources"]
    marks = " ".join(f"[{i + 1}]_" for i in range(len(sources)))
    arguments = "1.0, x" if kind == "_backward" else "x"
    kind_texts = {key: text.format(**texts) for key, text in KINDS[kind].items()}
    return TEMPLATE.format(
        **kind_texts,
        dtypes=_dtypes_text(bounds),
        bounds=textwrap.fill(bounds_text(bounds), 75),
        specials=SPECIALS[kind].format(**texts),
        note=texts["note"] + "\n\n" if texts["note"] and not kind else "",
        reference_marks=f"Sources: {marks}.",
        references="\n".join(f".. [{i + 1}] {SOURCES[key]}" for i, key in enumerate(sources)),
        example=f">>> import fastgelu, numpy as np\n>>> x = np.array([-1.0, 0.0, 1.0])\n"
        f">>> fastgelu.{name}({arguments}).shape\n(3,)",
    )
