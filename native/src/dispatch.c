/* SPDX-License-Identifier: BSD-3-Clause */
/* dispatch.c: the public symbols, each one atomic load away from its kernel,
 * and the policy that chooses the kernel table. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cpu_features.h"
#include "internal.h"

#ifdef _MSC_VER
#include <intrin.h>
static const fg_table *volatile current;
static const fg_table *load_current(void)
{
    return (const fg_table *)_InterlockedCompareExchangePointer((void *volatile *)&current, NULL,
                                                                NULL);
}
static void store_current(const fg_table *table)
{
    _InterlockedExchangePointer((void *volatile *)&current, (void *)table);
}
static int store_first(const fg_table *table)
{
    return !_InterlockedCompareExchangePointer((void *volatile *)&current, (void *)table, NULL);
}
#else
#include <stdatomic.h>
static _Atomic(const fg_table *) current;
static const fg_table *load_current(void)
{
    return atomic_load_explicit(&current, memory_order_acquire);
}
static void store_current(const fg_table *table)
{
    atomic_store_explicit(&current, table, memory_order_release);
}
static int store_first(const fg_table *table)
{
    const fg_table *none = NULL;
    return atomic_compare_exchange_strong(&current, &none, table);
}
#endif

static const struct target {
    const fg_table *table;
    int (*supported)(const fg_cpuid *cpu);
} targets[] = {
#define FG_TARGET(name) {&fg_##name, fg_cpu_has_##name},
#include "targets.def"
};
enum { TARGETS = sizeof targets / sizeof targets[0] };

static const fg_table *best(void)
{
    const fg_cpuid cpu = fg_cpuid_read();
    size_t i = 0;
    while (!targets[i].supported(&cpu)) /* ends: the last target runs anywhere */
        i++;
    return targets[i].table;
}

static int find(const char *name, const fg_table **table)
{
    const fg_cpuid cpu = fg_cpuid_read();
    for (size_t i = 0; name && i < TARGETS; i++)
        if (strcmp(targets[i].table->name, name) == 0) {
            *table = targets[i].table;
            return targets[i].supported(&cpu) ? FASTGELU_OK : FASTGELU_UNSUPPORTED_TARGET;
        }
    return FASTGELU_UNKNOWN_TARGET;
}

static FG_SINGLE const fg_table *choose(void)
{
    const fg_table *chosen = NULL;
    const char *name = getenv("FASTGELU_TARGET");
    const int code = name && *name ? find(name, &chosen) : FASTGELU_OK;
    if (!chosen || code != FASTGELU_OK)
        chosen = best();
    /* of many threads that call first, one stores and one complains; a concurrent
     * fastgelu_set_target wins */
    if (store_first(chosen) && code != FASTGELU_OK)
        fprintf(stderr, "fastgelu: FASTGELU_TARGET=%s is %s; using %s\n", name,
                code == FASTGELU_UNKNOWN_TARGET ? "unknown" : "not supported by this machine",
                chosen->name);
    return load_current();
}

static FG_INLINE const fg_table *table(void)
{
    const fg_table *t = load_current();
    return t ? t : choose();
}

const fg_table *fg_current_table(void)
{
    return table();
}

/* The prototypes in fastgelu.h are checked against the registry here. */
#define FG_CALL_1(slot) table()->slot(n, x, y)
#define FG_CALL_2(slot) table()->slot(n, dy, x, dx)
#define FG_CALL_bias(slot) table()->slot(n, x, b, y)
#define FG_CALL_bias_backward(slot) table()->slot(n, dy, x, b, dx)
#define FG_CALL_glu(slot) table()->slot(n, a, b, y)
#define FG_CALL_glu_backward(slot) table()->slot(n, dy, a, b, da, db)
#define FG_CALL_value_and_grad(slot) table()->slot(n, x, y, slope)
#define FG_FUNCTION(name, dtype, inputs, max_ulp)             \
    FG_KERNEL_##inputs(fastgelu_##name##_##dtype, dtype)      \
    {                                                         \
        FG_CALL_##inputs(name##_##dtype);                     \
    }                                                         \
    static FG_KERNEL_##inputs(stream_##name##_##dtype, dtype) \
    {                                                         \
        FG_CALL_##inputs(stream_##name##_##dtype);            \
    }
#define FG_FUSED(name, dtype, shape, form)                   \
    FG_KERNEL_##shape(fastgelu_##name##_##dtype, dtype)      \
    {                                                        \
        FG_CALL_##shape(name##_##dtype);                     \
    }                                                        \
    static FG_KERNEL_##shape(stream_##name##_##dtype, dtype) \
    {                                                        \
        FG_CALL_##shape(stream_##name##_##dtype);            \
    }
#include "functions.def"

/* The bounds of the functions that fused ones are made of, in thousandths of an ULP: their sums
 * are constants then. */
enum {
#define FG_FUNCTION(name, dtype, inputs, max_ulp) FG_BOUND_##name##_##dtype = (int)max_ulp##e3,
#include "functions.def"
};
#define FG_BOUND(name, dtype) ((double)FG_BOUND_##name##_##dtype)
#define FG_MORE(a, b) ((a) > (b) ? (a) : (b))

/* A product counts an error of its factor up to twice, and rounds once. */
#define FG_PRODUCT(bound) (2 * (bound) + 500)
#define FG_BOUND_bias(form, dtype) FG_BOUND(form, dtype)
#define FG_BOUND_bias_backward(form, dtype) FG_BOUND(form##_backward, dtype)
#define FG_BOUND_glu(form, dtype) FG_PRODUCT(FG_BOUND(form, dtype))
#define FG_BOUND_glu_backward(form, dtype) \
    FG_MORE(FG_BOUND(form##_backward, dtype) + 1000, FG_PRODUCT(FG_BOUND(form, dtype)))
#define FG_BOUND_value_and_grad(form, dtype) \
    FG_MORE(FG_BOUND(form, dtype), FG_BOUND(form##_grad, dtype))

#define FG_FUSED_BOUND_f32(shape, form) FG_BOUND_##shape(form, f32)
#define FG_FUSED_BOUND_f64(shape, form) FG_BOUND_##shape(form, f64)
/* 16 bits: the bound of float32, of which 1 ULP is at most 2^-13 of these, and one rounding */
#define FG_FUSED_BOUND_f16(shape, form) \
    (FG_INPUTS_##shape == 1 ? FG_BOUND_value_and_grad(form, f16) : 501)
#define FG_FUSED_BOUND_bf16(shape, form) \
    (FG_INPUTS_##shape == 1 ? FG_BOUND_value_and_grad(form, bf16) : 501)

static const fastgelu_function functions[] = {
#define FG_FUNCTION(name, dtype, inputs, max_ulp) \
    {#name,                                       \
     #dtype,                                      \
     inputs,                                      \
     max_ulp,                                     \
     (void (*)(void))fastgelu_##name##_##dtype,   \
     (void (*)(void))stream_##name##_##dtype,     \
     1,                                           \
     NULL},
#define FG_FUSED(name, dtype, shape, form)       \
    {#name,                                      \
     #dtype,                                     \
     FG_INPUTS_##shape,                          \
     FG_FUSED_BOUND_##dtype(shape, form) / 1000, \
     (void (*)(void))fastgelu_##name##_##dtype,  \
     (void (*)(void))stream_##name##_##dtype,    \
     FG_OUTPUTS_##shape,                         \
     #form},
#include "functions.def"
};
enum { FUNCTIONS = sizeof functions / sizeof functions[0] };

int fg_has_rows(const fastgelu_function *f)
{
    return table()->rows[f - functions] != NULL;
}

void fg_run_rows(const fastgelu_function *f, const fg_rows *rows)
{
    table()->rows[f - functions](rows);
}

const fastgelu_function *fastgelu_function_at(size_t index)
{
    return index < FUNCTIONS ? &functions[index] : NULL;
}

const fastgelu_function *fastgelu_find_function(const char *name, const char *dtype)
{
    for (size_t i = 0; name && dtype && i < FUNCTIONS; i++)
        if (strcmp(functions[i].name, name) == 0 && strcmp(functions[i].dtype, dtype) == 0)
            return &functions[i];
    return NULL;
}

double fastgelu_max_ulp(const char *name, const char *dtype)
{
    const fastgelu_function *f = fastgelu_find_function(name, dtype);
    return f ? f->max_ulp : -1;
}

const char *fastgelu_version(void)
{
    return FASTGELU_VERSION;
}

const char *fastgelu_target(void)
{
    return table()->name;
}

int fastgelu_set_target(const char *name)
{
    const fg_table *chosen = NULL;
    const int code = find(name, &chosen);
    if (code == FASTGELU_OK)
        store_current(chosen);
    return code;
}

const char *const *fastgelu_targets(void)
{
    static const char *const names[] = {
#define FG_TARGET(name) #name,
#include "targets.def"
        NULL,
    };
    const fg_cpuid cpu = fg_cpuid_read();
    size_t i = 0;
    while (!targets[i].supported(&cpu)) /* a machine with one target has all that follow it */
        i++;
    return names + i;
}

const char *fastgelu_target_name(size_t index, int *supported)
{
    const fg_cpuid cpu = fg_cpuid_read();
    if (index >= TARGETS)
        return NULL;
    if (supported)
        *supported = targets[index].supported(&cpu);
    return targets[index].table->name;
}
