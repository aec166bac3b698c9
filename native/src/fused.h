/* SPDX-License-Identifier: BSD-3-Clause */
/* fused.h: the fused functions' loops.
 *
 * In float32, and backward in 16 bits, all steps of a vector are done in registers while what the
 * form needs is near (algorithms.h). What is not, and the rest, go through the steps one after the
 * other: an array is taken in blocks that stay in the first-level cache with what is computed on the
 * way, and sums, values and products of a block go through small buffers on the stack. Each step is
 * one operation of vocabulary.h, one function of algorithms.h or one loop of kernels.h, so the
 * results are those of the same calls one after the other on whole arrays, to the bit.
 *
 *   bias            s = x + b;  y = f(s)
 *   bias_backward   s = x + b;  dx = f_backward(dy, s)
 *   glu             v = f(a);  y = v b
 *   glu_backward    p = dy b, da = f_backward(p, a);  v = f(a), db = dy v
 *   value_and_grad  y = f(x);  slope = f_grad(x)
 *
 * 16 bits: s, v and p, and f and f_backward of them, are float32; the last step's result is rounded
 * to 16 bits, the only rounding to these. value_and_grad is that of the two functions.
 *
 * All inputs of a block are read before its outputs are written, or element for element along with
 * that: an output may be any of the inputs. */

/* Elements of a buffer, and of one that is alone on the stack; multiples of the lanes of every
 * target. In 16 bits a longer block has its far elements computed more of them at a time. */
enum {
    FG_FUSED_BLOCK_f32 = 256,
    FG_FUSED_BLOCK_f64 = 128,
    FG_FUSED_BLOCK_f16 = 256,
    FG_FUSED_BLOCK_bf16 = 256,
    FG_ONE_BLOCK_f32 = FG_FUSED_BLOCK_f32,
    FG_ONE_BLOCK_f64 = FG_FUSED_BLOCK_f64,
    FG_ONE_BLOCK_f16 = 1024,
    FG_ONE_BLOCK_bf16 = 1024
};

/* In a loop, where the target is to go one by one: gcc 12 makes vectors of pairs out of 16-bit
 * elements otherwise, in whose other lanes anything may raise a flag. */
#ifndef FG_ONE_BY_ONE
#define FG_ONE_BY_ONE() ((void)0)
#endif

/* What is computed with. */
typedef fg_f32 fg_real_f32, fg_real_f16, fg_real_bf16;
typedef fg_f64 fg_real_f64;
enum { FG_WIDENED_f32, FG_WIDENED_f64 = 0, FG_WIDENED_f16, FG_WIDENED_bf16 = 1 };

/* Stores of results. To bfloat16, what rounds to infinity becomes that first: the flag is raised. */
#define v_result_f32 v_store_f32
#define v_result_f64 v_store_f64
#define v_result_f16 v_store_f16
static FG_INLINE void v_result_bf16(fg_bf16 *p, V_f32 a)
{
    const V_f32 above = v_mul_f32(a, v_set_f32(fg_overflow_bf16));
    v_store_bf16(p, v_raised(above, a));
}

/* One operation on n elements of dtypes p and q with results of dtype r; the last few by way of
 * small buffers. */
#define FG_ELEMENTWISE(name, p, q, r, operation)                                      \
    static FG_SINGLE void name(size_t n, const fg_##p *a, const fg_##q *b, fg_##r *c) \
    {                                                                                 \
        enum { LANES = FG_LANES_##p };                                                \
        const size_t whole = n - n % LANES;                                           \
        for (size_t i = 0; i < whole; i += LANES) {                                   \
            FG_ONE_BY_ONE();                                                          \
            const V_##p result = operation(v_load_##p(a + i), v_load_##q(b + i));     \
            v_result_##r(c + i, result);                                              \
        }                                                                             \
        if (n > whole) {                                                              \
            const size_t rest = n - whole;                                            \
            fg_##p x[LANES] = {0};                                                    \
            fg_##q y[LANES] = {0};                                                    \
            fg_##r z[LANES];                                                          \
            memcpy(x, a + whole, rest * sizeof *x);                                   \
            memcpy(y, b + whole, rest * sizeof *y);                                   \
            v_result_##r(z, operation(v_load_##p(x), v_load_##q(y)));                 \
            memcpy(c + whole, z, rest * sizeof *z);                                   \
        }                                                                             \
    }
/* Of elements, each_sum and each_product are reals; of a real and an element, each_times is an
 * element and each_scaled a real. */
#define FG_REAL_ELEMENTWISE(dtype)                                       \
    FG_ELEMENTWISE(each_sum_##dtype, dtype, dtype, dtype, v_add_##dtype) \
    FG_ELEMENTWISE(each_product_##dtype, dtype, dtype, dtype, v_mul_##dtype)
FG_REAL_ELEMENTWISE(f32)
FG_REAL_ELEMENTWISE(f64)
#define each_times_f32 each_product_f32
#define each_times_f64 each_product_f64
#define each_scaled_f32 each_product_f32
#define each_scaled_f64 each_product_f64

#define FG_ELEMENTWISE_16(dtype)                                                      \
    FG_ELEMENTWISE(each_sum_##dtype, dtype, dtype, f32, v_add_f32)                    \
    FG_ELEMENTWISE(each_product_##dtype, dtype, dtype, f32, v_mul_f32)                \
    FG_ELEMENTWISE(each_times_##dtype, f32, dtype, dtype, v_mul_f32)                  \
    FG_ELEMENTWISE(each_scaled_##dtype, f32, dtype, f32, v_mul_f32)                   \
    static FG_SINGLE void widen_##dtype(size_t n, const fg_##dtype *x, fg_f32 *y)     \
    {                                                                                 \
        enum { LANES = FG_LANES_f32 };                                                \
        const size_t whole = n - n % LANES;                                           \
        for (size_t i = 0; i < whole; i += LANES)                                     \
            v_store_f32(y + i, v_load_##dtype(x + i));                                \
        if (n > whole) {                                                              \
            fg_##dtype a[LANES] = {0};                                                \
            memcpy(a, x + whole, (n - whole) * sizeof *a);                            \
            v_store_f32(y + whole, v_load_##dtype(a)); /* a block is whole vectors */ \
        }                                                                             \
    }                                                                                 \
    static FG_SINGLE void narrow_##dtype(size_t n, const fg_f32 *x, fg_##dtype *y)    \
    {                                                                                 \
        enum { LANES = FG_LANES_f32 };                                                \
        const size_t whole = n - n % LANES;                                           \
        for (size_t i = 0; i < whole; i += LANES) {                                   \
            FG_ONE_BY_ONE();                                                          \
            v_result_##dtype(y + i, v_load_f32(x + i));                               \
        }                                                                             \
        if (n > whole) {                                                              \
            fg_f32 a[LANES] = {0};                                                    \
            fg_##dtype b[LANES];                                                      \
            memcpy(a, x + whole, (n - whole) * sizeof *a);                            \
            v_result_##dtype(b, v_load_f32(a));                                       \
            memcpy(y + whole, b, (n - whole) * sizeof *b);                            \
        }                                                                             \
    }
FG_ELEMENTWISE_16(f16)
FG_ELEMENTWISE_16(bf16)

/* Elements as reals: they themselves, or widened into a buffer. Where the reals of an output are
 * computed: there, or in a buffer, from where finish_ takes them. */
#define FG_AS_REALS(dtype)                                                             \
    static FG_INLINE const fg_##dtype *reals_##dtype(size_t n, const fg_##dtype *x,    \
                                                     fg_##dtype *buffer)               \
    {                                                                                  \
        (void)n;                                                                       \
        (void)buffer;                                                                  \
        return x;                                                                      \
    }                                                                                  \
    static FG_INLINE fg_##dtype *place_##dtype(fg_##dtype *y, fg_##dtype *buffer)      \
    {                                                                                  \
        (void)buffer;                                                                  \
        return y;                                                                      \
    }                                                                                  \
    static FG_INLINE void finish_##dtype(size_t n, const fg_##dtype *x, fg_##dtype *y) \
    {                                                                                  \
        if (x != y)                                                                    \
            memcpy(y, x, n * sizeof *y);                                               \
    }
FG_AS_REALS(f32)
FG_AS_REALS(f64)

#define FG_AS_REALS_16(dtype)                                                                   \
    static FG_INLINE const fg_f32 *reals_##dtype(size_t n, const fg_##dtype *x, fg_f32 *buffer) \
    {                                                                                           \
        widen_##dtype(n, x, buffer);                                                            \
        return buffer;                                                                          \
    }                                                                                           \
    static FG_INLINE fg_f32 *place_##dtype(fg_##dtype *y, fg_f32 *buffer)                       \
    {                                                                                           \
        (void)y;                                                                                \
        return buffer;                                                                          \
    }                                                                                           \
    static FG_INLINE void finish_##dtype(size_t n, const fg_f32 *x, fg_##dtype *y)              \
    {                                                                                           \
        narrow_##dtype(n, x, y);                                                                \
    }
FG_AS_REALS_16(f16)
FG_AS_REALS_16(bf16)

/* The loops of the form and of its backward by real type, of arrays that are read and written with
 * others. ahead: those are next. */
#define FG_VALUE_f32(form, n, x, y, ahead) blocks_##form##_f32(n, x, y, 0, ahead)
#define FG_VALUE_f64(form, n, x, y, ahead) blocks_##form##_f64(n, x, y, 0, ahead)
#define FG_VALUE_f16 FG_VALUE_f32
#define FG_VALUE_bf16 FG_VALUE_f32
/* Of long blocks, in 16 bits: the function of float32, which takes a few far elements best. */
#define FG_LONG_VALUE_f32 FG_VALUE_f32
#define FG_LONG_VALUE_f64 FG_VALUE_f64
#define FG_LONG_VALUE_f16(form, n, x, y, ahead) run_##form##_f32(n, x, NULL, NULL, y, NULL, 0)
#define FG_LONG_VALUE_bf16 FG_LONG_VALUE_f16
#define FG_BACKWARD_f32(form, n, dy, x, dx, ahead) \
    blocks_##form##_backward_f32(n, dy, x, dx, 0, ahead)
#define FG_BACKWARD_f64(form, n, dy, x, dx, ahead) \
    blocks_##form##_backward_f64(n, dy, x, dx, 0, ahead)
#define FG_BACKWARD_f16 FG_BACKWARD_f32
#define FG_BACKWARD_bf16 FG_BACKWARD_f32
/* Their own. */
#define FG_RUN_OWN_f32(function, n, x, y, p, q) \
    blocks_##function##_f32(n, x, y, 0, FG_AHEAD_OF(x, p, q, q))
#define FG_RUN_OWN_f64(function, n, x, y, p, q) \
    blocks_##function##_f64(n, x, y, 0, FG_AHEAD_OF(x, p, q, q))
#define FG_RUN_OWN_f16(function, n, x, y, p, q) run_##function##_f16(n, x, y, 0)
#define FG_RUN_OWN_bf16(function, n, x, y, p, q) run_##function##_bf16(n, x, y, 0)

/* ---- the steps, one after the other ------------------------------------------ */

/* Operands of every shape, in one order: x (or a), b, dy; y (or dx, da), z (or slope, db). Those
 * that a shape lacks are NULL. */
#define FG_OPERANDS(dtype)                                                                   \
    size_t n, const fg_##dtype *x, const fg_##dtype *b, const fg_##dtype *dy, fg_##dtype *y, \
        fg_##dtype *z
enum { FG_INPUTS_alone = 1, FG_OUTPUTS_alone = 1 };
#define FG_HAS_B(shape) (FG_INPUTS_##shape > 1)
#define FG_HAS_DY(shape) (FG_INPUTS_##shape > 2)
#define FG_HAS_Z(shape) (FG_OUTPUTS_##shape > 1)
/* p + i, where the shape has p */
#define FG_FROM(has, p, i) ((has) ? (p) + (i) : (p))

/* What to look ahead for, by so many bytes. */
enum { FG_FUSED_AHEAD = 2048 };
#define FG_FROM_X(from, p) ((uintptr_t)(p) - (uintptr_t)(from) + FG_FUSED_AHEAD)
#define FG_AHEAD_OF(from, p, q, r) \
    &(const fg_ahead){{FG_FROM_X(from, p), FG_FROM_X(from, q), FG_FROM_X(from, r)}}

#define FG_BUFFER(dtype, name) FG_ALIGNED fg_real_##dtype name[FG_FUSED_BLOCK_##dtype]
#define FG_ONE_BUFFER(dtype, name) FG_ALIGNED fg_real_##dtype name[FG_ONE_BLOCK_##dtype]

#define FG_BLOCK_bias(dtype, form)                                      \
    FG_ONE_BUFFER(dtype, sum);                                          \
    fg_real_##dtype *to = place_##dtype(y, sum);                        \
    each_sum_##dtype(n, x, b, sum);                                     \
    FG_LONG_VALUE_##dtype(form, n, sum, to, FG_AHEAD_OF(sum, x, b, y)); \
    finish_##dtype(n, to, y)

#define FG_BLOCK_bias_backward(dtype, form)                                                        \
    FG_BUFFER(dtype, sum);                                                                         \
    FG_BUFFER(dtype, wide);                                                                        \
    fg_real_##dtype *to = place_##dtype(y, sum);                                                   \
    each_sum_##dtype(n, x, b, sum);                                                                \
    FG_BACKWARD_##dtype(form, n, reals_##dtype(n, dy, wide), sum, to, FG_AHEAD_OF(sum, x, y, dy)); \
    finish_##dtype(n, to, y)

#define FG_BLOCK_glu(dtype, form)                                            \
    FG_ONE_BUFFER(dtype, value);                                             \
    const fg_real_##dtype *from = reals_##dtype(n, x, value);                \
    FG_LONG_VALUE_##dtype(form, n, from, value, FG_AHEAD_OF(from, x, b, y)); \
    each_times_##dtype(n, value, b, y)

#define FG_BLOCK_glu_backward(dtype, form)                                        \
    FG_BUFFER(dtype, value);                                                      \
    FG_BUFFER(dtype, product);                                                    \
    FG_BUFFER(dtype, wide);                                                       \
    const fg_real_##dtype *from = reals_##dtype(n, x, wide);                      \
    fg_real_##dtype *to = place_##dtype(y, product);                              \
    FG_VALUE_##dtype(form, n, from, value, FG_AHEAD_OF(from, x, b, z));           \
    each_scaled_##dtype(n, value, dy, value);                                     \
    each_product_##dtype(n, dy, b, product);                                      \
    FG_BACKWARD_##dtype(form, n, product, from, to, FG_AHEAD_OF(from, dy, y, y)); \
    finish_##dtype(n, to, y);                                                     \
    finish_##dtype(n, value, z)

/* 16 bits too have these two functions as they are. */
#define FG_BLOCK_value_and_grad(dtype, form)             \
    FG_ALIGNED fg_##dtype value[FG_FUSED_BLOCK_##dtype]; \
    fg_##dtype *to = x == y ? value : y;                 \
    FG_RUN_OWN_##dtype(form, n, x, to, x, y);            \
    FG_RUN_OWN_##dtype(form##_grad, n, x, z, z, z);      \
    if (to != y)                                         \
    memcpy(y, to, n * sizeof *y)

/* A function of one input alone: there are no steps, but the ways of kernels.h. */
#define FG_BLOCK_alone(dtype, form) FG_VALUE_##dtype(form, n, x, y, FG_AHEAD_OF(x, x, y, y))

/* Of a block at most. */
#define FG_STEPS(name, dtype, shape, form)                           \
    static FG_SINGLE void steps_##name##_##dtype(FG_OPERANDS(dtype)) \
    {                                                                \
        (void)b, (void)dy, (void)z;                                  \
        FG_BLOCK_##shape(dtype, form);                               \
    }

/* ---- all of them in registers ------------------------------------------------- */

/* `real` is what is computed with: float32 for 16 bits, which are stored in one way. */
#define v_past_f32 v_stream_f32
#define v_past_f16 v_result_f16
#define v_past_bf16 v_result_bf16
#define FG_PUT(dtype, to, result)               \
    do {                                        \
        if (past)                               \
            v_past_##dtype((to) + j, result);   \
        else                                    \
            v_result_##dtype((to) + j, result); \
    } while (0)

/* The argument of the form, and its magnitude. */
#define FG_SUM(dtype, real, x, b) v_add_##real(v_load_##dtype(x), v_load_##dtype(b))
#define FG_ALONE(dtype, real, x, b) v_load_##dtype(x)
#define FG_ARGUMENT_bias FG_SUM
#define FG_ARGUMENT_bias_backward FG_SUM
#define FG_ARGUMENT_glu FG_ALONE
#define FG_ARGUMENT_glu_backward FG_ALONE
#define FG_ARGUMENT_value_and_grad FG_ALONE
#define FG_ARGUMENT_alone FG_ALONE
#define FG_SIZE(real, s) v_bits_##real(v_abs_##real(s))

/* Where all that is needed is near. */
#define FG_LESSER(a, b) ((a) < (b) ? (a) : (b))
#define FG_NEAR_bias(dtype, form) fg_##form##_near_##dtype
#define FG_NEAR_bias_backward(dtype, form) fg_##form##_backward_near_##dtype
#define FG_NEAR_glu FG_NEAR_bias
#define FG_NEAR_alone FG_NEAR_bias
#define FG_NEAR_glu_backward(dtype, form) \
    FG_LESSER(fg_##form##_near_##dtype, fg_##form##_backward_near_##dtype)
#define FG_NEAR_value_and_grad(dtype, form) \
    FG_LESSER(fg_##form##_near_##dtype, fg_##form##_grad_near_##dtype)

/* `far`: where some may not be. */
#define FG_RESULT_bias(dtype, real, form, far) out_y = near_##form##_##real(s, far)
#define FG_RESULT_alone FG_RESULT_bias
#define FG_RESULT_bias_backward(dtype, real, form, far) \
    out_y = near_##form##_backward_##real(v_load_##dtype(dy + j), s, far)
#define FG_RESULT_glu(dtype, real, form, far) \
    out_y = v_mul_##real(near_##form##_##real(s, far), v_load_##dtype(b + j))
#define FG_RESULT_glu_backward(dtype, real, form, far)                       \
    const V_##dtype upstream = v_load_##dtype(dy + j);                       \
    const V_##dtype product = v_mul_##real(upstream, v_load_##dtype(b + j)); \
    out_y = near_##form##_backward_##real(product, s, far);                  \
    out_z = v_mul_##real(near_##form##_##real(s, far), upstream)
#define FG_RESULT_value_and_grad(dtype, real, form, far) \
    out_y = near_##form##_##real(s, far);                \
    out_z = near_##form##_grad_##real(s, far)

/* Elements that are not near, and where they belong. They are set apart and go through the steps
 * many together. */
enum { FG_MANY = 64, FG_VECTORS = 6, FG_MARKS = 64, FG_FEW_MARKS = 16 };
/* Vectors that have some: which of their elements, and where. One more is written than counts. */
typedef struct fg_marks {
    size_t count;
    unsigned which[FG_VECTORS + 1];
    size_t at[FG_VECTORS + 1];
} fg_marks;
#define FG_SET_APART(dtype)                                                                       \
    enum { FG_MOST_APART_##dtype = FG_MANY + FG_VECTORS * FG_LANES_##dtype };                     \
    typedef struct apart_##dtype {                                                                \
        size_t count, at[FG_MOST_APART_##dtype];                                                  \
        fg_##dtype x[FG_MOST_APART_##dtype], b[FG_MOST_APART_##dtype], dy[FG_MOST_APART_##dtype]; \
    } apart_##dtype;                                                                              \
    static FG_SINGLE void put_apart_##dtype(apart_##dtype *apart, const fg_marks *marks,          \
                                            const fg_##dtype *x, const fg_##dtype *b,             \
                                            const fg_##dtype *dy)                                 \
    {                                                                                             \
        size_t to = apart->count;                                                                 \
        for (size_t k = 0; k < marks->count; k++) {                                               \
            unsigned which = marks->which[k];                                                     \
            do {                                                                                  \
                const size_t i = marks->at[k] + FG_LOWEST_BIT(which);                             \
                apart->at[to] = i;                                                                \
                apart->x[to] = x[i];                                                              \
                if (b)                                                                            \
                    apart->b[to] = b[i];                                                          \
                if (dy)                                                                           \
                    apart->dy[to] = dy[i];                                                        \
                to++;                                                                             \
                which &= which - 1;                                                               \
            } while (which);                                                                      \
        }                                                                                         \
        apart->count = to;                                                                        \
    }                                                                                             \
    /* They go through the steps by whole vectors, for which the loops are fastest. */            \
    static FG_SINGLE void take_apart_##dtype(apart_##dtype *apart, int has_b, int has_dy,         \
                                             fg_##dtype *y, fg_##dtype *z,                        \
                                             void (*steps)(FG_OPERANDS(dtype)))                   \
    {                                                                                             \
        size_t n = apart->count;                                                                  \
        for (; n % FG_LANES_##dtype; n++) {                                                       \
            apart->x[n] = apart->x[0];                                                            \
            if (has_b)                                                                            \
                apart->b[n] = apart->b[0];                                                        \
            if (has_dy)                                                                           \
                apart->dy[n] = apart->dy[0];                                                      \
        }                                                                                         \
        steps(n, apart->x, apart->b, apart->dy, apart->x, apart->b);                              \
        for (size_t k = 0; k < apart->count; k++) {                                               \
            y[apart->at[k]] = apart->x[k];                                                        \
            if (z)                                                                                \
                z[apart->at[k]] = apart->b[k];                                                    \
        }                                                                                         \
        apart->count = 0;                                                                         \
    }
FG_SET_APART(f32)
FG_SET_APART(f16)
FG_SET_APART(bf16)
_Static_assert((int)FG_MOST_APART_f32 <= (int)FG_FUSED_BLOCK_f32 &&
                   (int)FG_MOST_APART_f16 <= (int)FG_FUSED_BLOCK_f16,
               "what is set apart goes through the steps at once");

/* Looks at no more vectors from j on than have room: where it ended. */
#define FG_MARK(name, dtype, real, argument)                                                  \
    static FG_SINGLE size_t mark_##name##_##dtype(fg_marks *marks, size_t j, size_t end,      \
                                                  const fg_##dtype *x, const fg_##dtype *b,   \
                                                  fg_##real near)                             \
    {                                                                                         \
        (void)b;                                                                              \
        for (marks->count = 0; j < end && marks->count < FG_VECTORS; j += FG_LANES_##dtype) { \
            const unsigned which =                                                            \
                i_above_##real(FG_SIZE(real, argument(dtype, real, x + j, b + j)), near);     \
            marks->which[marks->count] = which;                                               \
            marks->at[marks->count] = j;                                                      \
            marks->count += which != 0;                                                       \
        }                                                                                     \
        return j;                                                                             \
    }
FG_MARK(sum, f32, f32, FG_SUM)
FG_MARK(alone, f32, f32, FG_ALONE)
FG_MARK(sum, f16, f32, FG_SUM)
FG_MARK(sum, bf16, f32, FG_SUM)
FG_MARK(alone, f16, f32, FG_ALONE)
FG_MARK(alone, bf16, f32, FG_ALONE)
#define FG_MARK_bias(dtype) mark_sum_##dtype
#define FG_MARK_bias_backward(dtype) mark_sum_##dtype
#define FG_MARK_glu(dtype) mark_alone_##dtype
#define FG_MARK_glu_backward(dtype) mark_alone_##dtype
#define FG_MARK_value_and_grad(dtype) mark_alone_##dtype
#define FG_MARK_alone(dtype) mark_alone_##dtype

/* So many elements go through the steps then, and so many of them at once. */
enum { FG_AT_A_TIME = 4 * FG_BLOCK };
#define FG_STEP_bias(dtype) FG_ONE_BLOCK_##dtype
#define FG_STEP_glu FG_STEP_bias
#define FG_STEP_bias_backward(dtype) FG_FUSED_BLOCK_##dtype
#define FG_STEP_glu_backward FG_STEP_bias_backward
#define FG_STEP_value_and_grad FG_STEP_bias_backward
#define FG_STEP_alone(dtype) FG_AT_A_TIME

/* Vectors from j to the end, or until there is no room for marks: where it ended. No branch depends
 * on the data; where an element is not near, something is written, and noted: what there is for |x|
 * just near, of the same x and with a dy of 0. That raises no flag which the result does not: values
 * there are not larger than theirs, or below 1. */
#define FG_LOOP_MIXED(name, dtype, real, shape, form)                                             \
    static FG_SINGLE size_t mixed_##name##_##dtype(size_t j, size_t end, const fg_##dtype *x,     \
                                                   const fg_##dtype *b, const fg_##dtype *dy,     \
                                                   fg_##dtype *y, fg_##dtype *z, fg_marks *marks) \
    {                                                                                             \
        const fg_##real near = FG_NEAR_##shape(real, form);                                       \
        enum { past = 0 }; /* what is set apart is written there again */                         \
        (void)b, (void)dy, (void)z;                                                               \
        size_t k = 0;                                                                             \
        for (; j < end && k < FG_VECTORS; j += FG_LANES_##dtype) {                                \
            const V_##real s = FG_ARGUMENT_##shape(dtype, real, x + j, b + j);                    \
            const I_##real size = FG_SIZE(real, s);                                               \
            const unsigned which = i_above_##real(size, near);                                    \
            marks->which[k] = which;                                                              \
            marks->at[k] = j;                                                                     \
            k += which != 0;                                                                      \
            V_##dtype out_y, out_z;                                                               \
            FG_RESULT_##shape(dtype, real, form, 1);                                              \
            FG_PUT(dtype, y, out_y);                                                              \
            if (FG_HAS_Z(shape))                                                                  \
                FG_PUT(dtype, z, out_z);                                                          \
        }                                                                                         \
        marks->count = k;                                                                         \
        return j;                                                                                 \
    }

/* Vector after vector while all is near: the next one is looked at when one is done. That way
 * nothing leaves the loop before its arithmetic, without which gcc does not keep the tables in
 * registers. From the first vector on that has something else the loop above computes, for longer
 * where there is more of it. Where nothing of a vector is near or many have some that is not, a
 * block goes through the steps, as the last few elements do. */
/* b repeats, with a few more vectors than a period in memory: where it is to begin anew. As a
 * number, since the pointer is to no element until j is added. */
#define FG_TURN(dtype)                                                          \
    if (j >= turn) {                                                            \
        b = (const fg_##dtype *)(uintptr_t)((uintptr_t)b - period * sizeof *b); \
        turn += period;                                                         \
    }
#define FG_LOOP_FUSED(name, dtype, real, shape, form)                                             \
    FG_LOOP_MIXED(name, dtype, real, shape, form)                                                 \
    static FG_SINGLE void turns_##name##_##dtype(FG_OPERANDS(dtype), int past, size_t turn,       \
                                                 size_t period)                                   \
    {                                                                                             \
        enum { LANES = FG_LANES_##dtype };                                                        \
        const fg_##real near = FG_NEAR_##shape(real, form);                                       \
        apart_##dtype apart;                                                                      \
        fg_marks marks;                                                                           \
        /* then what is set apart has to be read before */                                        \
        const int in_place = y == x || y == b || y == dy || (z && (z == x || z == b || z == dy)); \
        size_t mixed = 0; /* vectors */                                                           \
        apart.count = 0;                                                                          \
        for (size_t j = 0; j < n || apart.count;) {                                               \
            size_t m = (n - j) / LANES;                                                           \
            int all = m == 0;                                                                     \
            m = FG_LESSER(m, (turn - j - 1) / LANES + 1);                                         \
            if (m) {                                                                              \
                V_##real s = FG_ARGUMENT_##shape(dtype, real, x + j, b + j), out_y, out_z;        \
                if (!mixed) {                                                                     \
                    while (!i_any_above_##real(FG_SIZE(real, s), near)) {                         \
                        FG_RESULT_##shape(dtype, real, form, 0);                                  \
                        FG_PUT(dtype, y, out_y);                                                  \
                        if (FG_HAS_Z(shape))                                                      \
                            FG_PUT(dtype, z, out_z);                                              \
                        j += LANES;                                                               \
                        if (!--m)                                                                 \
                            break;                                                                \
                        s = FG_ARGUMENT_##shape(dtype, real, x + j, b + j);                       \
                    }                                                                             \
                    if (m)                                                                        \
                        mixed = FG_FEW_MARKS;                                                     \
                } else if (i_all_above_##real(FG_SIZE(real, s), near)) {                          \
                    all = 1;                                                                      \
                } else {                                                                          \
                    const size_t first = j;                                                       \
                    size_t end = j + FG_LESSER(m, mixed) * LANES;                                 \
                    if (in_place) {                                                               \
                        end = FG_MARK_##shape(dtype)(&marks, j, end, x, b, near);                 \
                        put_apart_##dtype(&apart, &marks, x, b, dy);                              \
                    }                                                                             \
                    j = mixed_##name##_##dtype(j, end, x, b, dy, y, z, &marks);                   \
                    if (!in_place)                                                                \
                        put_apart_##dtype(&apart, &marks, x, b, dy);                              \
                    mixed = marks.count < 2 ? marks.count * FG_FEW_MARKS : FG_MARKS;              \
                    all = marks.count == FG_VECTORS && j - first < 2 * FG_VECTORS * LANES;        \
                }                                                                                 \
            }                                                                                     \
            if (all) {                                                                            \
                const size_t end = j + FG_LESSER(n - j, FG_AT_A_TIME);                            \
                for (; j < end; j += m) {                                                         \
                    FG_TURN(dtype);                                                               \
                    m = FG_LESSER(end - j, FG_STEP_##shape(dtype));                               \
                    m = FG_LESSER(m, turn - j);                                                   \
                    steps_##name##_##dtype(m, x + j, FG_FROM(FG_HAS_B(shape), b, j),              \
                                           FG_FROM(FG_HAS_DY(shape), dy, j), y + j,               \
                                           FG_FROM(FG_HAS_Z(shape), z, j));                       \
                }                                                                                 \
            }                                                                                     \
            FG_TURN(dtype);                                                                       \
            if (apart.count > FG_MANY || (apart.count && j == n))                                 \
                take_apart_##dtype(&apart, FG_HAS_B(shape), FG_HAS_DY(shape), y, z,               \
                                   steps_##name##_##dtype);                                       \
        }                                                                                         \
    }                                                                                             \
    static FG_INLINE void run_##name##_##dtype(FG_OPERANDS(dtype), int past)                      \
    {                                                                                             \
        turns_##name##_##dtype(n, x, b, dy, y, z, past, SIZE_MAX, SIZE_MAX);                      \
    }

/* The steps: of float64, because its rows are found first, for a piece at a time (kernels.h), and of
 * 16 bits but backward, because registers gain nothing there (NOTES.md). */
#define FG_LOOP_STEPS(name, dtype, shape)                                    \
    static void run_##name##_##dtype(FG_OPERANDS(dtype), int past)           \
    {                                                                        \
        (void)past;                                                          \
        for (size_t m, j = 0; j < n; j += m) {                               \
            m = FG_LESSER(n - j, FG_STEP_##shape(dtype));                    \
            steps_##name##_##dtype(m, x + j, FG_FROM(FG_HAS_B(shape), b, j), \
                                   FG_FROM(FG_HAS_DY(shape), dy, j), y + j,  \
                                   FG_FROM(FG_HAS_Z(shape), z, j));          \
        }                                                                    \
    }
/* Both functions of a block where that is near for both (algorithms16.h). */
_Static_assert((int)FG_BLOCK_16 <= (int)FG_FUSED_BLOCK_f16 &&
                   (int)FG_FUSED_BLOCK_f16 == (int)FG_FUSED_BLOCK_bf16,
               "a block goes through the steps at once");
#define FG_LOOP_BOTH_16(name, dtype, form)                                  \
    static void run_##name##_##dtype(FG_OPERANDS(dtype), int past)          \
    {                                                                       \
        enum { LANES = FG_LANES_##dtype };                                  \
        const uint16_t near_y = fg_##form##_far_bits_##dtype,               \
                       near_z = fg_##form##_grad_far_bits_##dtype;          \
        const uint16_t far = FG_LESSER(near_y, near_z);                     \
        (void)b, (void)dy, (void)past;                                      \
        for (size_t m, j = 0; j < n; j += m) {                              \
            m = FG_LESSER(n - j, FG_BLOCK_16);                              \
            if (m >= LANES && largest_16(m -= m % LANES, x + j) < far) {    \
                for (size_t i = j; i < j + m; i += LANES) {                 \
                    const V_##dtype value = v_load_##dtype(x + i);          \
                    v_store_##dtype(y + i, form##_##dtype(value, 1));       \
                    v_store_##dtype(z + i, form##_grad_##dtype(value, 1));  \
                }                                                           \
            } else {                                                        \
                steps_##name##_##dtype(m, x + j, NULL, NULL, y + j, z + j); \
            }                                                               \
        }                                                                   \
    }
#define FG_LOOP_16_bias(name, dtype, form) FG_LOOP_STEPS(name, dtype, bias)
#define FG_LOOP_16_bias_backward(name, dtype, form) \
    FG_LOOP_FUSED(name, dtype, f32, bias_backward, form)
#define FG_LOOP_16_glu(name, dtype, form) FG_LOOP_STEPS(name, dtype, glu)
#define FG_LOOP_16_glu_backward(name, dtype, form) \
    FG_LOOP_FUSED(name, dtype, f32, glu_backward, form)
#define FG_LOOP_16_value_and_grad FG_LOOP_BOTH_16
#define FG_LOOP_f32(name, shape, form) FG_LOOP_FUSED(name, f32, f32, shape, form)
#define FG_LOOP_f64(name, shape, form) FG_LOOP_STEPS(name, f64, shape)
#define FG_LOOP_f16(name, shape, form) FG_LOOP_16_##shape(name, f16, form)
#define FG_LOOP_bf16(name, shape, form) FG_LOOP_16_##shape(name, bf16, form)

/* ---- the two ways into them ------------------------------------------------- */

#define FG_ENTRIES_bias(name, dtype)                                                 \
    static FG_KERNEL_bias(loop_##name##_##dtype, dtype)                              \
    {                                                                                \
        run_##name##_##dtype(n, x, b, NULL, y, NULL, 0);                             \
    }                                                                                \
    static FG_KERNEL_bias(stream_##name##_##dtype, dtype)                            \
    {                                                                                \
        FG_HEAD(dtype, y);                                                           \
        run_##name##_##dtype(head, x, b, NULL, y, NULL, 0);                          \
        run_##name##_##dtype(n - head, x + head, b + head, NULL, y + head, NULL, 1); \
        v_stream_end();                                                              \
    }
#define FG_ENTRIES_bias_backward(name, dtype)                                              \
    static FG_KERNEL_bias_backward(loop_##name##_##dtype, dtype)                           \
    {                                                                                      \
        run_##name##_##dtype(n, x, b, dy, dx, NULL, 0);                                    \
    }                                                                                      \
    static FG_KERNEL_bias_backward(stream_##name##_##dtype, dtype)                         \
    {                                                                                      \
        FG_HEAD(dtype, dx);                                                                \
        run_##name##_##dtype(head, x, b, dy, dx, NULL, 0);                                 \
        run_##name##_##dtype(n - head, x + head, b + head, dy + head, dx + head, NULL, 1); \
        v_stream_end();                                                                    \
    }
#define FG_ENTRIES_glu(name, dtype)                                                  \
    static FG_KERNEL_glu(loop_##name##_##dtype, dtype)                               \
    {                                                                                \
        run_##name##_##dtype(n, a, b, NULL, y, NULL, 0);                             \
    }                                                                                \
    static FG_KERNEL_glu(stream_##name##_##dtype, dtype)                             \
    {                                                                                \
        FG_HEAD(dtype, y);                                                           \
        run_##name##_##dtype(head, a, b, NULL, y, NULL, 0);                          \
        run_##name##_##dtype(n - head, a + head, b + head, NULL, y + head, NULL, 1); \
        v_stream_end();                                                              \
    }
/* two outputs: past the caches only where vectors of both are aligned at once */
#define FG_ENTRIES_glu_backward(name, dtype)                                                       \
    static FG_KERNEL_glu_backward(loop_##name##_##dtype, dtype)                                    \
    {                                                                                              \
        run_##name##_##dtype(n, a, b, dy, da, db, 0);                                              \
    }                                                                                              \
    static FG_KERNEL_glu_backward(stream_##name##_##dtype, dtype)                                  \
    {                                                                                              \
        FG_HEAD(dtype, da);                                                                        \
        const int past = (uintptr_t)(db + head) % whole == 0;                                      \
        run_##name##_##dtype(head, a, b, dy, da, db, 0);                                           \
        run_##name##_##dtype(n - head, a + head, b + head, dy + head, da + head, db + head, past); \
        v_stream_end();                                                                            \
    }
#define FG_ENTRIES_value_and_grad(name, dtype)                                              \
    static FG_KERNEL_value_and_grad(loop_##name##_##dtype, dtype)                           \
    {                                                                                       \
        run_##name##_##dtype(n, x, NULL, NULL, y, slope, 0);                                \
    }                                                                                       \
    static FG_KERNEL_value_and_grad(stream_##name##_##dtype, dtype)                         \
    {                                                                                       \
        FG_HEAD(dtype, y);                                                                  \
        const int past = (uintptr_t)(slope + head) % whole == 0;                            \
        run_##name##_##dtype(head, x, NULL, NULL, y, slope, 0);                             \
        run_##name##_##dtype(n - head, x + head, NULL, NULL, y + head, slope + head, past); \
        v_stream_end();                                                                     \
    }

/* The functions of one float32 input first: steps of 16 bits run them. */
#define FG_ENTRIES_alone(name, dtype)                                                 \
    static void loop_##name##_##dtype(size_t n, const fg_##dtype *x, fg_##dtype *y)   \
    {                                                                                 \
        run_##name##_##dtype(n, x, NULL, NULL, y, NULL, 0);                           \
    }                                                                                 \
    static void stream_##name##_##dtype(size_t n, const fg_##dtype *x, fg_##dtype *y) \
    {                                                                                 \
        FG_HEAD(dtype, y);                                                            \
        run_##name##_##dtype(head, x, NULL, NULL, y, NULL, 0);                        \
        run_##name##_##dtype(n - head, x + head, NULL, NULL, y + head, NULL, 1);      \
        v_stream_end();                                                               \
    }
#define FG_ALONE_f32_1(name)         \
    FG_STEPS(name, f32, alone, name) \
    FG_LOOP_FUSED(name, f32, f32, alone, name) FG_ENTRIES_alone(name, f32)
#define FG_ALONE_f32_2(name)
#define FG_ALONE_f64_1(name)
#define FG_ALONE_f64_2(name)
#define FG_ALONE_f16_1(name)
#define FG_ALONE_f16_2(name)
#define FG_ALONE_bf16_1(name)
#define FG_ALONE_bf16_2(name)
#define FG_FUNCTION(name, dtype, inputs, max_ulp) FG_ALONE_##dtype##_##inputs(name)
#define FG_FUNCTION_GRAD2(name, dtype, inputs, max_ulp)
#include "functions.def"

#define FG_FUSED(name, dtype, shape, form) \
    FG_STEPS(name, dtype, shape, form)     \
    FG_LOOP_##dtype(name, shape, form) FG_ENTRIES_##shape(name, dtype)
#include "functions.def"

/* And a third, for rows (internal.h): float32 functions that have b. */
#define FG_ROWS_f32(name, shape)                                                                 \
    static void rows_##name##_f32(const fg_rows *r)                                              \
    {                                                                                            \
        const size_t whole = FG_REGISTER_LANES_f32 * sizeof(fg_f32);                             \
        const fg_f32 *x = r->x, *b = (const fg_f32 *)r->b + r->phase, *dy = r->dy;               \
        fg_f32 *y = r->y, *z = r->z;                                                             \
        const size_t turn = r->period - r->phase;                                                \
        size_t head = 0;                                                                         \
        if (r->past) {                                                                           \
            head = (size_t)(0 - (uintptr_t)y) % whole / sizeof *y;                               \
            head = FG_LESSER(head, FG_LESSER(r->n, turn - 1));                                   \
            turns_##name##_f32(head, x, b, dy, y, z, 0, turn, r->period);                        \
        }                                                                                        \
        const int past = r->past && (uintptr_t)(y + head) % whole == 0;                          \
        turns_##name##_f32(r->n - head, x + head, b + head, FG_FROM(FG_HAS_DY(shape), dy, head), \
                           y + head, FG_FROM(FG_HAS_Z(shape), z, head), past, turn - head,       \
                           r->period);                                                           \
        if (past)                                                                                \
            v_stream_end();                                                                      \
    }
#define FG_ROWS_f64(name, shape)
#define FG_ROWS_f16(name, shape)
#define FG_ROWS_bf16(name, shape)
#define FG_ROWS_bias(name, dtype, shape) FG_ROWS_##dtype(name, shape)
#define FG_ROWS_bias_backward FG_ROWS_bias
#define FG_ROWS_glu FG_ROWS_bias
#define FG_ROWS_glu_backward FG_ROWS_bias
#define FG_ROWS_value_and_grad(name, dtype, shape)
#define FG_FUSED(name, dtype, shape, form) FG_ROWS_##shape(name, dtype, shape)
#include "functions.def"
