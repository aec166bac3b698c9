/* SPDX-License-Identifier: BSD-3-Clause */
/* algorithms_grad2.h: second derivatives, written once for every dtype and target, in float64.
 *
 * They are even functions; with t = |x|, phi the normal density, and w, s(w) as in algorithms.h:
 *
 *   gelu    y = phi(t) (2 - t^2)
 *   others  y = e/(1 + e)^2 (2 w' + t w'' - t w'^2 tanh(w/2)),  e = exp(-w(t))
 *
 * Each has one zero t0 > 0 (sqrt(2) in gelu), and near it the terms cancel. With d = t0 - t and a
 * subscript 0 for what is taken at t0,
 *
 *   gelu    2 - t^2 is right with t^2 as an exact sum
 *   others  E = e/e0 = exp(d W), W = (w0 - w)/d;  A = 2 w' + t w'', B = t w'^2, h = tanh(w/2)
 *           A - B h = (A - A0) + (B0 - B) h0 + B (h0 - h)
 *                   = d D + B 2 e0/(1 + e0) (E - 1)/(1 + e)
 *           y = e0 E (d D (1 + e) + B 2 e0/(1 + e0) (E - 1))/(1 + e)^3
 *
 * D and W are polynomials in t, B is one in t^2, none with a negative coefficient (the generator
 * checks that), and d and E - 1 = expm1(d W) have the same sign and vanish at t0: nothing
 * cancels. In the code, D, B and y have the rate of w taken out.
 *
 * Every number is a sum hi + lo, right to about 2^-100 but for E, whose fit leaves 2^-57; the
 * result is rounded once, and a subnormal one once more by the power of two. There was no goal for
 * the speed. Coefficients: tools/generate_coefficients_grad2.py.
 *
 * Special values: +-inf and all t > FG_GRAD2(<form>_limit) are clamped there, where y rounds to -0,
 * the limit from the side of -; NaN is clamped too, and comes back at the end.
 *
 * float32 is this rounded to float32, float16 and bfloat16 likewise, directly (kernels_grad2.h).
 *
 * Max error: float64 0.55 ULP, but 0.591 at the number next to the zero of gelu_sigmoid, whose
 * distance is right to 53 bits, and 0.751 where the result is subnormal; float32 a hair above 0.5;
 * float16 and bfloat16 are correctly rounded. Worst known inputs: tests/data/worst_cases.csv. */

#define FG_GRAD2(name) v_set(fg_grad2_##name)
#define FG_GRAD2_PAIRS(name) fg_grad2_##name, FG_COUNT(fg_grad2_##name)
#define FG_GRAD2_PAIR(name) constant_pair(fg_grad2_##name[0])

/* ---- sums hi + lo --------------------------------------------------------- */

static FG_INLINE pair constant_pair(const fg_f64 c[2])
{
    const pair r = {v_set(c[0]), v_set(c[1])};
    return r;
}

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

/* The number t0 (two constants) minus t, right relatively to the last place. */
static FG_INLINE pair distance(V t0_hi, V t0_lo, V t)
{
    const pair r = two_sum(t0_hi, v_neg(t));
    return fast_two_sum(r.hi, v_add(r.lo, t0_lo));
}

static FG_INLINE pair pair_sum(pair a, pair b)
{
    const pair r = two_sum(a.hi, b.hi);
    return fast_two_sum(r.hi, v_add(r.lo, v_add(a.lo, b.lo)));
}

static FG_INLINE pair pair_product(pair a, pair b)
{
    const pair r = two_product(a.hi, b.hi);
    return fast_two_sum(r.hi, v_add(r.lo, v_fma(a.hi, b.lo, v_mul(a.lo, b.hi))));
}

static FG_INLINE pair pair_quotient(pair a, pair b)
{
    const V first = v_div(a.hi, b.hi);
    const V rest = v_add(v_fnma(first, b.hi, a.hi), v_fnma(first, b.lo, a.lo));
    return fast_two_sum(first, v_div(rest, b.hi));
}

/* c[0] + c[1] x + ..., Horner's rule */
static FG_INLINE pair pair_polynomial(pair x, const fg_f64 (*c)[2], int count)
{
    pair sum = constant_pair(c[count - 1]);
    for (int i = count - 2; i >= 0; i--)
        sum = pair_sum(constant_pair(c[i]), pair_product(sum, x));
    return sum;
}

/* ---- the exponential -------------------------------------------------------- */

/* exp(u) = 2^n (1 + m); n is carried as k = n + shifter. */
typedef struct exponential {
    pair m;
    V k;
} exponential;

static FG_INLINE exponential pair_exp(pair u)
{
    const V k = v_fma(u.hi, FG_GRAD2(log2e), FG_GRAD2(shifter));
    const V n = v_sub(k, FG_GRAD2(shifter));
    /* the first difference is exact */
    const pair g = two_sum(v_fnma(n, FG_GRAD2(ln2_hi), u.hi), v_fnma(n, FG_GRAD2(ln2_lo), u.lo));
    const pair square = two_product(g.hi, g.hi);
    V rest = v_set(fg_grad2_exp[FG_COUNT(fg_grad2_exp) - 1]);
    for (int i = FG_COUNT(fg_grad2_exp) - 2; i >= 0; i--)
        rest = v_fma(rest, g.hi, v_set(fg_grad2_exp[i]));
    /* m = g + g^2/2 + g^3 rest */
    const V half = FG_GRAD2(half);
    const V low = v_fma(g.hi, g.lo, v_mul(square.lo, half));
    const pair sum = fast_two_sum(g.hi, v_mul(square.hi, half));
    const V less = v_fma(v_mul(square.hi, g.hi), rest, v_add(low, g.lo));
    const exponential e = {fast_two_sum(sum.hi, v_add(sum.lo, less)), k};
    return e;
}

/* 1 + m */
static FG_INLINE pair one_plus(pair m)
{
    const pair r = fast_two_sum(FG_GRAD2(one), m.hi);
    return fast_two_sum(r.hi, v_add(r.lo, m.lo));
}

/* ---- the functions ------------------------------------------------------------ */

/* NaN too; of tiny |x| powers would be subnormal, which costs time: they do not matter. */
static FG_INLINE V grad2_clamped(V x, V limit)
{
    return at_least(at_most(v_abs(x), limit), FG_GRAD2(tiny));
}

/* y 2^n, where x is not NaN */
static FG_INLINE V grad2_finish(V x, V limit, pair y, V k)
{
    const V k_split = at_least(k, FG_GRAD2(split));
    const V scaled = product(v_mul(y.hi, pow2(k_split)), pow2_ratio(k, k_split));
    const V t = v_abs(x);
    return v_fma(v_select_above(t, limit, limit, t), FG_GRAD2(minus_zero), scaled);
}

static FG_INLINE V gelu_grad2(V x)
{
    const V limit = FG_GRAD2(gelu_limit), t = grad2_clamped(x, limit);
    const pair square = two_product(t, t);
    const pair w = {v_mul(square.hi, FG_GRAD2(minus_half)), v_mul(square.lo, FG_GRAD2(minus_half))};
    const exponential e = pair_exp(w);
    const pair near = two_sum(FG_GRAD2(two), v_neg(square.hi));
    const pair factor = fast_two_sum(near.hi, v_sub(near.lo, square.lo));
    const pair scaled = pair_product(factor, FG_GRAD2_PAIR(gelu_scale));
    return grad2_finish(x, limit, pair_product(scaled, one_plus(e.m)), e.k);
}

/* first = d D; change = B 2 e0/(1 + e0), both over the rate; scale = rate e0 */
static FG_INLINE V gated_grad2(V x, V limit, exponential e, pair first, pair change, pair e0,
                               pair scale)
{
    /* 2^n (1 + m) for n >= -900: less is nothing beside 1 */
    const V power = pow2(at_least(e.k, FG_GRAD2(split)));
    const pair part = {v_mul(power, e.m.hi), v_mul(power, e.m.lo)};
    const pair more = pair_sum(two_sum(power, FG_GRAD2(minus_one)), part);
    const pair ratio = fast_two_sum(power, part.hi);
    const pair e_of_t = pair_product(e0, fast_two_sum(ratio.hi, v_add(ratio.lo, part.lo)));
    const pair denominator = one_plus(e_of_t);
    const pair sum = pair_sum(pair_product(first, denominator), pair_product(change, more));
    const pair cube = pair_product(pair_product(denominator, denominator), denominator);
    const pair numerator = pair_product(pair_product(scale, one_plus(e.m)), sum);
    return grad2_finish(x, limit, pair_quotient(numerator, cube), e.k);
}

/* W, D and B are polynomials in t, t and t^2. */
#define FG_GATED_GRAD2(form)                                                                       \
    static FG_INLINE V form##_grad2(V x)                                                           \
    {                                                                                              \
        const V limit = FG_GRAD2(form##_limit), t = grad2_clamped(x, limit);                       \
        const pair at = {t, FG_C(zero)};                                                           \
        const pair d =                                                                             \
            distance(v_set(fg_grad2_##form##_zero[0][0]), v_set(fg_grad2_##form##_zero[0][1]), t); \
        const pair w = pair_polynomial(at, FG_GRAD2_PAIRS(form##_exponent));                       \
        const pair slope = pair_polynomial(at, FG_GRAD2_PAIRS(form##_distance));                   \
        const pair square = two_product(t, t);                                                     \
        const pair change =                                                                        \
            pair_product(at, pair_polynomial(square, FG_GRAD2_PAIRS(form##_change)));              \
        return gated_grad2(x, limit, pair_exp(pair_product(d, w)), pair_product(d, slope), change, \
                           FG_GRAD2_PAIR(form##_e0), FG_GRAD2_PAIR(form##_scale));                 \
    }

FG_GATED_GRAD2(gelu_tanh)
FG_GATED_GRAD2(gelu_sigmoid)
FG_GATED_GRAD2(silu)

#undef FG_GATED_GRAD2
