/* SPDX-License-Identifier: BSD-3-Clause */
/* target_avx2.c: x86-64 with AVX2, FMA and F16C: 8 floats or 4 doubles. */
#include "internal.h"

/* an empty file on other processors: builds may compile every file */
#if defined(__x86_64__) || defined(_M_X64)

#include <immintrin.h>
#include <string.h>

#include "coefficients.h"

/* after the headers, so that nothing of theirs is compiled for this target */
#if defined(__clang__)
#pragma clang attribute push(__attribute__((target("avx2,fma,f16c"))), apply_to = function)
#elif defined(__GNUC__)
#pragma GCC push_options
#pragma GCC target("avx2,fma,f16c")
#endif

#define FG_TARGET_NAME avx2
#define FG_REGISTERS 2
#if defined(__GNUC__)
#define FG_KEEP(a) __asm__ volatile("" : : "x"(a)) /* a is computed, though nothing reads it */
#endif
#define FG_ROWS_FIRST 1

/* Comparisons are made of integers: as such, the bits of numbers that are not negative are in
 * order, with NaN above infinity, and no flag is raised. An ordered comparison of reals raises
 * invalid for NaN, and clang makes one of a quiet predicate too. */

/* ---- f32 ----------------------------------------------------------------- */

typedef __m256 U_f32;
typedef __m256i J_f32;
enum { FG_REGISTER_LANES_f32 = 8 };

static FG_INLINE U_f32 u_load_f32(const float *p)
{
    return _mm256_loadu_ps(p);
}
static FG_INLINE void u_store_f32(float *p, U_f32 a)
{
    _mm256_storeu_ps(p, a);
}
static FG_INLINE void u_stream_f32(float *p, U_f32 a)
{
    _mm256_stream_ps(p, a);
}
static FG_INLINE void v_stream_end(void)
{
    _mm_sfence();
}
static FG_INLINE U_f32 u_set_f32(float c)
{
    return _mm256_set1_ps(c);
}
static FG_INLINE U_f32 u_add_f32(U_f32 a, U_f32 b)
{
    return _mm256_add_ps(a, b);
}
static FG_INLINE U_f32 u_sub_f32(U_f32 a, U_f32 b)
{
    return _mm256_sub_ps(a, b);
}
static FG_INLINE U_f32 u_mul_f32(U_f32 a, U_f32 b)
{
    return _mm256_mul_ps(a, b);
}
static FG_INLINE U_f32 u_div_f32(U_f32 a, U_f32 b)
{
    return _mm256_div_ps(a, b);
}
static FG_INLINE U_f32 u_fma_f32(U_f32 a, U_f32 b, U_f32 c)
{
    return _mm256_fmadd_ps(a, b, c);
}
static FG_INLINE U_f32 u_fnma_f32(U_f32 a, U_f32 b, U_f32 c)
{
    return _mm256_fnmadd_ps(a, b, c);
}
static FG_INLINE U_f32 u_fms_f32(U_f32 a, U_f32 b, U_f32 c)
{
    return _mm256_fmsub_ps(a, b, c);
}
static FG_INLINE U_f32 u_abs_f32(U_f32 a)
{
    return _mm256_andnot_ps(_mm256_set1_ps(-0.0f), a);
}
static FG_INLINE U_f32 u_neg_f32(U_f32 a)
{
    return _mm256_xor_ps(_mm256_set1_ps(-0.0f), a);
}
static FG_INLINE U_f32 u_select_above_f32(U_f32 t, U_f32 limit, U_f32 a, U_f32 b)
{
    const __m256i inf = _mm256_set1_epi32(0x7f800000), bits = _mm256_castps_si256(t);
    const __m256i above = _mm256_cmpgt_epi32(bits, _mm256_castps_si256(limit));
    const __m256i nan = _mm256_cmpgt_epi32(bits, inf);
    return _mm256_blendv_ps(b, a, _mm256_castsi256_ps(_mm256_andnot_si256(nan, above)));
}
static FG_INLINE unsigned j_above_f32(J_f32 i, fg_f32 c)
{
    const __m256i above = _mm256_cmpgt_epi32(i, _mm256_castps_si256(u_set_f32(c)));
    return (unsigned)_mm256_movemask_ps(_mm256_castsi256_ps(above));
}
static FG_INLINE int j_all_above_f32(J_f32 i, fg_f32 c)
{
    return j_above_f32(i, c) == 0xff;
}
static FG_INLINE int j_any_above_f32(J_f32 i, fg_f32 c)
{
    return j_above_f32(i, c) != 0;
}
static FG_INLINE U_f32 u_select_negative_f32(U_f32 s, U_f32 a, U_f32 b)
{
    return _mm256_blendv_ps(b, a, s);
}
/* as unsigned integers, all numbers with the sign are at least -0 */
static FG_INLINE U_f32 u_positive_f32(U_f32 a)
{
    const __m256i minus_zero = _mm256_castps_si256(_mm256_set1_ps(-0.0f));
    return _mm256_castsi256_ps(_mm256_min_epu32(_mm256_castps_si256(a), minus_zero));
}
static FG_INLINE U_f32 u_copysign_f32(U_f32 a, U_f32 s)
{
    const U_f32 sign = _mm256_set1_ps(-0.0f);
    return _mm256_or_ps(_mm256_andnot_ps(sign, a), _mm256_and_ps(sign, s));
}
static FG_INLINE U_f32 u_select_infinite_f32(U_f32 s, U_f32 a, U_f32 b)
{
    const __m256i inf = _mm256_set1_epi32(0x7f800000);
    const __m256i bits = _mm256_castps_si256(u_abs_f32(s));
    return _mm256_blendv_ps(b, a, _mm256_castsi256_ps(_mm256_cmpeq_epi32(bits, inf)));
}
static FG_INLINE J_f32 u_bits_f32(U_f32 a)
{
    return _mm256_castps_si256(a);
}
static FG_INLINE U_f32 u_real_f32(J_f32 i)
{
    return _mm256_castsi256_ps(i);
}
static FG_INLINE J_f32 j_add_f32(J_f32 a, J_f32 b)
{
    return _mm256_add_epi32(a, b);
}
static FG_INLINE J_f32 j_sub_f32(J_f32 a, J_f32 b)
{
    return _mm256_sub_epi32(a, b);
}
static FG_INLINE J_f32 j_max_f32(J_f32 a, J_f32 b)
{
    return _mm256_max_epi32(a, b);
}
static FG_INLINE J_f32 j_min_f32(J_f32 a, J_f32 b)
{
    return _mm256_min_epi32(a, b);
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
    return _mm256_slli_epi32(a, 23);
}
static FG_INLINE J_f32 j_to_second_f32(J_f32 a)
{
    return _mm256_slli_epi32(a, 16);
}

/* the instruction looks at no more than the low 3 bits of k */
static FG_INLINE U_f32 u_look_up_f32(const fg_f32 *entries, J_f32 k)
{
    return _mm256_permutevar8x32_ps(_mm256_loadu_ps(entries), k);
}

/* ---- f64 ----------------------------------------------------------------- */

typedef __m256d U_f64;
typedef __m256i J_f64;
enum { FG_REGISTER_LANES_f64 = 4 };

static FG_INLINE U_f64 u_load_f64(const double *p)
{
    return _mm256_loadu_pd(p);
}
static FG_INLINE void u_store_f64(double *p, U_f64 a)
{
    _mm256_storeu_pd(p, a);
}
static FG_INLINE void u_stream_f64(double *p, U_f64 a)
{
    _mm256_stream_pd(p, a);
}
static FG_INLINE U_f64 u_set_f64(double c)
{
    return _mm256_set1_pd(c);
}
static FG_INLINE U_f64 u_add_f64(U_f64 a, U_f64 b)
{
    return _mm256_add_pd(a, b);
}
static FG_INLINE U_f64 u_sub_f64(U_f64 a, U_f64 b)
{
    return _mm256_sub_pd(a, b);
}
static FG_INLINE U_f64 u_mul_f64(U_f64 a, U_f64 b)
{
    return _mm256_mul_pd(a, b);
}
static FG_INLINE U_f64 u_div_f64(U_f64 a, U_f64 b)
{
    return _mm256_div_pd(a, b);
}
static FG_INLINE U_f64 u_fma_f64(U_f64 a, U_f64 b, U_f64 c)
{
    return _mm256_fmadd_pd(a, b, c);
}
static FG_INLINE U_f64 u_fnma_f64(U_f64 a, U_f64 b, U_f64 c)
{
    return _mm256_fnmadd_pd(a, b, c);
}
static FG_INLINE U_f64 u_fms_f64(U_f64 a, U_f64 b, U_f64 c)
{
    return _mm256_fmsub_pd(a, b, c);
}
static FG_INLINE U_f64 u_abs_f64(U_f64 a)
{
    return _mm256_andnot_pd(_mm256_set1_pd(-0.0), a);
}
static FG_INLINE U_f64 u_neg_f64(U_f64 a)
{
    return _mm256_xor_pd(_mm256_set1_pd(-0.0), a);
}
static FG_INLINE U_f64 u_select_above_f64(U_f64 t, U_f64 limit, U_f64 a, U_f64 b)
{
    const __m256i inf = _mm256_set1_epi64x(0x7ff0000000000000), bits = _mm256_castpd_si256(t);
    const __m256i above = _mm256_cmpgt_epi64(bits, _mm256_castpd_si256(limit));
    const __m256i nan = _mm256_cmpgt_epi64(bits, inf);
    return _mm256_blendv_pd(b, a, _mm256_castsi256_pd(_mm256_andnot_si256(nan, above)));
}
static FG_INLINE unsigned j_above_f64(J_f64 i, fg_f64 c)
{
    const __m256i above = _mm256_cmpgt_epi64(i, _mm256_castpd_si256(u_set_f64(c)));
    return (unsigned)_mm256_movemask_pd(_mm256_castsi256_pd(above));
}
/* i is in order, and the answer sure, in its upper half alone: see j_least_f64 */
static FG_INLINE int j_all_above_f64(J_f64 i, fg_f64 c)
{
    const __m256i limit =
        _mm256_or_si256(_mm256_castpd_si256(u_set_f64(c)), _mm256_set1_epi64x(0xffffffff));
    return _mm256_movemask_pd(_mm256_castsi256_pd(_mm256_cmpgt_epi64(i, limit))) == 0xf;
}
static FG_INLINE int j_any_above_f64(J_f64 i, fg_f64 c)
{
    const __m256i limit =
        _mm256_andnot_si256(_mm256_set1_epi64x(0xffffffff), _mm256_castpd_si256(u_set_f64(c)));
    return _mm256_movemask_pd(_mm256_castsi256_pd(_mm256_cmpgt_epi64(limit, i))) != 0xf;
}
static FG_INLINE U_f64 u_select_negative_f64(U_f64 s, U_f64 a, U_f64 b)
{
    return _mm256_blendv_pd(b, a, s);
}
static FG_INLINE U_f64 u_positive_f64(U_f64 a)
{
    return u_select_negative_f64(a, _mm256_set1_pd(-0.0), a);
}
static FG_INLINE U_f64 u_copysign_f64(U_f64 a, U_f64 s)
{
    const U_f64 sign = _mm256_set1_pd(-0.0);
    return _mm256_or_pd(_mm256_andnot_pd(sign, a), _mm256_and_pd(sign, s));
}
static FG_INLINE U_f64 u_select_infinite_f64(U_f64 s, U_f64 a, U_f64 b)
{
    const __m256i inf = _mm256_set1_epi64x(0x7ff0000000000000);
    const __m256i bits = _mm256_castpd_si256(u_abs_f64(s));
    return _mm256_blendv_pd(b, a, _mm256_castsi256_pd(_mm256_cmpeq_epi64(bits, inf)));
}
static FG_INLINE J_f64 u_bits_f64(U_f64 a)
{
    return _mm256_castpd_si256(a);
}
static FG_INLINE U_f64 u_real_f64(J_f64 i)
{
    return _mm256_castsi256_pd(i);
}
static FG_INLINE J_f64 j_add_f64(J_f64 a, J_f64 b)
{
    return _mm256_add_epi64(a, b);
}
static FG_INLINE J_f64 j_sub_f64(J_f64 a, J_f64 b)
{
    return _mm256_sub_epi64(a, b);
}
static FG_INLINE J_f64 j_max_f64(J_f64 a, J_f64 b)
{
    return _mm256_castpd_si256(_mm256_max_pd(_mm256_castsi256_pd(a), _mm256_castsi256_pd(b)));
}
static FG_INLINE J_f64 j_min_f64(J_f64 a, J_f64 b)
{
    return _mm256_blendv_epi8(a, b, _mm256_cmpgt_epi64(a, b));
}
/* of the upper halves, which nearly always decide; the lower halves then hold anything */
static FG_INLINE J_f64 j_least_f64(J_f64 a, J_f64 b)
{
    return _mm256_min_epi32(a, b);
}
static FG_INLINE J_f64 j_most_f64(J_f64 a, J_f64 b)
{
    return _mm256_max_epi32(a, b);
}
static FG_INLINE J_f64 j_to_exponent_f64(J_f64 a)
{
    return _mm256_slli_epi64(a, 52);
}
static FG_INLINE J_f64 j_to_second_f64(J_f64 a)
{
    return _mm256_slli_epi64(a, 36);
}

/* where the rows of the lanes are */
typedef struct W_f64 {
    const fg_f64 *lane[4];
} W_f64;
static FG_INLINE W_f64 u_rows_f64(const fg_f64 *table, int rows, int columns, J_f64 k)
{
    const __m256i which = _mm256_and_si256(k, _mm256_set1_epi64x(rows - 1));
    const __m128i low = _mm256_castsi256_si128(which), high = _mm256_extracti128_si256(which, 1);
    const W_f64 at = {{table + (size_t)columns * (size_t)_mm_cvtsi128_si64(low),
                       table + (size_t)columns * (size_t)_mm_extract_epi64(low, 1),
                       table + (size_t)columns * (size_t)_mm_cvtsi128_si64(high),
                       table + (size_t)columns * (size_t)_mm_extract_epi64(high, 1)}};
    return at;
}
/* of two registers together: 0 1 of the first, 0 1 of the second, 2 3, 2 3 */
static FG_INLINE void u_keep_f64(uint32_t *places, int rows, int columns, const J_f64 *k)
{
    const __m256 low =
        _mm256_shuffle_ps(_mm256_castsi256_ps(k[0]), _mm256_castsi256_ps(k[1]), 0x88);
    const __m256i which = _mm256_and_si256(_mm256_castps_si256(low), _mm256_set1_epi32(rows - 1));
    _mm256_storeu_si256((__m256i *)places, _mm256_madd_epi16(which, _mm256_set1_epi32(columns)));
}
static FG_INLINE W_f64 u_kept_f64(const fg_f64 *table, const uint32_t *places, int r)
{
    const uint32_t *p = places + 2 * r;
    const W_f64 at = {{table + p[0], table + p[1], table + p[4], table + p[5]}};
    return at;
}
/* entries 2m and 2m + 1 come from the same four loads */
static FG_INLINE U_f64 u_entry_f64(W_f64 at, int n)
{
    const int even = n & ~1;
    const __m256d a = _mm256_insertf128_pd(_mm256_castpd128_pd256(_mm_loadu_pd(at.lane[0] + even)),
                                           _mm_loadu_pd(at.lane[2] + even), 1);
    const __m256d b = _mm256_insertf128_pd(_mm256_castpd128_pd256(_mm_loadu_pd(at.lane[1] + even)),
                                           _mm_loadu_pd(at.lane[3] + even), 1);
    return n == even ? _mm256_unpacklo_pd(a, b) : _mm256_unpackhi_pd(a, b);
}

/* ---- f16, bf16 ----------------------------------------------------------- */

static FG_INLINE U_f32 u_load_f16(const uint16_t *p)
{
    return _mm256_cvtph_ps(_mm_loadu_si128((const __m128i *)p));
}
static FG_INLINE void u_store_f16(uint16_t *p, U_f32 a)
{
    _mm_storeu_si128((__m128i *)p, _mm256_cvtps_ph(a, _MM_FROUND_TO_NEAREST_INT));
}
/* each element to the upper half of 32 bits, zeros below */
static FG_INLINE U_f32 u_load_bf16(const uint16_t *p)
{
    const __m256i upper =
        _mm256_setr_epi8(-1, -1, 0, 1, -1, -1, 2, 3, -1, -1, 4, 5, -1, -1, 6, 7, -1, -1, 8, 9, -1,
                         -1, 10, 11, -1, -1, 12, 13, -1, -1, 14, 15);
    const __m256i twice = _mm256_broadcastsi128_si256(_mm_loadu_si128((const __m128i *)p));
    return _mm256_castsi256_ps(_mm256_shuffle_epi8(twice, upper));
}
static FG_INLINE __m256i u_rounded_to_bf16(U_f32 a) /* in the upper halves */
{
    const __m256i bits = _mm256_castps_si256(a);
    const __m256i odd = _mm256_and_si256(_mm256_srli_epi32(bits, 16), _mm256_set1_epi32(1));
    return _mm256_add_epi32(bits, _mm256_add_epi32(odd, _mm256_set1_epi32(0x7fff)));
}
#define FG_STORE_TWO 1
static FG_INLINE void u_store_two_bf16(uint16_t *p, U_f32 a, U_f32 b)
{
    const __m256i low = _mm256_srli_epi32(u_rounded_to_bf16(a), 16),
                  high = _mm256_srli_epi32(u_rounded_to_bf16(b), 16);
    _mm256_storeu_si256((__m256i *)p,
                        _mm256_permute4x64_epi64(_mm256_packus_epi32(low, high), 0xd8));
}

/* ---- f32 to f64 and back ------------------------------------------------- */

static FG_INLINE U_f64 u_widen(const float *p)
{
    return _mm256_cvtps_pd(_mm_loadu_ps(p));
}
static FG_INLINE void u_narrow(float *p, U_f64 a)
{
    _mm_storeu_ps(p, _mm256_cvtpd_ps(a));
}

#include "interleave.h"
#include "kernels.h"

#if defined(__clang__)
#pragma clang attribute pop
#elif defined(__GNUC__)
#pragma GCC pop_options
#endif

#endif
