/* SPDX-License-Identifier: BSD-3-Clause */
/* target_scalar.c: plain C, one element at a time: the target that runs anywhere.
 * fma is the C library's: exact, and slow where the processor has none. */
#include <math.h>
#include <string.h>

#include "internal.h"

#include "coefficients.h"

#define FG_TARGET_NAME scalar
#define FG_REGISTERS 1
#define FG_ROWS_FIRST 0

/* Negation and comparison are made of integers. gcc joins -fma(a, b, c) to one instruction
 * that gives a zero the other sign. An ordered comparison of reals raises invalid for NaN, and
 * clang makes one of islessequal() too; as integers, the bits of numbers that are not negative
 * are in order, with NaN above infinity. */

static FG_INLINE void v_stream_end(void)
{
}

#define FG_SCALAR_TARGET(dtype, integer, unsigned_integer, mantissa_bits, fma_function)          \
    typedef fg_##dtype U_##dtype;                                                                \
    typedef integer J_##dtype;                                                                   \
    enum { FG_REGISTER_LANES_##dtype = 1 };                                                      \
    static FG_INLINE U_##dtype u_load_##dtype(const fg_##dtype *p)                               \
    {                                                                                            \
        return *p;                                                                               \
    }                                                                                            \
    static FG_INLINE void u_store_##dtype(fg_##dtype *p, U_##dtype a)                            \
    {                                                                                            \
        *p = a;                                                                                  \
    }                                                                                            \
    static FG_INLINE void u_stream_##dtype(fg_##dtype *p, U_##dtype a)                           \
    {                                                                                            \
        *p = a;                                                                                  \
    }                                                                                            \
    static FG_INLINE U_##dtype u_set_##dtype(fg_##dtype c)                                       \
    {                                                                                            \
        return c;                                                                                \
    }                                                                                            \
    static FG_INLINE U_##dtype u_add_##dtype(U_##dtype a, U_##dtype b)                           \
    {                                                                                            \
        return a + b;                                                                            \
    }                                                                                            \
    static FG_INLINE U_##dtype u_sub_##dtype(U_##dtype a, U_##dtype b)                           \
    {                                                                                            \
        return a - b;                                                                            \
    }                                                                                            \
    static FG_INLINE U_##dtype u_mul_##dtype(U_##dtype a, U_##dtype b)                           \
    {                                                                                            \
        return a * b;                                                                            \
    }                                                                                            \
    static FG_INLINE U_##dtype u_div_##dtype(U_##dtype a, U_##dtype b)                           \
    {                                                                                            \
        return a / b;                                                                            \
    }                                                                                            \
    static FG_INLINE J_##dtype u_bits_##dtype(U_##dtype a)                                       \
    {                                                                                            \
        J_##dtype i;                                                                             \
        memcpy(&i, &a, sizeof i);                                                                \
        return i;                                                                                \
    }                                                                                            \
    static FG_INLINE U_##dtype u_real_##dtype(J_##dtype i)                                       \
    {                                                                                            \
        U_##dtype a;                                                                             \
        memcpy(&a, &i, sizeof a);                                                                \
        return a;                                                                                \
    }                                                                                            \
    static FG_INLINE U_##dtype u_neg_##dtype(U_##dtype a)                                        \
    {                                                                                            \
        const unsigned_integer sign = (unsigned_integer)1 << (sizeof a * 8 - 1);                 \
        return u_real_##dtype((J_##dtype)((unsigned_integer)u_bits_##dtype(a) ^ sign));          \
    }                                                                                            \
    static FG_INLINE U_##dtype u_fma_##dtype(U_##dtype a, U_##dtype b, U_##dtype c)              \
    {                                                                                            \
        return fma_function(a, b, c);                                                            \
    }                                                                                            \
    static FG_INLINE U_##dtype u_fnma_##dtype(U_##dtype a, U_##dtype b, U_##dtype c)             \
    {                                                                                            \
        return fma_function(u_neg_##dtype(a), b, c);                                             \
    }                                                                                            \
    static FG_INLINE U_##dtype u_fms_##dtype(U_##dtype a, U_##dtype b, U_##dtype c)              \
    {                                                                                            \
        return fma_function(a, b, u_neg_##dtype(c));                                             \
    }                                                                                            \
    static FG_INLINE J_##dtype j_add_##dtype(J_##dtype a, J_##dtype b)                           \
    {                                                                                            \
        return (J_##dtype)((unsigned_integer)a + (unsigned_integer)b);                           \
    }                                                                                            \
    static FG_INLINE J_##dtype j_sub_##dtype(J_##dtype a, J_##dtype b)                           \
    {                                                                                            \
        return (J_##dtype)((unsigned_integer)a - (unsigned_integer)b);                           \
    }                                                                                            \
    static FG_INLINE J_##dtype j_max_##dtype(J_##dtype a, J_##dtype b)                           \
    {                                                                                            \
        return a > b ? a : b;                                                                    \
    }                                                                                            \
    static FG_INLINE J_##dtype j_min_##dtype(J_##dtype a, J_##dtype b)                           \
    {                                                                                            \
        return a < b ? a : b;                                                                    \
    }                                                                                            \
    static FG_INLINE J_##dtype j_least_##dtype(J_##dtype a, J_##dtype b)                         \
    {                                                                                            \
        return a < b ? a : b;                                                                    \
    }                                                                                            \
    static FG_INLINE J_##dtype j_most_##dtype(J_##dtype a, J_##dtype b)                          \
    {                                                                                            \
        return a > b ? a : b;                                                                    \
    }                                                                                            \
    static FG_INLINE J_##dtype j_to_exponent_##dtype(J_##dtype a)                                \
    {                                                                                            \
        return (J_##dtype)((unsigned_integer)a << (mantissa_bits));                              \
    }                                                                                            \
    static FG_INLINE J_##dtype j_to_second_##dtype(J_##dtype a)                                  \
    {                                                                                            \
        return (J_##dtype)((unsigned_integer)a << (sizeof(a) == 8 ? 36 : 16));                   \
    }                                                                                            \
    static FG_INLINE U_##dtype u_abs_##dtype(U_##dtype a)                                        \
    {                                                                                            \
        return u_real_##dtype((J_##dtype)((unsigned_integer)u_bits_##dtype(a) << 1 >> 1));       \
    }                                                                                            \
    static FG_INLINE U_##dtype u_select_above_##dtype(U_##dtype t, U_##dtype limit, U_##dtype a, \
                                                      U_##dtype b)                               \
    {                                                                                            \
        const J_##dtype bits = u_bits_##dtype(t);                                                \
        const int above = bits > u_bits_##dtype(limit);                                          \
        return above && bits <= u_bits_##dtype((U_##dtype)INFINITY) ? a : b;                     \
    }                                                                                            \
    static FG_INLINE unsigned j_above_##dtype(J_##dtype i, fg_##dtype c)                         \
    {                                                                                            \
        return i > u_bits_##dtype(c);                                                            \
    }                                                                                            \
    static FG_INLINE int j_all_above_##dtype(J_##dtype i, fg_##dtype c)                          \
    {                                                                                            \
        return i > u_bits_##dtype(c);                                                            \
    }                                                                                            \
    static FG_INLINE int j_any_above_##dtype(J_##dtype i, fg_##dtype c)                          \
    {                                                                                            \
        return i > u_bits_##dtype(c);                                                            \
    }                                                                                            \
    static FG_INLINE U_##dtype u_select_negative_##dtype(U_##dtype s, U_##dtype a, U_##dtype b)  \
    {                                                                                            \
        return u_bits_##dtype(s) < 0 ? a : b;                                                    \
    }                                                                                            \
    static FG_INLINE U_##dtype u_positive_##dtype(U_##dtype a)                                   \
    {                                                                                            \
        return u_select_negative_##dtype(a, (U_##dtype) - 0.0, a);                               \
    }                                                                                            \
    static FG_INLINE U_##dtype u_copysign_##dtype(U_##dtype a, U_##dtype s)                      \
    {                                                                                            \
        const U_##dtype size = u_abs_##dtype(a);                                                 \
        return u_bits_##dtype(s) < 0 ? -size : size;                                             \
    }                                                                                            \
    static FG_INLINE U_##dtype u_select_infinite_##dtype(U_##dtype s, U_##dtype a, U_##dtype b)  \
    {                                                                                            \
        return u_bits_##dtype(u_abs_##dtype(s)) == u_bits_##dtype((U_##dtype)INFINITY) ? a : b;  \
    }

FG_SCALAR_TARGET(f32, int32_t, uint32_t, 23, fmaf)
FG_SCALAR_TARGET(f64, int64_t, uint64_t, 52, fma)

/* ---- f16, bf16 ----------------------------------------------------------- */

static FG_INLINE U_f32 u_load_f16(const uint16_t *p)
{
    const uint32_t sign = (uint32_t)(*p & 0x8000) << 16, magnitude = *p & 0x7fff;
    uint32_t bits;
    if (magnitude < 0x0400) /* subnormal, or 0 */
        bits = (uint32_t)u_bits_f32((float)magnitude * 0x1p-24f);
    else if (magnitude < 0x7c00) /* the exponent's bias becomes that of float32 */
        bits = (magnitude << 13) + ((uint32_t)(127 - 15) << 23);
    else
        bits = magnitude << 13 | 0x7f800000;
    return u_real_f32((int32_t)(sign | bits));
}
static FG_INLINE void u_store_f16(uint16_t *p, U_f32 a)
{
    const uint32_t bits = (uint32_t)u_bits_f32(a), magnitude = bits & 0x7fffffff;
    uint32_t half;
    if (magnitude < 0x38800000) { /* subnormal: a multiple of 2^-24, the last place of 1/2 */
        half = (uint32_t)(u_bits_f32(u_abs_f32(a) + 0.5f) - u_bits_f32(0.5f));
    } else if (magnitude < 0x477ff000) {
        half = (magnitude - ((uint32_t)(127 - 15) << 23) + 0x0fff + (magnitude >> 13 & 1)) >> 13;
    } else {
        half = magnitude > 0x7f800000 ? 0x7e00 : 0x7c00;
        if (magnitude < 0x7f800000) { /* raises overflow, as the instructions of others do */
            volatile float large = 0x1p127f;
            large *= large;
        }
    }
    *p = (uint16_t)(bits >> 16 & 0x8000) | (uint16_t)half;
}
static FG_INLINE U_f32 u_load_bf16(const uint16_t *p)
{
    return u_real_f32((int32_t)((uint32_t)*p << 16));
}
static FG_INLINE void u_store_bf16(uint16_t *p, U_f32 a)
{
    const uint32_t bits = (uint32_t)u_bits_f32(a);
    *p = (uint16_t)((bits + 0x7fff + (bits >> 16 & 1)) >> 16);
}

static FG_INLINE U_f32 u_look_up_f32(const fg_f32 *entries, J_f32 k)
{
    return entries[k & 7];
}

typedef const fg_f64 *W_f64;
static FG_INLINE W_f64 u_rows_f64(const fg_f64 *table, int rows, int columns, J_f64 k)
{
    return table + (size_t)columns * (size_t)(k & (rows - 1));
}
static FG_INLINE U_f64 u_entry_f64(W_f64 row, int n)
{
    return row[n];
}
#if defined(__GNUC__)
#define FG_ONE_BY_ONE() __asm__ volatile("")
#endif

/* ---- f32 to f64 and back ------------------------------------------------- */

static FG_INLINE U_f64 u_widen(const float *p)
{
    return (double)*p;
}
static FG_INLINE void u_narrow(float *p, U_f64 a)
{
    *p = (float)a;
}

#include "interleave.h"
#include "kernels.h"
