/* SPDX-License-Identifier: BSD-3-Clause */
/* simde_avx512.h: the AVX-512 intrinsics of target_avx512.c in AVX2 instructions, through
 * SIMDe (Debian: libsimde-dev), so that the target can be tested where AVX-512 is missing.
 *
 * target_avx512.c   -DFG_SIMDE -mavx2 -mfma -mf16c -Wno-psabi and this directory in the include path
 * cpu_features.c    -DFG_EMULATE_AVX512: then avx512 asks for what avx2 asks for
 *
 * -O1 is enough and saves time. -Wno-psabi: inline functions with 64-byte vectors have no ABI. */
#ifndef FG_SIMDE_AVX512_H
#define FG_SIMDE_AVX512_H

#if !defined(__AVX2__) || !defined(__FMA__)
#error "compile with -mavx2 -mfma: the fma that SIMDe makes of anything else rounds twice"
#endif

#define SIMDE_ENABLE_NATIVE_ALIASES
#include <simde/x86/avx512.h>
#undef I /* of complex.h, which SIMDe includes; vocabulary.h has its own */

/* SIMDe has none; these need the same alignment. */
#define _mm512_stream_ps simde_mm512_store_ps
#define _mm512_stream_pd simde_mm512_store_pd
/* What SIMDe 0.7 lacks, in halves. */
#include <string.h>

#define FG_HALVES(name, from, to, from_half, to_half, convert) \
    static inline to name(from a)                              \
    {                                                          \
        from_half in[2];                                       \
        to_half out[2];                                        \
        to result;                                             \
        memcpy(in, &a, sizeof a);                              \
        for (int i = 0; i < 2; i++)                            \
            out[i] = convert(in[i]);                           \
        memcpy(&result, out, sizeof result);                   \
        return result;                                         \
    }
#define FG_ROUND_HALF(a) _mm256_cvtps_ph(a, _MM_FROUND_TO_NEAREST_INT)
#define FG_NARROW_HALF(a) \
    _mm_packus_epi32(_mm256_castsi256_si128(a), _mm256_extracti128_si256(a, 1))
FG_HALVES(fg_cvtph_ps, __m256i, __m512, __m128i, __m256, _mm256_cvtph_ps)
FG_HALVES(fg_round_ph, __m512, __m256i, __m256, __m128i, FG_ROUND_HALF)
FG_HALVES(fg_cvtepu16_epi32, __m256i, __m512i, __m128i, __m256i, _mm256_cvtepu16_epi32)
FG_HALVES(fg_narrow, __m512i, __m256i, __m256i, __m128i, FG_NARROW_HALF)
FG_HALVES(fg_cvtps_pd, __m256, __m512d, __m128, __m256d, _mm256_cvtps_pd)
FG_HALVES(fg_cvtpd_ps, __m512d, __m256, __m256d, __m128, _mm256_cvtpd_ps)
#undef _mm512_cvtps_pd
#undef _mm512_cvtpd_ps
#define _mm512_cvtps_pd fg_cvtps_pd
#define _mm512_cvtpd_ps fg_cvtpd_ps
#undef _mm512_cvtph_ps
#undef _mm512_cvtps_ph
#undef _mm512_cvtepu16_epi32
#undef _mm512_cvtepi32_epi16
#define _mm512_cvtph_ps fg_cvtph_ps
#define _mm512_cvtps_ph(a, rounding) fg_round_ph(a)
#define _mm512_cvtepu16_epi32 fg_cvtepu16_epi32
#define _mm512_cvtepi32_epi16 fg_narrow /* of numbers below 2^16 */

/* One register at a time: the same bits, and gcc takes a quarter of the time. */
#define FG_REGISTERS 1

#endif
