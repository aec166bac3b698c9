/* SPDX-License-Identifier: BSD-3-Clause */
/* internal.h: what the files of the library share: types and the kernel table. */
#ifndef FG_INTERNAL_H
#define FG_INTERNAL_H

#include <stddef.h>
#include <stdint.h>

#include "fastgelu.h"

#if defined(__FAST_MATH__) || (defined(_M_FP_FAST) && _M_FP_FAST)
#error "fastgelu needs IEEE arithmetic: compile it without fast-math"
#endif

typedef float fg_f32;
typedef double fg_f64;
typedef uint16_t fg_f16; /* bits */
typedef uint16_t fg_bf16;

/* Compiled once: neither inlined nor cloned for an argument's value. */
#if defined(__clang__)
#define FG_SINGLE __attribute__((noinline))
#elif defined(__GNUC__)
#define FG_SINGLE __attribute__((noinline, noclone))
#elif defined(_MSC_VER)
#define FG_SINGLE __declspec(noinline)
#else
#define FG_SINGLE
#endif

#if defined(__GNUC__)
#define FG_INLINE inline __attribute__((always_inline))
#elif defined(_MSC_VER)
#define FG_INLINE __forceinline
#else
#define FG_INLINE inline
#endif

/* The number of the lowest bit that is set, of a number that is not 0. */
#if defined(__GNUC__)
#define FG_LOWEST_BIT(bits) ((unsigned)__builtin_ctz(bits))
#elif defined(_MSC_VER)
#include <intrin.h>
static FG_INLINE unsigned fg_lowest_bit(unsigned bits)
{
    unsigned long at;
    _BitScanForward(&at, bits);
    return (unsigned)at;
}
#define FG_LOWEST_BIT(bits) fg_lowest_bit(bits)
#else
static FG_INLINE unsigned fg_lowest_bit(unsigned bits)
{
    unsigned at = 0;
    while (!(bits >> at & 1))
        at++;
    return at;
}
#define FG_LOWEST_BIT(bits) fg_lowest_bit(bits)
#endif

/* For arrays on the stack: to whole cache lines. */
#if defined(_MSC_VER)
#define FG_ALIGNED __declspec(align(64))
#else
#define FG_ALIGNED _Alignas(64)
#endif

/* Function pointer declarators by number of inputs. */
#define FG_KERNEL_1(declarator, dtype) void declarator(size_t n, const fg_##dtype *x, fg_##dtype *y)
#define FG_KERNEL_2(declarator, dtype) \
    void declarator(size_t n, const fg_##dtype *dy, const fg_##dtype *x, fg_##dtype *dx)

/* And by the shape of a fused function; the last two have two outputs. */
#define FG_KERNEL_bias(declarator, dtype) \
    void declarator(size_t n, const fg_##dtype *x, const fg_##dtype *b, fg_##dtype *y)
#define FG_KERNEL_bias_backward(declarator, dtype)                                            \
    void declarator(size_t n, const fg_##dtype *dy, const fg_##dtype *x, const fg_##dtype *b, \
                    fg_##dtype *dx)
#define FG_KERNEL_glu(declarator, dtype) \
    void declarator(size_t n, const fg_##dtype *a, const fg_##dtype *b, fg_##dtype *y)
#define FG_KERNEL_glu_backward(declarator, dtype)                                             \
    void declarator(size_t n, const fg_##dtype *dy, const fg_##dtype *a, const fg_##dtype *b, \
                    fg_##dtype *da, fg_##dtype *db)
#define FG_KERNEL_value_and_grad(declarator, dtype) \
    void declarator(size_t n, const fg_##dtype *x, fg_##dtype *y, fg_##dtype *slope)

/* How many operands these have. */
enum {
    FG_INPUTS_bias = 2,
    FG_INPUTS_bias_backward = 3,
    FG_INPUTS_glu = 2,
    FG_INPUTS_glu_backward = 3,
    FG_INPUTS_value_and_grad = 1,
    FG_OUTPUTS_bias = 1,
    FG_OUTPUTS_bias_backward = 1,
    FG_OUTPUTS_glu = 1,
    FG_OUTPUTS_glu_backward = 2,
    FG_OUTPUTS_value_and_grad = 2,
    FG_MOST_INPUTS = 3,
    FG_MOST_OPERANDS = 5
};

/* The place of a function in the registry. */
enum {
#define FG_FUNCTION(name, dtype, inputs, max_ulp) FG_PLACE_##name##_##dtype,
#define FG_FUSED(name, dtype, shape, form) FG_PLACE_##name##_##dtype,
#include "functions.def"
    FG_FUNCTION_COUNT
};

/* A call of a fused function on n elements whose operand b is a row of `period` elements that
 * repeats: it begins with element `phase`, and behind the row it lies in memory once more, for a few
 * vectors. With `past` results go past the caches; they are no inputs then. */
typedef struct fg_rows {
    size_t n, period, phase;
    const void *x, *b, *dy; /* x: or a */
    void *y, *z;
    int past;
} fg_rows;

/* Rows of less are not worth it: they end with every few vectors. */
enum { FG_SHORTEST_ROW = 256 };

/* Hidden, for the Python extension: whether the function has such a kernel; the call. */
int fg_has_rows(const fastgelu_function *f);
void fg_run_rows(const fastgelu_function *f, const fg_rows *rows);

/* One table a target: its name, a slot for every registered function, and what takes elements of
 * `size` bytes from where they lie `step` bytes apart to a packed array, and back. */
typedef struct fg_table {
    const char *name;
    void (*pack)(size_t size, size_t n, const char *from, ptrdiff_t step, char *to);
    void (*spread)(size_t size, size_t n, const char *from, char *to, ptrdiff_t step);
#define FG_FUNCTION(name, dtype, inputs, max_ulp) \
    FG_KERNEL_##inputs((*name##_##dtype), dtype); \
    FG_KERNEL_##inputs((*stream_##name##_##dtype), dtype);
#define FG_FUSED(name, dtype, shape, form)       \
    FG_KERNEL_##shape((*name##_##dtype), dtype); \
    FG_KERNEL_##shape((*stream_##name##_##dtype), dtype);
#include "functions.def"
    void (*rows[FG_FUNCTION_COUNT])(const fg_rows *rows); /* NULL: none */
} fg_table;

#define FG_TARGET(name) extern const fg_table fg_##name;
#include "targets.def"

/* The one in use. */
const fg_table *fg_current_table(void);

#endif
