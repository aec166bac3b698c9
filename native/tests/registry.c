/* SPDX-License-Identifier: BSD-3-Clause */
/* registry.c: the functions, bounds, targets and version that the library reports.
 *
 *   registry            the tests
 *   registry --targets  the names of the targets of this machine, for scripts */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "harness.h"
#include "internal.h"

static const char *const names[] = {
    "gelu",
    "gelu_grad",
    "gelu_backward",
    "gelu_tanh",
    "gelu_tanh_grad",
    "gelu_tanh_backward",
    "gelu_sigmoid",
    "gelu_sigmoid_grad",
    "gelu_sigmoid_backward",
    "silu",
    "silu_grad",
    "silu_backward",
    /* fused */
    "bias_gelu",
    "bias_gelu_backward",
    "geglu",
    "geglu_backward",
    "gelu_value_and_grad",
    "bias_gelu_tanh",
    "bias_gelu_tanh_backward",
    "geglu_tanh",
    "geglu_tanh_backward",
    "gelu_tanh_value_and_grad",
    "bias_gelu_sigmoid",
    "bias_gelu_sigmoid_backward",
    "geglu_sigmoid",
    "geglu_sigmoid_backward",
    "gelu_sigmoid_value_and_grad",
    "bias_silu",
    "bias_silu_backward",
    "swiglu",
    "swiglu_backward",
    "silu_value_and_grad",
};
static const char *const dtypes[] = {"f32", "f64", "f16", "bf16"};
enum { NAMES = sizeof names / sizeof names[0], DTYPES = sizeof dtypes / sizeof dtypes[0] };

/* The symbols of functions.def; the linker checks that they exist. */
static const struct {
    const char *name, *dtype;
    int inputs, outputs;
    const char *form;
    void (*symbol)(void);
} symbols[] = {
#define FG_FUNCTION(name, dtype, inputs, max_ulp) \
    {#name, #dtype, inputs, 1, NULL, (void (*)(void))fastgelu_##name##_##dtype},
#define FG_FUSED(name, dtype, shape, form) \
    {#name,                                \
     #dtype,                               \
     FG_INPUTS_##shape,                    \
     FG_OUTPUTS_##shape,                   \
     #form,                                \
     (void (*)(void))fastgelu_##name##_##dtype},
#include "functions.def"
};
enum { SYMBOLS = sizeof symbols / sizeof symbols[0] };

static void test_every_name_and_dtype(void)
{
    for (size_t i = 0; i < NAMES * DTYPES; i++) {
        const char *name = names[i / DTYPES], *dtype = dtypes[i % DTYPES];
        const fastgelu_function *f;
        int found = 0;
        begin_case("%s %s", name, dtype);
        for (size_t j = 0; (f = fastgelu_function_at(j)); j++) {
            if (strcmp(f->name, name) || strcmp(f->dtype, dtype))
                continue;
            found++;
            expect(f->max_ulp >= 0.5 && isfinite(f->max_ulp), "a bound of %g", f->max_ulp);
            expect(fastgelu_max_ulp(name, dtype) == f->max_ulp, "fastgelu_max_ulp says %g, not %g",
                   fastgelu_max_ulp(name, dtype), f->max_ulp);
            expect(f->kernel != NULL, "no kernel");
            expect(fastgelu_find_function(name, dtype) == f, "fastgelu_find_function errs");
        }
        expect(found == 1, "registered %d times", found);
    }
}

static void test_every_entry(void)
{
    const fastgelu_function *f;
    size_t n = 0;
    for (; (f = fastgelu_function_at(n)); n++) {
        int known = 0;
        begin_case("%s %s", f->name, f->dtype);
        for (size_t i = 0; i < NAMES * DTYPES; i++)
            known += strcmp(names[i / DTYPES], f->name) == 0 &&
                     strcmp(dtypes[i % DTYPES], f->dtype) == 0;
        expect(known == 1, "this test does not know it");
        expect(format_of(f) != NULL, "a dtype that the tests do not know");
        if (expect(n < SYMBOLS, "functions.def has %d lines", SYMBOLS)) {
            expect(strcmp(symbols[n].name, f->name) == 0 && strcmp(symbols[n].dtype, f->dtype) == 0,
                   "functions.def has %s %s here", symbols[n].name, symbols[n].dtype);
            expect(symbols[n].inputs == f->inputs && symbols[n].outputs == f->outputs,
                   "functions.def has %d inputs, %d outputs", symbols[n].inputs,
                   symbols[n].outputs);
            expect(symbols[n].form ? f->form && strcmp(symbols[n].form, f->form) == 0 : !f->form,
                   "functions.def has another form");
            expect(symbols[n].symbol == f->kernel, "another kernel than the public symbol");
        }
    }
    begin_case("the end");
    expect(n == SYMBOLS, "%d functions, %d lines in functions.def", (int)n, SYMBOLS);
    expect(!fastgelu_function_at(n + 1) && !fastgelu_function_at((size_t)-1), "no end");
}

static double bound(const char *form, const char *suffix, const char *dtype)
{
    char name[64];
    snprintf(name, sizeof name, "%s%s", form, suffix);
    return fastgelu_max_ulp(name, dtype);
}

/* The bounds of fused functions follow from those of their form. */
static void test_fused_bounds(void)
{
    const fastgelu_function *f;
    for (size_t i = 0; (f = fastgelu_function_at(i)); i++) {
        if (!is_fused(f))
            continue;
        begin_case("%s %s", f->name, f->dtype);
        const double value = bound(f->form, "", f->dtype),
                     slope = bound(f->form, "_grad", f->dtype);
        const double backward = bound(f->form, "_backward", f->dtype), product = 2 * value + 0.5;
        double want = f->inputs == 1 ? fmax(value, slope) : 0.501;
        if (strlen(f->dtype) == 3 && f->dtype[1] != '1' && f->inputs > 1)
            want = strncmp(f->name, "bias_", 5) == 0 ? f->inputs == 3 ? backward : value
                   : f->inputs == 3                  ? fmax(backward + 1, product)
                                                     : product;
        expect(fabs(f->max_ulp - want) < 1e-9, "a bound of %.17g, not %.17g", f->max_ulp, want);
    }
}

static void test_unknown(void)
{
    static const char *const unknown[][2] = {
        {"gelu", "f80"}, {"gelu", ""},   {"relu", "f32"},       {"", "f32"},   {"GELU", "f32"},
        {"gelu", "F32"}, {"gel", "f32"}, {"gelu_grad_", "f32"}, {NULL, "f32"}, {"gelu", NULL},
    };
    for (size_t i = 0; i < sizeof unknown / sizeof unknown[0]; i++) {
        const double got = fastgelu_max_ulp(unknown[i][0], unknown[i][1]);
        begin_case("case %d", (int)i);
        expect(got == -1, "fastgelu_max_ulp(\"%s\", \"%s\") is %g",
               unknown[i][0] ? unknown[i][0] : "(null)", unknown[i][1] ? unknown[i][1] : "(null)",
               got);
        expect(!fastgelu_find_function(unknown[i][0], unknown[i][1]), "found");
    }
}

static void test_targets(void)
{
    const char *name, *last = NULL;
    int supported = -1;
    for (size_t i = 0; (name = fastgelu_target_name(i, &supported)); i++) {
        begin_case("%s", name);
        expect(supported == 0 || supported == 1, "supported is %d", supported);
        expect(fastgelu_target_name(i, NULL) == name, "another name without the second argument");
        for (size_t j = 0; j < i; j++)
            expect(strcmp(fastgelu_target_name(j, NULL), name) != 0, "listed twice");
        last = name;
    }
    begin_case("the last");
    expect(last && strcmp(last, "scalar") == 0, "%s, not scalar", last ? last : "nothing");
    last = NULL;
    for (size_t i = 0; (name = fastgelu_target_name(i, &supported)); i++)
        last = supported ? name : last;
    expect(last && strcmp(last, "scalar") == 0, "this machine lacks the scalar target");
    const char *const *has = fastgelu_targets();
    begin_case("fastgelu_targets");
    for (size_t i = 0; (name = fastgelu_target_name(i, &supported)); i++)
        if (supported && expect(*has != NULL, "%s is not listed", name)) {
            expect(strcmp(*has, name) == 0, "%s, not %s", *has, name);
            has++;
        }
    expect(*has == NULL, "%s is listed", *has ? *has : "");
    begin_case("past the last");
    expect(!fastgelu_target_name((size_t)-1, &supported), "no end");
}

static void test_version(void)
{
    char joined[64];
    begin_case("library and header");
    expect(strcmp(fastgelu_version(), FASTGELU_VERSION) == 0, "%s, and the header %s",
           fastgelu_version(), FASTGELU_VERSION);
    begin_case("numbers and text");
    snprintf(joined, sizeof joined, "%d.%d.%d", FASTGELU_VERSION_MAJOR, FASTGELU_VERSION_MINOR,
             FASTGELU_VERSION_PATCH);
    expect(strcmp(joined, FASTGELU_VERSION) == 0, "%s, not %s", joined, FASTGELU_VERSION);
}

int main(int argc, char **argv)
{
    if (argc > 1 && strcmp(argv[1], "--targets") == 0) {
        const char *name;
        int supported;
        for (size_t i = 0; (name = fastgelu_target_name(i, &supported)); i++)
            if (supported)
                puts(name);
        return 0;
    }
    begin_group("every name and dtype");
    test_every_name_and_dtype();
    end_group();
    begin_group("every entry of the registry");
    test_every_entry();
    end_group();
    begin_group("bounds of fused functions");
    test_fused_bounds();
    end_group();
    begin_group("unknown names");
    test_unknown();
    end_group();
    begin_group("list of targets");
    test_targets();
    end_group();
    begin_group("version");
    test_version();
    end_group();
    return end_tests();
}
