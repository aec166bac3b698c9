/* SPDX-License-Identifier: BSD-3-Clause */
/* kernels.h: the last line of a target file: the algorithms for each dtype, their array
 * loops and the kernel table. FG_TARGET_NAME names the target. */
#include <string.h>

#include "coefficients16.h"
#include "coefficients_grad2.h"
#include "vocabulary.h"

#define FG_REAL f32
#include "algorithms.h"
#undef FG_REAL
#define FG_REAL f64
#include "algorithms.h"
#include "algorithms_grad2.h"
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
 * all allow; one test a block leaves the loops without a branch. In a mixed block, where some
 * elements are far, all go the near way, and the far ones are set apart and go the far way too: as
 * many together as a buffer holds, which is small, since stacks may be. */
enum { FG_BLOCK = 1024, FG_PIECE = 128 };
/* That buffer, and how many elements are looked at before it is asked for room again. */
enum { FG_APART = 160, FG_GROUP = 64 };
enum fg_way { FG_NEAR, FG_FAR, FG_DEEP, FG_PLAIN, FG_MIXED };

#define FG_WAY(dtype)                                                                               \
    static FG_INLINE I_##dtype magnitude_##dtype(const fg_##dtype *x)                               \
    {                                                                                               \
        return v_bits_##dtype(v_abs_##dtype(v_load_##dtype(x)));                                    \
    }                                                                                               \
    static FG_INLINE enum fg_way way_##dtype(size_t n, const fg_##dtype *x, fg_##dtype near,        \
                                             fg_##dtype deep, fg_##dtype end, fg_##dtype plain)     \
    {                                                                                               \
        I_##dtype most = magnitude_##dtype(x), least = most;                                        \
        if (!i_any_above_##dtype(most, near)) {                                                     \
            for (size_t i = FG_LANES_##dtype; i < n; i += FG_LANES_##dtype)                         \
                most = i_most_##dtype(most, magnitude_##dtype(x + i));                              \
            if (!i_any_above_##dtype(most, near))                                                   \
                return FG_NEAR;                                                                     \
        } else {                                                                                    \
            for (size_t i = FG_LANES_##dtype; i < n; i += FG_LANES_##dtype) {                       \
                const I_##dtype next = magnitude_##dtype(x + i);                                    \
                most = i_most_##dtype(most, next);                                                  \
                least = i_least_##dtype(least, next);                                               \
            }                                                                                       \
        }                                                                                           \
        return !i_all_above_##dtype(least, near) ? FG_MIXED                                         \
               : !i_any_above_##dtype(most, end)                                                    \
                   ? (i_all_above_##dtype(least, deep) ? FG_DEEP : FG_FAR)                          \
               : i_all_above_##dtype(least, plain) ? FG_PLAIN                                       \
                                                   : FG_MIXED;                                      \
    }                                                                                               \
    /* which of n elements are not near (NaN too), and how many; where it ended for want of room */ \
    static FG_INLINE size_t set_apart_##dtype(size_t n, const fg_##dtype *x, fg_##dtype near,       \
                                              unsigned short *which, size_t *count)                 \
    {                                                                                               \
        size_t i = 0, k = 0;                                                                        \
        while (i < n && k <= FG_APART - FG_GROUP) {                                                 \
            const size_t end = n - i < FG_GROUP ? n : i + FG_GROUP;                                 \
            unsigned far[2] = {0, 0};                                                               \
            for (size_t j = 0; i + j < end; j += FG_LANES_##dtype)                                  \
                far[j / 32] |= i_above_##dtype(magnitude_##dtype(x + i + j), near) << j % 32;       \
            for (size_t half = 0; half < 2; half++)                                                 \
                for (unsigned bits = far[half]; bits; bits &= bits - 1)                             \
                    which[k++] = (unsigned short)(i + 32 * half + FG_LOWEST_BIT(bits));             \
            i = end;                                                                                \
        }                                                                                           \
        *count = k;                                                                                 \
        return i;                                                                                   \
    }                                                                                               \
    static FG_INLINE void collect_##dtype(size_t count, const unsigned short *which,                \
                                          const fg_##dtype *from, fg_##dtype *to)                   \
    {                                                                                               \
        for (size_t i = 0; i < count; i++)                                                          \
            to[i] = from[which[i]];                                                                 \
        for (size_t i = count; i % FG_LANES_##dtype; i++)                                           \
            to[i] = to[0];                                                                          \
    }
FG_WAY(f32)
FG_WAY(f64)

/* Loops of float64 say vector by vector what is to be in the first-level cache soon: the processor
 * does not see by itself what comes next of arrays that are read by blocks, with loads of rows between.
 * Three such places, as differences from x in bytes, since they may be past the end of an array. */
typedef struct fg_ahead {
    uintptr_t by[3];
} fg_ahead;
#if defined(__GNUC__)
#define FG_PREFETCH(address) __builtin_prefetch((const void *)(address))
#else
#define FG_PREFETCH(address) ((void)(address))
#endif
#define FG_LOOK_AHEAD()                                           \
    for (size_t byte = 0; byte < LANES * sizeof *x; byte += 64) { \
        const uintptr_t here = (uintptr_t)(x + j) + byte;         \
        FG_PREFETCH(here + ahead->by[0]);                         \
        FG_PREFETCH(here + ahead->by[1]);                         \
        FG_PREFETCH(here + ahead->by[2]);                         \
    }
/* All of a block is looked at first. */
enum {
    FG_AHEAD_X = FG_BLOCK * sizeof(fg_f64),
    FG_AHEAD_DY = FG_AHEAD_X / 2,
    FG_AHEAD_OUT = FG_AHEAD_X / 4
};

/* With `past` whole vectors are stored past the caches; the output is aligned then. */
#define FG_STORE(dtype, to, result)             \
    do {                                        \
        const V_##dtype stored = result;        \
        if (past)                               \
            v_stream_##dtype((to) + j, stored); \
        else                                    \
            v_store_##dtype((to) + j, stored);  \
    } while (0)
#define FG_EACH_VECTOR(dtype, count, body)             \
    for (size_t j = 0; j < count; j += LANES) {        \
        const V_##dtype value = v_load_##dtype(x + j); \
        body;                                          \
    }

#define FG_UPSTREAM(dtype) const V_##dtype upstream = v_load_##dtype(dy + j)

#define FG_NEAR_1_f32(name, far) \
    FG_EACH_VECTOR(f32, some, FG_STORE(f32, y, near_##name##_f32(value, far)))
#define FG_NEAR_2_f32(name, far)                \
    FG_EACH_VECTOR(f32, some, FG_UPSTREAM(f32); \
                   FG_STORE(f32, dx, near_##name##_f32(upstream, value, far)))

/* The formula of a value, which is x/2 where all are tiny: a division with a subnormal operand takes
 * some processors twice the time of another. Tiny: 1 + 2^n (1 + g r) is 2 to the bit. */
static FG_INLINE int all_tiny_f64(size_t n, const fg_f64 *x)
{
    for (size_t i = 0; i < n; i += FG_LANES_f64)
        if (i_any_above_f64(magnitude_f64(x + i), 0x1p-60))
            return 0;
    return 1;
}
#define FG_FORMULA_1_f64(name, far)                                                                \
    if (!(far) && all_tiny_f64(some, x)) {                                                         \
        FG_EACH_VECTOR(f64, some, FG_STORE(f64, y, product_f64(value, v_set_f64(fg_half_f64))))    \
    } else {                                                                                       \
        FG_EACH_VECTOR(f64, some, FG_LOOK_AHEAD() FG_STORE(f64, y, near_##name##_f64(value, far))) \
    }

#if FG_ROWS_FIRST
/* Where the rows of a table are is found first, for FG_ROWS elements: the way of a number from a
 * vector to an address takes long, and in one loop all that follows would wait for it. */
enum { FG_ROWS = 256 };
#define FG_REAL f64
#define FG_ROWS_OF(name, table)                                                                  \
    enum { has_rows_##name = fg_##table##_columns_f64 != 0 };                                    \
    static FG_INLINE void keep_rows_##name(size_t n, const fg_f64 *x, int far, uint32_t *places) \
    {                                                                                            \
        for (size_t j = 0; j < n; j += FG_LANES_f64) {                                           \
            const V_f64 t = clamped_f64(v_abs_f64(v_load_f64(x + j)), FG_C(table##_near), far);  \
            v_keep_f64(places + j, fg_##table##_rows_f64, fg_##table##_columns_f64,              \
                       FG_SEGMENT(t, table));                                                    \
        }                                                                                        \
    }                                                                                            \
    static FG_INLINE R_f64 kept_row_##name(const uint32_t *places)                               \
    {                                                                                            \
        return v_kept_f64(fg_##table##_table_f64, places);                                       \
    }
FG_ROWS_OF(gelu, gelu)
FG_ROWS_OF(gelu_tanh, gelu_tanh)
FG_ROWS_OF(gelu_sigmoid, gelu_sigmoid)
FG_ROWS_OF(silu, silu)
FG_ROWS_OF(gelu_grad, gelu_grad)
FG_ROWS_OF(gelu_tanh_grad, gelu_tanh_grad)
FG_ROWS_OF(gelu_sigmoid_grad, gelu_sigmoid_grad)
FG_ROWS_OF(silu_grad, silu_grad)
FG_ROWS_OF(gelu_backward, gelu_grad)
FG_ROWS_OF(gelu_tanh_backward, gelu_tanh_grad)
FG_ROWS_OF(gelu_sigmoid_backward, gelu_sigmoid_grad)
FG_ROWS_OF(silu_backward, silu_grad)
#undef FG_REAL
#define FG_EACH_ROW(name, body)                               \
    for (size_t j = at; j < at + part; j += LANES) {          \
        const V_f64 value = v_load_f64(x + j);                \
        const R_f64 row = kept_row_##name(places + (j - at)); \
        body;                                                 \
    }
#define FG_BY_ROWS(name, far, loops)                                   \
    for (size_t at = 0; at < some; at += FG_ROWS) {                    \
        uint32_t places[FG_ROWS];                                      \
        const size_t part = some - at < FG_ROWS ? some - at : FG_ROWS; \
        keep_rows_##name(part, x + at, far, places);                   \
        loops                                                          \
    }
#define FG_NEAR_1_f64(name, far)                                                              \
    if (has_rows_##name) {                                                                    \
        FG_BY_ROWS(name, far,                                                                 \
                   FG_EACH_ROW(name, FG_LOOK_AHEAD() FG_STORE(                                \
                                         f64, y, near_##name##_by_row_f64(value, row, far)))) \
    } else {                                                                                  \
        FG_FORMULA_1_f64(name, far)                                                           \
    }
/* Two inputs, and a vector that is one cache line (avx2): looking ahead takes 4 to 8 %, so that it
 * is left out where all is in a cache. */
enum { FG_AHEAD_ALWAYS = sizeof(V_f64) > 64 };
#define FG_ROW_2(name, far) \
    FG_UPSTREAM(f64);       \
    FG_STORE(f64, dx, near_##name##_by_row_f64(upstream, value, row, far))
#define FG_NEAR_2_f64(name, far)                                   \
    FG_BY_ROWS(                                                    \
        name, far, if (FG_AHEAD_ALWAYS || ahead) {                 \
            FG_EACH_ROW(name, FG_LOOK_AHEAD() FG_ROW_2(name, far)) \
        } else {FG_EACH_ROW(name, FG_ROW_2(name, far))})
#else
#define FG_NEAR_1_f64(name, far)                                                   \
    if (fg_##name##_columns_f64) {                                                 \
        FG_EACH_VECTOR(f64, some, FG_STORE(f64, y, near_##name##_f64(value, far))) \
    } else {                                                                       \
        FG_FORMULA_1_f64(name, far)                                                \
    }
enum { FG_AHEAD_ALWAYS = 0 };
#define FG_NEAR_2_f64(name, far)                \
    FG_EACH_VECTOR(f64, some, FG_UPSTREAM(f64); \
                   FG_STORE(f64, dx, near_##name##_f64(upstream, value, far)))
#endif

/* The far ways in two loops, begin_ and end_: as one, its chain of operations would be so long that
 * the processor sees too few of them at a time. */
#define FG_FAR(name, dtype, body)                                                   \
    for (size_t at = 0; at < some; at += FG_PIECE) {                                \
        FG_ALIGNED fg_##dtype k[FG_PIECE], g[FG_PIECE], a[FG_PIECE], b[FG_PIECE];   \
        const size_t part = some - at < FG_PIECE ? some - at : FG_PIECE;            \
        for (size_t i = 0; i < part; i += LANES) {                                  \
            const begun_##dtype s =                                                 \
                begin_##name##_##dtype(v_abs_##dtype(v_load_##dtype(x + at + i)));  \
            v_store_##dtype(k + i, s.k);                                            \
            v_store_##dtype(g + i, s.g);                                            \
            v_store_##dtype(a + i, s.a);                                            \
            v_store_##dtype(b + i, s.b);                                            \
        }                                                                           \
        for (size_t j = at, i = 0; i < part; i += LANES, j += LANES) {              \
            const V_##dtype value = v_load_##dtype(x + j);                          \
            const begun_##dtype s = {v_load_##dtype(k + i), v_load_##dtype(g + i),  \
                                     v_load_##dtype(a + i), v_load_##dtype(b + i)}; \
            body;                                                                   \
        }                                                                           \
    }
#define FG_FAR_1(name, dtype, terms) \
    FG_FAR(name, dtype, FG_STORE(dtype, y, end_##name##_##dtype(value, s, terms, 0)))
#define FG_FAR_2(name, dtype, terms)        \
    FG_FAR(name, dtype, FG_UPSTREAM(dtype); \
           FG_STORE(dtype, dx, end_##name##_##dtype(upstream, value, s, terms, 0)))

/* The last few elements go by way of a small buffer, as a last round. One alone is put into every
 * place of it: a vector can be loaded at once then, from the vectors that were stored there. */
#define FG_FEW(dtype)                                                                         \
    static FG_INLINE void few_from_##dtype(size_t n, const fg_##dtype *x, fg_##dtype *few)    \
    {                                                                                         \
        const fg_##dtype other = n == 1 ? *x : 0;                                             \
        for (size_t i = 0; i < FG_LANES_##dtype; i++)                                         \
            few[i] = other;                                                                   \
        if (n > 1)                                                                            \
            memcpy(few, x, n * sizeof *few);                                                  \
    }                                                                                         \
    static FG_INLINE void few_to_##dtype(size_t n, const fg_##dtype *few, fg_##dtype *result) \
    {                                                                                         \
        if (n == 1)                                                                           \
            *result = *few;                                                                   \
        else if (n)                                                                           \
            memcpy(result, few, n * sizeof *few);                                             \
    }
FG_FEW(f32)
FG_FEW(f64)
FG_FEW(f16)
FG_FEW(bf16)

/* The ways that take much of the stack are functions of their own. */
#define FG_FAR_WAY_1(run, name, dtype)                                                    \
    static FG_SINGLE void far_##run##_##name##_##dtype(size_t some, const fg_##dtype *x,  \
                                                       fg_##dtype *y, int past, int deep) \
    {                                                                                     \
        enum { LANES = FG_LANES_##dtype };                                                \
        if (fg_##name##_deep_##dtype < fg_##name##_end_##dtype && deep) {                 \
            FG_FAR_1(name, dtype, 0)                                                      \
        } else {                                                                          \
            FG_FAR_1(name, dtype, fg_##name##_terms_##dtype)                              \
        }                                                                                 \
    }
#define FG_FAR_WAY_2(run, name, dtype)                                                      \
    static FG_SINGLE void far_##run##_##name##_##dtype(size_t some, const fg_##dtype *dy,   \
                                                       const fg_##dtype *x, fg_##dtype *dx, \
                                                       int past, int deep)                  \
    {                                                                                       \
        enum { LANES = FG_LANES_##dtype };                                                  \
        if (fg_##name##_deep_##dtype < fg_##name##_end_##dtype && deep) {                   \
            FG_FAR_2(name, dtype, 0)                                                        \
        } else {                                                                            \
            FG_FAR_2(name, dtype, fg_##name##_terms_##dtype)                                \
        }                                                                                   \
    }

/* A mixed block: how many of its elements are far. */
#define FG_MIXED_1(run, name, dtype)                                                              \
    static FG_SINGLE size_t mixed_##run##_##name##_##dtype(size_t n, const fg_##dtype *x,         \
                                                           fg_##dtype *y, const fg_ahead *ahead)  \
    {                                                                                             \
        enum { LANES = FG_LANES_##dtype, past = 0 };                                              \
        size_t all = 0;                                                                           \
        (void)ahead;                                                                              \
        while (n) {                                                                               \
            unsigned short which[FG_APART];                                                       \
            fg_##dtype apart[FG_APART];                                                           \
            size_t count;                                                                         \
            const size_t some = set_apart_##dtype(n, x, fg_##name##_near_##dtype, which, &count); \
            collect_##dtype(count, which, x, apart);                                              \
            {                                                                                     \
                FG_NEAR_1_##dtype(name, 1)                                                        \
            }                                                                                     \
            for (size_t j = 0; j < count; j += LANES)                                             \
                v_store_##dtype(apart + j, far_##name##_##dtype(v_load_##dtype(apart + j), 1));   \
            for (size_t j = 0; j < count; j++)                                                    \
                y[which[j]] = apart[j];                                                           \
            x += some;                                                                            \
            y += some;                                                                            \
            n -= some;                                                                            \
            all += count;                                                                         \
        }                                                                                         \
        return all;                                                                               \
    }
#define FG_MIXED_2(run, name, dtype)                                                              \
    static FG_SINGLE size_t mixed_##run##_##name##_##dtype(size_t n, const fg_##dtype *dy,        \
                                                           const fg_##dtype *x, fg_##dtype *dx,   \
                                                           const fg_ahead *ahead)                 \
    {                                                                                             \
        enum { LANES = FG_LANES_##dtype, past = 0 };                                              \
        size_t all = 0;                                                                           \
        (void)ahead;                                                                              \
        while (n) {                                                                               \
            unsigned short which[FG_APART];                                                       \
            fg_##dtype apart[FG_APART], apart_dy[FG_APART];                                       \
            size_t count;                                                                         \
            const size_t some = set_apart_##dtype(n, x, fg_##name##_near_##dtype, which, &count); \
            collect_##dtype(count, which, x, apart);                                              \
            collect_##dtype(count, which, dy, apart_dy);                                          \
            {                                                                                     \
                FG_NEAR_2_##dtype(name, 1)                                                        \
            }                                                                                     \
            for (size_t j = 0; j < count; j += LANES)                                             \
                v_store_##dtype(apart + j, far_##name##_##dtype(v_load_##dtype(apart_dy + j),     \
                                                                v_load_##dtype(apart + j), 1));   \
            for (size_t j = 0; j < count; j++)                                                    \
                dx[which[j]] = apart[j];                                                          \
            dy += some;                                                                           \
            x += some;                                                                            \
            dx += some;                                                                           \
            n -= some;                                                                            \
            all += count;                                                                         \
        }                                                                                         \
        return all;                                                                               \
    }

#define FG_LOOP_1(run, name, dtype)                                                              \
    FG_FAR_WAY_1(run, name, dtype)                                                               \
    FG_MIXED_1(run, name, dtype)                                                                 \
    static FG_SINGLE void run##_##name##_##dtype(size_t n, const fg_##dtype *x, fg_##dtype *y,   \
                                                 int past, const fg_ahead *ahead)                \
    {                                                                                            \
        enum { LANES = FG_LANES_##dtype };                                                       \
        fg_##dtype few[LANES], *rest = NULL;                                                     \
        size_t left = 0;                                                                         \
        (void)ahead;                                                                             \
        int mixed = 0; /* the block before */                                                    \
        while (n) {                                                                              \
            if (n < LANES) {                                                                     \
                few_from_##dtype(n, x, few);                                                     \
                rest = y, left = n, n = LANES, past = 0;                                         \
                x = few, y = few;                                                                \
            }                                                                                    \
            const size_t some = n < FG_BLOCK ? n - n % LANES : FG_BLOCK;                         \
            const enum fg_way way =                                                              \
                mixed ? FG_MIXED                                                                 \
                      : way_##dtype(some, x, fg_##name##_near_##dtype, fg_##name##_deep_##dtype, \
                                    fg_##name##_end_##dtype, fg_##name##_plain_##dtype);         \
            if (way == FG_NEAR) {                                                                \
                FG_NEAR_1_##dtype(name, 0)                                                       \
            } else if (way == FG_FAR || way == FG_DEEP) {                                        \
                far_##run##_##name##_##dtype(some, x, y, past, way == FG_DEEP);                  \
            } else if (way == FG_PLAIN) {                                                        \
                FG_EACH_VECTOR(dtype, some, FG_STORE(dtype, y, plain_##name##_##dtype(value)))   \
            } else {                                                                             \
                const size_t far = mixed_##run##_##name##_##dtype(some, x, y, ahead);            \
                mixed = far && far < some;                                                       \
            }                                                                                    \
            x += some;                                                                           \
            y += some;                                                                           \
            n -= some;                                                                           \
        }                                                                                        \
        few_to_##dtype(left, few, rest);                                                         \
    }

#define FG_LOOP_2(run, name, dtype)                                                              \
    FG_FAR_WAY_2(run, name, dtype)                                                               \
    FG_MIXED_2(run, name, dtype)                                                                 \
    static FG_SINGLE void run##_##name##_##dtype(size_t n, const fg_##dtype *dy,                 \
                                                 const fg_##dtype *x, fg_##dtype *dx, int past,  \
                                                 const fg_ahead *ahead)                          \
    {                                                                                            \
        enum { LANES = FG_LANES_##dtype };                                                       \
        fg_##dtype few[LANES], few_dy[LANES], *rest = NULL;                                      \
        size_t left = 0;                                                                         \
        (void)ahead;                                                                             \
        int mixed = 0; /* the block before */                                                    \
        while (n) {                                                                              \
            if (n < LANES) {                                                                     \
                few_from_##dtype(n, x, few);                                                     \
                few_from_##dtype(n, dy, few_dy);                                                 \
                rest = dx, left = n, n = LANES, past = 0;                                        \
                dy = few_dy, x = few, dx = few;                                                  \
            }                                                                                    \
            const size_t some = n < FG_BLOCK ? n - n % LANES : FG_BLOCK;                         \
            const enum fg_way way =                                                              \
                mixed ? FG_MIXED                                                                 \
                      : way_##dtype(some, x, fg_##name##_near_##dtype, fg_##name##_deep_##dtype, \
                                    fg_##name##_end_##dtype, fg_##name##_plain_##dtype);         \
            if (way == FG_NEAR) {                                                                \
                FG_NEAR_2_##dtype(name, 0)                                                       \
            } else if (way == FG_FAR || way == FG_DEEP) {                                        \
                far_##run##_##name##_##dtype(some, dy, x, dx, past, way == FG_DEEP);             \
            } else if (way == FG_PLAIN) {                                                        \
                FG_EACH_VECTOR(dtype, some, FG_UPSTREAM(dtype);                                  \
                               FG_STORE(dtype, dx, plain_##name##_##dtype(upstream, value)))     \
            } else {                                                                             \
                const size_t far = mixed_##run##_##name##_##dtype(some, dy, x, dx, ahead);       \
                mixed = far && far < some;                                                       \
            }                                                                                    \
            dy += some;                                                                          \
            x += some;                                                                           \
            dx += some;                                                                          \
            n -= some;                                                                           \
        }                                                                                        \
        few_to_##dtype(left, few, rest);                                                         \
    }

/* 16 bits: a way for blocks all near, not near, or not finite, and one for all others. The formulas
 * of values and slopes begin at low, before the tables end: all results are rounded correctly. */
enum { FG_BLOCK_16 = 256 };
/* Of the bits of the numbers: loops that compilers make vectors of. */
static FG_INLINE uint16_t largest_16(size_t n, const uint16_t *x)
{
    uint16_t most = 0;
    for (size_t i = 0; i < n; i++) {
        const uint16_t t = x[i] & 0x7fff;
        most = t > most ? t : most;
    }
    return most;
}
static FG_INLINE enum fg_way way_16(size_t n, const uint16_t *x, uint16_t far, uint16_t low,
                                    uint16_t end, uint16_t infinite)
{
    const uint16_t most = largest_16(n, x);
    uint16_t least = 0x7fff;
    if (most < far)
        return FG_NEAR;
    for (size_t i = 0; i < n; i++) {
        const uint16_t t = x[i] & 0x7fff;
        least = t < least ? t : least;
    }
    return least >= infinite ? FG_PLAIN : least >= low && most <= end ? FG_FAR : FG_MIXED;
}
#define FG_WAY_16(some, name, dtype)                                            \
    way_16(some, x, fg_##name##_far_bits_##dtype, fg_##name##_low_bits_##dtype, \
           fg_##name##_end_bits_##dtype, fg_infinite_bits_##dtype)
#define FG_LOOP_16_1(name, dtype)                                                              \
    static FG_SINGLE void run_##name##_##dtype(size_t n, const fg_##dtype *x, fg_##dtype *y,   \
                                               int past)                                       \
    {                                                                                          \
        enum { LANES = FG_LANES_##dtype };                                                     \
        fg_##dtype few[LANES], *rest = NULL;                                                   \
        size_t left = 0;                                                                       \
        while (n) {                                                                            \
            if (n < LANES) {                                                                   \
                few_from_##dtype(n, x, few);                                                   \
                rest = y, left = n, n = LANES, past = 0;                                       \
                x = few, y = few;                                                              \
            }                                                                                  \
            const size_t some = n < FG_BLOCK_16 ? n - n % LANES : FG_BLOCK_16;                 \
            const enum fg_way way = FG_WAY_16(some, name, dtype);                              \
            if (way == FG_NEAR) {                                                              \
                FG_EACH_VECTOR(dtype, some, FG_STORE(dtype, y, name##_##dtype(value, 1)))      \
            } else if (way == FG_FAR) {                                                        \
                FG_EACH_VECTOR(dtype, some, FG_STORE(dtype, y, name##_##dtype(value, -1)))     \
            } else if (way == FG_PLAIN) {                                                      \
                FG_EACH_VECTOR(dtype, some, FG_STORE(dtype, y, plain_##name##_##dtype(value))) \
            } else {                                                                           \
                FG_EACH_VECTOR(dtype, some, FG_STORE(dtype, y, name##_##dtype(value, 0)))      \
            }                                                                                  \
            x += some;                                                                         \
            y += some;                                                                         \
            n -= some;                                                                         \
        }                                                                                      \
        few_to_##dtype(left, few, rest);                                                       \
    }
#define FG_LOOP_16_2(name, dtype)                                                             \
    static FG_SINGLE void run_##name##_##dtype(size_t n, const fg_##dtype *dy,                \
                                               const fg_##dtype *x, fg_##dtype *dx, int past) \
    {                                                                                         \
        enum { LANES = FG_LANES_##dtype };                                                    \
        fg_##dtype few[LANES], few_dy[LANES], *rest = NULL;                                   \
        size_t left = 0;                                                                      \
        while (n) {                                                                           \
            if (n < LANES) {                                                                  \
                few_from_##dtype(n, x, few);                                                  \
                few_from_##dtype(n, dy, few_dy);                                              \
                rest = dx, left = n, n = LANES, past = 0;                                     \
                dy = few_dy, x = few, dx = few;                                               \
            }                                                                                 \
            const size_t some = n < FG_BLOCK_16 ? n - n % LANES : FG_BLOCK_16;                \
            const enum fg_way way = FG_WAY_16(some, name, dtype);                             \
            if (way == FG_NEAR) {                                                             \
                FG_EACH_VECTOR(dtype, some, FG_UPSTREAM(dtype);                               \
                               FG_STORE(dtype, dx, name##_##dtype(upstream, value, 1)))       \
            } else if (way == FG_FAR) {                                                       \
                FG_EACH_VECTOR(dtype, some, FG_UPSTREAM(dtype);                               \
                               FG_STORE(dtype, dx, name##_##dtype(upstream, value, -1)))      \
            } else if (way == FG_PLAIN) {                                                     \
                FG_EACH_VECTOR(dtype, some, FG_UPSTREAM(dtype);                               \
                               FG_STORE(dtype, dx, plain_##name##_##dtype(upstream, value)))  \
            } else {                                                                          \
                FG_EACH_VECTOR(dtype, some, FG_UPSTREAM(dtype);                               \
                               FG_STORE(dtype, dx, name##_##dtype(upstream, value, 0)))       \
            }                                                                                 \
            dy += some;                                                                       \
            x += some;                                                                        \
            dx += some;                                                                       \
            n -= some;                                                                        \
        }                                                                                     \
        few_to_##dtype(left, few, rest);                                                      \
    }

/* Arrays in memory. Those of FG_LARGE elements are not expected to be in a cache. */
enum { FG_LARGE = 1 << 18 };
#define FG_RUN_1(name, dtype)                                                                \
    static FG_INLINE void run_##name##_##dtype(size_t n, const fg_##dtype *x, fg_##dtype *y, \
                                               int past)                                     \
    {                                                                                        \
        const uintptr_t out = (uintptr_t)y - (uintptr_t)x + FG_AHEAD_OUT;                    \
        const fg_ahead ahead = {{FG_AHEAD_X, past ? FG_AHEAD_X : out, FG_AHEAD_X}};          \
        blocks_##name##_##dtype(n, x, y, past, &ahead);                                      \
    }
#define FG_RUN_2(name, dtype)                                                                 \
    static FG_INLINE void run_##name##_##dtype(size_t n, const fg_##dtype *dy,                \
                                               const fg_##dtype *x, fg_##dtype *dx, int past) \
    {                                                                                         \
        const uintptr_t in = (uintptr_t)dy - (uintptr_t)x + FG_AHEAD_DY,                      \
                        out = (uintptr_t)dx - (uintptr_t)x + FG_AHEAD_OUT;                    \
        const fg_ahead ahead = {{FG_AHEAD_X, in, past ? FG_AHEAD_X : out}};                   \
        blocks_##name##_##dtype(n, dy, x, dx, past,                                           \
                                FG_AHEAD_ALWAYS || n >= FG_LARGE ? &ahead : NULL);            \
    }
#define FG_LOOP_f32_1(name, dtype) FG_LOOP_1(blocks, name, dtype)
#define FG_LOOP_f64_1(name, dtype) FG_LOOP_1(blocks, name, dtype) FG_RUN_1(name, dtype)
#define FG_LOOP_f16_1 FG_LOOP_16_1
#define FG_LOOP_bf16_1 FG_LOOP_16_1
#define FG_LOOP_f32_2(name, dtype) FG_LOOP_2(blocks, name, dtype) FG_RUN_2(name, dtype)
#define FG_LOOP_f64_2(name, dtype) FG_LOOP_2(blocks, name, dtype) FG_RUN_2(name, dtype)
#define FG_LOOP_f16_2 FG_LOOP_16_2
#define FG_LOOP_bf16_2 FG_LOOP_16_2

/* The two ways into it. */
#define FG_HEAD(dtype, array)                                                     \
    const size_t whole = FG_REGISTER_LANES_##dtype * sizeof *array;               \
    const size_t before = (size_t)(0 - (uintptr_t)array) % whole / sizeof *array, \
                 head = before < n ? before : n
/* Fewer elements than fill half a vector: by a target whose vectors are that long. */
#ifdef FG_SHORTER
#define FG_IF_SHORT(name, dtype, operands)  \
    if (n <= FG_LANES_##dtype / 2) {        \
        FG_SHORTER.name##_##dtype operands; \
        return;                             \
    }
#else
#define FG_IF_SHORT(name, dtype, operands)
#endif
#define FG_ENTRIES_1(name, dtype)                                                     \
    static void loop_##name##_##dtype(size_t n, const fg_##dtype *x, fg_##dtype *y)   \
    {                                                                                 \
        FG_IF_SHORT(name, dtype, (n, x, y));                                          \
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
        FG_IF_SHORT(name, dtype, (n, dy, x, dx));                                            \
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

/* Those of one float32 input are in fused.h. */
#define FG_ENTRIES_f32_1(name, dtype)
#define FG_ENTRIES_f64_1 FG_ENTRIES_1
#define FG_ENTRIES_f16_1 FG_ENTRIES_1
#define FG_ENTRIES_bf16_1 FG_ENTRIES_1
#define FG_ENTRIES_f32_2 FG_ENTRIES_2
#define FG_ENTRIES_f64_2 FG_ENTRIES_2
#define FG_ENTRIES_f16_2 FG_ENTRIES_2
#define FG_ENTRIES_bf16_2 FG_ENTRIES_2

#define FG_FUNCTION(name, dtype, inputs, max_ulp) \
    FG_LOOP_##dtype##_##inputs(name, dtype) FG_ENTRIES_##dtype##_##inputs(name, dtype)
#define FG_FUNCTION_GRAD2(name, dtype, inputs, max_ulp)
#include "functions.def"

#include "fused.h"
#include "kernels_grad2.h"
#include "strides.h"

#define FG_ENTRY_f32(name) rows_##name##_f32
#define FG_ENTRY_f64(name) NULL
#define FG_ENTRY_f16 FG_ENTRY_f64
#define FG_ENTRY_bf16 FG_ENTRY_f64
#define FG_ENTRY_bias(name, dtype) FG_ENTRY_##dtype(name)
#define FG_ENTRY_bias_backward FG_ENTRY_bias
#define FG_ENTRY_glu FG_ENTRY_bias
#define FG_ENTRY_glu_backward FG_ENTRY_bias
#define FG_ENTRY_value_and_grad(name, dtype) NULL

#define FG_STRING_(name) #name
#define FG_STRING(name) FG_STRING_(name)
#define FG_TABLE_(name) fg_##name
#define FG_TABLE(name) FG_TABLE_(name)

const fg_table FG_TABLE(FG_TARGET_NAME) = {
    FG_STRING(FG_TARGET_NAME),
    pack,
    spread,
#define FG_FUNCTION(name, dtype, inputs, max_ulp) loop_##name##_##dtype, stream_##name##_##dtype,
#define FG_FUSED(name, dtype, shape, form) loop_##name##_##dtype, stream_##name##_##dtype,
#include "functions.def"
    {
#define FG_FUNCTION(name, dtype, inputs, max_ulp) NULL,
#define FG_FUSED(name, dtype, shape, form) FG_ENTRY_##shape(name, dtype),
#include "functions.def"
    },
};
