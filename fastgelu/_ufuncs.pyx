# SPDX-License-Identifier: BSD-3-Clause
"""Makes a numpy.ufunc of every function in libfastgelu's registry. No numerics here."""

import contextlib
import os

cimport numpy as cnp
from libc.stdint cimport uintptr_t
from libc.stdlib cimport malloc

from fastgelu._docs import docstring, fused_docstring
from fastgelu._dtypes import bfloat16

cnp.import_array()
cnp.import_umath()


cdef extern from "fastgelu.h":
    ctypedef struct fastgelu_function:
        const char *name
        const char *dtype
        int inputs
        double max_ulp
        void (*kernel)()
        int outputs
        const char *form

    enum:
        FASTGELU_OK
        FASTGELU_UNKNOWN_TARGET

    const fastgelu_function *fastgelu_function_at(size_t index)
    double fastgelu_max_ulp(const char *name, const char *dtype)
    const char *fastgelu_version()
    const char *fastgelu_target()
    const char *fastgelu_target_name(size_t index, int *supported)
    int fastgelu_set_target(const char *name)


cdef extern from "_loops.h":
    ctypedef struct fg_integer_loop:
        int type
        cnp.PyUFuncGenericFunction loop

    const fg_integer_loop *fg_integer_loops
    const int fg_integer_loop_count
    cnp.PyUFuncGenericFunction fg_float_loop
    const char *fg_compiler()
    cnp.npy_intp fg_stream_above(cnp.npy_intp bytes)


cdef extern from "_calls.h":
    int fg_calls_register(
        object ufunc, int count, const fastgelu_function *const *functions, const int *types
    ) except -1


cdef extern from "_threads.h":
    int fg_openmp()
    void fg_threads_start(int forked)
    int fg_threads_forked()
    void fg_threads_set(int count, int of_default)
    int fg_threads_get()
    ptrdiff_t fg_threads_piece(ptrdiff_t bytes)


cdef extern from "<fenv.h>":
    int FE_INVALID, FE_OVERFLOW, FE_DIVBYZERO


cdef extern from "_plan.h":
    ctypedef struct fg_operand:
        char *data
        cnp.intp_t dimensions
        const cnp.intp_t *shape
        const cnp.intp_t *strides

    ctypedef struct fg_plan:
        cnp.intp_t elements
        int flags

    int FG_PLAN_OK
    int fg_plan_make(fg_plan *plan, const fastgelu_function *f, const fg_operand *operands) nogil
    void fg_plan_run(fg_plan *plan, cnp.intp_t first, cnp.intp_t end) nogil
    void fg_plan_free(fg_plan *plan) nogil
    int fg_apply(const char *name, const char *dtype, const fg_operand *operands) nogil


def target():
    """The name of the instruction set in use."""
    return fastgelu_target().decode()


def targets():
    """The instruction sets compiled in, best first, and whether this machine has each."""
    cdef int supported
    cdef size_t index = 0
    result = {}
    while (name := fastgelu_target_name(index, &supported)) != NULL:
        result[name.decode()] = bool(supported)
        index += 1
    return result


def version():
    """The version of the library."""
    return fastgelu_version().decode()


def compiler():
    """The compiler that built this module."""
    return fg_compiler().decode().strip()


def openmp():
    """OpenMP's version as a number such as 201511, or 0 where it is not built in."""
    return fg_openmp()


def threads_start(forked):
    """Prepare for forks; whether this process is a forked one already."""
    fg_threads_start(forked)


def threads_forked():
    """Whether this process was forked."""
    return bool(fg_threads_forked())


def threads_set(count, of_default):
    """Set the number of threads; whether it is a default, which gives way to OpenMP's setting."""
    fg_threads_set(count, of_default)


def threads_get():
    """The number of threads for a call from this thread."""
    return fg_threads_get()


def threads_piece(bytes=0):
    """The least output of one thread: set it unless 0, return what it was. For tests."""
    return fg_threads_piece(bytes)


def stream_above(bytes=0):
    """The output in bytes above which stores go past the caches: likewise."""
    return fg_stream_above(bytes)


def max_ulp(name, dtype):
    """The error bound in ULP of a function ("gelu_grad") and a dtype ("f32")."""
    cdef double bound = fastgelu_max_ulp(name.encode(), dtype.encode())
    if bound < 0:
        raise KeyError((name, dtype))
    return bound


def kernel_address(size_t index):
    """The address of the C kernel of the registry's line at that index."""
    return <uintptr_t>fastgelu_function_at(index).kernel


# The functions of _plan.h that compiled code calls.
PLAN_ADDRESSES = {"run": <uintptr_t>&fg_plan_run, "apply": <uintptr_t>&fg_apply}


cdef class Plan:
    """One call of the registry's line at an index, on arrays of its dtype: the inputs, then the
    output, to whose shape they are broadcast. See _plan.h. fg_plan_run takes `address` and the
    elements from first to end."""

    cdef fg_plan plan
    cdef tuple arrays

    def __init__(self, size_t index, *arrays):
        cdef fg_operand operands[5]
        cdef cnp.ndarray array
        if self.arrays is not None:
            raise RuntimeError("made already")
        for i, array in enumerate(arrays):
            operands[i].data = cnp.PyArray_BYTES(array)
            operands[i].dimensions = cnp.PyArray_NDIM(array)
            operands[i].shape = cnp.PyArray_DIMS(array)
            operands[i].strides = cnp.PyArray_STRIDES(array)
        cdef int code = fg_plan_make(&self.plan, fastgelu_function_at(index), operands)
        if code != FG_PLAN_OK:
            raise MemoryError if code == 2 else ValueError("the shapes do not fit")
        self.arrays = arrays

    def __dealloc__(self):
        fg_plan_free(&self.plan)

    def run(self):
        """Compute all elements, in this thread and without the interpreter's lock."""
        with nogil:
            fg_plan_run(&self.plan, 0, self.plan.elements)

    @property
    def address(self):
        return <uintptr_t>&self.plan

    @property
    def elements(self):
        return self.plan.elements

    @property
    def flags(self):
        """The floating-point exceptions that the parts which ran have raised: names."""
        return {name for name, bit in FLAGS.items() if self.plan.flags & bit}


FLAGS = {"invalid": FE_INVALID, "overflow": FE_OVERFLOW, "divide": FE_DIVBYZERO}


def force_target(name):
    """Take the instruction set of that name, or raise an ImportError that lists the choices."""
    cdef int code = fastgelu_set_target(os.fsencode(name))
    if code != FASTGELU_OK:
        what = "is unknown" if code == FASTGELU_UNKNOWN_TARGET else "does not run on this machine"
        choices = ", ".join(
            choice if supported else f"{choice} (not on this machine)"
            for choice, supported in targets().items()
        )
        raise ImportError(f"FASTGELU_TARGET={name!r} {what}; choose one of: {choices}")


cdef extern from "numpy/ndarraytypes.h":
    enum:
        NPY_HALF

cdef extern from "numpy/ufuncobject.h":
    int PyUFunc_RegisterLoopForType(
        cnp.ufunc ufunc, int usertype, cnp.PyUFuncGenericFunction function, const int *arg_types, void *data
    ) except -1


# NumPy has no bfloat16 of its own: see register_bfloat16.
cdef dict TYPES = {"f16": NPY_HALF, "f32": cnp.NPY_FLOAT, "f64": cnp.NPY_DOUBLE}

# The strings that the ufuncs point into. Their arrays come from malloc and are never freed either:
# a ufunc, as a module, lives as long as the process.
cdef list alive = []


cdef make_ufunc(list indices):
    """The ufunc of one name; indices are the registry's, one for each dtype."""
    cdef const fastgelu_function *first = fastgelu_function_at(indices[0])
    cdef int inputs = first.inputs, outputs = first.outputs
    cdef list native = [i for i in indices if fastgelu_function_at(i).dtype.decode() in TYPES]
    cdef int count = fg_integer_loop_count + <int>len(native)
    cdef int loop = 0
    cdef int i
    cdef size_t index
    loops = <cnp.PyUFuncGenericFunction *>malloc(count * sizeof(cnp.PyUFuncGenericFunction))
    data = <void **>malloc(count * sizeof(void *))
    if loops == NULL or data == NULL:
        raise MemoryError
    by_dtype = {fastgelu_function_at(index).dtype.decode(): index for index in indices}
    types = bytearray()

    # NumPy takes the first loop that the arguments can be cast to safely. Integers come first, or
    # the small ones would go to a small float; then the floats, smallest first.
    for i in range(fg_integer_loop_count):
        loops[loop] = fg_integer_loops[i].loop
        index = by_dtype["f64"]
        data[loop] = <void *>fastgelu_function_at(index)
        types += bytes([fg_integer_loops[i].type] * inputs + [cnp.NPY_DOUBLE] * outputs)
        loop += 1
    for dtype in sorted(set(by_dtype) & set(TYPES), key=lambda dtype: int(dtype.lstrip("f"))):
        loops[loop] = fg_float_loop
        index = by_dtype[dtype]
        data[loop] = <void *>fastgelu_function_at(index)
        types += bytes([TYPES[dtype]] * (inputs + outputs))
        loop += 1

    name = first.name.decode()
    bounds = {dtype: max_ulp(name, dtype) for dtype in by_dtype}
    if first.form == NULL:
        text = docstring(name, bounds)
    else:
        text = fused_docstring(name, first.form.decode(), bounds)
    strings = (bytes(types), text.encode())
    alive.append(strings)
    ufunc = cnp.PyUFunc_FromFuncAndData(
        loops,
        data,
        strings[0],
        count,
        inputs,
        outputs,
        cnp.PyUFunc_None,
        <char *>first.name,
        strings[1],
        0,
    )
    with contextlib.suppress(AttributeError):  # before NumPy 2.2, pickle searches the modules
        ufunc.__module__ = "fastgelu"
        ufunc.__qualname__ = name
    return ufunc


cdef register_calls(bfloat16_type):
    """Split calls of more than one input that broadcast; once, when all dtypes are known."""
    cdef const fastgelu_function *functions[4]
    cdef int types[4]
    cdef int count
    cdef size_t index
    numbers = dict(TYPES) if bfloat16_type is None else {**TYPES, "bf16": bfloat16_type.num}
    for name, ufunc in ALL_UFUNCS.items():
        count = 0
        for index, (registered, dtype) in enumerate(NAMES):
            if registered == name and dtype in numbers:
                functions[count] = fastgelu_function_at(index)
                types[count] = numbers[dtype]
                count += 1
        if ufunc.nin > 1:
            fg_calls_register(ufunc, count, functions, types)


def register_bfloat16(dtype):
    """Give every ufunc a loop for ml_dtypes' bfloat16.

    Before anybody calls one of them with it: NumPy keeps for good how it resolved a call, and
    without this loop that is float32. The second registration, by a reload, replaces the first.
    """
    cdef int number = dtype.num
    cdef int types[5]
    cdef size_t index
    types[:] = [number] * 5
    for index, (name, registered) in enumerate(NAMES):
        if registered == "bf16":
            PyUFunc_RegisterLoopForType(
                ALL_UFUNCS[name],
                number,
                fg_float_loop,
                types,
                <void *>fastgelu_function_at(index),
            )


cdef list read_registry():
    cdef size_t index = 0
    functions = []
    while (f := fastgelu_function_at(index)) != NULL:
        form = None if f.form == NULL else f.form.decode()
        functions.append(
            (f.name.decode(), f.dtype.decode(), f.inputs, f.outputs, form, f.max_ulp)
        )
        index += 1
    return functions


cdef list REGISTRY = read_registry()

# Every line's (name, dtype), at the line's index.
NAMES = tuple(line[:2] for line in REGISTRY)

# The functions: (name, dtype, inputs, max_ulp), such as ("gelu_backward", "f32", 2, 1.5). Their
# place here is their index. And the fused ones: (name, dtype, inputs, outputs, form, max_ulp), such
# as ("swiglu_backward", "f32", 3, 2, "silu", 4.5). bfloat16 where ml_dtypes is installed.
FUNCTIONS = tuple((*line[:3], line[5]) for line in REGISTRY if line[4] is None)
FUSED = tuple(line for line in REGISTRY if line[4] is not None)

# All ufuncs by name, in the registry's order; the first ones and the fused ones.
ALL_UFUNCS = {}
for name in dict.fromkeys(name for name, _ in NAMES):
    ALL_UFUNCS[name] = make_ufunc([i for i in range(len(NAMES)) if NAMES[i][0] == name])
del name
UFUNCS = {name: ALL_UFUNCS[name] for name, *_ in FUNCTIONS}
FUSED_UFUNCS = {name: ALL_UFUNCS[name] for name, *_ in FUSED}

if (dtype := bfloat16()) is not None:
    register_bfloat16(dtype)
register_calls(dtype)
if dtype is None:
    FUNCTIONS = tuple(function for function in FUNCTIONS if function[1] != "bf16")
    FUSED = tuple(function for function in FUSED if function[1] != "bf16")
del dtype
