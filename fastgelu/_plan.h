/* SPDX-License-Identifier: BSD-3-Clause */
/* _plan.h: one call of a registered function on whole arrays, for callers that have no NumPy
 * iterator: code that Numba compiled. No Python object is touched, and no lock is needed. */
#ifndef FASTGELU_PLAN_H
#define FASTGELU_PLAN_H

#include <stddef.h>
#include <stdint.h>

#include "fastgelu.h"

enum { FG_PLAN_DIMENSIONS = 64, FG_PLAN_OPERANDS = 5 };

/* The operands of a call: the inputs, then the outputs. Strides are in bytes. */
typedef struct fg_operand {
    char *data;
    intptr_t dimensions;
    const intptr_t *shape, *strides;
} fg_operand;

/* The same as loops: as few as it takes, the (first) output's largest stride outermost. */
typedef struct fg_plan {
    const fastgelu_function *function;
    intptr_t elements;
    int dimensions;
    intptr_t shape[FG_PLAN_DIMENSIONS];
    char *data[FG_PLAN_OPERANDS];
    ptrdiff_t strides[FG_PLAN_DIMENSIONS][FG_PLAN_OPERANDS];
    void
        *copies[FG_PLAN_OPERANDS]; /* of inputs that the output would overwrite; rows that repeat */
    intptr_t row;      /* elements of one; 0: none, or not all other operands are one run */
    intptr_t at_once;  /* so many more of a row are in its copy */
    unsigned repeated; /* which operands: a bit each */
    int whole, past;   /* the last input alone: by a kernel for rows; results past the caches */
    unsigned loose;    /* rows are short, and taken together: which operands are not one run */
    int flags;         /* floating-point exceptions raised so far (fenv.h) */
} fg_plan;

enum { FG_PLAN_OK, FG_PLAN_SHAPES, FG_PLAN_MEMORY, FG_PLAN_UNKNOWN };

/* Makes a plan. Inputs are broadcast to the output's shape, which stays and is that of all outputs;
 * the dtype is that of the function for all. Outputs do not overlap. Not FG_PLAN_OK: the shapes do not fit, or there is no memory for a copy; then
 * nothing is left to free. */
int fg_plan_make(fg_plan *plan, const fastgelu_function *function, const fg_operand *operands);

/* Computes the elements from `first` up to `end`, not included, in the plan's order. Parts may run
 * at once. Exceptions are kept in the plan; the thread's own flags stay as they were. */
void fg_plan_run(fg_plan *plan, intptr_t first, intptr_t end);

void fg_plan_free(fg_plan *plan);

/* All of it for a function by name; the result is one of the above, FG_PLAN_UNKNOWN where there is
 * no such function. */
int fg_apply(const char *name, const char *dtype, const fg_operand *operands);

#endif
