/* SPDX-License-Identifier: BSD-3-Clause */
/* _threads.h: splits the work of an inner loop over threads, and decides over how many. */
#ifndef FASTGELU_THREADS_H
#define FASTGELU_THREADS_H

#include <stddef.h>

/* Computes count elements of some work from element `from` on. */
typedef void fg_part(const void *work, ptrdiff_t from, ptrdiff_t count);

/* All n elements of the work, whose outputs have so many bytes each: by the caller alone, or in
 * pieces by several threads at once. Workers compute under the caller's floating-point control
 * bits, and the flags that they raise are raised in the caller. */
void fg_split(ptrdiff_t n, ptrdiff_t size, fg_part *part, const void *work);

/* OpenMP's version as a number such as 201511, or 0: built without it. */
int fg_openmp(void);

/* Once, at import. forked: this process was forked, and has started no program since. */
void fg_threads_start(int forked);

/* Whether this process computes serially for ever, being a forked one. */
int fg_threads_forked(void);

/* The number of threads of the process; of_default: nobody asked for exactly that many. */
void fg_threads_set(int count, int of_default);

/* The number of threads that a call from this thread may use now. */
int fg_threads_get(void);

/* Work below two pieces of so many output bytes is not split; 0 changes nothing. Returns what was
 * set before. For tests and benchmarks. */
ptrdiff_t fg_threads_piece(ptrdiff_t bytes);

#endif
