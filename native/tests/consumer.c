/* SPDX-License-Identifier: BSD-3-Clause */
/* consumer.c: a program of a user, in C99 and later: the header alone and first, twice. */
#include "fastgelu.h"

#include <float.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

/* Once more. */
#include "fastgelu.h"

static int passed, failed;

static void check(int ok, const char *what)
{
    passed += ok != 0;
    failed += ok == 0;
    if (!ok)
        printf("  consumer.c: %s\n", what);
}

int main(void)
{
    const float x[5] = {-3.0f, -1.0f, 0.0f, 1.0f, 3.0f};
    const double dy[2] = {2.0, -0.5}, at[2] = {-1.0, 2.0};
    /* to more digits than either type has */
    const double gelu_1 = 0.84134474606854294859, silu_slope_minus_1 = 0.072329488128513268211;
    const double gelu_slope_2 = 1.08523180107819689670;
    float y[5];
    double dx[2], slope;
    size_t i;
    int supported;
    const fastgelu_function *f;

    fastgelu_gelu_f32(5, x, y);
    check(fabs(y[3] / gelu_1 - 1) < 4 * FLT_EPSILON, "gelu(1)");
    check(fabs(y[1] / (gelu_1 - 1) - 1) < 4 * FLT_EPSILON, "gelu(-1)");
    check(y[2] == 0 && y[0] < 0 && y[4] > 2.9f, "gelu(-3), gelu(0), gelu(3)");
    fastgelu_silu_grad_f64(1, at, &slope);
    check(fabs(slope / silu_slope_minus_1 - 1) < 16 * DBL_EPSILON, "silu_grad(-1)");
    fastgelu_gelu_backward_f64(2, dy, at, dx);
    check(fabs(dx[1] / (-0.5 * gelu_slope_2) - 1) < 16 * DBL_EPSILON, "gelu_backward(-0.5, 2)");
    fastgelu_gelu_f32(0, NULL, NULL);

    check(strcmp(fastgelu_version(), FASTGELU_VERSION) == 0, "the version");
    check(fastgelu_max_ulp("gelu", "f32") > 0, "the bound of gelu");
    for (i = 0; fastgelu_target_name(i, &supported); i++)
        if (supported)
            check(fastgelu_set_target(fastgelu_target_name(i, NULL)) == FASTGELU_OK, "a target");
    check(fastgelu_target() != NULL, "the target");

    f = fastgelu_function_at(0);
    check(f != NULL, "a function");
    if (f && f->inputs == 1 && strcmp(f->dtype, "f32") == 0) {
        const ptrdiff_t strides[2] = {-(ptrdiff_t)sizeof *x, sizeof *y};
        char *args[2];
        float turned[5];
        args[0] = (char *)(x + 4);
        args[1] = (char *)turned;
        fastgelu_strided(f, 5, args, strides);
        ((void (*)(size_t, const float *, float *))f->kernel)(5, x, y);
        check(turned[0] == y[4] && turned[4] == y[0], "fastgelu_strided");
    }
    printf("%d passed, %d failed\n", passed, failed);
    return failed != 0;
}
