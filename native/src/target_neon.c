/* SPDX-License-Identifier: BSD-3-Clause */
/* target_neon.c: AArch64, where NEON is part of the base: 4 floats or 2 doubles. */
#include "internal.h"

/* an empty file on other processors: builds may compile every file */
#if defined(__aarch64__) || defined(_M_ARM64)

#include <arm_neon.h>
#include <string.h>

#include "coefficients.h"

#define FG_TARGET_NAME neon
#define FG_REGISTERS 2 /* hardly a spill; with 4 there are dozens */
#if defined(__GNUC__)
#define FG_KEEP(a) __asm__ volatile("" : : "w"(a)) /* a is computed, though nothing reads it */
#endif
#define FG_ROWS_FIRST 0

/* Comparisons are made of integers: as such, the bits of numbers that are not negative are in
 * order, with NaN above infinity, and no flag is raised. An ordered comparison of reals raises
 * invalid for NaN. */

/* ---- f32 ----------------------------------------------------------------- */

typedef float32x4_t U_f32;
typedef int32x4_t J_f32;
enum { FG_REGISTER_LANES_f32 = 4 };

static FG_INLINE U_f32 u_load_f32(const float *p)
{
    return vld1q_f32(p);
}
static FG_INLINE void u_store_f32(float *p, U_f32 a)
{
    vst1q_f32(p, a);
}
static FG_INLINE void u_stream_f32(float *p, U_f32 a)
{
    vst1q_f32(p, a); /* C has no store past the caches */
}
static FG_INLINE void v_stream_end(void)
{
}
static FG_INLINE U_f32 u_set_f32(float c)
{
    return vdupq_n_f32(c);
}
static FG_INLINE U_f32 u_add_f32(U_f32 a, U_f32 b)
{
    return vaddq_f32(a, b);
}
static FG_INLINE U_f32 u_sub_f32(U_f32 a, U_f32 b)
{
    return vsubq_f32(a, b);
}
static FG_INLINE U_f32 u_mul_f32(U_f32 a, U_f32 b)
{
    return vmulq_f32(a, b);
}
static FG_INLINE U_f32 u_div_f32(U_f32 a, U_f32 b)
{
    return vdivq_f32(a, b);
}
static FG_INLINE U_f32 u_fma_f32(U_f32 a, U_f32 b, U_f32 c)
{
    return vfmaq_f32(c, a, b);
}
static FG_INLINE U_f32 u_fnma_f32(U_f32 a, U_f32 b, U_f32 c)
{
    return vfmsq_f32(c, a, b);
}
static FG_INLINE U_f32 u_fms_f32(U_f32 a, U_f32 b, U_f32 c)
{
    return vfmaq_f32(vnegq_f32(c), a, b);
}
static FG_INLINE U_f32 u_abs_f32(U_f32 a)
{
    return vabsq_f32(a);
}
static FG_INLINE U_f32 u_neg_f32(U_f32 a)
{
    return vnegq_f32(a);
}
static FG_INLINE U_f32 u_select_above_f32(U_f32 t, U_f32 limit, U_f32 a, U_f32 b)
{
    const int32x4_t bits = vreinterpretq_s32_f32(t), inf = vdupq_n_s32(0x7f800000);
    const uint32x4_t above = vcgtq_s32(bits, vreinterpretq_s32_f32(limit));
    return vbslq_f32(vandq_u32(above, vcleq_s32(bits, inf)), a, b);
}
static FG_INLINE uint32x4_t above_f32(J_f32 i, fg_f32 c)
{
    return vcgtq_s32(i, vreinterpretq_s32_f32(u_set_f32(c)));
}
static FG_INLINE unsigned j_above_f32(J_f32 i, fg_f32 c)
{
    const uint32x4_t bit = {1, 2, 4, 8};
    return vaddvq_u32(vandq_u32(above_f32(i, c), bit));
}
static FG_INLINE int j_all_above_f32(J_f32 i, fg_f32 c)
{
    return vminvq_u32(above_f32(i, c)) != 0;
}
static FG_INLINE int j_any_above_f32(J_f32 i, fg_f32 c)
{
    return vmaxvq_u32(above_f32(i, c)) != 0;
}
static FG_INLINE U_f32 u_select_negative_f32(U_f32 s, U_f32 a, U_f32 b)
{
    return vbslq_f32(vcltzq_s32(vreinterpretq_s32_f32(s)), a, b);
}
/* as unsigned integers, all numbers with the sign are at least -0 */
static FG_INLINE U_f32 u_positive_f32(U_f32 a)
{
    const uint32x4_t minus_zero = vdupq_n_u32(UINT32_C(1) << 31);
    return vreinterpretq_f32_u32(vminq_u32(vreinterpretq_u32_f32(a), minus_zero));
}
static FG_INLINE U_f32 u_copysign_f32(U_f32 a, U_f32 s)
{
    return vbslq_f32(vdupq_n_u32(UINT32_C(1) << 31), s, a);
}
static FG_INLINE U_f32 u_select_infinite_f32(U_f32 s, U_f32 a, U_f32 b)
{
    const uint32x4_t bits = vreinterpretq_u32_f32(vabsq_f32(s));
    return vbslq_f32(vceqq_u32(bits, vdupq_n_u32(0x7f800000)), a, b);
}
static FG_INLINE J_f32 u_bits_f32(U_f32 a)
{
    return vreinterpretq_s32_f32(a);
}
static FG_INLINE U_f32 u_real_f32(J_f32 i)
{
    return vreinterpretq_f32_s32(i);
}
static FG_INLINE J_f32 j_add_f32(J_f32 a, J_f32 b)
{
    return vaddq_s32(a, b);
}
static FG_INLINE J_f32 j_sub_f32(J_f32 a, J_f32 b)
{
    return vsubq_s32(a, b);
}
static FG_INLINE J_f32 j_max_f32(J_f32 a, J_f32 b)
{
    return vmaxq_s32(a, b);
}
static FG_INLINE J_f32 j_min_f32(J_f32 a, J_f32 b)
{
    return vminq_s32(a, b);
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
    return vshlq_n_s32(a, 23);
}
static FG_INLINE J_f32 j_to_second_f32(J_f32 a)
{
    return vshlq_n_s32(a, 16);
}

static FG_INLINE U_f32 u_look_up_f32(const fg_f32 *entries, J_f32 k)
{
    /* the four bytes of each entry: 4 k, 4 k + 1, ... */
    const uint32x4_t which = vandq_u32(vreinterpretq_u32_s32(k), vdupq_n_u32(7));
    const uint32x4_t bytes = vmlaq_u32(vdupq_n_u32(0x03020100), which, vdupq_n_u32(0x04040404));
    const uint8x16x2_t all = {
        {vreinterpretq_u8_f32(vld1q_f32(entries)), vreinterpretq_u8_f32(vld1q_f32(entries + 4))}};
    return vreinterpretq_f32_u8(vqtbl2q_u8(all, vreinterpretq_u8_u32(bytes)));
}

/* ---- f64 ----------------------------------------------------------------- */

typedef float64x2_t U_f64;
typedef int64x2_t J_f64;
enum { FG_REGISTER_LANES_f64 = 2 };

static FG_INLINE U_f64 u_load_f64(const double *p)
{
    return vld1q_f64(p);
}
static FG_INLINE void u_store_f64(double *p, U_f64 a)
{
    vst1q_f64(p, a);
}
static FG_INLINE void u_stream_f64(double *p, U_f64 a)
{
    vst1q_f64(p, a);
}
static FG_INLINE U_f64 u_set_f64(double c)
{
    return vdupq_n_f64(c);
}
static FG_INLINE U_f64 u_add_f64(U_f64 a, U_f64 b)
{
    return vaddq_f64(a, b);
}
static FG_INLINE U_f64 u_sub_f64(U_f64 a, U_f64 b)
{
    return vsubq_f64(a, b);
}
static FG_INLINE U_f64 u_mul_f64(U_f64 a, U_f64 b)
{
    return vmulq_f64(a, b);
}
static FG_INLINE U_f64 u_div_f64(U_f64 a, U_f64 b)
{
    return vdivq_f64(a, b);
}
static FG_INLINE U_f64 u_fma_f64(U_f64 a, U_f64 b, U_f64 c)
{
    return vfmaq_f64(c, a, b);
}
static FG_INLINE U_f64 u_fnma_f64(U_f64 a, U_f64 b, U_f64 c)
{
    return vfmsq_f64(c, a, b);
}
static FG_INLINE U_f64 u_fms_f64(U_f64 a, U_f64 b, U_f64 c)
{
    return vfmaq_f64(vnegq_f64(c), a, b);
}
static FG_INLINE U_f64 u_abs_f64(U_f64 a)
{
    return vabsq_f64(a);
}
static FG_INLINE U_f64 u_neg_f64(U_f64 a)
{
    return vnegq_f64(a);
}
static FG_INLINE U_f64 u_select_above_f64(U_f64 t, U_f64 limit, U_f64 a, U_f64 b)
{
    const int64x2_t bits = vreinterpretq_s64_f64(t), inf = vdupq_n_s64(0x7ff0000000000000);
    const uint64x2_t above = vcgtq_s64(bits, vreinterpretq_s64_f64(limit));
    return vbslq_f64(vandq_u64(above, vcleq_s64(bits, inf)), a, b);
}
/* i is in order, and the answer sure, in its upper half alone: see j_least_f64 */
static FG_INLINE unsigned j_above_f64(J_f64 i, fg_f64 c)
{
    const uint64x2_t bit = {1, 2};
    const uint64x2_t above = vcgtq_s64(i, vreinterpretq_s64_f64(u_set_f64(c)));
    return (unsigned)vaddvq_u64(vandq_u64(above, bit));
}
static FG_INLINE int j_all_above_f64(J_f64 i, fg_f64 c)
{
    const int64x2_t limit = vorrq_s64(vreinterpretq_s64_f64(u_set_f64(c)), vdupq_n_s64(0xffffffff));
    return vminvq_u32(vreinterpretq_u32_u64(vcgtq_s64(i, limit))) != 0;
}
static FG_INLINE int j_any_above_f64(J_f64 i, fg_f64 c)
{
    const int64x2_t limit = vbicq_s64(vreinterpretq_s64_f64(u_set_f64(c)), vdupq_n_s64(0xffffffff));
    return vminvq_u32(vreinterpretq_u32_u64(vcgtq_s64(limit, i))) == 0;
}
static FG_INLINE U_f64 u_select_negative_f64(U_f64 s, U_f64 a, U_f64 b)
{
    return vbslq_f64(vcltzq_s64(vreinterpretq_s64_f64(s)), a, b);
}
static FG_INLINE U_f64 u_positive_f64(U_f64 a)
{
    return u_select_negative_f64(a, vdupq_n_f64(-0.0), a);
}
static FG_INLINE U_f64 u_copysign_f64(U_f64 a, U_f64 s)
{
    return vbslq_f64(vdupq_n_u64(UINT64_C(1) << 63), s, a);
}
static FG_INLINE U_f64 u_select_infinite_f64(U_f64 s, U_f64 a, U_f64 b)
{
    const uint64x2_t bits = vreinterpretq_u64_f64(vabsq_f64(s));
    return vbslq_f64(vceqq_u64(bits, vdupq_n_u64(0x7ff0000000000000)), a, b);
}
static FG_INLINE J_f64 u_bits_f64(U_f64 a)
{
    return vreinterpretq_s64_f64(a);
}
static FG_INLINE U_f64 u_real_f64(J_f64 i)
{
    return vreinterpretq_f64_s64(i);
}
static FG_INLINE J_f64 j_add_f64(J_f64 a, J_f64 b)
{
    return vaddq_s64(a, b);
}
static FG_INLINE J_f64 j_sub_f64(J_f64 a, J_f64 b)
{
    return vsubq_s64(a, b);
}
static FG_INLINE J_f64 j_max_f64(J_f64 a, J_f64 b)
{
    return vbslq_s64(vcgtq_s64(a, b), a, b);
}
static FG_INLINE J_f64 j_min_f64(J_f64 a, J_f64 b)
{
    return vbslq_s64(vcgtq_s64(a, b), b, a);
}
/* of the upper halves, which nearly always decide; the lower halves then hold anything */
static FG_INLINE J_f64 j_least_f64(J_f64 a, J_f64 b)
{
    const int32x4_t least = vminq_s32(vreinterpretq_s32_s64(a), vreinterpretq_s32_s64(b));
    return vreinterpretq_s64_s32(least);
}
static FG_INLINE J_f64 j_most_f64(J_f64 a, J_f64 b)
{
    const int32x4_t most = vmaxq_s32(vreinterpretq_s32_s64(a), vreinterpretq_s32_s64(b));
    return vreinterpretq_s64_s32(most);
}
static FG_INLINE J_f64 j_to_exponent_f64(J_f64 a)
{
    return vshlq_n_s64(a, 52);
}
static FG_INLINE J_f64 j_to_second_f64(J_f64 a)
{
    return vshlq_n_s64(a, 36);
}

/* where the rows of the lanes are */
typedef struct W_f64 {
    const fg_f64 *lane[2];
} W_f64;
static FG_INLINE W_f64 u_rows_f64(const fg_f64 *table, int rows, int columns, J_f64 k)
{
    const int64x2_t which = vandq_s64(k, vdupq_n_s64(rows - 1));
    const W_f64 at = {{table + (size_t)columns * (size_t)vgetq_lane_s64(which, 0),
                       table + (size_t)columns * (size_t)vgetq_lane_s64(which, 1)}};
    return at;
}
static FG_INLINE U_f64 u_entry_f64(W_f64 at, int n)
{
    const int even = n & ~1;
    const float64x2_t a = vld1q_f64(at.lane[0] + even), b = vld1q_f64(at.lane[1] + even);
    return n == even ? vtrn1q_f64(a, b) : vtrn2q_f64(a, b);
}

/* ---- f16, bf16 ----------------------------------------------------------- */

static FG_INLINE U_f32 u_load_f16(const uint16_t *p)
{
    return vcvt_f32_f16(vreinterpret_f16_u16(vld1_u16(p)));
}
static FG_INLINE void u_store_f16(uint16_t *p, U_f32 a)
{
    vst1_u16(p, vreinterpret_u16_f16(vcvt_f16_f32(a)));
}
static FG_INLINE U_f32 u_load_bf16(const uint16_t *p)
{
    return vreinterpretq_f32_u32(vshll_n_u16(vld1_u16(p), 16));
}
static FG_INLINE void u_store_bf16(uint16_t *p, U_f32 a)
{
    const uint32x4_t bits = vreinterpretq_u32_f32(a);
    const uint32x4_t odd = vandq_u32(vshrq_n_u32(bits, 16), vdupq_n_u32(1));
    const uint32x4_t half = vaddq_u32(odd, vdupq_n_u32(0x7fff));
    vst1_u16(p, vshrn_n_u32(vaddq_u32(bits, half), 16));
}

/* ---- f32 to f64 and back ------------------------------------------------- */

static FG_INLINE U_f64 u_widen(const float *p)
{
    return vcvt_f64_f32(vld1_f32(p));
}
static FG_INLINE void u_narrow(float *p, U_f64 a)
{
    vst1_f32(p, vcvt_f32_f64(a));
}

#include "interleave.h"
#include "kernels.h"

#endif
