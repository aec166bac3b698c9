/* SPDX-License-Identifier: BSD-3-Clause */
/* samebits.c: the result for a value depends on nothing but the value. One hash a function
 * and dtype over the fixed sweep, equal on every target; and the same bits for any position,
 * length, neighbours, stride and alignment, in place or not.
 *
 *   samebits HASHES           checks against the file HASHES, lines "function dtype hash"
 *   samebits --write HASHES   makes that file, if all targets of this machine agree */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "harness.h"

enum { MOST_FUNCTIONS = 256 };

static struct {
    char name[64], dtype[16];
    uint64_t hash;
} known[MOST_FUNCTIONS];
static size_t known_count;

static int read_hashes(const char *path)
{
    FILE *file = fopen(path, "r");
    int fields = 3;
    if (!file) {
        perror(path);
        return 0;
    }
    while (known_count < MOST_FUNCTIONS && fields == 3) {
        fields = fscanf(file, "%63s %15s %" SCNx64, known[known_count].name,
                        known[known_count].dtype, &known[known_count].hash);
        known_count += fields == 3;
    }
    fclose(file);
    if (fields != EOF)
        fprintf(stderr, "%s: line %d is not \"function dtype hash\"\n", path, (int)known_count + 1);
    return fields == EOF;
}

static const uint64_t *known_hash(const fastgelu_function *f)
{
    for (size_t i = 0; i < known_count; i++)
        if (strcmp(known[i].name, f->name) == 0 && strcmp(known[i].dtype, f->dtype) == 0)
            return &known[i].hash;
    return NULL;
}

/* Far from where the functions bend, and NaN: kernels may treat vectors with these apart. */
static bits outlier(const format *t, size_t i)
{
    const bits far[] = {largest(t) | sign_bit(t), infinity(t), infinity(t) | quiet_bit(t),
                        encode(t, -100), smallest_normal(t) - 1};
    return far[i % (sizeof far / sizeof far[0])];
}

/* FNV-1a over the canonical results, their lowest byte first; if asked with an outlier, not
 * counted, after every three elements: in each vector, that is. */
static uint64_t hash_of(const fastgelu_function *f, const format *t, int with_outliers)
{
    enum { BLOCK = 4000, EVERY = 4 };
    unsigned char *memory = allocate((size_t)3 * BLOCK * t->size);
    unsigned char *dy = memory, *x = dy + BLOCK * t->size, *y = x + BLOCK * t->size;
    const size_t length = sweep_length(f, t);
    uint64_t hash = 0xcbf29ce484222325u;
    for (size_t done = 0; done < length;) {
        size_t n = 0;
        for (; n < BLOCK && done < length; n++)
            if (with_outliers && n % EVERY == EVERY - 1) {
                set(t, dy, n, encode(t, 1));
                set(t, x, n, outlier(t, n / EVERY));
            } else {
                set(t, dy, n, sweep_dy(t, done));
                set(t, x, n, sweep_x(t, done++));
            }
        call(f, t, n, dy, x, y);
        for (size_t i = 0; i < n; i++) {
            if (with_outliers && i % EVERY == EVERY - 1)
                continue;
            const bits b = canonical(t, get(t, y, i));
            for (size_t k = 0; k < t->size; k++)
                hash = (hash ^ (b >> 8 * k & 0xff)) * 0x100000001b3u;
        }
    }
    free(memory);
    return hash;
}

static uint64_t fused_hash_of(const fastgelu_function *f, const format *t)
{
    enum { BLOCK = 4000 };
    unsigned char *memory = allocate((size_t)MOST_OPERANDS * BLOCK * t->size);
    char *args[MOST_OPERANDS];
    const size_t length = fused_sweep_length();
    uint64_t hash = 0xcbf29ce484222325u;
    for (int a = 0; a < MOST_OPERANDS; a++)
        args[a] = (char *)memory + (size_t)a * BLOCK * t->size;
    for (size_t done = 0; done < length; done += BLOCK) {
        const size_t n = length - done < BLOCK ? length - done : BLOCK;
        for (int a = 0; a < f->inputs; a++)
            for (size_t i = 0; i < n; i++)
                set(t, args[a], i, fused_sweep(f, t, a, done + i));
        call_with(f, t, n, args);
        for (int a = f->inputs; a < f->inputs + f->outputs; a++)
            for (size_t i = 0; i < n; i++) {
                const bits b = canonical(t, get(t, args[a], i));
                for (size_t k = 0; k < t->size; k++)
                    hash = (hash ^ (b >> 8 * k & 0xff)) * 0x100000001b3u;
            }
    }
    free(memory);
    return hash;
}

static void test_hash(const fastgelu_function *f, const format *t)
{
    const uint64_t *want = known_hash(f);
    const uint64_t got = is_fused(f) ? fused_hash_of(f, t) : hash_of(f, t, 0);
    if (expect(want != NULL, "no hash is known; got %016" PRIx64, got))
        expect(got == *want, "hash %016" PRIx64 ", not %016" PRIx64, got, *want);
}

static void test_hash_with_outliers(const fastgelu_function *f, const format *t)
{
    const uint64_t *want = known_hash(f), got = hash_of(f, t, 1);
    if (want)
        expect(got == *want, "hash %016" PRIx64 ", not %016" PRIx64, got, *want);
}

/* Every line of the file must belong to a function. */
static void test_file(void)
{
    begin_group("lines of the file of hashes");
    for (size_t i = 0; i < known_count; i++) {
        begin_case("line %d", (int)i + 1);
        expect(fastgelu_max_ulp(known[i].name, known[i].dtype) >= 0, "%s %s does not exist",
               known[i].name, known[i].dtype);
        for (size_t j = 0; j < i; j++)
            expect(strcmp(known[i].name, known[j].name) || strcmp(known[i].dtype, known[j].dtype),
                   "%s %s is there twice", known[i].name, known[i].dtype);
    }
    end_group();
}

/* The hash on which all targets of this machine agree. */
static int agreed_hash(const fastgelu_function *f, uint64_t *hash)
{
    const format *t = format_of(f);
    const char *target, *first = NULL;
    int supported, ok = t != NULL;
    if (!t)
        fprintf(stderr, "%s %s: a dtype that the tests do not know\n", f->name, f->dtype);
    for (size_t i = 0; t && (target = fastgelu_target_name(i, &supported)); i++) {
        if (!supported || fastgelu_set_target(target) != FASTGELU_OK)
            continue;
        const uint64_t got = is_fused(f) ? fused_hash_of(f, t) : hash_of(f, t, 0);
        if (!first) {
            first = target;
            *hash = got;
        } else if (got != *hash) {
            fprintf(stderr, "%s %s: %s and %s differ\n", f->name, f->dtype, first, target);
            ok = 0;
        }
    }
    return ok;
}

static int write_hashes(const char *path)
{
    static uint64_t hashes[MOST_FUNCTIONS];
    const fastgelu_function *f;
    int ok = 1;
    for (size_t i = 0; i < MOST_FUNCTIONS && (f = fastgelu_function_at(i)); i++)
        ok &= agreed_hash(f, &hashes[i]);
    if (!ok) {
        fprintf(stderr, "%s is left as it was\n", path);
        return 1;
    }
    FILE *file = fopen(path, "w");
    if (!file) {
        perror(path);
        return 2;
    }
    for (size_t i = 0; i < MOST_FUNCTIONS && (f = fastgelu_function_at(i)); i++)
        fprintf(file, "%s %s %016" PRIx64 "\n", f->name, f->dtype, hashes[i]);
    return fclose(file) ? 2 : 0;
}

/* ---- any position, length, neighbours ---------------------------------------- */

enum { SAMPLES = 3 << 9, LONGEST = 200, LANES = 64 };

/* A mixture from the whole sweep and the results, computed one by one. */
static _Alignas(64) unsigned char sample_dy[SAMPLES * 8], sample_x[SAMPLES * 8], alone[SAMPLES * 8];

static void take_samples(const fastgelu_function *f, const format *t)
{
    const size_t length = sweep_length(f, t);
    for (size_t i = 0; i < SAMPLES; i++) {
        const size_t at = mix(i) % length;
        set(t, sample_dy, i, sweep_dy(t, at));
        set(t, sample_x, i, sweep_x(t, at));
        const size_t byte = i * t->size;
        call(f, t, 1, sample_dy + byte, sample_x + byte, alone + byte);
    }
}

/* Results y[i * step] against those of the samples from first on. */
static int compare(const format *t, size_t n, size_t first, const unsigned char *y)
{
    for (size_t i = 0; i < n; i++)
        if (canonical(t, get(t, y, i)) != canonical(t, get(t, alone, first + i))) {
            const size_t s = first + i;
            expect(0,
                   "n = %d, element %d: x %#" PRIx64 ", dy %#" PRIx64 ": %#" PRIx64
                   ", alone %#" PRIx64,
                   (int)n, (int)i, get(t, sample_x, s), get(t, sample_dy, s), get(t, y, i),
                   get(t, alone, s));
            return 0;
        }
    expect(1, "the same");
    return 1;
}

static void test_position(const fastgelu_function *f, const format *t)
{
    static _Alignas(64) unsigned char dy[SAMPLES * 8], x[SAMPLES * 8], y[(SAMPLES + LANES) * 8];
    const size_t size = t->size;
    take_samples(f, t);

    /* all lengths from all places in a vector */
    for (size_t n = 0; n <= LONGEST; n++)
        for (size_t k = 0; k < LANES; k += THINNED) {
            const size_t first = (k + n * 37) % (SAMPLES - LONGEST);
            unsigned char *to = y + (k + n) % LANES * size;
            call(f, t, n, sample_dy + first * size, sample_x + first * size, to);
            compare(t, n, first, to);
        }

    /* other neighbours: the samples in another order, put back */
    for (size_t step = 5; step < 200; step += 18 + THINNED) {
        for (size_t i = 0; i < SAMPLES; i++) {
            const size_t from = i * (step * 6 + 1) % SAMPLES; /* no factor 2 or 3: all of them */
            set(t, dy, i, get(t, sample_dy, from));
            set(t, x, i, get(t, sample_x, from));
        }
        call(f, t, SAMPLES, dy, x, x);
        for (size_t i = 0; i < SAMPLES; i++)
            set(t, y, i * (step * 6 + 1) % SAMPLES, get(t, x, i));
        compare(t, SAMPLES, 0, y);
    }

    /* neighbours all alike */
    for (size_t i = 0; i < SAMPLES; i += 6 + THINNED) {
        for (size_t k = 0; k < LANES + 3; k++) {
            set(t, dy, k, get(t, sample_dy, i));
            set(t, x, k, get(t, sample_x, i));
        }
        call(f, t, LANES + 3, dy, x, y);
        for (size_t k = 0; k < LANES + 3; k++)
            if (!compare(t, 1, i, y + k * size))
                break;
    }
}

static void test_in_place(const fastgelu_function *f, const format *t)
{
    static _Alignas(64) unsigned char work[LONGEST * 8], other[LONGEST * 8];
    take_samples(f, t);
    for (size_t n = 0; n <= LONGEST; n += THINNED > 1 && n > 40 ? 3 : 1) {
        const size_t first = n * 5 % (SAMPLES - LONGEST), at = first * t->size;
        memcpy(work, sample_x + at, n * t->size);
        call(f, t, n, sample_dy + at, work, work);
        compare(t, n, first, work);
        if (f->inputs == 1)
            continue;
        memcpy(work, sample_dy + at, n * t->size);
        call(f, t, n, work, sample_x + at, work);
        compare(t, n, first, work);
        /* one array for both inputs, and for the output too */
        call(f, t, n, sample_x + at, sample_x + at, other);
        memcpy(work, sample_x + at, n * t->size);
        call(f, t, n, work, work, work);
        for (size_t i = 0; i < n; i++)
            expect(canonical(t, get(t, work, i)) == canonical(t, get(t, other, i)),
                   "x as dy, x and dx, n = %d: element %d", (int)n, (int)i);
    }
}

/* ---- strides ------------------------------------------------------------------ */

/* Room for n elements of any stride below, with its middle as the origin. */
enum { FARTHEST = 40, ROOM = 2 * FARTHEST * SAMPLES + 64 };

static char *scatter(const format *t, unsigned char *room, size_t n, ptrdiff_t stride, size_t shift,
                     const unsigned char *from)
{
    unsigned char *start = room + ROOM / 2 + shift;
    for (size_t i = 0; i < n; i++)
        memcpy(start + (ptrdiff_t)i * stride, from + (stride ? i : 0) * t->size, t->size);
    return (char *)start;
}

static void check_strides(const fastgelu_function *f, const format *t, size_t n,
                          const ptrdiff_t strides[3], size_t shift)
{
    static _Alignas(64) unsigned char room[3][ROOM], plain[3][SAMPLES * 8];
    const size_t first = (n * 11 + shift) % (SAMPLES - n + 1) * t->size;
    char *args[3] = {scatter(t, room[0], n, strides[0], shift, sample_dy + first),
                     scatter(t, room[1], n, strides[1], shift / 2, sample_x + first),
                     (char *)room[2] + ROOM / 2 + shift};
    for (size_t i = 0; i < n; i++)
        for (int a = 0; a < 2; a++)
            memcpy(plain[a] + i * t->size, args[a] + (ptrdiff_t)i * strides[a], t->size);
    call(f, t, n, plain[0], plain[1], plain[2]);

    const int skip = f->inputs == 1;
    fastgelu_strided(f, n, args + skip, strides + skip);
    for (size_t i = 0; i < n; i++) {
        const bits got = get(t, args[2] + (ptrdiff_t)i * strides[2], 0);
        if (!expect(canonical(t, got) == canonical(t, get(t, plain[2], i)),
                    "strides %d, %d -> %d, %d bytes off, n = %d: element %d is %#" PRIx64
                    ", not %#" PRIx64,
                    (int)strides[0], (int)strides[1], (int)strides[2], (int)shift, (int)n, (int)i,
                    got, get(t, plain[2], i)))
            return;
    }
}

static void test_strided(const fastgelu_function *f, const format *t)
{
    const ptrdiff_t size = (ptrdiff_t)t->size;
    const ptrdiff_t inputs[] = {size, -size, 2 * size, -3 * size, 0, FARTHEST, size + 1, -size - 3};
    const ptrdiff_t outputs[] = {size, -size, 2 * size, -FARTHEST, size + 1};
    const size_t lengths[] = {0, 1, 2, 7, 16, 63, 200, SAMPLES}; /* the last: several blocks */
    take_samples(f, t);
    for (size_t i = 0; i < sizeof inputs / sizeof *inputs; i++)
        for (size_t j = 0; j < sizeof inputs / sizeof *inputs; j++)
            for (size_t k = 0; k < sizeof outputs / sizeof *outputs; k++) {
                const ptrdiff_t strides[] = {inputs[i], inputs[j], outputs[k]};
                if ((f->inputs == 1 && i) || (i * 11 + j * 7 + k) % THINNED > THINNED / 4)
                    continue; /* dy does not matter, or thinned out */
                for (size_t l = 0; l < sizeof lengths / sizeof *lengths; l++)
                    if (lengths[l] < SAMPLES || (i + j + k) % 4 == 0)
                        check_strides(f, t, lengths[l], strides, (i * 3 + j + k + l) % 16);
            }
}

int main(int argc, char **argv)
{
    if (argc == 3 && strcmp(argv[1], "--write") == 0)
        return write_hashes(argv[2]);
    if (argc != 2) {
        fprintf(stderr, "usage: samebits HASHES | samebits --write HASHES\n");
        return 2;
    }
    begin_group("reading %s", argv[1]);
    begin_case("file");
    expect(read_hashes(argv[1]), "not read");
    end_group();
    test_file();
    on_every_target("hash", 0, test_hash);
    on_every_fused("hash, fused", test_hash);
    leave_out("scalar"); /* one element at a time */
    on_every_target("hash, far values between", 0, test_hash_with_outliers);
    leave_out(NULL);
    on_every_target("any position, length, neighbours", 0, test_position);
    on_every_target("in place", 0, test_in_place);
    on_every_target("strides", 0, test_strided);
    return end_tests();
}
