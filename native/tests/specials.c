/* SPDX-License-Identifier: BSD-3-Clause */
/* specials.c: infinities, zeros, NaN, huge and subnormal numbers, by encoding, and every
 * combination of special dy and x. Each point is computed alone and among the others. */
#include <stdlib.h>
#include <string.h>

#include "harness.h"

enum { MOST = 200 };

typedef struct list {
    bits at[MOST];
    size_t n;
} list;

static void add(list *l, bits b)
{
    if (l->n == MOST)
        abort();
    l->at[l->n++] = b;
}

static void add_both_signs(const format *t, list *l, bits b)
{
    add(l, b);
    add(l, b | sign_bit(t));
}

static void add_nans(const format *t, list *l)
{
    add_both_signs(t, l, infinity(t) | quiet_bit(t));
    add_both_signs(t, l, infinity(t) | quiet_bit(t) | 1);
    add_both_signs(t, l, sign_bit(t) - 1);                  /* quiet, all ones */
    add_both_signs(t, l, infinity(t) | 1);                  /* signalling */
    add_both_signs(t, l, infinity(t) | (quiet_bit(t) - 1)); /* signalling, most ones */
}

/* From 2^11 on every slope is 1 or vanishes even when the largest dy multiplies it. */
static void add_huge(const format *t, list *l)
{
    const bits from = encode(t, 0x1p11), step = smallest_normal(t);
    const bits binades = (infinity(t) - from) / step;
    for (bits k = 0; k < binades; k += 1 + binades / 16) {
        add_both_signs(t, l, from + k * step);
        add_both_signs(t, l, from + k * step + step / 3);
    }
    add_both_signs(t, l, largest(t));
}

static void add_subnormals(const format *t, list *l)
{
    const bits normal = smallest_normal(t);
    const bits magnitudes[] = {1, 2, 3, 4, 5, 7, 8, normal / 2, normal - 2, normal - 1};
    for (size_t i = 0; i < sizeof magnitudes / sizeof magnitudes[0]; i++)
        add_both_signs(t, l, magnitudes[i]);
}

/* ---- what is right ------------------------------------------------------ */

/* want, with every NaN alike; low and high bound the magnitude where either will do. */
typedef struct answer {
    bits low, high;
} answer;

static answer exactly(bits b)
{
    const answer a = {b, b};
    return a;
}

static answer nan_answer(const format *t)
{
    return exactly(infinity(t) | quiet_bit(t));
}

static answer value_of(const format *t, bits x)
{
    const bits sign = x & sign_bit(t), magnitude = x & ~sign_bit(t);
    if (is_nan(t, x))
        return nan_answer(t);
    if (magnitude < smallest_normal(t)) { /* half of it: an odd one may go either way */
        const answer half = {magnitude / 2 | sign, (magnitude + 1) / 2 | sign};
        return half;
    }
    return exactly(sign ? sign : x); /* huge */
}

static answer slope_of(const format *t, bits x)
{
    if (is_nan(t, x))
        return nan_answer(t);
    if ((x & ~sign_bit(t)) < smallest_normal(t))
        return exactly(encode(t, 0.5));
    return exactly(encode(t, is_negative(t, x) ? -0.0 : 1.0));
}

static answer second_of(const fastgelu_function *f, const format *t, bits x)
{
    if (is_nan(t, x))
        return nan_answer(t);
    if ((x & ~sign_bit(t)) >= smallest_normal(t)) /* huge */
        return exactly(encode(t, -0.0));
    return exactly(encode(t, strstr(f->name, "silu") ? 0.5
                             : strstr(f->name, "sigmoid")
                                 ? 0.851
                                 : 0.79788456080286535588)); /* sqrt(2/pi) */
}

/* dy times the slope; x is NaN, infinite, huge or zero. The slope at a huge negative x is a
 * negative number too small to see, but not zero: only an infinite dy tells it from -0. */
static answer backward_of(const format *t, bits dy, bits x)
{
    const bits sign = (dy ^ x) & sign_bit(t);
    if (is_nan(t, dy) || is_nan(t, x))
        return nan_answer(t);
    if (is_zero(t, x) && t->size == 2 && (dy & ~sign_bit(t)) < smallest_normal(t)) {
        /* half of an odd one is a tie, and the unrounded slope may be beside 1/2 */
        const bits magnitude = dy & ~sign_bit(t), of_dy = dy & sign_bit(t);
        const answer half = {magnitude / 2 | of_dy, (magnitude + 1) / 2 | of_dy};
        return half;
    }
    if (is_zero(t, x))
        return exactly(encode(t, decode(t, dy) * 0.5));
    if (!is_negative(t, x))
        return exactly(dy);
    if (is_infinite(t, dy))
        return is_infinite(t, x) ? nan_answer(t) : exactly(infinity(t) | sign);
    return exactly(sign);
}

static void judge(const fastgelu_function *f, const format *t, bits dy, bits x, bits got,
                  const char *where)
{
    const answer a = f->inputs == 2         ? backward_of(t, dy, x)
                     : kind_of(f) == SLOPE  ? slope_of(t, x)
                     : kind_of(f) == SECOND ? second_of(f, t, x)
                                            : value_of(t, x);
    if (is_nan(t, a.low))
        expect(is_nan(t, got) && !is_signalling(t, got),
               "%s: x %#llx, dy %#llx: got %#llx, not a quiet NaN", where, (unsigned long long)x,
               (unsigned long long)dy, (unsigned long long)got);
    else
        expect(got == a.low || got == a.high, "%s: x %#llx, dy %#llx: got %#llx, want %#llx", where,
               (unsigned long long)x, (unsigned long long)dy, (unsigned long long)got,
               (unsigned long long)a.high);
}

static void test(const fastgelu_function *f, const format *t)
{
    list xs = {{0}, 0}, dys = {{0}, 0};
    add_both_signs(t, &xs, 0);
    add_both_signs(t, &xs, infinity(t));
    add_nans(t, &xs);
    add_huge(t, &xs);
    if (f->inputs == 2) {
        add_both_signs(t, &dys, 0);
        add_both_signs(t, &dys, infinity(t));
        add_nans(t, &dys);
        add_subnormals(t, &dys);
        add_both_signs(t, &dys, smallest_normal(t));
        add_both_signs(t, &dys, encode(t, 1));
        add_both_signs(t, &dys, encode(t, -2.5));
        add_both_signs(t, &dys, largest(t));
    } else {
        add_subnormals(t, &xs);
        add(&dys, 0);
    }

    const size_t n = xs.n * dys.n;
    void *dy = allocate(n * t->size), *x = allocate(n * t->size), *y = allocate(n * t->size);
    for (size_t i = 0; i < n; i++) {
        set(t, dy, i, dys.at[i / xs.n]);
        set(t, x, i, xs.at[i % xs.n]);
    }
    call(f, t, n, dy, x, y);
    for (size_t i = 0; i < n; i++)
        judge(f, t, get(t, dy, i), get(t, x, i), get(t, y, i), "among others");
    for (size_t i = 0; i < n; i++) {
        const size_t at = i * t->size;
        call(f, t, 1, (char *)dy + at, (char *)x + at, (char *)y + at);
        judge(f, t, get(t, dy, i), get(t, x, i), get(t, y, i), "alone");
    }
    free(dy);
    free(x);
    free(y);
}

int main(void)
{
    on_every_target("special values", 0, test);
    return end_tests();
}
