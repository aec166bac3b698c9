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

/* One register at a time: the same bits, and gcc takes a quarter of the time. */
#define FG_REGISTERS 1

#endif
