/* SPDX-License-Identifier: BSD-3-Clause */
/* vocabulary.h: the vector operations in which the algorithms are written.
 *
 * For each dtype f32 and f64 there are a vector of reals V_<dtype>, a vector of equally
 * wide integers I_<dtype>, FG_LANES_<dtype>, and the operations below with the dtype
 * appended (v_add_f32): interleave.h makes them of those of a target file. The algorithms
 * are included once for each dtype, with FG_REAL naming it, and say just v_add.
 *
 *   v_load(p) v_store(p, a) v_set(c)      memory (any alignment), one constant
 *   v_stream(p, a) v_stream_end()         p aligned to a register: stored past the caches where
 *                                         the target can; in order with other stores after the end
 *   v_add v_sub v_mul v_div               rounded once, IEEE
 *   v_fma(a, b, c)   a*b + c              rounded once
 *   v_fnma(a, b, c)  c - a*b              rounded once
 *   v_fms(a, b, c)   a*b - c              rounded once
 *   v_abs v_neg                           sign bit only
 *   v_select_above(t, limit, a, b)        a where t > limit, else b (and where t is NaN); no
 *                                         flag is raised for a quiet NaN
 *   v_select_negative(s, a, b)            a where the sign bit of s is set, else b
 *   v_positive(a)                         a, or -0 where the sign bit of a is set
 *   v_copysign(a, s)                      magnitude of a, sign of s
 *   v_select_infinite(s, a, b)            a where s is infinite, else b
 *   v_bits(a) v_real(i)                   the same bits as integers, as reals
 *   i_add i_sub i_min                     modulo 2^32 or 2^64; signed order
 *   i_max                                 likewise, of the bits of positive numbers
 *   i_least(i, j) i_most(i, j)            like i_min and i_max for what follows, maybe faster
 *   i_all_above(i, c) i_any_above(i, c)   an int: whether every lane, any lane exceeds the bits
 *                                         of the real c; where that is close, the answers may
 *                                         be no and yes
 *   i_to_exponent(i)                      shifted left by the width of the mantissa field
 *   i_to_second(i)                        shifted left by 36 (float64; 16 in float32): the second of two
 *                                         numbers in one, of which it is the low bits
 *   v_row(table, rows, columns, i)        for each lane a row (R) of a table, the one whose number
 *                                         is in the low bits of i; rows is a power of two, and 8
 *                                         in float32
 *   v_entry(row, n)                       its entry n. A table of float32 holds the entries 0 of
 *                                         all rows, then the entries 1, ...; of float64 row after
 *                                         row, with an even number of columns; two coefficients
 *                                         may share an entry (i_to_second)
 *   v_keep(places, rows, columns, i)      where those rows are, as FG_LANES uint32_t in memory, for
 *   v_kept(table, places)                 which gives the rows: only float64, for the array loops,
 *                                         where FG_ROWS_FIRST
 *   i_above(i, c)                         an unsigned: bit l says whether lane l exceeds the bits of c
 *
 * And, to and from the 16 bits of float16 and bfloat16:
 *
 *   v_load_f16(p) v_load_bf16(p)          a V_f32, exactly
 *   v_store_f16(p, a) v_store_bf16(p, a)  rounded once, to nearest even, subnormal results too;
 *                                         quiet NaN stay so, and may be given to v_store_bf16
 *                                         only with the lower 16 bits 0: as they come from
 *                                         16-bit operands or of an invalid operation. The
 *                                         overflow flag is raised by v_store_f16 only.
 *   v_raised(above, a)                    a; above is computed for the overflow flag that it raises,
 *                                         where a will be rounded to infinity by v_store_bf16
 *
 * And between the dtypes of the second derivatives:
 *
 *   v_widen(p)                            a V_f64 of FG_LANES_f64 f32 in memory, exactly
 *   v_narrow(p, a)                        a V_f64 to so many f32, rounded once, to nearest even
 *
 * Nothing else may be used: that is what makes the bits the same everywhere. */
#ifndef FG_VOCABULARY_H
#define FG_VOCABULARY_H

#define FG_PASTE_(a, b) a##_##b
#define FG_PASTE(a, b) FG_PASTE_(a, b)
#define FG_NAME(name) FG_PASTE(name, FG_REAL) /* expands where it is used */

#define V FG_NAME(V)
#define I FG_NAME(I)
#define T FG_NAME(fg)
#define R FG_NAME(R)
#define FG_LANES FG_NAME(FG_LANES)
#define v_load FG_NAME(v_load)
#define v_store FG_NAME(v_store)
#define v_set FG_NAME(v_set)
#define v_add FG_NAME(v_add)
#define v_sub FG_NAME(v_sub)
#define v_mul FG_NAME(v_mul)
#define v_div FG_NAME(v_div)
#define v_fma FG_NAME(v_fma)
#define v_fnma FG_NAME(v_fnma)
#define v_fms FG_NAME(v_fms)
#define v_abs FG_NAME(v_abs)
#define v_neg FG_NAME(v_neg)
#define v_select_above FG_NAME(v_select_above)
#define v_select_negative FG_NAME(v_select_negative)
#define v_positive FG_NAME(v_positive)
#define v_bits FG_NAME(v_bits)
#define v_real FG_NAME(v_real)
#define i_add FG_NAME(i_add)
#define i_sub FG_NAME(i_sub)
#define i_max FG_NAME(i_max)
#define i_min FG_NAME(i_min)
#define v_copysign FG_NAME(v_copysign)
#define v_select_infinite FG_NAME(v_select_infinite)
#define i_to_exponent FG_NAME(i_to_exponent)
#define i_to_second FG_NAME(i_to_second)
#define v_row FG_NAME(v_row)
#define v_entry FG_NAME(v_entry)

/* types and functions of algorithms.h */
#define pair FG_NAME(pair)
#define begun FG_NAME(begun)
#define polynomial FG_NAME(polynomial)
#define two_product FG_NAME(two_product)
#define pow2 FG_NAME(pow2)
#define pow2_ratio FG_NAME(pow2_ratio)
#define at_least FG_NAME(at_least)
#define at_most FG_NAME(at_most)
#define nan_or_half FG_NAME(nan_or_half)
#define plain_value FG_NAME(plain_value)
#define plain_slope FG_NAME(plain_slope)
#define plain_backward FG_NAME(plain_backward)
#define unless_plain FG_NAME(unless_plain)
#define tanh_argument FG_NAME(tanh_argument)
#define from_table FG_NAME(from_table)
#define clamped FG_NAME(clamped)
#define signed_clamped FG_NAME(signed_clamped)
#define times_sigmoid FG_NAME(times_sigmoid)
#define small_side FG_NAME(small_side)
#define product FG_NAME(product)
#define power_kept FG_NAME(power_kept)
#define exponential_beside_1 FG_NAME(exponential_beside_1)
#define finish_value FG_NAME(finish_value)
#define sigmoid_slope FG_NAME(sigmoid_slope)
#define joined FG_NAME(joined)
#define finish_slope FG_NAME(finish_slope)
#define finish_backward FG_NAME(finish_backward)

#endif
