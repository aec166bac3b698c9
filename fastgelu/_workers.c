/* SPDX-License-Identifier: BSD-3-Clause */
/* _workers.c: threads of our own, which help callers with pieces of their work. */
#if defined(_OPENMP) /* or nothing says how many threads there may be */

#if defined(__linux__) && !defined(_GNU_SOURCE)
#define _GNU_SOURCE /* a thread's CPU, and POSIX under -std=c11 */
#endif

#include "_workers.h"

#include <fenv.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdint.h>
#include <time.h>
#include <unistd.h>
#if defined(__APPLE__)
#include <dispatch/dispatch.h>
#else
#include <semaphore.h>
#endif

/* A worker looks for more work for so long after its last, and sleeps then: one that is awake begins
 * in less than a microsecond, one asleep in ten or more. Work that is not worth waking it does so
 * where it follows other work as closely, and so is likely to be one of many calls. */
enum { SPIN_NS = 100 * 1000 };

/* The caller looks so often whether the workers' last pieces are done, then as often leaves its CPU
 * to others between two looks, and then sleeps between them: the worker may wait for a disk. */
enum { LOOKS = 1000, SLEEP_NS = 50 * 1000 };

/* Where a piece takes longer than all that the caller has computed meanwhile, its worker has lost its
 * CPU to others, and is likely to again. Then callers compute alone until that has taken them so many
 * times as long as the wait. A wait of more than LONGEST_NS says no more: a process that was stopped
 * waits too. */
#ifndef FG_ALONE
#define FG_ALONE 16
#endif
enum { LONGEST_NS = 20 * 1000 * 1000 };

/* Pieces that have to be larger than asked for begin at multiples of so many elements, as others do. */
enum { WHOLE = 256 };

/* So many callers have workers at the same time. One more computes alone. */
enum { JOBS = 8 };

static int64_t now_ns(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (int64_t)t.tv_sec * 1000000000 + t.tv_nsec;
}

static void pause_cpu(void)
{
#if defined(__x86_64__) || defined(__i386__)
    __builtin_ia32_pause();
#elif defined(__aarch64__)
    __asm__ __volatile__("isb"); /* yield takes no time */
#endif
}

/* ---- jobs ------------------------------------------------------------------ */

/* Jobs lie here for ever, so that a worker that comes late reads no memory that is gone. Who wants a
 * piece changes `claims`: the job's generation, how many workers may still join, and the pieces
 * that are left, from the next to the end. A late worker finds none left, or another generation.
 * The rest is for who has a piece, and the caller waits for them. */
typedef struct fg_job {
    _Alignas(64) _Atomic uint64_t claims;
    _Alignas(64) atomic_int owned; /* by a caller */
    ptrdiff_t from, n, piece;
    fg_part *part;
    const void *work;
    fenv_t environment;           /* the caller's */
    _Alignas(64) atomic_int done; /* pieces, by workers */
    atomic_int raised;
} fg_job;

enum { PIECE_BITS = 12, MOST_PIECES = (1 << PIECE_BITS) - 1, MOST_HELPERS = 1023 };
#define FG_NEXT ((uint64_t)1)
#define FG_END (FG_NEXT << PIECE_BITS)
#define FG_JOINS (FG_END << PIECE_BITS)
#define FG_GENERATION (FG_JOINS * (MOST_HELPERS + 1))

static fg_job jobs[JOBS];

static int next_of(uint64_t claims)
{
    return (int)(claims & MOST_PIECES);
}

static int end_of(uint64_t claims)
{
    return (int)(claims / FG_END & MOST_PIECES);
}

/* Callers take the next piece and workers the last. In calls on the same memory most of it then
 * stays in the cache of one CPU. Both return -1 where nothing is left. */
static int next_piece(fg_job *job)
{
    uint64_t now = job->claims;
    do
        if (next_of(now) == end_of(now))
            return -1;
    while (!atomic_compare_exchange_weak(&job->claims, &now, now + FG_NEXT));
    return next_of(now);
}

/* The first of a generation joins the worker. */
static int last_piece(fg_job *job, uint64_t *generation)
{
    uint64_t now = job->claims, then;
    do {
        then = now - FG_END;
        if (next_of(now) == end_of(now))
            return -1;
        if (now / FG_GENERATION != *generation) {
            if (!(now / FG_JOINS & MOST_HELPERS))
                return -1;
            then -= FG_JOINS;
        }
    } while (!atomic_compare_exchange_weak(&job->claims, &now, then));
    *generation = now / FG_GENERATION;
    return end_of(now) - 1;
}

static void compute(const fg_job *job, int piece)
{
    const ptrdiff_t from = job->from + piece * job->piece, rest = job->n - from;
    job->part(job->work, from, rest < job->piece ? rest : job->piece);
}

/* ---- workers --------------------------------------------------------------- */

static atomic_uint posted;       /* jobs, ever */
static atomic_int awake, asleep; /* workers without work */
static atomic_int callers_cpu = -1;

/* Where those asleep wait. macOS has no such semaphores of POSIX; untested. */
#if defined(__APPLE__)
static dispatch_semaphore_t bed;
static int make_bed(void)
{
    bed = dispatch_semaphore_create(0);
    return !bed;
}
static void sleep_until_woken(void)
{
    dispatch_semaphore_wait(bed, DISPATCH_TIME_FOREVER);
}
static void wake_one(void)
{
    dispatch_semaphore_signal(bed);
}
#else
static sem_t bed;
static int make_bed(void)
{
    return sem_init(&bed, 0, 0);
}
static void sleep_until_woken(void)
{
    while (sem_wait(&bed) != 0) {
    }
}
static void wake_one(void)
{
    sem_post(&bed);
}
#endif

static int current_cpu(void)
{
#if defined(__linux__)
    return sched_getcpu();
#else
    return -1;
#endif
}

/* A worker may run where the process may, not only where the thread may that happens to start it; and
 * where others have said since. Some systems wake a thread on the CPU of who wakes it, and leave it
 * there while others are idle. There it is no help. */
#if defined(__linux__)
typedef struct fg_cpus {
    cpu_set_t allowed, set;
} fg_cpus;

static void begin_cpus(fg_cpus *cpus)
{
    CPU_ZERO(&cpus->set);
    if (sched_getaffinity(getpid(), sizeof cpus->allowed, &cpus->allowed) == 0 &&
        sched_setaffinity(0, sizeof cpus->allowed, &cpus->allowed) == 0)
        cpus->set = cpus->allowed;
}

static void leave_the_callers_cpu(fg_cpus *cpus)
{
    const int cpu = callers_cpu;
    cpu_set_t now;
    if (cpu < 0 || cpu >= CPU_SETSIZE || sched_getcpu() != cpu ||
        sched_getaffinity(0, sizeof now, &now) != 0)
        return;
    if (!CPU_EQUAL(&now, &cpus->set))
        cpus->allowed = now;
    cpus->set = cpus->allowed;
    CPU_CLR(cpu, &cpus->set);
    if (sched_setaffinity(0, sizeof cpus->set, &cpus->set) != 0)
        cpus->set = now; /* there are no others */
}
#else
typedef int fg_cpus;

static void begin_cpus(fg_cpus *cpus)
{
    *cpus = 0;
}

static void leave_the_callers_cpu(fg_cpus *cpus)
{
    (void)cpus;
}
#endif

/* Counts one of those asleep as awake, who has to be woken then. */
static int rouse(void)
{
    int before = asleep;
    while (before > 0)
        if (atomic_compare_exchange_weak(&asleep, &before, before - 1))
            return 1;
    return 0;
}

static int help(fg_job *job)
{
    uint64_t generation = 0, before = 0; /* which no job has */
    int piece;
    while ((piece = last_piece(job, &generation)) >= 0) {
        if (generation != before) {
            fesetenv(&job->environment); /* with flags that the caller has too */
            before = generation;
        }
        compute(job, piece);
        job->raised |= fetestexcept(FE_ALL_EXCEPT);
        job->done++; /* from here on the job is the caller's */
    }
    return before != 0;
}

static void *worker(void *nothing)
{
    int64_t until = 0;
    fg_cpus cpus;
    begin_cpus(&cpus);
    for (;;) {
        const unsigned seen = posted;
        int helped = 0;
        leave_the_callers_cpu(&cpus);
        for (int i = 0; i < JOBS; i++)
            helped |= help(&jobs[i]);
        if (helped)
            until = now_ns() + SPIN_NS;
        awake++;
        do
            for (int i = 0; i < 16 && posted == seen; i++)
                pause_cpu();
        while (posted == seen && now_ns() < until);
        awake--;
        if (posted != seen)
            continue;
        asleep++;
        /* a job posted before that has woken others only */
        if (posted == seen || !rouse())
            sleep_until_woken();
    }
    return nothing;
}

int fg_workers_start(int count)
{
    static atomic_int started, failed; /* once: for ever */
    static atomic_flag starting = ATOMIC_FLAG_INIT;
    static int prepared;
    if (started >= count || failed || atomic_flag_test_and_set(&starting))
        return started;
    static const int faults[] = {SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGTRAP, SIGSYS};
    sigset_t all, before;
    pthread_attr_t usual; /* a caller's priority is its own */
    const struct sched_param none = {0};
    if (!prepared)
        failed = make_bed();
    prepared = 1;
    sigfillset(&all); /* signals are for the program's own threads, but faults for who makes them */
    for (size_t i = 0; i < sizeof faults / sizeof *faults; i++)
        sigdelset(&all, faults[i]);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    pthread_attr_init(&usual);
    pthread_attr_setinheritsched(&usual, PTHREAD_EXPLICIT_SCHED);
    pthread_attr_setschedpolicy(&usual, SCHED_OTHER);
    pthread_attr_setschedparam(&usual, &none);
    while (!failed && started < count) {
        pthread_t thread;
        failed = pthread_create(&thread, &usual, worker, NULL);
        if (!failed) {
            pthread_detach(thread);
            started++;
        }
    }
    pthread_attr_destroy(&usual);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    atomic_flag_clear(&starting);
    return started;
}

/* ---- callers --------------------------------------------------------------- */

static _Atomic int64_t last_end, alone;

/* Computes from the first element on while callers are to be alone. Returns how far it came. */
static ptrdiff_t compute_alone(ptrdiff_t n, ptrdiff_t piece, fg_part *part, const void *work)
{
    ptrdiff_t from = 0;
    while (from < n && alone > 0) {
        const int64_t start = now_ns();
        const ptrdiff_t count = n - from < piece ? n - from : piece;
        part(work, from, count);
        from += count;
        alone -= now_ns() - start;
    }
    return from;
}

int fg_workers_run(ptrdiff_t n, ptrdiff_t piece, int helpers, int wake, fg_part *part,
                   const void *work)
{
    if (piece <= n / MOST_PIECES) {
        piece = n / MOST_PIECES + 1;
        if (piece > WHOLE)
            piece = (piece + WHOLE - 1) / WHOLE * WHOLE;
    }
    const ptrdiff_t from = compute_alone(n, piece, part, work);
    if (from == n)
        return 0;
    const int64_t start = now_ns();
    fg_job *job = jobs;
    while (job < jobs + JOBS && atomic_exchange(&job->owned, 1))
        job++;
    if (job == jobs + JOBS) {
        part(work, from, n - from);
        return 0;
    }
    const int pieces = (int)((n - from + piece - 1) / piece);
    job->from = from;
    job->n = n;
    job->piece = piece;
    job->part = part;
    job->work = work;
    fegetenv(&job->environment);
    job->done = job->raised = 0;
    uint64_t generation = job->claims / FG_GENERATION + 1;
    if (generation > UINT64_MAX / FG_GENERATION)
        generation = 1;
    job->claims =
        generation * FG_GENERATION + FG_JOINS * (unsigned)helpers + FG_END * (unsigned)pieces;
    callers_cpu = current_cpu();
    posted++;
    if (wake || start < last_end + SPIN_NS)
        for (int missing = helpers - awake; missing > 0 && rouse(); missing--)
            wake_one();
    int own = 0, mine;
    while ((mine = next_piece(job)) >= 0) {
        compute(job, mine);
        own++;
    }
    const int64_t computed = now_ns();
    for (int looks = 0; job->done != pieces - own; looks++) {
        const struct timespec sleep = {0, SLEEP_NS};
        if (looks < LOOKS)
            pause_cpu();
        else if (looks < 2 * LOOKS)
            sched_yield();
        else
            nanosleep(&sleep, NULL);
    }
    const int raised = job->raised;
    job->owned = 0;
    const int64_t end = now_ns(), waited = end - computed;
    if (waited > computed - start && waited > SPIN_NS)
        alone = FG_ALONE * (waited < LONGEST_NS ? waited : LONGEST_NS);
    last_end = end;
    return raised;
}

#endif
