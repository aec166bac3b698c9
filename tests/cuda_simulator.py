# SPDX-License-Identifier: BSD-3-Clause
"""fastgelu.cuda under Numba's CUDA simulator; test_cuda.py runs this file in a process of its own.

The simulator runs Python: what a kernel computes is the formula with NumPy's operations, in place
of the instructions that test_cuda.py looks at.
"""

import sys
from types import SimpleNamespace

import numpy as np
import pytest
import sweep
from numba import cuda

import fastgelu
import fastgelu.cuda as fastgelu_cuda
from fastgelu import _dlpack
from fastgelu._dtypes import bfloat16

COMPILED_ONLY = True

HALVES = {"f16": np.dtype("f2"), "bf16": bfloat16()}
MESSAGE = "must be float16, bfloat16, float32 or float64"
# A dtype of NumPy's for each that there is, and bfloat16 where ml_dtypes is.
DTYPES = ["f2", "f4", "f8", *([] if bfloat16() is None else [bfloat16()])]

FINITE = [0.0, 5e-324, 1e-310, 1e-40, 1e-20, 0.5, 0.7517915, 1.0, 5.0, 9.0, 14.0, 38.0, 90.0, 1e300]
SPECIAL = np.array([*FINITE, *(-x for x in FINITE), np.inf, -np.inf, np.nan])


def on_device(x):
    return cuda.to_device(x)


def call(name, *arguments, **options):
    return getattr(fastgelu_cuda, name)(*arguments, **options)


def cpu(name, *arguments):
    with np.errstate(all="ignore"):
        return getattr(fastgelu, name)(*arguments)


def same_bits(got, want):
    got, want = np.asarray(getattr(got, "_ary", got)), np.asarray(want)
    assert got.dtype == want.dtype and got.shape == want.shape
    np.testing.assert_array_equal(sweep.canonical(np.ravel(got)), sweep.canonical(np.ravel(want)))


def sample(entry, count):
    """Some of the fixed sweep, or of all encodings of 16 bits, and all special values."""
    if entry.dtype in HALVES:
        rng = np.random.default_rng(1)
        every = np.arange(1 << 16, dtype="u2")
        arguments = [rng.permutation(every).view(HALVES[entry.dtype]) for _ in range(entry.inputs)]
    else:
        arguments = sweep.arguments(entry.dtype)[-entry.inputs :]
    step = len(arguments[-1]) // count
    with np.errstate(all="ignore"):
        special = SPECIAL.astype(arguments[-1].dtype)
    pairs = [special, special] if entry.inputs == 1 else np.meshgrid(special, special)
    return [
        np.concatenate([np.ravel(s), x[::step][:count]])
        for s, x in zip(pairs[: entry.inputs], arguments)
    ]


def numbers(*shape, dtype="f4", seed=1):
    return np.random.default_rng(seed).normal(0, 3, shape).astype(dtype)


class Exporter:
    """Someone else's array, in the simulator's device memory."""

    def __init__(self, array, stream=None, readonly=False, **more):
        interface = array.__array_interface__
        self.array = array
        self.__cuda_array_interface__ = {
            **interface,
            "data": (interface["data"][0], readonly),
            "stream": stream,
            **more,
        }


class DlpackExporter:
    """The same by DLPack alone, with or without its versions."""

    def __init__(self, array, device=2, versioned=False):
        self.array, self.device, self.versioned, self.streams = array, device, versioned, []

    def __dlpack_device__(self):
        return self.device, 0

    def __dlpack__(self, stream=None, **options):
        if options and not self.versioned:
            raise TypeError("max_version")
        self.streams.append(stream)
        return self.array.__dlpack__(**options)


class BfloatExporter(DlpackExporter):
    """bfloat16 by DLPack, which NumPy does not do: integers whose capsule says otherwise."""

    def __dlpack__(self, stream=None):
        self.bits = self.array.view("u2")
        capsule = self.bits.__dlpack__()
        tensor = _dlpack.Tensor.from_address(_dlpack.get_pointer(capsule, _dlpack.NAME))
        tensor.code = _dlpack.BFLOAT
        return capsule


# ---- results -----------------------------------------------------------------------------


def test_bits_of_the_cpu(entry):
    arguments = sample(entry, 500)
    got = call(entry.name, *map(on_device, arguments))
    same_bits(got, cpu(entry.name, *arguments))


def test_bits_of_the_cpu_at_strides(entry):
    arguments = sample(entry, 100)
    apart = [np.repeat(x, 2) for x in arguments]
    got = call(entry.name, *(on_device(x)[::-2] for x in apart))
    same_bits(got, cpu(entry.name, *(x[::-1] for x in arguments)))


@pytest.mark.parametrize("n", [0, 1, 2, 3, 31, 63, 64, 65, 127, 129, 191, 192, 193, 400])
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_every_length(n, dtype):
    """A block of the simulator has tiles of 128 float16, 64 float32, or 32 float64."""
    x = numbers(n, dtype=dtype)
    got = call("silu", on_device(x))
    same_bits(got, cpu("silu", x))


@pytest.mark.parametrize("shape", [(), (1,), (0, 3), (3, 0), (1, 1, 1), (2, 3, 5), (1, 7, 1)])
def test_every_shape(shape, binary_name):
    dy, x = numbers(*shape), numbers(*shape, seed=2)
    same_bits(call(binary_name, on_device(dy), on_device(x)), cpu(binary_name, dy, x))


VIEWS = {
    "columns": lambda x: x[:, ::2],
    "rows backwards": lambda x: x[::-1],
    "transposed": lambda x: x.T,
    "permuted": lambda x: x.transpose((1, 0)),
    "one column": lambda x: x[:, 3],
    "not aligned to 16 bytes": lambda x: x[0, 1:],
}


@pytest.mark.parametrize("view", VIEWS)
def test_views(view):
    x, y = numbers(7, 12), numbers(7, 12, seed=2)
    before = y.copy()
    want = cpu("gelu", VIEWS[view](x))
    same_bits(call("gelu", Exporter(VIEWS[view](x))), want)
    out = Exporter(VIEWS[view](y))
    assert call("gelu", Exporter(VIEWS[view](x)), out=out) is out
    same_bits(VIEWS[view](y), want)
    VIEWS[view](before)[...] = want
    same_bits(y, before)  # and nothing else was written


@pytest.mark.parametrize("start", [1, 2, 3, 4, 5, 8])
@pytest.mark.parametrize("dtype", ["f2", "f4"])
def test_alignment(start, dtype):
    """Vectors are loaded from addresses that are multiples of 16 bytes only."""
    x, y = numbers(300, dtype=dtype), numbers(300, dtype=dtype)
    call("gelu", Exporter(x[start:]), out=Exporter(y[:-start]))
    same_bits(y[:-start], cpu("gelu", x[start:]))


@pytest.mark.parametrize("dtype", ["f2", "f4", "f8"])
@pytest.mark.parametrize("view", ["columns", "rows backwards", "transposed", "one column"])
def test_dlpack(view, dtype):
    x, y = VIEWS[view](numbers(7, 12, dtype=dtype)), VIEWS[view](numbers(7, 12, dtype=dtype))
    same_bits(call("gelu", DlpackExporter(x)), cpu("gelu", x))
    call("gelu", DlpackExporter(x), out=DlpackExporter(y))
    same_bits(y, cpu("gelu", x))


def test_dlpack_that_will_not_do():
    with pytest.raises(TypeError, match="no array in device memory"):
        call("gelu", DlpackExporter(numbers(4), device=1))
    for dtype in ("u2", "i4", "?", "c8"):
        with pytest.raises(TypeError, match=MESSAGE):
            call("gelu", DlpackExporter(np.zeros(4, dtype)))


def test_dlpack_that_is_read_only():
    x, y = numbers(40), numbers(40)
    x.flags.writeable = y.flags.writeable = False
    same_bits(call("gelu", DlpackExporter(x, versioned=True)), cpu("gelu", x))
    with pytest.raises(ValueError, match="out is read-only"):
        call("gelu", DlpackExporter(x, versioned=True), out=DlpackExporter(y, versioned=True))
    y = numbers(40)
    call("gelu", DlpackExporter(x, versioned=True), out=DlpackExporter(y, versioned=True))
    same_bits(y, cpu("gelu", x))


@pytest.fixture
def bfloats():
    pytest.importorskip("ml_dtypes", reason="ml_dtypes has bfloat16")
    return numbers(7, 12, dtype=bfloat16())


@pytest.mark.parametrize("view", ["columns", "rows backwards", "transposed", "one column"])
def test_bfloat16_by_dlpack(view, bfloats, monkeypatch):
    x, y = VIEWS[view](bfloats), VIEWS[view](np.zeros_like(bfloats))
    want = cpu("gelu", x)
    same_bits(call("gelu", BfloatExporter(x)), want)
    call("gelu", BfloatExporter(x), out=BfloatExporter(y))
    same_bits(y, want)
    monkeypatch.setattr(fastgelu_cuda, "bfloat16", lambda: None)
    with pytest.raises(ImportError, match="pip install ml_dtypes"):
        call("gelu", BfloatExporter(x))
    call("gelu", BfloatExporter(y), out=BfloatExporter(y))  # needs no such array
    same_bits(y, cpu("gelu", want))


@pytest.mark.parametrize("typestr", ["<V2", "<f2"])
def test_bfloat16_goes_by_the_name_of_the_dtype(typestr, bfloats):
    """Releases of PyTorch differ in the typestr; void without a name may be anything."""
    x, y = Exporter(bfloats, typestr=typestr), Exporter(np.zeros_like(bfloats), typestr=typestr)
    x.dtype = y.dtype = "torch.bfloat16"
    assert call("gelu", x, out=y) is y
    same_bits(y.array, cpu("gelu", bfloats))
    with pytest.raises(TypeError, match=MESSAGE):
        call("gelu", Exporter(bfloats))


def test_bfloat16_whose_interface_raises(bfloats):
    class Refusing(BfloatExporter):
        dtype = bfloats.dtype

        @property
        def __cuda_array_interface__(self):
            raise RuntimeError("not for bfloat16")

    same_bits(call("gelu", Refusing(bfloats)), cpu("gelu", bfloats))
    Refusing.dtype = "float32"
    with pytest.raises(RuntimeError, match="not for bfloat16"):
        call("gelu", Refusing(bfloats))


def test_16_bits_do_not_mix(bfloats):
    half = on_device(bfloats.astype("f2"))
    with pytest.raises(TypeError, match="different dtypes, float16 and bfloat16"):
        call("gelu_backward", half, on_device(bfloats))
    with pytest.raises(TypeError, match="out has dtype bfloat16"):
        call("gelu", half, out=on_device(bfloats))


def test_more_elements_than_32_bits_count(monkeypatch):
    """What is launched: nothing is allocated, and nothing runs."""
    n = (1 << 32) + 3
    launches, arguments = [], []

    class Kernel:
        def __getitem__(self, launch):
            launches.append(launch)
            return lambda *given: arguments.append(given)

    def huge(address, strides):
        source = SimpleNamespace()
        source.__cuda_array_interface__ = {
            "shape": (n,), "strides": strides, "typestr": "<f4", "data": (address, False)
        }  # fmt: skip
        return source

    monkeypatch.setattr(fastgelu_cuda._cuda_kernels, "kernel", lambda *key: Kernel())
    call("gelu", huge(1 << 40, None), out=huge(1 << 44, None))
    call("gelu", huge(1 << 40, (-8,)), out=huge(1 << 44, (8,)))
    assert [launch[0] for launch in launches] == [fastgelu_cuda._most_blocks(None)] * 2
    tile = fastgelu_cuda.BLOCK * fastgelu_cuda._cuda_kernels.BYTES // 4
    assert arguments[0] == (n, n // tile, 0, 1 << 40, 1 << 44)
    assert arguments[1] == (n, 0, 1 << 40, 1 << 44, (n,), (0,), (-8,), (8,))


@pytest.mark.parametrize("launched, n", [(1, 1), (1, 64), (2, 65), (3, 1000)])
def test_blocks(monkeypatch, launched, n):
    """As many as there are tiles of 64 float32, within limits."""
    launches = []

    class Kernel:
        def __getitem__(self, launch):
            launches.append(launch[0])
            return lambda *given: None

    monkeypatch.setattr(fastgelu_cuda._cuda_kernels, "kernel", lambda *key: Kernel())
    call("gelu", on_device(numbers(n)))
    monkeypatch.setattr(fastgelu_cuda, "FEWEST_BLOCKS", 128)
    call("gelu", on_device(numbers(n)))
    assert launches == [launched, 128]


def test_layouts_may_differ():
    dy, x, out = numbers(5, 8), numbers(8, 5, seed=2), np.zeros((5, 16), "f4")
    call("gelu_backward", Exporter(dy), Exporter(x.T), out=Exporter(out[:, 1::2]))
    same_bits(out[:, 1::2], cpu("gelu_backward", dy, x.T))
    assert not out[:, ::2].any()


@pytest.mark.parametrize("shapes", [((3, 1), (1, 4)), ((), (5,)), ((2, 3, 4), (4,)), ((1,), ())])
def test_broadcasting(shapes):
    dy, x = (numbers(*shape, seed=i) for i, shape in enumerate(shapes))
    same_bits(call("silu_backward", on_device(dy), on_device(x)), cpu("silu_backward", dy, x))


def test_order_is_kept():
    x = numbers(4, 6).T
    got = call("gelu", on_device(x))
    assert got._ary.flags.f_contiguous
    same_bits(got, cpu("gelu", x))


def test_in_place(name):
    inputs = getattr(fastgelu, name).nin
    for target in range(inputs):
        arguments = [numbers(100, seed=i) for i in range(inputs)]
        want = cpu(name, *arguments)
        arrays = [on_device(x) for x in arguments]
        assert call(name, *arrays, out=arrays[target]) is arrays[target]
        same_bits(arrays[target], want)


def test_in_place_at_strides():
    x = numbers(50)
    want = cpu("gelu", x[::2])
    call("gelu", Exporter(x[::2]), out=Exporter(x[::2]))
    same_bits(x[::2], want)


def test_interleaved_arrays_are_apart():
    x = numbers(50)
    want = cpu("gelu", x[::2])
    call("gelu", Exporter(x[::2]), out=Exporter(x[1::2]))
    same_bits(x[1::2], want)


def test_ufuncs_in_a_kernel(name):
    f = getattr(fastgelu, name)
    x, y = numbers(20), numbers(20)
    want = cpu(name, *(x, x)[: f.nin])

    @cuda.jit
    def kernel(x, y):
        i = cuda.grid(1)
        if i < x.size:
            y[i] = f(x[i]) if f.nin == 1 else f(x[i], x[i])

    kernel[5, 4](x, y)
    same_bits(y, want)


# ---- errors: each before anything is written -----------------------------------------------


@pytest.mark.parametrize("x", [np.zeros(3), [1.0], 1.0, np.float32(1), None], ids=repr)
def test_host_arrays(x):
    with pytest.raises(TypeError, match=r"x is no array in device memory, .*fastgelu\.gelu$"):
        call("gelu", x)
    device = on_device(numbers(3))
    with pytest.raises(TypeError, match=r"x2 is no array in device memory"):
        call("gelu_backward", device, x)
    if x is not None:
        with pytest.raises(TypeError, match=r"out is no array in device memory"):
            call("gelu", device, out=x)


@pytest.mark.parametrize("dtype", ["u2", "i4", "c8", "?", ">f4", ">f2", "V2", "g"])
def test_other_dtypes(dtype):
    with pytest.raises(TypeError, match=MESSAGE):
        call("gelu", on_device(np.zeros(3, dtype)))


def fails(exception, match, name, *arguments, out):
    before = [np.array(getattr(x, "array", x)) for x in (*arguments, out)]
    with pytest.raises(exception, match=match):
        call(name, *(x if isinstance(x, Exporter) else Exporter(x) for x in arguments), out=out)
    for x, old in zip((*arguments, out), before):
        same_bits(getattr(x, "array", x), old)


def test_dtypes_must_be_the_same():
    x, y = numbers(4), numbers(4, dtype="f8")
    fails(TypeError, "out has dtype float64", "gelu", x, out=Exporter(y))
    fails(TypeError, "different dtypes", "gelu_backward", x, y, out=Exporter(x))


@pytest.mark.parametrize("shape", [(4,), (6,), (1, 5), ()])
def test_out_has_the_shape_of_the_result(shape):
    fails(ValueError, r"out has shape", "gelu", numbers(5), out=Exporter(numbers(*shape)))


def test_shapes_that_do_not_broadcast():
    out = Exporter(numbers(3))
    fails(ValueError, r"\(3,\) and \(2,\)", "gelu_backward", numbers(3), numbers(2), out=out)


def test_out_is_read_only():
    out = Exporter(numbers(5), readonly=True)
    fails(ValueError, "out is read-only", "gelu", numbers(5), out=out)


def test_read_only_arguments():
    x = numbers(5)
    same_bits(call("gelu", Exporter(x, readonly=True)), cpu("gelu", x))


def test_out_shares_memory_in_part():
    x = numbers(10)
    fails(ValueError, "shares memory with an argument", "gelu", x[:-1], out=Exporter(x[1:]))
    fails(ValueError, "shares memory with an argument", "gelu", x[::-1], out=Exporter(x))
    fails(ValueError, "shares memory", "gelu_backward", numbers(10), x[:1], out=Exporter(x))


def test_out_shares_memory_with_itself():
    y = np.broadcast_to(numbers(1), 5)
    fails(ValueError, "out has elements that share", "gelu", numbers(5), out=Exporter(y))


def test_masks_and_odd_addresses():
    x = numbers(3)
    with pytest.raises(TypeError, match="mask"):
        call("gelu", Exporter(x, mask=Exporter(x)))
    odd = np.zeros(13, "u1")[1:].view("f4")
    with pytest.raises(ValueError, match="aligned"):
        call("gelu", Exporter(odd))


def test_empty_arrays_launch_nothing(monkeypatch):
    monkeypatch.setattr(fastgelu_cuda, "_launch", None)
    x = on_device(np.zeros((0, 3), "f4"))
    assert call("gelu", x).shape == (0, 3)
    assert call("gelu", x, out=x) is x


# ---- streams and other libraries, with the calls recorded instead of made --------------------


@pytest.fixture
def queue(monkeypatch):
    """What is queued: ("launch", stream), and (later, "waits for", earlier)."""
    calls = []
    monkeypatch.setattr(
        fastgelu_cuda, "_after", lambda earlier, later: calls.append((later, "waits for", earlier))
    )
    monkeypatch.setattr(
        fastgelu_cuda, "_launch", lambda n, inputs, out, stream, d: calls.append(("launch", stream))
    )
    return calls


@pytest.mark.parametrize(
    "x_stream, out_stream, stream, want",
    [
        (None, None, None, [("launch", 0)]),
        (None, None, 7, [("launch", 7)]),
        (7, None, None, [("launch", 7)]),
        (7, 7, 7, [("launch", 7)]),
        (1, 1, 0, [("launch", 0)]),  # both are the legacy default stream
        (7, None, 8, [(8, "waits for", 7), ("launch", 8), (7, "waits for", 8)]),
        (7, 9, None, [(7, "waits for", 9), ("launch", 7), (9, "waits for", 7)]),
        (7, 9, 9, [(9, "waits for", 7), ("launch", 9), (7, "waits for", 9)]),
    ],
)
def test_streams(queue, x_stream, out_stream, stream, want):
    x, out = Exporter(numbers(4), x_stream), Exporter(numbers(4), out_stream)
    call("gelu", x, out=out, stream=stream)
    assert queue == want


def test_streams_of_dlpack(queue):
    x = DlpackExporter(numbers(4))
    call("gelu", x)
    call("gelu", x, stream=5)
    call("gelu_backward", x, Exporter(numbers(4), 7), stream=0)
    assert x.streams == [1, 5, 1]
    want = [("launch", 1), ("launch", 5), (0, "waits for", 7), ("launch", 0), (7, "waits for", 0)]
    assert queue == want


class WithProtocol:
    def __cuda_stream__(self):
        return 0, 5


@pytest.mark.parametrize(
    "stream", [SimpleNamespace(cuda_stream=5), SimpleNamespace(ptr=5), WithProtocol(), 5], ids=repr
)
def test_streams_of_other_libraries(queue, stream):
    call("gelu", Exporter(numbers(4)), stream=stream)
    assert queue == [("launch", 5)]


def test_devices(queue, monkeypatch):
    """With a driver that knows what lies where."""
    dy, x, lost = Exporter(numbers(4)), Exporter(numbers(4)), Exporter(numbers(4))
    where = {dy: (0, 0), x: (0, 1), lost: (1, None)}
    answers = {e.__cuda_array_interface__["data"][0]: answer for e, answer in where.items()}
    driver = SimpleNamespace(
        CUpointer_attribute=SimpleNamespace(CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL=9),
        CUresult=SimpleNamespace(CUDA_SUCCESS=0),
        cuPointerGetAttribute=lambda attribute, pointer: answers[pointer],
    )
    monkeypatch.setitem(sys.modules, "cuda.bindings", SimpleNamespace(driver=driver))
    monkeypatch.setattr(fastgelu_cuda, "SIMULATED", False)
    with pytest.raises(ValueError, match="the arrays lie on different devices, 0, 1"):
        call("gelu_backward", dy, x, stream=5)
    with pytest.raises(ValueError, match="the arrays lie on different devices, 0, 1"):
        call("gelu", dy, out=x, stream=5)
    with pytest.raises(ValueError, match="an array is not in device memory"):
        call("gelu", lost, out=lost, stream=5)
    assert queue == []


def test_no_stream(queue, monkeypatch):
    monkeypatch.setattr(fastgelu_cuda, "SIMULATED", False)
    with pytest.raises(TypeError, match="stream must be"):
        call("gelu", Exporter(numbers(4)), stream="main")
    assert queue == []


@pytest.mark.parametrize("library", ["torch", "cupy"])
def test_arrays_of_the_kind_given(queue, monkeypatch, library):
    """With a module that has what is used of these two."""

    class Array(Exporter):
        device = "cuda:0"

    def empty_like(x):
        return Array(np.empty_like(x.array))

    def empty(shape, dtype, device=None):
        assert device == (Array.device if library == "torch" else None)
        return Array(np.empty(shape, dtype))

    class Stream:
        cuda_stream = ptr = 6

    module = SimpleNamespace(__name__=library, Tensor=Array, ndarray=Array, empty_like=empty_like)
    module.empty = empty
    module.cuda = SimpleNamespace(
        current_stream=lambda device: Stream, get_current_stream=lambda: Stream
    )
    monkeypatch.setitem(sys.modules, library, module)
    Array.dtype = "f4"
    y = call("gelu", Array(numbers(3, 2)))
    assert type(y) is Array and y.array.shape == (3, 2)
    dx = call("gelu_backward", Array(numbers(2)), Array(numbers(3, 2)))
    assert type(dx) is Array and dx.array.shape == (3, 2)
    assert queue == [("launch", 6)] * 2
    out = Exporter(numbers(3))
    assert call("gelu", Array(numbers(3)), out=out, stream=4) is out
    assert queue[2:] == [(4, "waits for", 6), ("launch", 4), (6, "waits for", 4)]
