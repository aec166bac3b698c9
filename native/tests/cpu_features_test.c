/* SPDX-License-Identifier: BSD-3-Clause */
/* cpu_features_test.c: which target a machine can run, on faked registers: with each thing
 * missing that a target needs, exactly the targets that need it are refused. */
#include <string.h>

#include "cpu_features.h"
#include "harness.h"

/* ---- the targets compiled in ----------------------------------------------- */

static const struct {
    const char *name;
    int (*has)(const fg_cpuid *cpu);
} targets[] = {
#define FG_TARGET(name) {#name, fg_cpu_has_##name},
#include "targets.def"
};
enum { TARGETS = sizeof targets / sizeof targets[0] };

/* ---- what they need ----------------------------------------------------------- */

typedef enum place { LEAF_1_ECX, LEAF_7_EBX, XCR0 } place;

/* One bit and the targets that need it. A new target adds its name, and lines. */
static const struct {
    const char *what;
    place where;
    unsigned bit;
    const char *needed_by;
} needs[] = {
    {"FMA", LEAF_1_ECX, 12, "avx2 avx512"},
    {"OSXSAVE", LEAF_1_ECX, 27, "avx2 avx512"},
    {"AVX", LEAF_1_ECX, 28, "avx2 avx512"},
    {"F16C", LEAF_1_ECX, 29, "avx2 avx512"},
    {"AVX2", LEAF_7_EBX, 5, "avx2 avx512"},
    {"AVX512F", LEAF_7_EBX, 16, "avx512"},
    {"AVX512DQ", LEAF_7_EBX, 17, "avx512"},
    {"AVX512BW", LEAF_7_EBX, 30, "avx512"},
    {"AVX512VL", LEAF_7_EBX, 31, "avx512"},
    {"xmm saved", XCR0, 1, "avx2 avx512"},
    {"ymm saved", XCR0, 2, "avx2 avx512"},
    {"opmasks saved", XCR0, 5, "avx512"},
    {"upper halves of zmm0-15 saved", XCR0, 6, "avx512"},
    {"zmm16-31 saved", XCR0, 7, "avx512"},
};
enum { NEEDS = sizeof needs / sizeof needs[0] };

/* These need nothing of CPUID: they run wherever they were compiled. */
static const char *const anywhere[] = {"neon", "scalar"};

static int in_words(const char *words, const char *name)
{
    const size_t n = strlen(name);
    for (const char *p = words; (p = strstr(p, name)); p++)
        if ((p == words || p[-1] == ' ') && (p[n] == ' ' || p[n] == 0))
            return 1;
    return 0;
}

static int runs_anywhere(const char *name)
{
    for (size_t i = 0; i < sizeof anywhere / sizeof anywhere[0]; i++)
        if (strcmp(anywhere[i], name) == 0)
            return 1;
    return 0;
}

static void flip(fg_cpuid *cpu, size_t need)
{
    if (needs[need].where == LEAF_1_ECX)
        cpu->leaf1_ecx ^= 1u << needs[need].bit;
    else if (needs[need].where == LEAF_7_EBX)
        cpu->leaf7_ebx ^= 1u << needs[need].bit;
    else
        cpu->xcr0 ^= (uint64_t)1 << needs[need].bit;
}

/* A machine with all that the target needs, or that any does (NULL), and nothing else. */
static fg_cpuid machine_for(const char *target)
{
    fg_cpuid cpu = {7, 0, 0, 0};
    for (size_t i = 0; i < NEEDS; i++)
        if (!target || in_words(needs[i].needed_by, target))
            flip(&cpu, i);
    return cpu;
}

static const fg_cpuid nothing = {0, 0, 0, 0}, everything = {~0u, ~0u, ~0u, ~(uint64_t)0};

static void test_target(size_t k)
{
    const char *name = targets[k].name;
    begin_case("%s", name);
    fg_cpuid cpu = machine_for(name);
    int needed = 0;
    expect(targets[k].has(&cpu), "refused with all that it needs");
    expect(targets[k].has(&everything), "refused by a machine that has everything");
    expect(!targets[k].has(&nothing) || runs_anywhere(name), "accepted without anything");
    for (size_t i = 0; i < NEEDS; i++) {
        const int needs_it = in_words(needs[i].needed_by, name);
        needed += needs_it;
        cpu = machine_for(NULL);
        flip(&cpu, i);
        expect(targets[k].has(&cpu) == !needs_it, "%s without %s",
               needs_it ? "accepted" : "refused", needs[i].what);
        cpu = everything;
        flip(&cpu, i);
        expect(targets[k].has(&cpu) == !needs_it, "%s with everything but %s",
               needs_it ? "accepted" : "refused", needs[i].what);
    }
    expect(needed || runs_anywhere(name), "this test does not know what it needs");
    /* registers of leaves that do not exist mean nothing */
    for (uint32_t leaf = 0; leaf < 16; leaf++) {
        cpu = machine_for(NULL);
        cpu.max_leaf = leaf;
        expect(targets[k].has(&cpu) == (leaf >= 7 || !needed), "CPUID up to leaf %u", leaf);
    }
}

static size_t first_accepted(const fg_cpuid *cpu)
{
    size_t k = 0;
    while (k < TARGETS && !targets[k].has(cpu))
        k++;
    return k;
}

/* A target that a machine made for it does not choose would never run. */
static void test_order(void)
{
    for (size_t k = 0; k < TARGETS; k++) {
        const fg_cpuid cpu = machine_for(targets[k].name);
        const size_t first = first_accepted(&cpu);
        begin_case("%s", targets[k].name);
        expect(first == k || (runs_anywhere(targets[k].name) && first < k),
               "%s stands before it and needs no more",
               first < TARGETS ? targets[first].name : "nothing");
    }
}

/* With one thing missing, the first target of the list that is left is the best of those
 * that do without it. */
static void test_fallback(void)
{
    for (size_t i = 0; i < NEEDS; i++) {
        fg_cpuid cpu = machine_for(NULL);
        size_t want = 0;
        begin_case("without %s", needs[i].what);
        flip(&cpu, i);
        const size_t first = first_accepted(&cpu);
        while (want < TARGETS && in_words(needs[i].needed_by, targets[want].name))
            want++;
        if (expect(first < TARGETS && want < TARGETS, "no target is left"))
            expect(first == want, "%s, not %s", targets[first].name, targets[want].name);
    }
}

static void test_this_machine(void)
{
    const fg_cpuid cpu = fg_cpuid_read();
    for (size_t k = 0; k < TARGETS; k++) {
        int supported = -1;
        const char *name = fastgelu_target_name(k, &supported);
        begin_case("%s", targets[k].name);
        expect(name && strcmp(name, targets[k].name) == 0, "the library calls it %s",
               name ? name : "nothing");
        expect(supported == targets[k].has(&cpu), "the library says %d", supported);
#if defined(__x86_64__) && defined(__GNUC__)
        /* the compiler's own detector */
        if (strcmp(targets[k].name, "avx2") == 0)
            /* F16C, which it asks for too, is a name that older compilers do not know */
            expect(supported == (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma")),
                   "the compiler's run-time library disagrees with %d", supported);
        if (strcmp(targets[k].name, "avx512") == 0)
            expect(supported ==
                       (__builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512dq") &&
                        __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512vl")),
                   "the compiler's run-time library disagrees with %d", supported);
#endif
    }
    begin_case("the best of them");
    const size_t first = first_accepted(&cpu);
    if (expect(first < TARGETS, "no target is left"))
        expect(strcmp(fastgelu_target(), targets[first].name) == 0, "%s runs, not %s",
               fastgelu_target(), targets[first].name);
}

int main(void)
{
    begin_group("faked registers");
    for (size_t k = 0; k < TARGETS; k++)
        test_target(k);
    end_group();
    begin_group("best first");
    test_order();
    end_group();
    begin_group("fallback, one thing missing");
    test_fallback();
    end_group();
    begin_group("this machine");
    test_this_machine();
    end_group();
    return end_tests();
}
