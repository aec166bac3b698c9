/* SPDX-License-Identifier: BSD-3-Clause */
/* fastgelu.h: the public C interface of libfastgelu, and all of it.
 *
 * GELU, its tanh and sigmoid approximations and SiLU; their slopes (first
 * derivatives), backward passes and second derivatives; for float ("f32") and double ("f64"), and for
 * float16 ("f16") and bfloat16 ("bf16"), which are passed as their bits in uint16_t.
 *
 *   name                   result for each element
 *   gelu                   x * Phi(x), Phi the normal distribution function
 *   gelu_tanh              x * (1 + tanh(sqrt(2/pi) * (x + 0.044715 x^3))) / 2
 *   gelu_sigmoid           x * s(1.702 x), s(v) = 1 / (1 + exp(-v))
 *   silu                   x * s(x)
 *   <name>_grad            d<name>/dx at x
 *   <name>_backward        dy * <name>_grad(x); a slope too small for the type counts too
 *   <name>_grad2           the second derivative of <name> at x
 *
 * and fused functions, several of these steps in one pass over memory:
 *
 *   bias_gelu, bias_gelu_tanh, bias_gelu_sigmoid, bias_silu
 *                          the value at x + b
 *   geglu, geglu_tanh, geglu_sigmoid, swiglu
 *                          b times the value (of silu the last) at a
 *   <these>_backward       their backward passes
 *   <name>_value_and_grad  the value and the slope at x
 *
 * What holds for every function:
 *
 * Error. At most fastgelu_max_ulp(name, dtype) ULP over all inputs, subnormal
 * results included; one ULP is the spacing of the type at the exact result.
 * Values, slopes and second derivatives of f16 and bf16 are correctly rounded (0.5).
 * The truth of an approximate form is its own formula in exact arithmetic.
 * Fused functions of f32 and f64 have the bits of their steps one after the other.
 *
 * Same bits. The result for a value depends on nothing but the value: not on
 * position, n, alignment, or the instruction set that was chosen.
 *
 * Special values. value: +inf -> +inf, -inf -> -0, +-0 -> +-0. slope: +inf ->
 * 1, -inf -> -0, +-0 -> 0.5. NaN -> a quiet NaN, payload unspecified.
 * backward: dy times those slopes by the rules of IEEE 754. Second derivatives:
 * +-inf -> -0.
 *
 * Floating-point environment. Round-to-nearest is assumed. The flags invalid,
 * overflow and divide-by-zero are raised only where the result itself calls
 * for them (dy * slope overflows, 0 * inf, a signalling NaN), or a step of a
 * fused function (x + b overflows, and the value there is -0); underflow and
 * inexact are unspecified. Control bits are never changed. Subnormal numbers
 * are kept unless the caller set flush-to-zero.
 *
 * Memory. Exactly n elements are read from each input and n written to each output. An
 * input and an output may be the same array (in place); partial overlap is not
 * allowed, nor any of two outputs. Any alignment the element type allows is accepted. n = 0 is fine,
 * with null pointers too. Nothing is allocated.
 *
 * Threads. No function starts a thread; every one may be called from any
 * number of threads at once. fastgelu_set_target may too, but calls already
 * running finish with the target they began with.
 */
#ifndef FASTGELU_H
#define FASTGELU_H

#include <stddef.h>
#include <stdint.h>

#define FASTGELU_VERSION_MAJOR 0
#define FASTGELU_VERSION_MINOR 1
#define FASTGELU_VERSION_PATCH 0
#define FASTGELU_VERSION "0.1.0"

#if defined(_WIN32) && defined(FASTGELU_SHARED)
#ifdef FASTGELU_BUILDING
#define FASTGELU_API __declspec(dllexport)
#else
#define FASTGELU_API __declspec(dllimport)
#endif
#elif defined(__GNUC__)
#define FASTGELU_API __attribute__((visibility("default")))
#else
#define FASTGELU_API
#endif

#ifdef __cplusplus
extern "C" {
#endif

/* ---- values: y[i] = f(x[i]) --------------------------------------------- */

/* For i = 0 to n - 1. Error below fastgelu_max_ulp(name, dtype). +inf -> +inf,
 * -inf and large negative numbers -> -0, +-0 -> +-0, NaN -> NaN. y may be x
 * itself; partial overlap is not allowed. Any number of threads may call. With
 * n = 0 nothing is read or written, and both pointers may be null. */

FASTGELU_API void fastgelu_gelu_f32(size_t n, const float *x, float *y);
FASTGELU_API void fastgelu_gelu_f64(size_t n, const double *x, double *y);
FASTGELU_API void fastgelu_gelu_tanh_f32(size_t n, const float *x, float *y);
FASTGELU_API void fastgelu_gelu_tanh_f64(size_t n, const double *x, double *y);
FASTGELU_API void fastgelu_gelu_sigmoid_f32(size_t n, const float *x, float *y);
FASTGELU_API void fastgelu_gelu_sigmoid_f64(size_t n, const double *x, double *y);
FASTGELU_API void fastgelu_silu_f32(size_t n, const float *x, float *y);
FASTGELU_API void fastgelu_silu_f64(size_t n, const double *x, double *y);

FASTGELU_API void fastgelu_gelu_f16(size_t n, const uint16_t *x, uint16_t *y);
FASTGELU_API void fastgelu_gelu_tanh_f16(size_t n, const uint16_t *x, uint16_t *y);
FASTGELU_API void fastgelu_gelu_sigmoid_f16(size_t n, const uint16_t *x, uint16_t *y);
FASTGELU_API void fastgelu_silu_f16(size_t n, const uint16_t *x, uint16_t *y);
FASTGELU_API void fastgelu_gelu_bf16(size_t n, const uint16_t *x, uint16_t *y);
FASTGELU_API void fastgelu_gelu_tanh_bf16(size_t n, const uint16_t *x, uint16_t *y);
FASTGELU_API void fastgelu_gelu_sigmoid_bf16(size_t n, const uint16_t *x, uint16_t *y);
FASTGELU_API void fastgelu_silu_bf16(size_t n, const uint16_t *x, uint16_t *y);

/* ---- slopes: y[i] = f'(x[i]) -------------------------------------------- */

/* For i = 0 to n - 1. Error below fastgelu_max_ulp(name, dtype), also next to
 * the slope's zero (x = -0.7518 gelu, -0.7525 gelu_tanh, -0.7512 gelu_sigmoid,
 * -1.2785 silu). +inf and large numbers -> 1, -inf and large negative numbers
 * -> -0, +-0 -> 0.5, NaN -> NaN. y may be x itself; partial overlap is not
 * allowed. Any number of threads may call. With n = 0 nothing is read or
 * written, and both pointers may be null. */

FASTGELU_API void fastgelu_gelu_grad_f32(size_t n, const float *x, float *y);
FASTGELU_API void fastgelu_gelu_grad_f64(size_t n, const double *x, double *y);
FASTGELU_API void fastgelu_gelu_tanh_grad_f32(size_t n, const float *x, float *y);
FASTGELU_API void fastgelu_gelu_tanh_grad_f64(size_t n, const double *x, double *y);
FASTGELU_API void fastgelu_gelu_sigmoid_grad_f32(size_t n, const float *x, float *y);
FASTGELU_API void fastgelu_gelu_sigmoid_grad_f64(size_t n, const double *x, double *y);
FASTGELU_API void fastgelu_silu_grad_f32(size_t n, const float *x, float *y);
FASTGELU_API void fastgelu_silu_grad_f64(size_t n, const double *x, double *y);

FASTGELU_API void fastgelu_gelu_grad_f16(size_t n, const uint16_t *x, uint16_t *y);
FASTGELU_API void fastgelu_gelu_tanh_grad_f16(size_t n, const uint16_t *x, uint16_t *y);
FASTGELU_API void fastgelu_gelu_sigmoid_grad_f16(size_t n, const uint16_t *x, uint16_t *y);
FASTGELU_API void fastgelu_silu_grad_f16(size_t n, const uint16_t *x, uint16_t *y);
FASTGELU_API void fastgelu_gelu_grad_bf16(size_t n, const uint16_t *x, uint16_t *y);
FASTGELU_API void fastgelu_gelu_tanh_grad_bf16(size_t n, const uint16_t *x, uint16_t *y);
FASTGELU_API void fastgelu_gelu_sigmoid_grad_bf16(size_t n, const uint16_t *x, uint16_t *y);
FASTGELU_API void fastgelu_silu_grad_bf16(size_t n, const uint16_t *x, uint16_t *y);

/* ---- backward: dx[i] = dy[i] * f'(x[i]) --------------------------------- */

/* For i = 0 to n - 1: from the gradient dy with respect to f(x) the gradient dx
 * with respect to x. Error below fastgelu_max_ulp(name, dtype). Special values:
 * dy times the special slope above by the rules of IEEE 754, so that an
 * infinite dy at x = -inf gives NaN. dx may be dy or x itself, or all three the
 * same; partial overlap is not allowed. Any number of threads may call. With
 * n = 0 nothing is read or written, and all pointers may be null. */

FASTGELU_API void fastgelu_gelu_backward_f32(size_t n, const float *dy, const float *x, float *dx);
FASTGELU_API void fastgelu_gelu_backward_f64(size_t n, const double *dy, const double *x,
                                             double *dx);
FASTGELU_API void fastgelu_gelu_tanh_backward_f32(size_t n, const float *dy, const float *x,
                                                  float *dx);
FASTGELU_API void fastgelu_gelu_tanh_backward_f64(size_t n, const double *dy, const double *x,
                                                  double *dx);
FASTGELU_API void fastgelu_gelu_sigmoid_backward_f32(size_t n, const float *dy, const float *x,
                                                     float *dx);
FASTGELU_API void fastgelu_gelu_sigmoid_backward_f64(size_t n, const double *dy, const double *x,
                                                     double *dx);
FASTGELU_API void fastgelu_silu_backward_f32(size_t n, const float *dy, const float *x, float *dx);
FASTGELU_API void fastgelu_silu_backward_f64(size_t n, const double *dy, const double *x,
                                             double *dx);

FASTGELU_API void fastgelu_gelu_backward_f16(size_t n, const uint16_t *dy, const uint16_t *x,
                                             uint16_t *dx);
FASTGELU_API void fastgelu_gelu_tanh_backward_f16(size_t n, const uint16_t *dy, const uint16_t *x,
                                                  uint16_t *dx);
FASTGELU_API void fastgelu_gelu_sigmoid_backward_f16(size_t n, const uint16_t *dy,
                                                     const uint16_t *x, uint16_t *dx);
FASTGELU_API void fastgelu_silu_backward_f16(size_t n, const uint16_t *dy, const uint16_t *x,
                                             uint16_t *dx);
FASTGELU_API void fastgelu_gelu_backward_bf16(size_t n, const uint16_t *dy, const uint16_t *x,
                                              uint16_t *dx);
FASTGELU_API void fastgelu_gelu_tanh_backward_bf16(size_t n, const uint16_t *dy, const uint16_t *x,
                                                   uint16_t *dx);
FASTGELU_API void fastgelu_gelu_sigmoid_backward_bf16(size_t n, const uint16_t *dy,
                                                      const uint16_t *x, uint16_t *dx);
FASTGELU_API void fastgelu_silu_backward_bf16(size_t n, const uint16_t *dy, const uint16_t *x,
                                              uint16_t *dx);

/* ---- second derivatives: y[i] = f''(x[i]) ------------------------------- */

/* For i = 0 to n - 1. Even functions, positive about 0 and negative far out. Error below
 * fastgelu_max_ulp(name, dtype), also next to the zeros (|x| = sqrt(2) gelu, 1.4185 gelu_tanh,
 * 1.4097 gelu_sigmoid, 2.3994 silu); f16 and bf16 are correctly rounded. +-inf and large numbers
 * -> -0, +-0 -> sqrt(2/pi) gelu, gelu_tanh, 0.851 gelu_sigmoid, 0.5 silu, NaN -> NaN. y may be x
 * itself; partial overlap is not allowed. Any number of threads may call. With n = 0 nothing is
 * read or written, and both pointers may be null. */

FASTGELU_API void fastgelu_gelu_grad2_f32(size_t n, const float *x, float *y);
FASTGELU_API void fastgelu_gelu_tanh_grad2_f32(size_t n, const float *x, float *y);
FASTGELU_API void fastgelu_gelu_sigmoid_grad2_f32(size_t n, const float *x, float *y);
FASTGELU_API void fastgelu_silu_grad2_f32(size_t n, const float *x, float *y);
FASTGELU_API void fastgelu_gelu_grad2_f64(size_t n, const double *x, double *y);
FASTGELU_API void fastgelu_gelu_tanh_grad2_f64(size_t n, const double *x, double *y);
FASTGELU_API void fastgelu_gelu_sigmoid_grad2_f64(size_t n, const double *x, double *y);
FASTGELU_API void fastgelu_silu_grad2_f64(size_t n, const double *x, double *y);

FASTGELU_API void fastgelu_gelu_grad2_f16(size_t n, const uint16_t *x, uint16_t *y);
FASTGELU_API void fastgelu_gelu_tanh_grad2_f16(size_t n, const uint16_t *x, uint16_t *y);
FASTGELU_API void fastgelu_gelu_sigmoid_grad2_f16(size_t n, const uint16_t *x, uint16_t *y);
FASTGELU_API void fastgelu_silu_grad2_f16(size_t n, const uint16_t *x, uint16_t *y);
FASTGELU_API void fastgelu_gelu_grad2_bf16(size_t n, const uint16_t *x, uint16_t *y);
FASTGELU_API void fastgelu_gelu_tanh_grad2_bf16(size_t n, const uint16_t *x, uint16_t *y);
FASTGELU_API void fastgelu_gelu_sigmoid_grad2_bf16(size_t n, const uint16_t *x, uint16_t *y);
FASTGELU_API void fastgelu_silu_grad2_bf16(size_t n, const uint16_t *x, uint16_t *y);
/* ---- bias: y[i] = f(x[i] + b[i]) ---------------------------------------- */

/* For i = 0 to n - 1: the value of x + b, which is rounded once, to float or double;
 * for f16 and bf16 to float, and the result to these. The bound is against the exact
 * value at that sum. Special values: those of the sum, by the rules of IEEE 754, and of
 * the value there. y may be x or b itself; partial overlap is not allowed. Any number of
 * threads may call. With n = 0 nothing is read or written, and all pointers may be null. */

FASTGELU_API void fastgelu_bias_gelu_f32(size_t n, const float *x, const float *b, float *y);
FASTGELU_API void fastgelu_bias_gelu_f64(size_t n, const double *x, const double *b, double *y);
FASTGELU_API void fastgelu_bias_gelu_tanh_f32(size_t n, const float *x, const float *b, float *y);
FASTGELU_API void fastgelu_bias_gelu_tanh_f64(size_t n, const double *x, const double *b,
                                              double *y);
FASTGELU_API void fastgelu_bias_gelu_sigmoid_f32(size_t n, const float *x, const float *b,
                                                 float *y);
FASTGELU_API void fastgelu_bias_gelu_sigmoid_f64(size_t n, const double *x, const double *b,
                                                 double *y);
FASTGELU_API void fastgelu_bias_silu_f32(size_t n, const float *x, const float *b, float *y);
FASTGELU_API void fastgelu_bias_silu_f64(size_t n, const double *x, const double *b, double *y);

FASTGELU_API void fastgelu_bias_gelu_f16(size_t n, const uint16_t *x, const uint16_t *b,
                                         uint16_t *y);
FASTGELU_API void fastgelu_bias_gelu_tanh_f16(size_t n, const uint16_t *x, const uint16_t *b,
                                              uint16_t *y);
FASTGELU_API void fastgelu_bias_gelu_sigmoid_f16(size_t n, const uint16_t *x, const uint16_t *b,
                                                 uint16_t *y);
FASTGELU_API void fastgelu_bias_silu_f16(size_t n, const uint16_t *x, const uint16_t *b,
                                         uint16_t *y);
FASTGELU_API void fastgelu_bias_gelu_bf16(size_t n, const uint16_t *x, const uint16_t *b,
                                          uint16_t *y);
FASTGELU_API void fastgelu_bias_gelu_tanh_bf16(size_t n, const uint16_t *x, const uint16_t *b,
                                               uint16_t *y);
FASTGELU_API void fastgelu_bias_gelu_sigmoid_bf16(size_t n, const uint16_t *x, const uint16_t *b,
                                                  uint16_t *y);
FASTGELU_API void fastgelu_bias_silu_bf16(size_t n, const uint16_t *x, const uint16_t *b,
                                          uint16_t *y);

/* ---- bias backward: dx[i] = dy[i] * f'(x[i] + b[i]) --------------------- */

/* For i = 0 to n - 1: from the gradient dy with respect to f(x + b) the gradient dx with
 * respect to x, which is that with respect to b too. The sum is that of the forward
 * pass, and the bound is against the exact result at that sum. dx may be dy, x or b
 * itself; partial overlap is not allowed. Any number of threads may call. With n = 0
 * nothing is read or written, and all pointers may be null. */

FASTGELU_API void fastgelu_bias_gelu_backward_f32(size_t n, const float *dy, const float *x,
                                                  const float *b, float *dx);
FASTGELU_API void fastgelu_bias_gelu_backward_f64(size_t n, const double *dy, const double *x,
                                                  const double *b, double *dx);
FASTGELU_API void fastgelu_bias_gelu_tanh_backward_f32(size_t n, const float *dy, const float *x,
                                                       const float *b, float *dx);
FASTGELU_API void fastgelu_bias_gelu_tanh_backward_f64(size_t n, const double *dy, const double *x,
                                                       const double *b, double *dx);
FASTGELU_API void fastgelu_bias_gelu_sigmoid_backward_f32(size_t n, const float *dy, const float *x,
                                                          const float *b, float *dx);
FASTGELU_API void fastgelu_bias_gelu_sigmoid_backward_f64(size_t n, const double *dy,
                                                          const double *x, const double *b,
                                                          double *dx);
FASTGELU_API void fastgelu_bias_silu_backward_f32(size_t n, const float *dy, const float *x,
                                                  const float *b, float *dx);
FASTGELU_API void fastgelu_bias_silu_backward_f64(size_t n, const double *dy, const double *x,
                                                  const double *b, double *dx);

FASTGELU_API void fastgelu_bias_gelu_backward_f16(size_t n, const uint16_t *dy, const uint16_t *x,
                                                  const uint16_t *b, uint16_t *dx);
FASTGELU_API void fastgelu_bias_gelu_tanh_backward_f16(size_t n, const uint16_t *dy,
                                                       const uint16_t *x, const uint16_t *b,
                                                       uint16_t *dx);
FASTGELU_API void fastgelu_bias_gelu_sigmoid_backward_f16(size_t n, const uint16_t *dy,
                                                          const uint16_t *x, const uint16_t *b,
                                                          uint16_t *dx);
FASTGELU_API void fastgelu_bias_silu_backward_f16(size_t n, const uint16_t *dy, const uint16_t *x,
                                                  const uint16_t *b, uint16_t *dx);
FASTGELU_API void fastgelu_bias_gelu_backward_bf16(size_t n, const uint16_t *dy, const uint16_t *x,
                                                   const uint16_t *b, uint16_t *dx);
FASTGELU_API void fastgelu_bias_gelu_tanh_backward_bf16(size_t n, const uint16_t *dy,
                                                        const uint16_t *x, const uint16_t *b,
                                                        uint16_t *dx);
FASTGELU_API void fastgelu_bias_gelu_sigmoid_backward_bf16(size_t n, const uint16_t *dy,
                                                           const uint16_t *x, const uint16_t *b,
                                                           uint16_t *dx);
FASTGELU_API void fastgelu_bias_silu_backward_bf16(size_t n, const uint16_t *dy, const uint16_t *x,
                                                   const uint16_t *b, uint16_t *dx);

/* ---- gated: y[i] = f(a[i]) * b[i] --------------------------------------- */

/* For i = 0 to n - 1: geglu of gelu, geglu_tanh, geglu_sigmoid, and swiglu of silu. The
 * value is rounded before the product, in f16 and bf16 to float. Where that is
 * subnormal (a below -13.1, -10.1, -53.6, -91.8 in float) its rounding is not in the
 * bound. Special values: b times the value's, by the rules of IEEE 754: -0 * b for a = -inf, so NaN for
 * an infinite b. y may be a or b itself; partial overlap is not allowed. Any number of
 * threads may call. With n = 0 nothing is read or written, and all pointers may be null. */

FASTGELU_API void fastgelu_geglu_f32(size_t n, const float *a, const float *b, float *y);
FASTGELU_API void fastgelu_geglu_f64(size_t n, const double *a, const double *b, double *y);
FASTGELU_API void fastgelu_geglu_tanh_f32(size_t n, const float *a, const float *b, float *y);
FASTGELU_API void fastgelu_geglu_tanh_f64(size_t n, const double *a, const double *b, double *y);
FASTGELU_API void fastgelu_geglu_sigmoid_f32(size_t n, const float *a, const float *b, float *y);
FASTGELU_API void fastgelu_geglu_sigmoid_f64(size_t n, const double *a, const double *b, double *y);
FASTGELU_API void fastgelu_swiglu_f32(size_t n, const float *a, const float *b, float *y);
FASTGELU_API void fastgelu_swiglu_f64(size_t n, const double *a, const double *b, double *y);

FASTGELU_API void fastgelu_geglu_f16(size_t n, const uint16_t *a, const uint16_t *b, uint16_t *y);
FASTGELU_API void fastgelu_geglu_tanh_f16(size_t n, const uint16_t *a, const uint16_t *b,
                                          uint16_t *y);
FASTGELU_API void fastgelu_geglu_sigmoid_f16(size_t n, const uint16_t *a, const uint16_t *b,
                                             uint16_t *y);
FASTGELU_API void fastgelu_swiglu_f16(size_t n, const uint16_t *a, const uint16_t *b, uint16_t *y);
FASTGELU_API void fastgelu_geglu_bf16(size_t n, const uint16_t *a, const uint16_t *b, uint16_t *y);
FASTGELU_API void fastgelu_geglu_tanh_bf16(size_t n, const uint16_t *a, const uint16_t *b,
                                           uint16_t *y);
FASTGELU_API void fastgelu_geglu_sigmoid_bf16(size_t n, const uint16_t *a, const uint16_t *b,
                                              uint16_t *y);
FASTGELU_API void fastgelu_swiglu_bf16(size_t n, const uint16_t *a, const uint16_t *b, uint16_t *y);

/* ---- gated backward: da[i] = dy[i] * b[i] * f'(a[i]), db[i] = dy[i] * f(a[i]) --- */

/* For i = 0 to n - 1: from the gradient dy with respect to f(a) * b the gradients with
 * respect to a and b. dy * b is the first product, rounded, in f16 and bf16 to float;
 * then da is that of the backward pass of f for it, and db the product with the rounded
 * value. Where dy * b or that value is subnormal its rounding is not in the bound, and
 * where dy * b overflows da is infinite. Each of da and db may be any of the
 * inputs, but da and db may not overlap; partial overlap is not allowed. Any number of
 * threads may call. With n = 0 nothing is read or written, and all pointers may be null. */

FASTGELU_API void fastgelu_geglu_backward_f32(size_t n, const float *dy, const float *a,
                                              const float *b, float *da, float *db);
FASTGELU_API void fastgelu_geglu_backward_f64(size_t n, const double *dy, const double *a,
                                              const double *b, double *da, double *db);
FASTGELU_API void fastgelu_geglu_tanh_backward_f32(size_t n, const float *dy, const float *a,
                                                   const float *b, float *da, float *db);
FASTGELU_API void fastgelu_geglu_tanh_backward_f64(size_t n, const double *dy, const double *a,
                                                   const double *b, double *da, double *db);
FASTGELU_API void fastgelu_geglu_sigmoid_backward_f32(size_t n, const float *dy, const float *a,
                                                      const float *b, float *da, float *db);
FASTGELU_API void fastgelu_geglu_sigmoid_backward_f64(size_t n, const double *dy, const double *a,
                                                      const double *b, double *da, double *db);
FASTGELU_API void fastgelu_swiglu_backward_f32(size_t n, const float *dy, const float *a,
                                               const float *b, float *da, float *db);
FASTGELU_API void fastgelu_swiglu_backward_f64(size_t n, const double *dy, const double *a,
                                               const double *b, double *da, double *db);

FASTGELU_API void fastgelu_geglu_backward_f16(size_t n, const uint16_t *dy, const uint16_t *a,
                                              const uint16_t *b, uint16_t *da, uint16_t *db);
FASTGELU_API void fastgelu_geglu_tanh_backward_f16(size_t n, const uint16_t *dy, const uint16_t *a,
                                                   const uint16_t *b, uint16_t *da, uint16_t *db);
FASTGELU_API void fastgelu_geglu_sigmoid_backward_f16(size_t n, const uint16_t *dy,
                                                      const uint16_t *a, const uint16_t *b,
                                                      uint16_t *da, uint16_t *db);
FASTGELU_API void fastgelu_swiglu_backward_f16(size_t n, const uint16_t *dy, const uint16_t *a,
                                               const uint16_t *b, uint16_t *da, uint16_t *db);
FASTGELU_API void fastgelu_geglu_backward_bf16(size_t n, const uint16_t *dy, const uint16_t *a,
                                               const uint16_t *b, uint16_t *da, uint16_t *db);
FASTGELU_API void fastgelu_geglu_tanh_backward_bf16(size_t n, const uint16_t *dy, const uint16_t *a,
                                                    const uint16_t *b, uint16_t *da, uint16_t *db);
FASTGELU_API void fastgelu_geglu_sigmoid_backward_bf16(size_t n, const uint16_t *dy,
                                                       const uint16_t *a, const uint16_t *b,
                                                       uint16_t *da, uint16_t *db);
FASTGELU_API void fastgelu_swiglu_backward_bf16(size_t n, const uint16_t *dy, const uint16_t *a,
                                                const uint16_t *b, uint16_t *da, uint16_t *db);

/* ---- value and slope: y[i] = f(x[i]), slope[i] = f'(x[i]) --------------- */

/* For i = 0 to n - 1: the results of the two functions, to the bit. Each of y and slope may
 * be x itself, but y and slope may not overlap; partial overlap is not allowed. Any
 * number of threads may call. With n = 0 nothing is read or written, and all pointers
 * may be null. */

FASTGELU_API void fastgelu_gelu_value_and_grad_f32(size_t n, const float *x, float *y,
                                                   float *slope);
FASTGELU_API void fastgelu_gelu_value_and_grad_f64(size_t n, const double *x, double *y,
                                                   double *slope);
FASTGELU_API void fastgelu_gelu_tanh_value_and_grad_f32(size_t n, const float *x, float *y,
                                                        float *slope);
FASTGELU_API void fastgelu_gelu_tanh_value_and_grad_f64(size_t n, const double *x, double *y,
                                                        double *slope);
FASTGELU_API void fastgelu_gelu_sigmoid_value_and_grad_f32(size_t n, const float *x, float *y,
                                                           float *slope);
FASTGELU_API void fastgelu_gelu_sigmoid_value_and_grad_f64(size_t n, const double *x, double *y,
                                                           double *slope);
FASTGELU_API void fastgelu_silu_value_and_grad_f32(size_t n, const float *x, float *y,
                                                   float *slope);
FASTGELU_API void fastgelu_silu_value_and_grad_f64(size_t n, const double *x, double *y,
                                                   double *slope);

FASTGELU_API void fastgelu_gelu_value_and_grad_f16(size_t n, const uint16_t *x, uint16_t *y,
                                                   uint16_t *slope);
FASTGELU_API void fastgelu_gelu_tanh_value_and_grad_f16(size_t n, const uint16_t *x, uint16_t *y,
                                                        uint16_t *slope);
FASTGELU_API void fastgelu_gelu_sigmoid_value_and_grad_f16(size_t n, const uint16_t *x, uint16_t *y,
                                                           uint16_t *slope);
FASTGELU_API void fastgelu_silu_value_and_grad_f16(size_t n, const uint16_t *x, uint16_t *y,
                                                   uint16_t *slope);
FASTGELU_API void fastgelu_gelu_value_and_grad_bf16(size_t n, const uint16_t *x, uint16_t *y,
                                                    uint16_t *slope);
FASTGELU_API void fastgelu_gelu_tanh_value_and_grad_bf16(size_t n, const uint16_t *x, uint16_t *y,
                                                         uint16_t *slope);
FASTGELU_API void fastgelu_gelu_sigmoid_value_and_grad_bf16(size_t n, const uint16_t *x,
                                                            uint16_t *y, uint16_t *slope);
FASTGELU_API void fastgelu_silu_value_and_grad_bf16(size_t n, const uint16_t *x, uint16_t *y,
                                                    uint16_t *slope);

/* ---- the library itself ------------------------------------------------- */

/* The version of the library that is running, such as "0.1.0". */
FASTGELU_API const char *fastgelu_version(void);

/* The instruction set in use: "scalar", "avx2", ... Chosen at the first call
 * of any function: the best that the machine has, or the one that the
 * environment variable FASTGELU_TARGET names. Where that names an unknown or
 * unsupported one, one line on stderr says so and the best is taken. */
FASTGELU_API const char *fastgelu_target(void);

#define FASTGELU_OK 0
#define FASTGELU_UNKNOWN_TARGET 1     /* not compiled into this library */
#define FASTGELU_UNSUPPORTED_TARGET 2 /* this machine lacks it */

/* Chooses the instruction set by name. Returns FASTGELU_OK, or another of the
 * codes above and changes nothing. */
FASTGELU_API int fastgelu_set_target(const char *name);

/* The names of the instruction sets that this machine has, best first, and NULL
 * at the end. Each is accepted by fastgelu_set_target; the first is the one
 * that is chosen where nothing else is asked for. */
FASTGELU_API const char *const *fastgelu_targets(void);

/* The index-th target compiled in, best first, or NULL past the last.
 * *supported (unless null) says whether this machine has it. */
FASTGELU_API const char *fastgelu_target_name(size_t index, int *supported);

/* One registered function of one dtype. */
typedef struct fastgelu_function {
    const char *name;     /* "gelu_grad" */
    const char *dtype;    /* "f32", "f64", "f16" or "bf16" */
    int inputs;           /* 1, or 2 for backward; up to 3 for fused functions */
    double max_ulp;       /* the guaranteed error bound, of every output */
    void (*kernel)(void); /* cast to the prototype above that name and dtype give */
    void (*stream)(void); /* likewise: fastgelu_stream for aligned elements */
    int outputs;          /* 1, or 2 */
    const char *form;     /* of a fused function, the one that it is made of: "gelu"; or null */
} fastgelu_function;

/* The index-th registered function, or NULL past the last. */
FASTGELU_API const fastgelu_function *fastgelu_function_at(size_t index);

/* The registered function of that name and dtype, or NULL where there is none. */
FASTGELU_API const fastgelu_function *fastgelu_find_function(const char *name, const char *dtype);

/* The error bound in ULP, or -1 for an unknown name or dtype. */
FASTGELU_API double fastgelu_max_ulp(const char *name, const char *dtype);

/* Any registered function over byte strides (positive, zero or negative):
 * args holds the inputs, then the outputs; strides likewise. Elements may be
 * unaligned. Each input must be an output exactly, element for element, or
 * not overlap it; two outputs do not overlap. What lies between the elements of
 * an input may be read, without a use; between those of an output nothing is
 * written. Same bits as the contiguous call. */
FASTGELU_API void fastgelu_strided(const fastgelu_function *function, size_t n, char *const args[],
                                   const ptrdiff_t strides[]);

/* Any registered function over contiguous arrays, with stores past the caches where the
 * instruction set has them: for an output larger than the last-level cache, whose old contents are
 * then not read in first. args holds the inputs, then the outputs, which should be none of them: in
 * place is right, but slow. Elements may be unaligned. Same bits as the other calls. The library
 * cannot tell when this pays: it may be one of many threads with a part each. */
FASTGELU_API void fastgelu_stream(const fastgelu_function *function, size_t n, char *const args[]);

#ifdef __cplusplus
}
#endif

#endif /* FASTGELU_H */
