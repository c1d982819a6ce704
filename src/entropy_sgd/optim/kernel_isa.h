/* All the kernels for one instruction set; the noise is here. kernel.c includes this file once for each, with
 *
 *   SUFFIX   appended to every name          TARGET     the function attribute that enables the set
 *   BYTES    width of a vector register
 *
 *   MUL(a, b)           product of the low 32 bits of 64-bit lanes
 *   UPPER(a, b)         high 32 bits of each lane of a, then those of b; LOWER(a, b) the low ones
 *   SQRT(x)             square roots of a vector of floats
 *   FMA(a, b, c)        a b + c, in one rounding where the set can
 *   ADD(x, bits)        the bits of the floats x plus `bits`, all ones for a NaN
 *   PACK(to, a, b)      stores the upper halves of 32-bit words as 16-bit ones
 *   UNPACK(words, from) loads 16-bit words into the upper halves of two vectors of 32-bit ones
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

#define PASSES (BLOCKS / LANES) /* in each, LANES blocks of four words */
#define GROUP (LANES == BLOCKS ? 2 : 1) /* tiles whose noise is made together: two where a pass makes a whole one */
#define TOGETHER 4
#define ALL _Pragma("GCC unroll 4") for (int i = 0; i < TOGETHER; i++)

/* noise.box_muller: TOGETHER times LANES pairs of words, pair i in words[2 i] and words[2 i + 1], to as many pairs of
 * normals. They go side by side, operation by operation: alone, each would mostly wait for its own results. */
TARGET INLINE void NAME(box_muller)(const U32 *words, float *z)
{
    I32 bits[TOGETHER], exponent[TOGETHER];
    F32 m[TOGETHER], s[TOGETHER], s2[TOGETHER], log_m[TOGETHER], minus_log_u[TOGETHER], r[TOGETHER];
    F32 phi[TOGETHER], y[TOGETHER], sine[TOGETHER], cosine[TOGETHER];
    ALL bits[i] = (I32)__builtin_convertvector((I32)((words[2 * i] >> 1) | 1), F32);
    ALL exponent[i] = (bits[i] - SQRT_HALF_BITS) & EXPONENT; /* times 2^23, which LN2 is divided by */
    ALL m[i] = (F32)(bits[i] - exponent[i]);
    ALL s[i] = (m[i] - 1.0f) / (m[i] + 1.0f);
    ALL minus_log_u[i] = __builtin_convertvector((31 << 23) - exponent[i], F32) * (LN2 * 0x1p-23f);
    ALL phi[i] = __builtin_convertvector((I32)(words[2 * i + 1] << 2), F32) * ANGLE;
    ALL y[i] = phi[i] * phi[i];
    ALL sine[i] = (((y[i] * SIN2 + SIN1) * y[i] + SIN0) * y[i] + 1.0f) * phi[i];
    ALL cosine[i] = ((y[i] * COS2 + COS1) * y[i] + COS0) * y[i] + 1.0f;
    ALL s2[i] = s[i] * s[i];
    ALL log_m[i] = ((s2[i] * LOG1 + LOG0) * s2[i] + 2.0f) * s[i];
    ALL minus_log_u[i] = minus_log_u[i] - log_m[i];
    ALL r[i] = SQRT(minus_log_u[i]);
    ALL
    {
        const U32 w1 = words[2 * i + 1];
        const U32 a = (U32)((cosine[i] - sine[i]) * r[i]) ^ (w1 & SIGN);
        const U32 b = (U32)((cosine[i] + sine[i]) * r[i]) ^ ((w1 << 1) & SIGN);
        float *first = z + i / 2 * (GROUP == 1 ? LANES : TILE) + i % 2 * 2 * BLOCKS;
        memcpy(first, &a, BYTES);
        memcpy(first + BLOCKS, &b, BYTES);
    }
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

/* The words of the Philox blocks of GROUP tiles: words[4 pass + i] are words i of LANES blocks. Each chain runs the
 * even or the odd ones of LANES blocks, one in each 64-bit lane, whose upper half holds rubbish that MUL does not
 * read. */
#define CHAINS (2 * GROUP)
#define EACH _Pragma("GCC unroll 4") for (int c = 0; c < CHAINS; c++)
TARGET INLINE void NAME(philox)(U32 *words, const NAME(keys) *keys, int64_t tile)
{
    const U64 zero = {0}, m0 = zero + MULTIPLIER0, m1 = zero + MULTIPLIER1;
    U64 even;
    for (int i = 0; i < LANES / 2; i++)
        even[i] = (uint64_t)(2 * i);
#pragma GCC unroll 4
    for (int pass = 0; pass < GROUP * PASSES; pass += GROUP) {
        const U64 block = even + (uint64_t)(tile * BLOCKS + pass * LANES);
        U64 w0[CHAINS], w1[CHAINS], w2[CHAINS], w3[CHAINS], p0[CHAINS], p1[CHAINS];
        EACH w3[c] = MUL(block + (uint64_t)(c / 2 * LANES + c % 2), m0);
        EACH w1[c] = MUL((w3[c] >> 32) ^ keys->first2, m1);
        EACH w0[c] = (w1[c] >> 32) ^ keys->second0;
        EACH w2[c] = w3[c] ^ keys->second2;
        EACH p0[c] = MUL(w0[c], m0), p1[c] = MUL(w2[c], m1);
        EACH w0[c] = (p1[c] >> 32) ^ w1[c] ^ keys->k0[2], w2[c] = (p0[c] >> 32) ^ keys->third2;
        EACH w1[c] = p1[c], w3[c] = p0[c];
#pragma GCC unroll 8
        for (int round = 3; round < ROUNDS - 1; round++) {
            EACH p0[c] = MUL(w0[c], m0), p1[c] = MUL(w2[c], m1);
            EACH w0[c] = (p1[c] >> 32) ^ w1[c] ^ keys->k0[round], w2[c] = (p0[c] >> 32) ^ w3[c] ^ keys->k1[round];
            EACH w1[c] = p1[c], w3[c] = p0[c];
        }
        EACH p0[c] = MUL(w0[c], m0), p1[c] = MUL(w2[c], m1);
#pragma GCC unroll 2
        for (int c = 0; c < CHAINS; c += 2) {
            U32 *to = words + 4 * (pass + c / 2);
            to[0] = (U32)(UPPER(p1[c], p1[c + 1]) ^ LOWER(w1[c], w1[c + 1]) ^ keys->k0[ROUNDS - 1]);
            to[1] = (U32)LOWER(p1[c], p1[c + 1]);
            to[2] = (U32)(UPPER(p0[c], p0[c + 1]) ^ LOWER(w3[c], w3[c + 1]) ^ keys->k1[ROUNDS - 1]);
            to[3] = (U32)LOWER(p0[c], p0[c + 1]);
        }
    }
}

/* noise.gaussian: the 64 normals of each tile of a group from its words. */
TARGET INLINE void NAME(normals)(float *restrict z, const U32 *words)
{
#pragma GCC unroll 4
    for (int pass = 0; pass < GROUP * PASSES; pass += TOGETHER / 2)
        NAME(box_muller)(words + 4 * pass, z + pass * LANES);
}

#define WORDS (4 * PASSES * GROUP) /* vectors of words in a group */

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

/* Twice LANES elements of a state, from float32 or bfloat16. */
TARGET INLINE void NAME(load_states)(F32 *value, const void *from, int j, int half)
{
    if (half) {
        U32 words[2];
        UNPACK(words, (const uint16_t *)from + j);
        value[0] = (F32)words[0], value[1] = (F32)words[1];
    } else {
        value[0] = NAME(load)((const float *)from + j);
        value[1] = NAME(load)((const float *)from + j + LANES);
    }
}

/* And back; rounding.to_bfloat16, with `bits` below 2^16, where `half`: a NaN becomes all ones, a NaN. */
TARGET INLINE void NAME(store_states)(void *to, int j, const F32 *value, const U32 *bits, int half)
{
    if (half) {
        PACK((uint16_t *)to + j, ADD(value[0], bits[0]), ADD(value[1], bits[1]));
    } else {
        NAME(store)((float *)to + j, value[0]);
        NAME(store)((float *)to + j + LANES, value[1]);
    }
}

/* Tiles `from` to `to` of one parameter's noise. */
TARGET static void NAME(gaussian)(const Address *address, int64_t parameter, int64_t from, int64_t to, float *z)
{
    NAME(keys) keys;
    U32 words[2][WORDS];
    float last[GROUP * TILE];
    NAME(expand)(&keys, address, parameter);
    NAME(philox)(words[0], &keys, from);
    int turn = 0;
    for (int64_t tile = from; tile < to; tile += GROUP, turn ^= 1) {
        NAME(philox)(words[turn ^ 1], &keys, tile + GROUP); /* for the next turn: it waits for nothing here */
        float *out = z + (tile - from) * TILE;
        NAME(normals)(tile + GROUP <= to ? out : last, words[turn]);
        if (tile + GROUP > to)
            memcpy(out, last, (size_t)(to - tile) * TILE * sizeof *z);
    }
}

#include "kernel_langevin.h"
#include "kernel_outer.h"

#undef CAT_
#undef CAT
#undef NAME
#undef LANES
#undef WORDS
#undef PASSES
#undef TOGETHER
#undef GROUP
#undef CHAINS
#undef EACH
#undef ALL
#undef U64
#undef U32
#undef I32
#undef F32
#undef U16
#undef SUFFIX
#undef TARGET
#undef BYTES
#undef MUL
#undef UPPER
#undef LOWER
#undef SQRT
#undef FMA
#undef ADD
#undef PACK
#undef UNPACK
