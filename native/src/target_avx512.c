/* SPDX-License-Identifier: BSD-3-Clause */
/* target_avx512.c: x86-64 with AVX-512 F, DQ, BW and VL: 16 floats or 8 doubles. */
#include "internal.h"

/* an empty file on other processors: builds may compile every file */
#if defined(__x86_64__) || defined(_M_X64)

#ifdef FG_SIMDE /* tests only: the same text on a machine without AVX-512 */
#include "simde_avx512.h"
#else
#include <immintrin.h>
#endif
#include <string.h>

#include "coefficients.h"

/* after the headers, so that nothing of theirs is compiled for this target */
#if defined(FG_SIMDE)
#elif defined(__clang__)
#pragma clang attribute push(__attribute__((target("avx512f,avx512dq,avx512bw,avx512vl,fma"))), \
                             apply_to = function)
#elif defined(__GNUC__)
#pragma GCC push_options
#pragma GCC target("avx512f,avx512dq,avx512bw,avx512vl,fma")
#endif

#define FG_TARGET_NAME avx512
#ifndef FG_REGISTERS
#define FG_REGISTERS 2 /* 4 gains 4 % on long arrays and doubles the time of short ones */
#endif
#define FG_ROWS_FIRST 1
#if defined(__GNUC__) && !defined(FG_SIMDE)
#define FG_KEEP(a) __asm__ volatile("" : : "v"(a)) /* a is computed, though nothing reads it */
#endif
#define FG_SHORTER fg_avx2 /* which a machine with AVX-512 has */

/* Comparisons are made of integers: as such, the bits of numbers that are not negative are in
 * order, with NaN above infinity, and no flag is raised. An ordered comparison of reals raises
 * invalid for NaN, and clang makes one of a quiet predicate too. */

/* ---- f32 ----------------------------------------------------------------- */

typedef __m512 U_f32;
typedef __m512i J_f32;
enum { FG_REGISTER_LANES_f32 = 16 };

static FG_INLINE U_f32 u_load_f32(const float *p)
{
    return _mm512_loadu_ps(p);
}
static FG_INLINE void u_store_f32(float *p, U_f32 a)
{
    _mm512_storeu_ps(p, a);
}
static FG_INLINE void u_stream_f32(float *p, U_f32 a)
{
    _mm512_stream_ps(p, a);
}
static FG_INLINE void v_stream_end(void)
{
    _mm_sfence();
}
static FG_INLINE U_f32 u_set_f32(float c)
{
    return _mm512_set1_ps(c);
}
static FG_INLINE U_f32 u_add_f32(U_f32 a, U_f32 b)
{
    return _mm512_add_ps(a, b);
}
static FG_INLINE U_f32 u_sub_f32(U_f32 a, U_f32 b)
{
    return _mm512_sub_ps(a, b);
}
static FG_INLINE U_f32 u_mul_f32(U_f32 a, U_f32 b)
{
    return _mm512_mul_ps(a, b);
}
static FG_INLINE U_f32 u_div_f32(U_f32 a, U_f32 b)
{
    return _mm512_div_ps(a, b);
}
static FG_INLINE U_f32 u_fma_f32(U_f32 a, U_f32 b, U_f32 c)
{
    return _mm512_fmadd_ps(a, b, c);
}
static FG_INLINE U_f32 u_fnma_f32(U_f32 a, U_f32 b, U_f32 c)
{
    return _mm512_fnmadd_ps(a, b, c);
}
static FG_INLINE U_f32 u_fms_f32(U_f32 a, U_f32 b, U_f32 c)
{
    return _mm512_fmsub_ps(a, b, c);
}
static FG_INLINE U_f32 u_abs_f32(U_f32 a)
{
    return _mm512_andnot_ps(_mm512_set1_ps(-0.0f), a);
}
static FG_INLINE U_f32 u_neg_f32(U_f32 a)
{
    return _mm512_xor_ps(_mm512_set1_ps(-0.0f), a);
}
static FG_INLINE U_f32 u_select_above_f32(U_f32 t, U_f32 limit, U_f32 a, U_f32 b)
{
    const __m512i inf = _mm512_set1_epi32(0x7f800000), bits = _mm512_castps_si512(t);
    const __mmask16 above = _mm512_cmpgt_epi32_mask(bits, _mm512_castps_si512(limit));
    const __mmask16 nan = _mm512_cmpgt_epi32_mask(bits, inf);
    return _mm512_mask_blend_ps((__mmask16)(above & ~nan), b, a);
}
static FG_INLINE unsigned j_above_f32(J_f32 i, fg_f32 c)
{
    return _mm512_cmpgt_epi32_mask(i, _mm512_castps_si512(u_set_f32(c)));
}
static FG_INLINE int j_all_above_f32(J_f32 i, fg_f32 c)
{
    return j_above_f32(i, c) == 0xffff;
}
static FG_INLINE int j_any_above_f32(J_f32 i, fg_f32 c)
{
    return j_above_f32(i, c) != 0;
}
static FG_INLINE U_f32 u_select_negative_f32(U_f32 s, U_f32 a, U_f32 b)
{
    return _mm512_mask_blend_ps(_mm512_movepi32_mask(_mm512_castps_si512(s)), b, a);
}
/* as unsigned integers, all numbers with the sign are at least -0 */
static FG_INLINE U_f32 u_positive_f32(U_f32 a)
{
    const __m512i minus_zero = _mm512_castps_si512(_mm512_set1_ps(-0.0f));
    return _mm512_castsi512_ps(_mm512_min_epu32(_mm512_castps_si512(a), minus_zero));
}
static FG_INLINE U_f32 u_copysign_f32(U_f32 a, U_f32 s)
{
    const __m512i sign = _mm512_castps_si512(_mm512_set1_ps(-0.0f));
    const __m512i size = _mm512_castps_si512(a), from = _mm512_castps_si512(s);
    /* bit by bit: sign ? from : size */
    return _mm512_castsi512_ps(_mm512_ternarylogic_epi32(sign, from, size, 0xca));
}
static FG_INLINE U_f32 u_select_infinite_f32(U_f32 s, U_f32 a, U_f32 b)
{
    const __m512i inf = _mm512_set1_epi32(0x7f800000);
    const __m512i bits = _mm512_castps_si512(u_abs_f32(s));
    return _mm512_mask_blend_ps(_mm512_cmpeq_epi32_mask(bits, inf), b, a);
}
static FG_INLINE J_f32 u_bits_f32(U_f32 a)
{
    return _mm512_castps_si512(a);
}
static FG_INLINE U_f32 u_real_f32(J_f32 i)
{
    return _mm512_castsi512_ps(i);
}
static FG_INLINE J_f32 j_add_f32(J_f32 a, J_f32 b)
{
    return _mm512_add_epi32(a, b);
}
static FG_INLINE J_f32 j_sub_f32(J_f32 a, J_f32 b)
{
    return _mm512_sub_epi32(a, b);
}
static FG_INLINE J_f32 j_max_f32(J_f32 a, J_f32 b)
{
    return _mm512_max_epi32(a, b);
}
static FG_INLINE J_f32 j_min_f32(J_f32 a, J_f32 b)
{
    return _mm512_min_epi32(a, b);
}
static FG_INLINE J_f32 j_least_f32(J_f32 a, J_f32 b)
{
    return j_min_f32(a, b);
}
static FG_INLINE J_f32 j_most_f32(J_f32 a, J_f32 b)
{
    return j_max_f32(a, b);
}
static FG_INLINE J_f32 j_to_exponent_f32(J_f32 a)
{
    return _mm512_slli_epi32(a, 23);
}
static FG_INLINE J_f32 j_to_second_f32(J_f32 a)
{
    return _mm512_slli_epi32(a, 16);
}

/* the 8 entries twice, since the instruction looks at the low 4 bits of k */
static FG_INLINE U_f32 u_look_up_f32(const fg_f32 *entries, J_f32 k)
{
    return _mm512_permutexvar_ps(k, _mm512_broadcast_f32x8(_mm256_loadu_ps(entries)));
}

/* ---- f64 ----------------------------------------------------------------- */

typedef __m512d U_f64;
typedef __m512i J_f64;
enum { FG_REGISTER_LANES_f64 = 8 };

static FG_INLINE U_f64 u_load_f64(const double *p)
{
    return _mm512_loadu_pd(p);
}
static FG_INLINE void u_store_f64(double *p, U_f64 a)
{
    _mm512_storeu_pd(p, a);
}
static FG_INLINE void u_stream_f64(double *p, U_f64 a)
{
    _mm512_stream_pd(p, a);
}
static FG_INLINE U_f64 u_set_f64(double c)
{
    return _mm512_set1_pd(c);
}
static FG_INLINE U_f64 u_add_f64(U_f64 a, U_f64 b)
{
    return _mm512_add_pd(a, b);
}
static FG_INLINE U_f64 u_sub_f64(U_f64 a, U_f64 b)
{
    return _mm512_sub_pd(a, b);
}
static FG_INLINE U_f64 u_mul_f64(U_f64 a, U_f64 b)
{
    return _mm512_mul_pd(a, b);
}
static FG_INLINE U_f64 u_div_f64(U_f64 a, U_f64 b)
{
    return _mm512_div_pd(a, b);
}
static FG_INLINE U_f64 u_fma_f64(U_f64 a, U_f64 b, U_f64 c)
{
    return _mm512_fmadd_pd(a, b, c);
}
static FG_INLINE U_f64 u_fnma_f64(U_f64 a, U_f64 b, U_f64 c)
{
    return _mm512_fnmadd_pd(a, b, c);
}
static FG_INLINE U_f64 u_fms_f64(U_f64 a, U_f64 b, U_f64 c)
{
    return _mm512_fmsub_pd(a, b, c);
}
static FG_INLINE U_f64 u_abs_f64(U_f64 a)
{
    return _mm512_andnot_pd(_mm512_set1_pd(-0.0), a);
}
static FG_INLINE U_f64 u_neg_f64(U_f64 a)
{
    return _mm512_xor_pd(_mm512_set1_pd(-0.0), a);
}
static FG_INLINE U_f64 u_select_above_f64(U_f64 t, U_f64 limit, U_f64 a, U_f64 b)
{
    const __m512i inf = _mm512_set1_epi64(0x7ff0000000000000), bits = _mm512_castpd_si512(t);
    const __mmask8 above = _mm512_cmpgt_epi64_mask(bits, _mm512_castpd_si512(limit));
    const __mmask8 nan = _mm512_cmpgt_epi64_mask(bits, inf);
    return _mm512_mask_blend_pd((__mmask8)(above & ~nan), b, a);
}
static FG_INLINE unsigned j_above_f64(J_f64 i, fg_f64 c)
{
    return _mm512_cmpgt_epi64_mask(i, _mm512_castpd_si512(u_set_f64(c)));
}
static FG_INLINE int j_all_above_f64(J_f64 i, fg_f64 c)
{
    return j_above_f64(i, c) == 0xff;
}
static FG_INLINE int j_any_above_f64(J_f64 i, fg_f64 c)
{
    return j_above_f64(i, c) != 0;
}
static FG_INLINE U_f64 u_select_negative_f64(U_f64 s, U_f64 a, U_f64 b)
{
    return _mm512_mask_blend_pd(_mm512_movepi64_mask(_mm512_castpd_si512(s)), b, a);
}
static FG_INLINE U_f64 u_positive_f64(U_f64 a)
{
    const __m512i minus_zero = _mm512_castpd_si512(_mm512_set1_pd(-0.0));
    return _mm512_castsi512_pd(_mm512_min_epu64(_mm512_castpd_si512(a), minus_zero));
}
static FG_INLINE U_f64 u_copysign_f64(U_f64 a, U_f64 s)
{
    const __m512i sign = _mm512_castpd_si512(_mm512_set1_pd(-0.0));
    const __m512i size = _mm512_castpd_si512(a), from = _mm512_castpd_si512(s);
    /* bit by bit: sign ? from : size */
    return _mm512_castsi512_pd(_mm512_ternarylogic_epi64(sign, from, size, 0xca));
}
static FG_INLINE U_f64 u_select_infinite_f64(U_f64 s, U_f64 a, U_f64 b)
{
    const __m512i inf = _mm512_set1_epi64(0x7ff0000000000000);
    const __m512i bits = _mm512_castpd_si512(u_abs_f64(s));
    return _mm512_mask_blend_pd(_mm512_cmpeq_epi64_mask(bits, inf), b, a);
}
static FG_INLINE J_f64 u_bits_f64(U_f64 a)
{
    return _mm512_castpd_si512(a);
}
static FG_INLINE U_f64 u_real_f64(J_f64 i)
{
    return _mm512_castsi512_pd(i);
}
static FG_INLINE J_f64 j_add_f64(J_f64 a, J_f64 b)
{
    return _mm512_add_epi64(a, b);
}
static FG_INLINE J_f64 j_sub_f64(J_f64 a, J_f64 b)
{
    return _mm512_sub_epi64(a, b);
}
static FG_INLINE J_f64 j_max_f64(J_f64 a, J_f64 b)
{
    return _mm512_max_epi64(a, b);
}
static FG_INLINE J_f64 j_min_f64(J_f64 a, J_f64 b)
{
    return _mm512_min_epi64(a, b);
}
static FG_INLINE J_f64 j_least_f64(J_f64 a, J_f64 b)
{
    return j_min_f64(a, b);
}
static FG_INLINE J_f64 j_most_f64(J_f64 a, J_f64 b)
{
    return j_max_f64(a, b);
}
static FG_INLINE J_f64 j_to_exponent_f64(J_f64 a)
{
    return _mm512_slli_epi64(a, 52);
}
static FG_INLINE J_f64 j_to_second_f64(J_f64 a)
{
    return _mm512_slli_epi64(a, 36);
}

/* where the rows of the lanes are */
typedef struct W_f64 {
    const fg_f64 *lane[8];
} W_f64;
static FG_INLINE W_f64 u_rows_f64(const fg_f64 *table, int rows, int columns, J_f64 k)
{
    W_f64 at;
    long long which[8];
    _mm512_storeu_si512(which, _mm512_and_si512(k, _mm512_set1_epi64(rows - 1)));
    for (int i = 0; i < 8; i++)
        at.lane[i] = table + (size_t)columns * (size_t)which[i];
    return at;
}
static FG_INLINE void u_keep_f64(uint32_t *places, int rows, int columns, const J_f64 *k)
{
    for (int r = 0; r < FG_REGISTERS; r++) {
        const __m512i which = _mm512_and_si512(k[r], _mm512_set1_epi64(rows - 1));
        const __m512i place = _mm512_mul_epu32(which, _mm512_set1_epi64(columns));
        _mm256_storeu_si256((__m256i *)(places + 8 * r), _mm512_cvtepi64_epi32(place));
    }
}
static FG_INLINE W_f64 u_kept_f64(const fg_f64 *table, const uint32_t *places, int r)
{
    W_f64 at;
    for (int i = 0; i < 8; i++)
        at.lane[i] = table + places[8 * r + i];
    return at;
}
/* two entries of lanes 0, 2, 4 and 6 */
static FG_INLINE __m512d every_second(const fg_f64 *const *lane, int n)
{
    const __m256d low = _mm256_insertf128_pd(_mm256_castpd128_pd256(_mm_loadu_pd(lane[0] + n)),
                                             _mm_loadu_pd(lane[2] + n), 1);
    const __m256d high = _mm256_insertf128_pd(_mm256_castpd128_pd256(_mm_loadu_pd(lane[4] + n)),
                                              _mm_loadu_pd(lane[6] + n), 1);
    return _mm512_insertf64x4(_mm512_castpd256_pd512(low), high, 1);
}
/* entries 2m and 2m + 1 come from the same loads */
static FG_INLINE U_f64 u_entry_f64(W_f64 at, int n)
{
    const int even = n & ~1;
    const __m512d a = every_second(at.lane, even), b = every_second(at.lane + 1, even);
    return n == even ? _mm512_unpacklo_pd(a, b) : _mm512_unpackhi_pd(a, b);
}

/* ---- f16, bf16: not by the instructions of AVX512-BF16, which flush subnormals ------------ */

static FG_INLINE U_f32 u_load_f16(const uint16_t *p)
{
    return _mm512_cvtph_ps(_mm256_loadu_si256((const __m256i *)p));
}
static FG_INLINE void u_store_f16(uint16_t *p, U_f32 a)
{
    _mm256_storeu_si256((__m256i *)p, _mm512_cvtps_ph(a, _MM_FROUND_TO_NEAREST_INT));
}
/* each element to the upper half of 32 bits, zeros below */
static FG_INLINE U_f32 u_load_bf16(const uint16_t *p)
{
    static const uint16_t places[32] = {0, 0, 0, 1, 0, 2,  0, 3,  0, 4,  0, 5,  0, 6,  0, 7,
                                        0, 8, 0, 9, 0, 10, 0, 11, 0, 12, 0, 13, 0, 14, 0, 15};
    const __m512i bits = _mm512_castsi256_si512(_mm256_loadu_si256((const __m256i *)p));
    const __m512i upper =
        _mm512_maskz_permutexvar_epi16(0xaaaaaaaa, _mm512_loadu_si512(places), bits);
    return _mm512_castsi512_ps(upper);
}
static FG_INLINE __m512i u_rounded_to_bf16(U_f32 a) /* in the upper halves */
{
    const __m512i bits = _mm512_castps_si512(a);
    const __m512i odd = _mm512_and_si512(_mm512_srli_epi32(bits, 16), _mm512_set1_epi32(1));
    return _mm512_add_epi32(bits, _mm512_add_epi32(odd, _mm512_set1_epi32(0x7fff)));
}
#if FG_REGISTERS == 2
#define FG_STORE_TWO 1
static FG_INLINE void u_store_two_bf16(uint16_t *p, U_f32 a, U_f32 b)
{
    static const uint16_t upper[32] = {1,  3,  5,  7,  9,  11, 13, 15, 17, 19, 21,
                                       23, 25, 27, 29, 31, 33, 35, 37, 39, 41, 43,
                                       45, 47, 49, 51, 53, 55, 57, 59, 61, 63};
    const __m512i top = _mm512_permutex2var_epi16(u_rounded_to_bf16(a), _mm512_loadu_si512(upper),
                                                  u_rounded_to_bf16(b));
    _mm512_storeu_si512(p, top);
}
#else
static FG_INLINE void u_store_bf16(uint16_t *p, U_f32 a)
{
    const __m512i top = _mm512_srli_epi32(u_rounded_to_bf16(a), 16);
    _mm256_storeu_si256((__m256i *)p, _mm512_cvtepi32_epi16(top));
}
#endif

/* ---- f32 to f64 and back ------------------------------------------------- */

static FG_INLINE U_f64 u_widen(const float *p)
{
    return _mm512_cvtps_pd(_mm256_loadu_ps(p));
}
static FG_INLINE void u_narrow(float *p, U_f64 a)
{
    _mm256_storeu_ps(p, _mm512_cvtpd_ps(a));
}

/* ---- every second element: strides.h ------------------------------------- */

#ifndef FG_SIMDE /* its masked stores may write what lies between */
#define FG_BY_TWOS(type, lanes, bits, mask, packed, widened)                                 \
    static FG_INLINE size_t pack_2_##type(size_t n, const char *from, char *to)              \
    {                                                                                        \
        size_t i = 0;                                                                        \
        for (; i + lanes <= n; i += lanes) {                                                 \
            const __m512i a = _mm512_maskz_loadu_epi##bits(mask, from + 2 * i * (bits / 8)); \
            _mm256_storeu_si256((__m256i *)(void *)(to + i * (bits / 8)), packed(a));        \
        }                                                                                    \
        return i;                                                                            \
    }                                                                                        \
    static FG_INLINE size_t spread_2_##type(size_t n, const char *from, char *to)            \
    {                                                                                        \
        size_t i = 0;                                                                        \
        for (; i + lanes <= n; i += lanes) {                                                 \
            const void *at = from + i * (bits / 8);                                          \
            const __m512i a = widened(_mm256_loadu_si256((const __m256i *)at));              \
            _mm512_mask_storeu_epi##bits(to + 2 * i * (bits / 8), mask, a);                  \
        }                                                                                    \
        return i;                                                                            \
    }
static FG_INLINE __m256i packed_64(__m512i a)
{
    const __m512i even = _mm512_setr_epi64(0, 2, 4, 6, 0, 2, 4, 6);
    return _mm512_castsi512_si256(_mm512_permutexvar_epi64(even, a));
}
static FG_INLINE __m512i widened_64(__m256i a)
{
    const __m512i twice = _mm512_setr_epi64(0, 0, 1, 1, 2, 2, 3, 3);
    return _mm512_permutexvar_epi64(twice, _mm512_castsi256_si512(a));
}
FG_BY_TWOS(uint16_t, 16, 16, 0x55555555, _mm512_cvtepi32_epi16, _mm512_cvtepu16_epi32)
FG_BY_TWOS(uint32_t, 8, 32, 0x5555, _mm512_cvtepi64_epi32, _mm512_cvtepu32_epi64)
FG_BY_TWOS(uint64_t, 4, 64, 0x55, packed_64, widened_64)
#endif

#include "interleave.h"
#include "kernels.h"

#if defined(FG_SIMDE)
#elif defined(__clang__)
#pragma clang attribute pop
#elif defined(__GNUC__)
#pragma GCC pop_options
#endif

#endif
