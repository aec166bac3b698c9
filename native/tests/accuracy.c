/* SPDX-License-Identifier: BSD-3-Clause */
/* accuracy.c: the float kernels against reference.h over all 2^32 inputs, or every N-th of
 * them with all binade edges and the surroundings of the slopes' zeros.
 *
 *   accuracy [--every N] [--jobs N] [--target NAME] [--function NAME]
 *
 * Fails where an error exceeds the bound in the registry, or a special value is off. */
#define _DEFAULT_SOURCE
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include "fastgelu.h"
#include "reference.h"

enum { BLOCK = 4096, MOST_JOBS = 64 };

typedef struct worst {
    double ulp;
    float dy, x, got;
    double want;
    uint64_t count, wrong_special;
} worst;

static float from_bits(uint32_t bits)
{
    float f;
    memcpy(&f, &bits, sizeof f);
    return f;
}

static uint32_t to_bits(float f)
{
    uint32_t bits;
    memcpy(&bits, &f, sizeof bits);
    return bits;
}

/* Total error in ULP: the unit is the spacing of float in the binade of the exact value. */
static double ulp_error(float got, double want)
{
    int e;
    if (isnan(want))
        return isnan(got) ? 0 : INFINITY;
    if (isinf(want) || fabs(want) > 0x1.ffffffp127) /* rounds to infinity */
        return isinf(got) && (got > 0) == (want > 0) ? 0 : INFINITY;
    if (!isfinite(got))
        return INFINITY;
    frexp(want, &e);
    e = e < -125 || want == 0 ? -125 : e;
    return fabs((double)got - want) / ldexp(1, e - 24);
}

static void judge(const fastgelu_function *f, size_t n, const float *dy, const float *x, worst *w)
{
    static float y[BLOCK];
    if (f->inputs == 1)
        ((void (*)(size_t, const float *, float *))f->kernel)(n, x, y);
    else
        ((void (*)(size_t, const float *, const float *, float *))f->kernel)(n, dy, x, y);
    for (size_t i = 0; i < n; i++) {
        const double want = reference(f->name, dy[i], x[i]);
        const double ulp = ulp_error(y[i], want);
        w->count++;
        if (!(ulp <= w->ulp)) {
            w->ulp = ulp;
            w->dy = dy[i];
            w->x = x[i];
            w->got = y[i];
            w->want = want;
        }
        /* zeros and infinities by sign too */
        if ((want == 0 || isinf(x[i])) && !isnan(want) && !signbit(y[i]) != !signbit(want))
            w->wrong_special++;
    }
}

/* dy for backward: any magnitude, a function of x alone so that runs repeat. */
static float some_dy(uint32_t x)
{
    uint32_t h = x * 0x9e3779b1u;
    h ^= h >> 15;
    h *= 0x85ebca6bu;
    h ^= h >> 13;
    if (h % 4 == 0) /* any bits, NaN and infinities apart */
        return from_bits((h >> 2) % 0x7f800000u | (h & 0x80000000u));
    return from_bits(0x3f000000u + (h & 0x80ffffffu)); /* 0.5 to 2 */
}

static void flush(const fastgelu_function *f, size_t *n, float *dy, float *x, worst *w)
{
    for (size_t i = 0; i < *n; i++)
        dy[i] = some_dy(to_bits(x[i]));
    judge(f, *n, dy, x, w);
    *n = 0;
}

static void sweep(const fastgelu_function *f, uint64_t every, uint64_t job, uint64_t jobs, worst *w)
{
    static float x[BLOCK], dy[BLOCK];
    static const double zeros[] = {0.7517915246935645, 0.7524614220710163, 0.7511542554412890,
                                   1.2784645427610738};
    size_t n = 0;
    for (uint64_t bits = job * every; bits < (uint64_t)1 << 32; bits += every * jobs) {
        /* a different member of every group of N */
        x[n++] =
            from_bits((uint32_t)(bits + (every > 1 ? (bits / every * 2654435761u) % every : 0)));
        if (n == BLOCK)
            flush(f, &n, dy, x, w);
    }
    flush(f, &n, dy, x, w);
    if (every == 1 || job)
        return;
    for (uint32_t top = 0; top < 512; top++)
        for (uint32_t i = 0; i < 512; i++) {
            x[n++] = from_bits((top << 23) + i - 256);
            if (n == BLOCK)
                flush(f, &n, dy, x, w);
        }
    for (size_t z = 0; z < sizeof zeros / sizeof zeros[0]; z++)
        for (uint32_t i = 0; i < 1 << 17; i++) {
            x[n++] = from_bits(to_bits((float)-zeros[z]) + i - (1 << 16));
            if (n == BLOCK)
                flush(f, &n, dy, x, w);
        }
    flush(f, &n, dy, x, w);
}

int main(int argc, char **argv)
{
    uint64_t every = 1, jobs = 2;
    const char *only = NULL;
    for (int i = 1; i + 1 < argc; i += 2) {
        if (strcmp(argv[i], "--every") == 0)
            every = strtoull(argv[i + 1], NULL, 10);
        else if (strcmp(argv[i], "--jobs") == 0)
            jobs = strtoull(argv[i + 1], NULL, 10);
        else if (strcmp(argv[i], "--function") == 0)
            only = argv[i + 1];
        else if (strcmp(argv[i], "--target") == 0 && fastgelu_set_target(argv[i + 1]) == 0)
            continue;
        else
            argc = 0;
    }
    if (argc % 2 == 0 || every < 1 || jobs < 1 || jobs > MOST_JOBS) {
        fprintf(stderr,
                "usage: accuracy [--every N] [--jobs 1..%d] [--target NAME]"
                " [--function NAME]\n",
                MOST_JOBS);
        return 2;
    }
    worst *shared = mmap(NULL, MOST_JOBS * sizeof *shared, PROT_READ | PROT_WRITE,
                         MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (shared == MAP_FAILED) {
        perror("accuracy: mmap");
        return 2;
    }
    int passed = 0, failed = 0;
    printf("target %s, every %llu of 2^32 float inputs\n", fastgelu_target(),
           (unsigned long long)every);
    printf("%-22s %11s %7s %6s  worst: x, got, want (dy)\n", "function", "inputs", "max ULP",
           "bound");
    const fastgelu_function *f;
    for (size_t i = 0; (f = fastgelu_function_at(i)); i++) {
        if (strcmp(f->dtype, "f32") || (only && strcmp(f->name, only)))
            continue;
        memset(shared, 0, MOST_JOBS * sizeof *shared);
        fflush(stdout);
        for (uint64_t j = 0; j < jobs; j++) {
            const pid_t pid = fork();
            if (pid == 0) {
                sweep(f, every, j, jobs, &shared[j]);
                _exit(0);
            }
            if (pid < 0)
                shared[j].wrong_special = 1;
        }
        int status;
        while (wait(&status) > 0)
            if (status)
                shared[0].wrong_special++;
        worst w = shared[0];
        for (uint64_t j = 1; j < jobs; j++) {
            const worst o = shared[j];
            const uint64_t count = w.count + o.count, special = w.wrong_special + o.wrong_special;
            if (!(o.ulp <= w.ulp))
                w = o;
            w.count = count;
            w.wrong_special = special;
        }
        const int ok = w.ulp <= f->max_ulp && w.wrong_special == 0 && w.count > 0;
        printf("%-22s %11llu %7.4f %6.3f  %a %a %a", f->name, (unsigned long long)w.count, w.ulp,
               f->max_ulp, (double)w.x, (double)w.got, w.want);
        if (f->inputs == 2)
            printf(" (%a)", (double)w.dy);
        printf("%s\n", ok ? "" : w.wrong_special ? "  FAILED: special values" : "  FAILED");
        passed += ok;
        failed += !ok;
    }
    printf("%d passed, %d failed\n", passed, failed);
    return failed || !passed;
}
