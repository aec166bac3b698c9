/* SPDX-License-Identifier: BSD-3-Clause */
/* fused.h: the fused functions' loops, made of the loops in kernels.h.
 *
 * An array is taken in blocks that stay in the first-level cache with what is computed on the way:
 * sums, values and products of a block go through small buffers on the stack. Each step is one
 * operation of vocabulary.h or one loop of kernels.h, so the results are those of the same calls
 * one after the other on whole arrays, to the bit.
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

/* Of a buffer; a multiple of the lanes of every target. */
enum {
    FG_FUSED_BYTES = 1536, /* of stack, for up to five operands */
    FG_FUSED_BLOCK_f32 = FG_FUSED_BYTES / sizeof(fg_f32),
    FG_FUSED_BLOCK_f64 = FG_FUSED_BYTES / sizeof(fg_f64),
    FG_FUSED_BLOCK_f16 = FG_FUSED_BLOCK_f32,
    FG_FUSED_BLOCK_bf16 = FG_FUSED_BLOCK_f32
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
    v_store_bf16(p, v_select_infinite_f32(above, above, a));
}

/* One operation on n elements of dtypes p and q with results of dtype r; the last few by way of
 * small buffers. */
#define FG_ELEMENTWISE(name, p, q, r, operation)                                                \
    static FG_SINGLE void name(size_t n, const fg_##p *a, const fg_##q *b, fg_##r *c, int past) \
    {                                                                                           \
        enum { LANES = FG_LANES_##p };                                                          \
        const size_t whole = n - n % LANES;                                                     \
        for (size_t i = 0; i < whole; i += LANES) {                                             \
            FG_ONE_BY_ONE();                                                                    \
            const V_##p result = operation(v_load_##p(a + i), v_load_##q(b + i));               \
            if (past)                                                                           \
                v_stream_##r(c + i, result);                                                    \
            else                                                                                \
                v_result_##r(c + i, result);                                                    \
        }                                                                                       \
        if (n > whole) {                                                                        \
            const size_t rest = n - whole;                                                      \
            fg_##p x[LANES] = {0};                                                              \
            fg_##q y[LANES] = {0};                                                              \
            fg_##r z[LANES];                                                                    \
            memcpy(x, a + whole, rest * sizeof *x);                                             \
            memcpy(y, b + whole, rest * sizeof *y);                                             \
            v_result_##r(z, operation(v_load_##p(x), v_load_##q(y)));                           \
            memcpy(c + whole, z, rest * sizeof *z);                                             \
        }                                                                                       \
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

/* The loops by real type: run_gelu_f32 for 16 bits too. */
#define FG_RUN_f32(function) run_##function##_f32
#define FG_RUN_f64(function) run_##function##_f64
#define FG_RUN_f16(function) run_##function##_f32
#define FG_RUN_bf16(function) run_##function##_f32

/* ---- the shapes ----------------------------------------------------------- */

#define FG_BLOCK_OF(dtype) (n < FG_FUSED_BLOCK_##dtype ? n : FG_FUSED_BLOCK_##dtype)
#define FG_BUFFER(dtype, name) FG_ALIGNED fg_real_##dtype name[FG_FUSED_BLOCK_##dtype]

#define FG_LOOP_bias(name, dtype, form)                                                  \
    static void run_##name##_##dtype(size_t n, const fg_##dtype *x, const fg_##dtype *b, \
                                     fg_##dtype *y, int past)                            \
    {                                                                                    \
        FG_BUFFER(dtype, sum);                                                           \
        for (size_t m; n; x += m, b += m, y += m, n -= m) {                              \
            m = FG_BLOCK_OF(dtype);                                                      \
            fg_real_##dtype *to = place_##dtype(y, sum);                                 \
            each_sum_##dtype(m, x, b, sum, 0);                                           \
            FG_RUN_##dtype(form)(m, sum, to, past && !FG_WIDENED_##dtype);               \
            finish_##dtype(m, to, y);                                                    \
        }                                                                                \
    }

#define FG_LOOP_bias_backward(name, dtype, form)                                          \
    static void run_##name##_##dtype(size_t n, const fg_##dtype *dy, const fg_##dtype *x, \
                                     const fg_##dtype *b, fg_##dtype *dx, int past)       \
    {                                                                                     \
        FG_BUFFER(dtype, sum);                                                            \
        FG_BUFFER(dtype, wide);                                                           \
        for (size_t m; n; dy += m, x += m, b += m, dx += m, n -= m) {                     \
            m = FG_BLOCK_OF(dtype);                                                       \
            fg_real_##dtype *to = place_##dtype(dx, sum);                                 \
            each_sum_##dtype(m, x, b, sum, 0);                                            \
            FG_RUN_##dtype(form##_backward)(m, reals_##dtype(m, dy, wide), sum, to,       \
                                            past && !FG_WIDENED_##dtype);                 \
            finish_##dtype(m, to, dx);                                                    \
        }                                                                                 \
    }

#define FG_LOOP_glu(name, dtype, form)                                                   \
    static void run_##name##_##dtype(size_t n, const fg_##dtype *a, const fg_##dtype *b, \
                                     fg_##dtype *y, int past)                            \
    {                                                                                    \
        FG_BUFFER(dtype, value);                                                         \
        for (size_t m; n; a += m, b += m, y += m, n -= m) {                              \
            m = FG_BLOCK_OF(dtype);                                                      \
            FG_RUN_##dtype(form)(m, reals_##dtype(m, a, value), value, 0);               \
            each_times_##dtype(m, value, b, y, past && !FG_WIDENED_##dtype);             \
        }                                                                                \
    }

#define FG_LOOP_glu_backward(name, dtype, form)                                                 \
    static void run_##name##_##dtype(size_t n, const fg_##dtype *dy, const fg_##dtype *a,       \
                                     const fg_##dtype *b, fg_##dtype *da, fg_##dtype *db,       \
                                     int past)                                                  \
    {                                                                                           \
        FG_BUFFER(dtype, value);                                                                \
        FG_BUFFER(dtype, product);                                                              \
        FG_BUFFER(dtype, wide);                                                                 \
        for (size_t m; n; dy += m, a += m, b += m, da += m, db += m, n -= m) {                  \
            m = FG_BLOCK_OF(dtype);                                                             \
            const fg_real_##dtype *from = reals_##dtype(m, a, wide);                            \
            fg_real_##dtype *to = place_##dtype(da, product);                                   \
            FG_RUN_##dtype(form)(m, from, value, 0);                                            \
            each_scaled_##dtype(m, value, dy, value, 0);                                        \
            each_product_##dtype(m, dy, b, product, 0);                                         \
            FG_RUN_##dtype(form##_backward)(m, product, from, to, past && !FG_WIDENED_##dtype); \
            finish_##dtype(m, to, da);                                                          \
            finish_##dtype(m, value, db);                                                       \
        }                                                                                       \
    }

/* 16 bits too have these two functions as they are. */
#define FG_LOOP_value_and_grad(name, dtype, form)                                  \
    static void run_##name##_##dtype(size_t n, const fg_##dtype *x, fg_##dtype *y, \
                                     fg_##dtype *slope, int past)                  \
    {                                                                              \
        FG_ALIGNED fg_##dtype value[FG_FUSED_BLOCK_##dtype];                       \
        for (size_t m; n; x += m, y += m, slope += m, n -= m) {                    \
            m = FG_BLOCK_OF(dtype);                                                \
            fg_##dtype *to = x == y ? value : y;                                   \
            run_##form##_##dtype(m, x, to, to == y && past);                       \
            run_##form##_grad_##dtype(m, x, slope, past);                          \
            if (to != y)                                                           \
                memcpy(y, to, m * sizeof *y);                                      \
        }                                                                          \
    }

/* ---- the two ways into them ------------------------------------------------- */

#define FG_ENTRIES_bias(name, dtype)                                     \
    static FG_KERNEL_bias(loop_##name##_##dtype, dtype)                  \
    {                                                                    \
        run_##name##_##dtype(n, x, b, y, 0);                             \
    }                                                                    \
    static FG_KERNEL_bias(stream_##name##_##dtype, dtype)                \
    {                                                                    \
        FG_HEAD(dtype, y);                                               \
        run_##name##_##dtype(head, x, b, y, 0);                          \
        run_##name##_##dtype(n - head, x + head, b + head, y + head, 1); \
        v_stream_end();                                                  \
    }
#define FG_ENTRIES_bias_backward(name, dtype)                                        \
    static FG_KERNEL_bias_backward(loop_##name##_##dtype, dtype)                     \
    {                                                                                \
        run_##name##_##dtype(n, dy, x, b, dx, 0);                                    \
    }                                                                                \
    static FG_KERNEL_bias_backward(stream_##name##_##dtype, dtype)                   \
    {                                                                                \
        FG_HEAD(dtype, dx);                                                          \
        run_##name##_##dtype(head, dy, x, b, dx, 0);                                 \
        run_##name##_##dtype(n - head, dy + head, x + head, b + head, dx + head, 1); \
        v_stream_end();                                                              \
    }
#define FG_ENTRIES_glu(name, dtype)                                      \
    static FG_KERNEL_glu(loop_##name##_##dtype, dtype)                   \
    {                                                                    \
        run_##name##_##dtype(n, a, b, y, 0);                             \
    }                                                                    \
    static FG_KERNEL_glu(stream_##name##_##dtype, dtype)                 \
    {                                                                    \
        FG_HEAD(dtype, y);                                               \
        run_##name##_##dtype(head, a, b, y, 0);                          \
        run_##name##_##dtype(n - head, a + head, b + head, y + head, 1); \
        v_stream_end();                                                  \
    }
/* db goes through the caches: it is copied */
#define FG_ENTRIES_glu_backward(name, dtype)                                                    \
    static FG_KERNEL_glu_backward(loop_##name##_##dtype, dtype)                                 \
    {                                                                                           \
        run_##name##_##dtype(n, dy, a, b, da, db, 0);                                           \
    }                                                                                           \
    static FG_KERNEL_glu_backward(stream_##name##_##dtype, dtype)                               \
    {                                                                                           \
        FG_HEAD(dtype, da);                                                                     \
        run_##name##_##dtype(head, dy, a, b, da, db, 0);                                        \
        run_##name##_##dtype(n - head, dy + head, a + head, b + head, da + head, db + head, 1); \
        v_stream_end();                                                                         \
    }
/* past the caches only where vectors of both outputs are aligned at once */
#define FG_ENTRIES_value_and_grad(name, dtype)                                  \
    static FG_KERNEL_value_and_grad(loop_##name##_##dtype, dtype)               \
    {                                                                           \
        run_##name##_##dtype(n, x, y, slope, 0);                                \
    }                                                                           \
    static FG_KERNEL_value_and_grad(stream_##name##_##dtype, dtype)             \
    {                                                                           \
        FG_HEAD(dtype, y);                                                      \
        const int past = (uintptr_t)(slope + head) % whole == 0;                \
        run_##name##_##dtype(head, x, y, slope, 0);                             \
        run_##name##_##dtype(n - head, x + head, y + head, slope + head, past); \
        v_stream_end();                                                         \
    }

#define FG_FUSED(name, dtype, shape, form) \
    FG_LOOP_##shape(name, dtype, form) FG_ENTRIES_##shape(name, dtype)
#include "functions.def"
