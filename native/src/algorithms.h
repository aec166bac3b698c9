/* SPDX-License-Identifier: BSD-3-Clause */
/* algorithms.h: every value function, written once for every dtype and target.
 *
 * All four forms are x*G(x) with G(-x) = 1 - G(x), and their slopes obey
 * slope(-x) = 1 - slope(x). So each function needs just one core: P(t) for the
 * negative argument -t, t >= 0, where P is small and must be right relatively,
 *
 *   value:  y = x * P(t) for x < 0,  x * (1 - P(t)) for x >= 0
 *   slope:  P(t)         for x < 0,  1 - P(t)       for x >= 0
 *
 * and nothing cancels: 1 - P has P <= 1/2. A core returns 2^n * (hi + lo), an
 * unevaluated sum good to a few units beyond the last place, with the power of
 * two apart, so that results far below the smallest normal number are rounded
 * once. The cores:
 *
 *   gelu            Phi(-t) = exp(-t^2/2) * (1/2)(1 + h(t)) / (1 + t)
 *   gelu_grad       exp(-t^2/2) * (t0 - t) * (1/2)(1 + g(t))
 *   x*s(w) forms    s(-w) = E / (1 + E),  E = exp(-w)
 *   their slopes    E * (1 + E - t w'(t)) / (1 + E)^2
 *
 * h and g are rational minimax fits (tools/generate_coefficients.py); t0 is the
 * zero of the slope. NaN: clamped away in t, it comes back in through x. */

/* An unevaluated sum hi + lo. */
typedef struct pair {
    V hi, lo;
} pair;

/* 2^n * (hi + lo), with k = n + FG_C(shifter): n sits in the low bits of k. */
typedef struct scaled {
    V hi, lo, k;
} scaled;

#define FG_C(name) v_set(FG_NAME(fg_##name))

/* ---- building blocks ---------------------------------------------------- */

/* c[0] + c[1] x + ... + c[degree] x^degree. */
static FG_INLINE V horner(V x, const T *c, int degree)
{
    V sum = v_set(c[degree]);
    for (int i = degree - 1; i >= 0; i--)
        sum = v_fma(sum, x, v_set(c[i]));
    return sum;
}
#define FG_POLY(x, name) \
    horner(x, FG_NAME(fg_##name), FG_COUNT(FG_NAME(fg_##name)) - 1)
#define FG_COUNT(array) ((int)(sizeof(array) / sizeof((array)[0])))

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

/* a / b for two sums. */
static FG_INLINE pair quotient(pair a, pair b)
{
    const V inverse = v_div(FG_C(one), b.hi);
    pair r;
    r.hi = v_mul(a.hi, inverse);
    const V rest = v_add(v_fnma(r.hi, b.hi, a.hi), a.lo);
    r.lo = v_mul(v_fnma(r.hi, b.lo, rest), inverse);
    return r;
}

/* The number t0 (two constants) minus t, right relatively to the last place. */
static FG_INLINE pair distance(V t0_hi, V t0_lo, V t)
{
    pair r = two_sum(t0_hi, v_neg(t));
    r.lo = v_add(r.lo, t0_lo);
    return fast_two_sum(r.hi, r.lo);
}

/* 2^(k - j) for k and j of the form integer + FG_C(shifter). */
static FG_INLINE V pow2(V k, V j)
{
    return v_real(i_add(i_to_exponent(i_sub(v_bits(k), v_bits(j))), v_bits(FG_C(one))));
}

/* max(k, j) for such numbers. */
static FG_INLINE V at_least(V k, V j)
{
    return v_real(i_max(v_bits(k), v_bits(j)));
}

/* exp(a) = 2^n (s + rest): a = n ln2 + f + f_lo, |f| <= ln2/2 and f exact;
 * exp(f) = 1 + f + f^2 p(f) with a minimax polynomial p; f_lo, as large as the last place
 * of a, counts to first order. Given both as 1 + f + tail and, summed, as s + rest:
 * s = 1 + f rounded, |rest| < 0.08. */
typedef struct exponential {
    V f, tail, s, rest, k;
} exponential;

static FG_INLINE exponential exp_reduced(pair a)
{
    exponential r;
    r.k = v_fma(a.hi, FG_C(log2e), FG_C(shifter));
    const V n = v_sub(r.k, FG_C(shifter));
    r.f = v_fnma(n, FG_C(ln2_hi), a.hi);
    const V f_lo = v_fnma(n, FG_C(ln2_lo), a.lo);
    const pair s = fast_two_sum(FG_C(one), r.f);
    r.s = s.hi;
    const V q = v_mul(v_mul(r.f, r.f), FG_POLY(r.f, exp));
    r.tail = v_fma(f_lo, v_add(s.hi, q), q);
    r.rest = v_add(s.lo, r.tail);
    return r;
}

/* ---- the cores ---------------------------------------------------------- */

/* b (1 + h) e = 2^n b (s + z) with z = rest + h (s + rest) */
static FG_INLINE scaled gaussian(pair b, V h, exponential e)
{
    const V z = v_fma(h, v_add(e.s, e.rest), e.rest);
    const pair m = two_product(b.hi, e.s);
    const pair r = fast_two_sum(m.hi, v_fma(b.hi, z, v_fma(b.lo, e.s, m.lo)));
    const scaled p = {r.hi, r.lo, e.k};
    return p;
}

/* Phi(-t) = exp(-t^2/2) (1 + h(t)) / (2 + 2t), h(t) = t N(t)/D(t) in [-0.17, 0.06]. */
static FG_INLINE scaled FG_NAME(gelu_core)(V t)
{
    const exponential e = exp_reduced(two_product(v_mul(t, FG_C(minus_half)), t));
    const V h = v_div(v_mul(t, FG_POLY(t, gelu_num)), FG_POLY(t, gelu_den));
    /* b = 1/(2 + 2t) as hi + lo; d - 1 is exact */
    const V d = v_add(t, FG_C(one));
    const V d_lo = v_sub(t, v_sub(d, FG_C(one)));
    pair b;
    b.hi = v_div(FG_C(half), d);
    const V rest = v_fnma(b.hi, d_lo, v_fnma(b.hi, d, FG_C(half)));
    b.lo = v_mul(v_add(rest, rest), b.hi);
    return gaussian(b, h, e);
}

/* slope(-t) = exp(-t^2/2) (t0 - t)/2 (1 + g(t)), g = N/D in [-0.2, 0.34]. */
static FG_INLINE scaled FG_NAME(gelu_grad_core)(V t)
{
    const V half_t = v_mul(t, FG_C(half));
    const exponential e = exp_reduced(two_product(v_neg(half_t), t));
    const V g = v_div(FG_POLY(t, gelu_grad_num), FG_POLY(t, gelu_grad_den));
    const pair b = distance(FG_C(gelu_half_zero_hi), FG_C(gelu_half_zero_lo), half_t);
    return gaussian(b, g, e);
}

/* s(a) = E/(1 + E), E = exp(a), for a = -w(t) <= 0. */
static FG_INLINE scaled sigmoid_core(pair a)
{
    const exponential e = exp_reduced(a);
    const pair s = fast_two_sum(e.s, e.rest);
    const V scale = pow2(at_least(e.k, FG_C(split)), FG_C(shifter));
    pair d = fast_two_sum(FG_C(one), v_mul(s.hi, scale));
    d.lo = v_fma(s.lo, scale, d.lo);
    const pair r = quotient(s, d);
    scaled p = {r.hi, r.lo, e.k};
    return p;
}

/* E (1 + E - t w') / (1 + E)^2. With w0 = w(t0), E0 = exp(-w0), 1 + E0 = t0 w'(t0),
 * a = w0 - w and c = t0 w'(t0) - t w'(t), the middle factor is c + E0 expm1(a): both terms have
 * the sign of t0 - t and vanish there, so that nothing cancels. */
static FG_INLINE scaled sigmoid_grad_core(pair a, pair c, pair e0)
{
    const exponential e = exp_reduced(a);
    const V scale = pow2(at_least(e.k, FG_C(split)), FG_C(shifter));
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
    const pair r = quotient(product(s, z), product(d, d));
    scaled p = {r.hi, r.lo, e.k};
    return p;
}

static FG_INLINE scaled FG_NAME(silu_core)(V t)
{
    const pair a = {v_neg(t), FG_C(zero)};
    return sigmoid_core(a);
}

static FG_INLINE scaled FG_NAME(silu_grad_core)(V t)
{
    const pair e0 = {FG_C(silu_exp_zero_hi), FG_C(silu_exp_zero_lo)};
    const pair a = distance(FG_C(silu_zero_hi), FG_C(silu_zero_lo), t);
    return sigmoid_grad_core(a, a, e0);
}

/* w = 1.702 t */
static FG_INLINE scaled FG_NAME(gelu_sigmoid_core)(V t)
{
    const V minus_t = v_neg(t);
    pair a = two_product(minus_t, FG_C(sigmoid_factor_hi));
    a.lo = v_fma(minus_t, FG_C(sigmoid_factor_lo), a.lo);
    return sigmoid_core(a);
}

static FG_INLINE scaled FG_NAME(gelu_sigmoid_grad_core)(V t)
{
    const pair e0 = {FG_C(silu_exp_zero_hi), FG_C(silu_exp_zero_lo)};
    const pair factor = {FG_C(sigmoid_factor_hi), FG_C(sigmoid_factor_lo)};
    const pair d = distance(FG_C(gelu_sigmoid_zero_hi), FG_C(gelu_sigmoid_zero_lo), t);
    const pair a = product(d, factor);
    return sigmoid_grad_core(a, a, e0);
}

/* w = t (A + B t^2), A = 2 sqrt(2/pi), B = 0.044715 A. A = top + rest with a top short
 * enough for p.hi - top to be exact. */
static FG_INLINE scaled FG_NAME(gelu_tanh_core)(V t)
{
    const pair b = {FG_C(tanh_cubic_hi), FG_C(tanh_cubic_lo)};
    const pair u = two_product(t, t);
    pair p;
    p.hi = v_fma(b.hi, u.hi, FG_C(tanh_linear_top));
    p.lo = v_fms(b.hi, u.hi, v_sub(p.hi, FG_C(tanh_linear_top)));
    const V low = v_fma(b.lo, u.hi, v_fma(b.hi, u.lo, FG_C(tanh_linear_rest)));
    const V minus_t = v_neg(t);
    pair a = two_product(minus_t, p.hi);
    a.lo = v_fma(minus_t, v_add(p.lo, low), a.lo);
    return sigmoid_core(a);
}

/* With m = t^2 + t t0 + t0^2: w0 - w = (t0 - t)(A + B m), and
 * t0 w'(t0) - t w'(t) = (t0 - t)(A + 3 B m). */
static FG_INLINE scaled FG_NAME(gelu_tanh_grad_core)(V t)
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
    const V linear = FG_C(tanh_linear_top), linear_rest = FG_C(tanh_linear_rest);
    pair p = two_sum(linear, bm.hi);
    p.lo = v_add(p.lo, v_add(bm.lo, linear_rest));
    pair q = two_sum(p.hi, v_add(bm.hi, bm.hi));
    q.lo = v_add(q.lo, v_add(p.lo, v_add(bm.lo, bm.lo)));
    return sigmoid_grad_core(product(d, p), product(d, q), e0);
}

/* ---- from the core P(t) to the result ------------------------------------ */

/* 2^n is split in two normal numbers, 2^max(n, N) and the rest, which multiplies last, so
 * that a result is rounded to subnormal precision once. N is -100 in f32, -900 in f64:
 * below it P is lost beside 1 anyway. */
typedef struct sides {
    pair below, above; /* P * 2^(max(n, N) - n), 1 - P * 2^n */
    V last;            /* what below still lacks */
} sides;

static FG_INLINE sides both_sides(scaled p)
{
    sides r;
    const V k = at_least(p.k, FG_C(split));
    const V scale = pow2(k, FG_C(shifter));
    r.below.hi = v_mul(p.hi, scale);
    r.below.lo = v_mul(p.lo, scale);
    r.above.hi = v_sub(FG_C(one), r.below.hi);
    r.above.lo = v_sub(v_sub(v_sub(FG_C(one), r.above.hi), r.below.hi), r.below.lo);
    r.last = pow2(p.k, k);
    return r;
}

static FG_INLINE V finish_value(V x, V t, scaled p)
{
    const sides g = both_sides(p);
    const V minus_t = v_neg(t);
    /* t is clamped: at -inf x itself would give NaN, at +inf its product with a low part */
    const V a = v_select_negative(x, minus_t, x);
    const V b = v_select_negative(x, minus_t, t);
    const V hi = v_select_negative(x, g.below.hi, g.above.hi);
    const V lo = v_select_negative(x, g.below.lo, g.above.lo);
    const V y = v_fma(a, hi, v_mul(b, lo));
    return v_select_negative(x, v_mul(y, g.last), y);
}

static FG_INLINE V finish_slope(V x, scaled p)
{
    const sides g = both_sides(p);
    return v_select_negative(x, v_mul(v_add(g.below.hi, g.below.lo), g.last),
                             v_add(g.above.hi, g.above.lo));
}

/* Here slopes down to 2^-290 (2^-2140 in f64) count, since dy may be as large as 2^128
 * (2^1024), and dy may be tiny too: the rest of 2^n goes with dy, in two normal factors. */
static FG_INLINE V finish_backward(V dy, V x, scaled p)
{
    const sides g = both_sides(p);
    const V k1 = at_least(p.k, FG_C(split_twice)), k2 = at_least(p.k, FG_C(split));
    const V below = v_mul(v_mul(dy, pow2(k1, k2)), pow2(p.k, k1));
    const V a = v_select_negative(x, below, dy);
    /* inf * lo would be NaN */
    const V b = v_copysign(v_min_magnitude(v_abs(a), FG_C(largest)), a);
    /* the slope at -inf is -0, not just small */
    const V zero = FG_C(minus_zero);
    const V hi = v_select_negative(x, v_select_infinite(x, zero, g.below.hi), g.above.hi);
    const V lo = v_select_negative(x, v_select_infinite(x, zero, g.below.lo), g.above.lo);
    /* where a*hi is a zero, b*lo may be one of the other sign */
    return v_copysign(v_fma(a, hi, v_mul(b, lo)), v_mul(a, hi));
}

/* ---- the registered functions -------------------------------------------- */

#define FG_FORM(form)                                                               \
    static FG_INLINE V FG_NAME(form)(V x)                                           \
    {                                                                               \
        const V t = v_min_magnitude(v_abs(x), FG_C(form##_limit));                  \
        return finish_value(x, t, FG_NAME(form##_core)(t));                \
    }                                                                               \
    static FG_INLINE V FG_NAME(form##_grad)(V x)                                    \
    {                                                                               \
        const V t = v_min_magnitude(v_abs(x), FG_C(form##_limit));                  \
        return finish_slope(x, FG_NAME(form##_grad_core)(t));              \
    }                                                                               \
    static FG_INLINE V FG_NAME(form##_backward)(V dy, V x)                          \
    {                                                                               \
        const V t = v_min_magnitude(v_abs(x), FG_C(form##_backward_limit));         \
        return finish_backward(dy, x, FG_NAME(form##_grad_core)(t));       \
    }

FG_FORM(gelu)
FG_FORM(gelu_tanh)
FG_FORM(gelu_sigmoid)
FG_FORM(silu)

#undef FG_FORM
