// SPDX-License-Identifier: BSD-3-Clause
// ffn.cpp: ffn.c in C++: forward and backward pass of a small feed-forward layer with GELU.
//
//   c++ -std=c++17 ffn.cpp $(python -m fastgelu config --cflags --libs) -o ffn && ./ffn
#include <fastgelu.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <vector>

namespace
{

// A matrix by rows.
struct Matrix {
    int rows, columns;
    std::vector<double> values;

    Matrix(int m, int n) : rows(m), columns(n), values(static_cast<std::size_t>(m) * n)
    {
    }
    double &operator()(int i, int j)
    {
        return values[static_cast<std::size_t>(i) * columns + j];
    }
    double operator()(int i, int j) const
    {
        return values[static_cast<std::size_t>(i) * columns + j];
    }
};

Matrix operator*(const Matrix &a, const Matrix &b)
{
    Matrix c(a.rows, b.columns);
    for (int i = 0; i < c.rows; i++)
        for (int j = 0; j < c.columns; j++) {
            double sum = 0;
            for (int l = 0; l < a.columns; l++)
                sum += a(i, l) * b(l, j);
            c(i, j) = sum;
        }
    return c;
}

Matrix transposed(const Matrix &a)
{
    Matrix t(a.columns, a.rows);
    for (int i = 0; i < a.rows; i++)
        for (int j = 0; j < a.columns; j++)
            t(j, i) = a(i, j);
    return t;
}

Matrix gelu(Matrix h)
{
    fastgelu_gelu_f64(h.values.size(), h.values.data(), h.values.data()); // in place
    return h;
}

Matrix gelu_backward(Matrix dg, const Matrix &h)
{
    double *d = dg.values.data();
    fastgelu_gelu_backward_f64(h.values.size(), d, h.values.data(), d);
    return dg;
}

// Half the sum of the squares of y = gelu(x A) B.
double loss(const Matrix &x, const Matrix &a, const Matrix &b)
{
    double sum = 0;
    for (double y : (gelu(x * a) * b).values)
        sum += y * y / 2;
    return sum;
}

} // namespace

int main()
{
    Matrix x(5, 4), a(4, 16), b(16, 4);
    for (int i = 0; i < 20; i++)
        x.values[i] = (i * 37 % 41 - 20) / 10.0;
    for (int i = 0; i < 64; i++) {
        a.values[i] = (i * 29 % 31 - 15) / 16.0;
        b.values[i] = (i * 23 % 29 - 14) / 16.0;
    }
    const Matrix h = x * a, g = gelu(h), y = g * b;
    const Matrix &dy = y; // the gradient of the loss
    const Matrix db = transposed(g) * dy, dh = gelu_backward(dy * transposed(b), h);
    const Matrix da = transposed(x) * dh, dx = dh * transposed(a);

    const double total = loss(x, a, b);
    std::printf("loss %.9g\n", total);
    std::printf("dx   %.9g %.9g ...\n", dx(0, 0), dx(0, 1));
    std::printf("dA   %.9g %.9g ...\n", da(0, 0), da(0, 1));
    std::printf("dB   %.9g %.9g ...\n", db(0, 0), db(0, 1));

    const double step = 1.0 / (1 << 17);
    double worst = 0;
    auto compare = [&](Matrix &parameter, const Matrix &gradient) {
        for (std::size_t i = 0; i < parameter.values.size(); i++) {
            const double kept = parameter.values[i];
            parameter.values[i] = kept + step;
            const double above = loss(x, a, b);
            parameter.values[i] = kept - step;
            const double below = loss(x, a, b);
            parameter.values[i] = kept;
            worst = std::max(worst, std::fabs((above - below) / (2 * step) - gradient.values[i]));
        }
    };
    compare(x, dx);
    compare(a, da);
    compare(b, db);
    const bool ok = worst < 1e-6 * total;
    std::printf("finite differences %s\n", ok ? "agree" : "DISAGREE");
    return !ok;
}
