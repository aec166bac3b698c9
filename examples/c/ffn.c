/* SPDX-License-Identifier: BSD-3-Clause */
/* ffn.c: forward and backward pass of a small feed-forward layer with GELU, checked against
 * finite differences.
 *
 *   cc ffn.c $(python -m fastgelu config --cflags --libs) -lm -o ffn && ./ffn */
#include <fastgelu.h>
#include <math.h>
#include <stdio.h>

enum { ROWS = 5, WIDTH = 4, HIDDEN = 16 };

/* y = gelu(x A) B for ROWS vectors x at once; matrices by rows. */
typedef struct layer {
    double a[WIDTH * HIDDEN], b[HIDDEN * WIDTH];
    double h[ROWS * HIDDEN], g[ROWS * HIDDEN]; /* x A and gelu(x A), kept for the way back */
} layer;

/* c = a b; a is m by k, b k by n. */
static void multiply(int m, int k, int n, const double *a, const double *b, double *c)
{
    for (int i = 0; i < m; i++)
        for (int j = 0; j < n; j++) {
            double sum = 0;
            for (int l = 0; l < k; l++)
                sum += a[i * k + l] * b[l * n + j];
            c[i * n + j] = sum;
        }
}

/* t = a', a is m by n. */
static void transpose(int m, int n, const double *a, double *t)
{
    for (int i = 0; i < m; i++)
        for (int j = 0; j < n; j++)
            t[j * m + i] = a[i * n + j];
}

static void forward(layer *f, const double *x, double *y)
{
    multiply(ROWS, WIDTH, HIDDEN, x, f->a, f->h);
    fastgelu_gelu_f64(ROWS * HIDDEN, f->h, f->g);
    multiply(ROWS, HIDDEN, WIDTH, f->g, f->b, y);
}

/* From the gradient dy of a loss with respect to y, those with respect to x, A and B. */
static void backward(const layer *f, const double *x, const double *dy, double *dx, double *da,
                     double *db)
{
    double t[ROWS * HIDDEN], dh[ROWS * HIDDEN];
    transpose(ROWS, HIDDEN, f->g, t);
    multiply(HIDDEN, ROWS, WIDTH, t, dy, db);
    transpose(HIDDEN, WIDTH, f->b, t);
    multiply(ROWS, WIDTH, HIDDEN, dy, t, dh);
    fastgelu_gelu_backward_f64(ROWS * HIDDEN, dh, f->h, dh); /* in place */
    transpose(ROWS, WIDTH, x, t);
    multiply(WIDTH, ROWS, HIDDEN, t, dh, da);
    transpose(WIDTH, HIDDEN, f->a, t);
    multiply(ROWS, HIDDEN, WIDTH, dh, t, dx);
}

/* Half the sum of squares; its gradient with respect to y is y. */
static double loss(layer *f, const double *x)
{
    double y[ROWS * WIDTH], sum = 0;
    forward(f, x, y);
    for (int i = 0; i < ROWS * WIDTH; i++)
        sum += y[i] * y[i] / 2;
    return sum;
}

/* The largest difference between a gradient and central differences of the loss. */
static double difference(layer *f, const double *x, double *parameter, int n, const double *grad)
{
    const double step = 1.0 / (1 << 17);
    double worst = 0;
    for (int i = 0; i < n; i++) {
        const double kept = parameter[i];
        parameter[i] = kept + step;
        const double above = loss(f, x);
        parameter[i] = kept - step;
        const double below = loss(f, x);
        parameter[i] = kept;
        worst = fmax(worst, fabs((above - below) / (2 * step) - grad[i]));
    }
    return worst;
}

int main(void)
{
    static layer f;
    double x[ROWS * WIDTH], y[ROWS * WIDTH], dx[ROWS * WIDTH], da[WIDTH * HIDDEN];
    double db[HIDDEN * WIDTH], worst, sum = 0;
    int ok;
    /* some numbers between -2 and 2 */
    for (int i = 0; i < ROWS * WIDTH; i++)
        x[i] = (i * 37 % 41 - 20) / 10.0;
    for (int i = 0; i < WIDTH * HIDDEN; i++) {
        f.a[i] = (i * 29 % 31 - 15) / 16.0;
        f.b[i] = (i * 23 % 29 - 14) / 16.0;
    }
    forward(&f, x, y);
    backward(&f, x, y, dx, da, db);
    for (int i = 0; i < ROWS * WIDTH; i++)
        sum += y[i] * y[i] / 2;
    printf("loss %.9g\n", sum);
    printf("dx   %.9g %.9g ...\n", dx[0], dx[1]);
    printf("dA   %.9g %.9g ...\n", da[0], da[1]);
    printf("dB   %.9g %.9g ...\n", db[0], db[1]);

    worst = difference(&f, x, x, ROWS * WIDTH, dx);
    worst = fmax(worst, difference(&f, x, f.a, WIDTH * HIDDEN, da));
    worst = fmax(worst, difference(&f, x, f.b, HIDDEN * WIDTH, db));
    ok = worst < 1e-6 * sum;
    printf("finite differences %s\n", ok ? "agree" : "DISAGREE");
    return !ok;
}
