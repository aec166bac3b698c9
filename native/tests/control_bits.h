/* SPDX-License-Identifier: BSD-3-Clause */
/* control_bits.h: the control bits of the floating-point unit, as they stand in its registers. */
#ifndef CONTROL_BITS_H
#define CONTROL_BITS_H

#include <fenv.h>
#include <stdint.h>

#if defined(__x86_64__)
#include <xmmintrin.h>

enum { MXCSR_FLAGS = 0x3f, MXCSR_FLUSH_TO_ZERO = 0x8000, MXCSR_DENORMALS_ARE_ZERO = 0x40 };

static inline uint64_t control_bits(void)
{
    uint16_t x87;
    __asm__ volatile("fnstcw %0" : "=m"(x87));
    return (_mm_getcsr() & ~(unsigned)MXCSR_FLAGS) | (uint64_t)x87 << 32;
}

static inline void flush_to_zero(void)
{
    _mm_setcsr(_mm_getcsr() | MXCSR_FLUSH_TO_ZERO | MXCSR_DENORMALS_ARE_ZERO);
}
#elif defined(__aarch64__)
static inline uint64_t control_bits(void)
{
    uint64_t fpcr;
    __asm__ volatile("mrs %0, fpcr" : "=r"(fpcr));
    return fpcr;
}

static inline void flush_to_zero(void)
{
    const uint64_t fpcr = control_bits() | 1u << 24;
    __asm__ volatile("msr fpcr, %0" : : "r"(fpcr));
}
#else
static inline uint64_t control_bits(void)
{
    return (uint64_t)fegetround();
}

static inline void flush_to_zero(void)
{
}
#endif

#endif
