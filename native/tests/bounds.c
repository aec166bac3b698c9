/* SPDX-License-Identifier: BSD-3-Clause */
/* bounds.c: exactly the elements named are read and written: arrays that end, or begin, at
 * a page without access, read-only inputs, canaries around outputs; every alignment of the
 * elements, in place and not, with and without strides, and with stores past the caches. */
#define _DEFAULT_SOURCE
#include <setjmp.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "harness.h"

#if defined(__has_feature)
#if __has_feature(address_sanitizer)
#define WITH_ADDRESS_SANITIZER 1
#endif
#elif defined(__SANITIZE_ADDRESS__)
#define WITH_ADDRESS_SANITIZER 1
#endif
#ifdef WITH_ADDRESS_SANITIZER
#include <sanitizer/asan_interface.h>
#else
#define ASAN_POISON_MEMORY_REGION(p, n) ((void)(p), (void)(n))
#define ASAN_UNPOISON_MEMORY_REGION(p, n) ((void)(p), (void)(n))
#endif

enum { LONGEST = 130, CANARY = 0xa5 }; /* so many steps of 24 bytes fit in a page */

/* ---- memory with nothing before and nothing after it --------------------- */

static size_t page;

static unsigned char *guarded_page(void)
{
    unsigned char *p =
        mmap(NULL, 3 * page, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (p == MAP_FAILED || mprotect(p, page, PROT_NONE) ||
        mprotect(p + 2 * page, page, PROT_NONE)) {
        perror("guard pages");
        exit(2);
    }
    return p + page;
}

/* The inputs, the output, and a copy of the first input to work on in place. */
static unsigned char *dy_page, *x_page, *y_page;

/* ---- catching a wrong access --------------------------------------------- */

static sigjmp_buf back;
static void *volatile fault_address;

static void on_fault(int signal_number, siginfo_t *info, void *context)
{
    (void)signal_number;
    (void)context;
    fault_address = info->si_addr;
    siglongjmp(back, 1);
}

static void catch_faults(void)
{
    struct sigaction action;
    memset(&action, 0, sizeof action);
    action.sa_sigaction = on_fault;
    action.sa_flags = SA_SIGINFO;
    sigaction(SIGSEGV, &action, NULL);
    sigaction(SIGBUS, &action, NULL);
}

/* Where the fault was: "-4 from x". */
static const char *place_of_fault(void)
{
    static char text[64];
    const unsigned char *pages[] = {dy_page, x_page, y_page};
    static const char *const names[] = {"dy", "x", "y"};
    const unsigned char *p = fault_address;
    snprintf(text, sizeof text, "elsewhere");
    for (int i = 0; i < 3; i++)
        if (p >= pages[i] - page && p < pages[i] + 2 * page)
            snprintf(text, sizeof text, "at byte %ld of the %ld of %s", (long)(p - pages[i]),
                     (long)page, names[i]);
    return text;
}

/* ---- one call -------------------------------------------------------------- */

typedef struct span {
    unsigned char *page;
    size_t offset;
    ptrdiff_t stride; /* from the first element, at offset; either sign */
} span;

static unsigned char *element(span s, size_t i)
{
    return s.page + s.offset + (ptrdiff_t)i * s.stride;
}

/* The bytes from the lowest element to the end of the highest. */
static void extent(const format *t, span s, size_t n, size_t *begin, size_t *end)
{
    const size_t first = s.offset, last = (size_t)(element(s, n ? n - 1 : 0) - s.page);
    *begin = first < last ? first : last;
    *end = (first < last ? last : first) + (n ? t->size : 0);
}

static void poison_outside(const format *t, span s, size_t n, int poison)
{
    size_t begin, end;
    extent(t, s, n, &begin, &end);
    if (poison) {
        ASAN_POISON_MEMORY_REGION(s.page, begin);
        ASAN_POISON_MEMORY_REGION(s.page + end, page - end);
    } else {
        ASAN_UNPOISON_MEMORY_REGION(s.page, page);
    }
}

typedef enum way { CONTIGUOUS, STRIDED, STREAM } way;

static void run_kernel(const fastgelu_function *f, const format *t, size_t n, span dy, span x,
                       span y, way how)
{
    char *args[3] = {(char *)element(dy, 0), (char *)element(x, 0), (char *)element(y, 0)};
    const ptrdiff_t strides[3] = {dy.stride, x.stride, y.stride};
    const int skip = f->inputs == 1;
    if (how == STRIDED)
        fastgelu_strided(f, n, args + skip, strides + skip);
    else if (how == STREAM)
        fastgelu_stream(f, n, args + skip);
    else
        call(f, t, n, element(dy, 0), element(x, 0), element(y, 0));
}

/* Calls f on elements that lie as the spans say and compares with the same elements in plain
 * arrays; everything else in the page of the output stays as it was. */
static void check_call(const fastgelu_function *f, const format *t, size_t n, span dy, span x,
                       span y, way how, const char *what)
{
    static _Alignas(64) unsigned char before[1 << 16], plain[3][LONGEST * 8];
    for (size_t i = 0; i < n; i++) {
        memcpy(plain[0] + i * t->size, element(dy, i), t->size);
        memcpy(plain[1] + i * t->size, element(x, i), t->size);
    }
    call(f, t, n, plain[0], plain[1], plain[2]);
    memcpy(before, y.page, page);

    const span spans[] = {dy, x, y};
    for (int i = f->inputs == 1; i < 3; i++)
        poison_outside(t, spans[i], n, 1);
    if (sigsetjmp(back, 1) == 0)
        run_kernel(f, t, n, dy, x, y, how);
    else
        expect(0, "%s, n = %d, at %d, %d -> %d: fault %s", what, (int)n, (int)dy.offset,
               (int)x.offset, (int)y.offset, place_of_fault());
    for (int i = f->inputs == 1; i < 3; i++)
        poison_outside(t, spans[i], n, 0);

    for (size_t i = 0; i < n; i++)
        memcpy(before + (element(y, i) - y.page), plain[2] + i * t->size, t->size);
    if (memcmp(before, y.page, page) == 0) {
        expect(1, "as it should be");
        return;
    }
    size_t at = 0;
    while (before[at] == y.page[at])
        at++;
    expect(0, "%s, n = %d, at %d, %d -> %d: byte %d of the output is %#x, not %#x", what, (int)n,
           (int)dy.offset, (int)x.offset, (int)y.offset, (int)at, y.page[at], before[at]);
}

/* Bytes that make no NaN, whose bits are unspecified, at whatever address an element lies. */
static void fill(unsigned char *to, size_t from)
{
    mprotect(to, page, PROT_READ | PROT_WRITE);
    for (size_t i = 0; i < page; i++) {
        const uint64_t h = mix(from + i);
        to[i] = (unsigned char)(h % 0x43 | (h >> 32 & 0x80));
    }
    mprotect(to, page, PROT_READ);
}

/* ---- contiguous arrays ------------------------------------------------------ */

static void check_length(const fastgelu_function *f, const format *t, size_t n, way how)
{
    const ptrdiff_t step = (ptrdiff_t)t->size;
    const size_t flush[] = {0, page - n * t->size}; /* at the first, at the last byte */
    /* against the guard pages, in every combination */
    for (int i = 0; i < (f->inputs == 2 ? 8 : 4); i++) {
        const span dy = {dy_page, flush[i >> 2 & 1], step}, x = {x_page, flush[i >> 1 & 1], step};
        const span y = {y_page, flush[i & 1], step};
        memset(y_page, CANARY, page);
        check_call(f, t, n, dy, x, y, how, "at a guard page");
    }
    /* every alignment of elements in 64 bytes, each array its own */
    const size_t places = 64 / t->size;
    for (size_t k = 0; k < places; k++) {
        const span dy = {dy_page, (5 * k + 3) % places * t->size, step};
        const span x = {x_page, k * t->size, step};
        const span y = {y_page, (64 + (3 * k + n) % places) * t->size, step};
        memset(y_page, CANARY, page);
        check_call(f, t, n, dy, x, y, how, "aligned to elements");
    }
    /* in place: over x, over dy, over both at once; the neighbours keep their values */
    for (size_t k = 0; k < places + 2; k++) {
        const size_t at = k < 2 ? flush[k] : (k - 2) * t->size;
        const span y = {y_page, at, step}, x = {x_page, at, step}, dy = {dy_page, at, step};
        memcpy(y_page, x_page, page);
        check_call(f, t, n, dy, y, y, how, "in place of x");
        if (f->inputs == 2) {
            memcpy(y_page, dy_page, page);
            check_call(f, t, n, y, x, y, how, "in place of dy");
            memcpy(y_page, x_page, page);
            check_call(f, t, n, y, y, y, how, "in place of both");
        }
    }
}

static void test_contiguous(const fastgelu_function *f, const format *t)
{
    call(f, t, 0, NULL, NULL, NULL);
    for (size_t n = 0; n <= LONGEST; n += THINNED > 1 && n >= 33 ? 7 : 1)
        check_length(f, t, n, CONTIGUOUS);
}

/* ---- stores past the caches --------------------------------------------------- */

static void test_stream(const fastgelu_function *f, const format *t)
{
    char *const nothing[] = {NULL, NULL, NULL};
    fastgelu_stream(f, 0, nothing);
    for (size_t n = 0; n <= LONGEST; n += THINNED > 1 && n >= 33 ? 7 : n < 70 ? 1 : 5)
        check_length(f, t, n, STREAM);
    /* elements that are not aligned */
    const span dy = {dy_page, 1, (ptrdiff_t)t->size}, x = {x_page, 3, (ptrdiff_t)t->size};
    const span y = {y_page, 5, (ptrdiff_t)t->size};
    memset(y_page, CANARY, page);
    check_call(f, t, LONGEST, dy, x, y, STREAM, "at odd addresses");
}

/* ---- strides ------------------------------------------------------------------ */

/* n elements so far apart that touch the first or the last byte of the page. */
static span touching(const format *t, unsigned char *where, size_t n, ptrdiff_t stride, int end)
{
    const size_t reach = (n - 1) * (size_t)(stride < 0 ? -stride : stride);
    const size_t lowest = end ? page - reach - t->size : 0;
    const span s = {where, stride < 0 ? lowest + reach : lowest, stride};
    return s;
}

static void test_strided(const fastgelu_function *f, const format *t)
{
    const ptrdiff_t size = (ptrdiff_t)t->size;
    const ptrdiff_t steps[] = {size, -size, 2 * size, -3 * size, 24, size + 1, -size - 3};
    enum { STEPS = sizeof steps / sizeof steps[0] };
    for (size_t n = 1; n <= LONGEST; n += THINNED == 1 && n < 20 ? 1 : 11)
        for (int i = 0; i < 4 * STEPS; i++) {
            const ptrdiff_t step = steps[i % STEPS], other = steps[(i + 3) % STEPS];
            const int in_end = i / STEPS % 2, out_end = i / STEPS / 2;
            const span dy = touching(t, dy_page, n, other, in_end);
            const span y = touching(t, y_page, n, step, out_end);
            span x = touching(t, x_page, n, step, in_end);
            memset(y_page, CANARY, page);
            check_call(f, t, n, dy, x, y, STRIDED, "with strides");
            memcpy(y_page, x_page, page);
            check_call(f, t, n, dy, y, y, STRIDED, "with strides, in place");
            x.stride = 0; /* one element for all */
            memset(y_page, CANARY, page);
            check_call(f, t, n, dy, x, y, STRIDED, "with stride 0");
        }
    char *const nothing[] = {NULL, NULL, NULL};
    const ptrdiff_t any[] = {3, -5, 7};
    fastgelu_strided(f, 0, nothing, any);
}

int main(void)
{
    page = (size_t)sysconf(_SC_PAGESIZE);
    if (page > 1 << 16) {
        fprintf(stderr, "bounds: pages larger than 64 KiB\n");
        return 2;
    }
    dy_page = guarded_page();
    x_page = guarded_page();
    y_page = guarded_page();
    fill(dy_page, 0);
    fill(x_page, page);
    catch_faults();
    on_every_target("bounds, contiguous", 0, test_contiguous);
    on_every_target("bounds, strided", 0, test_strided);
    on_every_target("bounds, past the caches", 0, test_stream);
    return end_tests();
}
