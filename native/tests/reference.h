/* SPDX-License-Identifier: BSD-3-Clause */
/* reference.h: every function in double, for judging the float kernels: relative error
 * below 2^-45 for float arguments, slopes near their zeros included (test_reference.py
 * compares it with mpmath). Written without any formula of the library. */
#ifndef REFERENCE_H
#define REFERENCE_H

#include <math.h>
#include <stddef.h>
#include <string.h>

#include "slope_series.h"

/* Near the zero of a slope its terms cancel: there the Taylor series serves. */
static const double series_radius = 0x1p-6;

static double series(const double *c, int n, double t, double zero_hi, double zero_lo)
{
    const double d = (t - zero_hi) - zero_lo;
    double sum = 0;
    for (int i = n - 1; i >= 0; i--)
        sum = sum * d + c[i];
    return sum * d;
}
#define SERIES(form, t)                                                                    \
    series(form##_series, (int)(sizeof form##_series / sizeof(double)), t, form##_zero_hi, \
           form##_zero_lo)

/* Phi(-t); the rounding of t/sqrt(2) is undone to first order. */
static double normal_tail(double t)
{
    const double c = 0x1.6a09e667f3bcdp-1, c_lo = -0x1.bdd3413b26456p-55; /* sqrt(1/2) */
    const double z = t * c, z_lo = fma(t, c, -z) + t * c_lo;
    return 0.5 * (erfc(z) - z_lo * 0x1.20dd750429b6dp+0 * exp(-z * z));
}

/* exp(-w) for the three sigmoid forms, w = 1.702 t and so on carried as a sum. */
static double exp_minus(double w, double w_lo)
{
    return exp(-w) * (1 - w_lo);
}

static double sigmoid_exp(double t)
{
    const double c = 1.702, c_lo = 0x1.89374bc6a7efap-55; /* 1.702 - c */
    const double w = c * t;
    return exp_minus(w, fma(c, t, -w) + c_lo * t);
}

/* w = A t + B t^3 by long double, which has 11 bits to spare on x86-64 and more elsewhere */
static const long double tanh_a = 1.5957691216057307117597842397375L;
static const long double tanh_b = 0.0713548162726002487763387522799L;

static double tanh_exp(double t)
{
    const long double w = (long double)t * (tanh_a + tanh_b * ((long double)t * t));
    return exp_minus((double)w, (double)(w - (double)w));
}

static double tanh_w_slope_times_t(double t)
{
    return (double)((long double)t * (tanh_a + 3 * tanh_b * ((long double)t * t)));
}

/* Value: x * P(t) for x < 0, x * (1 - P(t)) for x >= 0; likewise the slope. */
static double one_sided(double x, double p)
{
    return signbit(x) ? p : 1 - p;
}

static double reference_value(const char *form, double x)
{
    const double t = fmin(fabs(x), 1e3);
    double p;
    if (isinf(x))
        return x > 0 ? x : -0.0;
    if (strcmp(form, "gelu") == 0) {
        p = normal_tail(t);
    } else {
        const double e = strcmp(form, "gelu_tanh") == 0      ? tanh_exp(t)
                         : strcmp(form, "gelu_sigmoid") == 0 ? sigmoid_exp(t)
                                                             : exp(-t);
        p = e / (1 + e);
    }
    return isnan(x) ? x : x * one_sided(x, p);
}

static double reference_slope(const char *form, double x)
{
    const double t = fmin(fabs(x), 1e3);
    double p;
    if (isnan(x))
        return x;
    if (isinf(x))
        return x > 0 ? 1 : -0.0;
    if (strcmp(form, "gelu") == 0) {
        if (fabs(t - gelu_zero_hi) < series_radius)
            p = SERIES(gelu, t);
        else /* exp(-t^2/2) with t^2 exact for a float t */
            p = normal_tail(t) - t * 0x1.9884533d43651p-2 * exp(-0.5 * (t * t));
    } else if (strcmp(form, "gelu_tanh") == 0) {
        const double e = tanh_exp(t);
        p = fabs(t - gelu_tanh_zero_hi) < series_radius
                ? SERIES(gelu_tanh, t)
                : e * (1 + e - tanh_w_slope_times_t(t)) / ((1 + e) * (1 + e));
    } else if (strcmp(form, "gelu_sigmoid") == 0) {
        const double e = sigmoid_exp(t);
        p = fabs(t - gelu_sigmoid_zero_hi) < series_radius
                ? SERIES(gelu_sigmoid, t)
                : e * (1 + e - 1.702 * t) / ((1 + e) * (1 + e));
    } else {
        const double e = exp(-t);
        p = fabs(t - silu_zero_hi) < series_radius ? SERIES(silu, t)
                                                   : e * (1 + e - t) / ((1 + e) * (1 + e));
    }
    return one_sided(x, p == 0 ? -0.0 : p); /* underflow at large t: the slope is negative */
}

/* name: gelu, gelu_grad, gelu_backward, ... */
static double reference(const char *name, double dy, double x)
{
    char form[32];
    const size_t n = strlen(name);
    const size_t cut = n > 5 && strcmp(name + n - 5, "_grad") == 0       ? n - 5
                       : n > 9 && strcmp(name + n - 9, "_backward") == 0 ? n - 9
                                                                         : n;
    memcpy(form, name, cut);
    form[cut] = 0;
    if (cut == n)
        return reference_value(form, x);
    return cut == n - 5 ? reference_slope(form, x) : dy * reference_slope(form, x);
}

#endif
