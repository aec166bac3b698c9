/* SPDX-License-Identifier: BSD-3-Clause */
/* harness.c: counting, number formats, targets and the fixed sweep; see harness.h. */
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "harness.h"

/* ---- counting ----------------------------------------------------------- */

enum { MOST_MESSAGES = 3, MOST_IN_GROUP = 12 }; /* for a case, for a group */

static int passed, failed; /* cases of all groups before */
static int group_cases, group_failed, group_messages, in_case, case_failures;
static unsigned long long group_checks;
static char group_name[100], case_name[100];

static void end_case(void)
{
    if (in_case) {
        if (case_failures)
            printf("  %s: %d failures\n", case_name, case_failures);
        group_cases++;
        group_failed += case_failures > 0;
    }
    in_case = 0;
}

void begin_group(const char *message, ...)
{
    va_list args;
    va_start(args, message);
    vsnprintf(group_name, sizeof group_name, message, args);
    va_end(args);
    group_cases = group_failed = group_messages = 0;
    group_checks = 0;
}

void begin_case(const char *message, ...)
{
    va_list args;
    end_case();
    va_start(args, message);
    vsnprintf(case_name, sizeof case_name, message, args);
    va_end(args);
    in_case = 1;
    case_failures = 0;
}

int expect(int ok, const char *message, ...)
{
    group_checks++;
    if (!ok && ++case_failures <= MOST_MESSAGES && ++group_messages <= MOST_IN_GROUP) {
        va_list args;
        printf("  %s: %s: ", group_name, case_name);
        va_start(args, message);
        vprintf(message, args);
        va_end(args);
        printf("\n");
    }
    return ok;
}

void end_group(void)
{
    end_case();
    if (group_checks == 0)
        group_failed++; /* nothing was tested */
    printf("%-6s %s: %d cases, %llu checks\n", group_failed ? "FAILED" : "ok", group_name,
           group_cases, group_checks);
    fflush(stdout);
    passed += group_cases - group_failed;
    failed += group_failed;
}

int end_tests(void)
{
    if (passed == 0 && failed == 0)
        failed = 1;
    printf("%d passed, %d failed\n", passed, failed);
    return failed > 0;
}

void *allocate(size_t bytes)
{
    void *p = malloc(bytes ? bytes : 1);
    if (!p) {
        fprintf(stderr, "out of memory\n");
        exit(2);
    }
    return p;
}

/* ---- number formats, as bits -------------------------------------------- */

/* A call through the C type that the dtype has in fastgelu.h. */
#define CALL_AS(type)                                                                            \
    static void call_##type(const fastgelu_function *f, size_t n, const void *dy, const void *x, \
                            void *y)                                                             \
    {                                                                                            \
        if (f->inputs == 1)                                                                      \
            ((void (*)(size_t, const type *, type *))f->kernel)(n, x, y);                        \
        else                                                                                     \
            ((void (*)(size_t, const type *, const type *, type *))f->kernel)(n, dy, x, y);      \
    }
CALL_AS(float)
CALL_AS(double)
CALL_AS(uint16_t)

/* A new dtype is one line here. */
static const format formats[] = {
    {"f32", 4, 23, call_float},
    {"f64", 8, 52, call_double},
    {"f16", 2, 10, call_uint16_t},
    {"bf16", 2, 7, call_uint16_t},
};

const format *format_of(const fastgelu_function *f)
{
    for (size_t i = 0; i < sizeof formats / sizeof formats[0]; i++)
        if (strcmp(formats[i].name, f->dtype) == 0)
            return &formats[i];
    return NULL;
}

bits sign_bit(const format *t)
{
    return (bits)1 << (8 * t->size - 1);
}

bits infinity(const format *t)
{
    return sign_bit(t) - smallest_normal(t);
}

bits quiet_bit(const format *t)
{
    return (bits)1 << (t->fraction_bits - 1);
}

bits largest(const format *t)
{
    return infinity(t) - 1;
}

bits smallest_normal(const format *t)
{
    return (bits)1 << t->fraction_bits;
}

static int exponent_bias(const format *t)
{
    return (1 << (8 * (int)t->size - 2 - t->fraction_bits)) - 1;
}

bits encode(const format *t, double value)
{
    const bits sign = signbit(value) ? sign_bit(t) : 0;
    int e;
    if (isnan(value))
        return infinity(t) | quiet_bit(t);
    if (isinf(value))
        return infinity(t) | sign;
    if (value == 0)
        return sign;
    frexp(value, &e);
    const int lowest = 1 - exponent_bias(t);
    const int exponent = e - 1 < lowest ? lowest : e - 1;
    /* in units of the last place; carries into the exponent where it rounds up to it */
    const bits places = (bits)nearbyint(ldexp(fabs(value), t->fraction_bits - exponent));
    const bits magnitude = ((bits)(exponent - lowest) << t->fraction_bits) + places;
    return (magnitude > infinity(t) ? infinity(t) : magnitude) | sign;
}

double decode(const format *t, bits b)
{
    const bits magnitude = b & ~sign_bit(t), fraction = magnitude & (smallest_normal(t) - 1);
    const int field = (int)(magnitude >> t->fraction_bits);
    const int exponent = (field ? field : 1) - exponent_bias(t) - t->fraction_bits;
    double value = ldexp((double)(field ? fraction | smallest_normal(t) : fraction), exponent);
    if (magnitude >= infinity(t))
        value = magnitude > infinity(t) ? NAN : INFINITY;
    return is_negative(t, b) ? -value : value;
}

int is_nan(const format *t, bits b)
{
    return (b & ~sign_bit(t)) > infinity(t);
}

int is_signalling(const format *t, bits b)
{
    return is_nan(t, b) && !(b & quiet_bit(t));
}

int is_infinite(const format *t, bits b)
{
    return (b & ~sign_bit(t)) == infinity(t);
}

int is_zero(const format *t, bits b)
{
    return (b & ~sign_bit(t)) == 0;
}

int is_negative(const format *t, bits b)
{
    return (b & sign_bit(t)) != 0;
}

bits canonical(const format *t, bits b)
{
    return is_nan(t, b) ? infinity(t) | quiet_bit(t) : b;
}

bits get(const format *t, const void *array, size_t i)
{
    const unsigned char *p = (const unsigned char *)array + i * t->size;
    uint16_t b16;
    uint32_t b32;
    uint64_t b64;
    switch (t->size) {
    case 2:
        memcpy(&b16, p, sizeof b16);
        return b16;
    case 4:
        memcpy(&b32, p, sizeof b32);
        return b32;
    default:
        memcpy(&b64, p, sizeof b64);
        return b64;
    }
}

void set(const format *t, void *array, size_t i, bits b)
{
    unsigned char *p = (unsigned char *)array + i * t->size;
    const uint16_t b16 = (uint16_t)b;
    const uint32_t b32 = (uint32_t)b;
    switch (t->size) {
    case 2:
        memcpy(p, &b16, sizeof b16);
        break;
    case 4:
        memcpy(p, &b32, sizeof b32);
        break;
    default:
        memcpy(p, &b, sizeof b);
    }
}

/* ---- functions and targets ---------------------------------------------- */

static int ends_with(const char *name, const char *end)
{
    const size_t n = strlen(name), m = strlen(end);
    return n > m && strcmp(name + n - m, end) == 0;
}

kind kind_of(const fastgelu_function *f)
{
    return ends_with(f->name, "_backward") ? BACKWARD
           : ends_with(f->name, "_grad")   ? SLOPE
           : ends_with(f->name, "_grad2")  ? SECOND
                                           : VALUE;
}

static const char *left_out;

void leave_out(const char *target)
{
    left_out = target;
}

int is_fused(const fastgelu_function *f)
{
    return f->form != NULL;
}

/* What inputs and outputs there should be. */
static int has_operands(const fastgelu_function *f)
{
    const int backward = kind_of(f) == BACKWARD, both = ends_with(f->name, "_value_and_grad");
    const int bias = strncmp(f->name, "bias_", 5) == 0;
    if (!is_fused(f))
        return f->inputs == 1 + backward && f->outputs == 1;
    return f->inputs == (both ? 1 : 2 + backward) &&
           f->outputs == 1 + (both || (backward && !bias));
}

static void on_every(const char *what, int inputs, int fused,
                     void (*test)(const fastgelu_function *f, const format *t))
{
    const char *target;
    int supported;
    for (size_t i = 0; (target = fastgelu_target_name(i, &supported)); i++) {
        if (left_out && strcmp(target, left_out) == 0)
            continue;
        if (!supported) {
            printf("%-6s %s, %s: this machine lacks it\n", "--", what, target);
            continue;
        }
        const fastgelu_function *f;
        const int code = fastgelu_set_target(target);
        begin_group("%s, %s", what, target);
        for (size_t j = 0; (f = fastgelu_function_at(j)); j++) {
            const format *t = format_of(f);
            if ((inputs && f->inputs != inputs) || is_fused(f) != fused)
                continue;
            begin_case("%s %s", f->name, f->dtype);
            expect(code == FASTGELU_OK, "fastgelu_set_target returned %d", code);
            if (expect(t != NULL, "a dtype that the tests do not know") &&
                expect(has_operands(f), "%d inputs, %d outputs", f->inputs, f->outputs))
                test(f, t);
            expect(strcmp(fastgelu_target(), target) == 0, "ran on %s", fastgelu_target());
        }
        end_group();
    }
}

void on_every_target(const char *what, int inputs,
                     void (*test)(const fastgelu_function *f, const format *t))
{
    on_every(what, inputs, 0, test);
}

void on_every_fused(const char *what, void (*test)(const fastgelu_function *f, const format *t))
{
    on_every(what, 0, 1, test);
}

void call_with(const fastgelu_function *f, const format *t, size_t n, char *const args[])
{
    const ptrdiff_t size = (ptrdiff_t)t->size;
    const ptrdiff_t packed[MOST_OPERANDS] = {size, size, size, size, size};
    fastgelu_strided(f, n, args, packed); /* which hands such operands on */
}

void call(const fastgelu_function *f, const format *t, size_t n, const void *dy, const void *x,
          void *y)
{
    t->call(f, n, dy, x, y);
}

/* ---- the fixed sweep ---------------------------------------------------- */

/* splitmix64 */
uint64_t mix(uint64_t i)
{
    i = (i + 1) * 0x9e3779b97f4a7c15u;
    i = (i ^ (i >> 30)) * 0xbf58476d1ce4e5b9u;
    i = (i ^ (i >> 27)) * 0x94d049bb133111ebu;
    return i ^ (i >> 31);
}

/* Where the slopes vanish, for -x. */
static const double slope_zeros[] = {0.751791524693564457, 0.752461422071016258,
                                     0.751154255441288951, 1.278464542761073795};

/* Where the second derivatives vanish, on either side. */
static const double second_zeros[] = {1.414213562373095049, 1.418504008790828356,
                                      1.409728131912730710, 2.399357280515467667};

/* The parts of the sweep for the formats that are too wide to take whole, in this order. */
enum {
    ANYWHERE = 1 << 18, /* all signs and exponents, as many fractions for each */
    BENDS = 18,         /* exponents from 2^-8 to 2^9, either sign, this many fractions each: */
    BEND_FRACTIONS = 1 << 14,
    ZERO_SURROUNDINGS = 1 << 14, /* of each zero */
    TAILS = 7,                   /* exponents of negative arguments from 2^3 on, as BENDS */
    RANDOM = 1 << 14,
    LENGTH = ANYWHERE + 2 * BENDS * BEND_FRACTIONS + 4 * ZERO_SURROUNDINGS +
        TAILS * BEND_FRACTIONS + RANDOM,
    /* for second derivatives, at the end */
    SECOND_LENGTH = 8 * ZERO_SURROUNDINGS + TAILS * BEND_FRACTIONS
};

size_t sweep_length(const fastgelu_function *f, const format *t)
{
    if (t->size == 2 && f->inputs == 1)
        return (size_t)1 << 16;
    return (size_t)LENGTH + (kind_of(f) == SECOND ? SECOND_LENGTH : 0);
}

/* The i-th of 2^14 parts of a binade, somewhere inside. */
static bits some_fraction(const format *t, size_t i, uint64_t h)
{
    const int rest = t->fraction_bits - 14;
    return (bits)i << rest | (h & (((bits)1 << rest) - 1));
}

static bits biased(const format *t, int exponent)
{
    return (bits)(exponent + exponent_bias(t)) << t->fraction_bits;
}

/* The i-th of the ZERO_SURROUNDINGS numbers about one. */
static bits about(const format *t, bits zero, size_t i, uint64_t h)
{
    const bits distance =
        (h >> 1 & (smallest_normal(t) - 1)) >> i % (bits)(t->fraction_bits - 8) >> 2;
    if (i < ZERO_SURROUNDINGS / 2) /* the nearest ones, then at all distances */
        return zero + i - ZERO_SURROUNDINGS / 4;
    return h & 1 ? zero + distance : zero - distance;
}

/* What follows the sweep for second derivatives: about their zeros, and the tail on the right. */
static bits second_sweep_x(const format *t, size_t i, uint64_t h)
{
    if (i < 8 * ZERO_SURROUNDINGS) {
        const size_t zero = i / ZERO_SURROUNDINGS;
        return about(t, encode(t, (zero % 2 ? -1 : 1) * second_zeros[zero / 2]),
                     i % ZERO_SURROUNDINGS, h);
    }
    i -= 8 * ZERO_SURROUNDINGS;
    return biased(t, 3 + (int)(i / BEND_FRACTIONS)) | some_fraction(t, i % BEND_FRACTIONS, h);
}

bits sweep_x(const format *t, size_t i)
{
    const uint64_t h = mix(i);
    const bits fraction_mask = smallest_normal(t) - 1;
    if (t->size == 2)
        return i & 0xffff; /* all there are */
    if (i >= LENGTH)
        return second_sweep_x(t, i - LENGTH, h);
    if (i < ANYWHERE) {
        const size_t binades = (size_t)1 << (8 * t->size - (size_t)t->fraction_bits);
        const size_t k = i / binades;
        const bits edges[] = {0, 1, fraction_mask, fraction_mask - 1, fraction_mask / 2 + 1};
        const bits fraction = k < sizeof edges / sizeof edges[0] ? edges[k] : h & fraction_mask;
        return (bits)(i % binades) << t->fraction_bits | fraction;
    }
    i -= ANYWHERE;
    if (i < 2 * BENDS * BEND_FRACTIONS) {
        const size_t binade = i / BEND_FRACTIONS;
        return biased(t, (int)(binade / 2) - 8) | some_fraction(t, i % BEND_FRACTIONS, h) |
               (binade % 2 ? sign_bit(t) : 0);
    }
    i -= 2 * BENDS * BEND_FRACTIONS;
    if (i < 4 * ZERO_SURROUNDINGS) {
        const bits zero = encode(t, -slope_zeros[i / ZERO_SURROUNDINGS]);
        return about(t, zero, i % ZERO_SURROUNDINGS, h);
    }
    i -= 4 * ZERO_SURROUNDINGS;
    if (i < TAILS * BEND_FRACTIONS)
        return sign_bit(t) | biased(t, 3 + (int)(i / BEND_FRACTIONS)) |
               some_fraction(t, i % BEND_FRACTIONS, h);
    return h >> (64 - 8 * t->size);
}

bits sweep_dy(const format *t, size_t i)
{
    const uint64_t h = mix(~(uint64_t)i);
    const bits any = mix(h) >> (64 - 8 * t->size), magnitude = any & ~sign_bit(t);
    switch (h % 4) {
    case 0: /* any, NaN and infinities included */
        return h & 0xff0 ? any : infinity(t) | (any & sign_bit(t));
    case 1: /* any finite number */
        return magnitude % infinity(t) | (any & sign_bit(t));
    default: /* 0.5 to 2 */
        return biased(t, -1) + magnitude % ((bits)2 << t->fraction_bits) + (any & sign_bit(t));
    }
}

/* ---- the sweep of fused functions ------------------------------------------- */

/* One of FUSED_STEP elements of the sweep, and specials at the front in every combination. */
enum { FUSED_STEP = 17, SPECIALS = 13 };

static bits special(const format *t, size_t i)
{
    const bits sign = i % 2 ? sign_bit(t) : 0;
    const bits magnitudes[] = {0,
                               infinity(t),
                               largest(t),
                               1,
                               smallest_normal(t),
                               encode(t, 1),
                               i % 2 ? infinity(t) | quiet_bit(t) : encode(t, 0.75)};
    return magnitudes[i / 2] | sign;
}

size_t fused_sweep_length(void)
{
    return LENGTH / FUSED_STEP;
}

bits fused_sweep(const fastgelu_function *f, const format *t, int input, size_t i)
{
    const int dys = kind_of(f) == BACKWARD; /* dy is first, then the argument of the function */
    if (i < (size_t)SPECIALS * SPECIALS * SPECIALS) {
        for (int k = 0; k < input; k++)
            i /= SPECIALS;
        return special(t, i % SPECIALS);
    }
    if (input == dys)
        return sweep_x(t, i * FUSED_STEP % LENGTH);
    return sweep_dy(t, i * FUSED_STEP + (size_t)input);
}
