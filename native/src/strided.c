/* SPDX-License-Identifier: BSD-3-Clause */
/* strided.c: any registered function over byte strides. Blocks are copied
 * through small stack buffers, so that a kernel never sees a stride. */
#include <string.h>

#include "internal.h"

enum { BLOCK_BYTES = 2048, MOST_INPUTS = 2 };

/* memcpy of a constant size: one unaligned load and store. */
#define FG_COPY(size)                                                \
    for (size_t i = 0; i < n; i++, from += from_step, to += to_step) \
    memcpy(to, from, size)

static void copy(size_t size, size_t n, const char *from, ptrdiff_t from_step, char *to,
                 ptrdiff_t to_step)
{
    if (size == 2)
        FG_COPY(2);
    else if (size == 4)
        FG_COPY(4);
    else
        FG_COPY(8);
}

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

#define FG_CALL_AS(dtype)                                                   \
    if (f->inputs == 1)                                                     \
        ((FG_KERNEL_1((*), dtype))kernel)(n, (fg_##dtype *)(void *)args[0], \
                                          (fg_##dtype *)(void *)args[1]);   \
    else                                                                    \
        ((FG_KERNEL_2((*), dtype))kernel)(n, (fg_##dtype *)(void *)args[0], \
                                          (fg_##dtype *)(void *)args[1],    \
                                          (fg_##dtype *)(void *)args[2])

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
    const size_t size = item_size(f);
    int direct = 1;
    for (int a = 0; a <= f->inputs; a++)
        direct &= strides[a] == (ptrdiff_t)size && (uintptr_t)args[a] % size == 0;
    if (direct) {
        call(f, f->kernel, size, n, args);
        return;
    }
    const size_t block = BLOCK_BYTES / size;
    double buffers[MOST_INPUTS + 1][BLOCK_BYTES / sizeof(double)];
    char *at[MOST_INPUTS + 1], *buffer[MOST_INPUTS + 1];
    for (int a = 0; a <= f->inputs; a++) {
        at[a] = args[a];
        buffer[a] = (char *)buffers[a];
    }
    while (n) {
        const size_t m = n < block ? n : block;
        for (int a = 0; a < f->inputs; a++)
            copy(size, m, at[a], strides[a], buffer[a], (ptrdiff_t)size);
        call(f, f->kernel, size, m, buffer);
        copy(size, m, buffer[f->inputs], (ptrdiff_t)size, at[f->inputs], strides[f->inputs]);
        for (int a = 0; a <= f->inputs; a++)
            at[a] += strides[a] * (ptrdiff_t)m;
        n -= m;
    }
}

void fastgelu_stream(const fastgelu_function *f, size_t n, char *const args[])
{
    const ptrdiff_t size = (ptrdiff_t)item_size(f), strides[] = {size, size, size};
    for (int a = 0; a <= f->inputs; a++)
        if ((uintptr_t)args[a] % (size_t)size != 0) {
            fastgelu_strided(f, n, args, strides);
            return;
        }
    call(f, f->stream, (size_t)size, n, args);
}
