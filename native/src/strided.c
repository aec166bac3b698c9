/* SPDX-License-Identifier: BSD-3-Clause */
/* strided.c: any registered function over byte strides. Blocks are copied
 * through small stack buffers, so that a kernel never sees a stride. */
#include "internal.h"

enum { BLOCK_BYTES = 2048 };

/* In bytes: the name of a dtype ends in its width in bits, and begins with letters. */
static size_t item_size(const fastgelu_function *f)
{
    switch (f->dtype[1] == 'f' ? f->dtype[2] : f->dtype[1]) {
    case '1':
        return 2;
    case '3':
        return 4;
    default:
        return 8;
    }
}

/* By the number of inputs and of outputs: the prototypes of one number differ in names only. */
#define FG_ARG(dtype, a) (fg_##dtype *)(void *)args[a]
#define FG_CALL_AS(dtype)                                                                     \
    switch (10 * f->inputs + f->outputs) {                                                    \
    case 11:                                                                                  \
        ((FG_KERNEL_1((*), dtype))kernel)(n, FG_ARG(dtype, 0), FG_ARG(dtype, 1));             \
        break;                                                                                \
    case 21:                                                                                  \
        ((FG_KERNEL_2((*), dtype))kernel)(n, FG_ARG(dtype, 0), FG_ARG(dtype, 1),              \
                                          FG_ARG(dtype, 2));                                  \
        break;                                                                                \
    case 31:                                                                                  \
        ((FG_KERNEL_bias_backward((*), dtype))kernel)(n, FG_ARG(dtype, 0), FG_ARG(dtype, 1),  \
                                                      FG_ARG(dtype, 2), FG_ARG(dtype, 3));    \
        break;                                                                                \
    case 12:                                                                                  \
        ((FG_KERNEL_value_and_grad((*), dtype))kernel)(n, FG_ARG(dtype, 0), FG_ARG(dtype, 1), \
                                                       FG_ARG(dtype, 2));                     \
        break;                                                                                \
    default:                                                                                  \
        ((FG_KERNEL_glu_backward((*), dtype))kernel)(n, FG_ARG(dtype, 0), FG_ARG(dtype, 1),   \
                                                     FG_ARG(dtype, 2), FG_ARG(dtype, 3),      \
                                                     FG_ARG(dtype, 4));                       \
    }

static void call(const fastgelu_function *f, void (*kernel)(void), size_t size, size_t n,
                 char *const args[])
{
    if (size == 2) {
        FG_CALL_AS(f16); /* bf16 has the same type */
    } else if (size == 4) {
        FG_CALL_AS(f32);
    } else {
        FG_CALL_AS(f64);
    }
}

void fastgelu_strided(const fastgelu_function *f, size_t n, char *const args[],
                      const ptrdiff_t strides[])
{
    const size_t size = item_size(f), block = BLOCK_BYTES / size;
    const int operands = f->inputs + f->outputs;
    uintptr_t apart = 0; /* 0: all operands lie as a kernel wants them */
    for (int a = 0; a < operands; a++)
        apart |= ((uintptr_t)strides[a] ^ size) | ((uintptr_t)args[a] & (size - 1));
    if (!apart) {
        call(f, f->kernel, size, n, args);
        return;
    }
    int direct[FG_MOST_OPERANDS];
    for (int a = 0; a < operands; a++)
        direct[a] = strides[a] == (ptrdiff_t)size && (uintptr_t)args[a] % size == 0;
    const fg_table *table = fg_current_table();
    double buffers[FG_MOST_OPERANDS][BLOCK_BYTES / sizeof(double)];
    char *at[FG_MOST_OPERANDS], *given[FG_MOST_OPERANDS];
    for (int a = 0; a < operands; a++) {
        at[a] = args[a];
        if (!direct[a])
            given[a] = (char *)buffers[a];
        /* one element for all: copied once; not from where an output may be */
        if (a < f->inputs && !strides[a] && n)
            table->pack(size, n < block ? n : block, at[a], 0, given[a]);
    }
    while (n) {
        const size_t m = n < block ? n : block;
        for (int a = 0; a < operands; a++)
            if (direct[a])
                given[a] = at[a];
            else if (a < f->inputs && strides[a])
                table->pack(size, m, at[a], strides[a], given[a]);
        call(f, f->kernel, size, m, given);
        for (int a = 0; a < operands; a++) {
            if (a >= f->inputs && !direct[a])
                table->spread(size, m, given[a], at[a], strides[a]);
            at[a] += strides[a] * (ptrdiff_t)m;
        }
        n -= m;
    }
}

void fastgelu_stream(const fastgelu_function *f, size_t n, char *const args[])
{
    const ptrdiff_t size = (ptrdiff_t)item_size(f);
    const ptrdiff_t strides[FG_MOST_OPERANDS] = {size, size, size, size, size};
    for (int a = 0; a < f->inputs + f->outputs; a++)
        if ((uintptr_t)args[a] % (size_t)size != 0) {
            fastgelu_strided(f, n, args, strides);
            return;
        }
    call(f, f->stream, (size_t)size, n, args);
}
