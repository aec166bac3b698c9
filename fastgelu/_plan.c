/* SPDX-License-Identifier: BSD-3-Clause */
/* _plan.c: one call of a registered function on whole arrays; see _plan.h. */
#include "_loops.h" /* Python.h, before every other header */

#include "_plan.h"

#include "internal.h"

#include <fenv.h>
#include <stdlib.h>
#include <string.h>

/* In bytes; the name of a dtype ends in its width in bits. */
static intptr_t item_size(const fastgelu_function *f)
{
    const char *digits = f->dtype;
    while (*digits > '9')
        digits++;
    return atoi(digits) / 8;
}

static int operand_count(const fastgelu_function *f)
{
    return f->inputs + f->outputs;
}

static intptr_t count(const fg_operand *operand)
{
    intptr_t n = 1;
    for (intptr_t d = 0; d < operand->dimensions; d++)
        n *= operand->shape[d];
    return n;
}

/* ---- overlap ---------------------------------------------------------------- */

/* The first byte of an operand, and the one after its last. */
static void bounds(const fg_operand *operand, intptr_t size, intptr_t *low, intptr_t *high)
{
    *low = *high = (intptr_t)operand->data;
    for (intptr_t d = 0; d < operand->dimensions; d++) {
        const intptr_t span = (operand->shape[d] - 1) * operand->strides[d];
        *(span < 0 ? low : high) += span;
    }
    *high += size;
}

static int same_elements(const fg_operand *a, const fg_operand *b)
{
    if (a->data != b->data || a->dimensions != b->dimensions)
        return 0;
    for (intptr_t d = 0; d < a->dimensions; d++)
        if (a->shape[d] != b->shape[d] || (a->strides[d] != b->strides[d] && a->shape[d] > 1))
            return 0;
    return 1;
}

/* Whether writing an element of the output may change one of the input that is read later.
 * Operands that only mesh, as two columns of one table, count too. */
static int entwined(const fg_operand *input, const fg_operand *output, intptr_t size)
{
    intptr_t low, high, out_low, out_high;
    if (same_elements(input, output))
        return 0;
    bounds(input, size, &low, &high);
    bounds(output, size, &out_low, &out_high);
    return low < out_high && out_low < high;
}

/* An input's elements one after the other, in C order, and their strides. NULL: no memory. */
static char *copied(const fg_operand *input, intptr_t size, intptr_t *strides)
{
    const intptr_t n = count(input);
    char *copy = malloc((size_t)(n * size)), *to = copy;
    intptr_t index[FG_PLAN_DIMENSIONS] = {0};
    intptr_t step = size;
    if (!copy)
        return NULL;
    for (intptr_t d = input->dimensions - 1; d >= 0; d--) {
        strides[d] = step;
        step *= input->shape[d];
    }
    for (intptr_t i = 0; i < n; i++, to += size) {
        const char *from = input->data;
        for (intptr_t d = 0; d < input->dimensions; d++)
            from += index[d] * input->strides[d];
        memcpy(to, from, (size_t)size);
        for (intptr_t d = input->dimensions - 1; d >= 0 && ++index[d] == input->shape[d]; d--)
            index[d] = 0;
    }
    return copy;
}

/* ---- making ------------------------------------------------------------------ */

static intptr_t magnitude(intptr_t a)
{
    return a < 0 ? -a : a;
}

static void swap_dimensions(fg_plan *plan, int a, int b)
{
    const intptr_t extent = plan->shape[a];
    plan->shape[a] = plan->shape[b];
    plan->shape[b] = extent;
    for (int o = 0; o < FG_PLAN_OPERANDS; o++) {
        const ptrdiff_t stride = plan->strides[a][o];
        plan->strides[a][o] = plan->strides[b][o];
        plan->strides[b][o] = stride;
    }
}

/* Drops dimensions of one element, puts the output's largest stride first, and joins dimensions
 * that are one run of elements for every operand. */
static void simplify(fg_plan *plan)
{
    const int out = plan->function->inputs, operands = operand_count(plan->function);
    int kept = 0;
    for (int d = 0; d < plan->dimensions; d++)
        if (plan->shape[d] != 1)
            swap_dimensions(plan, kept++, d);
    for (int i = 1; i < kept; i++)
        for (int d = i;
             d > 0 && magnitude(plan->strides[d - 1][out]) < magnitude(plan->strides[d][out]); d--)
            swap_dimensions(plan, d - 1, d);
    int last = 0;
    for (int d = 1; d < kept; d++) {
        int joined = 1;
        for (int o = 0; o < operands; o++)
            joined &= plan->strides[last][o] == plan->strides[d][o] * plan->shape[d];
        if (joined)
            plan->shape[d] *= plan->shape[last];
        else
            last++;
        swap_dimensions(plan, last, d);
    }
    plan->dimensions = kept ? last + 1 : 0;
}

/* ---- rows that repeat --------------------------------------------------------- */

/* So many bytes of each operand are computed at once then: a call of a kernel has its price, elements
 * that are far above all. But where arrays run through the first-level cache from memory, what the
 * copy takes of it must be little: 8 KiB take 40 % longer than 4 with arrays of 16 MiB, and 32 KiB
 * take 15 % less with arrays of 4 MiB. Whole vectors of every target. */
enum { MOST = 32 << 10, LEAST = 4 << 10, LARGE = 8 << 20 };
enum { LONGEST_ROW = 64 << 10, LINE = 64, PAGE = 4096 };

/* A bias added to rows is one loop within another, and each row a call of its own, most of which
 * begin in the middle of a cache line. Where everything else is one run of elements, rows are laid
 * one after the other in a copy, from which parts of any place are taken. */
static void repeat(fg_plan *plan)
{
    const fastgelu_function *f = plan->function;
    const int out = f->inputs, operands = operand_count(f);
    const intptr_t size = item_size(f), row = plan->dimensions == 2 ? plan->shape[1] : 0;
    intptr_t at_once = plan->elements * size > LARGE ? LEAST / size : MOST / size;
    unsigned repeated = 0;
    while (plan->elements < 4 * (row + at_once) && at_once > LEAST / size)
        at_once /= 2;
    intptr_t length = row + at_once;
    if (row < 2 || row * size > LONGEST_ROW || plan->elements < 4 * length)
        return;
    for (int o = 0; o < operands; o++) {
        const ptrdiff_t *outer = plan->strides[0], *inner = plan->strides[1];
        if (inner[o] != size || (uintptr_t)plan->data[o] % (uintptr_t)size)
            return;
        if (o < out && outer[o] == 0)
            repeated |= 1u << o;
        else if (outer[o] != row * size)
            return;
    }
    /* The last input alone: there are kernels for rows, which need little behind one. */
    plan->whole =
        repeated == 1u << (out - 1) && f->form && row >= FG_SHORTEST_ROW && fg_has_rows(f);
    if (plan->whole)
        length = row + LEAST / size;
    for (int o = 0; o < out; o++)
        if (repeated >> o & 1) {
            /* half a page from the output, modulo pages: loads beside stores at the same place of
             * another page wait for these */
            char *memory = malloc((size_t)(length * size + PAGE)), *copy = memory;
            if (!memory) {
                plan->whole = 0;
                return; /* what was copied serves as one row */
            }
            copy += ((uintptr_t)plan->data[out] + PAGE / 2 - (uintptr_t)memory) % PAGE;
            for (intptr_t i = 0; i < length; i += row) {
                const intptr_t n = length - i < row ? length - i : row;
                memcpy(copy + i * size, plan->data[o], (size_t)(n * size));
            }
            free(plan->copies[o]);
            plan->copies[o] = memory;
            plan->data[o] = copy;
        }
    plan->past = plan->whole && out > 2 && operands == out + 1 &&
                 plan->data[out] != plan->data[0] && plan->data[out] != plan->data[1] &&
                 fg_streams(f->inputs - 1, f->outputs, plan->elements * size);
    plan->row = row;
    plan->at_once = at_once;
    plan->repeated = repeated;
}

/* Whether the plan is one run of elements whose results go past the caches. */
static int one_run_past(const fg_plan *plan)
{
    const fastgelu_function *f = plan->function;
    const int out = f->inputs, operands = operand_count(f);
    const intptr_t size = item_size(f);
    if (plan->dimensions != 1 || !fg_streams(f->inputs, f->outputs, plan->elements * size))
        return 0;
    for (int o = 0; o < operands; o++) {
        if (plan->strides[0][o] != size || (uintptr_t)plan->data[o] % (uintptr_t)size)
            return 0;
        for (int to = out; o < out && to < operands; to++)
            if (plan->data[o] == plan->data[to])
                return 0;
    }
    return 1;
}

static void parts(const fg_plan *plan, intptr_t first, intptr_t end)
{
    const fastgelu_function *f = plan->function;
    const ptrdiff_t size = item_size(f), packed[FG_PLAN_OPERANDS] = {size, size, size, size, size};
    const uintptr_t to = (uintptr_t)(plan->data[f->inputs] + first * size);
    intptr_t n = (intptr_t)((LINE - to % LINE) % LINE) / size; /* from then on by cache lines */
    if (plan->whole) {
        const int out = f->inputs, x = out - 2;
        const fg_rows rows = {(size_t)(end - first),
                              (size_t)plan->row,
                              (size_t)(first % plan->row),
                              plan->data[x] + first * size,
                              plan->data[out - 1],
                              out > 2 ? plan->data[0] + first * size : NULL,
                              plan->data[out] + first * size,
                              f->outputs > 1 ? plan->data[out + 1] + first * size : NULL,
                              plan->past};
        fg_run_rows(f, &rows);
        return;
    }
    for (; first < end; first += n, n = 0) {
        char *data[FG_PLAN_OPERANDS];
        if (n == 0)
            n = plan->at_once;
        if (n > end - first)
            n = end - first;
        for (int o = 0; o < operand_count(f); o++)
            data[o] = plan->data[o] + (plan->repeated >> o & 1 ? first % plan->row : first) * size;
        fastgelu_strided(f, (size_t)n, data, packed);
    }
}

int fg_plan_make(fg_plan *plan, const fastgelu_function *function, const fg_operand *operands)
{
    const int out = function->inputs, count_of_operands = operand_count(function);
    const intptr_t size = item_size(function), dimensions = operands[out].dimensions;
    memset(plan, 0, sizeof *plan);
    plan->function = function;
    plan->dimensions = (int)dimensions;
    plan->elements = count(&operands[out]);
    if (dimensions > FG_PLAN_DIMENSIONS)
        return FG_PLAN_SHAPES;
    for (int o = 0; o < count_of_operands; o++) {
        const fg_operand *operand = &operands[o];
        const intptr_t *strides = operand->strides;
        const intptr_t missing = dimensions - operand->dimensions;
        intptr_t copy_strides[FG_PLAN_DIMENSIONS];
        for (intptr_t d = 0; d < operand->dimensions; d++)
            if (missing < 0 ||
                (operand->shape[d] != operands[out].shape[d + missing] && operand->shape[d] != 1)) {
                fg_plan_free(plan);
                return FG_PLAN_SHAPES;
            }
        plan->data[o] = operand->data;
        int copy = 0;
        for (int other = out; plan->elements && o < out && other < count_of_operands; other++)
            copy |= entwined(operand, &operands[other], size);
        if (copy) {
            plan->copies[o] = plan->data[o] = copied(operand, size, copy_strides);
            strides = copy_strides;
            if (!plan->copies[o]) {
                fg_plan_free(plan);
                return FG_PLAN_MEMORY;
            }
        }
        for (intptr_t d = 0; d < operand->dimensions; d++)
            plan->strides[d + missing][o] = operand->shape[d] == 1 ? 0 : strides[d];
    }
    for (intptr_t d = 0; d < dimensions; d++)
        plan->shape[d] = operands[out].shape[d];
    simplify(plan);
    repeat(plan);
    if (!plan->row)
        plan->past = one_run_past(plan);
    return FG_PLAN_OK;
}

void fg_plan_free(fg_plan *plan)
{
    for (int o = 0; o < FG_PLAN_OPERANDS; o++) {
        free(plan->copies[o]);
        plan->copies[o] = NULL;
    }
}

/* ---- running ------------------------------------------------------------------ */

static void rows(const fg_plan *plan, intptr_t first, intptr_t end)
{
    if (plan->row) {
        parts(plan, first, end);
        return;
    }
    const int inner = plan->dimensions - 1, operands = operand_count(plan->function);
    const intptr_t length = inner < 0 ? 1 : plan->shape[inner];
    const ptrdiff_t *strides = plan->strides[inner < 0 ? 0 : inner];
    while (first < end) {
        intptr_t rest = first / length;
        const intptr_t at = first % length;
        const intptr_t n = length - at < end - first ? length - at : end - first;
        char *data[FG_PLAN_OPERANDS];
        for (int o = 0; o < operands; o++)
            data[o] = plan->data[o] + at * strides[o];
        for (int d = inner - 1; d >= 0; d--) {
            const intptr_t index = rest % plan->shape[d];
            rest /= plan->shape[d];
            for (int o = 0; o < operands; o++)
                data[o] += index * plan->strides[d][o];
        }
        if (plan->past) {
            fastgelu_stream(plan->function, (size_t)n, data);
        } else if (n == 1) { /* strides mean nothing for one element */
            const ptrdiff_t size = item_size(plan->function);
            const ptrdiff_t packed[FG_PLAN_OPERANDS] = {size, size, size, size, size};
            fastgelu_strided(plan->function, 1, data, packed);
        } else {
            fastgelu_strided(plan->function, (size_t)n, data, strides);
        }
        first += n;
    }
}

static void keep_flags(fg_plan *plan, int raised)
{
#if defined(__GNUC__)
    __atomic_fetch_or(&plan->flags, raised, __ATOMIC_RELAXED);
#else
    plan->flags |= raised; /* bits set at once by another thread may be lost */
#endif
}

void fg_plan_run(fg_plan *plan, intptr_t first, intptr_t end)
{
    fenv_t environment;
    feholdexcept(&environment);
    rows(plan, first, end);
    const int raised = fetestexcept(FE_DIVBYZERO | FE_INVALID | FE_OVERFLOW);
    fesetenv(&environment);
    if (raised)
        keep_flags(plan, raised);
}

int fg_apply(const char *name, const char *dtype, const fg_operand *operands)
{
    const fastgelu_function *f;
    fg_plan plan;
    for (size_t i = 0; (f = fastgelu_function_at(i)) != NULL; i++)
        if (strcmp(f->name, name) == 0 && strcmp(f->dtype, dtype) == 0)
            break;
    if (!f)
        return FG_PLAN_UNKNOWN;
    const int code = fg_plan_make(&plan, f, operands);
    if (code == FG_PLAN_OK) {
        rows(&plan, 0, plan.elements);
        fg_plan_free(&plan);
    }
    return code;
}
