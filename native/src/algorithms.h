/* SPDX-License-Identifier: BSD-3-Clause */
/* algorithms.h: every value function, written once for every dtype and target.
 *
 * All four forms are x*G(x) with G(-x) = 1 - G(x), and their slopes obey
 * slope(-x) = 1 - slope(x). What is needed is thus the small quantity of the negative
 * side, right relatively, at t = |x|; nothing cancels where it is taken from x or 1:
 *
 *   gelu          y = max(x, 0) - L,  L = t Phi(-t) = c t exp(-t^2/2) (1 + h(t)) / (t + 2c)
 *   x*s(w) forms  y = x / (1 + exp(-w(x)))
 *   gelu_grad     P = exp(-t^2/2) (t0 - t) (1 + g(t)) / 2
 *   other slopes  P = E (1 + E - t w'(t)) / (1 + E)^2,  E = exp(-w(t))
 *                 y = P for x < 0, 1 - P for x >= 0
 *
 * h and g are rational minimax fits (tools/generate_coefficients.py), t0 the zero of the
 * slope; c = 13/32 makes h small where its rounding is worst, at large t. Intermediate
 * results whose rounding would show are unevaluated sums; only the values of the sigmoid
 * forms round a denominator, which costs them the last ULP's half and buys their speed.
 *
 * A power of two is applied in two steps where it may leave the range of normal numbers
 * (x far below 0), the second to the finished result, so that it is rounded once. `near`
 * says that |x| <= FG_C(<function>_near): then that step, and the clamping of x, change
 * nothing and are left out. Both ways give the same bits.
 *
 * NaN and infinities: |x| is clamped where its exponential is 0 or 1; NaN is not. */

/* An unevaluated sum hi + lo. */
typedef struct pair {
    V hi, lo;
} pair;

#define FG_C(name) v_set(FG_NAME(fg_##name))

/* ---- building blocks ---------------------------------------------------- */

#define FG_COUNT(array) ((int)(sizeof(array) / sizeof((array)[0])))

/* c[from] + c[from + step] y + c[from + 2 step] y^2 + ... up to c[degree]. */
static FG_INLINE V every(V y, const T *c, int from, int step, int degree)
{
    int i = degree - (degree - from) % step;
    V sum = v_set(c[i]);
    for (i -= step; i >= from; i -= step)
        sum = v_fma(sum, y, v_set(c[i]));
    return sum;
}

/* c[from] + c[from + 1] x + ... + c[degree] x^(degree - from): the even and the odd terms
 * apart, in x2 = x^2. That halves the chain of operations, and of rounding errors. */
static FG_INLINE V polynomial(V x, V x2, const T *c, int from, int degree)
{
    return v_fma(x, every(x2, c, from + 1, 2, degree), every(x2, c, from, 2, degree));
}

/* c[0] + c[1] x + ... + c[degree] x^degree. Where that is long, in four such parts, and c[0]
 * last: few roundings where x is large, and one where it is small. */
static FG_INLINE V long_polynomial(V x, const T *c, int degree)
{
    if (degree < 8)
        return every(x, c, 0, 1, degree);
    const V x2 = v_mul(x, x), x4 = v_mul(x2, x2);
    const V even = v_fma(x2, every(x4, c, 3, 4, degree), every(x4, c, 1, 4, degree));
    const V odd = v_fma(x2, every(x4, c, 4, 4, degree), every(x4, c, 2, 4, degree));
    return v_fma(x, v_fma(x, odd, even), v_set(c[0]));
}
#define FG_POLY(x, x2, name, from) \
    polynomial(x, x2, FG_NAME(fg_##name), from, FG_COUNT(FG_NAME(fg_##name)) - 1)
#define FG_LONG_POLY(x, name) \
    long_polynomial(x, FG_NAME(fg_##name), FG_COUNT(FG_NAME(fg_##name)) - 1)

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

/* a * b for two sums, without the product of the low parts. */
static FG_INLINE pair product(pair a, pair b)
{
    pair r = two_product(a.hi, b.hi);
    r.lo = v_fma(a.hi, b.lo, v_fma(a.lo, b.hi, r.lo));
    return r;
}

/* a / b for two sums, rounded to one number: below 0.5 ULP and a little. */
static FG_INLINE V quotient(pair a, pair b)
{
    const V inverse = v_div(FG_C(one), b.hi);
    const V q = v_mul(a.hi, inverse);
    const V rest = v_fnma(q, b.lo, v_add(v_fnma(q, b.hi, a.hi), a.lo));
    return v_fma(rest, inverse, q);
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

/* exp(a) = 2^n exp(f + f_lo): a = n ln2 + f + f_lo, |f| <= ln2/2 and f exact.
 * exp(f) = 1 + f + f^2 p(f), minimax; f_lo, as large as the last place of a, counts to
 * first order. Three renderings of exp(f + f_lo), of which a use takes what it needs:
 * 1 + q, rounded; 1 + f + tail; and s + rest with s = 1 + f rounded and |rest| < 0.08. */
typedef struct exponential {
    V q, f, tail, s, rest;
} exponential;

static FG_INLINE exponential exp_reduced(V k, V a_hi, V a_lo)
{
    exponential r;
    const V n = v_sub(k, FG_C(shifter));
    const V f = v_fnma(n, FG_C(ln2_hi), a_hi);
    const V f_lo = v_fnma(n, FG_C(ln2_lo), a_lo);
    const V f2 = v_mul(f, f);
    const V low = v_fma(f, v_set(FG_NAME(fg_exp)[1]), v_set(FG_NAME(fg_exp)[0]));
    const V p = v_fma(f2, FG_POLY(f, f2, exp, 2), low);
    const pair s = fast_two_sum(FG_C(one), f);
    /* exp(f) as far as f_lo needs it: in double that is a term more */
    const int more = FG_COUNT(FG_NAME(fg_exp)) > 6;
    const V w = v_fma(f2, more ? v_fma(f2, v_set(FG_NAME(fg_exp)[2]), low) : low, s.hi);
    r.f = f;
    r.s = s.hi;
    r.tail = v_fma(f2, p, v_mul(f_lo, w));
    r.q = v_add(f, r.tail);
    r.rest = v_fma(f2, p, v_fma(f_lo, w, s.lo));
    return r;
}

/* exp(a): the k nearest to a log2(e) */
static FG_INLINE V exponent(V a)
{
    return v_fma(a, FG_C(log2e), FG_C(shifter));
}

/* b (1 + h) exp(f + f_lo) for e as above, as a sum: b (s + z), z = rest + h s + h rest. */
static FG_INLINE pair gaussian(pair b, V h, exponential e)
{
    const V z = v_fma(h, e.s, v_fma(h, e.rest, e.rest));
    pair r = two_product(b.hi, e.s);
    r.lo = v_fma(b.hi, z, v_fma(b.lo, e.s, r.lo));
    return r;
}

/* ---- values --------------------------------------------------------------- */

static FG_INLINE V clamped(V t, V limit, int near)
{
    return near ? t : v_select_above(t, limit, limit, t);
}

/* From the result at the clamped argument: x itself where x is above the limit. */
static FG_INLINE V unclamped(V x, V limit, V y)
{
    return v_select_above(v_abs(x), limit, v_select_negative(x, y, x), y);
}

static FG_INLINE V FG_NAME(gelu)(V x, int near)
{
    const V limit = FG_C(gelu_limit);
    const V t = clamped(v_abs(x), limit, near);
    const V half_t = v_mul(t, FG_C(half));
    const pair a = two_product(v_neg(half_t), t);
    const V k = exponent(a.hi);
    const exponential e = exp_reduced(k, a.hi, a.lo);
    const V h = v_div(v_mul(t, FG_LONG_POLY(t, gelu_num)), FG_LONG_POLY(t, gelu_den));
    /* b = c t/(t + 2c) as a sum; d - 2c is exact, and so are the remainders of the division */
    const V d = v_add(t, FG_C(gelu_shift));
    const V d_lo = v_sub(t, v_sub(d, FG_C(gelu_shift)));
    const V inverse = v_div(FG_C(gelu_scale), d);
    const pair ct = two_product(t, FG_C(gelu_scale));
    pair b;
    b.hi = v_mul(t, inverse);
    const V rest = v_fnma(b.hi, d_lo, v_add(v_fnma(b.hi, d, ct.hi), ct.lo));
    b.lo = v_mul(rest, v_mul(inverse, FG_C(gelu_inverse_scale)));
    const pair m = gaussian(b, h, e);
    const V k_split = near ? k : at_least(k, FG_C(split));
    const V scale = pow2(k_split);
    const pair l = {v_mul(m.hi, scale), v_mul(m.lo, scale)};
    /* a zero of x keeps its sign: -0 - (+0) */
    const V base = v_select_negative(x, FG_C(minus_zero), near ? x : t);
    const V difference = v_sub(base, l.hi);
    const V y = v_sub(difference, v_add(v_add(v_sub(difference, base), l.hi), l.lo));
    if (near)
        return y;
    return unclamped(x, limit, v_select_negative(x, v_mul(y, pow2_ratio(k, k_split)), y));
}

/* x / (1 + exp(a)) for a = -w(x), k = exponent(a); x and so a are clamped. The rounding of
 * the denominator and of the quotient make up most of the error: below 2 ULP together. */
static FG_INLINE V times_sigmoid(V x, V k, pair a, int near)
{
    const exponential e = exp_reduced(k, a.hi, a.lo);
    if (near) { /* |n| < the precision: 1 + 2^n is exact */
        const V scale = pow2(k);
        return v_div(x, v_fma(e.q, scale, v_add(FG_C(one), scale)));
    }
    const V zero = FG_C(shifter); /* that is, n = 0 */
    const V k_split = at_least(at_most(k, FG_C(split_above)), FG_C(split));
    const V scale = pow2(k_split);
    const V sum = v_add(FG_C(one), scale);
    /* what that sum lost */
    const V lost = v_sub(pow2(at_most(k_split, zero)), v_sub(sum, pow2(at_least(k_split, zero))));
    const V y = v_div(x, v_add(v_fma(e.q, scale, lost), sum));
    return v_mul(y, pow2_ratio(at_least(k_split, zero), at_least(k, zero)));
}

static FG_INLINE V signed_clamped(V x, V limit, int near)
{
    return near ? x : v_copysign(clamped(v_abs(x), limit, near), x);
}

static FG_INLINE V FG_NAME(silu)(V x, int near)
{
    const V limit = FG_C(silu_limit);
    const V c = signed_clamped(x, limit, near);
    const pair a = {v_neg(c), FG_C(zero)};
    const V y = times_sigmoid(c, exponent(a.hi), a, near);
    return near ? y : unclamped(x, limit, y);
}

/* w = 1.702 x */
static FG_INLINE V FG_NAME(gelu_sigmoid)(V x, int near)
{
    const V limit = FG_C(gelu_sigmoid_limit);
    const V c = signed_clamped(x, limit, near);
    pair a = two_product(c, FG_C(minus_sigmoid_factor_hi));
    a.lo = v_fma(c, FG_C(minus_sigmoid_factor_lo), a.lo);
    const V k = v_fma(c, FG_C(minus_sigmoid_factor_log2e), FG_C(shifter));
    const V y = times_sigmoid(c, k, a, near);
    return near ? y : unclamped(x, limit, y);
}

/* w = x (A + B x^2), A = 2 sqrt(2/pi), B = 0.044715 A. A = top + rest with a top short
 * enough for p.hi - top to be exact. */
static FG_INLINE V FG_NAME(gelu_tanh)(V x, int near)
{
    const V limit = FG_C(gelu_tanh_limit);
    const V c = signed_clamped(x, limit, near);
    const pair b = {FG_C(tanh_cubic_hi), FG_C(tanh_cubic_lo)};
    const V top = FG_C(tanh_linear_top);
    const pair u = two_product(c, c);
    pair p;
    p.hi = v_fma(b.hi, u.hi, top);
    p.lo = v_fms(b.hi, u.hi, v_sub(p.hi, top));
    p.lo = v_add(p.lo, v_fma(b.lo, u.hi, v_fma(b.hi, u.lo, FG_C(tanh_linear_rest))));
    const V minus_c = v_neg(c);
    pair a = two_product(minus_c, p.hi);
    a.lo = v_fma(minus_c, p.lo, a.lo);
    const V y = times_sigmoid(c, exponent(a.hi), a, near);
    return near ? y : unclamped(x, limit, y);
}

/* ---- slopes ----------------------------------------------------------------- */

/* P = 2^n p, p rounded. */
typedef struct tail {
    V p, k;
} tail;

static FG_INLINE tail FG_NAME(gelu_tail)(V t)
{
    const V half_t = v_mul(t, FG_C(half));
    const pair a = two_product(v_neg(half_t), t);
    const V k = exponent(a.hi);
    const exponential e = exp_reduced(k, a.hi, a.lo);
    const V g = v_div(FG_LONG_POLY(t, gelu_grad_num), FG_LONG_POLY(t, gelu_grad_den));
    const pair b = distance(FG_C(gelu_half_zero_hi), FG_C(gelu_half_zero_lo), half_t);
    const pair m = gaussian(b, g, e);
    const tail r = {v_add(m.hi, m.lo), k};
    return r;
}

/* E (1 + E - t w') / (1 + E)^2. With w0 = w(t0), E0 = exp(-w0), 1 + E0 = t0 w'(t0),
 * a = w0 - w and c = t0 w'(t0) - t w'(t), the middle factor is c + E0 expm1(a): both terms
 * have the sign of t0 - t and vanish there, so that nothing cancels. */
static FG_INLINE tail sigmoid_tail(pair a, pair c, pair e0, int near)
{
    const V k = exponent(a.hi);
    const exponential e = exp_reduced(k, a.hi, a.lo);
    const V scale = pow2(near ? k : at_least(k, FG_C(split)));
    /* expm1(a) = (2^n - 1) + 2^n f + 2^n tail */
    pair x = fast_two_sum(v_sub(scale, FG_C(one)), v_mul(scale, e.f));
    x.lo = v_fma(scale, e.tail, x.lo);
    const pair ex = product(e0, x);
    pair z = fast_two_sum(c.hi, ex.hi);
    z = fast_two_sum(z.hi, v_add(z.lo, v_add(ex.lo, c.lo)));
    /* E / 2^n */
    const pair s = product(e0, fast_two_sum(e.s, e.rest));
    pair d = fast_two_sum(FG_C(one), v_mul(s.hi, scale));
    d.lo = v_fma(s.lo, scale, d.lo);
    const tail r = {quotient(product(s, z), product(d, d)), k};
    return r;
}

static FG_INLINE tail FG_NAME(silu_tail)(V t, int near)
{
    const pair e0 = {FG_C(silu_exp_zero_hi), FG_C(silu_exp_zero_lo)};
    const pair a = distance(FG_C(silu_zero_hi), FG_C(silu_zero_lo), t);
    return sigmoid_tail(a, a, e0, near);
}

static FG_INLINE tail FG_NAME(gelu_sigmoid_tail)(V t, int near)
{
    const pair e0 = {FG_C(silu_exp_zero_hi), FG_C(silu_exp_zero_lo)};
    const pair minus_factor = {FG_C(minus_sigmoid_factor_hi), FG_C(minus_sigmoid_factor_lo)};
    const pair d = distance(FG_C(gelu_sigmoid_zero_hi), FG_C(gelu_sigmoid_zero_lo), t);
    const pair minus_d = {v_neg(d.hi), v_neg(d.lo)};
    const pair a = product(minus_d, minus_factor);
    return sigmoid_tail(a, a, e0, near);
}

/* With m = t^2 + t t0 + t0^2: w0 - w = (t0 - t)(A + B m), and
 * t0 w'(t0) - t w'(t) = (t0 - t)(A + 3 B m). */
static FG_INLINE tail FG_NAME(gelu_tanh_tail)(V t, int near)
{
    const pair b = {FG_C(tanh_cubic_hi), FG_C(tanh_cubic_lo)};
    const pair t0 = {FG_C(gelu_tanh_zero_hi), FG_C(gelu_tanh_zero_lo)};
    const pair e0 = {FG_C(gelu_tanh_exp_zero_hi), FG_C(gelu_tanh_exp_zero_lo)};
    const pair d = distance(t0.hi, t0.lo, t);
    /* m = t (t + t0) + t0^2 */
    pair e = two_sum(t, t0.hi);
    e.lo = v_add(e.lo, t0.lo);
    pair m = two_product(t, e.hi);
    const V m_lo = v_fma(t, e.lo, v_add(m.lo, FG_C(tanh_zero_square_lo)));
    m = two_sum(m.hi, FG_C(tanh_zero_square_hi));
    m.lo = v_add(m.lo, m_lo);
    const pair bm = product(b, m);
    pair p = two_sum(FG_C(tanh_linear_top), bm.hi);
    p.lo = v_add(p.lo, v_add(bm.lo, FG_C(tanh_linear_rest)));
    pair q = two_sum(p.hi, v_add(bm.hi, bm.hi));
    q.lo = v_add(q.lo, v_add(p.lo, v_add(bm.lo, bm.lo)));
    return sigmoid_tail(product(d, p), product(d, q), e0, near);
}

static FG_INLINE V finish_slope(V x, tail r, int near)
{
    const V k = near ? r.k : at_least(r.k, FG_C(split));
    const V p = v_mul(r.p, pow2(k));
    const V below = near ? p : v_mul(p, pow2_ratio(r.k, k));
    return v_select_negative(x, below, v_sub(FG_C(one), p));
}

/* dy * slope. Slopes down to 2^-290 (2^-2140 in f64) count, since dy may be as large as
 * 2^128 (2^1024): what 2^n lacks goes with dy, in two normal factors. The slope at -inf is
 * -0, not just small: it makes NaN of an infinite dy. */
static FG_INLINE V finish_backward(V dy, V x, tail r, int near)
{
    /* of a NaN, whose bits would scale dy at random */
    if (!near)
        r.k = at_most(at_least(r.k, FG_C(split_thrice)), FG_C(split_above));
    const V k = near ? r.k : at_least(r.k, FG_C(split));
    const V p = v_mul(r.p, pow2(k));
    const V above = v_sub(FG_C(one), p);
    if (near)
        return v_mul(dy, v_select_negative(x, p, above));
    const V k1 = at_least(r.k, FG_C(split_twice));
    const V scaled_dy = v_mul(v_mul(dy, pow2_ratio(k1, k)), pow2_ratio(r.k, k1));
    const V below = v_select_infinite(x, FG_C(minus_zero), p);
    return v_mul(v_select_negative(x, scaled_dy, dy), v_select_negative(x, below, above));
}

#define FG_SLOPE(form, call)                                              \
    static FG_INLINE V FG_NAME(form##_grad)(V x, int near)                \
    {                                                                     \
        const V t = clamped(v_abs(x), FG_C(form##_limit), near);          \
        return finish_slope(x, call, near);                               \
    }                                                                     \
    static FG_INLINE V FG_NAME(form##_backward)(V dy, V x, int near)      \
    {                                                                     \
        const V t = clamped(v_abs(x), FG_C(form##_backward_limit), near); \
        return finish_backward(dy, x, call, near);                        \
    }

FG_SLOPE(gelu, FG_NAME(gelu_tail)(t))
FG_SLOPE(gelu_tanh, FG_NAME(gelu_tanh_tail)(t, near))
FG_SLOPE(gelu_sigmoid, FG_NAME(gelu_sigmoid_tail)(t, near))
FG_SLOPE(silu, FG_NAME(silu_tail)(t, near))

#undef FG_SLOPE
