/* SPDX-License-Identifier: BSD-3-Clause */
/* interleave.h: the vector of the algorithms from the registers of a target.
 *
 * One value function is a long chain of operations that wait for each other. A target file defines the operations
 * of vocabulary.h on one register, with u_ for v_ and j_ for i_; here they are applied to
 * FG_REGISTERS of them side by side, which keeps the processor's pipes filled. */
#ifndef FG_INTERLEAVE_H
#define FG_INTERLEAVE_H

/* Not a loop: until gcc unrolls it, V in memory makes it search for aliases, and take six times the time. */
#define FG_AT(register_number, statement) \
    do {                                  \
        enum { r = register_number };     \
        statement;                        \
    } while (0)
#if FG_REGISTERS == 1
#define FG_EACH(statement) FG_AT(0, statement)
#elif FG_REGISTERS == 2
#define FG_EACH(statement) \
    FG_AT(0, statement);   \
    FG_AT(1, statement)
#elif FG_REGISTERS == 4
#define FG_EACH(statement) \
    FG_AT(0, statement);   \
    FG_AT(1, statement);   \
    FG_AT(2, statement);   \
    FG_AT(3, statement)
#else
#error "FG_REGISTERS must be 1, 2 or 4"
#endif

#define FG_INTERLEAVE_1(dtype, name, unit)                 \
    static FG_INLINE V_##dtype name##_##dtype(V_##dtype a) \
    {                                                      \
        FG_EACH(a.in[r] = unit##_##dtype(a.in[r]));        \
        return a;                                          \
    }
#define FG_INTERLEAVE_2(dtype, name, unit, vector)                                           \
    static FG_INLINE vector##_##dtype name##_##dtype(vector##_##dtype a, vector##_##dtype b) \
    {                                                                                        \
        FG_EACH(a.in[r] = unit##_##dtype(a.in[r], b.in[r]));                                 \
        return a;                                                                            \
    }
#define FG_INTERLEAVE_3(dtype, name, unit)                                           \
    static FG_INLINE V_##dtype name##_##dtype(V_##dtype a, V_##dtype b, V_##dtype c) \
    {                                                                                \
        FG_EACH(a.in[r] = unit##_##dtype(a.in[r], b.in[r], c.in[r]));                \
        return a;                                                                    \
    }

#define FG_INTERLEAVE(dtype)                                                                     \
    typedef struct V_##dtype {                                                                   \
        U_##dtype in[FG_REGISTERS];                                                              \
    } V_##dtype;                                                                                 \
    typedef struct I_##dtype {                                                                   \
        J_##dtype in[FG_REGISTERS];                                                              \
    } I_##dtype;                                                                                 \
    enum { FG_LANES_##dtype = FG_REGISTERS * FG_REGISTER_LANES_##dtype };                        \
    static FG_INLINE V_##dtype v_load_##dtype(const fg_##dtype *p)                               \
    {                                                                                            \
        V_##dtype a;                                                                             \
        FG_EACH(a.in[r] = u_load_##dtype(p + r * FG_REGISTER_LANES_##dtype));                    \
        return a;                                                                                \
    }                                                                                            \
    static FG_INLINE void v_store_##dtype(fg_##dtype *p, V_##dtype a)                            \
    {                                                                                            \
        FG_EACH(u_store_##dtype(p + r * FG_REGISTER_LANES_##dtype, a.in[r]));                    \
    }                                                                                            \
    static FG_INLINE void v_stream_##dtype(fg_##dtype *p, V_##dtype a)                           \
    {                                                                                            \
        FG_EACH(u_stream_##dtype(p + r * FG_REGISTER_LANES_##dtype, a.in[r]));                   \
    }                                                                                            \
    static FG_INLINE unsigned i_above_##dtype(I_##dtype i, fg_##dtype c)                         \
    {                                                                                            \
        unsigned which = 0;                                                                      \
        FG_EACH(which |= j_above_##dtype(i.in[r], c) << r * FG_REGISTER_LANES_##dtype);          \
        return which;                                                                            \
    }                                                                                            \
    static FG_INLINE int i_all_above_##dtype(I_##dtype i, fg_##dtype c)                          \
    {                                                                                            \
        int all = 1;                                                                             \
        FG_EACH(all &= j_all_above_##dtype(i.in[r], c));                                         \
        return all;                                                                              \
    }                                                                                            \
    static FG_INLINE int i_any_above_##dtype(I_##dtype i, fg_##dtype c)                          \
    {                                                                                            \
        int any = 0;                                                                             \
        FG_EACH(any |= j_any_above_##dtype(i.in[r], c));                                         \
        return any;                                                                              \
    }                                                                                            \
    static FG_INLINE V_##dtype v_select_above_##dtype(V_##dtype t, V_##dtype limit, V_##dtype a, \
                                                      V_##dtype b)                               \
    {                                                                                            \
        FG_EACH(a.in[r] = u_select_above_##dtype(t.in[r], limit.in[r], a.in[r], b.in[r]));       \
        return a;                                                                                \
    }                                                                                            \
    static FG_INLINE V_##dtype v_set_##dtype(fg_##dtype c)                                       \
    {                                                                                            \
        V_##dtype a;                                                                             \
        FG_EACH(a.in[r] = u_set_##dtype(c));                                                     \
        return a;                                                                                \
    }                                                                                            \
    static FG_INLINE I_##dtype v_bits_##dtype(V_##dtype a)                                       \
    {                                                                                            \
        I_##dtype i;                                                                             \
        FG_EACH(i.in[r] = u_bits_##dtype(a.in[r]));                                              \
        return i;                                                                                \
    }                                                                                            \
    static FG_INLINE V_##dtype v_real_##dtype(I_##dtype i)                                       \
    {                                                                                            \
        V_##dtype a;                                                                             \
        FG_EACH(a.in[r] = u_real_##dtype(i.in[r]));                                              \
        return a;                                                                                \
    }                                                                                            \
    static FG_INLINE I_##dtype i_to_exponent_##dtype(I_##dtype i)                                \
    {                                                                                            \
        FG_EACH(i.in[r] = j_to_exponent_##dtype(i.in[r]));                                       \
        return i;                                                                                \
    }                                                                                            \
    static FG_INLINE I_##dtype i_to_second_##dtype(I_##dtype i)                                  \
    {                                                                                            \
        FG_EACH(i.in[r] = j_to_second_##dtype(i.in[r]));                                         \
        return i;                                                                                \
    }                                                                                            \
    FG_INTERLEAVE_2(dtype, i_add, j_add, I)                                                      \
    FG_INTERLEAVE_2(dtype, i_sub, j_sub, I)                                                      \
    FG_INTERLEAVE_2(dtype, i_max, j_max, I)                                                      \
    FG_INTERLEAVE_2(dtype, i_least, j_least, I)                                                  \
    FG_INTERLEAVE_2(dtype, i_most, j_most, I)                                                    \
    FG_INTERLEAVE_2(dtype, i_min, j_min, I)                                                      \
    FG_INTERLEAVE_1(dtype, v_abs, u_abs)                                                         \
    FG_INTERLEAVE_1(dtype, v_positive, u_positive)                                               \
    FG_INTERLEAVE_1(dtype, v_neg, u_neg)                                                         \
    FG_INTERLEAVE_2(dtype, v_add, u_add, V)                                                      \
    FG_INTERLEAVE_2(dtype, v_sub, u_sub, V)                                                      \
    FG_INTERLEAVE_2(dtype, v_mul, u_mul, V)                                                      \
    FG_INTERLEAVE_2(dtype, v_div, u_div, V)                                                      \
    FG_INTERLEAVE_2(dtype, v_copysign, u_copysign, V)                                            \
    FG_INTERLEAVE_3(dtype, v_fma, u_fma)                                                         \
    FG_INTERLEAVE_3(dtype, v_fnma, u_fnma)                                                       \
    FG_INTERLEAVE_3(dtype, v_fms, u_fms)                                                         \
    FG_INTERLEAVE_3(dtype, v_select_negative, u_select_negative)                                 \
    FG_INTERLEAVE_3(dtype, v_select_infinite, u_select_infinite)

FG_INTERLEAVE(f32)
FG_INTERLEAVE(f64)

/* A row is looked up entry by entry, where it is used: registers are few. */
typedef struct R_f32 {
    I_f32 k;
    const fg_f32 *table;
} R_f32;
static FG_INLINE R_f32 v_row_f32(const fg_f32 *table, int rows, int columns, I_f32 k)
{
    (void)rows, (void)columns;
    const R_f32 row = {k, table};
    return row;
}
static FG_INLINE V_f32 v_entry_f32(R_f32 row, int n)
{
    V_f32 a;
    FG_EACH(a.in[r] = u_look_up_f32(row.table + 8 * n, row.k.in[r]));
    return a;
}

typedef struct R_f64 {
    W_f64 at[FG_REGISTERS];
} R_f64;
static FG_INLINE R_f64 v_row_f64(const fg_f64 *table, int rows, int columns, I_f64 k)
{
    R_f64 row;
    FG_EACH(row.at[r] = u_rows_f64(table, rows, columns, k.in[r]));
    return row;
}
static FG_INLINE V_f64 v_entry_f64(R_f64 row, int n)
{
    V_f64 a;
    FG_EACH(a.in[r] = u_entry_f64(row.at[r], n));
    return a;
}

#if FG_ROWS_FIRST
static FG_INLINE void v_keep_f64(uint32_t *places, int rows, int columns, I_f64 k)
{
    u_keep_f64(places, rows, columns, k.in);
}
static FG_INLINE R_f64 v_kept_f64(const fg_f64 *table, const uint32_t *places)
{
    R_f64 row;
    FG_EACH(row.at[r] = u_kept_f64(table, places, r));
    return row;
}
#endif

/* FG_KEEP: without it, a becomes above where that is infinite, which takes three operations more. */
static FG_INLINE V_f32 v_raised(V_f32 above, V_f32 a)
{
#ifdef FG_KEEP
    FG_EACH(FG_KEEP(above.in[r]));
    return a;
#else
    return v_select_infinite_f32(above, above, a);
#endif
}

#define FG_STORE_f16(p, a) FG_EACH(u_store_f16(p + r * FG_REGISTER_LANES_f32, a.in[r]))
#ifdef FG_STORE_TWO
#define FG_STORE_bf16(p, a) u_store_two_bf16(p, a.in[0], a.in[1])
#else
#define FG_STORE_bf16(p, a) FG_EACH(u_store_bf16(p + r * FG_REGISTER_LANES_f32, a.in[r]))
#endif

/* 16-bit numbers are computed with as float32; only memory holds them as they are. */
#define FG_INTERLEAVE_16(dtype)                                           \
    typedef V_f32 V_##dtype;                                              \
    enum { FG_LANES_##dtype = FG_LANES_f32 };                             \
    enum { FG_REGISTER_LANES_##dtype = FG_REGISTER_LANES_f32 };           \
    static FG_INLINE V_##dtype v_load_##dtype(const fg_##dtype *p)        \
    {                                                                     \
        V_##dtype a;                                                      \
        FG_EACH(a.in[r] = u_load_##dtype(p + r * FG_REGISTER_LANES_f32)); \
        return a;                                                         \
    }                                                                     \
    static FG_INLINE void v_store_##dtype(fg_##dtype *p, V_##dtype a)     \
    {                                                                     \
        FG_STORE_##dtype(p, a);                                           \
    }                                                                     \
    /* half the bytes for as much arithmetic: memory is no limit */       \
    static FG_INLINE void v_stream_##dtype(fg_##dtype *p, V_##dtype a)    \
    {                                                                     \
        v_store_##dtype(p, a);                                            \
    }

FG_INTERLEAVE_16(f16)
FG_INTERLEAVE_16(bf16)

static FG_INLINE V_f64 v_widen(const fg_f32 *p)
{
    V_f64 a;
    FG_EACH(a.in[r] = u_widen(p + r * FG_REGISTER_LANES_f64));
    return a;
}
static FG_INLINE void v_narrow(fg_f32 *p, V_f64 a)
{
    FG_EACH(u_narrow(p + r * FG_REGISTER_LANES_f64, a.in[r]));
}

#endif
