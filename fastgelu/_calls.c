/* SPDX-License-Identifier: BSD-3-Clause */
/* _calls.c: calls of ufuncs on large arrays that broadcast, such as rows and a bias.
 *
 * NumPy runs an inner loop for each row then, or copies the bias often enough for some thousand
 * elements (2.3 and newer: a quarter of the time of bias_silu); either is too short for several
 * threads. Such calls, where nothing but plain arrays is given, are planned here as a whole
 * (_plan.h) and split. Everything else goes on to NumPy: its way gives the same results. */
#include "_calls.h"

#include "_plan.h"
#include "_threads.h"

#define NO_IMPORT_UFUNC
#include <numpy/arrayobject.h>
#include <numpy/ufuncobject.h>

/* From so many elements on a plan is worth its making. */
enum { FEWEST = 1024 };

enum { MOST_UFUNCS = 512, MOST_DTYPES = 4, MOST_OPERANDS = FG_PLAN_OPERANDS };

/* What is registered. All ufuncs have the same function of NumPy's. */
static struct {
    PyObject *ufunc;
    int count;
    const fastgelu_function *functions[MOST_DTYPES];
    int types[MOST_DTYPES];
} known[MOST_UFUNCS];
static int known_count;
static vectorcallfunc numpys;

static const fastgelu_function *function_of(PyObject *ufunc, int type)
{
    for (int i = 0; i < known_count; i++)
        for (int k = 0; known[i].ufunc == ufunc && k < known[i].count; k++)
            if (known[i].types[k] == type)
                return known[i].functions[k];
    return NULL;
}

static int same_shape(PyArrayObject *a, PyArrayObject *b)
{
    return PyArray_NDIM(a) == PyArray_NDIM(b) &&
           PyArray_CompareLists(PyArray_DIMS(a), PyArray_DIMS(b), PyArray_NDIM(a));
}

static int broadcasts_to(PyArrayObject *a, PyArrayObject *whole)
{
    const int missing = PyArray_NDIM(whole) - PyArray_NDIM(a);
    for (int d = 0; missing >= 0 && d < PyArray_NDIM(a); d++)
        if (PyArray_DIM(a, d) != 1 && PyArray_DIM(a, d) != PyArray_DIM(whole, d + missing))
            return 0;
    return missing >= 0;
}

static int may_overlap(PyArrayObject *a, PyArrayObject *b) /* both contiguous */
{
    const char *first = PyArray_BYTES(a), *second = PyArray_BYTES(b);
    return first < second + PyArray_NBYTES(b) && second < first + PyArray_NBYTES(a);
}

/* The outputs given: positional or as out=. 0: not as plain arrays. */
static int given_outputs(int nin, int nout, PyObject *const *args, Py_ssize_t n, PyObject *kwnames,
                         PyObject **outputs)
{
    const Py_ssize_t keywords = kwnames ? PyTuple_GET_SIZE(kwnames) : 0;
    for (int i = 0; i < nout; i++)
        outputs[i] = NULL;
    if (n == nin + nout && !keywords) {
        for (int i = 0; i < nout; i++)
            outputs[i] = args[nin + i];
        return 1;
    }
    if (n != nin || keywords > 1)
        return 0;
    if (!keywords)
        return 1;
    if (PyUnicode_CompareWithASCIIString(PyTuple_GET_ITEM(kwnames, 0), "out") != 0)
        return 0;
    PyObject *out = args[n];
    if (PyTuple_CheckExact(out) && PyTuple_GET_SIZE(out) == nout) {
        for (int i = 0; i < nout; i++)
            outputs[i] = PyTuple_GET_ITEM(out, i);
        return 1;
    }
    outputs[0] = out;
    return nout == 1;
}

/* The function for a call that is to be made here; NULL: it is NumPy's. */
static const fastgelu_function *ours(PyObject *ufunc, int nin, int nout, PyObject *const *inputs,
                                     PyObject **outputs)
{
    PyArrayObject *whole = NULL;
    int broadcast = 0;
    for (int i = 0; i < nin; i++) {
        PyArrayObject *x = (PyArrayObject *)inputs[i];
        if (!PyArray_CheckExact(inputs[i]) || PyArray_ISBYTESWAPPED(x) ||
            PyArray_TYPE(x) != PyArray_TYPE((PyArrayObject *)inputs[0]))
            return NULL;
        if (!whole || PyArray_SIZE(x) > PyArray_SIZE(whole))
            whole = x;
    }
    if (PyArray_SIZE(whole) < FEWEST)
        return NULL;
    for (int i = 0; i < nin; i++) {
        PyArrayObject *x = (PyArrayObject *)inputs[i];
        if (!same_shape(x, whole))
            broadcast = 1;
        else if (!PyArray_IS_C_CONTIGUOUS(x))
            return NULL; /* NumPy may choose another order for a new array */
        if (!broadcasts_to(x, whole))
            return NULL;
    }
    for (int i = 0; i < nout; i++) {
        PyArrayObject *y = (PyArrayObject *)outputs[i];
        if (!y != !outputs[0])
            return NULL;
        if (!y)
            continue;
        if (!PyArray_CheckExact(outputs[i]) || PyArray_TYPE(y) != PyArray_TYPE(whole) ||
            !PyArray_ISCARRAY(y) || !same_shape(y, whole))
            return NULL;
        if (i && may_overlap(y, (PyArrayObject *)outputs[0]))
            return NULL;
    }
    return broadcast ? function_of(ufunc, PyArray_TYPE(whole)) : NULL;
}

static void part(const void *work, ptrdiff_t from, ptrdiff_t count)
{
    fg_plan_run(*(fg_plan *const *)work, from, from + count);
}

/* NumPy treats the exceptions as np.errstate says, in a call of its own. */
static int report(PyObject *ufunc, int nin, PyArray_Descr *dtype, int flags)
{
    PyObject *inputs[MOST_OPERANDS], *result = NULL;
    npy_intp one = 1;
    int made = 0;
    for (; made < nin; made++) {
        Py_INCREF(dtype);
        inputs[made] = PyArray_Zeros(1, &one, dtype, 0);
        if (!inputs[made])
            break;
    }
    if (made == nin) {
        fg_loops_raise(flags);
        result = numpys(ufunc, inputs, (size_t)nin, NULL);
        fg_loops_raise(0);
    }
    while (made)
        Py_DECREF(inputs[--made]);
    Py_XDECREF(result);
    return result ? 0 : -1;
}

static PyObject *run(PyObject *ufunc, const fastgelu_function *f, PyObject *const *inputs,
                     PyObject **outputs)
{
    const int nin = f->inputs, operands = nin + f->outputs;
    fg_operand given[MOST_OPERANDS];
    fg_plan plan, *work = &plan;
    PyArrayObject *whole = (PyArrayObject *)inputs[0];
    int code, failed = 0;
    for (int i = 1; i < nin; i++)
        if (PyArray_SIZE((PyArrayObject *)inputs[i]) > PyArray_SIZE(whole))
            whole = (PyArrayObject *)inputs[i];
    for (int i = 0; i < f->outputs; i++) {
        Py_XINCREF(outputs[i]);
        if (!outputs[i])
            outputs[i] = PyArray_NewLikeArray(whole, NPY_CORDER, NULL, 0);
        failed |= !outputs[i];
    }
    for (int o = 0; !failed && o < operands; o++) {
        PyArrayObject *a = (PyArrayObject *)(o < nin ? inputs[o] : outputs[o - nin]);
        given[o].data = PyArray_BYTES(a);
        given[o].dimensions = PyArray_NDIM(a);
        given[o].shape = PyArray_DIMS(a);
        given[o].strides = PyArray_STRIDES(a);
    }
    if (!failed) {
        Py_BEGIN_ALLOW_THREADS;
        code = fg_plan_make(&plan, f, given);
        if (code == FG_PLAN_OK) {
            fg_split(plan.elements, PyArray_ITEMSIZE(whole), part, &work);
            fg_plan_free(&plan);
        }
        Py_END_ALLOW_THREADS;
        if (code != FG_PLAN_OK)
            PyErr_NoMemory(); /* for copies; the shapes fit */
        failed = code != FG_PLAN_OK ||
                 (plan.flags && report(ufunc, nin, PyArray_DESCR(whole), plan.flags) < 0);
    }
    PyObject *result = NULL;
    if (!failed && f->outputs == 1)
        return outputs[0];
    if (!failed)
        result = PyTuple_Pack(2, outputs[0], outputs[1]);
    for (int i = 0; i < f->outputs; i++)
        Py_XDECREF(outputs[i]);
    return result;
}

#if defined(__GNUC__)
__attribute__((noinline)) /* or fg_call saves all that this needs saved */
#endif
static PyObject *large_call(PyObject *ufunc, PyObject *const *args, size_t nargsf,
                            PyObject *kwnames)
{
    const PyUFuncObject *u = (PyUFuncObject *)ufunc;
    PyObject *outputs[MOST_OPERANDS];
    const fastgelu_function *f = NULL;
    const Py_ssize_t n = PyVectorcall_NARGS(nargsf);
    if (given_outputs(u->nin, u->nout, args, n, kwnames, outputs))
        f = ours(ufunc, u->nin, u->nout, args, outputs);
    return f ? run(ufunc, f, args, outputs) : numpys(ufunc, args, nargsf, kwnames);
}

/* Most calls are of little, and get past here at once. */
static PyObject *fg_call(PyObject *ufunc, PyObject *const *args, size_t nargsf, PyObject *kwnames)
{
    const int nin = ((PyUFuncObject *)ufunc)->nin;
    for (int i = 0; i < nin && PyVectorcall_NARGS(nargsf) >= nin; i++) {
        npy_intp size = 1;
        if (PyArray_CheckExact(args[i]))
            for (int d = PyArray_NDIM((PyArrayObject *)args[i]); d--;)
                size *= PyArray_DIM((PyArrayObject *)args[i], d);
        if (size >= FEWEST)
            return large_call(ufunc, args, nargsf, kwnames);
    }
    return numpys(ufunc, args, nargsf, kwnames);
}

static int import_numpy(void)
{
    import_array1(-1);
    return 0;
}

int fg_calls_register(PyObject *ufunc, int count, const fastgelu_function *const *functions,
                      const int *types)
{
    PyUFuncObject *u = (PyUFuncObject *)ufunc;
    if (!numpys && import_numpy() < 0)
        return -1;
    if (known_count == MOST_UFUNCS || count > MOST_DTYPES) {
        PyErr_SetString(PyExc_SystemError, "more ufuncs or dtypes than _calls.c has room for");
        return -1;
    }
    known[known_count].ufunc = ufunc;
    known[known_count].count = count;
    for (int k = 0; k < count; k++) {
        known[known_count].functions[k] = functions[k];
        known[known_count].types[k] = types[k];
    }
    known_count++;
    numpys = u->vectorcall;
    u->vectorcall = fg_call;
    return 0;
}
