/* SPDX-License-Identifier: BSD-3-Clause */
/* kernels.h: the last line of a target file: the algorithms for each dtype, their array
 * loops and the kernel table. FG_TARGET_NAME names the target. */
#include <string.h>

#include "coefficients.h"
#include "vocabulary.h"

#define FG_REAL f32
#include "algorithms.h"
#undef FG_REAL
#define FG_REAL f64
#include "algorithms.h"
#undef FG_REAL

/* Whether the shorter way of a value function will do: see algorithms.h. */
#define FG_NEAR(name, dtype, x) v_all_within_##dtype(x, v_set_##dtype(fg_##name##_near_##dtype))

#define FG_APPLY_1(name, dtype)                                                         \
    static FG_INLINE V_##dtype apply_##name##_##dtype(V_##dtype x)                      \
    {                                                                                   \
        return FG_NEAR(name, dtype, x) ? name##_##dtype(x, 1) : name##_##dtype(x, 0);   \
    }
#define FG_APPLY_2(name, dtype)                                                         \
    static FG_INLINE V_##dtype apply_##name##_##dtype(V_##dtype dy, V_##dtype x)        \
    {                                                                                   \
        return FG_NEAR(name, dtype, x) ? name##_##dtype(dy, x, 1) : name##_##dtype(dy, x, 0); \
    }

/* The one array loop. The last few elements go through the same vector code in a small
 * buffer, so that a result never depends on its position. */
#define FG_LOOP_1(name, dtype)                                                          \
    static void loop_##name##_##dtype(size_t n, const fg_##dtype *x, fg_##dtype *y)     \
    {                                                                                   \
        enum { LANES = FG_LANES_##dtype };                                              \
        size_t i = 0;                                                                   \
        for (; n - i >= LANES; i += LANES)                                              \
            v_store_##dtype(y + i, apply_##name##_##dtype(v_load_##dtype(x + i)));              \
        if (i < n) {                                                                    \
            fg_##dtype a[LANES] = {0};                                                  \
            memcpy(a, x + i, (n - i) * sizeof *x);                                      \
            v_store_##dtype(a, apply_##name##_##dtype(v_load_##dtype(a)));                      \
            memcpy(y + i, a, (n - i) * sizeof *y);                                      \
        }                                                                               \
    }

#define FG_LOOP_2(name, dtype)                                                          \
    static void loop_##name##_##dtype(size_t n, const fg_##dtype *dy, const fg_##dtype *x, \
                                      fg_##dtype *dx)                                   \
    {                                                                                   \
        enum { LANES = FG_LANES_##dtype };                                              \
        size_t i = 0;                                                                   \
        for (; n - i >= LANES; i += LANES)                                              \
            v_store_##dtype(dx + i, apply_##name##_##dtype(v_load_##dtype(dy + i),              \
                                                   v_load_##dtype(x + i)));             \
        if (i < n) {                                                                    \
            fg_##dtype a[LANES] = {0}, b[LANES] = {0};                                  \
            memcpy(a, dy + i, (n - i) * sizeof *dy);                                    \
            memcpy(b, x + i, (n - i) * sizeof *x);                                      \
            v_store_##dtype(a, apply_##name##_##dtype(v_load_##dtype(a), v_load_##dtype(b)));   \
            memcpy(dx + i, a, (n - i) * sizeof *dx);                                    \
        }                                                                               \
    }

#define FG_FUNCTION(name, dtype, inputs, max_ulp) \
    FG_APPLY_##inputs(name, dtype) FG_LOOP_##inputs(name, dtype)
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
