/* SPDX-License-Identifier: BSD-3-Clause */
/* flags.c: the floating-point environment: no spurious invalid, overflow or divide-by-zero
 * flag, those that the result calls for, control bits as they were, nothing flushed. */
#include <fenv.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "control_bits.h"
#include "harness.h"

enum { BLOCK = 61 }; /* whole vectors and a tail in each call */
static const int WATCHED = FE_INVALID | FE_OVERFLOW | FE_DIVBYZERO;

static const char *flag_names(int flags)
{
    static char names[64];
    names[0] = 0;
    strcat(names, flags & FE_INVALID ? " invalid" : "");
    strcat(names, flags & FE_OVERFLOW ? " overflow" : "");
    strcat(names, flags & FE_DIVBYZERO ? " divide-by-zero" : "");
    return names;
}

static int raised_by(const fastgelu_function *f, const format *t, size_t n, const void *dy,
                     const void *x, void *y)
{
    feclearexcept(FE_ALL_EXCEPT);
    call(f, t, n, dy, x, y);
    return fetestexcept(WATCHED);
}

/* dy of at most half the largest number cannot overflow: no slope reaches 2. */
static bits harmless_dy(const format *t, bits dy)
{
    const bits limit = largest(t) - smallest_normal(t);
    if (!is_nan(t, dy) && !is_infinite(t, dy) && (dy & ~sign_bit(t)) > limit)
        return dy - smallest_normal(t);
    return dy;
}

/* Counts the elements of a call that raise something; looks for them one by one. */
static void expect_no_flags(const fastgelu_function *f, const format *t, size_t n,
                            const unsigned char *dy, const unsigned char *x)
{
    _Alignas(64) unsigned char y[BLOCK * 8];
    const int together = raised_by(f, t, n, dy, x, y);
    int alone = 0;
    for (size_t i = 0; together && i < n; i++) {
        const size_t at = i * t->size;
        const int flags = raised_by(f, t, 1, dy + at, x + at, y);
        alone |= flags;
        expect(!flags, "x %#llx, dy %#llx raises%s", (unsigned long long)get(t, x, i),
               (unsigned long long)get(t, dy, i), flag_names(flags));
    }
    expect(!together || alone, "%d elements raise%s, but none alone", (int)n, flag_names(together));
}

/* Quiet NaN and infinities may not raise anything either, except for inf * 0. */
static void test_no_spurious_flags(const fastgelu_function *f, const format *t)
{
    _Alignas(64) unsigned char dy[BLOCK * 8], x[BLOCK * 8];
    const size_t length = sweep_length(f, t);
    size_t n = 0;
    for (size_t i = 0; i < length; i += THINNED) {
        const bits b = sweep_x(t, i);
        bits d = harmless_dy(t, sweep_dy(t, i));
        if (is_signalling(t, b) || (f->inputs == 2 && is_signalling(t, d)))
            continue;
        if (is_infinite(t, b) && is_infinite(t, d))
            d = 0;
        set(t, x, n, b);
        set(t, dy, n, d);
        if (++n == BLOCK) {
            expect_no_flags(f, t, BLOCK, dy, x);
            n = 0;
        }
    }
    /* short calls, whose unused lanes hold something too */
    for (size_t i = 1; i < BLOCK; i++)
        expect_no_flags(f, t, i, dy, x);
}

/* Whatever the payload, and whatever stands on the other side. */
static void test_quiet_nan(const fastgelu_function *f, const format *t)
{
    _Alignas(64) unsigned char dy[BLOCK * 8], x[BLOCK * 8];
    for (size_t i = 0; i < 30000; i += THINNED)
        for (size_t k = 0; k < BLOCK; k += 2) {
            const uint64_t h = mix(i * BLOCK + k);
            const bits nan = infinity(t) | quiet_bit(t) | (h & (sign_bit(t) | (quiet_bit(t) - 1)));
            const bits any = mix(h) % infinity(t) | (h >> 1 & sign_bit(t));
            set(t, x, k, nan);
            set(t, dy, k, h % 2 ? any : nan);
            if (k + 1 < BLOCK) {
                set(t, x, k + 1, any);
                set(t, dy, k + 1, nan);
            } else {
                expect_no_flags(f, t, BLOCK, dy, x);
            }
        }
}

/* Overflow is raised exactly where a finite dy gives an infinite result. */
static void test_overflow(const fastgelu_function *f, const format *t)
{
    _Alignas(64) unsigned char dy[8], x[8], y[8];
    int overflows = 0, others = 0;
    for (size_t i = 0; i < 40000; i += THINNED) {
        const bits b = i % 2 ? encode(t, 0.5 + 3 * (double)i / 40000) : sweep_x(t, i);
        const bits d = largest(t) - mix(i) % smallest_normal(t);
        if (is_nan(t, b))
            continue;
        set(t, x, 0, b);
        set(t, dy, 0, i % 4 < 2 ? d : d | sign_bit(t));
        const int flags = raised_by(f, t, 1, dy, x, y);
        const int want = is_infinite(t, get(t, y, 0)) ? FE_OVERFLOW : 0;
        overflows += want != 0;
        others += want == 0;
        expect(flags == want, "x %#llx, dy %#llx: result %#llx, but raises%s",
               (unsigned long long)b, (unsigned long long)get(t, dy, 0),
               (unsigned long long)get(t, y, 0), flags ? flag_names(flags) : " nothing");
    }
    expect(overflows > 1000 / THINNED && others > 1000 / THINNED, "%d overflows, %d others",
           overflows, others);
    /* one among others, in a vector and in a tail */
    for (size_t at = 0; at < BLOCK; at++) {
        _Alignas(64) unsigned char many_dy[BLOCK * 8], many_x[BLOCK * 8], many_y[BLOCK * 8];
        for (size_t i = 0; i < BLOCK; i++) {
            set(t, many_dy, i, i == at ? largest(t) : encode(t, 1));
            set(t, many_x, i, encode(t, 2)); /* slopes of 1.09 */
        }
        expect(raised_by(f, t, BLOCK, many_dy, many_x, many_y) == FE_OVERFLOW,
               "overflow of element %d of %d is not reported", (int)at, BLOCK);
        set(t, many_dy, at, infinity(t)); /* infinite already */
        expect(!raised_by(f, t, BLOCK, many_dy, many_x, many_y), "an infinite dy raises a flag");
        set(t, many_x, at, infinity(t) | sign_bit(t));
        expect(raised_by(f, t, BLOCK, many_dy, many_x, many_y) == FE_INVALID,
               "inf * -0 of element %d of %d is not reported", (int)at, BLOCK);
    }
}

/* Flags that were raised before stay. */
static void test_flags_are_not_cleared(const fastgelu_function *f, const format *t)
{
    _Alignas(64) unsigned char dy[BLOCK * 8], x[BLOCK * 8], y[BLOCK * 8];
    for (size_t i = 0; i < BLOCK; i++) {
        set(t, dy, i, encode(t, 1));
        set(t, x, i, encode(t, (double)i - 20));
    }
    feraiseexcept(FE_ALL_EXCEPT);
    call(f, t, BLOCK, dy, x, y);
    expect(fetestexcept(FE_ALL_EXCEPT) == FE_ALL_EXCEPT, "flags were cleared");
    feclearexcept(FE_ALL_EXCEPT);
}

/* ---- control bits ------------------------------------------------------- */

static void test_control_bits(const fastgelu_function *f, const format *t)
{
    static const int modes[] = {FE_TONEAREST, FE_UPWARD, FE_DOWNWARD, FE_TOWARDZERO};
    _Alignas(64) unsigned char dy[BLOCK * 8], x[BLOCK * 8], y[BLOCK * 8];
    fesetenv(FE_DFL_ENV); /* whatever earlier tests left */
    for (size_t i = 0; i < BLOCK; i++) {
        set(t, dy, i, sweep_dy(t, 97 * i));
        set(t, x, i, sweep_x(t, 97 * i));
    }
    for (int flush = 0; flush < 2; flush++)
        for (size_t m = 0; m < sizeof modes / sizeof modes[0]; m++) {
            fesetround(modes[m]);
            if (flush)
                flush_to_zero();
            const uint64_t set_up = control_bits();
            call(f, t, BLOCK, dy, x, y);
            const uint64_t left = control_bits();
            const int mode = fegetround();
            fesetenv(FE_DFL_ENV);
            expect(left == set_up && mode == modes[m], "control bits %#llx became %#llx",
                   (unsigned long long)set_up, (unsigned long long)left);
        }
}

/* ---- subnormal numbers -------------------------------------------------- */

static int is_subnormal(const format *t, bits b)
{
    return !is_zero(t, b) && (b & ~sign_bit(t)) < smallest_normal(t);
}

/* Subnormal arguments count, and subnormal results appear where the tails end. */
static void test_nothing_is_flushed(const fastgelu_function *f, const format *t)
{
    enum { POINTS = 1 << 15 };
    unsigned char *dy = allocate(POINTS * 8), *x = allocate(POINTS * 8), *y = allocate(POINTS * 8);
    int subnormal = 0, zero = 0;
    for (size_t i = 0; i < POINTS; i++) {
        set(t, dy, i, encode(t, 1));
        set(t, x, i, encode(t, -(double)i / 32)); /* down to -1024 */
    }
    call(f, t, POINTS, dy, x, y);
    for (size_t i = 0; i < POINTS; i++)
        subnormal += is_subnormal(t, get(t, y, i));
    expect(subnormal > 0, "no subnormal result down to x = -1024");

    const bits step = smallest_normal(t) > POINTS ? smallest_normal(t) / POINTS : 1;
    size_t n = 0;
    for (bits b = 4; b < smallest_normal(t) && n < POINTS; b += step, n++) {
        set(t, x, n, kind_of(f) == BACKWARD ? encode(t, 1) : n % 2 ? b : b | sign_bit(t));
        set(t, dy, n, n % 2 ? b : b | sign_bit(t));
    }
    call(f, t, n, dy, x, y);
    for (size_t i = 0; i < n; i++)
        zero += is_zero(t, get(t, y, i));
    expect(zero == 0, "%d of %d subnormal arguments give zero", zero, (int)n);
    free(dy);
    free(x);
    free(y);
}

int main(void)
{
    on_every_target("no spurious flags", 0, test_no_spurious_flags);
    on_every_target("no flags of quiet NaN", 0, test_quiet_nan);
    on_every_target("overflow and invalid reported", 2, test_overflow);
    on_every_target("flags not cleared", 0, test_flags_are_not_cleared);
    on_every_target("control bits kept", 0, test_control_bits);
    on_every_target("nothing flushed to zero", 0, test_nothing_is_flushed);
    return end_tests();
}
