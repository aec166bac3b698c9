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

/* The array loops. All elements of a block go the same way (see algorithms.h), the shortest that
 * all allow; one test a block leaves the loops without a branch, and their constants in
 * registers. A block of which some elements have plain results is taken in small pieces. The
 * last few elements go by way of a small buffer. */
enum { FG_BLOCK = 1024, FG_PIECE = 64 };
enum fg_way { FG_PLAIN, FG_NEAR, FG_LONG, FG_MIXED };

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
                   : !i_any_above_##dtype(most, end)      ? FG_LONG                                \
                   : i_all_above_##dtype(least, end)      ? FG_PLAIN                               \
                                                          : FG_MIXED;                                   \
        return i_any_above_##dtype(most, fg_tiny_##dtype) ? FG_MIXED : FG_PLAIN;                   \
    }
FG_WAY(f32)
FG_WAY(f64)

/* 16 bits: no plain way. */
#define FG_WAY16(dtype)                                                                        \
    static FG_INLINE enum fg_way way_##dtype(size_t n, const fg_##dtype *x, fg_f32 near_limit) \
    {                                                                                          \
        I_f32 most = v_bits_f32(v_abs_f32(v_load_##dtype(x)));                                 \
        for (size_t i = FG_LANES_##dtype; i < n; i += FG_LANES_##dtype)                        \
            most = i_most_f32(most, v_bits_f32(v_abs_f32(v_load_##dtype(x + i))));             \
        return i_any_above_f32(most, near_limit) ? FG_MIXED : FG_NEAR;                         \
    }
FG_WAY16(f16)
FG_WAY16(bf16)

#define FG_WAY_f32(name, dtype) \
    way_##dtype(some, x, fg_##name##_near_##dtype, fg_##name##_end_##dtype)
#define FG_WAY_f64 FG_WAY_f32
#define FG_WAY_f16(name, dtype) way_##dtype(some, x, fg_##name##_near_##dtype)
#define FG_WAY_bf16 FG_WAY_f16
#define FG_PLAIN_CALL_1_f32(name, dtype) plain_##name##_##dtype(value)
#define FG_PLAIN_CALL_2_f32(name, dtype) plain_##name##_##dtype(upstream, value)
#define FG_PLAIN_CALL_1_f64 FG_PLAIN_CALL_1_f32
#define FG_PLAIN_CALL_2_f64 FG_PLAIN_CALL_2_f32
#define FG_PLAIN_CALL_1_f16(name, dtype) name##_##dtype(value, 0)
#define FG_PLAIN_CALL_2_f16(name, dtype) name##_##dtype(upstream, value, 0)
#define FG_PLAIN_CALL_1_bf16 FG_PLAIN_CALL_1_f16
#define FG_PLAIN_CALL_2_bf16 FG_PLAIN_CALL_2_f16

/* With `past` whole vectors are stored past the caches; the output is aligned then. */
#define FG_STORE(dtype, to, result)             \
    do {                                        \
        const V_##dtype stored = result;        \
        if (past)                               \
            v_stream_##dtype((to) + j, stored); \
        else                                    \
            v_store_##dtype((to) + j, stored);  \
    } while (0)
#define FG_EACH_VECTOR_1(dtype, call)                  \
    for (size_t j = 0; j < some; j += LANES) {         \
        const V_##dtype value = v_load_##dtype(x + j); \
        FG_STORE(dtype, y, call);                      \
    }
#define FG_LOOP_1(name, dtype)                                                               \
    static FG_SINGLE void run_##name##_##dtype(size_t n, const fg_##dtype *x, fg_##dtype *y, \
                                               int past)                                     \
    {                                                                                        \
        enum { LANES = FG_LANES_##dtype };                                                   \
        for (size_t pieces = 0; n >= LANES;) {                                               \
            const size_t most = pieces ? FG_PIECE : FG_BLOCK;                                \
            const size_t some = n < most ? n - n % LANES : most;                             \
            const enum fg_way way = FG_WAY_##dtype(name, dtype);                             \
            if (way == FG_MIXED && some > FG_PIECE) {                                        \
                pieces = some;                                                               \
                continue;                                                                    \
            }                                                                                \
            pieces -= pieces < some ? pieces : some;                                         \
            switch (way) {                                                                   \
            case FG_NEAR:                                                                    \
                FG_EACH_VECTOR_1(dtype, name##_##dtype(value, 1))                            \
                break;                                                                       \
            case FG_PLAIN:                                                                   \
                FG_EACH_VECTOR_1(dtype, FG_PLAIN_CALL_1_##dtype(name, dtype))                \
                break;                                                                       \
            case FG_LONG:                                                                    \
                FG_EACH_VECTOR_1(dtype, name##_##dtype(value, -1))                           \
                break;                                                                       \
            default:                                                                         \
                FG_EACH_VECTOR_1(dtype, name##_##dtype(value, 0))                            \
            }                                                                                \
            x += some;                                                                       \
            y += some;                                                                       \
            n -= some;                                                                       \
        }                                                                                    \
        if (n) {                                                                             \
            fg_##dtype a[LANES] = {0};                                                       \
            memcpy(a, x, n * sizeof *a);                                                     \
            v_store_##dtype(a, name##_##dtype(v_load_##dtype(a), 0));                        \
            memcpy(y, a, n * sizeof *a);                                                     \
        }                                                                                    \
    }

#define FG_EACH_VECTOR_2(dtype, call)                      \
    for (size_t j = 0; j < some; j += LANES) {             \
        const V_##dtype upstream = v_load_##dtype(dy + j); \
        const V_##dtype value = v_load_##dtype(x + j);     \
        FG_STORE(dtype, dx, call);                         \
    }
#define FG_LOOP_2(name, dtype)                                                                \
    static FG_SINGLE void run_##name##_##dtype(size_t n, const fg_##dtype *dy,                \
                                               const fg_##dtype *x, fg_##dtype *dx, int past) \
    {                                                                                         \
        enum { LANES = FG_LANES_##dtype };                                                    \
        for (size_t pieces = 0; n >= LANES;) {                                                \
            const size_t most = pieces ? FG_PIECE : FG_BLOCK;                                 \
            const size_t some = n < most ? n - n % LANES : most;                              \
            const enum fg_way way = FG_WAY_##dtype(name, dtype);                              \
            if (way == FG_MIXED && some > FG_PIECE) {                                         \
                pieces = some;                                                                \
                continue;                                                                     \
            }                                                                                 \
            pieces -= pieces < some ? pieces : some;                                          \
            switch (way) {                                                                    \
            case FG_NEAR:                                                                     \
                FG_EACH_VECTOR_2(dtype, name##_##dtype(upstream, value, 1))                   \
                break;                                                                        \
            case FG_PLAIN:                                                                    \
                FG_EACH_VECTOR_2(dtype, FG_PLAIN_CALL_2_##dtype(name, dtype))                 \
                break;                                                                        \
            case FG_LONG:                                                                     \
                FG_EACH_VECTOR_2(dtype, name##_##dtype(upstream, value, -1))                  \
                break;                                                                        \
            default:                                                                          \
                FG_EACH_VECTOR_2(dtype, name##_##dtype(upstream, value, 0))                   \
            }                                                                                 \
            dy += some;                                                                       \
            x += some;                                                                        \
            dx += some;                                                                       \
            n -= some;                                                                        \
        }                                                                                     \
        if (n) {                                                                              \
            fg_##dtype a[LANES] = {0}, b[LANES] = {0};                                        \
            memcpy(a, dy, n * sizeof *a);                                                     \
            memcpy(b, x, n * sizeof *b);                                                      \
            v_store_##dtype(a, name##_##dtype(v_load_##dtype(a), v_load_##dtype(b), 0));      \
            memcpy(dx, a, n * sizeof *a);                                                     \
        }                                                                                     \
    }

/* The two ways into it. */
#define FG_HEAD(dtype, array)                                                     \
    const size_t whole = FG_REGISTER_LANES_##dtype * sizeof *array;               \
    const size_t before = (size_t)(0 - (uintptr_t)array) % whole / sizeof *array, \
                 head = before < n ? before : n
#define FG_ENTRIES_1(name, dtype)                                                     \
    static void loop_##name##_##dtype(size_t n, const fg_##dtype *x, fg_##dtype *y)   \
    {                                                                                 \
        run_##name##_##dtype(n, x, y, 0);                                             \
    }                                                                                 \
    static void stream_##name##_##dtype(size_t n, const fg_##dtype *x, fg_##dtype *y) \
    {                                                                                 \
        FG_HEAD(dtype, y);                                                            \
        run_##name##_##dtype(head, x, y, 0);                                          \
        run_##name##_##dtype(n - head, x + head, y + head, 1);                        \
        v_stream_end();                                                               \
    }
#define FG_ENTRIES_2(name, dtype)                                                            \
    static void loop_##name##_##dtype(size_t n, const fg_##dtype *dy, const fg_##dtype *x,   \
                                      fg_##dtype *dx)                                        \
    {                                                                                        \
        run_##name##_##dtype(n, dy, x, dx, 0);                                               \
    }                                                                                        \
    static void stream_##name##_##dtype(size_t n, const fg_##dtype *dy, const fg_##dtype *x, \
                                        fg_##dtype *dx)                                      \
    {                                                                                        \
        FG_HEAD(dtype, dx);                                                                  \
        run_##name##_##dtype(head, dy, x, dx, 0);                                            \
        run_##name##_##dtype(n - head, dy + head, x + head, dx + head, 1);                   \
        v_stream_end();                                                                      \
    }

#define FG_FUNCTION(name, dtype, inputs, max_ulp) \
    FG_LOOP_##inputs(name, dtype) FG_ENTRIES_##inputs(name, dtype)
#include "functions.def"

#include "fused.h"

#define FG_STRING_(name) #name
#define FG_STRING(name) FG_STRING_(name)
#define FG_TABLE_(name) fg_##name
#define FG_TABLE(name) FG_TABLE_(name)

const fg_table FG_TABLE(FG_TARGET_NAME) = {
    FG_STRING(FG_TARGET_NAME),
#define FG_FUNCTION(name, dtype, inputs, max_ulp) loop_##name##_##dtype, stream_##name##_##dtype,
#define FG_FUSED(name, dtype, shape, form) loop_##name##_##dtype, stream_##name##_##dtype,
#include "functions.def"
};
