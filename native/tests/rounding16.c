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

/* ---- values and slopes ------------------------------------------------------ */

static void test_rounding(const fastgelu_function *f, const format *t, const format16 *t16)
{
    const truth *want = truth_of(f->name, t16);
    int wrong = 0, finite = 0;
    for (int i = 0; i < INPUTS; i++)
        inputs[i] = (uint16_t)i;
    call(f, t, INPUTS, NULL, inputs, results);
    for (int i = 0; i < INPUTS; i++) {
        const bits got = canonical(t, results[i]);
        finite += !is_nan(t, (bits)i);
        wrong += !expect(got == want->rounded[i], "x %#x: got %#x, want %#x, exactly %.17g", i,
                         (unsigned)got, want->rounded[i], want->exact[i]);
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
    double worst = 0;
    int wrong = 0, count = 0;
    for (size_t d = 0; d < sizeof dys / sizeof *dys; d++) {
        const uint16_t dy = encode16(t16, dys[d]);
        for (int i = 0; i < INPUTS; i++) {
            inputs[i] = (uint16_t)i;
            gradients[i] = dy;
        }
        call(f, t, INPUTS, gradients, inputs, results);
        for (int i = 0; i < INPUTS; i++) {
            if (is_nan(t, (bits)i) || is_infinite(t, (bits)i))
                continue;
            const double exact = decode16(t16, dy) * want->exact[i];
            const uint16_t rounded = encode16(t16, exact);
            count++;
            wrong += results[i] != rounded;
            if (results[i] == rounded && is_infinite(t, rounded))
                continue;
            const double error = error_in_ulp(t16, decode16(t16, results[i]), exact);
            worst = error > worst ? error : worst;
            expect(error <= f->max_ulp && (results[i] ^ rounded) < 0x8000,
                   "dy %#x, x %#x: got %#x, want %#x, %g ULP", dy, i, results[i], rounded, error);
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

int main(void)
{
    on_every_target("every 16-bit input", 0, test);
    return end_tests();
}
