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

/* The array loops. A block of an array goes the short way if all its elements allow it (see
 * algorithms.h), and the plain way if they are all very small or all very large; one test a
 * block leaves the loops without a branch, and their constants in registers. The last few
 * elements go the long way by a small buffer. The ways give the same bits. */
enum { FG_BLOCK = 1024 };
enum fg_way { FG_PLAIN, FG_NEAR, FG_FAR };

#define FG_WAY(dtype)                                                                              \
    static FG_INLINE enum fg_way way_##dtype(size_t n, const fg_##dtype *x, fg_##dtype near_limit, \
                                             fg_##dtype end)                                       \
    {                                                                                              \
        I_##dtype least = v_bits_##dtype(v_abs_##dtype(v_load_##dtype(x))), most = least;          \
        for (size_t i = FG_LANES_##dtype; i < n; i += FG_LANES_##dtype) {                          \
            const I_##dtype bits = v_bits_##dtype(v_abs_##dtype(v_load_##dtype(x + i)));           \
            least = i_least_##dtype(least, bits);                                                  \
            most = i_most_##dtype(most, bits);                                                     \
        }                                                                                          \
        if (i_all_above_##dtype(least, fg_tiny_##dtype))                                           \
            return !i_any_above_##dtype(most, near_limit) ? FG_NEAR                                \
                   : i_all_above_##dtype(least, end)      ? FG_PLAIN                               \
                                                          : FG_FAR;                                \
        return i_any_above_##dtype(most, fg_tiny_##dtype) ? FG_FAR : FG_PLAIN;                     \
    }
FG_WAY(f32)
FG_WAY(f64)

#define FG_EACH_VECTOR_1(dtype, n, x, y, call)           \
    for (size_t j = 0; j < (n); j += FG_LANES_##dtype) { \
        const V_##dtype value = v_load_##dtype((x) + j); \
        v_store_##dtype((y) + j, call);                  \
    }
#define FG_LOOP_1(name, dtype)                                                                 \
    static void loop_##name##_##dtype(size_t n, const fg_##dtype *x, fg_##dtype *y)            \
    {                                                                                          \
        enum { LANES = FG_LANES_##dtype };                                                     \
        while (n >= LANES) {                                                                   \
            const size_t some = n < FG_BLOCK ? n - n % LANES : FG_BLOCK;                       \
            switch (way_##dtype(some, x, fg_##name##_near_##dtype, fg_##name##_end_##dtype)) { \
            case FG_NEAR:                                                                      \
                FG_EACH_VECTOR_1(dtype, some, x, y, name##_##dtype(value, 1))                  \
                break;                                                                         \
            case FG_PLAIN:                                                                     \
                FG_EACH_VECTOR_1(dtype, some, x, y, plain_##name##_##dtype(value))             \
                break;                                                                         \
            default:                                                                           \
                FG_EACH_VECTOR_1(dtype, some, x, y, name##_##dtype(value, 0))                  \
            }                                                                                  \
            x += some;                                                                         \
            y += some;                                                                         \
            n -= some;                                                                         \
        }                                                                                      \
        if (n) {                                                                               \
            fg_##dtype a[LANES] = {0};                                                         \
            memcpy(a, x, n * sizeof *a);                                                       \
            v_store_##dtype(a, name##_##dtype(v_load_##dtype(a), 0));                          \
            memcpy(y, a, n * sizeof *a);                                                       \
        }                                                                                      \
    }

#define FG_EACH_VECTOR_2(dtype, n, dy, x, dx, call)          \
    for (size_t j = 0; j < (n); j += FG_LANES_##dtype) {     \
        const V_##dtype upstream = v_load_##dtype((dy) + j); \
        const V_##dtype value = v_load_##dtype((x) + j);     \
        v_store_##dtype((dx) + j, call);                     \
    }
#define FG_LOOP_2(name, dtype)                                                                    \
    static void loop_##name##_##dtype(size_t n, const fg_##dtype *dy, const fg_##dtype *x,        \
                                      fg_##dtype *dx)                                             \
    {                                                                                             \
        enum { LANES = FG_LANES_##dtype };                                                        \
        while (n >= LANES) {                                                                      \
            const size_t some = n < FG_BLOCK ? n - n % LANES : FG_BLOCK;                          \
            switch (way_##dtype(some, x, fg_##name##_near_##dtype, fg_##name##_end_##dtype)) {    \
            case FG_NEAR:                                                                         \
                FG_EACH_VECTOR_2(dtype, some, dy, x, dx, name##_##dtype(upstream, value, 1))      \
                break;                                                                            \
            case FG_PLAIN:                                                                        \
                FG_EACH_VECTOR_2(dtype, some, dy, x, dx, plain_##name##_##dtype(upstream, value)) \
                break;                                                                            \
            default:                                                                              \
                FG_EACH_VECTOR_2(dtype, some, dy, x, dx, name##_##dtype(upstream, value, 0))      \
            }                                                                                     \
            dy += some;                                                                           \
            x += some;                                                                            \
            dx += some;                                                                           \
            n -= some;                                                                            \
        }                                                                                         \
        if (n) {                                                                                  \
            fg_##dtype a[LANES] = {0}, b[LANES] = {0};                                            \
            memcpy(a, dy, n * sizeof *a);                                                         \
            memcpy(b, x, n * sizeof *b);                                                          \
            v_store_##dtype(a, name##_##dtype(v_load_##dtype(a), v_load_##dtype(b), 0));          \
            memcpy(dx, a, n * sizeof *a);                                                         \
        }                                                                                         \
    }

#define FG_FUNCTION(name, dtype, inputs, max_ulp) FG_LOOP_##inputs(name, dtype)
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
