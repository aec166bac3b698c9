/* SPDX-License-Identifier: BSD-3-Clause */
/* reference.c: see reference.h. Plain loops without calls or branches, which the compiler
 * vectorises, compiled for several instruction sets; their last bits may differ. */
#include "reference.h"

#include "grad2_series.h"
#include "reference_constants.h"
#include "slope_series.h"

#define LOOP static inline __attribute__((always_inline))

/* Near the zero of a slope its terms cancel: there the Taylor series serves. */
static const double series_radius = 0x1p-4;

/* The first 24 bits: the product of two such numbers is exact, and so is what remains. */
LOOP double top(double v)
{
    uint64_t bits;
    memcpy(&bits, &v, sizeof bits);
    bits &= ~(((uint64_t)1 << 29) - 1);
    memcpy(&v, &bits, sizeof v);
    return v;
}

/* exp(-(w + w_rest)) for 0 <= w <= 400 and a much smaller w_rest. */
LOOP double exp_minus(double w, double w_rest)
{
    const double shifter = 0x1.8p52;
    const double shifted = shifter - w * log2e;
    const double n = shifted - shifter;
    const double r = (-w - n * ln2_top) - (n * ln2_rest + w_rest);
    double sum = exp_coefficients[13], scale;
    uint64_t bits;
    for (int k = 12; k >= 0; k--)
        sum = sum * r + exp_coefficients[k];
    memcpy(&bits, &shifted, sizeof bits);
    bits = (bits + 1023) << 52; /* 2^n */
    memcpy(&scale, &bits, sizeof scale);
    return sum * scale;
}

LOOP double magnitude_up_to(double limit, float x)
{
    const double t = fabs((double)x);
    return t < limit ? t : limit; /* NaN gives the limit */
}

/* *p = P(t), *q = slope(-t): the value is x P for x < 0, x (1 - P) for x >= 0; the slope is
 * slope(-t), 1 - slope(-t). */
LOOP void gelu_at(float x, double *p, double *q)
{
    const double t = magnitude_up_to(tail_limit, x);
    const double inverse = 1 / (t + tail_shift), s = tail_middle + tail_slope * inverse;
    const double e = exp_minus(0.5 * (t * t), 0); /* t^2 is exact */
    /* even and odd powers: gcc unrolls, and so vectorises, up to 16 terms */
    double sum = tail_coefficients[22], odd = 0;
    for (int k = 21; k > 0; k -= 2) {
        odd = odd * (s * s) + tail_coefficients[k];
        sum = sum * (s * s) + tail_coefficients[k - 1];
    }
    sum += odd * s;
    *p = e * (sum * inverse);
    *q = e * (sum * inverse - t * density);
}

LOOP void from_exponential(double e, double t_times_w_slope, double *p, double *q)
{
    const double inverse = 1 / (1 + e);
    *p = e * inverse;
    *q = e * (1 + e - t_times_w_slope) * (inverse * inverse);
}

/* exp(-w(t)) */
LOOP double gelu_tanh_exponential(double t)
{
    const double square = t * t, square_top = top(square);
    /* w / t = A + B t^2 = linear + cubic + rest */
    const double cubic = tanh_cubic_top * square_top;
    const double sum = tanh_linear + cubic; /* of the two, the first is not always the larger */
    const double part = sum - tanh_linear;
    const double lost = (tanh_linear - (sum - part)) + (cubic - part);
    const double rest = lost + (tanh_linear_rest + tanh_cubic_top * (square - square_top) +
                                tanh_cubic_rest * square);
    const double sum_top = top(sum);
    return exp_minus(t * sum_top, t * ((sum - sum_top) + rest));
}

LOOP void gelu_tanh_at(float x, double *p, double *q)
{
    const double t = magnitude_up_to(17, x), cubic = (tanh_cubic_top + tanh_cubic_rest) * (t * t);
    from_exponential(gelu_tanh_exponential(t), t * (tanh_linear + 3 * cubic), p, q);
}

LOOP void gelu_sigmoid_at(float x, double *p, double *q)
{
    const double t = magnitude_up_to(235, x);
    const double e = exp_minus(t * sigmoid_top, t * sigmoid_rest);
    from_exponential(e, t * (sigmoid_top + sigmoid_rest), p, q);
}

LOOP void silu_at(float x, double *p, double *q)
{
    const double t = magnitude_up_to(400, x);
    from_exponential(exp_minus(t, 0), t, p, q);
}

/* ---- second derivatives: the terms as they are ------------------------------------- */

LOOP double second_from(double e, double t, double w_slope, double t_times_w_second)
{
    const double inverse = 1 / (1 + e), h = (1 - e) * inverse;
    return e * (inverse * inverse) * (2 * w_slope + t_times_w_second - t * w_slope * w_slope * h);
}

LOOP double gelu_second(float x)
{
    const double t = magnitude_up_to(28, x), square = t * t; /* exact, and so is the difference */
    return exp_minus(0.5 * square, 0) * density * (2 - square);
}

LOOP double gelu_tanh_second(float x)
{
    const double t = magnitude_up_to(17, x), cubic = (tanh_cubic_top + tanh_cubic_rest) * (t * t);
    return second_from(gelu_tanh_exponential(t), t, tanh_linear + 3 * cubic, 6 * cubic);
}

LOOP double gelu_sigmoid_second(float x)
{
    const double t = magnitude_up_to(235, x);
    return second_from(exp_minus(t * sigmoid_top, t * sigmoid_rest), t, sigmoid_top + sigmoid_rest,
                       0);
}

LOOP double silu_second(float x)
{
    const double t = magnitude_up_to(400, x);
    return second_from(exp_minus(t, 0), t, 1, 0);
}

LOOP void any_second(enum form f, size_t n, const float *restrict x, double *restrict second)
{
#define SECOND_LOOP(form)          \
    for (size_t i = 0; i < n; i++) \
        second[i] = form##_second(x[i]);
    switch (f) {
    case FORM_GELU:
        SECOND_LOOP(gelu)
        break;
    case FORM_GELU_TANH:
        SECOND_LOOP(gelu_tanh)
        break;
    case FORM_GELU_SIGMOID:
        SECOND_LOOP(gelu_sigmoid)
        break;
    default:
        SECOND_LOOP(silu)
    }
}

/* ---- blocks, and judging ------------------------------------------------------------- */

#define FORM_LOOP(form)                                                              \
    LOOP void form##_loop(size_t n, const float *restrict x, double *restrict value, \
                          double *restrict slope)                                    \
    {                                                                                \
        for (size_t i = 0; i < n; i++) {                                             \
            double p, q;                                                             \
            form##_at(x[i], &p, &q);                                                 \
            value[i] = x[i] * (x[i] < 0 ? p : 1 - p);                                \
            slope[i] = x[i] < 0 ? q : 1 - q;                                         \
        }                                                                            \
    }
FORM_LOOP(gelu)
FORM_LOOP(gelu_tanh)
FORM_LOOP(gelu_sigmoid)
FORM_LOOP(silu)

LOOP void any_form(enum form f, size_t n, const float *restrict x, double *restrict value,
                   double *restrict slope)
{
    switch (f) {
    case FORM_GELU:
        gelu_loop(n, x, value, slope);
        break;
    case FORM_GELU_TANH:
        gelu_tanh_loop(n, x, value, slope);
        break;
    case FORM_GELU_SIGMOID:
        gelu_sigmoid_loop(n, x, value, slope);
        break;
    default:
        silu_loop(n, x, value, slope);
    }
}

LOOP size_t judge_loop(size_t n, const float *restrict got, const double *restrict want, double ulp)
{
    size_t above = 0;
    for (size_t i = 0; i < n; i++)
        above += reference_ulp(got[i], want[i]) > ulp;
    return above;
}

/* How many elements lie within the radius of centre; NaN does not. */
LOOP size_t near_loop(size_t n, const float *restrict x, double centre, double radius)
{
    size_t near = 0;
    for (size_t i = 0; i < n; i++)
        near += fabs((double)x[i] - centre) < radius;
    return near;
}

typedef struct variant {
    const char *name;
    void (*block)(enum form, size_t, const float *, double *, double *);
    void (*second)(enum form, size_t, const float *, double *);
    size_t (*judge)(size_t, const float *, const double *, double);
    size_t (*near)(size_t, const float *, double, double);
} variant;

#define VARIANT(name, target)                                                                    \
    target static void block_##name(enum form f, size_t n, const float *x, double *v, double *s) \
    {                                                                                            \
        any_form(f, n, x, v, s);                                                                 \
    }                                                                                            \
    target static void second_##name(enum form f, size_t n, const float *x, double *s)           \
    {                                                                                            \
        any_second(f, n, x, s);                                                                  \
    }                                                                                            \
    target static size_t judge_##name(size_t n, const float *got, const double *want, double u)  \
    {                                                                                            \
        return judge_loop(n, got, want, u);                                                      \
    }                                                                                            \
    target static size_t near_##name(size_t n, const float *x, double centre, double radius)     \
    {                                                                                            \
        return near_loop(n, x, centre, radius);                                                  \
    }

VARIANT(baseline, )
#ifdef __x86_64__
VARIANT(avx2, __attribute__((target("avx2,fma"))))
VARIANT(avx512, __attribute__((target("avx2,fma,avx512f,avx512dq,avx512vl,avx512bw"))))
#endif

static const variant variants[] = {
    {"baseline", block_baseline, second_baseline, judge_baseline, near_baseline},
#ifdef __x86_64__
    {"avx2", block_avx2, second_avx2, judge_avx2, near_avx2},
    {"avx512", block_avx512, second_avx512, judge_avx512, near_avx512},
#endif
};

int reference_variants(void)
{
    int n = 1;
#ifdef __x86_64__
    __builtin_cpu_init();
    if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma")) {
        n = 2;
        if (__builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512dq") &&
            __builtin_cpu_supports("avx512vl") && __builtin_cpu_supports("avx512bw"))
            n = 3;
    }
#endif
    return n;
}

const char *reference_variant_name(int i)
{
    return variants[i].name;
}

static const variant *chosen;

void reference_use(int i)
{
    chosen = &variants[i];
}

static const variant *chosen_variant(void)
{
    if (!chosen)
        reference_use(reference_variants() - 1);
    return chosen;
}

static const struct {
    double hi, lo;
    const double *c;
} zeros[] = {
    {gelu_zero_hi, gelu_zero_lo, gelu_series},
    {gelu_tanh_zero_hi, gelu_tanh_zero_lo, gelu_tanh_series},
    {gelu_sigmoid_zero_hi, gelu_sigmoid_zero_lo, gelu_sigmoid_series},
    {silu_zero_hi, silu_zero_lo, silu_series},
};

void reference_block(enum form f, size_t n, const float *x, double *value, double *slope)
{
    const variant *v = chosen_variant();
    v->block(f, n, x, value, slope);
    if (v->near(n, x, -zeros[f].hi, series_radius))
        for (size_t i = 0; i < n; i++) {
            const double d = (-(double)x[i] - zeros[f].hi) - zeros[f].lo;
            double sum = 0;
            if (!(fabs(d) < series_radius))
                continue;
            for (int k = (int)(sizeof gelu_series / sizeof *gelu_series) - 1; k >= 0; k--)
                sum = sum * d + zeros[f].c[k];
            slope[i] = sum * d;
        }
    if (v->near(n, x, 0, INFINITY) == n)
        return;
    for (size_t i = 0; i < n; i++)
        if (!isfinite(x[i])) {
            value[i] = isnan(x[i]) ? NAN : x[i] > 0 ? INFINITY : -0.0;
            slope[i] = isnan(x[i]) ? NAN : x[i] > 0 ? 1 : -0.0;
        }
}

static const struct {
    double hi, lo;
    const double *c;
} second_zeros[] = {
    {gelu_grad2_zero_hi, gelu_grad2_zero_lo, gelu_grad2_series},
    {gelu_tanh_grad2_zero_hi, gelu_tanh_grad2_zero_lo, gelu_tanh_grad2_series},
    {gelu_sigmoid_grad2_zero_hi, gelu_sigmoid_grad2_zero_lo, gelu_sigmoid_grad2_series},
    {silu_grad2_zero_hi, silu_grad2_zero_lo, silu_grad2_series},
};

void reference_second(enum form f, size_t n, const float *x, double *second)
{
    const variant *v = chosen_variant();
    const double zero = second_zeros[f].hi;
    v->second(f, n, x, second);
    if (v->near(n, x, zero, series_radius) || v->near(n, x, -zero, series_radius))
        for (size_t i = 0; i < n; i++) {
            const double d = (fabs((double)x[i]) - zero) - second_zeros[f].lo;
            double sum = 0;
            if (!(fabs(d) < series_radius))
                continue;
            for (int k = (int)(sizeof gelu_grad2_series / sizeof *gelu_grad2_series) - 1; k >= 0;
                 k--)
                sum = sum * d + second_zeros[f].c[k];
            second[i] = sum * d;
        }
    if (v->near(n, x, 0, INFINITY) == n)
        return;
    for (size_t i = 0; i < n; i++)
        if (!isfinite(x[i]))
            second[i] = isnan(x[i]) ? NAN : -0.0;
}

size_t reference_judge(size_t n, const float *got, const double *want, double ulp)
{
    return chosen_variant()->judge(n, got, want, ulp);
}
