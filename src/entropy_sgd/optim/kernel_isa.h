/* All the kernels for one instruction set; the noise is here. kernel.c includes this file once for each, with
 *
 *   SUFFIX   appended to every name          TARGET     the function attribute that enables the set
 *   BYTES    width of a vector register      MUL(a, b)  product of the low 32 bits of 64-bit lanes
 *                                            JOIN(a, b) low 32 bits of each lane of a, high ones of b
 *                                            SQRT(x)    square roots of a vector of floats
 *                                            FMA(a, b, c)  a b + c, in one rounding where the set can
 *                                            PACK(w)    words below 2^16 as 16-bit ones, and UNPACK(h) back
 *
 * The noise is noise.py's, bit for bit: the same operations in the same order, none contracted. The update may
 * differ from the torch path by rounding. */

#define CAT_(a, b) a##b
#define CAT(a, b) CAT_(a, b)
#define NAME(f) CAT(f, SUFFIX)
#define LANES (BYTES / 4)

typedef uint64_t NAME(u64) __attribute__((vector_size(BYTES)));
typedef uint32_t NAME(u32) __attribute__((vector_size(BYTES)));
typedef int32_t NAME(i32) __attribute__((vector_size(BYTES)));
typedef float NAME(f32) __attribute__((vector_size(BYTES)));
typedef uint16_t NAME(u16) __attribute__((vector_size(BYTES / 2)));
#define U64 NAME(u64)
#define U32 NAME(u32)
#define I32 NAME(i32)
#define F32 NAME(f32)
#define U16 NAME(u16)

/* noise.box_muller: LANES pairs of words to LANES pairs of normals. */
TARGET INLINE void NAME(box_muller)(U32 w0, U32 w1, float *z0, float *z1)
{
    I32 bits = (I32)__builtin_convertvector((I32)((w0 >> 1) | 1), F32);
    I32 exponent = (bits - SQRT_HALF_BITS) & EXPONENT; /* times 2^23, which LN2 is divided by */
    F32 m = (F32)(bits - exponent);
    F32 s = (m - 1.0f) / (m + 1.0f);
    F32 s2 = s * s;
    F32 log_m = ((s2 * LOG1 + LOG0) * s2 + 2.0f) * s;
    F32 minus_log_u = __builtin_convertvector((31 << 23) - exponent, F32) * (LN2 * 0x1p-23f) - log_m;
    F32 r = SQRT(minus_log_u);

    F32 phi = __builtin_convertvector((I32)(w1 << 2), F32) * ANGLE;
    F32 y = phi * phi;
    F32 sine = (((y * SIN2 + SIN1) * y + SIN0) * y + 1.0f) * phi;
    F32 cosine = ((y * COS2 + COS1) * y + COS0) * y + 1.0f;
    U32 a = (U32)((cosine - sine) * r) ^ (w1 & SIGN);
    U32 b = (U32)((cosine + sine) * r) ^ ((w1 << 1) & SIGN);
    memcpy(z0, &a, BYTES);
    memcpy(z1, &b, BYTES);
}

/* What the rounds of Philox add to the words, the same for all blocks of a parameter. The first round meets the
 * same words 1 to 3 in every block and the second the same words 0 and 1: what these give is constant too. */
typedef struct {
    U64 first2, second0, second2, third2; /* named for the round and the word */
    U64 k0[ROUNDS], k1[ROUNDS];
} NAME(keys);

TARGET static void NAME(expand)(NAME(keys) *keys, const Address *address, int64_t parameter)
{
    const U64 zero = {0};
    const uint64_t *k0 = address->keys, *k1 = address->keys + ROUNDS;
    const uint64_t product1 = (uint64_t)(uint32_t)address->l * MULTIPLIER1;
    const uint64_t word0 = (uint32_t)((product1 >> 32) ^ (uint64_t)parameter ^ k0[0]);
    const uint64_t product0 = word0 * MULTIPLIER0;
    keys->first2 = zero + (address->t ^ k1[0]);
    keys->second0 = zero + (product1 ^ k0[1]);
    keys->second2 = zero + ((product0 >> 32) ^ k1[1]);
    keys->third2 = zero + (product0 ^ k1[2]);
    for (int round = 0; round < ROUNDS; round++) {
        int last = round == ROUNDS - 1; /* there a lane holds the words of two blocks */
        keys->k0[round] = zero + (last ? k0[round] | k0[round] << 32 : k0[round]);
        keys->k1[round] = zero + (last ? k1[round] | k1[round] << 32 : k1[round]);
    }
}

/* The words of the 16 Philox blocks of one tile: words[4 pass + i] are words i of LANES blocks. Even blocks run in
 * the a's and odd ones in the b's, one in each 64-bit lane, whose upper half holds rubbish that MUL does not read. */
TARGET INLINE void NAME(philox)(U32 *words, const NAME(keys) *keys, int64_t tile)
{
    const U64 zero = {0}, m0 = zero + MULTIPLIER0, m1 = zero + MULTIPLIER1;
    U64 even;
    for (int i = 0; i < LANES / 2; i++)
        even[i] = (uint64_t)(2 * i);
#pragma GCC unroll 4
    for (int pass = 0; pass < BLOCKS / LANES; pass++) {
        const U64 block = even + (uint64_t)(tile * BLOCKS + pass * LANES);
        U64 a3 = MUL(block, m0), b3 = MUL(block + 1, m0);
        U64 a1 = MUL((a3 >> 32) ^ keys->first2, m1), b1 = MUL((b3 >> 32) ^ keys->first2, m1);
        U64 a0 = (a1 >> 32) ^ keys->second0, b0 = (b1 >> 32) ^ keys->second0;
        U64 a2 = a3 ^ keys->second2, b2 = b3 ^ keys->second2;
        U64 pa0 = MUL(a0, m0), pa1 = MUL(a2, m1), pb0 = MUL(b0, m0), pb1 = MUL(b2, m1);
        a0 = (pa1 >> 32) ^ a1 ^ keys->k0[2], b0 = (pb1 >> 32) ^ b1 ^ keys->k0[2];
        a2 = (pa0 >> 32) ^ keys->third2, b2 = (pb0 >> 32) ^ keys->third2;
        a1 = pa1, b1 = pb1, a3 = pa0, b3 = pb0;
#pragma GCC unroll 8
        for (int round = 3; round < ROUNDS - 1; round++) {
            pa0 = MUL(a0, m0), pa1 = MUL(a2, m1), pb0 = MUL(b0, m0), pb1 = MUL(b2, m1);
            a0 = (pa1 >> 32) ^ a1 ^ keys->k0[round], b0 = (pb1 >> 32) ^ b1 ^ keys->k0[round];
            a2 = (pa0 >> 32) ^ a3 ^ keys->k1[round], b2 = (pb0 >> 32) ^ b3 ^ keys->k1[round];
            a1 = pa1, b1 = pb1, a3 = pa0, b3 = pb0;
        }
        pa0 = MUL(a0, m0), pa1 = MUL(a2, m1), pb0 = MUL(b0, m0), pb1 = MUL(b2, m1);
        words[4 * pass] = (U32)(JOIN(pa1 >> 32, pb1) ^ JOIN(a1, b1 << 32) ^ keys->k0[ROUNDS - 1]);
        words[4 * pass + 1] = (U32)JOIN(pa1, pb1 << 32);
        words[4 * pass + 2] = (U32)(JOIN(pa0 >> 32, pb0) ^ JOIN(a3, b3 << 32) ^ keys->k1[ROUNDS - 1]);
        words[4 * pass + 3] = (U32)JOIN(pa0, pb0 << 32);
    }
}

/* noise.gaussian: the 64 normals of one tile from its words. */
TARGET INLINE void NAME(normals)(float *restrict z, const U32 *words)
{
#pragma GCC unroll 4
    for (int pass = 0; pass < BLOCKS / LANES; pass++) {
        float *first = z + pass * LANES;
        NAME(box_muller)(words[4 * pass], words[4 * pass + 1], first, first + BLOCKS);
        NAME(box_muller)(words[4 * pass + 2], words[4 * pass + 3], first + 2 * BLOCKS, first + 3 * BLOCKS);
    }
}

#define WORDS (4 * BLOCKS / LANES) /* vectors of words in a tile */

TARGET INLINE F32 NAME(load)(const float *from)
{
    F32 value;
    memcpy(&value, from, BYTES);
    return value;
}

TARGET INLINE void NAME(store)(float *to, F32 value)
{
    memcpy(to, &value, BYTES);
}

/* A state of LANES elements, from float32 or bfloat16. */
TARGET INLINE F32 NAME(load_state)(const void *from, int j, int half)
{
    if (!half)
        return NAME(load)((const float *)from + j);
    U16 value;
    memcpy(&value, (const uint16_t *)from + j, BYTES / 2);
    return (F32)(UNPACK(value) << 16);
}

/* rounding.to_bfloat16 where `half`. */
TARGET INLINE void NAME(store_state)(void *to, int j, F32 value, U32 bits, int half)
{
    if (!half) {
        NAME(store)((float *)to + j, value);
        return;
    }
    U32 rounded = ((U32)value + (bits & 0xFFFFu)) | (U32)(value != value); /* a NaN becomes all ones, a NaN */
    U16 packed = PACK(rounded >> 16);
    memcpy((uint16_t *)to + j, &packed, BYTES / 2);
}

/* Tiles `from` to `to` of one parameter's noise. */
TARGET static void NAME(gaussian)(const Address *address, int64_t parameter, int64_t from, int64_t to, float *z)
{
    NAME(keys) keys;
    U32 words[2][WORDS];
    NAME(expand)(&keys, address, parameter);
    NAME(philox)(words[from & 1], &keys, from);
    for (int64_t tile = from; tile < to; tile++) { /* the next tile's words meanwhile: they wait for nothing here */
        NAME(philox)(words[~tile & 1], &keys, tile + 1);
        NAME(normals)(z + (tile - from) * TILE, words[tile & 1]);
    }
}

#include "kernel_langevin.h"
#include "kernel_outer.h"

#undef CAT_
#undef CAT
#undef NAME
#undef LANES
#undef WORDS
#undef U64
#undef U32
#undef I32
#undef F32
#undef U16
#undef SUFFIX
#undef TARGET
#undef BYTES
#undef MUL
#undef JOIN
#undef SQRT
#undef FMA
#undef PACK
#undef UNPACK
