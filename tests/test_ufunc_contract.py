# SPDX-License-Identifier: BSD-3-Clause
"""The functions are ufuncs, and keep what NumPy's ufuncs keep."""

import pickle
import pickletools

import numpy as np
import oracle
import pytest

import fastgelu

INTEGERS = "?bBhHiIlLqQ"
FLOATS = {"f16": "e", "f32": "f", "f64": "d"}  # bfloat16 has no character of its own


@pytest.fixture(autouse=True)
def quiet():
    with np.errstate(over="ignore", invalid="ignore"):
        yield


@pytest.fixture
def f(name):
    return getattr(fastgelu, name)


@pytest.fixture
def backward(binary_name):
    return getattr(fastgelu, binary_name)


@pytest.fixture
def unary_f(unary_name):
    return getattr(fastgelu, unary_name)


def inputs(f, shape=(40,), dtype=np.float64, seed=2):
    rng = np.random.default_rng(seed)
    return [rng.normal(0, 3, shape).astype(dtype) for _ in range(f.nin)]


def equal(got, want):
    """Same dtype, shape and encodings."""
    got, want = np.asarray(got), np.asarray(want)
    return (
        got.dtype == want.dtype
        and got.shape == want.shape
        and np.array_equal(oracle.bits_of(got), oracle.bits_of(want))
    )


def dtypes_of(name):
    return [dtype for n, dtype, *_ in fastgelu.functions() if n == name]


# ---- what it is --------------------------------------------------------------------------


def test_is_a_ufunc(f, name):
    assert isinstance(f, np.ufunc)
    assert f.__name__ == name
    assert name in fastgelu.__all__
    assert f.nin == (2 if name.endswith("_backward") else 1)
    assert f.nout == 1
    assert f.identity is None and f.signature is None
    assert len(f.__doc__) > 100


def test_types(f, name):
    """Integers go to float64, each float to itself; bfloat16 is registered apart."""
    floats = [c for d, c in FLOATS.items() if d.replace("f", "float") in dtypes_of(name)]
    want = [f"{c * f.nin}->d" for c in INTEGERS] + [f"{c * f.nin}->{c}" for c in floats]
    assert [t for t in f.types if "E" not in t] == want


def test_registry_and_functions_are_the_same():
    ufuncs = {n for n in fastgelu.__all__ if isinstance(getattr(fastgelu, n), np.ufunc)}
    fused = {name for name, *_ in fastgelu.fused_functions()}  # test_fused.py has these
    assert ufuncs - fused == {name for name, *_ in fastgelu.functions()}
    assert ufuncs - fused == {form + k for form in oracle.FORMS for k in ("", "_grad", "_backward")}


# ---- out, where, casting, dtype, order, subok, signature ---------------------------------


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_out(f, dtype):
    args = inputs(f, dtype=dtype)
    want = f(*args)
    out = np.full(40, 7, dtype)
    assert f(*args, out=out) is out
    assert equal(out, want)
    out[:] = 7
    assert f(*args, out=(out,)) is out
    assert equal(out, want)
    out[:] = 7
    assert f(*args, out) is out
    assert equal(out, want)


def test_out_of_a_wider_dtype(f):
    args = inputs(f, dtype=np.float32)
    out = np.empty(40, np.float64)
    f(*args, out=out)
    assert equal(out, f(*args).astype(np.float64))


def test_out_of_a_narrower_dtype_needs_casting(f):
    args = inputs(f)
    out = np.empty(40, np.float32)
    f(*args, out=out)  # same_kind, NumPy's default
    assert equal(out, f(*args).astype(np.float32))
    with pytest.raises(TypeError, match="Cannot cast"):
        f(*args, out=out, casting="safe")
    with pytest.raises(TypeError, match="Cannot cast"):
        f(*args, out=np.empty(40, np.int64))


def test_out_of_a_wrong_shape(f):
    with pytest.raises(ValueError, match=r"broadcast|operand"):
        f(*inputs(f), out=np.empty(39))


def test_out_is_broadcast_to(f):
    args = inputs(f, (4,))
    out = np.empty((3, 4))
    assert equal(f(*args, out=out), np.stack([f(*args)] * 3))


@pytest.mark.parametrize("dtype", [np.float32, np.float64, np.int16])
def test_where(f, dtype):
    args = inputs(f, dtype=dtype)
    want = f(*args)
    rng = np.random.default_rng(4)
    for density in (0, 0.1, 0.5, 0.9, 1):
        mask = rng.random(40) < density
        out = np.full(40, 7, want.dtype)
        f(*args, out=out, where=mask)
        assert equal(out, np.where(mask, want, out.dtype.type(7)))


def test_where_with_strides(f):
    args = inputs(f, (4, 6))
    mask = np.array([True, False, True, True, False, True])
    out = np.full((6, 4), 7.0).T
    f(*args, out=out, where=mask)
    assert equal(out, np.where(mask, f(*args), 7.0))


def test_where_that_hides_an_overflow(backward):
    """An element that is masked out raises no flag."""
    dy, x = np.full(9, 1.75e308), np.full(9, 2.0)
    with np.errstate(over="raise"):
        out = backward(dy, x, where=np.zeros(9, bool), out=np.ones(9))
        with pytest.raises(FloatingPointError):
            backward(dy, x)
    assert (out == 1).all()


def test_dtype(f):
    args = inputs(f)
    got = f(*args, dtype=np.float32)
    assert equal(got, f(*(a.astype(np.float32) for a in args)))
    single = [a.astype(np.float32) for a in args]
    assert equal(f(*single, dtype="f8"), f(*(a.astype(np.float64) for a in single)))
    with pytest.raises(TypeError):
        f(*args, dtype=np.int32, casting="no")
    with pytest.raises(TypeError):
        f(*args, dtype=np.complex128)


def test_casting(f):
    args = inputs(f)
    with pytest.raises(TypeError):
        f(*args, dtype=np.float32, casting="safe")
    assert f(*args, casting="no").dtype == np.float64
    swapped = [a.astype(a.dtype.newbyteorder()) for a in args]
    with pytest.raises(TypeError):
        f(*swapped, casting="no")
    assert equal(f(*swapped, casting="equiv"), f(*args))


def test_signature(f):
    args = inputs(f, dtype=np.float32)
    doubled = f(*(a.astype(np.float64) for a in args))
    assert equal(f(*args, signature="d" * f.nin + "->d"), doubled)
    assert equal(f(*args, signature=("d",) * (f.nin + 1)), doubled)
    for wrong in ("F" * f.nin + "->F", "d" * f.nin + "->f"):
        with pytest.raises(TypeError):
            f(*args, signature=wrong)


@pytest.mark.parametrize("order", ["C", "F", "A", "K"])
def test_order(f, order):
    args = [np.asfortranarray(a) for a in inputs(f, (5, 7))]
    got = f(*args, order=order)
    want = np.add(args[0], 1.0, order=order)
    assert got.strides == want.strides
    assert equal(got, f(*map(np.ascontiguousarray, args)))


class Tagged(np.ndarray):
    __array_priority__ = 20.0

    def __array_finalize__(self, parent):
        self.tag = getattr(parent, "tag", None)


def test_subclasses(f):
    args = inputs(f)
    tagged = args[0].view(Tagged)
    tagged.tag = "here"
    got = f(tagged, *args[1:])
    assert type(got) is Tagged and got.tag == "here"
    assert equal(got.view(np.ndarray), f(*args))
    assert type(f(tagged, *args[1:], subok=False)) is np.ndarray
    if f.nin == 2:
        assert type(f(args[0], tagged)) is Tagged


def test_wrong_number_of_arguments(f):
    with pytest.raises(TypeError):
        f()
    with pytest.raises(TypeError):
        f(*[1.0] * (f.nin + 2))
    with pytest.raises(TypeError):
        f(*[1.0] * f.nin, no_such_argument=1)


# ---- dtypes ------------------------------------------------------------------------------


@pytest.mark.parametrize("character", INTEGERS)
def test_integers_and_bool_go_to_float64(f, character):
    dtype = np.dtype(character)
    low, high = (0, 1) if character == "?" else (np.iinfo(dtype).min, np.iinfo(dtype).max)
    values = [v for v in (low, low + 1, -9, -3, -1, 0, 1, 2, 6, 100, high - 1, high)]
    values = np.array([v for v in values if low <= v <= high], dtype)
    args = [values, values[::-1]][: f.nin]
    got = f(*args)
    assert got.dtype == np.float64
    assert equal(got, f(*(a.astype(np.float64) for a in args)))
    assert type(f(*[values[1]] * f.nin)) is np.float64
    long = [np.resize(a, 1000) for a in args]
    assert equal(f(*long), np.resize(got, 1000))
    assert equal(f(*(a[::-3] for a in long)), f(*(a[::-3].astype(float) for a in long)))


def test_any_byte_but_zero_is_true(f):
    """As NumPy reads a bool array that was made from other bytes."""
    bytes_ = np.array([0, 1, 2, 128, 255], np.uint8).view(np.bool_)
    assert equal(f(*[bytes_] * f.nin), f(*[np.array([0.0, 1, 1, 1, 1])] * f.nin))


def test_two_dtypes(backward):
    for a, b, want in [
        ("f4", "f4", "f4"),
        ("f4", "f8", "f8"),
        ("f8", "f4", "f8"),
        ("i4", "i4", "f8"),
        ("i1", "f4", "f4"),
        ("f4", "u2", "f4"),
        ("i4", "f4", "f8"),
        ("f8", "i8", "f8"),
        ("u8", "i8", "f8"),
        ("?", "f4", "f4"),
        ("f2", "f2", "f2"),
        ("f2", "f4", "f4"),
        ("f8", "f2", "f8"),
        ("i1", "f2", "f2"),  # both go to float16 safely, before float32
        ("?", "f2", "f2"),
        ("f2", "u2", "f4"),
        ("i4", "f2", "f8"),
    ]:
        got = backward(np.ones(3, a), np.ones(3, b))
        assert got.dtype == np.dtype(want), (a, b)


def test_float16(f, name):
    assert "float16" in dtypes_of(name)
    assert f(*inputs(f, dtype=np.float16)).dtype == np.float16


def test_python_scalars(f):
    for value in (1.5, 2, True):
        got = f(*[value] * f.nin)
        assert type(got) is np.float64
        assert got == f(*[np.float64(value)] * f.nin)
    assert f(*[[0.5, 1]] * f.nin).dtype == np.float64
    # Too large for any integer dtype: for two of them NumPy says so, of one it makes an object.
    with pytest.raises((TypeError, OverflowError)):
        f(*[2**70] * f.nin)


def test_python_scalars_do_not_widen_float32(backward):
    x = np.array([-1.0, 2.0], np.float32)
    for scalar in (2.0, 3):
        assert equal(backward(scalar, x), backward(np.float32(scalar), x))
        assert equal(backward(x, scalar), backward(x, np.float32(scalar)))


UNSUPPORTED = {
    "longdouble": np.ones(3, np.longdouble),
    "complex64": np.ones(3, np.complex64),
    "complex128": np.ones(3, np.complex128),
    "clongdouble": np.ones(3, np.clongdouble),
    "str": np.array(["1.0"]),
    "bytes": np.array([b"1.0"]),
    "object": np.array([1.0, 2.0], object),
    "datetime64": np.array(["2020-01-01"], "M8[D]"),
    "timedelta64": np.array([1], "m8[s]"),
    "void": np.zeros(2, "V4"),
    "record": np.zeros(2, [("a", "f4")]),
    "none": None,
    "a string": "1.0",
    "a complex": 1j,
    "a ragged list": None,
}
UNSUPPORTED["a ragged list"] = [None, 1.0]


@pytest.mark.parametrize("kind", UNSUPPORTED)
def test_unsupported_dtypes_are_type_errors(f, kind):
    value = UNSUPPORTED[kind]
    with pytest.raises(TypeError):
        f(*[value] * f.nin)
    if f.nin == 2:
        with pytest.raises(TypeError):
            f(value, 1.0)
        with pytest.raises(TypeError):
            f(1.0, value)


# ---- shapes ------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_scalars_and_0d_give_scalars(f, dtype):
    for value in (dtype(1.5), np.array(1.5, dtype)):
        got = f(*[value] * f.nin)
        assert type(got) is dtype
    out = np.empty((), dtype)
    assert f(*[dtype(1.5)] * f.nin, out=out) is out
    assert equal(out, f(*[dtype(1.5)] * f.nin))


@pytest.mark.parametrize("shape", [(0,), (0, 5), (5, 0), (2, 0, 3)])
def test_empty(f, shape):
    for dtype in (np.float32, np.float64, np.int8):
        got = f(*[np.empty(shape, dtype)] * f.nin)
        assert got.shape == shape
        assert got.dtype == (np.float32 if dtype is np.float32 else np.float64)


def test_many_dimensions(f):
    args = inputs(f, (2, 3, 1, 4, 5))
    want = f(*(a.ravel() for a in args)).reshape(args[0].shape)
    assert equal(f(*args), want)
    axes = (3, 0, 4, 2, 1)
    assert equal(f(*(a.transpose(axes) for a in args)), want.transpose(axes))
    assert equal(f(*(a[::-1, ::2, :, 1:, ::-2] for a in args)), want[::-1, ::2, :, 1:, ::-2])


def test_broadcasting(backward):
    dy, x = np.random.default_rng(6).normal(size=(2, 4, 5))
    for a, b in [
        (dy, x[0]),
        (dy[:, :1], x),
        (dy[:, :1], x[0]),
        (dy[0, 0], x),
        (dy, x[1, 2]),
        (dy[:, None], x[None]),
        (np.broadcast_to(dy[0], (4, 5)), x),
    ]:
        wide = [np.array(v) for v in np.broadcast_arrays(a, b)]
        assert equal(backward(a, b), backward(*wide))
    with pytest.raises(ValueError, match="broadcast"):
        backward(dy, x[:, :4])


# ---- memory ------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_strides(f, dtype):
    args = inputs(f, 1000, dtype)
    want = f(*args)
    for step in (-5, -2, -1, 2, 3, 7):
        assert equal(f(*(a[::step] for a in args)), want[::step])
    if f.nin == 2:
        mixed = f(args[0][::-2], args[1][:500])
        assert equal(mixed, f(args[0][::-2].copy(), args[1][:500].copy()))


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_zero_strides(f, dtype):
    args = [np.broadcast_to(a, (100, 3)) for a in inputs(f, (3,), dtype)]
    assert args[0].strides[0] == 0
    assert equal(f(*args), f(*map(np.array, args)))
    args = [np.broadcast_to(a[:, None], (3, 100)) for a in inputs(f, (3,), dtype)]
    assert equal(f(*args), f(*map(np.array, args)))


@pytest.mark.parametrize("dtype", ["f4", "f8"])
@pytest.mark.parametrize("aligned", [False, True])
def test_record_fields(f, dtype, aligned):
    record = np.dtype([("tag", "u1"), ("a", dtype), ("b", dtype), ("y", dtype)], align=aligned)
    table = np.zeros(777, record)
    if not aligned:
        assert not table["a"].flags.aligned
    args = inputs(f, 777, dtype)
    for field, a in zip("ab", args, strict=False):
        table[field] = a
    table["tag"] = 9
    fields = [table[field] for field in "ab"[: f.nin]]
    want = f(*args)
    assert equal(f(*fields), want)
    f(*fields, out=table["y"])
    assert equal(table["y"], want)
    f(*fields, out=table["a"])
    assert equal(table["a"], want)
    assert (table["tag"] == 9).all()
    assert equal(f(*(x[::-2] for x in fields)), f(*(x[::-2].copy() for x in fields)))


@pytest.mark.parametrize("dtype", [np.float32, np.float64, np.int32])
def test_byte_swapped(f, dtype):
    args = inputs(f, 10_000, dtype)
    want = f(*args)
    swapped = [a.astype(a.dtype.newbyteorder()) for a in args]
    got = f(*swapped)
    assert got.dtype.isnative
    assert equal(got, want)
    out = np.empty(len(want), want.dtype.newbyteorder())
    f(*args, out=out)
    assert equal(out.astype(want.dtype), want)


def test_read_only(f):
    args = inputs(f)
    want = f(*args)
    for a in args:
        a.flags.writeable = False
    assert equal(f(*args), want)
    with pytest.raises(ValueError, match="read-only"):
        f(*args, out=args[0])


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_overlap(f, dtype):
    """The result of an operation on overlapping views is that on copies."""
    n = 500
    base = np.random.default_rng(8).normal(0, 3, 3 * n).astype(dtype)
    fixed = np.random.default_rng(9).normal(0, 3, n).astype(dtype)
    views = {
        "ahead": (slice(0, n), slice(1, n + 1)),
        "behind": (slice(1, n + 1), slice(0, n)),
        "far": (slice(0, n), slice(n - 3, 2 * n - 3)),
        "block": (slice(0, n), slice(8, n + 8)),
        "reversed": (slice(None, n, 1), slice(n - 1, None, -1)),
        "spread": (slice(0, n), slice(0, 2 * n, 2)),
        "gathered": (slice(0, 2 * n, 2), slice(0, n)),
        "interleaved": (slice(0, 2 * n, 2), slice(1, 2 * n, 2)),
        "thirds": (slice(0, 3 * n, 3), slice(0, 2 * n, 2)),
    }
    for case, (source, target) in views.items():
        for position in range(f.nin):
            data = base.copy()
            args = [fixed] * f.nin
            args[position] = data[source]
            want = f(*(a.copy() for a in args))
            expected = data.copy()
            expected[target] = want
            f(*args, out=data[target])
            assert equal(data, expected), (case, position)
        data = base.copy()
        want = f(*[data[source].copy()] * f.nin)
        f(*[data[source]] * f.nin, out=data[target])
        assert equal(data[target], want), case


def test_two_inputs_overlap_the_output(backward):
    data = np.random.default_rng(10).normal(0, 3, 600)
    want = backward(data[:500].copy(), data[100:].copy())
    backward(data[:500], data[100:], out=data[50:550])
    assert equal(data[50:550], want)


def test_a_matrix_onto_its_transpose(f):
    square = inputs(f, (40, 40))[0]
    want = f(*[square.copy()] * f.nin)
    f(*[square] * f.nin, out=square.T)
    assert equal(square.T, want)


def test_inputs_are_left_alone(f):
    args = inputs(f, 1000)
    before = [a.copy() for a in args]
    f(*args)
    assert all(equal(a, b) for a, b in zip(args, before, strict=True))


def test_nothing_outside_the_output_is_written(f):
    for n in (1, 3, 8, 17, 64, 100):
        buffer = np.full(n + 64, 7.0)
        f(*inputs(f, n), out=buffer[32 : 32 + n])
        assert (buffer[:32] == 7).all() and (buffer[32 + n :] == 7).all()


# ---- reduce and its kin ------------------------------------------------------------------


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_reduce_accumulate(backward, dtype):
    """As Python would do it: f(f(f(a0, a1), a2), a3) ..."""
    a = np.random.default_rng(12).normal(1, 1, 50).astype(dtype)
    want = [a[0]]
    for value in a[1:]:
        want.append(backward(want[-1], value))
    assert equal(backward.accumulate(a), np.array(want, dtype))
    got = backward.reduce(a)
    assert type(got) is dtype
    assert equal(got, want[-1])
    assert equal(backward.reduce(a, initial=2.0), backward.reduce(np.insert(a, 0, 2.0)))
    table = a.reshape(5, 10)
    rows = np.array([backward.reduce(row) for row in table])
    columns = np.array([backward.reduce(column) for column in table.T.copy()])
    assert equal(backward.reduce(table, axis=1), rows)
    assert equal(backward.reduce(table, axis=0), columns)
    assert equal(backward.reduce(table), columns)
    assert equal(backward.reduce(table, axis=1, keepdims=True), rows[:, None])
    running = [backward.accumulate(column) for column in table.T.copy()]
    assert equal(backward.accumulate(table, axis=0), np.array(running).T)
    inverted = np.array([backward.accumulate(row[::-1]) for row in table])
    assert equal(backward.accumulate(table[:, ::-1], axis=1), inverted)


def test_accumulate_in_place(backward):
    a = np.random.default_rng(13).normal(1, 1, 300)
    want = backward.accumulate(a)
    backward.accumulate(a, out=a)
    assert equal(a, want)


def test_reduce_needs_a_first_element(backward):
    with pytest.raises(ValueError, match="identity"):
        backward.reduce(np.empty(0))
    assert backward.reduce(np.empty(0), initial=3.0) == 3.0
    assert equal(backward.reduce(np.array([2.0])), np.float64(2.0))


def test_reduceat(backward):
    a = np.random.default_rng(14).normal(1, 1, 30)
    parts = [0, 7, 8, 20]
    want = [backward.reduce(part) for part in np.split(a, parts[1:])]
    assert equal(backward.reduceat(a, parts), np.array(want))


def test_reduce_of_integers(backward):
    a = np.array([3, -1, 2, 5])
    assert equal(backward.reduce(a), backward.reduce(a.astype(np.float64)))
    assert equal(backward.accumulate(a), backward.accumulate(a.astype(np.float64)))


def test_outer(backward):
    a, b = np.random.default_rng(15).normal(size=(2, 7))
    assert equal(backward.outer(a, b[:4]), backward(a[:, None], b[None, :4]))


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_at(f, dtype):
    """Repeated indices count as often as they stand there."""
    rng = np.random.default_rng(16)
    a = rng.normal(0, 2, 10).astype(dtype)
    indices = rng.integers(0, 10, 40)
    others = inputs(f, 40, dtype)[1:]
    want = a.copy()
    for k, i in enumerate(indices):
        want[i] = f(want[i], *(o[k] for o in others))
    f.at(a, indices, *others)
    assert equal(a, want)


def test_unary_functions_have_no_reduce(unary_f):
    for method in (unary_f.reduce, unary_f.accumulate, unary_f.outer):
        with pytest.raises((ValueError, TypeError)):
            method(np.ones(3))


# ---- pickling ----------------------------------------------------------------------------


@pytest.mark.parametrize("protocol", range(2, pickle.HIGHEST_PROTOCOL + 1))
def test_pickle(f, name, protocol):
    data = pickle.dumps(f, protocol)
    assert pickle.loads(data) is f
    # By name in the package: it opens in another version too, private modules do not show.
    words = {v for _, v, _ in pickletools.genops(data) if isinstance(v, str)}
    assert {w for w in words if "fastgelu" in w or "_ufuncs" in w} in (
        {"fastgelu"},
        {f"fastgelu {name}"},
    )
    assert any(name in w.split() for w in words)


def test_pickle_opens_in_a_new_process(run_python):
    functions = [fastgelu.gelu, fastgelu.silu_backward]
    source = "import pickle, sys; print(pickle.loads(bytes.fromhex(sys.argv[1])))"
    assert run_python(source, pickle.dumps(functions).hex()).strip() == str(functions)


def test_copy(f):
    import copy

    assert copy.copy(f) is f
    assert copy.deepcopy(f) is f


# ---- protocols ---------------------------------------------------------------------------


def test_array_ufunc_is_asked(f):
    class Taker:
        def __array_ufunc__(self, ufunc, method, *args, **kwargs):
            return ufunc, method, len(args), sorted(kwargs)

    assert f(*[Taker()] * f.nin) == (f, "__call__", f.nin, [])
    assert f(np.ones(3), *[Taker()] * (f.nin - 1), out=Taker())[:2] == (f, "__call__")
    if f.nin == 2:
        assert f(np.ones(3), Taker())[:2] == (f, "__call__")
        assert f.reduce(Taker())[:2] == (f, "reduce")


def test_array_ufunc_of_none_refuses(f):
    class Refuser:
        __array_ufunc__ = None

    with pytest.raises(TypeError, match="does not support ufuncs"):
        f(*[Refuser()] * f.nin)


def test_array_like_objects_are_read(f):
    args = inputs(f)

    class Like:
        def __init__(self, a):
            self.a = a

        def __array__(self, dtype=None, copy=None):
            return self.a

    assert equal(f(*map(Like, args)), f(*args))
    assert equal(f(*(memoryview(a) for a in args)), f(*args))


def test_array_wrap(f):
    class Wrapper:
        def __init__(self, a):
            self.a = a

        def __array__(self, dtype=None, copy=None):
            return self.a

        def __array_wrap__(self, a, context=None, return_scalar=False):
            return Wrapper(a)

    got = f(*map(Wrapper, inputs(f)))
    assert type(got) is Wrapper
    assert equal(got.a, f(*inputs(f)))


def test_masked_arrays(f):
    args = inputs(f)
    mask = np.arange(40) % 3 == 0
    masked = [np.ma.masked_array(a, mask) for a in args]
    got = f(*masked)
    assert isinstance(got, np.ma.MaskedArray)
    assert np.array_equal(np.ma.getmaskarray(got), mask)
    assert equal(got.compressed(), f(*args)[~mask])


def test_matrix_free_subclass_memmap(f, tmp_path):
    args = inputs(f)
    mapped = np.memmap(tmp_path / "x", np.float64, "w+", shape=(40,))
    mapped[:] = args[0]
    got = f(mapped, *args[1:])
    assert equal(np.asarray(got), f(*args))
    f(mapped, *args[1:], out=mapped)
    assert equal(np.asarray(mapped), f(*args))


# ---- functional --------------------------------------------------------------------------

APPROXIMATE = {"none": "gelu", "tanh": "gelu_tanh", "sigmoid": "gelu_sigmoid"}


@pytest.mark.parametrize("approximate", APPROXIMATE)
def test_functional_gelu(approximate):
    from fastgelu import functional

    x = inputs(fastgelu.gelu, dtype=np.float32)[0]
    dy = x[::-1].copy()
    f = getattr(fastgelu, APPROXIMATE[approximate])
    b = getattr(fastgelu, APPROXIMATE[approximate] + "_backward")
    assert equal(functional.gelu(x, approximate=approximate), f(x))
    assert equal(functional.gelu(x, approximate), f(x))
    out = np.empty_like(x)
    assert functional.gelu(x, approximate=approximate, out=out) is out
    assert equal(out, f(x))
    assert equal(functional.gelu_backward(dy, x, approximate=approximate), b(dy, x))
    assert functional.gelu_backward(dy, x, approximate, out=out) is out
    assert equal(out, b(dy, x))


def test_functional_defaults_to_the_exact_form():
    from fastgelu import functional

    x = inputs(fastgelu.gelu)[0]
    assert equal(functional.gelu(x), fastgelu.gelu(x))
    assert equal(functional.gelu_backward(x, x), fastgelu.gelu_backward(x, x))
    assert equal(functional.silu(x), fastgelu.silu(x))
    assert equal(functional.silu_backward(x[::-1], x), fastgelu.silu_backward(x[::-1], x))
    assert functional.silu(x, out=x) is x


@pytest.mark.parametrize("wrong", ["Tanh", "", "erf", None, True, 1, ["none"], np.zeros(3)])
def test_functional_refuses_an_unknown_approximation(wrong):
    from fastgelu import functional

    for call in (
        lambda: functional.gelu(np.ones(3), approximate=wrong),
        lambda: functional.gelu_backward(np.ones(3), np.ones(3), approximate=wrong),
    ):
        with pytest.raises(ValueError, match=r"(?s)approximate.*none.*tanh.*sigmoid"):
            call()


def test_functional_refuses_other_arguments():
    from fastgelu import functional

    with pytest.raises(TypeError):
        functional.gelu()
    with pytest.raises(TypeError):
        functional.gelu(np.ones(3), approx="tanh")
    with pytest.raises(TypeError):
        functional.gelu("1.0")
    with pytest.raises(ValueError, match="broadcast"):
        functional.gelu_backward(np.ones(3), np.ones(4))
