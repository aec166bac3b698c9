/* SPDX-License-Identifier: BSD-3-Clause */
/* roof.c: what the machine can do, for threads.py: moving bytes with plain and with non-temporal
 * stores, and arithmetic that touches no memory, on some number of threads. */
#include <omp.h>
#include <stddef.h>
#include <stdint.h>

typedef float vec __attribute__((vector_size(64), aligned(64)));

static void store(vec *to, vec value, int past)
{
#if defined(__AVX512F__)
    if (past) {
        __asm__ volatile("vmovntps %1, %0" : "=m"(*to) : "v"(value));
        return;
    }
#elif defined(__clang__)
    if (past) {
        __builtin_nontemporal_store(value, to);
        return;
    }
#elif defined(__SSE__)
    if (past) {
        typedef float quarter __attribute__((vector_size(16)));
        for (int i = 0; i < 4; i++)
            __builtin_ia32_movntps((float *)to + 4 * i, ((quarter *)&value)[i]);
        return;
    }
#endif
    *to = value;
}

/* y = c * x, or y = dy * x where dy is not null; arrays aligned to 64 bytes, n a multiple of 16. */
void fg_roof_move(size_t n, const float *dy, const float *x, float *y, int threads, int past)
{
    const ptrdiff_t block = 1 << 18, blocks = ((ptrdiff_t)n + block - 1) / block;
#pragma omp parallel for num_threads(threads) schedule(dynamic)
    for (ptrdiff_t b = 0; b < blocks; b++) {
        const size_t begin = (size_t)(b * block);
        const size_t end = n - begin < (size_t)block ? n : begin + (size_t)block;
        for (size_t i = begin; i < end; i += 16) {
            const vec v = *(const vec *)(x + i);
            store((vec *)(y + i), dy ? v * *(const vec *)(dy + i) : v * 1.5f, past);
        }
#if defined(__SSE__)
        __builtin_ia32_sfence();
#endif
    }
}

/* count rounds of independent multiplications and additions in each thread. */
float fg_roof_compute(size_t count, int threads)
{
    float result = 0;
#pragma omp parallel num_threads(threads) reduction(+ : result)
    {
        vec a[10];
        for (int k = 0; k < 10; k++)
            a[k] = (vec){0} + (float)k;
        for (size_t i = 0; i < count; i++) {
            for (int k = 0; k < 10; k++)
                a[k] = a[k] * 0.999f + 0.5f;
            __asm__ volatile("" : : : "memory");
        }
        for (int k = 0; k < 10; k++)
            result += a[k][0];
    }
    return result;
}
