# SPDX-License-Identifier: BSD-3-Clause
"""The ufuncs inside functions that Numba compiles for CUDA, and what the kernels of
_cuda_kernels.py are made of: code that is written at the place of the call (see
_numba_overloads.py).

CUDA's code generator contracts x*y + z whatever it is told. It leaves add.rn, mul.rn and fma.rn
alone, which are asked for by name: so the results are those of the CPU. A caller's fastmath=True
does not change them, but lets negation and comparison take subnormal numbers for 0.

float16 and bfloat16 are carried as their encodings, i16, two to a word of 32 bits in vectors. They
are widened when they have been loaded, and rounded once: by the instructions that are there for
it, or by integer arithmetic where compute capability 7.5 has none for bfloat16.

`lookup` is a load from a table in global memory through the read-only cache (ld.global.nc), because
the lanes of a warp want different entries, and may have diverged. All entries of a table lie in
one sector of 32 bytes, so that one pass through the cache serves the warp, whatever the lanes ask
for, and the tables of a function lie side by side: one address, and a constant distance for each.
A table of float64 has more rows, and NVVM joins the loads of a row to loads of 16 bytes.
Constant memory would serve the addresses one after the other, a tree of selections take seven
instructions a coefficient, shuffles need all lanes, and shared memory has to be filled first: in a
user's kernel nobody does.
"""

import itertools

from llvmlite import ir
from numba.cuda import types
from numba.cuda.core.errors import TypingError
from numba.cuda.core.imputils import lower_builtin
from numba.cuda.core.targetconfig import ConfigStack
from numba.cuda.extending import intrinsic, type_callable

from fastgelu import _ufuncs
from fastgelu._llvm import REALS, LlvmIntegers, LlvmReals
from fastgelu._operations import FAR, INFINITY_F32, NAN_BF16, TABLE, WIDER, formulas, tables, ways

SIZES = {"f16": 2, "bf16": 2, "f32": 4, "f64": 8}
VECTOR_BYTES = 16
# Vectors that a thread loads before it computes.
IN_FLIGHT = 2
GLOBAL = 1  # address space


class NvvmReals(LlvmReals):
    """V for CUDA. The tables are those that `lookup` will be given, to lie side by side."""

    def __init__(self, builder, dtype, tables=()):
        super().__init__(builder, dtype)
        self._suffix = {"f32": "f", "f64": "d"}[dtype]
        self._tables = tables
        self._size = SIZES[dtype]

    def _nvvm(self, operation, *args):
        return call(self.builder, f"llvm.nvvm.{operation}.{self._suffix}", self.type, *args)

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

    tables_in = GLOBAL

    def lookup(self, table, index):
        table = tuple(table)
        tables = self._tables if table in self._tables else (table,)
        at = tables.index(table) * TABLE
        entry = self.builder.and_(index, ir.Constant(self.integer_type, TABLE - 1))
        entry = self.builder.gep(self.array(sum(tables, ())), [entry], inbounds=True)
        return self.load(self.builder.gep(entry, [ir.IntType(32)(at)], inbounds=True))

    def load(self, pointer):
        value = self.builder.load(pointer, align=self._size)
        value.set_metadata("invariant.load", self.builder.module.add_metadata([]))
        return value


def call(builder, name, result_type, *args):
    """Call an intrinsic by its name."""
    function = builder.module.globals.get(name)
    if function is None:
        signature = ir.FunctionType(result_type, [arg.type for arg in args])
        function = ir.Function(builder.module, signature, name)
    return builder.call(function, args)


def write_formula(builder, name, dtype, args, near=False):
    """The code of a function for one element, in the dtype it is computed in; args are dy, x."""
    wide = WIDER.get(dtype, dtype)
    reals, integers = NvvmReals(builder, wide, tables(name, dtype)), LlvmIntegers(builder, wide)
    formula = formulas(dtype, reals, integers)[name]
    return formula(*args[-_ufuncs.UFUNCS[name].nin :], near)


# ---- float16 and bfloat16 --------------------------------------------------------------------

HALF, SINGLE, WORD = ir.IntType(16), ir.FloatType(), ir.IntType(32)


def widen(builder, dtype, bits):
    """The float32 number of an encoding (i16)."""
    if dtype == "f16":
        return call(builder, "llvm.convert.from.fp16.f32", SINGLE, bits)
    return builder.bitcast(builder.shl(builder.zext(bits, WORD), WORD(16)), SINGLE)


def rounds_bfloat16():
    """Whether the device that is compiled for has an instruction for that."""
    flags = ConfigStack.top_or_none()
    return flags is not None and (flags.compute_capability or (0, 0)) >= (8, 0)


def round_bfloat16(builder, a):
    """In integers. The NaN of devices, 0x7fffffff, would run over."""
    bits = builder.bitcast(a, WORD)
    odd = builder.and_(builder.lshr(bits, WORD(16)), WORD(1))
    near = builder.lshr(builder.add(bits, builder.add(odd, WORD(0x7FFF))), WORD(16))
    magnitude = builder.and_(bits, WORD(0x7FFFFFFF))
    is_nan = builder.icmp_unsigned(">", magnitude, WORD(INFINITY_F32))
    return builder.select(is_nan, WORD(NAN_BF16), near)


def round_word(builder, dtype, low, high):
    """Two float32 numbers as a word with their encodings, rounded once."""
    if dtype == "bf16" and rounds_bfloat16():
        signature = ir.FunctionType(WORD, [SINGLE, SINGLE])
        both = ir.InlineAsm(signature, "cvt.rn.bf16x2.f32 $0, $1, $2;", "=r,f,f")
        return builder.call(both, [high, low])
    low, high = (builder.zext(round_one(builder, dtype, a), WORD) for a in (low, high))
    return builder.or_(low, builder.shl(high, WORD(16)))


def round_one(builder, dtype, a):
    """The encoding (i16) of a float32 number, rounded once."""
    if dtype == "f16":
        return call(builder, "llvm.convert.to.fp16.f32", HALF, a)
    if rounds_bfloat16():
        one = ir.InlineAsm(ir.FunctionType(HALF, [SINGLE]), "cvt.rn.bf16.f32 $0, $1;", "=h,f")
        return builder.call(one, [a])
    return builder.trunc(round_bfloat16(builder, a), HALF)


def compute(builder, name, dtype, args):
    """The code of a function for one element; 16-bit ones as their encodings."""
    if dtype in WIDER:
        args = [None if bits is None else widen(builder, dtype, bits) for bits in args]
        return round_one(builder, dtype, write_formula(builder, name, dtype, args))

    def write(near):
        return [write_formula(builder, name, dtype, args, near or FAR)]

    (result,) = by_ways(builder, dtype, args[-1:], ways(name, dtype), write)
    return result


# ---- the user's kernels ----------------------------------------------------------------------


DTYPES = {
    types.float16: "f16",
    types.bfloat16: "bf16",
    types.float32: "f32",
    types.float64: "f64",
}


KINDS = (types.Float, types.Integer, type(types.bfloat16))


def result_type(ufunc, inputs):
    """float32 of float32 alone, float16 and bfloat16 likewise, otherwise float64."""
    given = set(inputs)
    if len(given) == 1 and (real := next(iter(given))) in DTYPES:
        return real
    wide = types.float32, types.float64
    if not all(type_ in wide or isinstance(type_, types.Integer) for type_ in inputs):
        listed = ", ".join(map(str, inputs))
        raise TypingError(
            f"fastgelu.{ufunc.__name__} in CUDA kernels takes scalars of float32, float64 and "
            f"integers, or of float16 or bfloat16 alone, not ({listed})"
        )
    return types.float64


def register(ufunc):
    if ufunc.nin == 1:

        @type_callable(ufunc)
        def type_unary(context):
            return lambda x: result_type(ufunc, (x,))

    else:

        @type_callable(ufunc)
        def type_binary(context):
            return lambda x1, x2: result_type(ufunc, (x1, x2))

    def lower(context, builder, signature, args):
        result = signature.return_type
        operands = [
            context.cast(builder, value, given, result)
            for value, given in zip(args, signature.args)
        ]
        return compute(builder, ufunc.__name__, DTYPES[result], operands)

    # Not for any types: what _numba_overloads.py registers for those, numba-cuda sees too.
    for kinds in itertools.product(KINDS, repeat=ufunc.nin):
        lower_builtin(ufunc, *kinds)(lower)


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
        pointer_type = REALS.get(dtype_, HALF).as_pointer(GLOBAL)
        pointers = [builder.inttoptr(address, pointer_type) for address in args[2:]]
        values = [None, None]
        for i in operands(name_):
            values[i] = builder.load(pointers[i])
        builder.store(compute(builder, name_, dtype_, values), pointers[2])
        return context.get_dummy_value()

    return types.void(name, dtype, *[types.int64] * 3), codegen


def widen_part(builder, dtype, word, shift):
    """The float32 number of the half of a word that begins at bit `shift`."""
    if dtype == "bf16" and shift:  # it stays where it is
        return builder.bitcast(builder.and_(word, WORD(0xFFFF0000)), SINGLE)
    return widen(builder, dtype, builder.trunc(builder.lshr(word, WORD(shift)), HALF))


def all_within(builder, dtype, numbers, above, most):
    """Whether above < |x| <= most for all numbers."""
    reals = NvvmReals(builder, WIDER.get(dtype, dtype))
    yes = ir.Constant(ir.IntType(1), 1)
    for x in numbers:
        t = reals.abs(x)
        yes = builder.and_(yes, builder.fcmp_ordered("<=", t, reals.set(most)))
        yes = builder.and_(yes, builder.fcmp_ordered(">", t, reals.set(above)))
    return yes


def elements_of(builder, dtype, loaded, vector_type):
    """The operands (dy, x) of each element of vectors that were loaded, in order."""
    for vectors in loaded:
        for lane in range(vector_type.count):
            values = {i: builder.extract_element(each, WORD(lane)) for i, each in vectors.items()}
            for shift in (0, 16) if dtype in WIDER else (None,):
                given = [None, None]
                for i, value in values.items():
                    wide = shift is not None
                    given[i] = widen_part(builder, dtype, value, shift) if wide else value
                yield given


def write_each(builder, name, dtype, loaded, vector_type, near):
    """The results, as vectors."""
    elements = elements_of(builder, dtype, loaded, vector_type)
    vectors = []
    for _ in range(IN_FLIGHT):
        vector = ir.Constant(vector_type, ir.Undefined)
        for lane in range(vector_type.count):
            if dtype in WIDER:
                pair = [write_formula(builder, name, dtype, next(elements), near) for _ in "ab"]
                value = round_word(builder, dtype, *pair)
            else:
                value = write_formula(builder, name, dtype, next(elements), near)
            vector = builder.insert_element(vector, value, WORD(lane))
        vectors.append(vector)
    return vectors


def by_ways(builder, dtype, numbers, ways, write):
    """The values that `write(near)` makes, by the first way that all numbers allow."""
    if not ways:
        return write(False)
    (above, most, near), *others = ways
    made = []
    with builder.if_else(all_within(builder, dtype, numbers, above, most)) as (short, long):
        with short:
            made.append((write(near), builder.block))
        with long:
            made.append((by_ways(builder, dtype, numbers, others, write), builder.block))
    joined = [builder.phi(value.type) for value in made[0][0]]
    for values, block in made:
        for result, value in zip(joined, values):
            result.add_incoming(value, block)
    return joined


@intrinsic
def several(typingctx, name, dtype, dy, x, y, step):
    """Compute IN_FLIGHT vectors, at addresses that lie `step` bytes apart."""
    name_, dtype_ = literals(name, dtype)
    element = WORD if dtype_ in WIDER else REALS[dtype_]
    vector_type = ir.VectorType(element, VECTOR_BYTES // max(4, SIZES[dtype_]))

    def codegen(context, builder, signature, args):
        *addresses, step = args[2:]

        def pointer(address, k):
            address = builder.add(address, builder.mul(step, ir.Constant(step.type, k)))
            return builder.inttoptr(address, vector_type.as_pointer(GLOBAL))

        loaded = [
            {i: builder.load(pointer(addresses[i], k), align=VECTOR_BYTES) for i in operands(name_)}
            for k in range(IN_FLIGHT)
        ]
        numbers = [x for _, x in elements_of(builder, dtype_, loaded, vector_type)]
        results = by_ways(
            builder,
            dtype_,
            numbers,
            ways(name_, dtype_),
            lambda near: write_each(builder, name_, dtype_, loaded, vector_type, near),
        )
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
