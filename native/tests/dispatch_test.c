/* SPDX-License-Identifier: BSD-3-Clause */
/* dispatch_test.c: choosing the target: by the machine, by the environment, by call, and by
 * many threads at once. What only the first call shows runs in child processes. */
#define _DEFAULT_SOURCE
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "harness.h"

enum { THREADS = 16, MOST_TARGETS = 16 };
static const char VARIABLE[] = "FASTGELU_TARGET";

static const char *supported[MOST_TARGETS], *unsupported[MOST_TARGETS];
static size_t supported_count, unsupported_count;

/* Naming the targets chooses none. */
static void list_targets(void)
{
    const char *name;
    int has;
    for (size_t i = 0; i < MOST_TARGETS && (name = fastgelu_target_name(i, &has)); i++)
        if (has)
            supported[supported_count++] = name;
        else
            unsupported[unsupported_count++] = name;
    if (supported_count == 0) {
        fprintf(stderr, "dispatch_test: no target\n");
        exit(2);
    }
}

/* ---- child processes: no fastgelu function was called in them yet ------------- */

typedef struct outcome {
    char text[64];     /* what the child answers */
    char errors[1024]; /* its standard error */
    int status;
} outcome;

static void read_all(int from, char *to, size_t size)
{
    size_t n = 0;
    ssize_t got;
    while (n + 1 < size && (got = read(from, to + n, size - 1 - n)) > 0)
        n += (size_t)got;
    to[n] = 0;
    close(from);
}

static outcome in_child(const char *variable, const char *(*run)(void))
{
    outcome o;
    int answer[2], errors[2];
    fflush(stdout);
    if (pipe(answer) || pipe(errors)) {
        perror("pipe");
        exit(2);
    }
    const pid_t pid = fork();
    if (pid == 0) {
        dup2(errors[1], 2);
        close(answer[0]);
        close(errors[0]);
        if (variable)
            setenv(VARIABLE, variable, 1);
        else
            unsetenv(VARIABLE);
        const char *text = run();
        const size_t n = strlen(text);
        _exit(write(answer[1], text, n) == (ssize_t)n ? 0 : 3);
    }
    close(answer[1]);
    close(errors[1]);
    if (pid < 0) {
        perror("fork");
        exit(2);
    }
    read_all(answer[0], o.text, sizeof o.text);
    read_all(errors[0], o.errors, sizeof o.errors);
    o.status = -1;
    waitpid(pid, &o.status, 0);
    return o;
}

static int lines(const char *text)
{
    int n = 0;
    for (; *text; text++)
        n += *text == '\n';
    return n;
}

static void expect_outcome(outcome o, const char *target, int error_lines)
{
    expect(o.status == 0, "the child ended with status %d: %s", o.status, o.errors);
    expect(strcmp(o.text, target) == 0, "%s, not %s", o.text, target);
    expect(lines(o.errors) == error_lines && (error_lines || !o.errors[0]),
           "%d lines on stderr, not %d: \"%s\"", lines(o.errors), error_lines, o.errors);
}

static const char *ask(void)
{
    return fastgelu_target();
}

static const char *compute_then_ask(void)
{
    float x = 1, y;
    for (int i = 0; i < 3; i++) /* the complaint comes once */
        fastgelu_silu_f32(1, &x, &y);
    return fastgelu_target();
}

static const char *ask_for_the_last(void)
{
    const char *last = supported[supported_count - 1];
    if (fastgelu_set_target(last) != FASTGELU_OK)
        return "an error";
    return fastgelu_target();
}

static void complaint(const char *variable)
{
    char text[600];
    const char *first = supported[0];
    begin_case("%s=%.40s", VARIABLE, variable);
    const outcome o = in_child(variable, compute_then_ask);
    expect_outcome(o, first, 1);
    snprintf(text, sizeof text, "%s=%s", VARIABLE, variable);
    expect(strstr(o.errors, text) != NULL, "\"%s\" does not name %s", o.errors, text);
    const char *named = strstr(o.errors, text);
    expect(named && strstr(named + strlen(text), first), "\"%s\" does not name %s", o.errors,
           first);
}

static void test_environment(void)
{
    char name[400];
    begin_group("%s in the environment", VARIABLE);
    begin_case("unset");
    expect_outcome(in_child(NULL, ask), supported[0], 0);
    begin_case("empty");
    expect_outcome(in_child("", ask), supported[0], 0);
    for (size_t i = 0; i < supported_count; i++) {
        begin_case("%s", supported[i]);
        expect_outcome(in_child(supported[i], ask), supported[i], 0);
        expect_outcome(in_child(supported[i], compute_then_ask), supported[i], 0);
    }
    complaint("no-such-target");
    complaint("SCALAR");
    complaint(" scalar");
    memset(name, 'x', sizeof name - 1);
    name[sizeof name - 1] = 0;
    complaint(name);
    for (size_t i = 0; i < unsupported_count; i++)
        complaint(unsupported[i]);
    begin_case("fastgelu_set_target first");
    expect_outcome(in_child(supported[0], ask_for_the_last), supported[supported_count - 1], 0);
    end_group();
}

/* ---- many first calls at once --------------------------------------------------- */

typedef struct task {
    pthread_t thread;
    const char *set; /* call fastgelu_set_target with it */
    int which, failed;
    double value;
    const char *target;
} task;

static pthread_barrier_t start;

static void compute(int which, double *value)
{
    const double x = -1.25, dy = 3;
    float x32 = -1.25f, y32;
    switch (which % 4) {
    case 0:
        fastgelu_gelu_f64(1, &x, value);
        break;
    case 1:
        fastgelu_gelu_tanh_backward_f64(1, &dy, &x, value);
        break;
    case 2:
        fastgelu_silu_grad_f32(1, &x32, &y32);
        *value = y32;
        break;
    default:
        fastgelu_gelu_sigmoid_f64(1, &x, value);
    }
}

static void *first_call(void *argument)
{
    task *k = argument;
    pthread_barrier_wait(&start);
    if (k->set)
        k->failed = fastgelu_set_target(k->set) != FASTGELU_OK;
    if (k->which % 5 == 4)
        k->target = fastgelu_target();
    compute(k->which, &k->value);
    k->target = fastgelu_target();
    return NULL;
}

static const char *set_by_one; /* NULL: by none */

static const char *first_calls(void)
{
    static task tasks[THREADS];
    const char *target = NULL;
    pthread_barrier_init(&start, NULL, THREADS);
    for (int i = 0; i < THREADS; i++) {
        tasks[i].which = i;
        tasks[i].set = i == THREADS / 2 ? set_by_one : NULL;
        if (pthread_create(&tasks[i].thread, NULL, first_call, &tasks[i]))
            return "no threads";
    }
    for (int i = 0; i < THREADS; i++)
        pthread_join(tasks[i].thread, NULL);
    target = fastgelu_target();
    for (int i = 0; i < THREADS; i++) {
        double again;
        compute(i, &again);
        if (tasks[i].failed || memcmp(&again, &tasks[i].value, sizeof again))
            return "a wrong result";
        if (!set_by_one && tasks[i].target != target)
            return "several targets";
    }
    return target;
}

static void test_first_calls(void)
{
    enum { TIMES = 1 + 60 / THINNED };
    begin_group("first calls from %d threads", THREADS);
    begin_case("by the machine");
    for (int i = 0; i < TIMES; i++)
        expect_outcome(in_child(NULL, first_calls), supported[0], 0);
    begin_case("by the environment");
    for (int i = 0; i < TIMES; i++)
        expect_outcome(in_child("scalar", first_calls), "scalar", 0);
    begin_case("an unknown target in the environment");
    for (int i = 0; i < TIMES; i++)
        expect_outcome(in_child("no-such-target", first_calls), supported[0], 1);
    begin_case("one of them sets the target");
    set_by_one = supported[supported_count - 1];
    for (int i = 0; i < TIMES; i++)
        expect_outcome(in_child(NULL, first_calls), set_by_one, 0);
    set_by_one = NULL;
    end_group();
}

/* ---- fastgelu_set_target ----------------------------------------------------------- */

static void test_codes(void)
{
    static const char *const unknown[] = {"no-such-target", "", "SCALAR", "scalar ", "scala", NULL};
    begin_group("fastgelu_set_target");
    for (size_t i = 0; i < supported_count; i++) {
        begin_case("%s", supported[i]);
        expect(fastgelu_set_target(supported[i]) == FASTGELU_OK, "refused");
        expect(strcmp(fastgelu_target(), supported[i]) == 0, "%s runs", fastgelu_target());
        for (size_t k = 0; k < sizeof unknown / sizeof unknown[0]; k++) {
            const int code = fastgelu_set_target(unknown[k]);
            expect(code == FASTGELU_UNKNOWN_TARGET, "\"%s\" gives %d",
                   unknown[k] ? unknown[k] : "(null)", code);
        }
        for (size_t k = 0; k < unsupported_count; k++) {
            const int code = fastgelu_set_target(unsupported[k]);
            expect(code == FASTGELU_UNSUPPORTED_TARGET, "%s gives %d", unsupported[k], code);
        }
        expect(strcmp(fastgelu_target(), supported[i]) == 0, "a refused one changed it to %s",
               fastgelu_target());
    }
    if (unsupported_count == 0)
        printf("%-6s FASTGELU_UNSUPPORTED_TARGET: this machine has every target\n", "--");
    end_group();
}

static void *set_and_compute(void *argument)
{
    task *k = argument;
    double value;
    compute(k->which, &k->value);
    pthread_barrier_wait(&start);
    for (int i = 0; i < 2000 / THINNED; i++) {
        if (k->which % 2)
            k->failed += fastgelu_set_target(supported[(size_t)i % supported_count]) != FASTGELU_OK;
        compute(k->which, &value);
        k->failed += memcmp(&value, &k->value, sizeof value) != 0;
        k->failed += fastgelu_target() == NULL;
    }
    return NULL;
}

static void test_concurrent_sets(void)
{
    static task tasks[THREADS];
    begin_group("fastgelu_set_target from %d threads", THREADS);
    begin_case("the same bits throughout");
    pthread_barrier_init(&start, NULL, THREADS);
    for (int i = 0; i < THREADS; i++) {
        tasks[i].which = i;
        if (pthread_create(&tasks[i].thread, NULL, set_and_compute, &tasks[i])) {
            perror("pthread_create");
            exit(2);
        }
    }
    for (int i = 0; i < THREADS; i++) {
        pthread_join(tasks[i].thread, NULL);
        expect(tasks[i].failed == 0, "thread %d: %d wrong results", i, tasks[i].failed);
    }
    end_group();
}

int main(void)
{
    list_targets();
    test_environment();
    test_first_calls();
    test_codes();
    test_concurrent_sets();
    return end_tests();
}
