/* SPDX-License-Identifier: BSD-3-Clause */
/* search_f64.c: searches the inputs at which a float64 function of the library errs most.
 *
 *   search_f64 --function NAME [--seconds S] [--seed N] [--target NAME] [--start CSV] [--rows CSV]
 *
 * Started by search_f64.py, which builds it, writes slope_zeros.h for it, runs it for every
 * function and checks what it finds in multiple precision. gcc on x86-64 only (libquadmath).
 *
 * The truth. exact() evaluates in binary128, with slopes and second derivatives as Taylor series
 * near their zeros: relative error below 2^-80 wherever the result counts. That takes a microsecond,
 * so most inputs are screened: the truth in a narrow zone is a polynomial through exact() at Chebyshev
 * nodes, evaluated in double-double arithmetic to 2^-65. The worst input of each batch is then
 * judged by exact(); the two must agree.
 *
 * Where it looks. First, one by one: the surroundings of all binade edges and of the slope's
 * zero, and the rows of --start. Then zones of random centre and width, drawn from
 *   - the whole range to the last result that does not vanish, and the middle [-6, 6];
 *   - all magnitudes of x;
 *   - ever closer to the zero of the slope or second derivative;
 *   - x = -z sqrt(2) about multiples z of 1/32, where piecewise erfc kernels change;
 *   - x whose result lies just below a power of two (the ULP is smallest there), down to the
 *     subnormal results;
 *   - half of the time, the worst inputs so far, wide or down to a few neighbouring numbers.
 * The worst input is kept for each of some 2,500 cells of x, so that the climb goes on in many
 * places at once. The dy of a backward function are of any size: moderate ones, those that make
 * the result subnormal or nearly overflow, and those that were bad before. */
#include <math.h>
#include <quadmath.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "fastgelu.h"
#include "slope_zeros.h" /* zeros[], second_zeros[]: for each form the zero and a Taylor series */

typedef __float128 quad;

/* ---- the truth ------------------------------------------------------------ */

enum kind { VALUE, SLOPE, BACKWARD, SECOND };

static const char *const form_names[] = {"gelu", "gelu_tanh", "gelu_sigmoid", "silu"};
enum form { GELU, GELU_TANH, GELU_SIGMOID, SILU, FORMS };

static enum form form;
static enum kind kind;
static quad sqrt_half, inverse_sqrt_2pi, sigmoid_factor, tanh_linear, tanh_cubic;
static quad zero_lo, series[ZERO_TERMS];
static double zero_hi;

static quad parse(const char *text)
{
    return strtoflt128(text, NULL);
}

static void prepare_truth(void)
{
    sqrt_half = sqrtq(parse("0.5"));
    inverse_sqrt_2pi = 1 / sqrtq(2 * acosq(-1));
    sigmoid_factor = parse("1.702");
    tanh_linear = 4 * inverse_sqrt_2pi;
    tanh_cubic = tanh_linear * parse("0.044715");
    const struct zero *zero = kind == SECOND ? &second_zeros[form] : &zeros[form];
    zero_hi = zero->hi;
    zero_lo = parse(zero->lo);
    for (int i = 0; i < ZERO_TERMS; i++)
        series[i] = parse(zero->series[i]);
}

/* w(t) and w'(t), where the gate is 1/(1 + exp(-w(x))). */
static quad exponent(quad t, quad *derivative)
{
    if (form == GELU_TANH) {
        *derivative = tanh_linear + 3 * tanh_cubic * t * t;
        return t * (tanh_linear + tanh_cubic * t * t);
    }
    *derivative = form == SILU ? 1 : sigmoid_factor;
    return t * *derivative;
}

/* The gate at -t, t >= 0. Its argument is rounded to 113 bits; it exceeds 2^11 nowhere that
 * counts, which leaves 100. Past 2000 all are 0 for any dy. */
static quad gate(quad t)
{
    quad derivative;
    if (t > 2000)
        return 0;
    if (form == GELU)
        return erfcq(t * sqrt_half) / 2;
    const quad e = expq(-exponent(t, &derivative));
    return e / (1 + e);
}

/* By the series, if that serves at t. */
static bool near_zero(quad t, quad *result)
{
    const quad d = (t - zero_hi) - zero_lo;
    quad sum = 0;
    for (int i = ZERO_TERMS - 1; i >= 0; i--)
        sum = sum * d + series[i];
    *result = fabsq(d) < 0.125 ? sum * d : 0;
    return fabsq(d) < 0.125;
}

/* The slope at -t, t >= 0. Within 1/8 of the zero by the series; elsewhere the difference in it
 * cancels at most 4 bits. t is exact, and so is t - zero_hi by then. */
static quad slope(quad t)
{
    quad derivative, s = 0;
    if (near_zero(t, &s))
        return s;
    if (t <= 2000 && form == GELU) {
        s = gate(t) - t * expq(-t * t / 2) * inverse_sqrt_2pi;
    } else if (t <= 2000) {
        const quad e = expq(-exponent(t, &derivative));
        s = e * (1 + e - t * derivative) / ((1 + e) * (1 + e));
    }
    return s == 0 ? copysignq(0, -1) : s; /* the slope is negative here */
}

/* The second derivative at t or -t likewise. */
static quad second(quad t)
{
    quad w_slope, s = 0;
    if (near_zero(t, &s))
        return s;
    if (t <= 2000 && form == GELU) {
        s = expq(-t * t / 2) * inverse_sqrt_2pi * (2 - t * t);
    } else if (t <= 2000) {
        const quad e = expq(-exponent(t, &w_slope));
        const quad curved = form == GELU_TANH ? 2 * (w_slope - tanh_linear) : 0; /* t w'' */
        const quad factor = 2 * w_slope + curved - t * w_slope * w_slope * ((1 - e) / (1 + e));
        s = e * factor / ((1 + e) * (1 + e));
    }
    return s == 0 ? copysignq(0, -1) : s; /* negative there */
}

/* The function at x; of a backward function, its slope. */
static quad exact(quad x)
{
    const quad t = fabsq(x);
    if (kind == VALUE)
        return x * (signbitq(x) ? gate(t) : 1 - gate(t));
    if (kind == SECOND)
        return second(t);
    return signbitq(x) ? slope(t) : 1 - slope(t);
}

/* The total error of got in ULP: the spacing of double in the binade of want, at least that of
 * the subnormals. An overflow counts as 2^1024. */
static double ulp_error(double got, quad want)
{
    int e;
    const quad overflow = scalbnq(1, 1024);
    if (isnan(got) || (got == 0 && !signbit(got) != !signbitq(want)))
        return INFINITY;
    if (isinf(got) && fabsq(want) >= overflow)
        return (got > 0) == (want > 0) ? 0 : INFINITY;
    const quad g = isinf(got) ? copysignq(overflow, got) : (quad)got;
    frexpq(want, &e);
    if (want == 0 || e < -1021)
        e = -1021;
    return (double)scalbnq(fabsq(g - want), 53 - e);
}

/* ---- random numbers ------------------------------------------------------- */

static uint64_t random_state;

static uint64_t random_bits(void) /* splitmix64 */
{
    uint64_t z = random_state += 0x9e3779b97f4a7c15u;
    z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9u;
    z = (z ^ z >> 27) * 0x94d049bb133111ebu;
    return z ^ z >> 31;
}

static unsigned random_below(unsigned n)
{
    return (unsigned)((random_bits() >> 32) * n >> 32);
}

static double uniform(double a, double b)
{
    return a + (b - a) * ((double)(random_bits() >> 11) * 0x1p-53);
}

static double from_bits(uint64_t bits)
{
    double d;
    memcpy(&d, &bits, sizeof d);
    return d;
}

static uint64_t to_bits(double d)
{
    uint64_t bits;
    memcpy(&bits, &d, sizeof bits);
    return bits;
}

/* ---- the library's function ----------------------------------------------- */

static const fastgelu_function *function;

static void call(size_t n, const double *dy, const double *x, double *y)
{
    if (function->inputs == 1)
        ((void (*)(size_t, const double *, double *))function->kernel)(n, x, y);
    else
        ((void (*)(size_t, const double *, const double *, double *))function->kernel)(n, dy, x, y);
}

/* ---- the worst inputs so far, one for each cell of x ----------------------- */

typedef struct input {
    double ulp, x, dy, got;
} input;

enum { LINEAR = 2048, BY_EXPONENT = 2 * 136, BY_DISTANCE = 2 * 64 };
enum { CELLS = LINEAR + BY_EXPONENT + BY_DISTANCE, KEPT = 8, KEPT_PER_REGION = 2 };

static input cells[CELLS];
static int filled[CELLS], fills;
static double limit;         /* below -limit the result vanishes */
static double most = 45;     /* above it the result is x, or 1 */
static uint64_t evaluations; /* screened or judged */

static input *cell_of(double x)
{
    const double t = fabs(x), d = fabs(t - zero_hi);
    if (d < 0x1p-6) {
        const int i = d > 0 ? -6 - ilogb(d) : 63;
        return &cells[LINEAR + BY_EXPONENT + 2 * (i < 63 ? i : 63) + (x < 0)];
    }
    if (x > -limit && x < most && t >= 0x1p-6)
        return &cells[(int)((x + limit) / (most + limit) * LINEAR)];
    const int e = x == 0 ? -1075 : ilogb(x);
    return &cells[LINEAR + 2 * ((e + 1075) / 16) + (x < 0)];
}

/* Judges one result by exact(), and keeps it if it is the worst of its cell. */
static double judge(double dy, double x, double got)
{
    const quad f = exact(x);
    const double ulp = ulp_error(got, kind == BACKWARD ? dy * f : f);
    input *cell = cell_of(x);
    if (cell->ulp < 0)
        filled[fills++] = (int)(cell - cells);
    if (ulp > cell->ulp)
        *cell = (input){ulp, x, dy, got};
    evaluations++;
    return ulp;
}

static void judge_input(double dy, double x)
{
    double y;
    call(1, &dy, &x, &y);
    judge(dy, x, y);
}

/* One of the worst inputs: the worst of a few cells, so that all come up. */
static const input *parent(void)
{
    const input *worst = &cells[filled[random_below((unsigned)fills)]];
    for (unsigned i = 1u << random_below(9); i > 0; i--) {
        const input *other = &cells[filled[random_below((unsigned)fills)]];
        if (other->ulp > worst->ulp)
            worst = other;
    }
    return worst;
}

/* ---- dy -------------------------------------------------------------------- */

/* dy for a slope of about 2^slope_exponent; usual is one that was bad before, or 0. */
static double pick_dy(int slope_exponent, double usual)
{
    const uint64_t r = random_bits();
    const uint64_t fraction = r >> 12, sign = r << 63;
    int low, high; /* of the exponent of dy */
    switch (random_below(8)) {
    case 0:
        if (usual != 0)
            return from_bits(to_bits(usual) ^ sign);
        low = -1, high = 1;
        break;
    case 1: /* the same, but for the low bits of the fraction */
        if (usual != 0)
            return from_bits(to_bits(usual) ^ sign ^
                             (fraction & (((uint64_t)1 << random_below(52)) - 1)));
        low = -1, high = 1;
        break;
    case 2: /* the result is subnormal, or nearly */
        low = -1080 - slope_exponent, high = -1019 - slope_exponent;
        break;
    case 3: /* the result is large */
        low = 1000 - slope_exponent, high = 1024 - slope_exponent;
        break;
    case 4: /* any normal result */
        low = -1022 - slope_exponent, high = 1023 - slope_exponent;
        break;
    default:
        low = -1, high = 1;
    }
    low = low > -1074 ? low : -1074;
    high = high < 1023 ? high : 1023;
    if (low > high) {
        low = low > 1023 ? 1020 : -1074;
        high = low + 3;
    }
    const int e = low + (int)random_below((unsigned)(high - low) + 1);
    if (e >= -1022)
        return from_bits(sign | (uint64_t)(e + 1023) << 52 | fraction);
    return from_bits(sign | (fraction | (uint64_t)1 << 52) >> (-1022 - e));
}

/* ---- zones ------------------------------------------------------------------ */

/* The truth about center as 2^exponent * (c[0] + c[1] u + ...), u = (x - center) / radius;
 * the first EXACT coefficients count to twice the working precision. */
enum { NODES = 14, EXACT = 4, BATCH = 4096 };

typedef struct zone {
    double center, radius; /* a power of two */
    double hi[NODES], lo[NODES];
    int exponent;
} zone;

static quad nodes[NODES], to_coefficients[NODES][NODES];

static void prepare_zones(void)
{
    for (int j = 0; j < NODES; j++)
        nodes[j] = cos((2 * j + 1) * acos(-1) / (2 * NODES));
    for (int j = 0; j < NODES; j++) { /* the Lagrange polynomial that is 1 at node j */
        quad c[NODES] = {1};
        for (int i = 0, degree = 0; i < NODES; i++) {
            if (i == j)
                continue;
            const quad scale = 1 / (nodes[j] - nodes[i]);
            degree++;
            for (int k = degree; k >= 0; k--)
                c[k] = ((k > 0 ? c[k - 1] : 0) - (k < degree ? c[k] * nodes[i] : 0)) * scale;
        }
        for (int k = 0; k < NODES; k++)
            to_coefficients[k][j] = c[k];
    }
}

/* False where a polynomial will not do, or the result is 0 or out of range. */
static bool prepare_zone(zone *z)
{
    quad f[NODES], c[NODES];
    for (int j = 0; j < NODES; j++)
        f[j] = exact(z->center + z->radius * nodes[j]);
    for (int k = 0; k < NODES; k++) {
        c[k] = 0;
        for (int j = 0; j < NODES; j++)
            c[k] += to_coefficients[k][j] * f[j];
    }
    if (c[0] == 0)
        return false;
    z->exponent = ilogbq(c[0]);
    if (kind != BACKWARD && z->exponent < -1075)
        return false;
    double rest = 0;
    for (int k = 0; k < NODES; k++) {
        c[k] = scalbnq(c[k], -z->exponent);
        z->hi[k] = (double)c[k];
        z->lo[k] = (double)(c[k] - z->hi[k]);
        rest += k ? fabs(z->hi[k]) : 0;
    }
    return rest < 0.5 && fabs(z->hi[NODES - 1]) + fabs(z->hi[NODES - 2]) < 0x1p-66;
}

/* 2^e for -1022 <= e <= 1023 */
static inline double pow2(int e)
{
    return from_bits((uint64_t)(e + 1023) << 52);
}

static inline int exponent_of(double d) /* of a normal number */
{
    return (int)(to_bits(d) >> 52 & 2047) - 1023;
}

/* The index of the worst result in a batch of a zone, and its error. */
static int screen(const zone *z, int n, const double *dy, const double *x, const double *got,
                  double *error)
{
    int worst = -1;
    const int er = -exponent_of(z->radius);
    const double scale1 = pow2(er / 2), scale2 = pow2(er - er / 2);
    *error = -1;
    for (int i = 0; i < n; i++) {
        const double u = (x[i] - z->center) * scale1 * scale2; /* exact */
        double hi = z->hi[NODES - 1], lo = 0;
        for (int k = NODES - 2; k >= EXACT; k--)
            hi = fma(hi, u, z->hi[k]);
        for (int k = EXACT - 1; k >= 0; k--) {
            const double p = hi * u, p_lo = fma(hi, u, -p) + lo * u;
            hi = z->hi[k] + p;
            const double part = hi - z->hi[k];
            lo = ((z->hi[k] - (hi - part)) + (p - part)) + (p_lo + z->lo[k]);
        }
        int e = z->exponent; /* want = 2^e (hi + lo) */
        if (kind == BACKWARD) {
            int e_dy;
            double m;
            if (isnormal(dy[i])) {
                e_dy = exponent_of(dy[i]);
                m = from_bits((to_bits(dy[i]) & ~((uint64_t)2047 << 52)) | (uint64_t)1023 << 52);
            } else {
                m = frexp(dy[i], &e_dy);
            }
            const double p = m * hi;
            lo = fma(m, hi, -p) + m * lo;
            hi = p;
            e += e_dy;
            if (e > 1020 || e < -1076)
                continue;
        }
        /* all in units of 2^e now */
        const bool below = (to_bits(hi) << 12 == 0) & ((hi < 0) ^ (lo < 0)); /* a power of two */
        const int k = -e, unit = exponent_of(hi) - 52 - below;
        const double g = got[i] * pow2(k / 2) * pow2(k - k / 2);
        const double ulp = fabs((g - hi) - lo) * pow2(-(unit > k - 1074 ? unit : k - 1074));
        if (!(ulp <= *error)) {
            worst = i;
            *error = ulp;
        }
    }
    return worst;
}

/* |f'/f| at -t, roughly: how fast the tail falls. */
static double steepness(double t)
{
    switch (form) {
    case GELU:
        return 1 + t;
    case GELU_TANH:
        return 2.6 + 0.2141 * t * t;
    default:
        return form == SILU ? 2 : 2.7;
    }
}

/* Random numbers within about radius of center. */
static void search_zone(double center, double radius, double usual_dy)
{
    static double x[BATCH], dy[BATCH], y[BATCH];
    zone z = {.center = center};
    const double t = fabs(center);
    if (!isfinite(center))
        return;
    if (t < 0x1p-970 || t > 0x1p1000) { /* radius is normal */
        judge_input(pick_dy(-1, usual_dy), center);
        return;
    }
    /* narrow enough for the polynomial, and for x - center to be exact */
    radius = fmin(radius, fmin(t / 4, 0.0625 / steepness(t)));
    z.radius = pow2(ilogb(fmax(radius, t * 0x1p-48)));
    const bool simple = prepare_zone(&z);
    int slope_exponent = 0;
    if (kind == BACKWARD) {
        const quad f = exact(center);
        slope_exponent = f == 0 ? -2200 : ilogbq(f);
    }
    const int n = simple ? z.radius < t * 0x1p-44 ? 256 : BATCH : 32;
    for (int i = 0; i < n; i++) {
        x[i] = center + z.radius * uniform(-1, 1);
        dy[i] = kind == BACKWARD ? pick_dy(slope_exponent, usual_dy) : 1;
    }
    call((size_t)n, dy, x, y);
    if (!simple) {
        for (int i = 0; i < n; i++)
            judge(dy[i], x[i], y[i]);
        return;
    }
    double screened;
    const int worst = screen(&z, n, dy, x, y, &screened);
    if (worst < 0)
        return;
    const double ulp = judge(dy[worst], x[worst], y[worst]);
    evaluations += (uint64_t)n - 1;
    if (!(fabs(ulp - screened) <= 1e-3 + 1e-9 * ulp) && !(ulp == INFINITY && screened > 0)) {
        fprintf(stderr, "search_f64: %s: two truths differ at x = %a, dy = %a: %.6f, %.6f ULP\n",
                function->name, x[worst], dy[worst], ulp, screened);
        exit(3);
    }
}

/* ---- where to look ----------------------------------------------------------- */

static void around(double x, int reach, int step)
{
    const uint64_t bits = to_bits(x);
    for (int i = -reach; i <= reach; i += step) {
        const double v = from_bits(bits + (uint64_t)(int64_t)i);
        if (isfinite(v)) {
            const quad f = kind == BACKWARD ? exact(v) : 1;
            judge_input(pick_dy(f == 0 ? -2200 : ilogbq(f), 0), v);
        }
    }
}

static void search_edges(void)
{
    for (int e = -1074; e < 1024; e++)
        for (int sign = -1; sign <= 1; sign += 2)
            around(ldexp(sign, e), 16, 1);
    for (int sign = -1; sign <= 1; sign += 2) {
        around(sign * zero_hi, 2048, 1);
        around(sign * zero_hi, 1 << 20, 1021);
        around(sign * 0x1.fffffffffffffp1023, 16, 1);
    }
    around(-limit, 1024, 1);
}

/* x < -2 whose result is about 2^n * target, for the n of the result at the given x. */
static double with_fraction(double x, double target)
{
    const int n = ilogbq(exact(x));
    for (int i = 0; i < 6; i++) {
        const quad f = fabsq(exact(x));
        x += log((double)(target / scalbnq(f, -n))) / steepness(-x);
        if (!(x < -1.5 && x > -limit))
            break;
    }
    return x;
}

static void search_somewhere(void)
{
    const double wide = exp2(-uniform(4, 50)); /* from all of a zone to a few numbers */
    double x, radius, dy = 0;
    switch (random_below(16)) {
    case 0:
    case 1:
        x = uniform(-limit, 0);
        radius = random_below(2) ? 1 : wide;
        break;
    case 2:
    case 3:
        x = uniform(-6, 6);
        radius = random_below(2) ? 1 : wide;
        break;
    case 4:
        x = ldexp(uniform(-2, 2), -(int)random_below(random_below(4) ? 64 : 1000));
        radius = random_below(2) ? 1 : fabs(x) * wide;
        break;
    case 5:
        x = zero_hi + ldexp(uniform(-2, 2), -3 - (int)random_below(49));
        radius = fabs(x - zero_hi) / 8;
        x = random_below(4) ? -x : x;
        break;
    case 6:
        x = -sqrt(2) * (1 + random_below(32 * 38)) / 32;
        radius = -2 * x * wide;
        x += x * (random_below(2) ? wide : -wide);
        break;
    case 7:
        x = uniform(random_below(4) ? -limit : -limit / 8, -2);
        if (exact(x) == 0)
            return;
        x = with_fraction(x, uniform(1.9, 2));
        radius = 0.03 / steepness(-x);
        break;
    default: {
        const input *p = parent();
        x = p->x;
        dy = p->dy;
        radius = fabs(x) * wide;
    }
    }
    search_zone(x, radius, dy);
}

/* Worst cases that are known already. */
static void search_rows(const char *path)
{
    char line[512], name[64], dtype[8], x[32], dy[32];
    FILE *file = fopen(path, "r");
    if (!file) {
        perror(path);
        exit(2);
    }
    while (fgets(line, sizeof line, file)) {
        dy[0] = 0;
        if (sscanf(line, "%63[^,],%7[^,],%31[^,],%31[^,],", name, dtype, x, dy) < 3)
            continue;
        if (strcmp(name, function->name) == 0 && strcmp(dtype, "f64") == 0)
            judge_input(from_bits(strtoull(dy, NULL, 16)), from_bits(strtoull(x, NULL, 16)));
    }
    fclose(file);
}

/* ---- what was found ----------------------------------------------------------- */

enum { REGIONS = 7 };

static bool in_region(int region, const input *w)
{
    const double t = fabs(w->x);
    switch (region) {
    case 0: /* next to the slope's zero */
        return w->x < 0 && fabs(t - zero_hi) < 0x1p-30;
    case 1: /* near it */
        return w->x < 0 && fabs(t - zero_hi) < 0x1p-6;
    case 2: /* the result is subnormal */
        return fabs(w->got) < 0x1p-1022;
    case 3: /* the slope alone would be */
        return kind == BACKWARD && fabsq(exact(w->x)) < 0x1p-1022;
    case 4:
        return t < 0x1p-6;
    case 5:
        return w->x > 0x1p-6;
    default: /* the tail */
        return w->x < -6 && fabs(w->got) >= 0x1p-1022;
    }
}

static int descending(const void *a, const void *b)
{
    const double p = ((const input *)a)->ulp, q = ((const input *)b)->ulp;
    return (p < q) - (p > q);
}

static void write_rows(const char *path)
{
    int in[REGIONS] = {0}, all = 0;
    FILE *file = fopen(path, "a");
    if (!file) {
        perror(path);
        exit(2);
    }
    for (int i = 0; i < CELLS && cells[i].ulp >= 0; i++) {
        bool keep = all < KEPT;
        for (int r = 0; r < REGIONS; r++)
            if (in_region(r, &cells[i]))
                keep |= in[r]++ < KEPT_PER_REGION;
        if (!keep)
            continue;
        all++;
        fprintf(file, "%s,f64,0x%016llx,", function->name, (unsigned long long)to_bits(cells[i].x));
        if (kind == BACKWARD)
            fprintf(file, "0x%016llx", (unsigned long long)to_bits(cells[i].dy));
        fprintf(file, ",0x%016llx,%.6f\n", (unsigned long long)to_bits(cells[i].got), cells[i].ulp);
    }
    if (fclose(file)) {
        perror(path);
        exit(2);
    }
}

static double now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static bool choose(const char *name)
{
    for (size_t i = 0; (function = fastgelu_function_at(i)); i++)
        if (strcmp(function->name, name) == 0 && strcmp(function->dtype, "f64") == 0)
            break;
    if (!function)
        return false;
    for (int f = 0; f < FORMS; f++) {
        const size_t length = strlen(form_names[f]);
        const char *rest = name + length;
        if (strncmp(name, form_names[f], length))
            continue;
        form = (enum form)f;
        if (*rest == 0)
            kind = VALUE;
        else if (strcmp(rest, "_grad") == 0)
            kind = SLOPE;
        else if (strcmp(rest, "_backward") == 0)
            kind = BACKWARD;
        else if (strcmp(rest, "_grad2") == 0)
            kind = SECOND;
        else
            continue;
        return true;
    }
    return false;
}

int main(int argc, char **argv)
{
    const char *name = NULL, *start = NULL, *rows = NULL;
    double seconds = 60;
    random_state = 1;
    for (int i = 1; i < argc; i += 2) {
        const char *value = i + 1 < argc ? argv[i + 1] : "";
        if (strcmp(argv[i], "--function") == 0)
            name = value;
        else if (strcmp(argv[i], "--seconds") == 0)
            seconds = strtod(value, NULL);
        else if (strcmp(argv[i], "--seed") == 0)
            random_state = strtoull(value, NULL, 0);
        else if (strcmp(argv[i], "--start") == 0)
            start = value;
        else if (strcmp(argv[i], "--rows") == 0)
            rows = value;
        else if (strcmp(argv[i], "--target") || fastgelu_set_target(value) != FASTGELU_OK)
            name = NULL, i = argc;
    }
    if (!name || !choose(name)) {
        fprintf(stderr, "usage: search_f64 --function NAME [--seconds S] [--seed N]"
                        " [--target NAME] [--start CSV] [--rows CSV]\n");
        return 2;
    }
    prepare_truth();
    prepare_zones();
    for (int i = 0; i < CELLS; i++)
        cells[i].ulp = -1;
    const quad least = scalbnq(1, kind == BACKWARD ? -2100 : -1076);
    double low = 2, high = 2000;
    while (high - low > 1e-3) {
        limit = (low + high) / 2;
        if (fabsq(exact(-limit)) < least)
            high = limit;
        else
            low = limit;
    }
    const double end = now() + seconds;
    search_edges();
    if (start)
        search_rows(start);
    do
        for (int i = 0; i < 64; i++)
            search_somewhere();
    while (now() < end);
    qsort(cells, CELLS, sizeof cells[0], descending);
    const input *w = &cells[0];
    const quad want = exact(w->x) * (quad)(kind == BACKWARD ? w->dy : 1);
    printf("%-22s %13llu %8.4f  %a %a %a", name, (unsigned long long)evaluations, w->ulp, w->x,
           w->got, (double)want);
    if (kind == BACKWARD)
        printf(" (%a)", w->dy);
    printf("\n");
    if (rows)
        write_rows(rows);
    return 0;
}
