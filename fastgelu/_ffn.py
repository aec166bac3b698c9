# SPDX-License-Identifier: BSD-3-Clause
"""The feed-forward block of a Transformer by blocks of the hidden layer, forward and backward.

A hidden layer of up to AT_ONCE elements stays in the last-level cache as a whole, and is taken as
one. A larger one is taken by blocks, in the second-level cache: ROWS rows of the input at most, and
so many hidden units that a block has BLOCK elements. Each product packs the weights anew, so many
rows matter more than many units; the outputs of the blocks of units are added up. All rows are
taken for a block of units, then for the next, so that the weights pass through the caches once: 1
to 2 % less time than all units for a block of rows.

The hidden layer is kept transposed, (units, rows): W @ xᵀ is the product that NumPy's OpenBLAS is
best at. x @ Wᵀ takes 2.5 times as long for 4 rows, 1.5 times for 32, 5 % longer for 256. Weights in
Fortran's order are the transposed matrix as it lies in memory; then x @ Wᵀ is the better one, by a
fifth for 9 rows, and the hidden layer is (rows, units).

Blocks of 160 to 240 rows took as long as 256 for a width of 384, and up to 4 % longer for 768; 320
rows need more than a tenth of the hidden layer's memory at 2048 rows.
"""

import math

import numpy as np

from fastgelu._arguments import array, choose, result_dtype, type_name, working_dtype
from fastgelu._ufuncs import ALL_UFUNCS

ROWS = 256
BLOCK = 256 << 10  # 1 MiB in float32
WHOLE = 16  # so many rows and columns at once, in OpenBLAS's kernels
AT_ONCE = 6 * BLOCK  # a hidden layer that is taken as a whole: in the last-level cache
FEW = 3  # so many rows take less time one by one: a product with a vector packs nothing

_FLOAT32, _FLOAT64 = np.dtype(np.float32), np.dtype(np.float64)  # of native byte order

_NONE = {"none": ""}
_FORMS = {"none": "gelu", "tanh": "gelu_tanh", "sigmoid": "gelu_sigmoid"}


def _relu(x, out):
    np.maximum(x, 0, out=out)


def _relu_backward(dy, x, out):
    np.multiply(dy, x > 0, out=out)


def _reglu(a, b, out):
    np.maximum(a, 0, out=out)
    np.multiply(out, b, out=out)


def _form(activation, approximate):
    """The form's name: "gelu", "gelu_tanh", "gelu_sigmoid", "silu" or "relu"."""
    forms = {"gelu": _FORMS, "silu": _NONE, "relu": _NONE}
    choices = choose("activation", activation, forms)
    if choices is _NONE and approximate != "none":
        raise ValueError(
            f"approximate={approximate!r} is for activation='gelu'; with {activation!r} choose "
            "'none'"
        )
    return choose("approximate", approximate, choices) or activation


# Not the fused functions with a bias: their bits are the same, and a bias that is broadcast along
# rows as short as these costs them more than a sum in the cache does.
def _value(form):
    return _relu if form == "relu" else ALL_UFUNCS[form]


def _backward(form):
    return _relu_backward if form == "relu" else ALL_UFUNCS[form + "_backward"]


def _gated(form):
    if form == "relu":
        return _reglu
    return ALL_UFUNCS["swiglu" if form == "silu" else form.replace("gelu", "geglu", 1)]


# ---- arguments ---------------------------------------------------------------------------------


def _common_dtype(arrays):
    """float32 or float64, where all are NumPy's own arrays of it."""
    dtype = None
    for a in arrays:
        if type(a) is not np.ndarray or a.dtype is not (dtype or a.dtype):
            return None
        dtype = a.dtype
    return dtype if dtype is _FLOAT32 or dtype is _FLOAT64 else None


class _Layer:
    """What a call was given, checked, with the arrays in the dtype that is computed in."""

    def __init__(self, weights, biases, **arrays):
        """Of `weights` and `biases`, {label: array}, the last leads out; the rest lead in."""
        given = {**arrays, **weights, **{k: b for k, b in biases.items() if b is not None}}
        self.dtype = _common_dtype(given.values())
        if self.dtype is not None:  # the usual case, in a third of the time
            self.arrays, self.working = given, self.dtype
        else:
            self.arrays = {label: array(x, label) for label, x in given.items()}
            self.dtype = result_dtype(self.arrays.values())
            self.working = working_dtype(self.dtype)
        x = self.arrays["x"]
        if not x.ndim:
            raise ValueError("x is a scalar; its last axis must hold the features")
        self.check_weights(x, list(weights), list(biases))
        self.w = [self.cast(self.arrays[label]) for label in weights]
        self.b = [self.bias(label, w) for label, w in zip(biases, self.w)]
        self.shape = (*x.shape[:-1], self.w[-1].shape[0])
        self.x = x.reshape(math.prod(x.shape[:-1]), x.shape[-1])

    def check_weights(self, x, weights, biases):
        """Shapes, in the (out, in) layout; messages name the argument and what it should be."""
        for label in weights:
            w = self.arrays[label]
            if w.ndim != 2:
                raise ValueError(f"{label} has {w.ndim} dimensions; it must be a matrix (out, in)")
        *into, last = weights
        first = self.arrays[into[0]]
        for label in into:
            shape = self.arrays[label].shape
            if shape[1] != x.shape[-1]:
                raise ValueError(
                    f"{label} {shape} does not fit x {x.shape}: in the (out, in) layout it must "
                    f"have {x.shape[-1]} columns"
                )
            if shape != first.shape:
                raise ValueError(f"{label} {shape} must have the shape of {into[0]}, {first.shape}")
        shape = self.arrays[last].shape
        if shape[1] != first.shape[0]:
            raise ValueError(
                f"{last} {shape} does not fit {into[0]} {first.shape}: in the (out, in) layout it "
                f"must have {first.shape[0]} columns"
            )
        for label, weight in zip(biases, weights):
            b = self.arrays.get(label)
            want = self.arrays[weight].shape[:1]
            if b is not None and b.shape != want:
                raise ValueError(f"{label} has shape {b.shape}; with {weight} it must be {want}")

    def cast(self, x):
        return np.asarray(x, self.working)

    def bias(self, label, w):
        b = self.arrays.get(label)
        return np.zeros(w.shape[0], self.working) if b is None else self.cast(b)

    def output(self, label, out, shape):
        """(where the result goes, what is written): two views, or an array and a temporary one."""
        if out is None:
            result = np.empty(shape, self.dtype)
            return result, result
        if not isinstance(out, np.ndarray):
            raise TypeError(f"{label} must be an ndarray, not {type_name(out)}")
        if out.shape != shape:
            raise ValueError(f"{label} has shape {out.shape}; it must be {shape}")
        if not np.can_cast(self.dtype, out.dtype, "same_kind"):
            raise TypeError(f"{label} has dtype {out.dtype}, which {self.dtype} does not cast to")
        if not out.flags.writeable:
            raise ValueError(f"{label} is read-only")
        shared = any(np.may_share_memory(out, a) for a in self.arrays.values())
        if shared or not out.flags.c_contiguous or not out.dtype.isnative:
            return out, np.empty(shape, self.dtype)
        return out, out


def _blocks(count, most):
    """Slices of about equal length that make up `count`; multiples of what BLAS takes at once."""
    length = -(-count // max(1, -(-count // most)))
    whole = -(-length // WHOLE) * WHOLE
    length = max(1, whole if whole <= most else length)
    return [slice(start, min(start + length, count)) for start in range(0, count, length)]


def _units(hidden, rows):
    """The blocks of hidden units, for blocks of so many rows."""
    return _blocks(hidden, max(1, BLOCK // max(1, rows)))


def _length(block):
    return block.stop - block.start


def _finish(place, result):
    if place is not result:
        np.copyto(place, result, casting="same_kind")
    return place


class _Scratch:
    """Memory for matrices, reused from block to block."""

    def __init__(self, size, dtype):
        self.memory = np.empty(size, dtype)

    def __call__(self, *shape):
        return self.memory[: math.prod(shape)].reshape(shape)


def _apart(columns, dtype):
    """The columns in memory of a matrix of so many that is read down them.

    Rows a large power of two apart share a few sets of the first-level cache: adding the transposed
    matrix took 2 to 5 times as long for 256 to 1,024 columns.
    """
    return columns + 4 if columns * dtype.itemsize % 64 == 0 else columns


# ---- forward -----------------------------------------------------------------------------------


def ffn(x, w1, b1, w2, b2, approximate="none", activation="gelu", out=None):
    """The feed-forward block of a Transformer: act(x w1ᵀ + b1) w2ᵀ + b2.

    Works on blocks of the hidden layer, of up to 256 rows and 1 MiB (float32), so that they stay in
    the processor's cache and it does not exist whole, unless it has 6 MiB at most. NumPy's BLAS
    does the products.

    Parameters
    ----------
    x : array_like, shape (..., n)
        The input; all axes but the last are rows.
    w1 : array_like, shape (hidden, n)
        The weights that lead into the hidden layer, in PyTorch's (out, in) layout.
    b1 : array_like, shape (hidden,), or None
        The bias of the hidden layer.
    w2 : array_like, shape (m, hidden)
        The weights that lead out of it, (out, in).
    b2 : array_like, shape (m,), or None
        The bias of the output.
    approximate : {"none", "tanh", "sigmoid"}
        Which GELU, as in `gelu`.
    activation : {"gelu", "silu", "relu"}
        What the hidden layer goes through. `approximate` is for "gelu".
    out : ndarray, shape (..., m), optional
        Where the result goes; may be `x` itself. C-contiguous and apart from the inputs it saves
        an array of that size.

    Returns
    -------
    y : ndarray, shape (..., m)
        The output, of the dtype that NumPy's promotion gives for all arrays; float64 for integers.

    Raises
    ------
    ValueError
        Shapes do not fit, or `approximate` or `activation` is none of the choices. The message
        names the argument.
    TypeError
        A dtype that the ufuncs do not take, a masked array, or an array in the memory of a device.

    Notes
    -----
    float16 and bfloat16 are computed in float32, each element of the output rounded once; the
    weights are converted at each call, so convert them yourself if there are many.

    The activation gives the same bits whatever the number of threads. BLAS does not promise that
    for its products: the number of threads and of rows may change their last bits.

    Memory beyond the output: a block of the hidden layer, and the output of 256 rows; or the hidden
    layer of 6 MiB at most, and as much as the output.

    Weights in Fortran's order (`numpy.asfortranarray`) are faster for few rows, if many layers take
    turns in the cache.

    Examples
    --------
    >>> import numpy as np
    >>> from fastgelu import functional
    >>> x, w1, b1 = np.ones((2, 3)), np.ones((4, 3)), np.full(4, -3.0)
    >>> functional.ffn(x, w1, b1, np.ones((1, 4)), np.ones(1))
    array([[1.],
           [1.]])
    """
    form = _form(activation, approximate)
    layer = _Layer({"w1": w1, "w2": w2}, {"b1": b1, "b2": b2}, x=x)
    (w1, w2), (b1, b2) = layer.w, layer.b
    value = _value(form)

    def hidden(x, units, by_rows, h):
        _linear(x, w1[units], b1[units], by_rows, h)
        value(h, out=h)

    return _forward(layer, out, w1.shape[0], 1, hidden, w2, b2)


def ffn_glu(
    x,
    w_gate,
    w_up,
    w_down,
    b_gate=None,
    b_up=None,
    b_down=None,
    approximate="none",
    activation="silu",
    out=None,
):
    """The gated feed-forward block: (act(x w_gateᵀ + b_gate) · (x w_upᵀ + b_up)) w_downᵀ + b_down.

    With SiLU that of LLaMA and its relatives (SwiGLU), with GELU that of Gemma and T5 v1.1 (GEGLU).
    As `ffn`, it works on blocks of rows.

    Parameters
    ----------
    x : array_like, shape (..., n)
        The input; all axes but the last are rows.
    w_gate, w_up : array_like, shape (hidden, n)
        The weights of the gate and of the value, in PyTorch's (out, in) layout: ``gate_proj`` and
        ``up_proj`` of HuggingFace, w1 and w3 of LLaMA.
    w_down : array_like, shape (m, hidden)
        The weights that lead out: ``down_proj``, w2.
    b_gate, b_up : array_like, shape (hidden,), optional
        Their biases.
    b_down : array_like, shape (m,), optional
        The bias of the output.
    approximate : {"none", "tanh", "sigmoid"}
        Which GELU, as in `gelu`.
    activation : {"silu", "gelu", "relu"}
        What the gate goes through. `approximate` is for "gelu".
    out : ndarray, shape (..., m), optional
        Where the result goes, as in `ffn`.

    Returns
    -------
    y : ndarray, shape (..., m)
        The output, of the dtype that NumPy's promotion gives for all arrays; float64 for integers.

    Raises
    ------
    ValueError, TypeError
        As in `ffn`.

    Notes
    -----
    Those of `ffn` hold.
    """
    form = _form(activation, approximate)
    weights = {"w_gate": w_gate, "w_up": w_up, "w_down": w_down}
    biases = {"b_gate": b_gate, "b_up": b_up, "b_down": b_down}
    layer = _Layer(weights, biases, x=x)
    (w_gate, w_up, w_down), (_, _, b_down) = layer.w, layer.b
    added = [layer.b[i] if b is not None else None for i, b in enumerate((b_gate, b_up))]
    gated = _gated(form)

    def hidden(x, units, by_rows, h, up):
        for w, b, place in ((w_gate, added[0], h), (w_up, added[1], up)):
            _linear(x, w[units], None if b is None else b[units], by_rows, place)
        gated(h, up, out=h)

    return _forward(layer, out, w_gate.shape[0], 2, hidden, w_down, b_down)


def _linear(x, w, b, by_rows, out):
    """x wᵀ + b, where x and out are rows; or columns, or one of them."""
    if by_rows:
        np.matmul(x, w.T, out=out)
    else:
        np.matmul(w, x, out=out)
    if b is not None:
        out += b if by_rows or out.ndim == 1 else b[:, None]


def _forward(layer, out, width, count, hidden, w, b):
    """The output, where hidden(x, units, by_rows, h, ...) puts some units of the hidden layer for x
    into h, as rows or as columns."""
    place, result = layer.output("out", out, layer.shape)
    rows, outputs = len(layer.x), w.shape[0]
    y = result.reshape(rows, outputs)
    if rows <= FEW:
        scratch = [np.empty(width, layer.working) for _ in range(count)]
        for i in range(rows):
            hidden(layer.cast(layer.x[i]), slice(None), False, *scratch)
            y[i] = np.matmul(w, scratch[0]) + b
        return _finish(place, result)

    by_rows = not w.flags.c_contiguous  # that in which BLAS takes weights as they are
    exact = result.dtype == layer.working
    if rows * width <= AT_ONCE:
        shape = (rows, width) if by_rows else (width, rows)
        h, *others = (np.empty(shape, layer.working) for _ in range(count))
        x = layer.cast(layer.x)
        hidden(x if by_rows else x.T, slice(None), by_rows, h, *others)
        if by_rows and exact:
            np.matmul(h, w.T, out=y)
            y += b
        else:
            if by_rows:
                y_exact = np.matmul(h, w.T)
            else:
                columns = np.empty((outputs, _apart(rows, layer.working)), layer.working)
                y_exact = np.matmul(w, h, out=columns[:, :rows]).T
            if exact:
                np.add(y_exact, b, out=y)
            else:
                y[...] = y_exact + b
        return _finish(place, result)

    row_blocks = _blocks(rows, ROWS)
    most = max(map(_length, row_blocks))
    unit_blocks = _units(width, most)
    size = most * max(map(_length, unit_blocks), default=0)
    scratch = [_Scratch(size, layer.working) for _ in range(count)]
    in_place = by_rows and len(unit_blocks) == 1
    across = most if by_rows else _apart(most, layer.working)
    product = _Scratch(0 if in_place else across * outputs, layer.working)

    def add(x, units, added, yb):
        """What some units give the rows x, on top of what is added."""
        n, m = len(x), _length(units)
        h, *others = (s(n, m) if by_rows else s(m, n) for s in scratch)
        hidden(x if by_rows else x.T, units, by_rows, h, *others)
        if in_place:
            np.add(np.matmul(h, w.T, out=yb), added, out=yb)
        elif by_rows:
            np.add(np.matmul(h, w[:, units].T, out=product(n, outputs)), added, out=yb)
        else:
            columns = product(outputs, across)[:, :n]
            np.add(np.matmul(w[:, units], h, out=columns).T, added, out=yb)

    if not unit_blocks:
        y[...] = b
    elif exact and layer.x.dtype == layer.working:
        # Weights are more than rows: they pass through the caches once, and the rows often.
        for units in unit_blocks:
            for block in row_blocks:
                add(layer.x[block], units, y[block] if units.start else b, y[block])
    else:
        # Rows are converted once, and sums made where they are not rounded to 16 bits.
        total = None if exact else _Scratch(most * outputs, layer.working)
        for block in row_blocks:
            x = layer.cast(layer.x[block])
            yb = y[block] if exact else total(len(x), outputs)
            for units in unit_blocks:
                add(x, units, yb if units.start else b, yb)
            if not exact:
                y[block] = yb
    return _finish(place, result)


# ---- backward ----------------------------------------------------------------------------------


def ffn_backward(grad_output, x, w1, b1, w2, b2, approximate="none", activation="gelu", out=None):
    """The backward pass of `ffn`.

    The hidden layer is computed anew, block of rows by block of rows, so that nothing of the
    forward pass needs to be kept.

    Parameters
    ----------
    grad_output : array_like, shape (..., m)
        The gradient of the output.
    x, w1, b1, w2, b2, approximate, activation
        As in the forward pass, `ffn`.
    out : tuple of five ndarrays or None, optional
        Where the results go, in their order; may be inputs themselves.

    Returns
    -------
    dx, dw1, db1, dw2, db2 : ndarray
        The gradients, each of the shape of its argument, summed over all rows for weights and
        biases. For a bias that is None, what it would be for a bias of zeros.

    Raises
    ------
    ValueError, TypeError
        As in `ffn`; or `grad_output` does not have the shape of the output.

    Notes
    -----
    float16 and bfloat16 are computed and summed in float32, each result rounded once. Memory beyond
    the results: a few blocks of the hidden layer, and as much as the results for the sums if they
    are of 16 bits.

    Examples
    --------
    >>> import numpy as np
    >>> from fastgelu import functional
    >>> x, w1, b1 = np.ones((2, 3)), np.zeros((4, 3)), np.zeros(4)
    >>> grads = functional.ffn_backward(np.ones((2, 1)), x, w1, b1, np.ones((1, 4)), np.zeros(1))
    >>> [g.shape for g in grads]
    [(2, 3), (4, 3), (4,), (1, 4), (1,)]
    """
    form = _form(activation, approximate)
    layer = _Layer({"w1": w1, "w2": w2}, {"b1": b1, "b2": b2}, x=x, grad_output=grad_output)
    grad = layer.arrays["grad_output"]
    if grad.shape != layer.shape:
        raise ValueError(
            f"grad_output has shape {grad.shape}; the output of the forward pass has {layer.shape}"
        )
    (w1, w2), (b1, b2) = layer.w, layer.b
    if out is None:
        out = (None,) * 5
    elif not isinstance(out, tuple) or len(out) != 5:
        raise TypeError(f"out must be a tuple of five arrays or None, not {type_name(out)}")
    shapes = layer.arrays["x"].shape, w1.shape, b1.shape, w2.shape, b2.shape
    pairs = [layer.output(f"out[{i}]", o, shape) for i, (o, shape) in enumerate(zip(out, shapes))]
    value, backward = _value(form), _backward(form)

    rows, width = len(layer.x), w1.shape[0]
    grad = grad.reshape(rows, w2.shape[0])
    totals = [
        result if result.dtype == layer.working else np.empty(result.shape, layer.working)
        for _, result in pairs
    ]
    dx, dw1, db1, dw2, db2 = totals
    dx = dx.reshape(rows, w1.shape[1])
    for total in totals:
        total[...] = 0
    row_blocks, unit_blocks = _blocks(rows, ROWS), _units(width, min(rows, ROWS))
    most = max(map(_length, row_blocks), default=0)
    units_most = max(map(_length, unit_blocks), default=0)
    scratch = [_Scratch(most * units_most, layer.working) for _ in range(3)]
    product = _Scratch(max(w1.shape[1], w2.shape[0]) * max(most, units_most), layer.working)

    def add(total, left, right):
        """Total += left @ right. NumPy has no product that adds to what is there."""
        total += np.matmul(left, right, out=product(*total.shape))

    for block in row_blocks:
        n = _length(block)
        xb, gb = layer.cast(layer.x[block]), layer.cast(grad[block])
        db2 += gb.sum(axis=0)
        for units in unit_blocks:
            z, h, dh = (s(_length(units), n) for s in scratch)
            np.matmul(w1[units], xb.T, out=z)
            z += b1[units, None]
            value(z, out=h)
            add(dw2[:, units], gb.T, h.T)
            np.matmul(w2[:, units].T, gb.T, out=dh)
            backward(dh, z, out=dh)
            add(dw1[units], dh, xb)
            db1[units] += dh.sum(axis=1)
            add(dx[block], dh.T, w1[units])
    for (_, result), total in zip(pairs, totals):
        if total is not result:
            result[...] = total
    return tuple(_finish(place, result) for place, result in pairs)
