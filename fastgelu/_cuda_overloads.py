# SPDX-License-Identifier: BSD-3-Clause
"""The ufuncs inside functions that Numba compiles for CUDA, and what the kernels of
_cuda_kernels.py are made of: code that is written at the place of the call (see
_numba_overloads.py).

CUDA's code generator contracts x*y + z whatever it is told. It leaves add.rn, mul.rn and fma.rn
alone, which are asked for by name: so the results are those of the CPU. A caller's fastmath=True
does not change them, but lets negation and comparison take subnormal numbers for 0.
"""

from llvmlite import ir
from numba.cuda import types
from numba.cuda.core.errors import TypingError
from numba.cuda.core.imputils import lower_builtin
from numba.cuda.extending import intrinsic, type_callable

from fastgelu import _ufuncs
from fastgelu._formulas import formulas
from fastgelu._llvm import REALS, LlvmIntegers, LlvmReals
from fastgelu._operations import constants

SIZES = {"f32": 4, "f64": 8}
VECTOR_BYTES = 16
# Vectors that a thread loads before it computes.
IN_FLIGHT = 2
GLOBAL = 1  # address space


class NvvmReals(LlvmReals):
    """V for CUDA."""

    def __init__(self, builder, dtype):
        super().__init__(builder, dtype)
        self._suffix = {"f32": "f", "f64": "d"}[dtype]

    def _nvvm(self, operation, *args):
        name = f"llvm.nvvm.{operation}.{self._suffix}"
        module = self.builder.module
        function = module.globals.get(name)
        if function is None:
            signature = ir.FunctionType(self.type, [self.type] * len(args))
            function = ir.Function(module, signature, name)
        return self.builder.call(function, args)

    # NVVM knows neither fneg nor the intrinsics of LLVM for the next two.

    def neg(self, a):
        return self.builder.fsub(self.set(-0.0), a)

    def abs(self, a):
        return self._nvvm("fabs", a)

    def copysign(self, a, s):
        sign = ir.Constant(self.integer_type, 1 << (self.integer_type.width - 1))
        rest = ir.Constant(self.integer_type, (1 << (self.integer_type.width - 1)) - 1)
        sign, rest = self.builder.and_(self.bits(s), sign), self.builder.and_(self.bits(a), rest)
        return self.real(self.builder.or_(sign, rest))

    def add(self, a, b):
        return self._nvvm("add.rn", a, b)

    def sub(self, a, b):
        return self._nvvm("add.rn", a, self.neg(b))

    def mul(self, a, b):
        return self._nvvm("mul.rn", a, b)

    def div(self, a, b):
        return self._nvvm("div.rn", a, b)

    def fma(self, a, b, c):
        return self._nvvm("fma.rn", a, b, c)


def write_formula(builder, name, dtype, args):
    """The code of a function for one element; args are dy, x."""
    reals, integers = NvvmReals(builder, dtype), LlvmIntegers(builder, dtype)
    formula = formulas(reals, integers, constants(dtype))[name]
    return formula(*args[-_ufuncs.UFUNCS[name].nin :], False)


# ---- the user's kernels ----------------------------------------------------------------------


def result_type(ufunc, inputs):
    """float32 of float32 alone, otherwise float64."""
    real = types.float32, types.float64
    if not all(type_ in real or isinstance(type_, types.Integer) for type_ in inputs):
        listed = ", ".join(map(str, inputs))
        raise TypingError(
            f"fastgelu.{ufunc.__name__} in CUDA kernels takes scalars of float32, float64 and "
            f"integers, not ({listed})"
        )
    return types.float32 if set(inputs) == {types.float32} else types.float64


def register(ufunc):
    if ufunc.nin == 1:

        @type_callable(ufunc)
        def type_unary(context):
            return lambda x: result_type(ufunc, (x,))

    else:

        @type_callable(ufunc)
        def type_binary(context):
            return lambda x1, x2: result_type(ufunc, (x1, x2))

    @lower_builtin(ufunc, *[types.Any] * ufunc.nin)
    def lower(context, builder, signature, args):
        result = signature.return_type
        operands = [
            context.cast(builder, value, given, result)
            for value, given in zip(args, signature.args)
        ]
        dtype = "f32" if result == types.float32 else "f64"
        return write_formula(builder, ufunc.__name__, dtype, operands)


for ufunc in _ufuncs.COMPILED.values():
    register(ufunc)


# ---- parts of the package's own kernels ------------------------------------------------------


def operands(name):
    """Which of the addresses (dy, x) a function reads."""
    return range(2 - _ufuncs.UFUNCS[name].nin, 2)


def literals(*args):
    """The values of the types of literals. Numba tries other types before."""
    if not all(isinstance(type_, types.Literal) for type_ in args):
        raise TypingError("not a literal")
    return [type_.literal_value for type_ in args]


@intrinsic
def one(typingctx, name, dtype, dy, x, y):
    """Compute an element, of the addresses of its operands."""
    name_, dtype_ = literals(name, dtype)

    def codegen(context, builder, signature, args):
        pointer_type = REALS[dtype_].as_pointer(GLOBAL)
        pointers = [builder.inttoptr(address, pointer_type) for address in args[2:]]
        values = [None, None]
        for i in operands(name_):
            values[i] = builder.load(pointers[i])
        builder.store(write_formula(builder, name_, dtype_, values), pointers[2])
        return context.get_dummy_value()

    return types.void(name, dtype, *[types.int64] * 3), codegen


@intrinsic
def several(typingctx, name, dtype, dy, x, y, step):
    """Compute IN_FLIGHT vectors, at addresses that lie `step` bytes apart."""
    name_, dtype_ = literals(name, dtype)
    length = VECTOR_BYTES // SIZES[dtype_]

    def codegen(context, builder, signature, args):
        vector_type = ir.VectorType(REALS[dtype_], length)
        index = ir.IntType(32)
        *addresses, step = args[2:]

        def pointer(address, k):
            address = builder.add(address, builder.mul(step, ir.Constant(step.type, k)))
            return builder.inttoptr(address, vector_type.as_pointer(GLOBAL))

        loaded = [
            {i: builder.load(pointer(addresses[i], k), align=VECTOR_BYTES) for i in operands(name_)}
            for k in range(IN_FLIGHT)
        ]
        results = []
        for vectors in loaded:
            result = ir.Constant(vector_type, ir.Undefined)
            for lane in range(length):
                values = [None, None]
                for i, vector in vectors.items():
                    values[i] = builder.extract_element(vector, index(lane))
                value = write_formula(builder, name_, dtype_, values)
                result = builder.insert_element(result, value, index(lane))
            results.append(result)
        for k, result in enumerate(results):
            builder.store(result, pointer(addresses[2], k), align=VECTOR_BYTES)
        return context.get_dummy_value()

    return types.void(name, dtype, *[types.int64] * 4), codegen


@intrinsic
def offsets(typingctx, i, shape, dy_strides, x_strides, y_strides):
    """Where element `i` in C order lies in each operand, in bytes."""
    dimensions = len(shape)
    tuple_type = types.UniTuple(types.int64, dimensions)
    result = types.UniTuple(types.int64, 3)

    def codegen(context, builder, signature, args):
        rest, shape, *strides = args
        sums = [ir.Constant(rest.type, 0)] * 3
        for axis in reversed(range(dimensions)):
            at = rest
            if axis > 0:
                extent = builder.extract_value(shape, axis)
                at, rest = builder.urem(rest, extent), builder.udiv(rest, extent)
            for operand, each in enumerate(strides):
                part = builder.mul(at, builder.extract_value(each, axis))
                sums[operand] = builder.add(sums[operand], part)
        return context.make_tuple(builder, result, sums)

    return result(types.int64, *[tuple_type] * 4), codegen
