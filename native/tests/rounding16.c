/* SPDX-License-Identifier: BSD-3-Clause */
/* rounding16.c: float16 and bfloat16 at every one of the 65,536 inputs, on every target of this
 * machine: values and slopes correctly rounded, backward within its bound for some dy. Prints
 * how many results are not. */
#include <stdio.h>
#include <stdlib.h>

#include "harness.h"
#include "reference16.h"

enum { INPUTS = 1 << 16, MOST_NAMES = 64 };

static uint16_t inputs[INPUTS], gradients[INPUTS], results[INPUTS];

/* ---- the truth, the same for every target --------------------------------- */

typedef struct truth {
    char name[40];
    const format16 *t16;
    double exact[INPUTS];
    uint16_t rounded[INPUTS];
} truth;

static truth *truth_of(const char *name, const format16 *t16)
{
    static truth *known[MOST_NAMES];
    int i = 0;
    while (i < MOST_NAMES - 1 && known[i]) {
        if (strcmp(known[i]->name, name) == 0 && known[i]->t16 == t16)
            return known[i];
        i++;
    }
    truth *t = known[i] = allocate(sizeof *t);
    snprintf(t->name, sizeof t->name, "%s", name);
    t->t16 = t16;
    for (int k = 0; k < INPUTS; k++) {
        t->exact[k] = reference16(name, decode16(t16, (uint16_t)k));
        t->rounded[k] = encode16(t16, t->exact[k]);
        /* tiny values, whose hair is beyond a double, are decided by it: see reference16.h */
        if (fabs(decode16(t16, (uint16_t)k)) >= 0x1p-30)
            expect(is_decided(t16, t->exact[k]), "x %#x: the reference %a cannot decide", k,
                   t->exact[k]);
    }
    return t;
}

static const format16 *format16_of(const fastgelu_function *f)
{
    for (size_t i = 0; i < sizeof formats16 / sizeof *formats16; i++)
        if (strcmp(formats16[i].name, f->dtype) == 0)
            return &formats16[i];
    return NULL;
}

/* The inputs in order, where blocks of them go the near way, and so that each block has some from
 * everywhere: times this, which is odd. */
static const unsigned orders[] = {1, 40503};
enum { ORDERS = sizeof orders / sizeof *orders };

/* ---- values and slopes ------------------------------------------------------ */

static void test_rounding(const fastgelu_function *f, const format *t, const format16 *t16)
{
    const truth *want = truth_of(f->name, t16);
    int wrong = 0, finite = 0;
    for (int order = 0; order < ORDERS; order++) {
        for (unsigned i = 0; i < INPUTS; i++)
            inputs[i] = (uint16_t)(i * orders[order]);
        call(f, t, INPUTS, NULL, inputs, results);
        for (int i = 0; i < INPUTS; i++) {
            const bits got = canonical(t, results[i]);
            const unsigned x = inputs[i];
            finite += order == 0 && !is_nan(t, x);
            wrong += !expect(got == want->rounded[x], "x %#x: got %#x, want %#x, exactly %.17g", x,
                             (unsigned)got, want->rounded[x], want->exact[x]);
        }
    }
    printf("  %-18s %-4s  %6d inputs, not correctly rounded: %d\n", f->name, f->dtype, finite,
           wrong);
}

/* ---- backward ----------------------------------------------------------------- */

static double error_in_ulp(const format16 *t, double got, double exact)
{
    int e;
    if (got == exact)
        return 0;
    frexp(exact, &e);
    return fabs(got - exact) / ldexp(1, (e - 1 < t->emin ? t->emin : e - 1) - t->fraction_bits);
}

static void test_backward(const fastgelu_function *f, const format *t, const format16 *t16)
{
    char slope[40];
    snprintf(slope, sizeof slope, "%s", f->name);
    strcpy(strstr(slope, "_backward"), "_grad");
    const truth *want = truth_of(slope, t16);
    const double top = ldexp(2, -t16->emin); /* just above the largest number */
    const double dys[] = {
        1, -3.140625, 0.7109375, top * 0.4921875, -top / 32, 0x1.8p-10, ldexp(1.5, t16->emin - 2)};
    static uint16_t in_order[INPUTS];
    double worst = 0;
    int wrong = 0, count = 0;
    for (size_t d = 0; d < ORDERS * (sizeof dys / sizeof *dys); d++) {
        const uint16_t dy = encode16(t16, dys[d / ORDERS]);
        for (unsigned i = 0; i < INPUTS; i++) {
            inputs[i] = (uint16_t)(i * orders[d % ORDERS]);
            gradients[i] = dy;
        }
        call(f, t, INPUTS, gradients, inputs, results);
        for (int i = 0; i < INPUTS; i++) {
            const unsigned x = inputs[i];
            if (is_nan(t, x) || is_infinite(t, x))
                continue;
            const double exact = decode16(t16, dy) * want->exact[x];
            const uint16_t rounded = encode16(t16, exact);
            if (d % ORDERS) { /* the same as before */
                expect(results[i] == in_order[x], "dy %#x, x %#x: got %#x, in a near block %#x", dy,
                       x, results[i], in_order[x]);
                continue;
            }
            in_order[x] = results[i];
            count++;
            wrong += results[i] != rounded;
            if (results[i] == rounded && is_infinite(t, rounded))
                continue;
            const double error = error_in_ulp(t16, decode16(t16, results[i]), exact);
            worst = error > worst ? error : worst;
            expect(error <= f->max_ulp && (results[i] ^ rounded) < 0x8000,
                   "dy %#x, x %#x: got %#x, want %#x, %g ULP", dy, x, results[i], rounded, error);
        }
    }
    printf("  %-18s %-4s  %6d pairs, not correctly rounded: %d, at most %.4f ULP\n", f->name,
           f->dtype, count, wrong, worst);
}

static void test(const fastgelu_function *f, const format *t)
{
    const format16 *t16 = format16_of(f);
    if (!t16)
        expect(1, "another dtype");
    else if (kind_of(f) == BACKWARD)
        test_backward(f, t, t16);
    else
        test_rounding(f, t, t16);
}

/* ---- fused functions ------------------------------------------------------------ */

/* One element: the exact results, and the truth's inputs, for the bounds that fused.h states. */
static int fused_truth(const fastgelu_function *f, const format16 *t16, const uint16_t in[3],
                       double exact[2])
{
    char slope[40];
    double at[3];
    for (int a = 0; a < f->inputs; a++)
        at[a] = decode16(t16, in[a]);
    snprintf(slope, sizeof slope, "%s_grad", f->form);
    if (strncmp(f->name, "bias_", 5) == 0) {
        const float sum = (float)(at[f->inputs - 2] + at[f->inputs - 1]);
        exact[0] = f->inputs == 2 ? reference16(f->form, sum) : at[0] * reference16(slope, sum);
        return isfinite(sum);
    }
    const double a = at[f->inputs - 2], b = at[f->inputs - 1], value = reference16(f->form, a);
    if (f->inputs == 2) {
        exact[0] = value * b;
    } else {
        exact[0] = at[0] * b * reference16(slope, a);
        exact[1] = at[0] * value;
        if (fabs(at[0] * b) < 0x1p-126 || fabs(at[0] * b) >= 0x1p128)
            return 0;
    }
    return fabs(value) >= 0x1p-126;
}

static void test_fused(const fastgelu_function *f, const format *t)
{
    static uint16_t in[3][INPUTS], out[2][INPUTS];
    static const double others[] = {0.40625, -2.8125, 96, -0.0078125};
    const format16 *t16 = format16_of(f);
    char *args[MOST_OPERANDS];
    double worst = 0;
    int count = 0;
    if (!t16 || f->inputs == 1) {
        expect(1, "by the functions it is made of");
        return;
    }
    for (int a = 0; a < f->inputs + f->outputs; a++)
        args[a] = (char *)(a < f->inputs ? in[a] : out[a - f->inputs]);
    for (size_t k = 0; k < sizeof others / sizeof *others; k++) {
        for (int i = 0; i < INPUTS; i++) {
            in[0][i] = encode16(t16, k % 2 ? -1.5 : 0.1);
            in[f->inputs - 2][i] = (uint16_t)i; /* x or a: every one */
            in[f->inputs - 1][i] = encode16(t16, others[k]);
        }
        call_with(f, t, INPUTS, args);
        for (int i = 0; i < INPUTS; i++) {
            const uint16_t at[3] = {in[0][i], in[1][i], in[2][i]};
            double exact[2];
            if (is_nan(t, (bits)i) || is_infinite(t, (bits)i) || !fused_truth(f, t16, at, exact))
                continue;
            for (int o = 0; o < f->outputs; o++) {
                const uint16_t rounded = encode16(t16, exact[o]);
                if (out[o][i] == rounded && is_infinite(t, rounded))
                    continue;
                const double error = error_in_ulp(t16, decode16(t16, out[o][i]), exact[o]);
                worst = error > worst ? error : worst;
                count++;
                expect(error <= f->max_ulp, "%#x and %g: output %d is %#x, want %#x, %g ULP", i,
                       others[k], o, out[o][i], rounded, error);
            }
        }
    }
    expect(count > INPUTS / 2, "%d results were judged", count);
    printf("  %-26s %-4s  %6d results, at most %.4f ULP\n", f->name, f->dtype, count, worst);
}

int main(void)
{
    on_every_target("every 16-bit input", 0, test);
    on_every_fused("every 16-bit input, fused", test_fused);
    return end_tests();
}
