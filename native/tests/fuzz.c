/* SPDX-License-Identifier: BSD-3-Clause */
/* fuzz.c: bytes choose a function, a target, a length, where the arrays lie, strides and values;
 * the target must give the bits of the scalar one and write nothing but the elements named.
 *
 * With libFuzzer: make -C native/tests fuzz. With FUZZ_MAIN, a program that runs
 *
 *   fuzz FILE_OR_FOLDER...          these inputs
 *   fuzz --seconds S [--seed N]     random inputs for so long */
#define _DEFAULT_SOURCE
#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "harness.h"

enum { HEADER = 12, LONGEST = 300, CANARY = 0xa5, MARGIN = 64, MOST_TARGETS = 16 };

/* Without a sanitizer, bytes that are watched lie behind the last element too. */
#ifdef FUZZ_MAIN
enum { BEHIND = MARGIN };
#else
enum { BEHIND = 0 };
#endif

/* What the bytes ask for. */
typedef struct request {
    const fastgelu_function *f;
    const format *t;
    const char *target;
    size_t n;
    int strided, in_place, kind_of_values;
    size_t offset[3];    /* dy, x, y: bytes before the lowest element */
    ptrdiff_t stride[3]; /* bytes */
    const uint8_t *values;
    size_t values_size;
} request;

static size_t supported_targets(const char *targets[])
{
    const char *const *all = fastgelu_targets();
    size_t n = 0;
    for (; all[n] && n < MOST_TARGETS; n++)
        targets[n] = all[n];
    return n;
}

static request read_request(const uint8_t *data, size_t size)
{
    request r;
    const char *targets[MOST_TARGETS];
    const size_t target_count = supported_targets(targets);
    size_t functions = 0;
    memset(&r, 0, sizeof r);
    while (fastgelu_function_at(functions) && !is_fused(fastgelu_function_at(functions)))
        functions++;
    r.f = fastgelu_function_at(data[0] % functions);
    r.t = format_of(r.f);
    r.target = targets[data[1] % target_count];
    r.n = (data[2] | (size_t)data[3] << 8) % (LONGEST + 1);
    r.strided = data[4] & 1;
    r.in_place = data[4] >> 1 & 3;
    r.kind_of_values = data[4] >> 3 & 3;
    for (int a = 0; a < 3; a++) {
        const ptrdiff_t element = (ptrdiff_t)r.t->size, step = (int8_t)data[8 + a];
        r.offset[a] = data[5 + a] % MARGIN;
        r.stride[a] = r.strided ? step : element;
        if (!r.strided)
            r.offset[a] -= r.offset[a] % r.t->size; /* elements are aligned */
        if (a == 2 && step > -element && step < element)
            r.stride[a] = element; /* the elements of the output do not overlap */
    }
    r.values = data + HEADER;
    r.values_size = size - HEADER;
    return r;
}

static bits value(const request *r, size_t i)
{
    bits raw = 0;
    for (size_t k = 0; k < r->t->size; k++) {
        const size_t at = i * r->t->size + k;
        raw = raw << 8 |
              (r->values_size ? r->values[at % r->values_size] ^ at / r->values_size : at % 7);
    }
    const double small = (double)(int16_t)raw / 2048; /* -16 to 16 */
    switch (r->kind_of_values) {
    case 0:
        return raw;
    case 1:
        return encode(r->t, small);
    case 2: /* the tail, down to where results vanish */
        return encode(r->t, -(double)(raw & 0xffff) / 1024);
    default: /* about the binades' edges: zeros, subnormal numbers, infinities and NaN too */
        return (raw >> (r->t->fraction_bits - 3) << (r->t->fraction_bits - 3)) + (raw & 7) - 4;
    }
}

/* Memory of exactly the bytes that the elements span, so that a sanitizer sees beyond them. */
typedef struct array {
    unsigned char *memory, *first;
    size_t bytes;
    ptrdiff_t stride;
} array;

static array allocate_array(const request *r, int a)
{
    array m;
    const size_t span = r->n ? (r->n - 1) * (size_t)labs((long)r->stride[a]) + r->t->size : 0;
    m.bytes = r->offset[a] + span + BEHIND;
    m.memory = allocate(m.bytes);
    m.stride = r->stride[a];
    m.first = m.memory + r->offset[a];
    if (r->n && m.stride < 0)
        m.first += (r->n - 1) * (size_t)-m.stride;
    memset(m.memory, CANARY, m.bytes);
    return m;
}

static unsigned char *element(array m, size_t i)
{
    return m.first + (ptrdiff_t)i * m.stride;
}

static void call_library(const request *r, array dy, array x, array y)
{
    if (r->strided) {
        char *args[] = {(char *)dy.first, (char *)x.first, (char *)y.first};
        const ptrdiff_t strides[] = {dy.stride, x.stride, y.stride};
        const int skip = r->f->inputs == 1;
        fastgelu_strided(r->f, r->n, args + skip, strides + skip);
    } else {
        call(r->f, r->t, r->n, dy.first, x.first, y.first);
    }
}

/* Whether all is as it should be; else says what is not. */
static int run_request(const request *r)
{
    array dy = allocate_array(r, 0), x = allocate_array(r, 1), y = allocate_array(r, 2);
    unsigned char *plain = allocate(3 * LONGEST * 8), *before = allocate(y.bytes);
    unsigned char *plain_dy = plain, *plain_x = plain + LONGEST * 8, *want = plain_x + LONGEST * 8;
    int ok = 1;
    array from_dy = dy, from_x = x;
    if (r->in_place & 1)
        from_dy = y;
    if (r->in_place & 2)
        from_x = y;
    for (size_t i = 0; i < r->n; i++) {
        set(r->t, element(from_dy, i), 0, value(r, 2 * i));
        set(r->t, element(from_x, i), 0, value(r, 2 * i + 1));
    }
    /* strides may make elements share bytes: what was stored last counts */
    for (size_t i = 0; i < r->n; i++) {
        set(r->t, plain_dy, i, get(r->t, element(from_dy, i), 0));
        set(r->t, plain_x, i, get(r->t, element(from_x, i), 0));
    }
    memcpy(before, y.memory, y.bytes);

    fastgelu_set_target("scalar");
    call(r->f, r->t, r->n, plain_dy, plain_x, want);
    if (fastgelu_set_target(r->target) != FASTGELU_OK || strcmp(fastgelu_target(), r->target)) {
        printf("%s does not run\n", r->target);
        ok = 0;
    }
    call_library(r, from_dy, from_x, y);

    for (size_t i = 0; i < r->n; i++) {
        const bits got = get(r->t, element(y, i), 0), right = get(r->t, want, i);
        if (canonical(r->t, got) != canonical(r->t, right)) {
            printf("%s %s, %s, n = %d: element %d is %#llx, not %#llx\n", r->f->name, r->f->dtype,
                   r->target, (int)r->n, (int)i, (unsigned long long)got,
                   (unsigned long long)right);
            ok = 0;
            break;
        }
        memcpy(before + (element(y, i) - y.memory), element(y, i), r->t->size);
    }
    if (ok && memcmp(before, y.memory, y.bytes) != 0) {
        printf("%s %s, %s, n = %d: other bytes than the elements have changed\n", r->f->name,
               r->f->dtype, r->target, (int)r->n);
        ok = 0;
    }
    free(dy.memory);
    free(x.memory);
    free(y.memory);
    free(plain);
    free(before);
    return ok;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    if (size < HEADER)
        return 0;
    const request r = read_request(data, size);
    if (!run_request(&r)) {
        fflush(stdout);
        abort();
    }
    return 0;
}

#ifdef FUZZ_MAIN
static int passed, failed;

static void count(const uint8_t *data, size_t size)
{
    if (size < HEADER)
        return;
    const request r = read_request(data, size);
    if (run_request(&r))
        passed++;
    else
        failed++;
}

static void run_file(const char *path)
{
    uint8_t data[4096];
    FILE *file = fopen(path, "rb");
    if (!file) {
        perror(path);
        failed++;
        return;
    }
    const int before = failed;
    count(data, fread(data, 1, sizeof data, file));
    fclose(file);
    if (failed > before)
        printf("  %s\n", path);
}

static void run_path(const char *path)
{
    DIR *folder = opendir(path);
    const struct dirent *entry;
    char name[4096];
    if (!folder) {
        run_file(path);
        return;
    }
    while ((entry = readdir(folder)))
        if (entry->d_name[0] != '.') {
            snprintf(name, sizeof name, "%s/%s", path, entry->d_name);
            run_file(name);
        }
    closedir(folder);
}

static void run_random(double seconds, uint64_t seed)
{
    const time_t end = time(NULL) + (time_t)seconds;
    uint8_t data[256];
    printf("random inputs for %.0f s from seed %llu\n", seconds, (unsigned long long)seed);
    for (uint64_t i = 0; i % 256 || time(NULL) < end; i++) {
        uint64_t h = mix(mix(seed) + i);
        const size_t size = HEADER + h % (sizeof data - HEADER);
        for (size_t k = 0; k < size; k++)
            data[k] = (uint8_t)(k % 8 ? h >> k % 8 * 8 : (h = mix(h)));
        count(data, size);
        if (failed > 20)
            break;
    }
}

int main(int argc, char **argv)
{
    double seconds = 0;
    uint64_t seed = 1;
    for (int i = 1; i < argc; i++)
        if (strcmp(argv[i], "--seconds") == 0 && i + 1 < argc)
            seconds = atof(argv[++i]);
        else if (strcmp(argv[i], "--seed") == 0 && i + 1 < argc)
            seed = strtoull(argv[++i], NULL, 10);
        else
            run_path(argv[i]);
    if (seconds > 0)
        run_random(seconds, seed);
    printf("%d passed, %d failed\n", passed, failed);
    return failed || !passed;
}
#endif
