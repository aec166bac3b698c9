/* SPDX-License-Identifier: BSD-3-Clause */
/* algorithms16.h: every value function of float16 and bfloat16, once for both and every target.
 *
 * A vector of them is a vector of float32, V: v_load_<dtype> widens, exactly, and
 * v_store_<dtype> rounds, once. Included for each dtype with FG_HALF naming it and FG_REAL
 * f32.
 *
 * With t = |x|, base = max(x, 0) and the formulas of algorithms.h in plain float32
 * arithmetic:
 *
 *   value   y = base - t P(t)           gelu: P = Phi(-t) = 2^(c t^2) N(t)/D(t)
 *                                       others: P = E/(1 + E), E = 2^(-t w(t))
 *   slope   y = p for x < 0, 1 - p else gelu: p = 2^(c t^2) (t0 - t) N(t)/D(t)
 *                                       others: p = E (E + (1 - t w'(t)))/(1 + E)^2
 *
 * Such a y is right to about 2^-22, which decides nearly every rounding to 16 bits. The last
 * places of the coefficients, each function's own, are chosen so that it decides all of them:
 * native/tools/search16.c searches, native/tests/rounding16.c looks at every input. A float32
 * rounded correctly first would not do: it may fall on a tie.
 *
 * Tiny x give x/2 and a hair, of the sign of +: beside a tie where x is subnormal and odd. It is
 * too small for float32: |x| < fg_least count as that, in P alone, which makes 1/2 - P large
 * enough to be seen, and too small to move a result that is not beside a tie.
 *
 * Small results are carried in units of 2^-64 in bfloat16 (fg_unit), whose range is that of
 * float32: the last fma applies the unit and rounds, once.
 *
 * near says that |x| < fg_<function>_far. There P and p come from a table, as in algorithms.h,
 * with polynomials of lower degrees, which tools/search16_tables.py chooses so that every result
 * is correctly rounded. So the formulas and the tables give the same values and slopes; backward,
 * which is not, takes the slope of an x from the table wherever |x| < far.
 *
 * Far from 0, |x| is clamped where the result is a zero or x; NaN is not. */

#define FG_H(name) FG_PASTE(name, FG_HALF)
#define FG_K(name) v_set(FG_H(fg_##name))
#define FG_TERM(name, i) v_set(FG_H(fg_##name)[i])
#define FG_DEGREE(name) ((int)(sizeof FG_H(fg_##name) / sizeof(fg_f32)) - 1)
#define FG_HORNER(x, name) FG_H(horner)(x, FG_H(fg_##name), FG_DEGREE(name))

/* ---- building blocks ---------------------------------------------------- */

/* c[0] + c[1] x + ... + c[degree] x^degree */
static FG_INLINE V FG_H(horner)(V x, const fg_f32 *c, int degree)
{
    V sum = v_set(c[degree]);
    for (int i = degree - 1; i >= 0; i--)
        sum = v_fma(sum, x, v_set(c[i]));
    return sum;
}

/* a * b where that may be subnormal: see product in algorithms.h. */
static FG_INLINE V FG_H(small)(V a, V b)
{
    return v_fma(a, b, FG_K(minus_zero));
}

static FG_INLINE V FG_H(clamped)(V t, V limit)
{
    return v_select_above(t, limit, limit, t);
}

static FG_INLINE V FG_H(at_least)(V a, V b) /* of the same sign + */
{
    return v_real(i_max(v_bits(a), v_bits(b)));
}

/* An integer n is carried as k = n + shifter, whose low bits are those of n plus the exponent
 * bias, or of n plus that and 64: then 2^n is in units of fg_unit. */
static FG_INLINE V FG_H(pow2)(V k)
{
    return v_real(i_to_exponent(v_bits(k)));
}

/* 2^(n - m) for k = n + shifter, j = m + shifter */
static FG_INLINE V FG_H(pow2_ratio)(V k, V j)
{
    return v_real(i_add(i_to_exponent(i_sub(v_bits(k), v_bits(j))), v_bits(FG_K(one))));
}

/* 2^(a b) = 2^n 2^f with |f| <= 1/2: declares f and k = n + shifter. */
#define FG_REDUCE(a, b, shifter)      \
    const V k = v_fma(a, b, shifter); \
    const V f = v_fms(a, b, v_sub(k, shifter))

/* a, or a + b t^2, of a table */
#define FG_LINEAR(t, name) FG_TERM(name, 0)
#define FG_CUBIC(t, name) v_fma(v_mul(t, t), FG_TERM(name, 1), FG_TERM(name, 0))

/* ---- near 0 --------------------------------------------------------------- */

/* The polynomial of the segment of t, 0 <= t < far. */
static FG_INLINE V FG_H(from_table)(V t, V per, const fg_f32 *table, int columns)
{
    const R row = v_row(table, 8, columns, v_bits(v_fma(t, per, FG_K(round))));
    const V d = v_sub(t, v_entry(row, 0));
    V sum = v_entry(row, columns - 1);
    for (int i = columns - 2; i > 0; i--)
        sum = v_fma(d, sum, v_entry(row, i));
    return sum;
}
#define FG_FROM_TABLE16(t, name)                                   \
    FG_H(from_table)(t, FG_K(name##_per), FG_H(fg_##name##_table), \
                     FG_COUNT(FG_H(fg_##name##_table)) / 8)

/* max(x, 0) - t P */
#define FG_NEAR_VALUE16(form)                                                          \
    static FG_INLINE V FG_H(form##_by_table)(V x)                                      \
    {                                                                                  \
        const V t = v_abs(x), base = v_select_negative(x, FG_K(minus_zero), x);        \
        return v_fnma(t, FG_FROM_TABLE16(FG_H(at_least)(t, FG_K(least)), form), base); \
    }
FG_NEAR_VALUE16(gelu)
FG_NEAR_VALUE16(gelu_tanh)
FG_NEAR_VALUE16(gelu_sigmoid)
FG_NEAR_VALUE16(silu)

/* if some, not all are near: others give anything, and no flag */
#define FG_NEAR_SLOPE16(form)                                             \
    static FG_INLINE V FG_H(form##_grad_by_table)(V x, int some)          \
    {                                                                     \
        V t = v_abs(x);                                                   \
        if (some)                                                         \
            t = v_real(i_min(v_bits(t), v_bits(FG_K(form##_grad_near)))); \
        const V p = FG_FROM_TABLE16(t, form##_grad);                      \
        return v_select_negative(x, p, v_sub(FG_K(one), p));              \
    }
FG_NEAR_SLOPE16(gelu)
FG_NEAR_SLOPE16(gelu_tanh)
FG_NEAR_SLOPE16(gelu_sigmoid)
FG_NEAR_SLOPE16(silu)

/* ---- values ------------------------------------------------------------- */

/* max(x, 0) - l unit; for x < 0 and -0 it is -0 where l unit vanishes */
static FG_INLINE V FG_H(from_base)(V x, V l)
{
    return v_fma(l, FG_K(minus_unit), v_select_negative(x, FG_K(minus_zero), x));
}

static FG_INLINE V FG_H(gelu)(V x, int near)
{
    if (near)
        return FG_H(gelu_by_table)(x);
    const V t = FG_H(clamped)(v_abs(x), FG_K(gelu_limit));
    const V u = FG_H(at_least)(t, FG_K(least));
    const V u2 = v_mul(u, u);
    FG_REDUCE(u2, FG_TERM(gelu_rate, 0), FG_K(unit_shifter));
    const V e = v_mul(FG_HORNER(f, gelu_exp2), FG_H(pow2)(k));
    const V numerator = v_mul(v_mul(t, FG_HORNER(u, gelu_num)), e);
    return FG_H(from_base)(x, v_div(numerator, FG_HORNER(u, gelu_den)));
}

#define FG_SIGMOID_VALUE(form, FG_RATE)                                  \
    static FG_INLINE V FG_H(form)(V x, int near)                         \
    {                                                                    \
        if (near)                                                        \
            return FG_H(form##_by_table)(x);                             \
        const V t = FG_H(clamped)(v_abs(x), FG_K(form##_limit));         \
        const V u = FG_H(at_least)(t, FG_K(least));                      \
        const V rate = FG_RATE(u, form##_rate);                          \
        FG_REDUCE(u, rate, FG_K(unit_shifter));                          \
        const V e = v_mul(FG_HORNER(f, form##_exp2), FG_H(pow2)(k));     \
        const V l = v_div(v_mul(t, e), v_fma(e, FG_K(unit), FG_K(one))); \
        return FG_H(from_base)(x, l);                                    \
    }

FG_SIGMOID_VALUE(gelu_tanh, FG_CUBIC)
FG_SIGMOID_VALUE(gelu_sigmoid, FG_LINEAR)
FG_SIGMOID_VALUE(silu, FG_LINEAR)

/* ---- slopes ------------------------------------------------------------- */

/* p = e q unit, of which the caller rounds the product. */
typedef struct FG_H(tail) {
    V e, q, k;
} FG_H(tail);

/* deep: e has no less than 2^-100 of the power of two 2^n, where k = n + shifter; the caller
 * applies the rest, and unit is 1. */
static FG_INLINE V FG_H(scale)(V k, int deep)
{
    return FG_H(pow2)(deep ? FG_H(at_least)(k, FG_K(split)) : k);
}

static FG_INLINE FG_H(tail) FG_H(gelu_tail)(V t, V shifter, V unit, int deep)
{
    const V t2 = v_mul(t, t);
    FG_REDUCE(t2, FG_TERM(gelu_grad_rate, 0), shifter);
    const V e = v_mul(FG_HORNER(f, gelu_grad_exp2), FG_H(scale)(k, deep));
    const V d = v_add(v_sub(FG_K(gelu_zero_hi), t), FG_K(gelu_zero_lo));
    const V q = v_div(v_mul(d, FG_HORNER(t, gelu_grad_num)), FG_HORNER(t, gelu_grad_den));
    const FG_H(tail) r = {e, q, k};
    (void)unit;
    return r;
}

#define FG_SIGMOID_TAIL(form, FG_RATE)                                              \
    static FG_INLINE FG_H(tail) FG_H(form##_tail)(V t, V shifter, V unit, int deep) \
    {                                                                               \
        const V rate = FG_RATE(t, form##_grad_rate);                                \
        FG_REDUCE(t, rate, shifter);                                                \
        const V e = v_mul(FG_HORNER(f, form##_grad_exp2), FG_H(scale)(k, deep));    \
        const V rest = v_fnma(t, FG_RATE(t, form##_grad_slope), FG_K(one));         \
        /* (1 + E)^2 with one rounding, where E is about 1 */                       \
        const V plain = FG_H(small)(e, unit), m = v_sub(FG_K(one), plain);          \
        const V d2 = v_fma(m, m, FG_H(small)(plain, FG_K(four)));                   \
        const FG_H(tail) r = {e, v_div(v_add(plain, rest), d2), k};                 \
        return r;                                                                   \
    }

FG_SIGMOID_TAIL(gelu_tanh, FG_CUBIC)
FG_SIGMOID_TAIL(gelu_sigmoid, FG_LINEAR)
FG_SIGMOID_TAIL(silu, FG_LINEAR)

/* p for x < 0, 1 - p else, rounded once */
static FG_INLINE V FG_H(slope)(V x, V e, V q, V unit, V minus_unit)
{
    const V sign = v_select_negative(x, unit, minus_unit);
    return v_fma(e, v_mul(q, sign), v_select_negative(x, FG_K(minus_zero), FG_K(one)));
}

/* dy times the slope. What v_store will round to infinity becomes that here, so that the flag is
 * raised. */
static FG_INLINE V FG_H(product)(V dy, V slope)
{
    const V dx = FG_H(small)(dy, slope);
    if (!FG_H(fg_deep))
        return dx;
    const V above = FG_H(small)(dx, FG_K(overflow));
    return v_select_infinite(above, above, dx);
}

/* The slope for |x| >= far. It is -0 at -inf, not just small: it makes NaN of an infinite dy. */
static FG_INLINE V FG_H(far_slope)(V x, FG_H(tail) r)
{
    const V e = v_select_infinite(x, FG_K(zero), r.e);
    return FG_H(slope)(x, e, r.q, FG_K(one), FG_K(minus_one));
}

/* dy and what 2^n lacks, in two normal factors; near 0 it lacks nothing. Of a NaN, k would scale it
 * at random. */
static FG_INLINE V FG_H(scaled)(V dy, V x, FG_H(tail) r)
{
    if (!FG_H(fg_deep))
        return dy;
    const V k = FG_H(at_least)(r.k, FG_K(split_thrice));
    const V k0 = v_real(i_min(v_bits(k), v_bits(FG_K(shifter))));
    const V k1 = FG_H(at_least)(k0, FG_K(split)), k2 = FG_H(at_least)(k0, FG_K(split_twice));
    const V less = FG_H(small)(FG_H(small)(dy, FG_H(pow2_ratio)(k2, k1)), FG_H(pow2_ratio)(k0, k2));
    return v_select_negative(x, less, dy);
}

#define FG_SLOPE16(form)                                                                    \
    static FG_INLINE V FG_H(form##_grad)(V x, int near)                                     \
    {                                                                                       \
        if (near)                                                                           \
            return FG_H(form##_grad_by_table)(x, 0);                                        \
        const V t = FG_H(clamped)(v_abs(x), FG_K(form##_grad_limit));                       \
        const FG_H(tail) r = FG_H(form##_tail)(t, FG_K(unit_shifter), FG_K(unit), 0);       \
        return FG_H(slope)(x, r.e, r.q, FG_K(unit), FG_K(minus_unit));                      \
    }                                                                                       \
    /* near: all are if above 0, none is if below */                                        \
    static FG_INLINE V FG_H(form##_backward)(V dy, V x, int near)                           \
    {                                                                                       \
        if (near > 0)                                                                       \
            return FG_H(product)(dy, FG_H(form##_grad_by_table)(x, 0));                     \
        const V t = FG_H(clamped)(v_abs(x), FG_K(form##_backward_limit));                   \
        const FG_H(tail) r = FG_H(form##_tail)(t, FG_K(shifter), FG_K(one), FG_H(fg_deep)); \
        V slope = FG_H(far_slope)(x, r);                                                    \
        if (near == 0)                                                                      \
            slope = v_select_above(FG_K(form##_grad_far), v_abs(x),                         \
                                   FG_H(form##_grad_by_table)(x, 1), slope);                \
        return FG_H(product)(FG_H(scaled)(dy, x, r), slope);                                \
    }

FG_SLOPE16(gelu)
FG_SLOPE16(gelu_tanh)
FG_SLOPE16(gelu_sigmoid)
FG_SLOPE16(silu)

#undef FG_SLOPE16
#undef FG_NEAR_SLOPE16
#undef FG_NEAR_VALUE16
#undef FG_FROM_TABLE16
#undef FG_SIGMOID_TAIL
#undef FG_SIGMOID_VALUE
#undef FG_CUBIC
#undef FG_LINEAR
#undef FG_REDUCE
#undef FG_HORNER
#undef FG_DEGREE
#undef FG_TERM
#undef FG_K
#undef FG_H
