/* SPDX-License-Identifier: BSD-3-Clause */
/* _workers.h: threads of our own, which help callers with pieces of their work. */
#ifndef FASTGELU_WORKERS_H
#define FASTGELU_WORKERS_H

#include "_threads.h"

/* Starts workers until there are so many. Returns how many there are: fewer where the system gives
 * no more. */
int fg_workers_start(int count);

/* All n elements of the work in pieces, which the caller and at most so many workers take one after
 * the other. The caller waits for nobody but a worker that has begun a piece. Workers compute under
 * the caller's floating-point control bits; returns the flags that they raise. wake: the work is
 * worth waking those that sleep. Not in a forked child, which has no workers. */
int fg_workers_run(ptrdiff_t n, ptrdiff_t piece, int helpers, int wake, fg_part *part,
                   const void *work);

#endif
