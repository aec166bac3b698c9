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
 * take 15 % less with arrays of 4 MiB. In 16 bits 8 KiB take 15 % less than 32, with arrays of 8 MiB,
 * and as long with smaller ones. Whole vectors of every target. */
enum { MOST = 32 << 10, LEAST = 4 << 10, MOST_16 = 8 << 10, LARGE = 8 << 20 };
enum { LONGEST_ROW = 64 << 10, LINE = 64, PAGE = 4096 };

/* A bias added to rows is one loop within another, and each row a call of its own, most of which
 * begin in the middle of a cache line. Where everything else is one run of elements, rows are laid
 * one after the other in a copy, from which parts of any place are taken. */
static void repeat(fg_plan *plan)
{
    const fastgelu_function *f = plan->function;
    const int out = f->inputs, operands = operand_count(f);
    const intptr_t size = item_size(f), row = plan->dimensions == 2 ? plan->shape[1] : 0;
    const intptr_t most = size == 2 ? MOST_16 : MOST;
    intptr_t at_once = plan->elements * size > LARGE ? LEAST / size : most / size;
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

/* The last elements of a row cost a kernel as much as a few hundred others: so rows of fewer than
 * SHORT are taken together, TOGETHER bytes of each operand. */
enum { SHORT = 2048, TOGETHER = 4 << 10 };

/* The operands that are not one run of elements, if rows are short. */
static unsigned loose(const fg_plan *plan)
{
    const int operands = operand_count(plan->function);
    const intptr_t size = item_size(plan->function);
    unsigned found = 0;
    if (plan->dimensions < 2 || plan->shape[plan->dimensions - 1] >= SHORT)
        return 0;
    for (int o = 0; o < operands; o++) {
        intptr_t run = size;
        int apart = (uintptr_t)plan->data[o] % (uintptr_t)size != 0;
        for (int d = plan->dimensions - 1; d >= 0; d--) {
            apart |= plan->strides[d][o] != run;
            run *= plan->shape[d];
        }
        found |= (unsigned)apart << o;
    }
    return found;
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
    if (!plan->row) {
        plan->past = one_run_past(plan);
        plan->loose = loose(plan);
    }
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

/* Row after row of the elements in the plan's order. */
typedef struct fg_walk {
    intptr_t at;                        /* elements of the row that are done */
    intptr_t index[FG_PLAN_DIMENSIONS]; /* of the row */
    char *row[FG_PLAN_OPERANDS];        /* its first element */
} fg_walk;

static intptr_t row_length(const fg_plan *plan)
{
    return plan->dimensions ? plan->shape[plan->dimensions - 1] : 1;
}

static const ptrdiff_t *row_strides(const fg_plan *plan)
{
    return plan->strides[plan->dimensions ? plan->dimensions - 1 : 0];
}

static void begin(const fg_plan *plan, intptr_t first, fg_walk *walk)
{
    const int operands = operand_count(plan->function);
    intptr_t rest = first / row_length(plan);
    walk->at = first % row_length(plan);
    for (int o = 0; o < operands; o++)
        walk->row[o] = plan->data[o];
    for (int d = plan->dimensions - 2; d >= 0; d--) {
        walk->index[d] = rest % plan->shape[d];
        rest /= plan->shape[d];
        for (int o = 0; o < operands; o++)
            walk->row[o] += walk->index[d] * plan->strides[d][o];
    }
}

/* To where n elements of the row are done more: to the next row, if they are its last. */
static void advance(const fg_plan *plan, intptr_t n, fg_walk *walk)
{
    const int operands = operand_count(plan->function);
    walk->at += n;
    if (walk->at < row_length(plan))
        return;
    walk->at = 0;
    for (int d = plan->dimensions - 2; d >= 0; d--) {
        const int last = ++walk->index[d] == plan->shape[d];
        for (int o = 0; o < operands; o++)
            walk->row[o] += (last ? 1 - plan->shape[d] : 1) * plan->strides[d][o];
        if (!last)
            return;
        walk->index[d] = 0;
    }
}

/* How many of n elements are of the row that the walk is in. */
static intptr_t of_row(const fg_plan *plan, const fg_walk *walk, intptr_t n)
{
    const intptr_t left = row_length(plan) - walk->at;
    return left < n ? left : n;
}

/* One element n times. */
#define FG_FILL(type)                                                            \
    static void fill_##type(intptr_t n, const char *from, char *to)              \
    {                                                                            \
        type element;                                                            \
        memcpy(&element, from, sizeof element);                                  \
        for (intptr_t i = 0; i < n; i++)                                         \
            memcpy(to + i * (intptr_t)sizeof element, &element, sizeof element); \
    }
FG_FILL(uint16_t)
FG_FILL(uint32_t)
FG_FILL(uint64_t)

static void fill(intptr_t size, intptr_t n, const char *from, char *to)
{
    if (size == 2)
        fill_uint16_t(n, from, to);
    else if (size == 4)
        fill_uint32_t(n, from, to);
    else
        fill_uint64_t(n, from, to);
}

/* n elements of the operands `which`, one bit each, into buffers, or with `back` from there. */
static void carry(const fg_plan *plan, fg_walk *walk, intptr_t n, unsigned which,
                  char *const buffers[], int back)
{
    const fg_table *table = fg_current_table();
    const ptrdiff_t *strides = row_strides(plan);
    const int operands = operand_count(plan->function);
    const intptr_t size = item_size(plan->function);
    for (intptr_t m, done = 0; done < n; done += m) {
        m = of_row(plan, walk, n - done);
        for (int o = 0; o < operands; o++) {
            if (!(which >> o & 1))
                continue;
            char *there = walk->row[o] + walk->at * strides[o], *here = buffers[o] + done * size;
            if (strides[o] == size)
                memcpy(back ? there : here, back ? here : there, (size_t)(m * size));
            else if (back)
                table->spread((size_t)size, (size_t)m, here, there, strides[o]);
            else if (strides[o])
                table->pack((size_t)size, (size_t)m, there, strides[o], here);
            else
                fill(size, m, there, here);
        }
        advance(plan, m, walk);
    }
}

static void together(const fg_plan *plan, intptr_t first, intptr_t end)
{
    const fastgelu_function *f = plan->function;
    const int out = f->inputs, operands = operand_count(f);
    const ptrdiff_t size = item_size(f), packed[FG_PLAN_OPERANDS] = {size, size, size, size, size};
    const unsigned inputs = plan->loose & ((1u << out) - 1), outputs = plan->loose & ~inputs;
    double buffers[FG_PLAN_OPERANDS][TOGETHER / sizeof(double)];
    char *data[FG_PLAN_OPERANDS];
    fg_walk walk, before;
    begin(plan, first, &walk);
    for (intptr_t n; first < end; first += n) {
        n = end - first < TOGETHER / size ? end - first : TOGETHER / size;
        if (outputs)
            before = walk;
        for (int o = 0; o < operands; o++)
            data[o] = plan->loose >> o & 1 ? (char *)buffers[o] : plan->data[o] + first * size;
        carry(plan, &walk, n, inputs, data, 0);
        fastgelu_strided(f, (size_t)n, data, packed);
        if (outputs)
            carry(plan, &before, n, outputs, data, 1);
    }
}

static void rows(const fg_plan *plan, intptr_t first, intptr_t end)
{
    const int operands = operand_count(plan->function);
    fg_walk walk;
    if (first >= end)
        return; /* with no elements, there may be rows of none */
    if (plan->row) {
        parts(plan, first, end);
        return;
    }
    if (plan->loose) {
        together(plan, first, end);
        return;
    }
    begin(plan, first, &walk);
    for (intptr_t n; first < end; first += n) {
        char *data[FG_PLAN_OPERANDS];
        n = of_row(plan, &walk, end - first);
        for (int o = 0; o < operands; o++)
            data[o] = walk.row[o] + walk.at * row_strides(plan)[o];
        if (plan->past) {
            fastgelu_stream(plan->function, (size_t)n, data);
        } else if (n == 1) { /* strides mean nothing for one element */
            const ptrdiff_t size = item_size(plan->function);
            const ptrdiff_t packed[FG_PLAN_OPERANDS] = {size, size, size, size, size};
            fastgelu_strided(plan->function, 1, data, packed);
        } else {
            fastgelu_strided(plan->function, (size_t)n, data, row_strides(plan));
        }
        advance(plan, n, &walk);
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
