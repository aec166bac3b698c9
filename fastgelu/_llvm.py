# SPDX-License-Identifier: BSD-3-Clause
"""Operations for the formulas that write LLVM instructions: run with them, a formula becomes the
code of the function at hand, in one piece and without a branch.

Nothing here allows LLVM to contract, reassociate or approximate: instructions have no fast-math
flags, and the one fused operation is llvm.fma, which calls the C library's fma where the processor
has none. A target whose code generator contracts all the same (CUDA's) overrides add, sub and mul.
"""

import functools
import hashlib

from llvmlite import ir

from fastgelu._operations import FRACTION_BITS, TABLE

REALS = {"f32": ir.FloatType(), "f64": ir.DoubleType()}
INTEGERS = {"f32": ir.IntType(32), "f64": ir.IntType(64)}


class LlvmReals:
    """V for values of type REALS[dtype], written by an llvmlite IRBuilder."""

    tables_in = 0  # address space
    tables_align = 64

    def __init__(self, builder, dtype):
        self.builder = builder
        self.type, self.integer_type = REALS[dtype], INTEGERS[dtype]

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
        zero = ir.Constant(self.integer_type, 0)
        return self.builder.select(self.builder.icmp_signed("<", self.bits(s), zero), a, b)

    def select_infinite(self, s, a, b):
        infinity = self.set(float("inf"))
        return self.builder.select(self.builder.fcmp_ordered("==", self.abs(s), infinity), a, b)

    def row(self, table, rows, columns, index):
        return tuple(table), rows, columns, index

    def entry(self, row, n):
        table, rows, columns, index = row
        if self.type == REALS["f32"]:
            return self.lookup(table[rows * n : rows * (n + 1)], index)
        at = self.builder.and_(index, ir.Constant(self.integer_type, rows - 1))
        at = self.builder.mul(at, ir.Constant(self.integer_type, columns))
        at = self.builder.add(at, ir.Constant(self.integer_type, n))
        return self.load(self.builder.gep(self.array(table), [at], inbounds=True))

    def array(self, table):
        """The address of a constant array."""
        name = name_of(self.type, table)
        module, array_type = self.builder.module, ir.ArrayType(self.type, len(table))
        array = module.globals.get(name)
        if array is None:
            array = ir.GlobalVariable(module, array_type, name, addrspace=self.tables_in)
            array.linkage, array.global_constant = "internal", True
            array.align = self.tables_align
            array.initializer = ir.Constant(array_type, [ir.Constant(self.type, c) for c in table])
        return self.builder.bitcast(array, self.type.as_pointer(self.tables_in))

    def load(self, pointer):
        """A number of a constant array."""
        return self.builder.load(pointer)

    def lookup(self, table, index):
        """A tree of seven selections by the low three bits of the index, which become signs. LLVM
        vectorises it to blends. Loads from a constant array become gathers, or single loads and
        inserts: a user's loop with seven lookups takes 1.5 times as long with AVX2, 3.4 times with
        AVX-512 (Zen 4)."""
        entries = [self.set(c) for c in table]
        for bit in range(TABLE.bit_length() - 1):
            sign = ir.Constant(self.integer_type, self.integer_type.width - 1 - bit)
            zero = ir.Constant(self.integer_type, 0)
            odd = self.builder.icmp_signed("<", self.builder.shl(index, sign), zero)
            pairs = zip(entries[::2], entries[1::2])
            entries = [self.builder.select(odd, high, low) for low, high in pairs]
        return entries[0]


@functools.cache
def name_of(type_, table):
    digest = hashlib.sha256(repr((str(type_), table)).encode()).hexdigest()
    return f"fastgelu_table_{digest[:16]}"


class LlvmIntegers:
    """I for values of type INTEGERS[dtype]."""

    def __init__(self, builder, dtype):
        self.builder = builder
        self._fraction_bits = ir.Constant(INTEGERS[dtype], FRACTION_BITS[dtype])

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
