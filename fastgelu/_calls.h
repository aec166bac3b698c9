/* SPDX-License-Identifier: BSD-3-Clause */
/* _calls.h: calls of ufuncs on large arrays that broadcast, such as rows and a bias. */
#ifndef FASTGELU_CALLS_H
#define FASTGELU_CALLS_H

#include "_loops.h"

/* Has the calls of a ufunc go through fg_call first. types: NumPy's number for each of the
 * functions, one a dtype. Returns -1 with an exception set. */
int fg_calls_register(PyObject *ufunc, int count, const fastgelu_function *const *functions,
                      const int *types);

#endif
