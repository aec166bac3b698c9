/* SPDX-License-Identifier: BSD-3-Clause */
/* _loops.c: the ufuncs' inner loops. Strides are libfastgelu's business; here
 * integers become float64, overlapping operands are taken apart, since
 * NumPy's loops work as if element by element and the kernels do not, and what
 * is large goes to several threads. */
#include "_loops.h"

#include "_threads.h"

#include <fenv.h>
#include <stdatomic.h>
#include <stdint.h>
#include <string.h>

enum { BLOCK = 256, MOST_INPUTS = 3, MOST_OPERANDS = 5 };

/* ---- staged: the inputs go block by block through buffers ----------------- */

/* Copies n elements, step bytes apart, to an array of the kernel's dtype. */
typedef void fg_fetch(npy_intp n, const char *from, npy_intp step, void *to);

#define FG_FETCH(name, from_type, to_type, convert)                                   \
    static void fetch_##name(npy_intp n, const char *from, npy_intp step, void *to)   \
    {                                                                                 \
        for (npy_intp i = 0; i < n; i++) {                                            \
            from_type given;                                                          \
            memcpy(&given, from + i * step, sizeof given);                            \
            const to_type wanted = convert(given);                                    \
            memcpy((char *)to + i * (npy_intp)sizeof wanted, &wanted, sizeof wanted); \
        }                                                                             \
    }

#define FG_SAME(x) (x)
#define FG_NUMBER(x) ((double)(x))
#define FG_TRUTH(x) ((double)((x) != 0)) /* a view of other data may hold any byte */

FG_FETCH(f16, npy_uint16, npy_uint16, FG_SAME)
FG_FETCH(f32, npy_uint32, npy_uint32, FG_SAME) /* as bits: a signalling NaN stays what it is */
FG_FETCH(f64, npy_uint64, npy_uint64, FG_SAME)

static void staged(const fastgelu_function *f, fg_fetch *fetch, npy_intp size, char *const *args,
                   npy_intp n, npy_intp const *steps)
{
    double buffers[MOST_INPUTS][BLOCK];
    char *at[MOST_OPERANDS];
    ptrdiff_t strides[MOST_OPERANDS];
    const int out = f->inputs, operands = out + f->outputs;
    for (int a = 0; a < out; a++) {
        at[a] = (char *)buffers[a];
        strides[a] = size;
    }
    for (int a = out; a < operands; a++)
        strides[a] = steps[a];
    for (npy_intp done = 0; done < n; done += BLOCK) {
        const npy_intp m = n - done < BLOCK ? n - done : BLOCK;
        for (int a = 0; a < out; a++)
            fetch(m, args[a] + done * steps[a], steps[a], buffers[a]);
        for (int a = out; a < operands; a++)
            at[a] = args[a] + done * steps[a];
        fastgelu_strided(f, (size_t)m, at, strides);
    }
}

/* ---- integers -------------------------------------------------------------- */

#define FG_INTEGERS(X)                   \
    X(BOOL, npy_bool, FG_TRUTH)          \
    X(BYTE, npy_byte, FG_NUMBER)         \
    X(UBYTE, npy_ubyte, FG_NUMBER)       \
    X(SHORT, npy_short, FG_NUMBER)       \
    X(USHORT, npy_ushort, FG_NUMBER)     \
    X(INT, npy_int, FG_NUMBER)           \
    X(UINT, npy_uint, FG_NUMBER)         \
    X(LONG, npy_long, FG_NUMBER)         \
    X(ULONG, npy_ulong, FG_NUMBER)       \
    X(LONGLONG, npy_longlong, FG_NUMBER) \
    X(ULONGLONG, npy_ulonglong, FG_NUMBER)

static void integers(const fastgelu_function *f, fg_fetch *fetch, npy_intp from_size, char **args,
                     npy_intp n, npy_intp const *steps);

#define FG_INTEGER_LOOP(TYPE, ctype, convert)                                               \
    FG_FETCH(TYPE, ctype, double, convert)                                                  \
    static void loop_##TYPE(char **args, npy_intp const *dimensions, npy_intp const *steps, \
                            void *data)                                                     \
    {                                                                                       \
        integers(data, fetch_##TYPE, sizeof(ctype), args, dimensions[0], steps);            \
    }
FG_INTEGERS(FG_INTEGER_LOOP)

#define FG_INTEGER_ENTRY(TYPE, ctype, convert) {NPY_##TYPE, loop_##TYPE},
const fg_integer_loop fg_integer_loops[] = {FG_INTEGERS(FG_INTEGER_ENTRY)};
const int fg_integer_loop_count = sizeof fg_integer_loops / sizeof fg_integer_loops[0];

/* ---- floats ---------------------------------------------------------------- */

/* How an input shares memory with an output. */
typedef enum fg_overlap {
    APART,    /* not at all, or element for element: any order will do */
    AHEAD,    /* every element is read before it is overwritten: blocks will do */
    ENTWINED, /* an element may be read after it was written, as in reduce and accumulate */
} fg_overlap;

static npy_intp gcd(npy_intp a, npy_intp b)
{
    while (b) {
        const npy_intp rest = a % b;
        a = b;
        b = rest;
    }
    return a < 0 ? -a : a;
}

static fg_overlap overlap(const char *input, npy_intp in_step, const char *output,
                          npy_intp out_step, npy_intp n, npy_intp size)
{
    const intptr_t in = (intptr_t)input, out = (intptr_t)output;
    const npy_intp in_span = (n - 1) * in_step, out_span = (n - 1) * out_step;
    if (in == out && in_step == out_step && (in_step >= size || in_step <= -size))
        return APART;
    if (in + (in_span > 0 ? in_span : 0) + size <= out + (out_span < 0 ? out_span : 0) ||
        out + (out_span > 0 ? out_span : 0) + size <= in + (in_span < 0 ? in_span : 0))
        return APART;
    /* Interleaved, as the columns of a table and the fields of a record are:
     * each on its own residues modulo the common step. */
    const npy_intp common = gcd(in_step, out_step);
    if (common) {
        const npy_intp phase = ((in - out) % common + common) % common;
        if (phase >= size && phase <= common - size)
            return APART;
    }
    if (in_step > 0 && in_step >= out_step && in >= out)
        return AHEAD;
    if (in_step < 0 && in_step <= out_step && in <= out)
        return AHEAD;
    return ENTWINED;
}

/* The worst of all inputs and outputs. What two outputs that overlap hold in the end is
 * unspecified, as in NumPy. */
static fg_overlap worst_overlap(const fastgelu_function *f, char *const *args, npy_intp n,
                                npy_intp const *steps, npy_intp size)
{
    fg_overlap worst = APART;
    for (int a = 0; a < f->inputs; a++)
        for (int out = f->inputs; out < f->inputs + f->outputs; out++) {
            const fg_overlap found = overlap(args[a], steps[a], args[out], steps[out], n, size);
            if (found > worst)
                worst = found;
        }
    return worst;
}

/* In bytes: the first digit of a dtype's name tells. */
static npy_intp item_size(const fastgelu_function *f)
{
    const char digit = f->dtype[0] == 'b' ? f->dtype[2] : f->dtype[1];
    return digit == '1' ? 2 : digit == '3' ? 4 : 8;
}

static void one_by_one(const fastgelu_function *f, npy_intp size, char *const *args, npy_intp n,
                       npy_intp const *steps)
{
    char *at[MOST_OPERANDS];
    const ptrdiff_t packed[MOST_OPERANDS] = {size, size, size, size, size};
    for (npy_intp i = 0; i < n; i++) {
        for (int a = 0; a < f->inputs + f->outputs; a++)
            at[a] = args[a] + i * steps[a];
        fastgelu_strided(f, 1, at, packed);
    }
}

/* ---- large: beyond the caches, and over several threads ------------------- */

/* Outputs of more bytes than this are written past the caches; and where more than one input takes
 * its share of the caches too, one of which that is true for all operands together, by a quarter
 * more. At 16 MiB each that is 27 % of swiglu's time, and one input or two outputs make no difference
 * (native/NOTES.md). */
static npy_intp stream_above = (npy_intp)32 << 20;

int fg_streams(int inputs, int outputs, npy_intp bytes)
{
    return bytes > stream_above ||
           (inputs > 1 && outputs == 1 && bytes / 4 * (inputs + 1) > stream_above / 16 * 5);
}

npy_intp fg_stream_above(npy_intp bytes)
{
    const npy_intp before = stream_above;
    if (bytes > 0)
        stream_above = bytes;
    return before;
}

typedef struct fg_work {
    const fastgelu_function *f;
    fg_fetch *fetch; /* NULL: as they lie */
    npy_intp size;   /* of an element of the output, and of what is fetched */
    char *const *args;
    npy_intp const *steps;
    int stream;
} fg_work;

static void part(const void *work, ptrdiff_t from, ptrdiff_t count)
{
    const fg_work *w = work;
    char *at[MOST_OPERANDS];
    for (int a = 0; a < w->f->inputs + w->f->outputs; a++)
        at[a] = w->args[a] + from * w->steps[a];
    if (w->fetch)
        staged(w->f, w->fetch, w->size, at, count, w->steps);
    else if (w->stream)
        fastgelu_stream(w->f, (size_t)count, at);
    else
        fastgelu_strided(w->f, (size_t)count, at, (const ptrdiff_t *)w->steps);
}

/* For inputs that are apart from the outputs. */
static void all_parts(const fastgelu_function *f, fg_fetch *fetch, npy_intp size, char *const *args,
                      npy_intp n, npy_intp const *steps)
{
    const int out = f->inputs, operands = out + f->outputs;
    fg_work work = {f, fetch, size, args, steps, 0};
    int apart = 1; /* the elements of each output */
    if (!fetch && fg_streams(f->inputs, f->outputs, n * size)) {
        work.stream = 1;
        for (int a = 0; a < operands; a++)
            work.stream &= steps[a] == size &&
                           (a >= out || (args[a] != args[out] && args[a] != args[operands - 1]));
    }
    for (int a = out; a < operands; a++)
        apart &= steps[a] >= size || steps[a] <= -size;
    if (apart)
        fg_split(n, size, part, &work);
    else
        part(&work, 0, n);
}

/* ---- the loops ------------------------------------------------------------- */

static void integers(const fastgelu_function *f, fg_fetch *fetch, npy_intp from_size, char **args,
                     npy_intp n, npy_intp const *steps)
{
    const npy_intp size = sizeof(double), larger = from_size > size ? from_size : size;
    if (worst_overlap(f, args, n, steps, larger) == APART)
        all_parts(f, fetch, size, args, n, steps);
    else
        staged(f, fetch, size, args, n, steps);
}

/* Threads that have something to raise: a look at what is a thread's own takes a call. */
static atomic_int raising;
static _Thread_local int to_raise;

void fg_loops_raise(int flags)
{
    raising += (flags != 0) - (to_raise != 0);
    to_raise = flags;
}

void fg_float_loop(char **args, npy_intp const *dimensions, npy_intp const *steps, void *data)
{
    const fastgelu_function *f = data;
    const npy_intp n = dimensions[0], size = item_size(f);
    const ptrdiff_t packed[MOST_OPERANDS] = {size, size, size, size, size};
    const fg_overlap worst = n > 1 ? worst_overlap(f, args, n, steps, size) : APART;
    if (n == 1)
        fastgelu_strided(f, 1, args, packed); /* steps mean nothing for one element */
    else if (worst == ENTWINED)
        one_by_one(f, size, args, n, steps);
    else if (worst == AHEAD)
        staged(f, size == 2 ? fetch_f16 : size == 4 ? fetch_f32 : fetch_f64, size, args, n, steps);
    else
        all_parts(f, NULL, size, args, n, steps);
    if (atomic_load_explicit(&raising, memory_order_relaxed) && to_raise)
        feraiseexcept(to_raise);
}

#define FG_STRING(x) #x
#define FG_VALUE(x) FG_STRING(x)

const char *fg_compiler(void)
{
#if defined(__clang__)
    return "clang " __clang_version__;
#elif defined(__GNUC__)
    return "gcc " __VERSION__;
#elif defined(_MSC_VER)
    return "msvc " FG_VALUE(_MSC_VER);
#else
    return "unknown";
#endif
}
