/* SPDX-License-Identifier: BSD-3-Clause */
/* search16.c: moves last places of the float16 and bfloat16 coefficients until every result is
 * correctly rounded: those of the formulas, for the x that they are for. The tables are another
 * search's:
 * search16_tables.py.
 *
 *     python native/tools/generate_coefficients16.py --fits-only
 *     cc -O2 -mavx2 -mfma -mf16c -ffp-contract=off -I native/include -I native/src -I native/tests
 *         native/tools/search16.c -o search16 -lm
 *     ./search16 > native/tools/search16_places.json
 *     python native/tools/generate_coefficients16.py
 *
 * A random walk: one to three coefficients of a function move by some places, and the move stays
 * if no more results are wrong than before, and no more slopes, before rounding, far from right:
 * that is what backward multiplies, near the zero of the slope too. Runs the avx2 target; every target gives its bits. */
#define FG_COEFFICIENTS static
#include "../src/target_avx2.c"

#include <stdio.h>
#include <stdlib.h>

#include "reference16.h"

enum { INPUTS = 1 << 16, MOST_TABLES = 5, MOST_MOVES = 100000, STARTS = 5 };

typedef struct table {
    const char *name;
    float *at;
    int count;
    int moved[12];
} table;

typedef struct job {
    const char *function;
    int format, reach; /* a move is by at most 2^(reach - 1) places */
    int low, end;      /* the bits of the least and the greatest |x| looked at */
    void (*loop)(size_t n, const uint16_t *x, uint16_t *y);
    void (*unrounded)(size_t n, const uint16_t *x, float *y); /* of slopes */
    table tables[MOST_TABLES];
} job;

/* Of the formulas; nearer inputs than those they are for are not looked at. */
#define FORMULA(name, dtype)                                                       \
    static void formula_##name##_##dtype(size_t n, const uint16_t *x, uint16_t *y) \
    {                                                                              \
        for (size_t i = 0; i < n; i += FG_LANES_f32)                               \
            v_store_##dtype(y + i, name##_##dtype(v_load_##dtype(x + i), -1));     \
    }
#define ALL_FORMULAS(dtype)        \
    FORMULA(gelu, dtype)           \
    FORMULA(gelu_grad, dtype)      \
    FORMULA(gelu_tanh, dtype)      \
    FORMULA(gelu_tanh_grad, dtype) \
    FORMULA(gelu_sigmoid, dtype)   \
    FORMULA(gelu_sigmoid_grad, dtype) FORMULA(silu, dtype) FORMULA(silu_grad, dtype)
ALL_FORMULAS(f16)
ALL_FORMULAS(bf16)

/* The slope as backward multiplies it. */
#define UNROUNDED(name, dtype)                                                    \
    static void unrounded_##name##_##dtype(size_t n, const uint16_t *x, float *y) \
    {                                                                             \
        for (size_t i = 0; i < n; i += FG_LANES_f32)                              \
            v_store_f32(y + i, name##_##dtype(v_load_##dtype(x + i), -1));        \
    }
#define ALL_UNROUNDED(dtype)    \
    UNROUNDED(gelu_grad, dtype) \
    UNROUNDED(gelu_tanh_grad, dtype) UNROUNDED(gelu_sigmoid_grad, dtype) UNROUNDED(silu_grad, dtype)
ALL_UNROUNDED(f16)
ALL_UNROUNDED(bf16)

#define TABLE(name, dtype)                                                    \
    {                                                                         \
#name "_" #dtype, fg_##name##_##dtype, FG_COUNT(fg_##name##_##dtype), \
        {                                                                     \
            0                                                                 \
        }                                                                     \
    }
#define GELU(name, dtype, format, reach, unrounded)                                         \
    {                                                                                       \
#name, format, reach, fg_##name##_low_bits_##dtype, fg_##name##_end_bits_##dtype,   \
            formula_##name##_##dtype, unrounded,                                            \
        {                                                                                   \
            TABLE(name##_exp2, dtype), TABLE(name##_rate, dtype), TABLE(name##_num, dtype), \
                TABLE(name##_den, dtype)                                                    \
        }                                                                                   \
    }
#define VALUE(name, dtype, format, reach)                                                      \
    {                                                                                          \
#name, format, reach, fg_##name##_low_bits_##dtype, fg_##name##_end_bits_##dtype,      \
            formula_##name##_##dtype, NULL,                                                    \
        {                                                                                      \
            TABLE(name##_exp2, dtype), TABLE(name##_rate, dtype), TABLE(name##_inverse, dtype) \
        }                                                                                      \
    }
#define SLOPE(name, dtype, format, reach)                                                     \
    {                                                                                         \
#name, format, reach, fg_##name##_low_bits_##dtype, fg_##name##_end_bits_##dtype,     \
            formula_##name##_##dtype, unrounded_##name##_##dtype,                             \
        {                                                                                     \
            TABLE(name##_exp2, dtype), TABLE(name##_rate, dtype), TABLE(name##_slope, dtype), \
                TABLE(name##_inverse, dtype)                                                  \
        }                                                                                     \
    }
#define JOBS(dtype, format, reach)                                                                 \
    GELU(gelu, dtype, format, reach, NULL),                                                        \
        GELU(gelu_grad, dtype, format, reach, unrounded_gelu_grad_##dtype),                        \
        VALUE(gelu_tanh, dtype, format, reach), SLOPE(gelu_tanh_grad, dtype, format, reach),       \
        VALUE(gelu_sigmoid, dtype, format, reach), SLOPE(gelu_sigmoid_grad, dtype, format, reach), \
        VALUE(silu, dtype, format, reach), SLOPE(silu_grad, dtype, format, reach)

static job jobs[] = {JOBS(f16, 0, 12), JOBS(bf16, 1, 12)};

static uint16_t inputs[INPUTS], wanted[INPUTS], results[INPUTS];
static double exact[INPUTS];
static float unrounded[INPUTS];

/* How far from right an unrounded slope may be, relatively: 1/64 ULP; and the least that is looked
 * at. */
static const double tolerance[] = {0x1p-17, 0x1p-14}, least[] = {0x1p-42, 0x1p-120};

static int wrong(const job *j)
{
    int count = 0;
    j->loop(INPUTS, inputs, results);
    for (int i = 0; i < INPUTS; i++)
        count += results[i] != wanted[i];
    if (!j->unrounded)
        return count;
    j->unrounded(INPUTS, inputs, unrounded);
    for (int i = 0; i < INPUTS; i++)
        count += fabs(exact[i]) > least[j->format] &&
                 fabs(unrounded[i] - exact[i]) > tolerance[j->format] * fabs(exact[i]);
    return count;
}

static uint64_t state;
static unsigned random_below(unsigned n)
{
    state = state * 6364136223846793005u + 1442695040888963407u;
    return (unsigned)((state >> 33) % n);
}

static void move(table *t, int i, int by)
{
    int32_t bits;
    memcpy(&bits, &t->at[i], sizeof bits);
    bits += by;
    memcpy(&t->at[i], &bits, sizeof bits);
    t->moved[i] += by;
}

/* Whether it found a way. */
static int search(job *j)
{
    const format16 *format = &formats16[j->format];
    int tables = 0, moves = 0;
    while (tables < MOST_TABLES && j->tables[tables].name)
        tables++;
    for (int i = 0; i < INPUTS; i++) {
        inputs[i] = (uint16_t)i;
        const double x = decode16(format, inputs[i]);
        if (isnan(x) || (i & 0x7fff) < j->low || (i & 0x7fff) > j->end) /* NaN: its bits are free */
            inputs[i] = (uint16_t)j->low;
        exact[i] = reference16(j->function, decode16(format, inputs[i]));
        wanted[i] = encode16(format, exact[i]);
    }
    const int first = wrong(j);
    int best = first;
    fprintf(stderr, "%s %s: %d", format->name, j->function, best);
    while (best && moves++ < STARTS * MOST_MOVES) {
        if (moves % MOST_MOVES == 0) { /* no way out of here: from the start again */
            for (int k = 0; k < tables; k++)
                for (int i = 0; i < j->tables[k].count; i++)
                    move(&j->tables[k], i, -j->tables[k].moved[i]);
            best = first;
        }
        int who[3], which[3], by[3];
        const int n = 1 + (int)random_below(3);
        for (int m = 0; m < n; m++) {
            table *t = &j->tables[who[m] = (int)random_below((unsigned)tables)];
            which[m] = (int)random_below((unsigned)t->count);
            by[m] = 1 << random_below((unsigned)j->reach);
            by[m] = random_below(2) ? by[m] : -by[m];
            move(t, which[m], by[m]);
        }
        const int now = wrong(j);
        if (now < best)
            fprintf(stderr, " %d", now);
        if (now <= best)
            best = now;
        else
            for (int m = 0; m < n; m++)
                move(&j->tables[who[m]], which[m], -by[m]);
    }
    fprintf(stderr, " after %d moves\n", moves);
    return best == 0;
}

int main(void)
{
    const int count = (int)(sizeof jobs / sizeof jobs[0]);
    int found = 1;
    for (int i = 0; i < count; i++) {
        state = 1;
        found &= search(&jobs[i]);
    }
    printf("{\n");
    for (int i = 0; i < count; i++)
        for (int k = 0; k < MOST_TABLES && jobs[i].tables[k].name; k++) {
            const table *t = &jobs[i].tables[k];
            printf("%s\"%s\": [", i || k ? ",\n" : "", t->name);
            for (int m = 0; m < t->count; m++)
                printf("%s%d", m ? ", " : "", t->moved[m]);
            printf("]");
        }
    printf("\n}\n");
    return !found;
}
