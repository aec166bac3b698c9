/* SPDX-License-Identifier: BSD-3-Clause */
/* strides.h: packs elements that lie a step apart, and spreads packed ones again, as bits.
 *
 * Plain C in the files of the targets: compilers make each target's shuffles of the loops of a
 * constant step. Those read what lies between two elements of an input, and nothing beyond the
 * last; of an output nothing is written but the elements. */
#ifndef FG_STRIDES_H
#define FG_STRIDES_H

/* Four elements a round in the other loops, all loaded before one is stored: stores in a row reach
 * the cache in pairs. */
#define FG_STRIDES(type)                                                                           \
    static void pack_##type(size_t n, const char *restrict from, ptrdiff_t step,                   \
                            char *restrict to)                                                     \
    {                                                                                              \
        enum { SIZE = sizeof(type) };                                                              \
        size_t i = 0;                                                                              \
        if (step == 2 * SIZE) {                                                                    \
            for (; i < n; i++)                                                                     \
                memcpy(to + i * SIZE, from + i * 2 * SIZE, SIZE);                                  \
        } else if (step == -SIZE) {                                                                \
            for (; i < n; i++)                                                                     \
                memcpy(to + i * SIZE, from - i * SIZE, SIZE);                                      \
        } else {                                                                                   \
            for (; i + 4 <= n; i += 4, from += 4 * step) {                                         \
                type four[4];                                                                      \
                memcpy(four, from, SIZE);                                                          \
                memcpy(four + 1, from + step, SIZE);                                               \
                memcpy(four + 2, from + 2 * step, SIZE);                                           \
                memcpy(four + 3, from + 3 * step, SIZE);                                           \
                memcpy(to + i * SIZE, four, 4 * SIZE);                                             \
            }                                                                                      \
            for (; i < n; i++, from += step)                                                       \
                memcpy(to + i * SIZE, from, SIZE);                                                 \
        }                                                                                          \
    }                                                                                              \
    static void spread_##type(size_t n, const char *from, char *to, ptrdiff_t step)                \
    {                                                                                              \
        enum { SIZE = sizeof(type) };                                                              \
        size_t i = 0;                                                                              \
        if (step == 2 * SIZE)                                                                      \
            i = spread_2_##type(n, from, to);                                                      \
        else if (step == -SIZE) {                                                                  \
            pack_##type(n, from + (n - 1) * SIZE, -SIZE, to - (n - 1) * SIZE);                     \
            return;                                                                                \
        }                                                                                          \
        for (to += (ptrdiff_t)i * step; i + 4 <= n; i += 4, to += 4 * step) {                      \
            type four[4];                                                                          \
            memcpy(four, from + i * SIZE, 4 * SIZE);                                               \
            memcpy(to, four, SIZE);                                                                \
            memcpy(to + step, four + 1, SIZE);                                                     \
            memcpy(to + 2 * step, four + 2, SIZE);                                                 \
            memcpy(to + 3 * step, four + 3, SIZE);                                                 \
        }                                                                                          \
        for (; i < n; i++, to += step)                                                             \
            memcpy(to, from + i * SIZE, SIZE);                                                     \
    }

#ifndef FG_SPREAD_2 /* by a target's own instructions: how many of n were stored, 2 sizes apart */
#define FG_SPREAD_2(type)                                                        \
    static FG_INLINE size_t spread_2_##type(size_t n, const char *from, char *to) \
    {                                                                            \
        (void)n, (void)from, (void)to;                                           \
        return 0;                                                                \
    }
FG_SPREAD_2(uint16_t)
FG_SPREAD_2(uint32_t)
FG_SPREAD_2(uint64_t)
#endif

FG_STRIDES(uint16_t)
FG_STRIDES(uint32_t)
FG_STRIDES(uint64_t)

static void pack(size_t size, size_t n, const char *from, ptrdiff_t step, char *to)
{
    if (size == 2)
        pack_uint16_t(n, from, step, to);
    else if (size == 4)
        pack_uint32_t(n, from, step, to);
    else
        pack_uint64_t(n, from, step, to);
}

static void spread(size_t size, size_t n, const char *from, char *to, ptrdiff_t step)
{
    if (size == 2)
        spread_uint16_t(n, from, to, step);
    else if (size == 4)
        spread_uint32_t(n, from, to, step);
    else
        spread_uint64_t(n, from, to, step);
}

#endif
