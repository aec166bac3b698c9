/* SPDX-License-Identifier: BSD-3-Clause */
/* harness.h: what the test programs share: counting, targets, and numbers as bits.
 *
 * A program runs groups of cases. A case is usually one registered function; it fails if
 * any expectation in it does. Each group prints one line, the program ends with
 * "N passed, N failed", and nothing that was run counts as a failure. */
#ifndef HARNESS_H
#define HARNESS_H

#include <stddef.h>
#include <stdint.h>

#include "fastgelu.h"

#define PRINTF_LIKE(text, first) __attribute__((__format__(__printf__, text, first)))

/* A build for the sanitizers or an emulator: the sweeps are thinned by this factor. */
#ifndef THINNED
#define THINNED 1
#endif

/* ---- counting ----------------------------------------------------------- */

void begin_group(const char *message, ...) PRINTF_LIKE(1, 2);
void begin_case(const char *message, ...) PRINTF_LIKE(1, 2);
int expect(int ok, const char *message, ...) PRINTF_LIKE(2, 3); /* returns ok */
void end_group(void);
int end_tests(void); /* the exit status */

/* ---- number formats, as bits -------------------------------------------- */

typedef uint64_t bits;

typedef struct format {
    const char *name;  /* as in the registry */
    size_t size;       /* bytes an element */
    int fraction_bits; /* stored bits of the significand */
    void (*call)(const fastgelu_function *f, size_t n, const void *dy, const void *x, void *y);
} format;

/* NULL where these tests do not know the dtype: they must learn it. */
const format *format_of(const fastgelu_function *f);

bits sign_bit(const format *t);
bits infinity(const format *t);
bits quiet_bit(const format *t); /* the first bit of the fraction */
bits largest(const format *t);
bits smallest_normal(const format *t);
bits encode(const format *t, double value); /* to the nearest */
double decode(const format *t, bits b);

int is_nan(const format *t, bits b);
int is_signalling(const format *t, bits b);
int is_infinite(const format *t, bits b);
int is_zero(const format *t, bits b);
int is_negative(const format *t, bits b);
/* One encoding for every NaN, since sign and payload are unspecified. */
bits canonical(const format *t, bits b);

/* The i-th element of an array of the format, at any address. */
bits get(const format *t, const void *array, size_t i);
void set(const format *t, void *array, size_t i, bits b);

/* ---- functions and targets ---------------------------------------------- */

typedef enum kind { VALUE, SLOPE, BACKWARD } kind;
kind kind_of(const fastgelu_function *f); /* by name */

/* Runs a test as one group a target of this machine, one case a function with so many
 * inputs (0: any); checks that the target asked for is the one that runs. */
void on_every_target(const char *what, int inputs,
                     void (*test)(const fastgelu_function *f, const format *t));

/* The same for the fused functions, which the others leave out. */
int is_fused(const fastgelu_function *f);
void on_every_fused(const char *what, void (*test)(const fastgelu_function *f, const format *t));

/* The target that the next groups leave out; NULL: none. */
void leave_out(const char *target);

/* y = f(x) or f(dy, x) for arrays of n elements. */
void call(const fastgelu_function *f, const format *t, size_t n, const void *dy, const void *x,
          void *y);

/* Any function; args: the inputs, then the outputs. Elements are aligned. */
enum { MOST_OPERANDS = 5 };
void call_with(const fastgelu_function *f, const format *t, size_t n, char *const args[]);

/* malloc that does not return without memory. */
void *allocate(size_t bytes);

/* ---- the fixed sweep ---------------------------------------------------- */

/* The length of the sweep over the inputs of f, and its i-th x and dy: every exponent,
 * closely where the functions bend, the surroundings of the slopes' zeros, specials.
 * Integer arithmetic only: the same everywhere. hashes.txt depends on it. */
size_t sweep_length(const fastgelu_function *f, const format *t);
bits sweep_x(const format *t, size_t i);
bits sweep_dy(const format *t, size_t i);

/* The same for the inputs of a fused function, counted from 0. */
size_t fused_sweep_length(void);
bits fused_sweep(const fastgelu_function *f, const format *t, int input, size_t i);

/* Well mixed bits of i. */
uint64_t mix(uint64_t i);

#endif
