/* SPDX-License-Identifier: BSD-3-Clause */
/* fused.c: the fused functions give the bits and raise the flags of their steps, one after the
 * other, wherever their operands lie: any length and alignment, in place, with strides, at guard
 * pages, past the caches. */
#define _DEFAULT_SOURCE
#include <fenv.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "control_bits.h"
#include "harness.h"

enum { SAMPLES = 6000, CANARY = 0xa5 };
static const int WATCHED = FE_INVALID | FE_OVERFLOW | FE_DIVBYZERO;

/* ---- the steps -------------------------------------------------------------- */

/* Numbers of any format as those that are computed with: float, or double for f64. */
typedef struct reals {
    int wide; /* double */
    float f32[SAMPLES];
    double f64[SAMPLES];
} reals;

static void read_reals(reals *r, const format *t, size_t n, const char *from)
{
    r->wide = t->size == 8;
    if (t->size == 4)
        memcpy(r->f32, from, n * sizeof *r->f32);
    else if (r->wide)
        memcpy(r->f64, from, n * sizeof *r->f64);
    else
        for (size_t i = 0; i < n; i++)
            r->f32[i] = (float)decode(t, get(t, from, i));
}

static void write_reals(const reals *r, const format *t, size_t n, char *to)
{
    if (t->size == 4)
        memcpy(to, r->f32, n * sizeof *r->f32);
    else if (r->wide)
        memcpy(to, r->f64, n * sizeof *r->f64);
    else
        for (size_t i = 0; i < n; i++) {
            const bits b = encode(t, (double)r->f32[i]);
            if (is_infinite(t, b) && !__builtin_isinf(r->f32[i]))
                feraiseexcept(FE_OVERFLOW);
            set(t, to, i, b);
        }
}

static void add(reals *r, const reals *a, const reals *b, size_t n)
{
    r->wide = a->wide;
    for (size_t i = 0; i < n; i++)
        if (r->wide)
            r->f64[i] = a->f64[i] + b->f64[i];
        else
            r->f32[i] = a->f32[i] + b->f32[i];
}

static void multiply(reals *r, const reals *a, const reals *b, size_t n)
{
    r->wide = a->wide;
    for (size_t i = 0; i < n; i++)
        if (r->wide)
            r->f64[i] = a->f64[i] * b->f64[i];
        else
            r->f32[i] = a->f32[i] * b->f32[i];
}

static const fastgelu_function *of_form(const fastgelu_function *f, const char *suffix,
                                        const char *dtype)
{
    char name[64];
    snprintf(name, sizeof name, "%s%s", f->form, suffix);
    const fastgelu_function *found = fastgelu_find_function(name, dtype);
    if (!found) {
        fprintf(stderr, "%s %s is not there\n", name, dtype);
        exit(2);
    }
    return found;
}

/* y = f(x) or, given p, f_backward(p, x) */
static void apply(reals *y, const fastgelu_function *f, const reals *p, const reals *x, size_t n)
{
    const fastgelu_function *g = of_form(f, p ? "_backward" : "", x->wide ? "f64" : "f32");
    y->wide = x->wide;
    if (x->wide)
        call(g, format_of(g), n, p ? p->f64 : NULL, x->f64, y->f64);
    else
        call(g, format_of(g), n, p ? p->f32 : NULL, x->f32, y->f32);
}

static void steps(const fastgelu_function *f, const format *t, size_t n, char *const args[])
{
    static reals in[3], value, product;
    for (int a = 0; a < f->inputs; a++)
        read_reals(&in[a], t, n, args[a]);
    if (f->inputs == 1) {
        const fastgelu_function *g = of_form(f, "", f->dtype),
                                *slope = of_form(f, "_grad", f->dtype);
        call(g, t, n, NULL, args[0], args[1]);
        call(slope, t, n, NULL, args[0], args[2]);
    } else if (strncmp(f->name, "bias_", 5) == 0) {
        add(&product, &in[f->inputs - 2], &in[f->inputs - 1], n);
        apply(&value, f, f->inputs == 3 ? &in[0] : NULL, &product, n);
        write_reals(&value, t, n, args[f->inputs]);
    } else if (f->inputs == 2) {
        apply(&value, f, NULL, &in[0], n);
        multiply(&value, &value, &in[1], n);
        write_reals(&value, t, n, args[2]);
    } else {
        apply(&value, f, NULL, &in[1], n);
        multiply(&value, &value, &in[0], n);
        write_reals(&value, t, n, args[4]);
        multiply(&product, &in[0], &in[2], n);
        apply(&value, f, &product, &in[1], n);
        write_reals(&value, t, n, args[3]);
    }
}

/* ---- samples and what is right for them -------------------------------------- */

static _Alignas(64) char sample[MOST_OPERANDS][SAMPLES * 8];

/* signalling: whether signalling NaN may stand among the inputs */
static void take_samples(const fastgelu_function *f, const format *t, int signalling)
{
    char *args[MOST_OPERANDS];
    const size_t specials = SAMPLES / 2, length = fused_sweep_length();
    for (int a = 0; a < MOST_OPERANDS; a++)
        args[a] = sample[a];
    for (size_t i = 0; i < SAMPLES; i++)
        for (int a = 0; a < f->inputs; a++) {
            bits b = fused_sweep(f, t, a, i < specials ? i : mix(i) % length);
            if (!signalling && is_signalling(t, b))
                b |= quiet_bit(t);
            set(t, sample[a], i, b);
        }
    /* finite as float, infinite as bfloat16: a product, the backward pass' product, a sum */
    const double rounds_up[][3] = {
        {1, 0x1.6ap64, 0x1.6ap63}, {0x1.6ap63, 0x1.6ap64, 1}, {1, 0x1.fep127, 0x1.8p119}};
    for (size_t i = 0; i < 3; i++)
        for (int a = 0; a < f->inputs; a++)
            set(t, sample[a], SAMPLES - 1 - i, encode(t, rounds_up[i][3 - f->inputs + a]));
    steps(f, t, SAMPLES, args);
}

/* ---- bits and flags ------------------------------------------------------------ */

static void test_steps(const fastgelu_function *f, const format *t)
{
    static _Alignas(64) char got[2][SAMPLES * 8];
    char *args[MOST_OPERANDS];
    take_samples(f, t, 1);
    for (int a = 0; a < f->inputs + f->outputs; a++)
        args[a] = a < f->inputs ? sample[a] : got[a - f->inputs];
    call_with(f, t, SAMPLES, args);
    for (int a = f->inputs; a < f->inputs + f->outputs; a++)
        for (size_t i = 0; i < SAMPLES; i++)
            expect(canonical(t, get(t, args[a], i)) == canonical(t, get(t, sample[a], i)),
                   "output %d of %#llx, %#llx, %#llx is %#llx, not %#llx", a - f->inputs,
                   (unsigned long long)get(t, sample[0], i),
                   (unsigned long long)get(t, sample[1], i),
                   (unsigned long long)get(t, sample[2], i), (unsigned long long)get(t, args[a], i),
                   (unsigned long long)get(t, sample[a], i));
}

static void test_flags(const fastgelu_function *f, const format *t)
{
    enum { TOGETHER = 61 };
    _Alignas(64) char in[3][TOGETHER * 8], out[2][TOGETHER * 8];
    char *args[MOST_OPERANDS], *one[MOST_OPERANDS];
    size_t quiet = 0, raising = 0;
    take_samples(f, t, 0);
    for (int a = 0; a < f->inputs + f->outputs; a++)
        args[a] = a < f->inputs ? in[a] : out[a - f->inputs];
    for (size_t i = 0; i < SAMPLES; i += 1 + THINNED / 4) {
        for (int a = 0; a < f->inputs + f->outputs; a++)
            one[a] = a < f->inputs ? sample[a] + i * t->size : args[a];
        for (int a = 0; a < f->inputs; a++)
            memcpy(in[a] + quiet * t->size, one[a], t->size);
        feclearexcept(FE_ALL_EXCEPT);
        steps(f, t, 1, one);
        const int want = fetestexcept(WATCHED);
        feclearexcept(FE_ALL_EXCEPT);
        call_with(f, t, 1, one);
        const int flags = fetestexcept(WATCHED);
        expect(flags == want, "%#llx, %#llx, %#llx: flags %#x, not %#x",
               (unsigned long long)get(t, one[0], 0), (unsigned long long)get(t, one[1], 0),
               (unsigned long long)get(t, one[2], 0), (unsigned)flags, (unsigned)want);
        raising += want != 0;
        quiet += want == 0;
        if (quiet == TOGETHER) {
            feclearexcept(FE_ALL_EXCEPT);
            call_with(f, t, quiet, args);
            expect(!fetestexcept(WATCHED), "%d elements raise something, but none alone",
                   (int)quiet);
            feraiseexcept(FE_ALL_EXCEPT);
            call_with(f, t, quiet, args);
            expect(fetestexcept(FE_ALL_EXCEPT) == FE_ALL_EXCEPT, "flags were cleared");
            quiet = 0;
        }
    }
    feclearexcept(FE_ALL_EXCEPT);
    expect(f->inputs == 1 || raising > (THINNED > 1 ? 0 : 10), "%d raised something", (int)raising);
}

static void test_control_bits(const fastgelu_function *f, const format *t)
{
    static _Alignas(64) char out[2][SAMPLES * 8];
    static const int modes[] = {FE_TONEAREST, FE_UPWARD, FE_DOWNWARD, FE_TOWARDZERO};
    char *args[MOST_OPERANDS];
    take_samples(f, t, 0);
    for (int a = 0; a < f->inputs + f->outputs; a++)
        args[a] = a < f->inputs ? sample[a] : out[a - f->inputs];
    for (int flush = 0; flush < 2; flush++)
        for (size_t m = 0; m < sizeof modes / sizeof modes[0]; m++) {
            fesetround(modes[m]);
            if (flush)
                flush_to_zero();
            const uint64_t set_up = control_bits();
            call_with(f, t, 700, args);
            const uint64_t left = control_bits();
            const int mode = fegetround();
            fesetenv(FE_DFL_ENV);
            expect(left == set_up && mode == modes[m], "control bits %#llx became %#llx",
                   (unsigned long long)set_up, (unsigned long long)left);
        }
}

/* ---- where operands lie --------------------------------------------------------- */

enum { ROOM = 1 << 16 };          /* a multiple of every page size */
static char *room[MOST_OPERANDS]; /* with pages that cannot be touched before and after */

static void make_rooms(void)
{
    for (int a = 0; a < MOST_OPERANDS; a++) {
        char *p = mmap(NULL, 3 * ROOM, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        if (p == MAP_FAILED || mprotect(p, ROOM, PROT_NONE) ||
            mprotect(p + 2 * ROOM, ROOM, PROT_NONE)) {
            perror("guard pages");
            exit(2);
        }
        room[a] = p + ROOM;
    }
}

/* Whether results are NaN whose payload may differ. */
static int same_number(const format *t, const char *a, const char *b)
{
    return canonical(t, get(t, a, 0)) == canonical(t, get(t, b, 0));
}

/* One call: n samples from `first` on; the arrays touch the end of their room, or its beginning, or
 * lie somewhere; outputs may be inputs. */
static void check_place(const fastgelu_function *f, const format *t, size_t n, uint64_t h,
                        int strided, int stream)
{
    static char before[ROOM];
    const int operands = f->inputs + f->outputs;
    const ptrdiff_t size = (ptrdiff_t)t->size;
    const size_t first = h % (SAMPLES - n + 1);
    char *args[MOST_OPERANDS];
    ptrdiff_t strides[MOST_OPERANDS];
    int shares[MOST_OPERANDS]; /* the input that an output is, or -1 */
    for (int a = 0; a < operands; a++) {
        const ptrdiff_t choices[] = {size, size, -size, 2 * size, size + 1, -24, -size - 3};
        h = mix(h);
        strides[a] = strided ? choices[h % 7] : size;
        const size_t reach = n ? (n - 1) * (size_t)labs((long)strides[a]) : 0;
        const size_t most = ROOM - reach - t->size, somewhere = h >> 8 & 1023;
        size_t low = h >> 4 & 1 ? 0 : most;
        if (h >> 5 & 1)
            low = strided ? somewhere : somewhere * t->size;
        if (!n)
            low = 0;
        args[a] = room[a] + low + (strides[a] < 0 ? reach : 0);
        shares[a] = -1;
    }
    for (int a = f->inputs; a < operands; a++) {
        h = mix(h);
        const int input = (int)(h % (uint64_t)(f->inputs + 1)) - 1;
        if (input < 0 || (a > f->inputs && shares[f->inputs] == input) || stream)
            continue;
        shares[a] = input;
        args[a] = args[input];
        strides[a] = strides[input];
    }
    for (int a = 0; a < operands; a++)
        memset(room[a], CANARY, ROOM);
    for (int a = 0; a < f->inputs; a++)
        for (size_t i = 0; i < n; i++)
            memcpy(args[a] + (ptrdiff_t)i * strides[a], sample[a] + (first + i) * t->size, t->size);
    if (strided)
        fastgelu_strided(f, n, args, strides);
    else if (stream)
        fastgelu_stream(f, n, args);
    else
        call_with(f, t, n, args);
    for (int a = 0; a < operands; a++) {
        int output = a;
        for (int b = f->inputs; b < operands; b++)
            if (shares[b] == a)
                output = b;
        if (a >= f->inputs && shares[a] >= 0)
            continue; /* seen as the input that it is */
        memset(before, CANARY, ROOM);
        for (size_t i = 0; i < n; i++) {
            char *at = args[a] + (ptrdiff_t)i * strides[a];
            const char *want = sample[output] + (first + i) * t->size;
            const int same = output < f->inputs || same_number(t, at, want);
            if (!expect(same, "n = %d, output %d%s: element %d is %#llx, not %#llx", (int)n,
                        output - f->inputs,
                        strided  ? ", strided"
                        : stream ? ", past caches"
                                 : "",
                        (int)i, (unsigned long long)get(t, at, 0),
                        (unsigned long long)get(t, want, 0)))
                return;
            memcpy(before + (at - room[a]), output < f->inputs ? want : at, t->size);
        }
        expect(memcmp(before, room[a], ROOM) == 0, "n = %d: other bytes of operand %d changed",
               (int)n, a);
    }
}

static void test_places(const fastgelu_function *f, const format *t)
{
    static const size_t longer[] = {255, 256, 257, 511, 512, 513, 1023, 1500, 2049};
    take_samples(f, t, 0);
    char *const nothing[MOST_OPERANDS] = {NULL, NULL, NULL, NULL, NULL};
    call_with(f, t, 0, nothing);
    fastgelu_stream(f, 0, nothing);
    for (size_t k = 0; k < 420; k += THINNED > 1 ? 7 : 1) {
        const size_t n = k < 220 ? k * 9 % 140 : longer[k % 9];
        for (int way = 0; way < 3; way++)
            check_place(f, t, n, mix(3 * k + (size_t)way), way == 1, way == 2);
    }
}

int main(void)
{
    make_rooms();
    on_every_fused("the bits of the steps", test_steps);
    on_every_fused("the flags of the steps", test_flags);
    on_every_fused("control bits kept", test_control_bits);
    on_every_fused("any place, in place, strides", test_places);
    return end_tests();
}
