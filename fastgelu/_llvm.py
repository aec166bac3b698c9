# SPDX-License-Identifier: BSD-3-Clause
"""Operations for the formulas that write LLVM instructions: run with them, a formula becomes the
code of the function at hand, in one piece and without a branch: of numbers, or of vectors.

Nothing here allows LLVM to contract, reassociate or approximate: instructions have no fast-math
flags, and the one fused operation is llvm.fma, which calls the C library's fma where the processor
has none. A target whose code generator contracts all the same (CUDA's) overrides add, sub and mul.
"""

import functools
import hashlib

from llvmlite import ir

from fastgelu._operations import FRACTION_BITS, SECOND, TABLE

REALS = {"f32": ir.FloatType(), "f64": ir.DoubleType()}
INTEGERS = {"f32": ir.IntType(32), "f64": ir.IntType(64)}


class LlvmReals:
    """V for values of type REALS[dtype], written by an llvmlite IRBuilder."""

    tables_in = 0  # address space
    tables_align = 64

    def __init__(self, builder, dtype):
        self.builder = builder
        self.type, self.integer_type = REALS[dtype], INTEGERS[dtype]
        self.lane_type, self.width = self.type, self.integer_type.width

    def integer(self, i):
        return ir.Constant(self.integer_type, i)

    def _call(self, intrinsic, *args):
        signature = ir.FunctionType(self.type, [self.type] * len(args))
        function = self.builder.module.declare_intrinsic(intrinsic, [self.type], signature)
        return self.builder.call(function, args)

    def set(self, c):
        return ir.Constant(self.type, c)

    def add(self, a, b):
        return self.builder.fadd(a, b)

    def sub(self, a, b):
        return self.builder.fsub(a, b)

    def mul(self, a, b):
        return self.builder.fmul(a, b)

    def div(self, a, b):
        return self.builder.fdiv(a, b)

    def fma(self, a, b, c):
        return self.builder.fma(a, b, c)

    def fnma(self, a, b, c):
        return self.fma(self.neg(a), b, c)

    def fms(self, a, b, c):
        return self.fma(a, b, self.neg(c))

    def neg(self, a):
        return self.builder.fneg(a)

    def abs(self, a):
        return self._call("llvm.fabs", a)

    def copysign(self, a, s):
        return self._call("llvm.copysign", a, s)

    def bits(self, a):
        return self.builder.bitcast(a, self.integer_type)

    def real(self, i):
        return self.builder.bitcast(i, self.type)

    def select_above(self, t, limit, a, b):
        return self.builder.select(self.builder.fcmp_ordered(">", t, limit), a, b)

    def select_negative(self, s, a, b):
        return self.builder.select(
            self.builder.icmp_signed("<", self.bits(s), self.integer(0)), a, b
        )

    def positive(self, a):
        return self.select_negative(a, self.set(-0.0), a)

    def select_infinite(self, s, a, b):
        infinity = self.set(float("inf"))
        return self.builder.select(self.builder.fcmp_ordered("==", self.abs(s), infinity), a, b)

    def raised(self, above, a):
        return self.select_infinite(above, above, a)

    def row(self, table, rows, columns, index):
        return tuple(table), rows, columns, index

    def entry(self, row, n):
        table, rows, columns, index = row
        if self.type == REALS["f32"]:
            return self.lookup(table[rows * n : rows * (n + 1)], index)
        at = self.builder.and_(index, self.integer(rows - 1))
        at = self.builder.mul(at, self.integer(columns))
        at = self.builder.add(at, self.integer(n))
        return self.load(self.builder.gep(self.array(table), [at], inbounds=True))

    def array(self, table):
        """The address of a constant array."""
        name = name_of(self.lane_type, table)
        module, array_type = self.builder.module, ir.ArrayType(self.lane_type, len(table))
        array = module.globals.get(name)
        if array is None:
            array = ir.GlobalVariable(module, array_type, name, addrspace=self.tables_in)
            array.linkage, array.global_constant = "internal", True
            array.align = self.tables_align
            array.initializer = ir.Constant(
                array_type, [ir.Constant(self.lane_type, c) for c in table]
            )
        return self.builder.bitcast(array, self.lane_type.as_pointer(self.tables_in))

    def load(self, pointer):
        """A number of a constant array."""
        return self.builder.load(pointer)

    def all_at_most(self, t, limit):
        """Whether a number is at most the limit, and not NaN."""
        return self.builder.fcmp_ordered("<=", t, self.set(limit))

    def lookup(self, table, index):
        """A tree of seven selections by the low three bits of the index, which become signs: of
        vectors, blends."""
        entries = [self.set(c) for c in table]
        for bit in range(TABLE.bit_length() - 1):
            moved = self.builder.shl(index, self.integer(self.width - 1 - bit))
            odd = self.builder.icmp_signed("<", moved, self.integer(0))
            pairs = zip(entries[::2], entries[1::2])
            entries = [self.builder.select(odd, high, low) for low, high in pairs]
        return entries[0]


class LlvmVectors(LlvmReals):
    """V for vectors, of a processor with the features given ("avx2", ...)."""

    def __init__(self, builder, dtype, lanes, features=()):
        super().__init__(builder, dtype)
        self.lanes = lanes
        self.type = ir.VectorType(self.type, lanes)
        self.integer_type = ir.VectorType(self.integer_type, lanes)
        self.suffix = f"v{lanes}{dtype}"
        self.features = features

    def _call(self, intrinsic, *args, suffix=True):
        name = f"{intrinsic}.{self.suffix}" if suffix else intrinsic
        function = self.builder.module.globals.get(name)
        if function is None:
            signature = ir.FunctionType(args[0].type, [arg.type for arg in args])
            function = ir.Function(self.builder.module, signature, name)
        return self.builder.call(function, args)

    def set(self, c):
        return ir.Constant(self.type, [ir.Constant(self.lane_type, c)] * self.lanes)

    def fma(self, a, b, c):
        return self._call("llvm.fma", a, b, c)

    def integer(self, i):
        return ir.Constant(self.integer_type, [ir.Constant(ir.IntType(self.width), i)] * self.lanes)

    def entry(self, row, n):
        if self.lane_type == REALS["f64"]:
            return self.gathered(row, n)
        table, rows, _, index = row
        table = table[rows * n : rows * (n + 1)]
        if self.lanes == 8 and "avx2" in self.features:
            return self._call("llvm.x86.avx2.permps", self.all_of(table), index, suffix=False)
        if self.lanes == 16 and "avx512f" in self.features:
            name = "llvm.x86.avx512.permvar.sf.512"
            return self._call(name, self.all_of(table * 2), index, suffix=False)
        return self.lookup(table, index)

    def all_of(self, numbers):
        return ir.Constant(self.type, [ir.Constant(self.lane_type, c) for c in numbers])

    def gathered(self, row, n):
        table, rows, columns, index = row
        at = self.builder.mul(
            self.builder.and_(index, self.integer(rows - 1)), self.integer(columns)
        )
        found = ir.Constant(self.type, ir.Undefined)
        start = self.builder.gep(self.array(table), [ir.IntType(64)(n)], inbounds=True)
        for lane in range(self.lanes):
            lane = ir.IntType(32)(lane)
            one = self.builder.extract_element(at, lane)
            number = self.load(self.builder.gep(start, [one], inbounds=True))
            found = self.builder.insert_element(found, number, lane)
        return found

    def all_at_most(self, t, limit):
        """Whether all lanes are."""
        bits = self.builder.fcmp_ordered("<=", t, self.set(limit))
        bits = self.builder.bitcast(bits, ir.IntType(self.lanes))
        return self.builder.icmp_signed("==", bits, ir.Constant(bits.type, -1))


@functools.cache
def name_of(type_, table):
    digest = hashlib.sha256(repr((str(type_), table)).encode()).hexdigest()
    return f"fastgelu_table_{digest[:16]}"


class LlvmIntegers:
    """I for values of type INTEGERS[dtype]."""

    def __init__(self, builder, dtype, lanes=None):
        self.builder = builder
        bits = ir.Constant(INTEGERS[dtype], FRACTION_BITS[dtype])
        vector = lanes and ir.VectorType(INTEGERS[dtype], lanes)
        second = ir.Constant(INTEGERS[dtype], SECOND[dtype])
        self._fraction_bits = ir.Constant(vector, [bits] * lanes) if lanes else bits
        self._second = ir.Constant(vector, [second] * lanes) if lanes else second

    def add(self, a, b):
        return self.builder.add(a, b)

    def sub(self, a, b):
        return self.builder.sub(a, b)

    def max(self, a, b):
        return self.builder.select(self.builder.icmp_signed(">", a, b), a, b)

    def min(self, a, b):
        return self.builder.select(self.builder.icmp_signed("<", a, b), a, b)

    def to_exponent(self, a):
        return self.builder.shl(a, self._fraction_bits)

    def to_second(self, a):
        return self.builder.shl(a, self._second)
