/* SPDX-License-Identifier: BSD-3-Clause */
/* search16.c: moves last places of the float16 and bfloat16 coefficients until every result is
 * correctly rounded: those of the formulas, for the x that they are for. The tables are another
 * search's: search16_tables.py.
 *
 *     python native/tools/generate_coefficients16.py --fits-only
 *     cc -O2 -mavx2 -mfma -mf16c -ffp-contract=off -I native/include -I native/src -I native/tests
 *         native/tools/search16.c native/tests/reference.c -o search16 -lm
 *     ./search16 > native/tools/search16_places.json
 *     python native/tools/generate_coefficients16.py
 *
 * A random walk: one to three coefficients of a function move by some places, and the move stays
 * if no more results are wrong than before, and no more slopes, before rounding, far from right:
 * that is what backward multiplies. Runs the avx2 target; every target gives its bits. */
#define FG_COEFFICIENTS static
#include "../src/target_avx2.c"

#include <stdio.h>
#include <stdlib.h>

#include "reference16.h"

enum {
    INPUTS = 1 << 16,
    MOST_TABLES = 5,
    MOST_MOVES = 100000,
    STARTS = 5,
    REACH = 12 /* a move is by at most 2^(REACH - 1) places */
};

typedef struct table {
    const char *name;
    float *at;
    int count;
    int moved[12];
} table;

typedef struct job {
    const char *function;
    int format;
    int low, end; /* the bits of the least and the greatest |x| looked at */
    void (*loop)(size_t n, const uint16_t *x, uint16_t *y);
    void (*unrounded)(size_t n, const uint16_t *x, float *y); /* of slopes */
    table tables[MOST_TABLES];
} job;

/* The two formulas of a function; of slopes also unrounded, as backward multiplies those of the far
 * one. */
#define FORMULA(way, near, name, dtype)                                                   \
    static void search_##way##_##name##_##dtype(size_t n, const uint16_t *x, uint16_t *y) \
    {                                                                                     \
        for (size_t i = 0; i < n; i += FG_LANES_f32)                                      \
            v_store_##dtype(y + i, name##_##dtype(v_load_##dtype(x + i), near));          \
    }
#define FORMULAS(name, dtype) FORMULA(everywhere, 0, name, dtype) FORMULA(far, -1, name, dtype)
#define UNROUNDED(name, dtype)                                                    \
    static void unrounded_##name##_##dtype(size_t n, const uint16_t *x, float *y) \
    {                                                                             \
        for (size_t i = 0; i < n; i += FG_LANES_f32)                              \
            v_store_f32(y + i, name##_##dtype(v_load_##dtype(x + i), -1));        \
    }
#define ALL_OF(form, dtype) \
    FORMULAS(form, dtype) FORMULAS(form##_grad, dtype) UNROUNDED(form##_grad, dtype)
#define ALL(dtype)      \
    ALL_OF(gelu, dtype) \
    ALL_OF(gelu_tanh, dtype) ALL_OF(gelu_sigmoid, dtype) ALL_OF(silu, dtype)
ALL(f16)
ALL(bf16)

#define TABLE(name, dtype) \
    {#name "_" #dtype, fg_##name##_##dtype, FG_COUNT(fg_##name##_##dtype), {0}}
#define EVERYWHERE(name, dtype, format, ...)                                \
    {                                                                       \
        #name, format, 0, 0x7fff, search_everywhere_##name##_##dtype, NULL, \
        {                                                                   \
            __VA_ARGS__                                                     \
        }                                                                   \
    }
#define FAR(name, dtype, format, unrounded, ...)                                   \
    {                                                                              \
        #name, format, fg_##name##_low_bits_##dtype, fg_##name##_end_bits_##dtype, \
            search_far_##name##_##dtype, unrounded,                                \
        {                                                                          \
            __VA_ARGS__                                                            \
        }                                                                          \
    }
#define EXPONENTIAL(name, dtype) TABLE(name##_exp2, dtype), TABLE(name##_rate, dtype)
#define RATIO(name, dtype) \
    EXPONENTIAL(name, dtype), TABLE(name##_num, dtype), TABLE(name##_den, dtype)
#define SLOPE(name, dtype) EXPONENTIAL(name, dtype), TABLE(name##_slope, dtype)
#define GELU(dtype, format)                                            \
    EVERYWHERE(gelu, dtype, format, RATIO(gelu, dtype)),               \
        FAR(gelu, dtype, format, NULL, RATIO(far_gelu, dtype)),        \
        EVERYWHERE(gelu_grad, dtype, format, RATIO(gelu_grad, dtype)), \
        FAR(gelu_grad, dtype, format, unrounded_gelu_grad_##dtype, RATIO(far_gelu_grad, dtype))
#define SIGMOID(form, dtype, format)                                       \
    EVERYWHERE(form, dtype, format, EXPONENTIAL(form, dtype)),             \
        FAR(form, dtype, format, NULL, EXPONENTIAL(far_##form, dtype),     \
            TABLE(far_##form##_inverse, dtype)),                           \
        EVERYWHERE(form##_grad, dtype, format, SLOPE(form##_grad, dtype)), \
        FAR(form##_grad, dtype, format, unrounded_##form##_grad_##dtype,   \
            SLOPE(far_##form##_grad, dtype), TABLE(far_##form##_grad_inverse, dtype))
#define JOBS(dtype, format)                                                                       \
    GELU(dtype, format), SIGMOID(gelu_tanh, dtype, format), SIGMOID(gelu_sigmoid, dtype, format), \
        SIGMOID(silu, dtype, format)

static job jobs[] = {JOBS(f16, 0), JOBS(bf16, 1)};

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
        if (isnan(x) || (i & 0x7fff) < j->low || (i & 0x7fff) > j->end)
            inputs[i] = (uint16_t)j->low;
        exact[i] = reference16(j->function, decode16(format, inputs[i]));
        wanted[i] = encode16(format, exact[i]);
    }
    const int first = wrong(j);
    int best = first;
    fprintf(stderr, "%s %s from %#x: %d", format->name, j->function, (unsigned)j->low, best);
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
            by[m] = 1 << random_below(REACH);
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
        state = 2;
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
