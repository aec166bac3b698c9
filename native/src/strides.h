/* SPDX-License-Identifier: BSD-3-Clause */
/* strides.h: packs elements that lie a step apart, and spreads packed ones again, as bits.
 *
 * Plain C in the files of the targets: compilers make each target's shuffles of the loops of a
 * constant step. Those read what lies between two elements of an input, and nothing beyond the
 * last; of an output nothing is written but the elements. */
#ifndef FG_STRIDES_H
#define FG_STRIDES_H

/* Loops over restrict pointers, which become shuffles; i is unsigned, or gcc 12 makes none of 16
 * bits. */
#define FG_SHUFFLED(type, name, place)                                                          \
    static FG_SINGLE void name##_##type(size_t n, const char *restrict from, char *restrict to) \
    {                                                                                           \
        for (size_t i = 0; i < n; i++)                                                          \
            memcpy(to + i * sizeof(type), place, sizeof(type));                                 \
    }

#ifndef FG_BY_TWOS /* 2 sizes apart, by a target's own instructions: how many of n were moved */
#define FG_BY_TWOS(type)                                                          \
    FG_SHUFFLED(type, second, from + i * 2 * sizeof(type))                        \
    static FG_INLINE size_t pack_2_##type(size_t n, const char *from, char *to)   \
    {                                                                             \
        second_##type(n, from, to);                                               \
        return n;                                                                 \
    }                                                                             \
    static FG_INLINE size_t spread_2_##type(size_t n, const char *from, char *to) \
    {                                                                             \
        (void)n, (void)from, (void)to;                                            \
        return 0;                                                                 \
    }
FG_BY_TWOS(uint16_t)
FG_BY_TWOS(uint32_t)
FG_BY_TWOS(uint64_t)
#endif

/* Any steps: four elements a round, all loaded before one is stored, since stores in a row reach
 * the cache in pairs. One by one, or compilers take an array of four by way of memory. */
#define FG_ANY_STEPS(type)                                                                       \
    static FG_INLINE void move_##type(size_t n, const char *from, ptrdiff_t from_step, char *to, \
                                      ptrdiff_t to_step)                                         \
    {                                                                                            \
        type a, b, c, d;                                                                         \
        for (; n >= 4; n -= 4) {                                                                 \
            memcpy(&a, from, sizeof a);                                                          \
            memcpy(&b, from + from_step, sizeof b);                                              \
            memcpy(&c, from + 2 * from_step, sizeof c);                                          \
            memcpy(&d, from + 3 * from_step, sizeof d);                                          \
            memcpy(to, &a, sizeof a);                                                            \
            memcpy(to + to_step, &b, sizeof b);                                                  \
            memcpy(to + 2 * to_step, &c, sizeof c);                                              \
            memcpy(to + 3 * to_step, &d, sizeof d);                                              \
            from += 4 * from_step;                                                               \
            to += 4 * to_step;                                                                   \
        }                                                                                        \
        for (; n; n--, from += from_step, to += to_step)                                         \
            memcpy(to, from, sizeof(type));                                                      \
    }

#define FG_STRIDES(type)                                                                        \
    FG_SHUFFLED(type, backwards, from - i * sizeof(type))                                       \
    FG_ANY_STEPS(type)                                                                          \
    static void pack_##type(size_t n, const char *from, ptrdiff_t step, char *to)               \
    {                                                                                           \
        enum { SIZE = sizeof(type) };                                                           \
        if (step == -SIZE) {                                                                    \
            backwards_##type(n, from, to);                                                      \
        } else {                                                                                \
            const size_t done = step == 2 * SIZE ? pack_2_##type(n, from, to) : 0;              \
            move_##type(n - done, from + (ptrdiff_t)done * step, step, to + done * SIZE, SIZE); \
        }                                                                                       \
    }                                                                                           \
    static void spread_##type(size_t n, const char *from, char *to, ptrdiff_t step)             \
    {                                                                                           \
        enum { SIZE = sizeof(type) };                                                           \
        if (step == -SIZE) {                                                                    \
            const size_t last = (n - 1) * SIZE;                                                 \
            backwards_##type(n, from + last, to - last);                                        \
        } else {                                                                                \
            const size_t done = step == 2 * SIZE ? spread_2_##type(n, from, to) : 0;            \
            move_##type(n - done, from + done * SIZE, SIZE, to + (ptrdiff_t)done * step, step); \
        }                                                                                       \
    }
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
