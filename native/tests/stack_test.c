/* SPDX-License-Identifier: BSD-3-Clause */
/* stack_test.c: every function on a thread whose stack has 64 KiB, with nothing mapped below it;
 * the first call, which chooses the target, included. */
#define _DEFAULT_SOURCE
#include <limits.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "harness.h"

/* AArch64 allows no less than 128 KiB. */
#define STACK ((size_t)(PTHREAD_STACK_MIN > 64 * 1024 ? PTHREAD_STACK_MIN : 64 * 1024))

enum { MOST = 20 * 1024, N = 1000, PAINT = 0x5a };

static unsigned char *stack; /* and a page without access below it */

typedef struct task {
    const fastgelu_function *f; /* NULL: ask for the target */
    const format *t;
} task;

static _Alignas(64) unsigned char dy[N * 8], x[N * 8], y[N * 16], more[2][N * 16];

static void *run(void *argument)
{
    const task *k = argument;
    if (!k->f) {
        fastgelu_target();
        return NULL;
    }
    if (is_fused(k->f)) {
        char *all[] = {(char *)dy, (char *)x, (char *)y, (char *)more[0], (char *)more[1]};
        const ptrdiff_t element = (ptrdiff_t)k->t->size, apart = 2 * element;
        const ptrdiff_t spread[] = {element, 0, apart, apart, apart};
        call_with(k->f, k->t, N, all);
        fastgelu_strided(k->f, N, all, spread);
        return NULL;
    }
    call(k->f, k->t, N, dy, x, y);
    call(k->f, k->t, 1, dy, x, y);
    char *args[] = {(char *)dy, (char *)x, (char *)y};
    const ptrdiff_t size = (ptrdiff_t)k->t->size, strides[] = {size, 0, 2 * size};
    const int skip = k->f->inputs == 1;
    fastgelu_strided(k->f, N, args + skip, strides + skip);
    return NULL;
}

/* The bytes of the stack that the thread has touched. */
static size_t used_by(task k)
{
    pthread_t thread;
    pthread_attr_t attributes;
    size_t untouched = 0;
    memset(stack, PAINT, STACK);
    pthread_attr_init(&attributes);
    if (!expect(pthread_attr_setstack(&attributes, stack, STACK) == 0, "no such stack") ||
        !expect(pthread_create(&thread, &attributes, run, &k) == 0, "no thread"))
        return 0;
    pthread_join(thread, NULL);
    pthread_attr_destroy(&attributes);
    while (untouched < STACK && stack[untouched] == PAINT)
        untouched++;
    return STACK - untouched;
}

static size_t nothing; /* what a thread needs for itself */

static void test(const fastgelu_function *f, const format *t)
{
    for (size_t i = 0; i < N; i++) {
        set(t, dy, i, encode(t, 1));
        set(t, x, i, encode(t, (double)i / 16 - 40));
    }
    const task k = {f, t};
    const size_t used = used_by(k);
    expect(used > 0 && used < nothing + MOST, "%d bytes, %d of them the thread's own", (int)used,
           (int)nothing);
}

int main(void)
{
    const size_t page = (size_t)sysconf(_SC_PAGESIZE);
    const task ask = {NULL, NULL};
    unsigned char *memory =
        mmap(NULL, page + STACK, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (memory == MAP_FAILED || mprotect(memory, page, PROT_NONE)) {
        perror("stack_test: a guarded stack");
        return 2;
    }
    stack = memory + page;
    begin_group("the first call on a stack of %d KiB", (int)(STACK / 1024));
    begin_case("choosing the target");
    nothing = used_by(ask);
    expect(nothing > 0 && nothing < MOST, "%d bytes", (int)nothing);
    end_group();
    on_every_target("a small stack", 0, test);
    on_every_fused("a small stack, fused", test);
    return end_tests();
}
