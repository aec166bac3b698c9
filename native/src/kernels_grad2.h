/* SPDX-License-Identifier: BSD-3-Clause */
/* kernels_grad2.h: the loops of the second derivatives, once for every target.
 *
 * All elements go the same way, in float64: those of other dtypes through a small buffer, in which
 * they are computed in place. One loop over float64 a function serves all dtypes. Arithmetic, not
 * memory, is its limit, so that nothing is stored past the caches. */

enum { FG_GRAD2_BLOCK = 64 }; /* a multiple of the lanes of every dtype and target */

#define FG_GRAD2_RUN(name)                                                 \
    static FG_SINGLE void run_##name(size_t n, const fg_f64 *x, fg_f64 *y) \
    {                                                                      \
        for (; n >= FG_LANES_f64; n -= FG_LANES_f64) {                     \
            v_store_f64(y, name(v_load_f64(x)));                           \
            x += FG_LANES_f64;                                             \
            y += FG_LANES_f64;                                             \
        }                                                                  \
        if (n) {                                                           \
            fg_f64 few[FG_LANES_f64];                                      \
            few_from_f64(n, x, few);                                       \
            v_store_f64(few, name(v_load_f64(few)));                       \
            few_to_f64(n, few, y);                                         \
        }                                                                  \
    }
FG_GRAD2_RUN(gelu_grad2)
FG_GRAD2_RUN(gelu_tanh_grad2)
FG_GRAD2_RUN(gelu_sigmoid_grad2)
FG_GRAD2_RUN(silu_grad2)

/* ---- to float64 and back ------------------------------------------------------ */

/* By whole vectors of the dtype, the last one filled up with zeros. */
#define FG_GRAD2_WHOLE(n, dtype) \
    (((n) + FG_LANES_##dtype - 1) / FG_LANES_##dtype * FG_LANES_##dtype)

static FG_SINGLE void to_f64_f32(size_t n, const fg_f32 *x, fg_f64 *to)
{
    fg_f32 a[FG_GRAD2_BLOCK] = {0};
    const size_t whole = FG_GRAD2_WHOLE(n, f32);
    memcpy(a, x, n * sizeof *a);
    for (size_t i = 0; i < whole; i += FG_LANES_f64)
        v_store_f64(to + i, v_widen(a + i));
}

static FG_SINGLE void from_f64_f32(size_t n, const fg_f64 *from, fg_f32 *y)
{
    fg_f32 a[FG_GRAD2_BLOCK];
    const size_t whole = FG_GRAD2_WHOLE(n, f32);
    for (size_t i = 0; i < whole; i += FG_LANES_f64)
        v_narrow(a + i, v_load_f64(from + i));
    memcpy(y, a, n * sizeof *a);
}

/* To 16 bits: a float64 is rounded to a number of the dtype first, to which the conversions then
 * do nothing. Rounded to float32 and then once more, some would be off. A normal number is split
 * into what stays and the rest (Veltkamp), one below loses what a much larger one cannot hold. */
#define FG_GRAD2_16(dtype)                                                              \
    static FG_INLINE V_f64 rounded_##dtype(V_f64 y)                                     \
    {                                                                                   \
        const V_f64 large = v_mul_f64(y, v_set_f64(fg_grad2_splitter_##dtype));         \
        const V_f64 rounder = v_set_f64(fg_grad2_rounder_##dtype);                      \
        const V_f64 normal = v_sub_f64(large, v_sub_f64(large, y));                     \
        const V_f64 below = v_sub_f64(v_add_f64(y, rounder), rounder);                  \
        const V_f64 least = v_set_f64(fg_grad2_normal_##dtype);                         \
        const V_f64 t = v_abs_f64(y);                                                   \
        /* NaN, too, comes from the first */                                            \
        const V_f64 r = v_select_above_f64(least, t, below, normal);                    \
        return v_copysign_f64(r, y);                                                    \
    }                                                                                   \
    static FG_SINGLE void to_f64_##dtype(size_t n, const fg_##dtype *x, fg_f64 *to)     \
    {                                                                                   \
        fg_##dtype a[FG_GRAD2_BLOCK] = {0};                                             \
        fg_f32 b[FG_GRAD2_BLOCK];                                                       \
        const size_t whole = FG_GRAD2_WHOLE(n, dtype);                                  \
        memcpy(a, x, n * sizeof *a);                                                    \
        for (size_t i = 0; i < whole; i += FG_LANES_##dtype)                            \
            v_store_f32(b + i, v_load_##dtype(a + i));                                  \
        to_f64_f32(whole, b, to);                                                       \
    }                                                                                   \
    static FG_SINGLE void from_f64_##dtype(size_t n, const fg_f64 *from, fg_##dtype *y) \
    {                                                                                   \
        fg_##dtype a[FG_GRAD2_BLOCK];                                                   \
        fg_f32 b[FG_GRAD2_BLOCK];                                                       \
        const size_t whole = FG_GRAD2_WHOLE(n, dtype);                                  \
        for (size_t i = 0; i < whole; i += FG_LANES_f64)                                \
            v_narrow(b + i, rounded_##dtype(v_load_f64(from + i)));                     \
        for (size_t i = 0; i < whole; i += FG_LANES_##dtype)                            \
            v_store_##dtype(a + i, v_load_f32(b + i));                                  \
        memcpy(y, a, n * sizeof *a);                                                    \
    }
FG_GRAD2_16(f16)
FG_GRAD2_16(bf16)

/* ---- the loops of each dtype ----------------------------------------------------- */

#define FG_GRAD2_LOOP(name, dtype)                                                  \
    static void loop_##name##_##dtype(size_t n, const fg_##dtype *x, fg_##dtype *y) \
    {                                                                               \
        fg_f64 buffer[FG_GRAD2_BLOCK];                                              \
        FG_IF_SHORT(name, dtype, (n, x, y));                                        \
        while (n) {                                                                 \
            const size_t some = n < FG_GRAD2_BLOCK ? n : FG_GRAD2_BLOCK;            \
            to_f64_##dtype(some, x, buffer);                                        \
            run_##name(some, buffer, buffer);                                       \
            from_f64_##dtype(some, buffer, y);                                      \
            x += some;                                                              \
            y += some;                                                              \
            n -= some;                                                              \
        }                                                                           \
    }
#define FG_GRAD2_LOOP_f32 FG_GRAD2_LOOP
#define FG_GRAD2_LOOP_f16 FG_GRAD2_LOOP
#define FG_GRAD2_LOOP_bf16 FG_GRAD2_LOOP
#define FG_GRAD2_LOOP_f64(name, dtype)                                              \
    static void loop_##name##_##dtype(size_t n, const fg_##dtype *x, fg_##dtype *y) \
    {                                                                               \
        FG_IF_SHORT(name, dtype, (n, x, y));                                        \
        run_##name(n, x, y);                                                        \
    }

#define FG_FUNCTION(name, dtype, inputs, max_ulp)
#define FG_FUNCTION_GRAD2(name, dtype, inputs, max_ulp)                     \
    FG_GRAD2_LOOP_##dtype(name, dtype) static void stream_##name##_##dtype( \
        size_t n, const fg_##dtype *x, fg_##dtype *y)                       \
    {                                                                       \
        loop_##name##_##dtype(n, x, y);                                     \
    }
#include "functions.def"
