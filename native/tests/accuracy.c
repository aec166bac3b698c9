/* SPDX-License-Identifier: BSD-3-Clause */
/* accuracy.c: the float kernels against reference.c over all 2^32 inputs, or every N-th of
 * them with all binade edges and the surroundings of all zeros.
 *
 *   accuracy [--every N] [--jobs N] [--target NAME] [--function NAME] [--cases FILE]
 *
 * --cases adds the float inputs of a file like worst_cases.csv. Value, slope, backward and second
 * derivative of a form are judged in one pass. Fails where an error, infinite for a wrong special value,
 * exceeds the bound in the registry. */
#define _DEFAULT_SOURCE
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include "fastgelu.h"
#include "reference.h"

enum { BLOCK = REFERENCE_BLOCK, MOST_JOBS = 64, MOST_CASES = 10000 };
enum { VALUE, SLOPE, BACKWARD, SECOND, KINDS };

static const char *const form_names[FORMS] = {
    [FORM_GELU] = "gelu",
    [FORM_GELU_TANH] = "gelu_tanh",
    [FORM_GELU_SIGMOID] = "gelu_sigmoid",
    [FORM_SILU] = "silu",
};
static const char *const suffixes[KINDS] = {"", "_grad", "_backward", "_grad2"};

typedef struct worst {
    double ulp;
    float dy, x, got;
    double want;
    uint64_t count;
} worst;

/* The functions of one form that are judged, or NULL, and the inputs collected for them. */
typedef struct pass {
    enum form form;
    const fastgelu_function *functions[KINDS];
    worst *worst; /* of each kind */
    size_t n;
    float x[BLOCK], dy[BLOCK];
} pass;

/* Inputs beyond the sweep, by form. */
static struct {
    size_t n;
    float x[MOST_CASES], dy[MOST_CASES];
} cases[FORMS];

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

static void judge(const pass *p, int kind, const float *got, const double *want)
{
    worst *w = &p->worst[kind];
    w->count += p->n;
    if (reference_judge(p->n, got, want, w->ulp) == 0)
        return;
    for (size_t i = 0; i < p->n; i++) {
        const double ulp = reference_ulp(got[i], want[i]);
        if (ulp > w->ulp) {
            w->ulp = ulp;
            w->dy = p->dy[i];
            w->x = p->x[i];
            w->got = got[i];
            w->want = want[i];
        }
    }
}

static void flush(pass *p)
{
    static float y[BLOCK];
    static double want[KINDS][BLOCK];
    reference_block(p->form, p->n, p->x, want[VALUE], want[SLOPE]);
    for (size_t i = 0; i < p->n; i++)
        want[BACKWARD][i] = p->dy[i] * want[SLOPE][i];
    if (p->functions[SECOND])
        reference_second(p->form, p->n, p->x, want[SECOND]);
    for (int kind = 0; kind < KINDS; kind++) {
        const fastgelu_function *f = p->functions[kind];
        if (!f)
            continue;
        if (f->inputs == 1)
            ((void (*)(size_t, const float *, float *))f->kernel)(p->n, p->x, y);
        else
            ((void (*)(size_t, const float *, const float *, float *))f->kernel)(p->n, p->dy, p->x,
                                                                                 y);
        judge(p, kind, y, want[kind]);
    }
    p->n = 0;
}

/* dy for backward: any magnitude up to 2, a function of x alone so that runs repeat. */
static inline float some_dy(uint32_t x)
{
    uint32_t h = x * 0x9e3779b1u;
    h ^= h >> 15;
    h *= 0x85ebca6bu;
    h ^= h >> 13;
    const uint32_t any = h >> 2 | (h & 0x80000000u);
    const uint32_t middle = 0x3f000000u + (h & 0x80ffffffu); /* 0.5 to 2 */
    return from_bits(h % 4 == 0 ? any : middle);
}

static void add(pass *p, float x, float dy)
{
    p->x[p->n] = x;
    p->dy[p->n++] = dy;
    if (p->n == BLOCK)
        flush(p);
}

static void add_bits(pass *p, uint32_t x)
{
    add(p, from_bits(x), some_dy(x));
}

/* One member of each of the groups of N from begin to end; all, if N is 1. */
static void sweep_groups(pass *p, uint64_t every, uint64_t begin, uint64_t end)
{
    if (every > 1) {
        for (uint64_t i = begin; i < end; i++) /* a different member of every group */
            add_bits(p, (uint32_t)(i * every + i * 2654435761u % every));
        return;
    }
    for (uint32_t i = 0; i < BLOCK; i++) {
        p->x[i] = from_bits((uint32_t)begin + i);
        p->dy[i] = some_dy((uint32_t)begin + i);
    }
    p->n = BLOCK;
    flush(p);
}

/* The share of one of the jobs. */
static void sweep(pass *p, uint64_t every, uint64_t job, uint64_t jobs)
{
    static const double zeros[] = {
        -0.7517915246935645, -0.7524614220710163, -0.7511542554412890, -1.2784645427610738,
        1.4142135623730950,  1.4185040087908284,  1.4097281319127307,  2.3993572805154677,
        -1.4142135623730950, -1.4185040087908284, -1.4097281319127307, -2.3993572805154677,
    };
    const uint64_t groups = (((uint64_t)1 << 32) + every - 1) / every;
    for (uint64_t begin = job * BLOCK; begin < groups; begin += jobs * BLOCK)
        sweep_groups(p, every, begin, begin + BLOCK < groups ? begin + BLOCK : groups);
    if (job == 0) {
        for (size_t i = 0; i < cases[p->form].n; i++)
            add(p, cases[p->form].x[i], cases[p->form].dy[i]);
        for (uint32_t top = 0; every > 1 && top < 512; top++)
            for (uint32_t i = 0; i < 512; i++)
                add_bits(p, (top << 23) + i - 256);
        for (size_t z = 0; every > 1 && z < sizeof zeros / sizeof zeros[0]; z++)
            for (uint32_t i = 0; i < 1 << 17; i++)
                add_bits(p, to_bits((float)zeros[z]) + i - (1 << 16));
    }
    flush(p);
}

/* The form and the kind by name; 0 if there are none. */
static int find_form(const char *name, int *form, int *kind)
{
    char text[64];
    for (*form = 0; *form < FORMS; ++*form)
        for (*kind = 0; *kind < KINDS; ++*kind) {
            snprintf(text, sizeof text, "%s%s", form_names[*form], suffixes[*kind]);
            if (strcmp(text, name) == 0)
                return 1;
        }
    return 0;
}

/* The float rows "function,f32,x bits,dy bits or nothing,..."; 0 if there are none. */
static size_t read_cases(const char *path)
{
    char line[256], name[64];
    size_t rows = 0;
    FILE *file = fopen(path, "r");
    if (!file) {
        perror(path);
        return 0;
    }
    while (fgets(line, sizeof line, file)) {
        unsigned x, dy;
        int form, kind;
        const int fields = sscanf(line, "%63[^,],f32,%x,%x", name, &x, &dy);
        if (fields < 2)
            continue;
        if (!find_form(name, &form, &kind) || cases[form].n == MOST_CASES) {
            fprintf(stderr, "accuracy: too many cases, or an unknown function: %s", line);
            rows = 0;
            break;
        }
        cases[form].x[cases[form].n] = from_bits(x);
        cases[form].dy[cases[form].n++] = fields == 3 ? from_bits(dy) : some_dy(x);
        rows++;
    }
    fclose(file);
    return rows;
}

/* Runs the jobs; the worst of all of them is in shared[0]. */
static void run_jobs(pass *p, uint64_t every, uint64_t jobs, worst (*shared)[KINDS])
{
    memset(shared, 0, MOST_JOBS * sizeof *shared);
    fflush(stdout);
    for (uint64_t j = 0; j < jobs; j++) {
        const pid_t pid = fork();
        p->worst = shared[j];
        if (pid == 0) {
            sweep(p, every, j, jobs);
            _exit(0);
        }
        if (pid < 0)
            perror("accuracy: fork");
    }
    int status, broken = 0;
    for (uint64_t j = 0; j < jobs; j++)
        broken |= wait(&status) < 0 || status;
    for (int kind = 0; kind < KINDS; kind++) {
        worst *w = &shared[0][kind];
        for (uint64_t j = 1; j < jobs; j++) {
            const worst o = shared[j][kind];
            const uint64_t count = w->count + o.count;
            if (o.ulp > w->ulp)
                *w = o;
            w->count = count;
        }
        if (broken)
            w->ulp = INFINITY;
    }
}

/* Prints the line of a function, and whether it passed. */
static int report(const fastgelu_function *f, const worst *w, uint64_t least)
{
    const int ok = w->ulp <= f->max_ulp && w->count >= least;
    printf("%-22s %11llu %7.4f %6.3f  %a %a %a", f->name, (unsigned long long)w->count, w->ulp,
           f->max_ulp, (double)w->x, (double)w->got, w->want);
    if (f->inputs == 2)
        printf(" (%a)", (double)w->dy);
    printf("%s\n", ok ? "" : w->count < least ? "  FAILED: inputs are missing" : "  FAILED");
    return ok;
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
        else if (strcmp(argv[i], "--cases") == 0 && read_cases(argv[i + 1]))
            continue;
        else if (strcmp(argv[i], "--target") == 0 && fastgelu_set_target(argv[i + 1]) == 0)
            continue;
        else
            argc = 0;
    }
    if (argc % 2 == 0 || every < 1 || jobs < 1 || jobs > MOST_JOBS) {
        fprintf(stderr,
                "usage: accuracy [--every N] [--jobs 1..%d] [--target NAME]"
                " [--function NAME] [--cases FILE]\n",
                MOST_JOBS);
        return 2;
    }
    worst(*shared)[KINDS] = mmap(NULL, MOST_JOBS * sizeof *shared, PROT_READ | PROT_WRITE,
                                 MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (shared == MAP_FAILED) {
        perror("accuracy: mmap");
        return 2;
    }
    static pass passes[FORMS];
    int passed = 0, failed = 0;
    const fastgelu_function *f;
    for (size_t i = 0; (f = fastgelu_function_at(i)); i++) {
        int form, kind;
        /* fused functions have the bits of those they are made of: fused.c */
        if (f->form || strcmp(f->dtype, "f32") || (only && strcmp(f->name, only)))
            continue;
        if (find_form(f->name, &form, &kind)) {
            passes[form].functions[kind] = f;
        } else {
            printf("%s: there is no reference\n", f->name);
            failed++;
        }
    }
    printf("target %s, every %llu of 2^32 float inputs, reference %s\n", fastgelu_target(),
           (unsigned long long)every, reference_variant_name(reference_variants() - 1));
    printf("%-22s %11s %7s %6s  worst: x, got, want (dy)\n", "function", "inputs", "max ULP",
           "bound");
    for (int i = 0; i < FORMS; i++) {
        pass *p = &passes[i];
        p->form = (enum form)i;
        int wanted = 0;
        for (int kind = 0; kind < KINDS; kind++)
            wanted |= p->functions[kind] != NULL;
        if (!wanted)
            continue;
        run_jobs(p, every, jobs, shared);
        for (int kind = 0; kind < KINDS; kind++)
            if (p->functions[kind]) {
                const int ok = report(p->functions[kind], &shared[0][kind],
                                      (((uint64_t)1 << 32) + every - 1) / every);
                passed += ok;
                failed += !ok;
            }
    }
    printf("%d passed, %d failed\n", passed, failed);
    return failed || !passed;
}
