/* SPDX-License-Identifier: BSD-3-Clause */
/* cpu_features.h: what the processor and the operating system offer. */
#ifndef FG_CPU_FEATURES_H
#define FG_CPU_FEATURES_H

#include <stdint.h>

/* The registers that decide, as CPUID and XGETBV give them. Kept apart from
 * the instructions that read them, so that tests can fake a machine. */
typedef struct fg_cpuid {
    uint32_t max_leaf;
    uint32_t leaf1_ecx;
    uint32_t leaf7_ebx;
    uint64_t xcr0; /* 0 where XGETBV does not exist */
} fg_cpuid;

/* Reads this machine's registers. All zero off x86. */
fg_cpuid fg_cpuid_read(void);

/* Whether a machine with these registers can run a target. */
int fg_cpu_has_avx512(const fg_cpuid *cpu);
int fg_cpu_has_avx2(const fg_cpuid *cpu);
int fg_cpu_has_neon(const fg_cpuid *cpu);
int fg_cpu_has_scalar(const fg_cpuid *cpu);

#endif
