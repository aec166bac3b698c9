/* SPDX-License-Identifier: BSD-3-Clause */
/* algorithms16.h: every value function of float16 and bfloat16, once for both and every target.
 *
 * A vector of them is a vector of float32, V: v_load_<dtype> widens, exactly, and
 * v_store_<dtype> rounds, once. Included for each dtype with FG_HALF naming it and FG_REAL
 * f32.
 *
 * With t = |x| and base = max(x, 0)
 *
 *   value   y = base - t P
 *   slope   y = p for x < 0, 1 - p else
 *
 * in three ways:
 *
 *   by table     near 0, for t < fg_<function>_far: P and p, as in algorithms.h
 *   far          from fg_<function>_low to fg_<function>_end
 *                gelu    t P = 2^(c t^2) N(t^2)/D(t^2)     p = 2^(c t^2) t N(t^2)/D(t^2)
 *                others  t P = t E/(1 + E)                 p = E (E + (1 - t w'(t)))/(1 + E)^2
 *                with E = 2^(-t w(t)), and polynomials for 1/(1 + E) and 1/(1 + E)^2; where those
 *                are of degree 0, E is nothing beside 1
 *   everywhere   the same, but N(t)/D(t), with a factor for the zero of the slope, and divisions
 *
 * Such a y, in plain float32 arithmetic, is right to 2^-14 to 2^-22, which decides most roundings to
 * 16 bits. The polynomials of the tables (native/tools/search16_tables.py) and the last places of
 * the coefficients of the formulas, each function's own (native/tools/search16.c), are chosen so
 * that they decide all of them; native/tests/rounding16.c looks at every input. A float32 rounded
 * correctly first would not do: it may fall on a tie. So all ways give the same values and slopes;
 * backward, which is not rounded correctly, takes the slope of an x from the table wherever |x| < far
 * and from the far formula elsewhere.
 *
 * Tiny x give x/2 and a hair, of the sign of +: beside a tie where x is subnormal and odd. It is
 * too small for float32: |x| < fg_least count as that, in P alone, which makes 1/2 - P large
 * enough to be seen, and too small to move a result that is not beside a tie.
 *
 * Small results are carried in units of 2^-64 in bfloat16 (fg_unit), whose range is that of
 * float32: the last fma applies the unit and rounds, once.
 *
 * near is the way: by table if above 0, far if below, for every x if 0.
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

/* An integer n is carried as k = n + shifter, whose low bits are those of n, or of n plus 64: then
 * 2^n is in units of fg_unit. */
static FG_INLINE V FG_H(times_pow2)(V a, I k)
{
    return v_real(i_add(v_bits(a), i_to_exponent(k)));
}

/* 2^(a b) = 2^n 2^f with |f| <= 1/2: declares f and k = n + shifter. */
#define FG_REDUCE(a, b, shifter)      \
    const V k = v_fma(a, b, shifter); \
    const V f = v_fms(a, b, v_sub(k, shifter))

/* e, in units or not, as a number: E */
static FG_INLINE V FG_H(number_of)(V e, int in_units)
{
    return in_units ? FG_H(small)(e, FG_K(unit)) : e;
}

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
        const V t = v_abs(x), base = v_positive(x);                                    \
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

/* max(x, 0) + e q; for x < 0 it is -0 where that vanishes */
static FG_INLINE V FG_H(value)(V x, V e, V q)
{
    return v_fma(e, q, v_positive(x));
}

static FG_INLINE V FG_H(far_gelu)(V x)
{
    const V t = v_abs(x), t2 = v_mul(t, t);
    FG_REDUCE(t2, FG_TERM(far_gelu_rate, 0), FG_K(unit_shifter));
    const V e = FG_H(times_pow2)(FG_HORNER(f, far_gelu_exp2), v_bits(k));
    const V q = v_div(FG_HORNER(t2, far_gelu_num), FG_HORNER(t2, far_gelu_den));
    return FG_H(value)(x, e, v_mul(q, FG_K(minus_unit)));
}

#define FG_SIGMOID_VALUE(form, FG_RATE)                                                       \
    static FG_INLINE V FG_H(far_##form)(V x)                                                  \
    {                                                                                         \
        const V t = v_abs(x);                                                                 \
        const V rate = FG_RATE(t, far_##form##_rate);                                         \
        FG_REDUCE(t, rate, FG_K(unit_shifter));                                               \
        const V e = FG_H(times_pow2)(FG_HORNER(f, far_##form##_exp2), v_bits(k));             \
        V q = v_mul(t, FG_K(minus_unit));                                                     \
        if (FG_DEGREE(far_##form##_inverse))                                                  \
            q = v_mul(q, FG_HORNER(FG_H(number_of)(e, FG_H(fg_deep)), far_##form##_inverse)); \
        return FG_H(value)(x, e, q);                                                          \
    }

FG_SIGMOID_VALUE(gelu_tanh, FG_CUBIC)
FG_SIGMOID_VALUE(gelu_sigmoid, FG_LINEAR)
FG_SIGMOID_VALUE(silu, FG_LINEAR)

/* For every x. Tiny ones are too small for multiples of unit. */
static FG_INLINE V FG_H(everywhere_gelu)(V x)
{
    const V t = FG_H(clamped)(v_abs(x), FG_K(gelu_limit)), u = FG_H(at_least)(t, FG_K(least));
    const V u2 = v_mul(u, u);
    FG_REDUCE(u2, FG_TERM(gelu_rate, 0), FG_K(unit_shifter));
    const V e = FG_H(times_pow2)(FG_HORNER(f, gelu_exp2), v_bits(k));
    const V ratio = v_div(FG_HORNER(u, gelu_num), FG_HORNER(u, gelu_den));
    return FG_H(value)(x, v_mul(e, v_mul(t, ratio)), FG_K(minus_unit));
}

#define FG_SIGMOID_EVERYWHERE(form, FG_RATE)                                \
    static FG_INLINE V FG_H(everywhere_##form)(V x)                         \
    {                                                                       \
        const V t = FG_H(clamped)(v_abs(x), FG_K(form##_limit));            \
        const V u = FG_H(at_least)(t, FG_K(least));                         \
        const V rate = FG_RATE(u, form##_rate);                             \
        FG_REDUCE(u, rate, FG_K(unit_shifter));                             \
        const V e = FG_H(times_pow2)(FG_HORNER(f, form##_exp2), v_bits(k)); \
        const V l = v_div(v_mul(t, e), v_fma(e, FG_K(unit), FG_K(one)));    \
        return FG_H(value)(x, l, FG_K(minus_unit));                         \
    }

FG_SIGMOID_EVERYWHERE(gelu_tanh, FG_CUBIC)
FG_SIGMOID_EVERYWHERE(gelu_sigmoid, FG_LINEAR)
FG_SIGMOID_EVERYWHERE(silu, FG_LINEAR)

#define FG_VALUE16(form)                         \
    static FG_INLINE V FG_H(form)(V x, int near) \
    {                                            \
        if (near > 0)                            \
            return FG_H(form##_by_table)(x);     \
        if (near < 0)                            \
            return FG_H(far_##form)(x);          \
        return FG_H(everywhere_##form)(x);       \
    }

FG_VALUE16(gelu)
FG_VALUE16(gelu_tanh)
FG_VALUE16(gelu_sigmoid)
FG_VALUE16(silu)

/* ---- slopes ------------------------------------------------------------- */

/* s p = e q, s being of the size of a unit; k = n + shifter for the power of two 2^n in e. deep: e
 * has no less than 2^-100 of it. */
typedef struct FG_H(tail) {
    V e, q, k;
} FG_H(tail);

static FG_INLINE I FG_H(scale)(V k, int deep)
{
    return v_bits(deep ? FG_H(at_least)(k, FG_K(split)) : k);
}

static FG_INLINE FG_H(tail) FG_H(far_gelu_tail)(V t, V s, V shifter, int deep)
{
    const V t2 = v_mul(t, t);
    FG_REDUCE(t2, FG_TERM(far_gelu_grad_rate, 0), shifter);
    const V e = FG_H(times_pow2)(FG_HORNER(f, far_gelu_grad_exp2), FG_H(scale)(k, deep));
    const V ratio = v_div(FG_HORNER(t2, far_gelu_grad_num), FG_HORNER(t2, far_gelu_grad_den));
    const FG_H(tail) r = {e, v_mul(v_mul(t, s), ratio), k};
    return r;
}

#define FG_SIGMOID_TAIL(form, FG_RATE)                                                            \
    static FG_INLINE FG_H(tail) FG_H(far_##form##_tail)(V t, V s, V shifter, int deep)            \
    {                                                                                             \
        const V rate = FG_RATE(t, far_##form##_grad_rate);                                        \
        FG_REDUCE(t, rate, shifter);                                                              \
        const V e = FG_H(times_pow2)(FG_HORNER(f, far_##form##_grad_exp2), FG_H(scale)(k, deep)); \
        const V rest = v_fnma(t, FG_RATE(t, far_##form##_grad_slope), FG_K(one));                 \
        V q = v_mul(rest, s);                                                                     \
        if (FG_DEGREE(far_##form##_grad_inverse)) {                                               \
            const V E = FG_H(number_of)(e, FG_H(fg_deep) && !deep);                               \
            q = v_mul(v_mul(v_add(E, rest), s), FG_HORNER(E, far_##form##_grad_inverse));         \
        }                                                                                         \
        const FG_H(tail) r = {e, q, k};                                                           \
        return r;                                                                                 \
    }

FG_SIGMOID_TAIL(gelu_tanh, FG_CUBIC)
FG_SIGMOID_TAIL(gelu_sigmoid, FG_LINEAR)
FG_SIGMOID_TAIL(silu, FG_LINEAR)

/* p for x < 0, 1 - p else, of one that is as large as one, rounded once. */
static FG_INLINE V FG_H(slope)(V x, V e, V q, V one)
{
    return v_fma(e, q, v_select_negative(x, FG_K(minus_zero), one));
}

/* For every x: p for x < 0, 1 - p else. */
static FG_INLINE V FG_H(everywhere_gelu_grad)(V x)
{
    const V t = FG_H(clamped)(v_abs(x), FG_K(gelu_grad_limit)), t2 = v_mul(t, t);
    FG_REDUCE(t2, FG_TERM(gelu_grad_rate, 0), FG_K(unit_shifter));
    const V e = FG_H(times_pow2)(FG_HORNER(f, gelu_grad_exp2), v_bits(k));
    const V d = v_add(v_sub(FG_K(gelu_zero_hi), t), FG_K(gelu_zero_lo));
    const V ratio = v_div(FG_HORNER(t, gelu_grad_num), FG_HORNER(t, gelu_grad_den));
    const V s = v_select_negative(x, FG_K(unit), FG_K(minus_unit));
    return FG_H(slope)(x, e, v_mul(v_mul(d, s), ratio), FG_K(one));
}

#define FG_SIGMOID_SLOPE_EVERYWHERE(form, FG_RATE)                                \
    static FG_INLINE V FG_H(everywhere_##form##_grad)(V x)                        \
    {                                                                             \
        const V t = FG_H(clamped)(v_abs(x), FG_K(form##_grad_limit));             \
        const V rate = FG_RATE(t, form##_grad_rate);                              \
        FG_REDUCE(t, rate, FG_K(unit_shifter));                                   \
        const V e = FG_H(times_pow2)(FG_HORNER(f, form##_grad_exp2), v_bits(k));  \
        const V rest = v_fnma(t, FG_RATE(t, form##_grad_slope), FG_K(one));       \
        const V E = FG_H(number_of)(e, FG_H(fg_deep)), m = v_sub(FG_K(one), E);   \
        /* (1 + E)^2 with one rounding, where E is about 1 */                     \
        const V d2 = v_fma(m, m, FG_H(small)(E, FG_K(four)));                     \
        const V s = v_select_negative(x, FG_K(unit), FG_K(minus_unit));           \
        return FG_H(slope)(x, e, v_div(v_mul(v_add(E, rest), s), d2), FG_K(one)); \
    }

FG_SIGMOID_SLOPE_EVERYWHERE(gelu_tanh, FG_CUBIC)
FG_SIGMOID_SLOPE_EVERYWHERE(gelu_sigmoid, FG_LINEAR)
FG_SIGMOID_SLOPE_EVERYWHERE(silu, FG_LINEAR)

/* dy times the slope. What v_store will round to infinity becomes that here, so that the flag is
 * raised. */
static FG_INLINE V FG_H(product)(V dy, V slope)
{
    const V dx = FG_H(small)(dy, slope);
    if (!FG_H(fg_deep))
        return dx;
    const V above = FG_H(small)(dx, FG_K(overflow));
    return v_raised(above, dx);
}

static FG_INLINE V FG_H(unlifted)(V dy)
{
    return FG_H(fg_deep) ? FG_H(small)(dy, FG_K(unlift)) : dy;
}

/* dy and what 2^n lacks, in two normal factors; near 0 it lacks nothing. Of a NaN, k would scale it
 * at random. */
static FG_INLINE V FG_H(scaled)(V dy, V x, V n)
{
    if (!FG_H(fg_deep))
        return dy;
    const V k = FG_H(at_least)(n, FG_K(split_thrice));
    const V k0 = v_real(i_min(v_bits(k), v_bits(FG_K(shifter))));
    const V k1 = FG_H(at_least)(k0, FG_K(split)), k2 = FG_H(at_least)(k0, FG_K(split_twice));
    const V once = FG_H(times_pow2)(FG_K(one), i_sub(v_bits(k2), v_bits(k1)));
    const V twice = FG_H(times_pow2)(FG_K(one), i_sub(v_bits(k0), v_bits(k2)));
    return v_select_negative(x, FG_H(small)(FG_H(small)(dy, once), twice), dy);
}

/* Where |x| is no more than fg_<function>_end, dy and the slope are normal numbers if one is made as
 * much smaller, by fg_lift, as the other is made larger. Of a mixed block a slope is -0 at -inf, not
 * just small: it makes NaN of an infinite dy. */
#define FG_SLOPE16(form)                                                                      \
    static FG_INLINE V FG_H(form##_grad)(V x, int near)                                       \
    {                                                                                         \
        if (near > 0)                                                                         \
            return FG_H(form##_grad_by_table)(x, 0);                                          \
        if (near == 0)                                                                        \
            return FG_H(everywhere_##form##_grad)(x);                                         \
        const V s = v_select_negative(x, FG_K(unit), FG_K(minus_unit));                       \
        const FG_H(tail) r = FG_H(far_##form##_tail)(v_abs(x), s, FG_K(unit_shifter), 0);     \
        return FG_H(slope)(x, r.e, r.q, FG_K(one));                                           \
    }                                                                                         \
    static FG_INLINE V FG_H(form##_backward)(V dy, V x, int near)                             \
    {                                                                                         \
        if (near > 0)                                                                         \
            return FG_H(product)(dy, FG_H(form##_grad_by_table)(x, 0));                       \
        if (near < 0) {                                                                       \
            const V s = v_select_negative(x, FG_K(lifted_unit), FG_K(minus_lifted_unit));     \
            const FG_H(tail) r = FG_H(far_##form##_tail)(v_abs(x), s, FG_K(unit_shifter), 0); \
            return FG_H(product)(FG_H(unlifted)(dy), FG_H(slope)(x, r.e, r.q, FG_K(lift)));   \
        }                                                                                     \
        const V t = FG_H(clamped)(v_abs(x), FG_K(form##_backward_limit));                     \
        const V s = v_select_negative(x, FG_K(one), FG_K(minus_one));                         \
        const FG_H(tail) r = FG_H(far_##form##_tail)(t, s, FG_K(shifter), FG_H(fg_deep));     \
        const V far = FG_H(slope)(x, v_select_infinite(x, FG_K(zero), r.e), r.q, FG_K(one));  \
        const V y = v_select_above(FG_K(form##_grad_far), v_abs(x),                           \
                                   FG_H(form##_grad_by_table)(x, 1), far);                    \
        return FG_H(product)(FG_H(scaled)(dy, x, r.k), y);                                    \
    }

FG_SLOPE16(gelu)
FG_SLOPE16(gelu_tanh)
FG_SLOPE16(gelu_sigmoid)
FG_SLOPE16(silu)

/* ---- infinities and NaN ------------------------------------------------------------- */

/* The sum makes a NaN quiet. */
#define FG_PLAIN16(form)                                               \
    static FG_INLINE V FG_H(plain_##form)(V x)                         \
    {                                                                  \
        const V y = v_positive(x);                                     \
        return v_select_infinite(x, y, v_add(x, x));                   \
    }                                                                  \
    static FG_INLINE V FG_H(plain_##form##_grad)(V x)                  \
    {                                                                  \
        const V y = v_select_negative(x, FG_K(minus_zero), FG_K(one)); \
        return v_select_infinite(x, y, v_add(x, x));                   \
    }                                                                  \
    static FG_INLINE V FG_H(plain_##form##_backward)(V dy, V x)        \
    {                                                                  \
        return FG_H(product)(dy, FG_H(plain_##form##_grad)(x));        \
    }

FG_PLAIN16(gelu)
FG_PLAIN16(gelu_tanh)
FG_PLAIN16(gelu_sigmoid)
FG_PLAIN16(silu)

#undef FG_PLAIN16
#undef FG_SLOPE16
#undef FG_NEAR_SLOPE16
#undef FG_NEAR_VALUE16
#undef FG_FROM_TABLE16
#undef FG_SIGMOID_TAIL
#undef FG_SIGMOID_SLOPE_EVERYWHERE
#undef FG_SIGMOID_EVERYWHERE
#undef FG_VALUE16
#undef FG_SIGMOID_VALUE
#undef FG_CUBIC
#undef FG_LINEAR
#undef FG_REDUCE
#undef FG_HORNER
#undef FG_DEGREE
#undef FG_TERM
#undef FG_K
#undef FG_H
