/* SPDX-License-Identifier: BSD-3-Clause */
/* algorithms.h: every value function, written once for every dtype and target.
 *
 * All four forms are x*G(x) with G(-x) = 1 - G(x), and their slopes obey
 * slope(-x) = 1 - slope(x). What is needed is thus the small quantity of the negative
 * side, right relatively, at t = |x|; nothing cancels where it is taken from x or 1:
 *
 *   gelu          y = max(x, 0) - t Phi(-t)
 *   x*s(w) forms  y = max(x, 0) - t E / (1 + E),  E = exp(-w(t))
 *   gelu_grad     P = Phi(-t) - t phi(t)
 *   other slopes  P = E (1 + E - t w'(t)) / (1 + E)^2
 *   slopes        y = P for x < 0, 1 - P for x >= 0
 *
 * Near 0, for t < FG_C(<function>_far), that quantity comes from a table: t is in one of a few
 * equal segments, each with its centre m and a polynomial in t - m (tools/tables.py). That is a
 * third of the operations of the formulas above, and fewer roundings. The centre is near
 * the end where the quantity is smaller, so that most of the polynomial has the sign of its sum; in
 * the segment with the zero of a slope it is that zero, and c[0] what rounding it has left.
 *
 * Far from 0 the formulas hold:
 *
 *   gelu            t Phi(-t) = c exp(-t^2/2) (1 + h(t^2)),       c = 1/sqrt(2 pi)
 *   gelu_grad       -P = t/2 exp(-(t^2 + offset)/2) (1 + h(t^2))
 *   x*s(w) forms    t E (1 - E + E^2), and E/(1 + E) near 0 in float64
 *   other slopes    -P = E (a - E (1 + a (2 + E))/(1 + E)^2),     a = t w'(t) - 1
 *
 * h is a small rational minimax fit, E = exp(-w(t)) = 2^n (1 + q); so they are a number known
 * well times 2^n (1 + z) with a small z. What is rounded where is chosen so that every function
 * stays below 2 ULP and no operation is spent on less (NOTES.md).
 *
 * 2^n leaves the range of normal numbers (x far below 0), so that it is applied in two steps, the
 * second with the last rounding. Where |x| > FG_C(<function>_end), and for NaN, the result is
 * plain: x, -0, and so on.
 *
 *   near_<function>(x, some)      right where |x| < far; if not `some`, all are
 *   near_<function>_by_row        the same, given the row of the table too
 *   far_<function>(x, some)       right where |x| >= far and for NaN; if not `some`, all are, and
 *                                 none exceeds the end
 *   begin_<function>(t)           the first half of that, of which
 *   end_<function>(x, begun, terms, some)   makes the result: array loops do one after the other;
 *                                 with terms = 0 right where |x| > deep: there E counts as 0
 *   plain_<function>(x)           right where |x| > end and for NaN
 *   <function>(x)                 right everywhere, for compilers of Python; the array loops of
 *                                 kernels.h look which of the others does
 *
 * NaN and infinities: t is clamped, NaN too, and the lane gets its plain result at the end. */

/* An unevaluated sum hi + lo. */
typedef struct pair {
    V hi, lo;
} pair;

/* What begin_<function> leaves to end_<function>: the exponential as k and g (see below), or q in
 * place of g where that divides the work better; of gelu h, of a slope a sum a + b. */
typedef struct begun {
    V k, g, a, b;
} begun;

#define FG_C(name) v_set(FG_NAME(fg_##name))

/* ---- building blocks ---------------------------------------------------- */

#define FG_COUNT(array) ((int)(sizeof(array) / sizeof((array)[0])))

/* float64 needs more terms, which bring more rounding errors: some more care takes them out. */
#define FG_CAREFUL (FG_COUNT(FG_NAME(fg_silu_exp)) > 8)

/* c[from] + c[from + 1] x + ... + c[to] x^(to - from): in pairs of terms, and pairs of pairs
 * where it is long, by Horner's rule in x^2 or x^4. That takes hardly more operations than
 * Horner's rule in x does, in half the time, and fewer rounding errors of full weight where x
 * is large. */
static FG_INLINE V polynomial(V x, V x2, const T *c, int from, int to)
{
    const int step = to - from < 8 ? 2 : 4;
    const V power = step == 2 ? x2 : v_mul(x2, x2);
    V sum = power;
    for (int i = to - (to - from) % step; i >= from; i -= step) {
        V part = v_set(c[i]);
        if (i < to)
            part = v_fma(x, v_set(c[i + 1]), part);
        if (step == 4 && i + 2 <= to) {
            V high = v_set(c[i + 2]);
            if (i + 2 < to)
                high = v_fma(x, v_set(c[i + 3]), high);
            part = v_fma(x2, high, part);
        }
        sum = i + step > to ? part : v_fma(sum, power, part);
    }
    return sum;
}
#define FG_POLYNOMIAL(x, x2, name) \
    polynomial(x, x2, FG_NAME(fg_##name), 0, FG_COUNT(FG_NAME(fg_##name)) - 1)

/* The same with c[0] last: one rounding where x is small. */
#define FG_POLYNOMIAL_NEAR_0(x, x2, name)                                                \
    v_fma(x, polynomial(x, x2, FG_NAME(fg_##name), 1, FG_COUNT(FG_NAME(fg_##name)) - 1), \
          v_set(FG_NAME(fg_##name)[0]))

/* a * b exactly, but for underflow. */
static FG_INLINE pair two_product(V a, V b)
{
    pair r;
    r.hi = v_mul(a, b);
    r.lo = v_fms(a, b, r.hi);
    return r;
}

/* a * b where that may be subnormal. Some processors take the time of thirty multiplications for
 * one whose result is, but not for a fused one. */
static FG_INLINE V product(V a, V b)
{
    return v_fma(a, b, FG_C(minus_zero));
}

/* ---- powers of two and the exponential ----------------------------------- */

/* An integer n is carried as k = n + FG_C(shifter), whose low bits are those of n plus
 * the exponent bias; or as n + FG_C(raised), so that what pow2 makes of it is 2^n times the
 * constant 1/FG_C(lowered), with room below. */

/* 2^n */
static FG_INLINE V pow2(V k)
{
    return v_real(i_to_exponent(v_bits(k)));
}

/* 2^(n - m) for k = n + shifter, j = m + shifter */
static FG_INLINE V pow2_ratio(V k, V j)
{
    return v_real(i_add(i_to_exponent(i_sub(v_bits(k), v_bits(j))), v_bits(FG_C(one))));
}

static FG_INLINE V at_least(V k, V j)
{
    return v_real(i_max(v_bits(k), v_bits(j)));
}

static FG_INLINE V at_most(V k, V j)
{
    return v_real(i_min(v_bits(k), v_bits(j)));
}

/* exp(rate u) = 2^n (1 + g r): n is the integer nearest to u rate log2(e), which comes as k,
 * g = u - n ln2/rate, and r = expm1(rate g)/g a minimax fit. The rate belongs to the form, so
 * that u is t^2, x or t with no multiplication. u is a sum; u.hi less the high part of
 * n ln2/rate is exact. */
#define FG_EXPONENT(u, form, shifter) v_fma(u, FG_C(form##_log2e), shifter)
#define FG_REDUCED(u, n, form) \
    v_add(v_fnma(n, FG_C(form##_step_hi), (u).hi), v_fnma(n, FG_C(form##_step_lo), (u).lo))
#define FG_EXPM1_OVER(g, form) FG_POLYNOMIAL_NEAR_0(g, v_mul(g, g), form##_exp)

/* 2^n, or what is kept of it for now: a normal number with room below */
static FG_INLINE V power_kept(V k)
{
    return pow2(at_least(k, FG_C(split)));
}

/* ---- near 0 --------------------------------------------------------------- */

/* min(t, limit); NaN gives limit too */
static FG_INLINE V clamped(V t, V limit, int some)
{
    return some ? at_most(t, limit) : t;
}

/* The polynomial of the segment of t. In float64, where it is long, the terms from d^2 on are added
 * up apart, even and odd ones side by side: that takes less time, and leaves the first term, which
 * decides next to a zero, with the rounding of its coefficient and of the sum alone. Entries are in
 * the order of use, m, then the coefficients from the highest on, so that few registers are taken.
 * The very last coefficient is in the low bits of the one before it, whose own rounding those
 * are: they count so little there that the fit makes up for them, and loads are what takes time. */
static FG_INLINE V from_table(V t, R row, int columns)
{
    const V d = v_sub(t, v_entry(row, 0));
    if (FG_CAREFUL) {
        const V d2 = product(d, d);
        V even = v_entry(row, 1), odd = v_real(i_to_second(v_bits(even)));
        for (int i = 2; i < columns - 3; i += 2) {
            odd = v_fma(d2, odd, v_entry(row, i));
            even = v_fma(d2, even, v_entry(row, i + 1));
        }
        const V first = v_entry(row, columns - 2);
        even = v_fma(d2, v_fma(d, odd, even), v_entry(row, columns - 1));
        return v_fma(d, first, even);
    }
    V sum = v_entry(row, columns - 1);
    for (int i = columns - 2; i > 0; i--)
        sum = v_fma(d, sum, v_entry(row, i));
    return sum;
}
#define FG_FROM_ROW(t, row, name) from_table(t, row, FG_NAME(fg_##name##_columns))

/* The segment of t is in the low bits. */
#define FG_SEGMENT(t, name) v_bits(v_fma(t, FG_C(name##_per), FG_C(round)))
#define FG_ROW(t, name)                                                                        \
    v_row(FG_NAME(fg_##name##_table), FG_NAME(fg_##name##_rows), FG_NAME(fg_##name##_columns), \
          FG_SEGMENT(t, name))
#define FG_ROW_OF(x, name, some) FG_ROW(clamped(v_abs(x), FG_C(name##_near), some), name)

/* What remains of x; a zero keeps its sign: -0 - (+0). */
#define FG_VALUE_FROM_ROW(x, t, row, name) v_sub(v_positive(x), FG_FROM_ROW(t, row, name))

/* near_<function>_by_row(x, row, some): by the row of |x|, which was looked up before. */
#define FG_NEAR_VALUE(form)                                                \
    static FG_INLINE V FG_NAME(near_##form##_by_row)(V x, R row, int some) \
    {                                                                      \
        const V t = clamped(v_abs(x), FG_C(form##_near), some);            \
        return FG_VALUE_FROM_ROW(x, t, row, form);                         \
    }
#define FG_NEAR_SLOPE(form)                                                                   \
    static FG_INLINE V FG_NAME(near_##form##_grad_by_row)(V x, R row, int some)               \
    {                                                                                         \
        const V t = clamped(v_abs(x), FG_C(form##_grad_near), some);                          \
        const V p = FG_FROM_ROW(t, row, form##_grad);                                         \
        return v_select_negative(x, p, v_sub(FG_C(one), p));                                  \
    }                                                                                         \
    static FG_INLINE V FG_NAME(near_##form##_backward_by_row)(V dy, V x, R row, int some)     \
    {                                                                                         \
        const V slope = FG_NAME(near_##form##_grad_by_row)(x, row, some);                     \
        const V t = v_abs(x), none = FG_C(zero); /* NaN is not near */                        \
        return v_mul(some ? v_select_above(FG_C(form##_grad_far), t, dy, none) : dy, slope);  \
    }                                                                                         \
    static FG_INLINE V FG_NAME(near_##form##_grad)(V x, int some)                             \
    {                                                                                         \
        return FG_NAME(near_##form##_grad_by_row)(x, FG_ROW_OF(x, form##_grad, some), some);  \
    }                                                                                         \
    static FG_INLINE V FG_NAME(near_##form##_backward)(V dy, V x, int some)                   \
    {                                                                                         \
        return FG_NAME(near_##form##_backward_by_row)(dy, x, FG_ROW_OF(x, form##_grad, some), \
                                                      some);                                  \
    }
FG_NEAR_VALUE(gelu)
FG_NEAR_VALUE(gelu_tanh)
FG_NEAR_VALUE(gelu_sigmoid)
FG_NEAR_VALUE(silu)
FG_NEAR_SLOPE(gelu)
FG_NEAR_SLOPE(gelu_tanh)
FG_NEAR_SLOPE(gelu_sigmoid)
FG_NEAR_SLOPE(silu)

/* ---- values --------------------------------------------------------------- */

static FG_INLINE V signed_clamped(V x, V limit, int some)
{
    return some ? v_copysign(clamped(v_abs(x), limit, some), x) : x;
}

/* x or -0 where |x| > limit; NaN. */
static FG_INLINE V plain_value(V x, V limit)
{
    const V large = v_select_negative(x, FG_C(minus_zero), x);
    return v_select_above(v_abs(x), limit, large, v_mul(x, FG_C(half)));
}

/* NaN of NaN, else a number. */
static FG_INLINE V nan_or_half(V t, V limit)
{
    return v_fma(v_select_above(t, limit, limit, t), FG_C(zero), FG_C(half));
}

static FG_INLINE V plain_slope(V x, V limit)
{
    const V t = v_abs(x);
    const V large = v_select_negative(x, FG_C(minus_zero), FG_C(one));
    return v_select_above(t, limit, large, nan_or_half(t, limit));
}

/* y where t is neither above the limit nor NaN, else plain. */
static FG_INLINE V unless_plain(V t, V limit, V y, V plain)
{
    return v_select_above(t, limit, plain, v_select_above(t, FG_C(one), y, plain));
}

static FG_INLINE V FG_NAME(near_gelu)(V x, int some)
{
    return FG_NAME(near_gelu_by_row)(x, FG_ROW_OF(x, gelu, some), some);
}

/* What remains of x, of the small quantity p lowered. */
static FG_INLINE V finish_value(V x, V limit, V p, int some)
{
    const V base =
        some ? v_select_negative(x, FG_C(minus_zero), clamped(v_abs(x), limit, 1)) : v_positive(x);
    const V y = v_fnma(p, FG_C(lowered), base);
    return some ? unless_plain(v_abs(x), limit, y, plain_value(x, limit)) : y;
}

static FG_INLINE begun FG_NAME(begin_gelu)(V t)
{
    const pair u = two_product(t, t);
    const V k = FG_EXPONENT(u.hi, gelu, FG_C(raised));
    const V n = v_sub(k, FG_C(raised));
    const V g = FG_REDUCED(u, n, gelu);
    const V u2 = v_mul(u.hi, u.hi);
    const V h = v_div(FG_POLYNOMIAL(u.hi, u2, gelu_num), FG_POLYNOMIAL(u.hi, u2, gelu_den));
    const begun s = {k, g, h, h};
    return s;
}

/* (1 + h)(1 + g r) - 1 */
static FG_INLINE V joined(V g, V h)
{
    return v_fma(v_fma(g, h, g), FG_EXPM1_OVER(g, gelu), h);
}

static FG_INLINE V FG_NAME(end_gelu)(V x, begun s, int terms, int some)
{
    (void)terms;
    const V high = v_mul(FG_C(gelu_scale), pow2(s.k));
    return finish_value(x, FG_C(gelu_limit), v_fma(high, joined(s.g, s.a), high), some);
}

static FG_INLINE V FG_NAME(far_gelu)(V x, int some)
{
    const V t = clamped(v_abs(x), FG_C(gelu_limit), some);
    return FG_NAME(end_gelu)(x, FG_NAME(begin_gelu)(t), 1, some);
}

/* x / (1 + 2^n (1 + g r)) where |n| < the precision, so that 1 + 2^n is exact. The rounding of the
 * denominator and of the quotient make up most of the error: below 2 ULP together. */
static FG_INLINE V times_sigmoid(V x, V k, V g, V r)
{
    const V scale = pow2(k);
    return v_div(x, v_fma(v_mul(g, scale), r, v_add(FG_C(one), scale)));
}

/* How many terms of E matter beside 1: none on the way deep; else fg_<function>_terms, one where
 * E is so small at the end of the near way that E^2 does not matter. On the other ways too E counts
 * as 0 above FG_C(<function>_deep). */
#define FG_TERMS(name) FG_NAME(fg_##name##_terms)

/* E = 2^n (1 + q), of scale = 2^n / unit */
static FG_INLINE V exponential_beside_1(V q, V scale, V unit, V t, V deep)
{
    const V e = v_mul(v_fma(q, scale, scale), unit);
    return v_select_negative(v_sub(deep, t), FG_C(zero), e);
}

/* t E / (1 + E) = t E (1 - E + E^2), where E = 2^n (1 + g r); lowered */
static FG_INLINE V small_side(V t, V k, V g, V r, V deep, int terms)
{
    const V scale = pow2(k), high = v_mul(t, scale), q = v_mul(g, r);
    V z = q;
    if (terms) {
        const V e = exponential_beside_1(q, scale, FG_C(lowered), t, deep);
        const V c = terms == 1 ? v_neg(e) : v_fms(e, e, e);
        z = v_fma(g, r, v_fma(q, c, c)); /* q + c (1 + q), without the rounding of q */
    }
    return v_fma(high, z, high);
}

/* w(t)/rate = t + cubic t^3 of the tanh form, rate = 2 sqrt(2/pi); to twice the precision. */
static FG_INLINE pair tanh_argument(V t)
{
    const pair square = two_product(t, t);
    const V cubic = FG_C(tanh_cubic_hi);
    pair f;
    f.hi = v_fma(cubic, square.hi, FG_C(one));
    f.lo = v_fms(cubic, square.hi, v_sub(f.hi, FG_C(one)));
    f.lo = v_fma(FG_C(tanh_cubic_lo), square.hi, v_fma(cubic, square.lo, f.lo));
    pair v = two_product(t, f.hi);
    v.lo = v_fma(t, f.lo, v.lo);
    return v;
}

/* The exponential exp(-w(x)) as k and g, for what comes of it. */
#define FG_TANH_EXPONENTIAL(x, shifter)                \
    const pair u = tanh_argument(v_neg(x));            \
    const V k = FG_EXPONENT(u.hi, gelu_tanh, shifter); \
    const V n = v_sub(k, shifter);                     \
    const V g = FG_REDUCED(u, n, gelu_tanh)
#define FG_LINEAR_EXPONENTIAL(x, form, shifter) \
    const V u = v_neg(x);                       \
    const V k = FG_EXPONENT(u, form, shifter);  \
    const V n = v_sub(k, shifter);              \
    const V g = v_fnma(n, FG_C(form##_step_lo), v_fnma(n, FG_C(form##_step_hi), u))
#define FG_GELU_TANH_EXPONENTIAL(x, shifter) FG_TANH_EXPONENTIAL(x, shifter)
#define FG_GELU_SIGMOID_EXPONENTIAL(x, shifter) FG_LINEAR_EXPONENTIAL(x, gelu_sigmoid, shifter)
#define FG_SILU_EXPONENTIAL(x, shifter) FG_LINEAR_EXPONENTIAL(x, silu, shifter)

/* In float64 the formulas of gelu_sigmoid and silu are faster near 0 too: there are no tables. */
#define FG_SIGMOID_VALUE(form, exponential)                                            \
    static FG_INLINE V FG_NAME(form##_formula)(V x)                                    \
    {                                                                                  \
        exponential(x, FG_C(shifter));                                                 \
        return times_sigmoid(x, k, g, FG_EXPM1_OVER(g, form));                         \
    }                                                                                  \
    static FG_INLINE V FG_NAME(near_##form)(V x, int some)                             \
    {                                                                                  \
        const V limit = FG_C(form##_near);                                             \
        return FG_NAME(fg_##form##_columns)                                            \
                   ? FG_NAME(near_##form##_by_row)(x, FG_ROW_OF(x, form, some), some)  \
                   : FG_NAME(form##_formula)(signed_clamped(x, limit, some));          \
    }                                                                                  \
    static FG_INLINE begun FG_NAME(begin_##form)(V t)                                  \
    {                                                                                  \
        exponential(t, FG_C(raised));                                                  \
        const begun s = {k, g, g, g};                                                  \
        return s;                                                                      \
    }                                                                                  \
    static FG_INLINE V FG_NAME(end_##form)(V x, begun s, int terms, int some)          \
    {                                                                                  \
        const V limit = FG_C(form##_limit);                                            \
        const V t = clamped(v_abs(x), limit, some);                                    \
        const V r = FG_EXPM1_OVER(s.g, form);                                          \
        const V p = small_side(t, s.k, s.g, r, FG_C(form##_deep), terms);              \
        return finish_value(x, limit, p, some);                                        \
    }                                                                                  \
    static FG_INLINE V FG_NAME(far_##form)(V x, int some)                              \
    {                                                                                  \
        const V t = clamped(v_abs(x), FG_C(form##_limit), some);                       \
        return FG_NAME(end_##form)(x, FG_NAME(begin_##form)(t), FG_TERMS(form), some); \
    }
FG_SIGMOID_VALUE(gelu_tanh, FG_GELU_TANH_EXPONENTIAL)
FG_SIGMOID_VALUE(gelu_sigmoid, FG_GELU_SIGMOID_EXPONENTIAL)
FG_SIGMOID_VALUE(silu, FG_SILU_EXPONENTIAL)

/* ---- slopes ----------------------------------------------------------------- */

/* Of a slope, from where on its exponential is carried: raised, and for backward, whose slopes
 * leave that range too, as it is. */
static FG_INLINE begun FG_NAME(begin_gelu_slope)(V t, V shifter)
{
    const pair u = two_product(t, t);
    const V offset = FG_C(gelu_grad_offset), halved = v_sub(shifter, FG_C(one)); /* 2^n / 2 */
    const V k = v_fma(v_add(u.hi, offset), FG_C(gelu_log2e), halved);
    const V n = v_sub(k, halved);
    const V g = v_add(v_add(v_fnma(n, FG_C(gelu_step_hi), u.hi), offset),
                      v_fnma(n, FG_C(gelu_step_lo), u.lo));
    const V u2 = v_mul(u.hi, u.hi);
    const V h =
        v_div(FG_POLYNOMIAL(u.hi, u2, gelu_grad_num), FG_POLYNOMIAL(u.hi, u2, gelu_grad_den));
    const begun s = {k, g, h, h};
    return s;
}

static FG_INLINE V FG_NAME(end_gelu_slope)(V t, begun s, V scale, V unit, int terms)
{
    (void)terms;
    (void)unit;
    const V high = v_mul(t, scale);
    return v_fma(high, joined(s.g, s.a), high);
}

/* The slopes of the sigmoid forms at -t, E = 2^n (1 + q), a a sum that exceeds 3. */
static FG_INLINE V sigmoid_slope(V t, V scale, V unit, V q, pair a, V deep, int terms)
{
    V low = a.lo;
    if (terms) {
        const V e = exponential_beside_1(q, scale, unit, t, deep);
        const V s = v_add(e, FG_C(two));
        const V whole = v_fma(v_add(a.hi, a.lo), terms == 1 ? FG_C(two) : s, FG_C(one));
        const V lost = v_mul(e, whole);
        low = v_sub(low, terms == 1 ? lost : v_div(lost, v_fma(e, s, FG_C(one))));
    }
    return v_mul(v_add(a.hi, v_fma(a.hi, q, v_fma(low, q, low))), scale);
}
#define FG_SIGMOID_SLOPE(form, q, a) \
    sigmoid_slope(t, scale, unit, q, a, FG_C(form##_grad_deep), terms)

static FG_INLINE begun FG_NAME(begin_silu_slope)(V t, V shifter)
{
    FG_SILU_EXPONENTIAL(t, shifter);
    const V q = v_mul(g, FG_EXPM1_OVER(g, silu));
    const begun s = {k, q, q, q};
    return s;
}

static FG_INLINE V FG_NAME(end_silu_slope)(V t, begun s, V scale, V unit, int terms)
{
    const pair a = {v_sub(t, FG_C(one)), FG_C(zero)};
    return FG_SIGMOID_SLOPE(silu, s.g, a);
}

static FG_INLINE begun FG_NAME(begin_gelu_sigmoid_slope)(V t, V shifter)
{
    FG_GELU_SIGMOID_EXPONENTIAL(t, shifter);
    pair a = two_product(t, FG_C(gelu_sigmoid_rate_hi));
    a.hi = v_sub(a.hi, FG_C(one)); /* exact */
    a.lo = v_fma(t, FG_C(gelu_sigmoid_rate_lo), a.lo);
    const begun s = {k, v_mul(g, FG_EXPM1_OVER(g, gelu_sigmoid)), a.hi, a.lo};
    return s;
}

static FG_INLINE V FG_NAME(end_gelu_sigmoid_slope)(V t, begun s, V scale, V unit, int terms)
{
    const pair a = {s.a, s.b};
    return FG_SIGMOID_SLOPE(gelu_sigmoid, s.g, a);
}

static FG_INLINE begun FG_NAME(begin_gelu_tanh_slope)(V t, V shifter)
{
    FG_GELU_TANH_EXPONENTIAL(t, shifter);
    /* w'(t) = c + 3 b t^2: c has few bits, so that the rounding error of the sum is a number */
    const pair square = two_product(v_neg(t), v_neg(t)); /* as in u */
    const V c = FG_C(tanh_slope_hi), b = FG_C(tanh_curve_hi);
    pair slope;
    slope.hi = v_fma(b, square.hi, c);
    slope.lo = v_add(v_fms(b, square.hi, v_sub(slope.hi, c)), FG_C(tanh_slope_lo));
    slope.lo = v_fma(b, square.lo, slope.lo);
    if (FG_CAREFUL) /* in float32 b happens to be right to 30 bits */
        slope.lo = v_fma(FG_C(tanh_curve_lo), square.hi, slope.lo);
    pair a = two_product(t, slope.hi);
    a.hi = v_sub(a.hi, FG_C(one));
    a.lo = v_fma(t, slope.lo, a.lo);
    const begun s = {k, g, a.hi, a.lo};
    return s;
}

static FG_INLINE V FG_NAME(end_gelu_tanh_slope)(V t, begun s, V scale, V unit, int terms)
{
    const pair a = {s.a, s.b};
    return FG_SIGMOID_SLOPE(gelu_tanh, v_mul(s.g, FG_EXPM1_OVER(s.g, gelu_tanh)), a);
}

static FG_INLINE V finish_slope(V x, V limit, V p, int some)
{
    const V base = v_select_negative(x, FG_C(minus_zero), FG_C(one));
    const V y = v_fma(v_copysign(p, x), FG_C(lowered), base);
    return some ? unless_plain(v_abs(x), limit, y, plain_slope(x, limit)) : y;
}

/* dy times the slope of a plain x. Of a finite x far below 0 that is not 0, just small: it makes
 * a zero of a finite dy, and no NaN of an infinite one. */
static FG_INLINE V plain_backward(V dy, V x, V limit)
{
    const V t = v_abs(x), none = v_copysign(FG_C(zero), dy);
    const V beyond = v_real(i_sub(v_bits(FG_C(largest)), v_bits(v_abs(dy))));
    const V reduced = v_select_infinite(x, dy, v_select_negative(beyond, dy, none));
    const V slope = v_select_infinite(x, FG_C(minus_zero), FG_C(minus_half));
    const V large = v_select_negative(x, slope, FG_C(one));
    const V large_dy = v_select_negative(x, reduced, dy);
    /* a product, but one that no compiler takes out for a slope of 1: it quiets a NaN */
    return v_fma(v_select_above(t, limit, large_dy, dy),
                 v_select_above(t, limit, large, nan_or_half(t, limit)), FG_C(minus_zero));
}

/* dy * slope. Slopes down to 2^-290 (2^-2140 in f64) count, since dy may be as large as
 * 2^128 (2^1024): what 2^n lacks goes with dy, in two normal factors, the second of which is 1 up to
 * fg_<function>_end. The slope at -inf is -0, not just small: it makes NaN of an infinite dy. */
static FG_INLINE V finish_backward(V dy, V x, V limit, V p, V k, int some)
{
    const V k1 = some ? at_least(k, FG_C(split_twice)) : k;
    V scaled_dy = product(dy, pow2_ratio(k1, at_least(k, FG_C(split))));
    if (some)
        scaled_dy = product(scaled_dy, pow2_ratio(k, k1));
    const V slope = v_select_negative(x, v_neg(p), v_add(FG_C(one), p));
    const V y = product(v_select_negative(x, scaled_dy, dy), slope);
    return some ? unless_plain(v_abs(x), limit, y, plain_backward(dy, x, limit)) : y;
}

#define FG_PLAIN_VALUE(form)                       \
    static FG_INLINE V FG_NAME(plain_##form)(V x)  \
    {                                              \
        return plain_value(x, FG_C(form##_limit)); \
    }

FG_PLAIN_VALUE(gelu)
FG_PLAIN_VALUE(gelu_tanh)
FG_PLAIN_VALUE(gelu_sigmoid)
FG_PLAIN_VALUE(silu)

#define FG_SLOPE(form)                                                                         \
    static FG_INLINE V FG_NAME(plain_##form##_grad)(V x)                                       \
    {                                                                                          \
        return plain_slope(x, FG_C(form##_limit));                                             \
    }                                                                                          \
    static FG_INLINE V FG_NAME(plain_##form##_backward)(V dy, V x)                             \
    {                                                                                          \
        return plain_backward(dy, x, FG_C(form##_backward_limit));                             \
    }                                                                                          \
    static FG_INLINE begun FG_NAME(begin_##form##_grad)(V t)                                   \
    {                                                                                          \
        return FG_NAME(begin_##form##_slope)(t, FG_C(raised));                                 \
    }                                                                                          \
    static FG_INLINE begun FG_NAME(begin_##form##_backward)(V t)                               \
    {                                                                                          \
        return FG_NAME(begin_##form##_slope)(t, FG_C(shifter));                                \
    }                                                                                          \
    static FG_INLINE V FG_NAME(end_##form##_grad)(V x, begun s, int terms, int some)           \
    {                                                                                          \
        const V limit = FG_C(form##_limit), t = clamped(v_abs(x), limit, some);                \
        const V scale = pow2(s.k), unit = FG_C(lowered);                                       \
        return finish_slope(x, limit, FG_NAME(end_##form##_slope)(t, s, scale, unit, terms),   \
                            some);                                                             \
    }                                                                                          \
    static FG_INLINE V FG_NAME(end_##form##_backward)(V dy, V x, begun s, int terms, int some) \
    {                                                                                          \
        const V limit = FG_C(form##_backward_limit), t = clamped(v_abs(x), limit, some);       \
        const V scale = power_kept(s.k), unit = FG_C(one);                                     \
        const V p = FG_NAME(end_##form##_slope)(t, s, scale, unit, terms);                     \
        return finish_backward(dy, x, limit, p, s.k, some);                                    \
    }                                                                                          \
    static FG_INLINE V FG_NAME(far_##form##_grad)(V x, int some)                               \
    {                                                                                          \
        const V t = clamped(v_abs(x), FG_C(form##_limit), some);                               \
        return FG_NAME(end_##form##_grad)(x, FG_NAME(begin_##form##_grad)(t),                  \
                                          FG_TERMS(form##_grad), some);                        \
    }                                                                                          \
    static FG_INLINE V FG_NAME(far_##form##_backward)(V dy, V x, int some)                     \
    {                                                                                          \
        const V t = clamped(v_abs(x), FG_C(form##_backward_limit), some);                      \
        return FG_NAME(end_##form##_backward)(dy, x, FG_NAME(begin_##form##_backward)(t),      \
                                              FG_TERMS(form##_grad), some);                    \
    }

FG_SLOPE(gelu)
FG_SLOPE(gelu_tanh)
FG_SLOPE(gelu_sigmoid)
FG_SLOPE(silu)

/* ---- everywhere --------------------------------------------------------------- */

/* NaN is not below far */
#define FG_EVERYWHERE(name)                                                           \
    static FG_INLINE V FG_NAME(name)(V x)                                             \
    {                                                                                 \
        return v_select_above(FG_C(name##_far), v_abs(x), FG_NAME(near_##name)(x, 1), \
                              FG_NAME(far_##name)(x, 1));                             \
    }
#define FG_EVERYWHERE_2(name)                                                             \
    static FG_INLINE V FG_NAME(name)(V dy, V x)                                           \
    {                                                                                     \
        return v_select_above(FG_C(name##_far), v_abs(x), FG_NAME(near_##name)(dy, x, 1), \
                              FG_NAME(far_##name)(dy, x, 1));                             \
    }
FG_EVERYWHERE(gelu)
FG_EVERYWHERE(gelu_tanh)
FG_EVERYWHERE(gelu_sigmoid)
FG_EVERYWHERE(silu)
FG_EVERYWHERE(gelu_grad)
FG_EVERYWHERE(gelu_tanh_grad)
FG_EVERYWHERE(gelu_sigmoid_grad)
FG_EVERYWHERE(silu_grad)
FG_EVERYWHERE_2(gelu_backward)
FG_EVERYWHERE_2(gelu_tanh_backward)
FG_EVERYWHERE_2(gelu_sigmoid_backward)
FG_EVERYWHERE_2(silu_backward)

#undef FG_SLOPE
#undef FG_EVERYWHERE
#undef FG_EVERYWHERE_2
#undef FG_SIGMOID_VALUE
