/* SPDX-License-Identifier: BSD-3-Clause */
/* load_test.c: the shared library as a plug-in loads it: into a process and a thread that are
 * running already, a thousand times, on a small stack, leaving no trace.
 *
 *   load_test SHARED_LIBRARY */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <float.h>
#include <limits.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "control_bits.h"
#include "harness.h"

enum { TIMES = 1000, SMALL_STACK = 64 * 1024 };
#define STACK (SMALL_STACK > PTHREAD_STACK_MIN ? (size_t)SMALL_STACK : (size_t)PTHREAD_STACK_MIN)

static const char *path;

/* The library's own functions: those of this program's static copy have the same names. */
typedef struct library {
    void *handle;
    const fastgelu_function *(*function_at)(size_t);
    const char *(*target)(void);
    void (*gelu)(size_t, const float *, float *);
} library;

static int find(void *handle, const char *name, void *to)
{
    void *symbol = dlsym(handle, name);
    memcpy(to, &symbol, sizeof symbol); /* ISO C has no cast from an object to a function */
    return expect(symbol != NULL, "%s is not exported", name);
}

static int load(library *l)
{
    l->handle = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    return expect(l->handle != NULL, "%s", l->handle ? "" : dlerror()) &&
           find(l->handle, "fastgelu_function_at", &l->function_at) &&
           find(l->handle, "fastgelu_target", &l->target) &&
           find(l->handle, "fastgelu_gelu_f32", &l->gelu);
}

static void unload(library *l)
{
    expect(dlclose(l->handle) == 0, "dlclose: %s", dlerror());
    void *again = dlopen(path, RTLD_NOW | RTLD_NOLOAD);
    expect(again == NULL, "it stays in memory");
    if (again)
        dlclose(again);
}

static void call_every_function(const library *l)
{
    static char in[MOST_OPERANDS][67 * 8], out[MOST_OPERANDS][67 * 8];
    const fastgelu_function *f;
    size_t i = 0;
    for (; (f = l->function_at(i)); i++) {
        const format *t = format_of(f);
        char *args[MOST_OPERANDS];
        for (int a = 0; a < f->inputs + f->outputs; a++)
            args[a] = a < f->inputs ? in[a] : out[a - f->inputs];
        for (size_t k = 0; t && k < 67; k++)
            for (int a = 0; a < f->inputs; a++)
                set(t, in[a], k, encode(t, a ? (double)k - 33 : 1));
        if (t)
            call_with(f, t, 67, args);
    }
    expect(i > 0, "no functions");
}

/* Subnormal numbers count, as in a process that nothing has changed. */
static int keeps_subnormals(void)
{
    volatile float small = FLT_MIN;
    volatile double tiny = DBL_MIN;
    return small / 4 > 0 && tiny / 4 > 0;
}

static void load_and_look(void)
{
    library l;
    const uint64_t before = control_bits();
    if (load(&l)) {
        expect(control_bits() == before, "loading changes control bits");
        call_every_function(&l);
        expect(control_bits() == before, "calls change control bits");
        unload(&l);
    }
    expect(control_bits() == before, "unloading changes control bits");
    expect(keeps_subnormals(), "subnormal numbers are flushed");
}

static pthread_barrier_t loaded;

/* A thread that runs while another one loads the library. */
static void *bystander(void *changed)
{
    const uint64_t before = control_bits();
    pthread_barrier_wait(&loaded);
    pthread_barrier_wait(&loaded);
    *(int *)changed = control_bits() != before || !keeps_subnormals();
    return NULL;
}

static void *loading_thread(void *unused)
{
    load_and_look();
    return unused;
}

static void in_thread(size_t stack, void *(*run)(void *), void *argument)
{
    pthread_t thread;
    pthread_attr_t attributes;
    pthread_attr_init(&attributes);
    if (stack)
        pthread_attr_setstacksize(&attributes, stack);
    if (expect(pthread_create(&thread, &attributes, run, argument) == 0, "no thread"))
        pthread_join(thread, NULL);
    pthread_attr_destroy(&attributes);
}

static void test_control_bits(void)
{
    pthread_t other;
    int changed = -1;
    begin_group("the floating-point environment");
    begin_case("in the first thread, beside another");
    pthread_barrier_init(&loaded, NULL, 2);
    if (expect(pthread_create(&other, NULL, bystander, &changed) == 0, "no thread")) {
        pthread_barrier_wait(&loaded);
        load_and_look();
        pthread_barrier_wait(&loaded);
        pthread_join(other, NULL);
        expect(changed == 0, "loading changes other threads");
    }
    begin_case("in a new thread");
    in_thread(0, loading_thread, NULL);
    begin_case("in a thread with a stack of 64 KiB");
    in_thread(STACK, loading_thread, NULL);
    end_group();
}

static long resident_pages(void)
{
    long size = 0, resident = 0;
    FILE *file = fopen("/proc/self/statm", "r");
    if (!file || fscanf(file, "%ld %ld", &size, &resident) != 2)
        resident = -1;
    if (file)
        fclose(file);
    return resident;
}

static void test_many_times(void)
{
    long early = 0;
    const float x = 1;
    begin_group("loaded and unloaded %d times", TIMES);
    begin_case("works each time");
    for (int i = 0; i < TIMES; i++) {
        library l;
        float y = 0;
        if (!load(&l))
            break;
        l.gelu(1, &x, &y);
        expect(y > 0.84f && y < 0.85f, "gelu(1) is %g", (double)y);
        unload(&l);
        if (i == TIMES / 10)
            early = resident_pages();
    }
    begin_case("no memory is lost");
    const long late = resident_pages();
    if (early < 0 || late < 0)
        expect(1, "no /proc here");
    else
        expect((late - early) * sysconf(_SC_PAGESIZE) < 1 << 19, "%ld pages, then %ld", early,
               late);
    end_group();
}

int main(int argc, char **argv)
{
    if (argc != 2) {
        fprintf(stderr, "usage: load_test SHARED_LIBRARY\n");
        return 2;
    }
    path = argv[1];
    test_control_bits();
    test_many_times();
    return end_tests();
}
