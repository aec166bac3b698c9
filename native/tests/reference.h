/* SPDX-License-Identifier: BSD-3-Clause */
/* reference.h: values, slopes and second derivatives in double for judging the float kernels, and
 * the judging: loops over blocks of inputs, for every instruction set that makes them faster.
 *
 * For float arguments the relative error is below 2^-45, near the zeros of slopes and second
 * derivatives too; results below 2^-400 are only known to be so. tests/test_native_reference.py
 * compares with mpmath. Written without any formula or fit of the library. */
#ifndef REFERENCE_H
#define REFERENCE_H

#include <math.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

enum { REFERENCE_BLOCK = 2048 }; /* so many elements a call stay in the cache */

enum form { FORM_GELU, FORM_GELU_TANH, FORM_GELU_SIGMOID, FORM_SILU, FORMS };

/* Value and slope of a form at n floats. */
void reference_block(enum form f, size_t n, const float *x, double *value, double *slope);

/* The second derivative likewise. */
void reference_second(enum form f, size_t n, const float *x, double *second);

/* How many of the n results have an error above so many ULP (the sign included). */
size_t reference_judge(size_t n, const float *got, const double *want, double ulp);

/* The compiled variants that this machine can run, worst first: how many, the name of one,
 * and choosing one (the last is used until then). */
int reference_variants(void);
const char *reference_variant_name(int variant);
void reference_use(int variant);

/* Total error in ULP: the unit is the spacing of float in the binade of the exact value, at
 * least that of the subnormal numbers. Infinite for a wrong sign, of a zero too. */
static inline double reference_ulp(float got, double want)
{
    const double magnitude = fabs(want);
    const double normal = magnitude < 0x1p-126 ? 0x1p-126 : magnitude;
    uint64_t unit_bits, want_bits;
    uint32_t got_bits;
    double scale, error;
    memcpy(&unit_bits, &normal, sizeof unit_bits);
    memcpy(&want_bits, &want, sizeof want_bits);
    memcpy(&got_bits, &got, sizeof got_bits);
    /* 2^(23 - e) for 2^e <= normal < 2^(e + 1): exponent field 2046 + 23 less that of normal */
    unit_bits = ((uint64_t)2069 << 52) - (unit_bits & (uint64_t)0x7ff << 52);
    memcpy(&scale, &unit_bits, sizeof scale);
    error = fabs((double)got - want) * scale;
    error = error < INFINITY ? error : INFINITY; /* NaN too */
    /* what rounds to infinity */
    error = magnitude > 0x1.ffffffp127 ? (fabsf(got) == INFINITY ? 0 : INFINITY) : error;
    error = got_bits >> 31 == want_bits >> 63 ? error : INFINITY;
    return want == want ? error : got != got ? 0 : INFINITY;
}

#endif
