/* SPDX-License-Identifier: BSD-3-Clause */
/* workers.c: callers with all kinds of work at once, for fastgelu/_workers.c under a sanitizer, where
 * FG_ALONE is 0, so that callers always have workers; else workers that keep callers waiting. */
#include "_workers.h"

#include <fenv.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

enum { CALLERS = 12, CALLS = 2000, CLOSE_CALLS = 20000, HELPERS = 3, LARGEST = 5000 };

/* On the heap, and gone as soon as the caller has returned. */
typedef struct work {
    int rounding, helpers;
    ptrdiff_t n;
    volatile float large;
    atomic_int at_once;
    unsigned char *times;
} work;

static atomic_int wrong, helped;
static _Thread_local int a_caller;

static void fail(const char *what)
{
    if (!wrong++)
        fprintf(stderr, "%s\n", what);
}

static void part(const void *given, ptrdiff_t from, ptrdiff_t count)
{
    work *w = (work *)given;
    if (++w->at_once > w->helpers + 1)
        fail("more threads than asked for");
    if (fegetround() != w->rounding)
        fail("not the caller's rounding mode");
    for (ptrdiff_t i = from; i < from + count; i++)
        w->times[i]++;
    if (from + count == w->n) /* the piece that workers take first */
        w->large *= w->large; /* overflows */
    helped += !a_caller;
    w->at_once--;
}

static void call(unsigned *state)
{
    work *w = calloc(1, sizeof *w);
    const ptrdiff_t n = rand_r(state) % LARGEST + 1;
    const ptrdiff_t piece = rand_r(state) % 8 ? rand_r(state) % n + 1 : 1; /* 1: too many */
    w->times = calloc((size_t)n, 1);
    w->n = n;
    w->large = 3e38f;
    w->helpers = rand_r(state) % HELPERS + 1;
    w->rounding = rand_r(state) % 2 ? FE_UPWARD : FE_TONEAREST;
    fesetround(w->rounding);
    feclearexcept(FE_ALL_EXCEPT);
    const int raised = fg_workers_run(n, piece, w->helpers, rand_r(state) % 2, part, w);
    if (!((raised | fetestexcept(FE_ALL_EXCEPT)) & FE_OVERFLOW))
        fail("a flag was lost");
    for (ptrdiff_t i = 0; i < n; i++)
        if (w->times[i] != 1)
            fail("an element not once");
    free(w->times);
    free(w);
}

static void *caller(void *number)
{
    unsigned state = *(unsigned *)number;
    a_caller = 1;
    for (int i = 0; i < CALLS; i++)
        call(&state);
    return NULL;
}

static void briefly(const void *rounding, ptrdiff_t from, ptrdiff_t count)
{
    static atomic_int at_once;
    (void)from;
    (void)count;
    if (++at_once > 2)
        fail("more threads than asked for, from another call");
    if (fegetround() != *(const int *)rounding)
        fail("the rounding mode of another call");
    at_once--;
}

/* Calls that follow so closely that a worker may step from one into the next. */
static void *close_calls(void *nothing)
{
    for (int i = 0; i < CLOSE_CALLS; i++) {
        const int rounding = i % 2 ? FE_UPWARD : FE_TONEAREST;
        fesetround(rounding);
        fg_workers_run(8, 1, 1, 1, briefly, &rounding);
    }
    return nothing;
}

/* Workers are as if they had lost their CPU. */
static void held_up(const void *times, ptrdiff_t from, ptrdiff_t count)
{
    const struct timespec piece = {0, a_caller ? 20000 : 5000000};
    (void)from;
    (void)count;
    nanosleep(&piece, NULL);
    if (!a_caller)
        ++*(atomic_int *)times;
}

static int stress(void)
{
    pthread_t threads[CALLERS], another;
    unsigned numbers[CALLERS];
    for (unsigned i = 0; i < CALLERS; i++) {
        numbers[i] = i + 1;
        pthread_create(&threads[i], NULL, caller, &numbers[i]);
    }
    pthread_create(&another, NULL, close_calls, NULL);
    pthread_join(another, NULL);
    for (int i = 0; i < CALLERS; i++)
        pthread_join(threads[i], NULL);
    printf("%d calls, %d pieces by workers\n", CALLERS * CALLS, helped);
    return helped;
}

/* Calls until a worker has helped; whether one did within some time. */
static int helped_soon(atomic_int *times)
{
    const int before = *times;
    for (int i = 0; i < 20000 && *times == before; i++)
        fg_workers_run(8, 1, 1, 1, held_up, times);
    return *times != before;
}

static int waits(void)
{
    static atomic_int times;
    a_caller = 1;
    const int once = helped_soon(&times);
    for (int i = 0; i < 100; i++)
        fg_workers_run(8, 1, 1, 1, held_up, &times);
    if (times > 20)
        fail("work for workers that keep the caller waiting");
    return once && helped_soon(&times);
}

int main(void)
{
    if (fg_workers_start(1) != 1 || fg_workers_start(HELPERS) != HELPERS)
        fail("no workers");
    int found;
#ifdef FG_ALONE
    found = stress();
    (void)waits;
#else
    found = waits();
    (void)stress;
#endif
    return wrong || !found;
}
