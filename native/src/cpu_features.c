/* SPDX-License-Identifier: BSD-3-Clause */
/* cpu_features.c: CPUID and XCR0, and which target each needs. No policy here. */
#include "cpu_features.h"

#if defined(__x86_64__) || defined(_M_X64)
#ifdef _MSC_VER
#include <immintrin.h>
#include <intrin.h>
static void cpuid(uint32_t leaf, uint32_t subleaf, uint32_t r[4])
{
    __cpuidex((int *)r, (int)leaf, (int)subleaf);
}
static uint64_t xgetbv0(void)
{
    return _xgetbv(0);
}
#else
#include <cpuid.h>
static void cpuid(uint32_t leaf, uint32_t subleaf, uint32_t r[4])
{
    __cpuid_count(leaf, subleaf, r[0], r[1], r[2], r[3]);
}
static uint64_t xgetbv0(void)
{
    uint32_t low, high;
    __asm__ volatile("xgetbv" : "=a"(low), "=d"(high) : "c"(0));
    return ((uint64_t)high << 32) | low;
}
#endif

fg_cpuid fg_cpuid_read(void)
{
    fg_cpuid cpu = {0, 0, 0, 0};
    uint32_t r[4];
    cpuid(0, 0, r);
    cpu.max_leaf = r[0];
    cpuid(1, 0, r);
    cpu.leaf1_ecx = r[2];
    if (cpu.max_leaf >= 7) {
        cpuid(7, 0, r);
        cpu.leaf7_ebx = r[1];
    }
    if (cpu.leaf1_ecx & (1u << 27)) /* OSXSAVE */
        cpu.xcr0 = xgetbv0();
    return cpu;
}
#else
fg_cpuid fg_cpuid_read(void)
{
    fg_cpuid cpu = {0, 0, 0, 0};
    return cpu;
}
#endif

enum {
    LEAF1_FMA = 1 << 12,
    LEAF1_OSXSAVE = 1 << 27,
    LEAF1_AVX = 1 << 28,
    LEAF1_F16C = 1 << 29,
    LEAF7_AVX2 = 1 << 5,
    XCR0_SSE_AVX = 0x6,      /* the system saves xmm and the upper half of ymm */
    XCR0_SSE_AVX_512 = 0xe6, /* ... and k0-k7, the upper half of zmm, zmm16-zmm31 */
};

static int has_all(uint64_t bits, uint64_t wanted)
{
    return (bits & wanted) == wanted;
}

int fg_cpu_has_avx2(const fg_cpuid *cpu)
{
    return cpu->max_leaf >= 7 &&
           has_all(cpu->leaf1_ecx, LEAF1_FMA | LEAF1_OSXSAVE | LEAF1_AVX | LEAF1_F16C) &&
           has_all(cpu->leaf7_ebx, LEAF7_AVX2) && has_all(cpu->xcr0, XCR0_SSE_AVX);
}

int fg_cpu_has_avx512(const fg_cpuid *cpu)
{
#ifdef FG_EMULATE_AVX512 /* tests only: the target is made of AVX2 instructions, by SIMDe */
    return fg_cpu_has_avx2(cpu);
#else
    const uint32_t f = 1u << 16, dq = 1u << 17, bw = 1u << 30, vl = 1u << 31;
    return fg_cpu_has_avx2(cpu) && has_all(cpu->leaf7_ebx, f | dq | bw | vl) &&
           has_all(cpu->xcr0, XCR0_SSE_AVX_512);
#endif
}

int fg_cpu_has_neon(const fg_cpuid *cpu)
{
    (void)cpu;
#if defined(__aarch64__) || defined(_M_ARM64)
    return 1; /* part of the base */
#else
    return 0;
#endif
}

int fg_cpu_has_scalar(const fg_cpuid *cpu)
{
    (void)cpu;
    return 1;
}
