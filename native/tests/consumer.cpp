// SPDX-License-Identifier: BSD-3-Clause
// consumer.cpp: a program of a user, in C++11 and later: the header alone and first, twice.
#include "fastgelu.h"

#include <cfloat>
#include <cmath>
#include <cstdio>
#include <cstring>
#include <vector>

// Once more.
#include "fastgelu.h"

static int passed, failed;

static void check(bool ok, const char *what)
{
    (ok ? passed : failed)++;
    if (!ok)
        std::printf("  consumer.cpp: %s\n", what);
}

int main()
{
    const double gelu_1 = 0.84134474606854294859; // to more digits than either type has
    const std::vector<double> x{-1.0, 0.0, 1.0};
    std::vector<double> y(x.size());
    fastgelu_gelu_f64(x.size(), x.data(), y.data());
    check(std::fabs(y[2] / gelu_1 - 1) < 16 * DBL_EPSILON, "gelu(1)");
    check(std::fabs(y[0] / (gelu_1 - 1) - 1) < 16 * DBL_EPSILON, "gelu(-1)");
    check(y[1] == 0, "gelu(0)");

    std::vector<float> z{1.0f, 0.0f};
    fastgelu_silu_f32(z.size(), z.data(), z.data());
    check(std::fabs(z[0] / 0.7310585786300049 - 1) < 4 * FLT_EPSILON, "silu(1)");
    fastgelu_silu_f32(0, nullptr, nullptr);

    for (size_t i = 0; const fastgelu_function *f = fastgelu_function_at(i); i++)
        check(f->max_ulp > 0 && f->max_ulp == fastgelu_max_ulp(f->name, f->dtype), f->name);
    check(fastgelu_set_target(fastgelu_target()) == FASTGELU_OK, "the target");
    check(fastgelu_set_target("no-such-target") == FASTGELU_UNKNOWN_TARGET, "an unknown target");
    check(std::strcmp(fastgelu_version(), FASTGELU_VERSION) == 0, "the version");
    std::printf("%d passed, %d failed\n", passed, failed);
    return failed != 0;
}
