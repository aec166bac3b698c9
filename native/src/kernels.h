/* SPDX-License-Identifier: BSD-3-Clause */
/* kernels.h: the last line of a target file: the algorithms for each dtype, their array
 * loops and the kernel table. FG_TARGET_NAME names the target. */
#include <string.h>

#include "coefficients.h"
#include "coefficients16.h"
#include "vocabulary.h"

#define FG_REAL f32
#include "algorithms.h"
#undef FG_REAL
#define FG_REAL f64
#include "algorithms.h"
#undef FG_REAL
#define FG_REAL f32
#define FG_HALF f16
#include "algorithms16.h"
#undef FG_HALF
#define FG_HALF bf16
#include "algorithms16.h"
#undef FG_HALF
#undef FG_REAL

/* A value function of vectors: the short way where every lane allows it (see algorithms.h),
 * the other kept out of the loop. */
#define FG_APPLY_1(name, dtype)                                                          \
    static FG_NOINLINE void far_##name##_##dtype(V_##dtype *x)                           \
    {                                                                                    \
        *x = name##_##dtype(*x, 0);                                                      \
    }                                                                                    \
    static FG_INLINE V_##dtype apply_##name##_##dtype(V_##dtype x)                       \
    {                                                                                    \
        if (FG_LIKELY(v_all_within_##dtype(x, v_set_##dtype(fg_##name##_near_##dtype)))) \
            return name##_##dtype(x, 1);                                                 \
        far_##name##_##dtype(&x);                                                        \
        return x;                                                                        \
    }
#define FG_APPLY_2(name, dtype)                                                          \
    static FG_NOINLINE void far_##name##_##dtype(V_##dtype *dy, const V_##dtype *x)      \
    {                                                                                    \
        *dy = name##_##dtype(*dy, *x, 0);                                                \
    }                                                                                    \
    static FG_INLINE V_##dtype apply_##name##_##dtype(V_##dtype dy, V_##dtype x)         \
    {                                                                                    \
        if (FG_LIKELY(v_all_within_##dtype(x, v_set_##dtype(fg_##name##_near_##dtype)))) \
            return name##_##dtype(dy, x, 1);                                             \
        far_##name##_##dtype(&dy, &x);                                                   \
        return dy;                                                                       \
    }

/* The same for 16 bits. */
#define FG_APPLY16_1(name, dtype)                                                \
    static FG_NOINLINE void far_##name##_##dtype(V_f32 *x)                       \
    {                                                                            \
        *x = name##_##dtype(*x, 0);                                              \
    }                                                                            \
    static FG_INLINE V_f32 apply_##name##_##dtype(V_f32 x)                       \
    {                                                                            \
        if (FG_LIKELY(v_all_within_f32(x, v_set_f32(fg_##name##_near_##dtype)))) \
            return name##_##dtype(x, 1);                                         \
        far_##name##_##dtype(&x);                                                \
        return x;                                                                \
    }
#define FG_APPLY16_2(name, dtype)                                                \
    static FG_NOINLINE void far_##name##_##dtype(V_f32 *dy, const V_f32 *x)      \
    {                                                                            \
        *dy = name##_##dtype(*dy, *x, 0);                                        \
    }                                                                            \
    static FG_INLINE V_f32 apply_##name##_##dtype(V_f32 dy, V_f32 x)             \
    {                                                                            \
        if (FG_LIKELY(v_all_within_f32(x, v_set_f32(fg_##name##_near_##dtype)))) \
            return name##_##dtype(dy, x, 1);                                     \
        far_##name##_##dtype(&dy, &x);                                           \
        return dy;                                                               \
    }

#define FG_APPLY_f32(name, dtype, inputs) FG_APPLY_##inputs(name, dtype)
#define FG_APPLY_f64 FG_APPLY_f32
#define FG_APPLY_f16(name, dtype, inputs) FG_APPLY16_##inputs(name, dtype)
#define FG_APPLY_bf16 FG_APPLY_f16

/* The one array loop. The last few elements go through the same vector code by way of a
 * small buffer, so that a result never depends on its position. */
#define FG_LOOP_1(name, dtype)                                                      \
    static void loop_##name##_##dtype(size_t n, const fg_##dtype *x, fg_##dtype *y) \
    {                                                                               \
        enum { LANES = FG_LANES_##dtype };                                          \
        fg_##dtype a[LANES] = {0};                                                  \
        for (size_t i = 0; i < n; i += LANES) {                                     \
            const size_t left = n - i;                                              \
            const fg_##dtype *from = x + i;                                         \
            fg_##dtype *to = y + i;                                                 \
            if (left < LANES)                                                       \
                from = to = memcpy(a, from, left * sizeof *a);                      \
            v_store_##dtype(to, apply_##name##_##dtype(v_load_##dtype(from)));      \
            if (left < LANES)                                                       \
                memcpy(y + i, a, left * sizeof *a);                                 \
        }                                                                           \
    }

#define FG_LOOP_2(name, dtype)                                                                     \
    static void loop_##name##_##dtype(size_t n, const fg_##dtype *dy, const fg_##dtype *x,         \
                                      fg_##dtype *dx)                                              \
    {                                                                                              \
        enum { LANES = FG_LANES_##dtype };                                                         \
        fg_##dtype a[LANES] = {0}, b[LANES] = {0};                                                 \
        for (size_t i = 0; i < n; i += LANES) {                                                    \
            const size_t left = n - i;                                                             \
            const fg_##dtype *from = dy + i, *at = x + i;                                          \
            fg_##dtype *to = dx + i;                                                               \
            if (left < LANES) {                                                                    \
                from = to = memcpy(a, from, left * sizeof *a);                                     \
                at = memcpy(b, at, left * sizeof *b);                                              \
            }                                                                                      \
            v_store_##dtype(to, apply_##name##_##dtype(v_load_##dtype(from), v_load_##dtype(at))); \
            if (left < LANES)                                                                      \
                memcpy(dx + i, a, left * sizeof *a);                                               \
        }                                                                                          \
    }

#define FG_FUNCTION(name, dtype, inputs, max_ulp) \
    FG_APPLY_##dtype(name, dtype, inputs) FG_LOOP_##inputs(name, dtype)
#include "functions.def"

#define FG_STRING_(name) #name
#define FG_STRING(name) FG_STRING_(name)
#define FG_TABLE_(name) fg_##name
#define FG_TABLE(name) FG_TABLE_(name)

const fg_table FG_TABLE(FG_TARGET_NAME) = {
    FG_STRING(FG_TARGET_NAME),
#define FG_FUNCTION(name, dtype, inputs, max_ulp) loop_##name##_##dtype,
#include "functions.def"
};
