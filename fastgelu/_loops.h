/* SPDX-License-Identifier: BSD-3-Clause */
/* _loops.h: the ufuncs' inner loops, between NumPy and libfastgelu. */
#ifndef FASTGELU_LOOPS_H
#define FASTGELU_LOOPS_H

#define PY_SSIZE_T_CLEAN
#include <Python.h>

#include <numpy/ndarraytypes.h>

#include "fastgelu.h"

/* NumPy's PyUFuncGenericFunction. data is the fastgelu_function to call. */
typedef void fg_loop(char **args, npy_intp const *dimensions, npy_intp const *steps, void *data);

/* float16, bfloat16, float32 and float64: data has the same dtype. */
fg_loop fg_float_loop;

/* Exceptions (fenv.h) that the next calls of fg_float_loop in this thread raise, whatever they
 * compute; 0 ends that. */
void fg_loops_raise(int flags);

/* bool and every integer, as float64: data has dtype "f64". */
typedef struct fg_integer_loop {
    int type; /* NumPy's type number */
    fg_loop *loop;
} fg_integer_loop;
extern const fg_integer_loop fg_integer_loops[];
extern const int fg_integer_loop_count;

/* Sets how many bytes an output must exceed to be written past the caches, unless 0; returns what
 * it was. At import it is the size of the last-level cache. */
npy_intp fg_stream_above(npy_intp bytes);

/* Whether so many inputs and outputs of so many bytes each are too much for the caches. */
int fg_streams(int inputs, int outputs, npy_intp bytes);

/* The compiler that built this file, such as "gcc 12.2.0". */
const char *fg_compiler(void);

#endif
