/* SPDX-License-Identifier: BSD-3-Clause */
/* reference16.h: the correctly rounded results of float16 and bfloat16, from double.
 *
 * The double of reference.h is right to 2^-45 of itself. Where it lies further than four times
 * that from every tie between two results it decides the rounding; is_decided says so, and the
 * test that uses it asks for every input. Where x is too small for x^2 to show in a double
 * beside x/2, the value is a hair above x/2: x/2 + c x^2 with c > 0. */
#ifndef REFERENCE16_H
#define REFERENCE16_H

#include <math.h>
#include <stdint.h>
#include <string.h>

#include "reference.h"

typedef struct format16 {
    const char *name;
    int fraction_bits, emin; /* of the smallest normal number */
} format16;
static const format16 formats16[] = {{"f16", 10, -14}, {"bf16", 7, -126}};

static const double error16 = 0x1p-43;

static double decode16(const format16 *t, uint16_t b)
{
    const int field = (b & 0x7fff) >> t->fraction_bits;
    const int fraction = b & ((1 << t->fraction_bits) - 1);
    const double sign = b & 0x8000 ? -1 : 1;
    if (field == 0x7fff >> t->fraction_bits)
        return fraction ? NAN : sign * (double)INFINITY;
    const int significand = field ? fraction | 1 << t->fraction_bits : fraction;
    return sign * ldexp(significand, (field ? field - 1 : 0) + t->emin - t->fraction_bits);
}

/* |y| in units of the last place that its binade has. */
static double in_places(const format16 *t, double y)
{
    int e;
    frexp(y, &e);
    return ldexp(fabs(y), t->fraction_bits - (e - 1 < t->emin ? t->emin : e - 1));
}

static uint16_t encode16(const format16 *t, double y)
{
    const unsigned infinity = 0x8000u - (1u << t->fraction_bits);
    const unsigned sign = signbit(y) ? 0x8000 : 0;
    int e;
    if (isnan(y))
        return (uint16_t)(infinity | 1u << (t->fraction_bits - 1));
    if (isinf(y))
        return (uint16_t)(sign | infinity);
    frexp(y, &e);
    const unsigned binade = y == 0 || e - 1 < t->emin ? 0 : (unsigned)(e - 1 - t->emin);
    /* to nearest even; carries into the exponent where it rounds up to the next binade */
    const double magnitude = ldexp(binade, t->fraction_bits) + nearbyint(in_places(t, y));
    return (uint16_t)(sign | (magnitude < infinity ? (unsigned)magnitude : infinity));
}

static int is_decided(const format16 *t, double y)
{
    const double places = in_places(t, y);
    return !isfinite(y) || fabs(places - floor(places) - 0.5) > places * error16;
}

/* A value ("silu"), a slope ("silu_grad") or a second derivative ("silu_grad2") at x. */
static double reference16(const char *name, double x)
{
    static const char *const forms[FORMS] = {
        [FORM_GELU] = "gelu",
        [FORM_GELU_TANH] = "gelu_tanh",
        [FORM_GELU_SIGMOID] = "gelu_sigmoid",
        [FORM_SILU] = "silu",
    };
    const size_t n = strlen(name);
    const int is_slope = n > 5 && strcmp(name + n - 5, "_grad") == 0;
    const int is_second = n > 6 && strcmp(name + n - 6, "_grad2") == 0;
    const size_t length = is_second ? n - 6 : is_slope ? n - 5 : n;
    const float at = (float)x; /* exact */
    double value, slope, second;
    if (!is_slope && !is_second && x != 0 && fabs(x) < 0x1p-30)
        return nextafter(0.5 * x, INFINITY);
    for (int f = 0; f < FORMS; f++)
        if (strlen(forms[f]) == length && strncmp(forms[f], name, length) == 0) {
            reference_block((enum form)f, 1, &at, &value, &slope);
            reference_second((enum form)f, 1, &at, &second);
            if (is_second)
                return second;
            return is_slope ? slope : value;
        }
    return NAN; /* decides nothing */
}

#endif
