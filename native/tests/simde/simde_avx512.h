/* SPDX-License-Identifier: BSD-3-Clause */
/* simde_avx512.h: the AVX-512 intrinsics of target_avx512.c in AVX2, through SIMDe. */
#ifndef FG_SIMDE_AVX512_H
#define FG_SIMDE_AVX512_H

#if !defined(__AVX2__) || !defined(__FMA__)
#error "SIMDe's own fma rounds twice: compile with -mavx2 -mfma"
#endif
#define SIMDE_ENABLE_NATIVE_ALIASES
#include <simde/x86/avx512.h>
#undef I /* of complex.h, which SIMDe includes: vocabulary.h has its own */

#endif
