/* SPDX-License-Identifier: BSD-3-Clause */
/* algorithms.h: every value function, written once for every dtype and target.
 *
 * All four forms are x*G(x) with G(-x) = 1 - G(x), and their slopes obey
 * slope(-x) = 1 - slope(x). What is needed is thus the small quantity of the negative
 * side, right relatively, at t = |x|; nothing cancels where it is taken from x or 1:
 *
 *   gelu          y = max(x, 0) - L,
 *                 L = t Phi(-t) = t/(alpha + beta t) exp(-t^2/2) (1 + h(t))
 *   x*s(w) forms  y = max(x, 0) - t E / (1 + E),  E = exp(-w(t));
 *                 near 0 in float64 y = x / (1 + exp(-w(x)))
 *   gelu_grad     P = c (t0 - t) exp(-t^2/2) (1 + h(t))
 *   other slopes  P = E (1 + E - t w'(t)) / (1 + E)^2
 *   slopes        y = P for x < 0, 1 - P for x >= 0
 *
 * Near 0, for t < FG_C(<function>_far), that quantity comes from a table: t is in one of a few
 * equal segments, each with its centre m and a polynomial in t - m (tools/tables.py). That is a
 * third of the operations of the formulas above, and fewer roundings. The centre is near
 * the end where the quantity is smaller, so that most of the polynomial has the sign of its sum; in
 * the segment with the zero of a slope it is that zero, and c[0] what rounding it has left.
 *
 * Far from 0 the formulas hold. h is a rational minimax fit (tools/generate_coefficients.py), t0
 * the zero of the slope; alpha, beta and c keep h small, so that its rounding errors count little.
 * Results are a number known well times 1 + z with a small z, or a quotient mended by its
 * remainder; what is rounded where is chosen so that every function stays below 2 ULP and no
 * operation is spent on less (NOTES.md).
 *
 * A power of two is applied in two steps where it may leave the range of normal numbers
 * (x far below 0), the second to the finished result, so that it is rounded once. Where
 * |x| > FG_C(<function>_end), and for NaN, the result is plain: x, -0, and so on.
 *
 *   near_<function>(x, some)      right where |x| < far; if not `some`, all are
 *   near_<function>_by_row        the same, given the row of the table too
 *   far_<function>(x, some)       right where |x| >= far and for NaN; if not `some`, all are, and
 *                                 none exceeds the end
 *   plain_<function>(x)           right where |x| > end and for NaN
 *   <function>(x)                 right everywhere, for compilers of Python; the array loops of
 *                                 kernels.h look which of the others does
 *
 * NaN and infinities: t is clamped, NaN too, and the lane gets its plain result at the end. */

/* An unevaluated sum hi + lo. */
typedef struct pair {
    V hi, lo;
} pair;

#define FG_C(name) v_set(FG_NAME(fg_##name))

/* ---- building blocks ---------------------------------------------------- */

#define FG_COUNT(array) ((int)(sizeof(array) / sizeof((array)[0])))

/* float64 needs more terms, which bring more rounding errors: some more care takes them out. */
#define FG_CAREFUL (FG_COUNT(FG_NAME(fg_gelu_num)) > 8)

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

/* a + b exactly, for |a| >= |b| or a = 0. */
static FG_INLINE pair fast_two_sum(V a, V b)
{
    pair r;
    r.hi = v_add(a, b);
    r.lo = v_add(v_sub(a, r.hi), b);
    return r;
}

/* a + b exactly. */
static FG_INLINE pair two_sum(V a, V b)
{
    pair r;
    r.hi = v_add(a, b);
    const V a_part = v_sub(r.hi, b);
    const V b_part = v_sub(r.hi, a_part);
    r.lo = v_add(v_sub(a, a_part), v_sub(b, b_part));
    return r;
}

/* a * b exactly, but for underflow. */
static FG_INLINE pair two_product(V a, V b)
{
    pair r;
    r.hi = v_mul(a, b);
    r.lo = v_fms(a, b, r.hi);
    return r;
}

/* The number t0 (two constants) minus t, right relatively to the last place. */
static FG_INLINE pair distance(V t0_hi, V t0_lo, V t)
{
    const pair r = two_sum(t0_hi, v_neg(t));
    return fast_two_sum(r.hi, v_add(r.lo, t0_lo));
}

/* ---- powers of two and the exponential ----------------------------------- */

/* An integer n is carried as k = n + FG_C(shifter), whose low bits are those of n plus
 * the exponent bias. */

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
#define FG_EXPONENT(u, form) v_fma(u, FG_C(form##_log2e), FG_C(form##_shifter))
#define FG_REDUCED(u, n, form) \
    fast_two_sum(v_fnma(n, FG_C(form##_step_hi), (u).hi), v_fnma(n, FG_C(form##_step_lo), (u).lo))
#define FG_EXPM1_OVER(g, form) FG_POLYNOMIAL_NEAR_0(g, v_mul(g, g), form##_exp)

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
        const V d2 = v_mul(d, d);
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
#define FG_VALUE_FROM_ROW(x, t, row, name) \
    v_sub(v_select_negative(x, FG_C(minus_zero), x), FG_FROM_ROW(t, row, name))

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

/* A small quantity p 2^(n - m), where m = n unless that needs two steps: then m is the first. */
typedef struct tail {
    V p, k;
} tail;

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

static FG_INLINE V FG_NAME(far_gelu)(V x, int some)
{
    const V limit = FG_C(gelu_limit);
    const V t = clamped(v_abs(x), limit, some);
    const pair u = two_product(t, t);
    const V k = FG_EXPONENT(u.hi, gelu);
    const V n = v_sub(k, FG_C(gelu_shifter));
    const V h = v_div(FG_POLYNOMIAL(t, u.hi, gelu_num), FG_POLYNOMIAL(t, u.hi, gelu_den));
    /* b = t/(alpha + beta t), a sum: d - alpha and the remainder of the division are exact */
    const V d = v_fma(t, FG_C(gelu_beta), FG_C(gelu_alpha));
    const V d_lo = v_fms(t, FG_C(gelu_beta), v_sub(d, FG_C(gelu_alpha)));
    const V inverse = v_div(FG_C(one), d);
    const V b = v_mul(t, inverse);
    const V b_lo = v_mul(v_fnma(b, d_lo, v_fnma(b, d, t)), inverse);
    const V g = FG_REDUCED(u, n, gelu).hi;
    const V r = FG_EXPM1_OVER(g, gelu);
    const V k_split = at_least(k, FG_C(split));
    const V scale = pow2(k_split);
    const V high = v_mul(b, scale), low = v_mul(b_lo, scale);
    /* (1 + h)(1 + g r) = 1 + z */
    const V z = v_fma(v_fma(g, h, g), r, h);
    const V base = v_select_negative(x, FG_C(minus_zero), t);
    const V y = v_sub(v_sub(base, high), v_fma(high, z, v_fma(low, z, low)));
    const V scaled = v_select_negative(x, v_mul(y, pow2_ratio(k, k_split)), y);
    return some ? unless_plain(v_abs(x), limit, scaled, plain_value(x, limit)) : scaled;
}

/* x / (1 + 2^n (1 + g r)) where |n| < the precision, so that 1 + 2^n is exact. The rounding of the
 * denominator and of the quotient make up most of the error: below 2 ULP together. */
static FG_INLINE V times_sigmoid(V x, V k, V g, V r)
{
    const V scale = pow2(k);
    return v_div(x, v_fma(v_mul(g, scale), r, v_add(FG_C(one), scale)));
}

/* t E / (1 + E) where E = 2^n (1 + g r) is so small that 1/(1 + E) = 1 - E + E^2. */
static FG_INLINE tail small_side(V t, V k, V g, V r)
{
    const V scale = pow2(at_least(k, FG_C(split)));
    const V q = v_mul(g, r), e = v_fma(q, scale, scale);
    const V c = v_fms(e, e, e);
    const V z = v_fma(q, c, v_add(q, c)), high = v_mul(t, scale);
    const tail small = {v_fma(high, z, high), k};
    return small;
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

/* The exponential exp(-w(x)) as k, g and r, for what comes of it. */
#define FG_TANH_EXPONENTIAL(x)                  \
    const pair u = tanh_argument(v_neg(x));     \
    const V k = FG_EXPONENT(u.hi, gelu_tanh);   \
    const V n = v_sub(k, FG_C(shifter));        \
    const V g = FG_REDUCED(u, n, gelu_tanh).hi; \
    const V r = FG_EXPM1_OVER(g, gelu_tanh)
#define FG_LINEAR_EXPONENTIAL(x, form)                                               \
    const V u = v_neg(x);                                                            \
    const V k = FG_EXPONENT(u, form);                                                \
    const V n = v_sub(k, FG_C(shifter));                                             \
    const V g = v_fnma(n, FG_C(form##_step_lo), v_fnma(n, FG_C(form##_step_hi), u)); \
    const V r = FG_EXPM1_OVER(g, form)

/* In float64 the formulas are faster near 0 too: there are no tables (NOTES.md). */
#define FG_SIGMOID_VALUE(form, exponential)                                                  \
    static FG_INLINE V FG_NAME(form##_formula)(V x)                                          \
    {                                                                                        \
        exponential;                                                                         \
        return times_sigmoid(x, k, g, r);                                                    \
    }                                                                                        \
    static FG_INLINE tail FG_NAME(form##_small)(V x)                                         \
    {                                                                                        \
        exponential;                                                                         \
        return small_side(x, k, g, r);                                                       \
    }                                                                                        \
    static FG_INLINE V FG_NAME(near_##form)(V x, int some)                                   \
    {                                                                                        \
        const V limit = FG_C(form##_near);                                                   \
        return FG_NAME(fg_##form##_columns)                                                  \
                   ? FG_NAME(near_##form##_by_row)(x, FG_ROW_OF(x, form, some), some)        \
                   : FG_NAME(form##_formula)(signed_clamped(x, limit, some));                \
    }                                                                                        \
    static FG_INLINE V FG_NAME(far_##form)(V x, int some)                                    \
    {                                                                                        \
        const V limit = FG_C(form##_limit);                                                  \
        const V t = clamped(v_abs(x), limit, some);                                          \
        const tail small = FG_NAME(form##_small)(t);                                         \
        const V y = v_sub(v_select_negative(x, FG_C(minus_zero), t), small.p);               \
        const V below = v_mul(y, pow2_ratio(small.k, at_least(small.k, FG_C(split))));       \
        const V scaled = v_select_negative(x, below, y);                                     \
        return some ? unless_plain(v_abs(x), limit, scaled, plain_value(x, limit)) : scaled; \
    }
FG_SIGMOID_VALUE(gelu_tanh, FG_TANH_EXPONENTIAL(x))
FG_SIGMOID_VALUE(gelu_sigmoid, FG_LINEAR_EXPONENTIAL(x, gelu_sigmoid))
FG_SIGMOID_VALUE(silu, FG_LINEAR_EXPONENTIAL(x, silu))

/* ---- slopes ----------------------------------------------------------------- */

static FG_INLINE tail FG_NAME(gelu_tail)(V t)
{
    pair u = two_product(t, t);
    const V k = FG_EXPONENT(v_add(u.hi, FG_C(gelu_grad_offset)), gelu_grad);
    const V n = v_sub(k, FG_C(gelu_grad_shifter));
    const V h = v_div(FG_POLYNOMIAL_NEAR_0(t, u.hi, gelu_grad_num),
                      FG_POLYNOMIAL_NEAR_0(t, u.hi, gelu_grad_den));
    u.lo = v_add(u.lo, FG_C(gelu_grad_offset));
    const pair g = FG_REDUCED(u, n, gelu_grad);
    /* exp = 1 - g/2 + g^2 r */
    const V g2 = v_mul(g.hi, g.hi), r = FG_POLYNOMIAL(g.hi, g2, gelu_grad_exp);
    pair b = distance(FG_C(gelu_zero_hi), FG_C(gelu_zero_lo), t);
    V z;
    if (FG_CAREFUL) { /* h goes to t0 - t */
        b = fast_two_sum(b.hi, v_fma(b.hi, h, v_fma(b.lo, h, b.lo)));
        z = v_fma(g2, r, v_mul(g.hi, FG_C(minus_half)));
        b.lo = v_fma(v_mul(g.lo, FG_C(minus_half)), b.hi, b.lo);
    } else { /* h goes to the exponential */
        const V gh = v_fma(g.hi, h, g.hi);
        z = v_fma(v_mul(gh, g.hi), r, v_fma(gh, FG_C(minus_half), h));
    }
    const V scale = pow2(at_least(k, FG_C(split)));
    const V high = v_mul(b.hi, scale), low = v_mul(b.lo, scale);
    const tail p = {v_add(high, v_fma(high, z, v_fma(low, z, low))), k};
    return p;
}

/* The slopes of the sigmoid forms at -t, with f the rate, e = f E = 2^n (1 + q), a = t w'/f - 1/f:
 *
 *   -P = E (t w' - 1 - E)/(1 + E)^2 = e (a - E/f) (1 + c),  c = -E (2 + E)/(1 + E (2 + E))
 *
 * a, which exceeds 3, is a sum; what is small of (1 + q)(1 + c) joins its low part. */
static FG_INLINE tail sigmoid_tail(V k, pair g, V r, V rate, V inverse, pair a)
{
    const V scale = pow2(at_least(k, FG_C(split)));
    const V q = v_mul(g.hi, r);
    const V e = v_mul(v_fma(q, scale, scale), inverse);
    const V square = v_mul(e, v_add(e, FG_C(two)));
    const V c = v_div(v_neg(square), v_add(square, FG_C(one)));
    V rest = v_fma(q, c, c);
    if (FG_CAREFUL) /* what q lacks */
        rest = v_add(rest, v_fma(rate, g.lo, v_fms(g.hi, r, q)));
    /* E/f below a quarter ULP of a is as good as that, and makes no subnormal product */
    a.lo = v_fnma(at_least(e, FG_C(least)), inverse, a.lo);
    const V high = v_mul(a.hi, scale), low = v_mul(a.lo, scale);
    rest = v_fma(high, rest, v_fma(low, v_add(q, rest), low));
    const tail p = {v_neg(v_add(high, v_fma(high, q, rest))), k};
    return p;
}

#define FG_LINEAR_TAIL(form)                                                        \
    static FG_INLINE tail FG_NAME(form##_tail)(V t)                                 \
    {                                                                               \
        pair d = fast_two_sum(v_neg(t), FG_C(form##_offset_hi)); /* log(f)/f - t */ \
        d.lo = v_add(d.lo, FG_C(form##_offset_lo));                                 \
        pair a = fast_two_sum(t, v_neg(FG_C(form##_inverse_hi)));                   \
        a.lo = v_sub(a.lo, FG_C(form##_inverse_lo));                                \
        const V k = FG_EXPONENT(d.hi, form);                                        \
        const V n = v_sub(k, FG_C(shifter));                                        \
        const pair g = FG_REDUCED(d, n, form);                                      \
        return sigmoid_tail(k, g, FG_EXPM1_OVER(g.hi, form), FG_C(form##_rate),     \
                            FG_C(form##_inverse_hi), a);                            \
    }
FG_LINEAR_TAIL(silu)
FG_LINEAR_TAIL(gelu_sigmoid)

static FG_INLINE tail FG_NAME(gelu_tanh_tail)(V t)
{
    const pair v = tanh_argument(t);
    pair d = fast_two_sum(v_neg(v.hi), FG_C(gelu_tanh_offset_hi));
    d.lo = v_add(d.lo, v_sub(FG_C(gelu_tanh_offset_lo), v.lo));
    /* t w'/f = 3 v - 2 t */
    const pair thrice = two_product(v.hi, FG_C(three));
    const pair sum = fast_two_sum(thrice.hi, v_mul(t, FG_C(minus_two)));
    pair a = fast_two_sum(sum.hi, v_neg(FG_C(gelu_tanh_inverse_hi)));
    const V low = v_fma(v.lo, FG_C(three), v_add(thrice.lo, sum.lo));
    a.lo = v_add(a.lo, v_sub(low, FG_C(gelu_tanh_inverse_lo)));
    const V k = FG_EXPONENT(d.hi, gelu_tanh);
    const V n = v_sub(k, FG_C(shifter));
    const pair g = FG_REDUCED(d, n, gelu_tanh);
    return sigmoid_tail(k, g, FG_EXPM1_OVER(g.hi, gelu_tanh), FG_C(gelu_tanh_rate),
                        FG_C(gelu_tanh_inverse_hi), a);
}

static FG_INLINE V finish_slope(V x, V limit, tail r, int some)
{
    const V below = v_mul(r.p, pow2_ratio(r.k, at_least(r.k, FG_C(split))));
    const V y = v_select_negative(x, below, v_sub(FG_C(one), r.p));
    return some ? unless_plain(v_abs(x), limit, y, plain_slope(x, limit)) : y;
}

/* dy times the slope of a plain x. Of a finite x far below 0 that is not 0, just small: it makes
 * no NaN of an infinite dy. */
static FG_INLINE V plain_backward(V dy, V x, V limit)
{
    const V t = v_abs(x), small = pow2(FG_C(split));
    const V slope = v_select_infinite(x, FG_C(minus_zero), v_neg(small));
    const V reduced = v_select_infinite(x, dy, v_mul(v_mul(dy, small), small));
    const V large = v_select_negative(x, slope, FG_C(one));
    const V large_dy = v_select_negative(x, reduced, dy);
    /* a product, but one that no compiler takes out for a slope of 1: it quiets a NaN */
    return v_fma(v_select_above(t, limit, large_dy, dy),
                 v_select_above(t, limit, large, nan_or_half(t, limit)), FG_C(minus_zero));
}

/* dy * slope. Slopes down to 2^-290 (2^-2140 in f64) count, since dy may be as large as
 * 2^128 (2^1024): what 2^n lacks goes with dy, in two normal factors. The slope at -inf is
 * -0, not just small: it makes NaN of an infinite dy. */
static FG_INLINE V finish_backward(V dy, V x, V limit, tail r, int some)
{
    const V above = v_sub(FG_C(one), r.p);
    const V k = at_least(r.k, FG_C(split));
    const V k1 = at_least(r.k, FG_C(split_twice));
    const V scaled_dy = v_mul(v_mul(dy, pow2_ratio(k1, k)), pow2_ratio(r.k, k1));
    const V y = v_mul(v_select_negative(x, scaled_dy, dy), v_select_negative(x, r.p, above));
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

#define FG_SLOPE(form, call)                                                    \
    static FG_INLINE V FG_NAME(plain_##form##_grad)(V x)                        \
    {                                                                           \
        return plain_slope(x, FG_C(form##_limit));                              \
    }                                                                           \
    static FG_INLINE V FG_NAME(plain_##form##_backward)(V dy, V x)              \
    {                                                                           \
        return plain_backward(dy, x, FG_C(form##_backward_limit));              \
    }                                                                           \
    static FG_INLINE V FG_NAME(far_##form##_grad)(V x, int some)                \
    {                                                                           \
        const V t = clamped(v_abs(x), FG_C(form##_limit), some);                \
        return finish_slope(x, FG_C(form##_limit), call, some);                 \
    }                                                                           \
    static FG_INLINE V FG_NAME(far_##form##_backward)(V dy, V x, int some)      \
    {                                                                           \
        const V t = clamped(v_abs(x), FG_C(form##_backward_limit), some);       \
        return finish_backward(dy, x, FG_C(form##_backward_limit), call, some); \
    }

FG_SLOPE(gelu, FG_NAME(gelu_tail)(t))
FG_SLOPE(gelu_tanh, FG_NAME(gelu_tanh_tail)(t))
FG_SLOPE(gelu_sigmoid, FG_NAME(gelu_sigmoid_tail)(t))
FG_SLOPE(silu, FG_NAME(silu_tail)(t))

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
