# SPDX-License-Identifier: BSD-3-Clause
"""The ufuncs inside functions that Numba compiles for the CPU; see _numba.py.

For each ufunc there is a typing rule and one lowering, which writes LLVM code at the place of the
call: for scalars a call of the formula, for arrays with `out` a call of the C kernel. An array
call without `out` is as a rule never lowered: Numba rewrites it, as it does NumPy's own ufuncs, to
a loop over scalars together with the expression around it.
"""

import weakref

import llvmlite.binding
import numpy as np
from llvmlite import ir
from numba.core import cgutils, types
from numba.core.errors import TypingError
from numba.core.imputils import impl_ret_borrowed, impl_ret_new_ref, impl_ret_untracked
from numba.core.typing import Context
from numba.extending import lower_builtin, type_callable
from numba.np.numpy_support import as_dtype, from_dtype

from fastgelu import _ufuncs
from fastgelu._dtypes import from_numpy
from fastgelu._llvm import INTEGERS, REALS, LlvmIntegers, LlvmReals, LlvmVectors
from fastgelu._operations import formulas, ways

# What fg_apply of _plan.h answers.
PROBLEMS = {
    1: (ValueError, "the arguments do not broadcast to the shape of out"),
    2: (MemoryError, "no memory for a copy of an argument that shares memory with out"),
    3: (RuntimeError, "compiled with another version of fastgelu; empty Numba's cache"),
}


# ---- types -----------------------------------------------------------------------------------


def is_array(type_):
    return isinstance(type_, types.Array)


def is_number(type_):
    return isinstance(type_, types.Number | types.Boolean)


def is_absent(out):
    out = out.value if isinstance(out, types.Omitted) else out
    return out is None or isinstance(out, types.NoneType)


def result_dtype(ufunc, inputs):
    """The dtype that the ufunc computes in, by NumPy's own rules."""
    dtype = None
    if all(is_array(type_) or is_number(type_) for type_ in inputs):
        try:
            given = [as_dtype(getattr(type_, "dtype", type_)) for type_ in inputs]
            dtype = ufunc.resolve_dtypes((*given, None))[-1]
        except (TypeError, NotImplementedError):
            pass
    if dtype is None or from_numpy(dtype.name) not in REALS or np.dtype("f2") in given:
        listed = ", ".join(map(str, inputs))
        raise TypingError(
            f"fastgelu.{ufunc.__name__} in compiled functions takes float32, float64, integers "
            f"and bool, and arrays of them, not ({listed})"
        )
    return dtype


def check_out(ufunc, dtype, out):
    name = f"fastgelu.{ufunc.__name__}"
    if not is_array(out):
        raise TypingError(f"{name}: out must be an array, not {out}")
    if not out.mutable:
        raise TypingError(f"{name}: out is read-only")
    if out.dtype == types.float16 or not np.can_cast(dtype, as_dtype(out.dtype), "same_kind"):
        raise TypingError(f"{name}: cannot cast the result from {dtype} to {out.dtype}, out's")


def result_type(ufunc, inputs, out):
    dtype = result_dtype(ufunc, inputs)
    if not is_absent(out):
        check_out(ufunc, dtype, out)
        return out
    dimensions = [type_.ndim for type_ in inputs if is_array(type_)]
    return types.Array(from_dtype(dtype), max(dimensions), "C") if dimensions else from_dtype(dtype)


# ---- scalars ---------------------------------------------------------------------------------


def symbol_of_formula(name, dtype):
    return f"fastgelu_formula_{name}_{dtype}"


def formula_type(dtype, inputs):
    return ir.FunctionType(INTEGERS[dtype], [REALS[dtype]] * inputs)


# For each code generator of Numba, {(name, dtype): library}.
LIBRARIES = weakref.WeakKeyDictionary()


def features_of(codegen):
    """The names of what the processor has that is compiled for, such as avx2."""
    text = getattr(codegen, "_tm_features", "")
    return {name[1:] for name in text.split(",") if name.startswith("+")}


def vector_lanes(features, dtype):
    """Of the vectors that loops are likely to have: a register's, or half of them where there are
    larger numbers in the loop too."""
    size = 64 if "avx512f" in features else 32 if "avx2" in features else 16
    most = 8 * size // INTEGERS[dtype].width
    return (most // 2, most) if size > 16 else (most,)


def symbol_of_vectors(symbol, lanes):
    return f"{symbol}_{lanes}"


def variants(features, name, dtype, inputs):
    """What tells LLVM's vectoriser of the functions of vectors: an attribute of a call."""
    symbol = symbol_of_formula(name, dtype)
    names = [
        f"_ZGV_LLVM_N{lanes}{'v' * inputs}_{symbol}({symbol_of_vectors(symbol, lanes)})"
        for lanes in vector_lanes(features, dtype)
    ]
    return f'"vector-function-abi-variant"="{",".join(names)}"'


def write_formula(function, name, dtype, reals, integers):
    """The body of a function: the bits of the results, by the shorter way if all are near."""
    builder = reals.builder
    formula = formulas(dtype, reals, integers)[name]
    ((_, most, near),) = ways(name, dtype)
    short, long = function.append_basic_block("near"), function.append_basic_block("far")
    builder.cbranch(reals.all_at_most(reals.abs(function.args[-1]), most), short, long)
    for block, way in ((short, near), (long, False)):
        builder.position_at_end(block)
        builder.ret(reals.bits(formula(*function.args, way)))


def keep(module, functions):
    """Functions that are not called yet when LLVM removes what is not."""
    pointer = ir.IntType(8).as_pointer()
    used = ir.GlobalVariable(module, ir.ArrayType(pointer, len(functions)), "llvm.compiler.used")
    used.linkage, used.section = "appending", "llvm.metadata"
    used.initializer = ir.Constant(used.value_type, [each.bitcast(pointer) for each in functions])


def formula_library(codegen, name, dtype, inputs):
    """The formula as a function in a library of its own, and as functions of vectors, which LLVM
    calls instead where it vectorises a loop. They are copied to the user's code.

    They are not inlined: what LLVM vectorises has no branch, and so takes both ways for every
    element, in three times the time. Nor does it make permutations of a look-up by itself.

    They return the bits of the result. Where the caller has fastmath=True, Numba gives the flags to
    every instruction on reals in the caller's module, calls included.
    """
    libraries = LIBRARIES.setdefault(codegen, {})
    if (name, dtype) not in libraries:
        symbol = symbol_of_formula(name, dtype)
        library = codegen.create_library(symbol)
        module = library.create_ir_module(symbol)
        features = features_of(codegen)
        function = ir.Function(module, formula_type(dtype, inputs), symbol)
        builder = ir.IRBuilder(function.append_basic_block())
        reals = LlvmReals(builder, dtype)
        write_formula(function, name, dtype, reals, LlvmIntegers(builder, dtype))
        functions = [function]
        for lanes in vector_lanes(features, dtype):
            signature = ir.FunctionType(
                ir.VectorType(INTEGERS[dtype], lanes),
                [ir.VectorType(REALS[dtype], lanes)] * inputs,
            )
            vector = ir.Function(module, signature, symbol_of_vectors(symbol, lanes))
            builder = ir.IRBuilder(vector.append_basic_block())
            reals = LlvmVectors(builder, dtype, lanes, features)
            write_formula(vector, name, dtype, reals, LlvmIntegers(builder, dtype, lanes))
            functions.append(vector)
        for each in functions:
            for attribute in ("noinline", "nounwind", "readnone"):
                each.attributes.add(attribute)
        keep(module, functions[1:])
        library.add_ir_module(module)
        library.finalize()
        libraries[name, dtype] = library
    return libraries[name, dtype]


def lower_scalars(ufunc, context, builder, signature, args):
    result = signature.return_type
    operands = [
        context.cast(builder, value, given, result) for value, given in zip(args, signature.args)
    ]
    name, dtype = ufunc.__name__, from_numpy(str(result))
    codegen = context.codegen()
    library = formula_library(codegen, name, dtype, ufunc.nin)
    context.active_code_library.add_linking_library(library)
    function = cgutils.get_or_insert_function(
        builder.module, formula_type(dtype, ufunc.nin), symbol_of_formula(name, dtype)
    )
    call = builder.call(function, operands)
    # past llvmlite, which does not know these attributes
    set.add(call.attributes, variants(features_of(codegen), name, dtype, ufunc.nin))
    # What is kept in memory during calls would lie across lines of the cache: 0.6 ns, not 0.4.
    set.add(builder.function.attributes, '"stackrealign"')
    value = builder.bitcast(call, REALS[dtype])
    return impl_ret_untracked(context, builder, result, value)


# ---- arrays with out -------------------------------------------------------------------------


def is_direct(inputs, out):
    """Whether the kernel may take arrays of these types, if their shapes are the same."""
    return all(
        is_array(type_)
        and (type_.dtype, type_.ndim, type_.layout) == (out.dtype, out.ndim, out.layout)
        and type_.layout in "CF"
        and type_.aligned
        for type_ in (*inputs, out)
    )


def may_go_direct(builder, inputs, out):
    """Whether shapes are the same, and memory either the same or apart."""
    word = out.nitems.type
    size = builder.mul(out.nitems, out.itemsize)
    out_shape = cgutils.unpack_tuple(builder, out.shape)
    yes = cgutils.true_bit
    for x in inputs:
        for n, m in zip(cgutils.unpack_tuple(builder, x.shape), out_shape):
            yes = builder.and_(yes, builder.icmp_signed("==", n, m))
        ahead = builder.sub(builder.ptrtoint(x.data, word), builder.ptrtoint(out.data, word))
        same = builder.icmp_signed("==", ahead, ahead.type(0))
        apart = builder.and_(
            builder.icmp_unsigned(">=", ahead, size),
            builder.icmp_unsigned(">=", builder.neg(ahead), size),
        )
        yes = builder.and_(yes, builder.or_(same, apart))
    return yes


def call_kernel(builder, symbol, size, data):
    function_type = ir.FunctionType(ir.VoidType(), [size.type, *(each.type for each in data)])
    function = cgutils.get_or_insert_function(builder.module, function_type, symbol)
    builder.call(function, [size, *data])


def call_apply(context, builder, name, dtype, operands):
    """A call of fg_apply; operands are structs (data, dimensions, shape, strides)."""
    text = cgutils.voidptr_t
    operand_type = ir.LiteralStructType([text, cgutils.intp_t, text, text])
    array = cgutils.alloca_once(builder, operand_type, size=len(operands))
    for at, operand in enumerate(operands):
        for field, value in enumerate(operand):
            builder.store(value, cgutils.gep_inbounds(builder, array, at, field))
    function_type = ir.FunctionType(ir.IntType(32), [text, text, operand_type.as_pointer()])
    function = cgutils.get_or_insert_function(builder.module, function_type, "fastgelu_plan_apply")
    strings = [context.insert_const_string(builder.module, each) for each in (name, dtype)]
    return builder.call(function, [*strings, array])


def operand_of(context, builder, type_, value, result):
    """An argument as fg_apply wants it. A scalar is an array of no dimensions."""

    def pointer(value):
        return builder.bitcast(cgutils.alloca_once_value(builder, value), cgutils.voidptr_t)

    if not is_array(type_):
        value = pointer(context.cast(builder, value, type_, result))
        null = cgutils.get_null_value(cgutils.voidptr_t)
        return value, cgutils.intp_t(0), null, null
    array = context.make_array(type_)(context, builder, value)
    data = builder.bitcast(array.data, cgutils.voidptr_t)
    return data, cgutils.intp_t(type_.ndim), pointer(array.shape), pointer(array.strides)


def raise_problem(context, builder, name, code):
    for number, (exception, message) in PROBLEMS.items():
        found = builder.icmp_signed("==", code, code.type(number))
        with builder.if_then(found, likely=False):
            message = f"fastgelu.{name}: {message}"
            context.call_conv.return_user_exc(builder, exception, (message,))


def lower_into(ufunc, context, builder, signature, args):
    """Arrays and scalars, all of out's dtype, into out."""
    *inputs, out_type = signature.args
    name, dtype = ufunc.__name__, from_numpy(str(out_type.dtype))
    code = cgutils.alloca_once_value(builder, ir.IntType(32)(0))

    def slowly():
        operands = [
            operand_of(context, builder, type_, value, out_type.dtype)
            for type_, value in zip(signature.args, args)
        ]
        builder.store(call_apply(context, builder, name, dtype, operands), code)

    if is_direct(inputs, out_type):
        *arrays, out = (
            context.make_array(type_)(context, builder, value)
            for type_, value in zip(signature.args, args)
        )
        ok = may_go_direct(builder, arrays, out)
        with builder.if_else(ok, likely=True) as (direct, otherwise):
            with direct:
                data = [array.data for array in (*arrays, out)]
                call_kernel(builder, f"fastgelu_{name}_{dtype}", out.nitems, data)
            with otherwise:
                slowly()
    else:
        slowly()
    raise_problem(context, builder, name, builder.load(code))
    return impl_ret_borrowed(context, builder, out_type, args[-1])


def python_into(ufunc, inputs, dtype, out):
    """What to do where the dtypes differ from out's, as a function to be compiled."""
    call = ufunc
    if out.dtype != from_dtype(dtype):
        if ufunc.nin == 1:

            def into(x, out):
                out[...] = call(x)
                return out

        else:

            def into(x1, x2, out):
                out[...] = call(x1, x2)
                return out

    elif ufunc.nin == 1:

        def into(x, out):
            return call(x.astype(dtype), out)

    else:
        first, second = (is_array(type_) and type_.dtype != out.dtype for type_ in inputs)
        if first and second:

            def into(x1, x2, out):
                return call(x1.astype(dtype), x2.astype(dtype), out)

        elif first:

            def into(x1, x2, out):
                return call(x1.astype(dtype), x2, out)

        else:

            def into(x1, x2, out):
                return call(x1, x2.astype(dtype), out)

    return into


# ---- arrays without out ----------------------------------------------------------------------


def python_new(ufunc, inputs, dtype):
    """A function to be compiled that makes the result."""
    call = ufunc
    if ufunc.nin == 1:

        def new(x):
            return call(x, np.empty(x.shape, dtype))

    elif not is_array(inputs[0]):

        def new(x1, x2):
            return call(x1, x2, np.empty(x2.shape, dtype))

    elif not is_array(inputs[1]):

        def new(x1, x2):
            return call(x1, x2, np.empty(x1.shape, dtype))

    else:

        def new(x1, x2):
            return call(x1, x2, np.empty(np.broadcast_shapes(x1.shape, x2.shape), dtype))

    return new


# ---- the ufuncs ------------------------------------------------------------------------------


def lower_call(ufunc, context, builder, signature, args):
    inputs, (out, *_) = signature.args[: ufunc.nin], (*signature.args[ufunc.nin :], None)
    dtype = result_dtype(ufunc, inputs)
    signature = signature.return_type(*inputs) if is_absent(out) else signature
    args = args[: len(signature.args)]
    if not is_array(signature.return_type):
        return lower_scalars(ufunc, context, builder, signature, args)
    if is_absent(out):
        new = python_new(ufunc, inputs, dtype)
        value = context.compile_internal(builder, new, signature, args)
        return impl_ret_new_ref(context, builder, signature.return_type, value)
    given = {from_dtype(dtype), *(type_.dtype for type_ in inputs if is_array(type_))}
    if given == {out.dtype}:
        return lower_into(ufunc, context, builder, signature, args)
    into = python_into(ufunc, inputs, dtype, out)
    return context.compile_internal(builder, into, signature, args)


def type_of(context, ufunc, inputs, out):
    """None, no match, for other targets: numba-cuda sees what is registered here, too."""
    return result_type(ufunc, inputs, out) if isinstance(context, Context) else None


def register(ufunc):
    if ufunc.nin == 1:

        @type_callable(ufunc)
        def type_unary(context):
            return lambda x, out=None: type_of(context, ufunc, (x,), out)

    else:

        @type_callable(ufunc)
        def type_binary(context):
            return lambda x1, x2, out=None: type_of(context, ufunc, (x1, x2), out)

    @lower_builtin(ufunc, types.VarArg(types.Any))
    def lower(context, builder, signature, args):
        return lower_call(ufunc, context, builder, signature, args)


def refuse(ufunc):
    """Say of a ufunc without a formula in Python that there is none."""

    @type_callable(ufunc)
    def type_none(context):
        def typer(*args, **kwargs):
            raise TypingError(f"fastgelu.{ufunc.__name__} cannot be called in compiled functions")

        return typer


for index, (name, dtype, *_) in enumerate(_ufuncs.FUNCTIONS):
    llvmlite.binding.add_symbol(f"fastgelu_{name}_{dtype}", _ufuncs.kernel_address(index))
for name, address in _ufuncs.PLAN_ADDRESSES.items():
    llvmlite.binding.add_symbol(f"fastgelu_plan_{name}", address)
for ufunc in _ufuncs.ALL_UFUNCS.values():
    if ufunc.__name__ in _ufuncs.COMPILED:
        register(ufunc)
    else:
        refuse(ufunc)
