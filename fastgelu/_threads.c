/* SPDX-License-Identifier: BSD-3-Clause */
/* _threads.c: splits the work of an inner loop over threads, and decides over how many.
 *
 * The threads are our own (_workers.c). How many there may be is OpenMP's setting, which
 * OMP_NUM_THREADS, threadpoolctl and torch change, but its parallel regions are not used: they end only
 * when every thread of the team has arrived, and behind another library's threads that spin on the
 * CPUs that takes milliseconds (native/NOTES.md). Where the compiler has no OpenMP, everything is
 * computed by the caller. */
#include "_threads.h"
#include "_workers.h"

#ifdef _OPENMP

#include <fenv.h>
#include <omp.h>
#include <pthread.h>
#include <stdatomic.h>

/* A thread gets no less than this many bytes of output. From half of it on calls in close succession
 * gain (benchmarks/threads.py, sizes). */
static _Atomic ptrdiff_t piece_bytes = 64 << 10;

/* Work is handed out in so many pieces a thread, so that one that the system holds up leaves its
 * share to the others, and of so many bytes of output: the last is what the caller may have to wait
 * for. */
enum { SHARES = 8, LEAST_BYTES = 32 << 10, MOST_BYTES = 1 << 20 };

/* From here on it is worth the 10 to 20 µs that waking a worker can cost the caller. */
enum { WAKE_BYTES = 1 << 20 };

/* Pieces begin at multiples of this many elements: whole vectors, and whole cache lines of a
 * well aligned output. */
enum { WHOLE = 256 };

/* ---- fork ------------------------------------------------------------------ */

/* Threads do not survive a fork, and locks of OpenMP's runtime may be held by one that is gone. It
 * may be another library that uses it, so every forked child is serial. */
static volatile int forked;

static void in_child(void)
{
    forked = 1;
}

void fg_threads_start(int was_forked)
{
    static int started;
    if (was_forked)
        forked = 1;
    if (!started)
        pthread_atfork(NULL, NULL, in_child);
    started = 1;
}

int fg_threads_forked(void)
{
    return forked;
}

/* ---- how many threads ------------------------------------------------------ */

/* What was asked for. OpenMP's own setting, which belongs to each thread, is not replaced but
 * respected: threadpoolctl and torch.set_num_threads change it, and their limit is kept. A default
 * count never exceeds it. A count that was asked for may exceed it as long as nobody touches
 * it: it is what it was in this thread at the time of asking, or what it is in any new thread. */
static atomic_int wanted = -1; /* negative: a default */
static atomic_int generation;
static _Thread_local int seen_generation, seen_max, raised_to;

static void *ask_max(void *result)
{
    *(int *)result = omp_get_max_threads();
    return NULL;
}

/* OpenMP's setting in a new thread. */
static int initial_max(void)
{
    static atomic_int known;
    if (!known) {
        pthread_t thread;
        int result = 0;
        if (pthread_create(&thread, NULL, ask_max, &result) != 0)
            return omp_get_max_threads();
        pthread_join(thread, NULL);
        known = result;
    }
    return known;
}

void fg_threads_set(int count, int of_default)
{
    wanted = of_default ? -count : count;
    generation++;
    if (forked)
        return;
    if (raised_to && omp_get_max_threads() == raised_to)
        omp_set_num_threads(initial_max());
    raised_to = 0;
    /* More than OpenMP would take: its setting follows, or a later limit to what it was before
     * could not be told from no limit. */
    if (!of_default && count > initial_max() && omp_get_max_threads() == initial_max())
        omp_set_num_threads(raised_to = count);
    seen_max = omp_get_max_threads();
    seen_generation = generation;
}

int fg_threads_get(void)
{
    const int asked = wanted, of_default = asked < 0, count = of_default ? -asked : asked;
    if (forked || count == 1 || omp_in_parallel())
        return 1;
    const int max = omp_get_max_threads();
    if (max >= count)
        return count;
    if (of_default)
        return max;
    const int asked_here = seen_generation == generation;
    if (asked_here && max == seen_max)
        return count;
    return max == initial_max() && !(asked_here && raised_to) ? count : max;
}

/* ---- splitting ------------------------------------------------------------- */

/* Threads at work in split calls, those of all callers together. Concurrent callers share the
 * threads that were asked for; one that finds none left computes alone. */
static atomic_int busy;

static int take(int threads)
{
    int before = busy, taken;
    do {
        taken = threads > before ? threads - before : 1;
    } while (!atomic_compare_exchange_weak(&busy, &before, before + taken));
    return taken;
}

void fg_split(ptrdiff_t n, ptrdiff_t size, fg_part *part, const void *work)
{
    const ptrdiff_t least = piece_bytes < size ? 1 : piece_bytes / size;
    int threads = n >= 2 * least ? fg_threads_get() : 1;
    if (threads == 1) {
        part(work, 0, n);
        return;
    }
    if (threads > n / least)
        threads = (int)(n / least);
    const int taken = take(threads);
    int helpers = taken - 1;
    if (helpers) {
        const int workers = fg_workers_start(helpers);
        helpers = workers < helpers ? workers : helpers;
    }
    if (!helpers)
        part(work, 0, n);
    else {
        const ptrdiff_t most = MOST_BYTES / size;
        ptrdiff_t piece = n / taken / SHARES, fewest = LEAST_BYTES / size;
        fewest = least < fewest ? least : fewest;
        piece = piece < fewest ? fewest : piece > most ? most : piece;
        piece = (piece + WHOLE - 1) / WHOLE * WHOLE;
        const int wake = n * size >= WAKE_BYTES;
        int raised = fg_workers_run(n, piece, helpers, wake, part, work);
        raised &= ~fetestexcept(FE_ALL_EXCEPT); /* theirs begin as the caller's were */
        if (raised)
            feraiseexcept(raised);
    }
    busy -= taken;
}

ptrdiff_t fg_threads_piece(ptrdiff_t bytes)
{
    const ptrdiff_t before = piece_bytes;
    if (bytes > 0)
        piece_bytes = bytes;
    return before;
}

int fg_openmp(void)
{
    return _OPENMP;
}

#else

void fg_threads_start(int forked)
{
    (void)forked;
}

int fg_threads_forked(void)
{
    return 0; /* and no matter */
}

void fg_threads_set(int count, int of_default)
{
    (void)count;
    (void)of_default;
}

int fg_threads_get(void)
{
    return 1;
}

void fg_split(ptrdiff_t n, ptrdiff_t size, fg_part *part, const void *work)
{
    (void)size;
    part(work, 0, n);
}

ptrdiff_t fg_threads_piece(ptrdiff_t bytes)
{
    return bytes;
}

int fg_openmp(void)
{
    return 0;
}

#endif
