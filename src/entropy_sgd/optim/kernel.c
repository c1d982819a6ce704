/* The Langevin step in one pass over memory: lines 3 to 6 of Algorithm 1 with the noise made in registers; the outer
 * update with SGD, line 7; the sketch of a gradient.
 *
 * kernel.py loads this library with ctypes. It knows nothing of Python or torch: plain float32 arrays come in.
 * Work is cut into chunks of CHUNK tiles; a chunk's result depends on the chunk alone, so neither the weights
 * nor the sums depend on the number of threads. Each thread has a range of chunks that follow one another in
 * memory; if threads took single chunks in turns, they would break the streams that the processor prefetches.
 * Threads come from the OpenMP runtime that torch has loaded already (its GOMP_parallel is handed in): a second
 * pool would fight torch's for the cores. */

#include <stdint.h>
#include <stddef.h>
#include <string.h>
#if defined(__x86_64__)
#include <immintrin.h>
#endif

/* The constants of noise.py. */
#define ROUNDS 7
#define MULTIPLIER0 0xD2511F53u
#define MULTIPLIER1 0xCD9E8D57u
#define INCREMENT0 0x9E3779B9u
#define INCREMENT1 0xBB67AE85u
#define SIGN 0x80000000u
#define BLOCKS 16
#define TILE 64
#define SQRT_HALF_BITS 0x3F3504F3
#define EXPONENT ((int32_t)0xFF800000)
#define LN2 ((float)0.69314718055994530942)
#define ANGLE ((float)(3.14159265358979323846 / 4 / 2147483648.0))
#define LOG0 ((float)0.6665559726)
#define LOG1 ((float)0.4120303931)
#define SIN0 ((float)-0.1666665494)
#define SIN1 ((float)0.0083321781)
#define SIN2 ((float)-0.000195173)
#define COS0 ((float)-0.4999989478)
#define COS1 ((float)0.0416562946)
#define COS2 ((float)-0.0013597823)

/* The constants of rounding.py. */
#define GOLDEN 0x9E3779B9u
#define MIX0 0x7FEB352Du
#define MIX1 0x846CA68Bu
#define STATES 0 /* slots of the key */
#define SKETCH 2

#define BUCKETS 4096 /* of sketch.py */
#define SLAB 1024 /* tiles at least, in each of the parts that are summed apart */
#define SLABS 64  /* parts at most */

#define CHUNK 256 /* tiles: 16,384 elements, 5 arrays of which fill a third of a megabyte */
#define RANGES 64 /* of chunks at most, one a thread */
#define AHEAD 8   /* tiles, of which the memory is asked for */

#define INLINE static inline __attribute__((always_inline))

/* Where a draw stands; element and parameter complete it. */
typedef struct {
    uint64_t seed, t, l;
    uint64_t keys[2 * ROUNDS]; /* the seed's two words in each round, set by entropy_run */
} Address;

/* One parameter, or a slice of it that begins at element `start`. `v` may be NULL, and so may `mu` if alpha is 1.
 * `mu` and `v` are bfloat16 in a step with `half`, and `mu` is mu - x then. */
typedef struct {
    float *x_prime;
    const float *gradient;
    float *x;
    void *mu, *v;
    int64_t numel, start, parameter;
    int64_t first; /* nonzero at the first step of a cycle: line 1, and |grad f(x)|^2 */
    int64_t reset; /* nonzero: the first step starts from v = 0, otherwise from the v of the last cycle */
} Tensor;

typedef struct {
    Address address;
    const Tensor *tensors;
    int64_t count;
    float gamma, weight_decay, inner_lr, inner_momentum, noise_scale, alpha, sign;
    int32_t inner_nesterov, half;
} Step;

/* Line 7 with SGD outside: x_prime receives the new x; v is the outer momentum, float32, new where `first`. */
typedef struct {
    const Tensor *tensors;
    int64_t count;
    float lr, momentum, keep, weight_decay, scale; /* keep: 1 - dampening; scale: of x - mu, with the sign */
    int32_t nesterov, half;
} Outer;

/* a_scale a + b_scale b of one tensor, to be sketched; b is bfloat16 with `half`, and a may be NULL. */
typedef struct {
    const float *a;
    const void *b;
    int64_t numel, start, parameter;
} Pair;

typedef struct {
    Address address;
    const Pair *pairs;
    int64_t count;
    float a_scale, b_scale;
    int32_t half;
} Sketch;

/* One tile of a tensor. */
typedef struct {
    float *x_prime;
    const float *gradient;
    float *x;
    void *mu, *v;
} Row;

/* rounding.mix, on words and vectors of them. */
#define MIX_BUT_LAST(w)                                                                                         \
    do {                                                                                                        \
        w ^= w >> 16;                                                                                           \
        w *= MIX0;                                                                                              \
        w ^= w >> 15;                                                                                           \
        w *= MIX1;                                                                                              \
    } while (0)
#define MIX(w)                                                                                                  \
    do {                                                                                                        \
        MIX_BUT_LAST(w);                                                                                        \
        w ^= w >> 16;                                                                                           \
    } while (0)

/* rounding.key */
static uint32_t rounding_key(const Address *address, int64_t parameter, uint32_t slot)
{
    const uint32_t words[] = {(uint32_t)address->seed, (uint32_t)(address->seed >> 32), (uint32_t)address->t,
                              (uint32_t)address->l, (uint32_t)parameter, slot};
    uint32_t key = 0;
    for (int i = 0; i < 6; i++) {
        key = (key ^ words[i]) + GOLDEN;
        MIX(key);
    }
    return key;
}

#if defined(__x86_64__)
/* Places of 16-bit words in a register of 64 bytes: the upper halves of the 32-bit words of two registers; and which
 * word comes into the upper half of each 32-bit word (the lower ones are masked out). */
typedef uint16_t Places __attribute__((vector_size(64)));
static const Places upper_halves = {1,  3,  5,  7,  9,  11, 13, 15, 17, 19, 21, 23, 25, 27, 29, 31,
                                    33, 35, 37, 39, 41, 43, 45, 47, 49, 51, 53, 55, 57, 59, 61, 63};
static const Places first_words = {0, 0, 0, 1, 0, 2,  0, 3,  0, 4,  0, 5,  0, 6,  0, 7,
                                   0, 8, 0, 9, 0, 10, 0, 11, 0, 12, 0, 13, 0, 14, 0, 15};
static const Places last_words = {0, 16, 0, 17, 0, 18, 0, 19, 0, 20, 0, 21, 0, 22, 0, 23,
                                  0, 24, 0, 25, 0, 26, 0, 27, 0, 28, 0, 29, 0, 30, 0, 31};
#define HIGH_WORDS 0xAAAAAAAA

#define SUFFIX _avx512
#define TARGET __attribute__((target("avx512f,avx512dq,avx512bw,avx512vl,prefer-vector-width=512")))
#define BYTES 64
#define MUL(a, b) ((U64)_mm512_mul_epu32((__m512i)(a), (__m512i)(b)))
#define UPPER(a, b) ((U64)_mm512_mask_movehdup_ps((__m512)(b), 0x5555, (__m512)(a)))
#define LOWER(a, b) ((U64)_mm512_mask_moveldup_ps((__m512)(a), 0xAAAA, (__m512)(b)))
#define SQRT(x) ((F32)_mm512_sqrt_ps((__m512)(x)))
#define FMA(a, b, c) ((F32)_mm512_fmadd_ps((__m512)(a), (__m512)(b), (__m512)(c)))
#define ADD(x, bits)                                                                                            \
    ((U32)_mm512_mask_add_epi32(_mm512_set1_epi32(-1), _mm512_cmp_ps_mask((__m512)(x), (__m512)(x), _CMP_ORD_Q), \
                                (__m512i)(x), (__m512i)(bits)))
#define PACK(to, a, b)                                                                                          \
    _mm512_storeu_si512(to, _mm512_permutex2var_epi16((__m512i)(a), (__m512i)upper_halves, (__m512i)(b)))
#define UNPACK(words, from)                                                                                     \
    do {                                                                                                        \
        const __m512i both = _mm512_loadu_si512(from);                                                          \
        (words)[0] = (U32)_mm512_maskz_permutexvar_epi16(HIGH_WORDS, (__m512i)first_words, both);                  \
        (words)[1] = (U32)_mm512_maskz_permutexvar_epi16(HIGH_WORDS, (__m512i)last_words, both);                 \
    } while (0)
#include "kernel_isa.h"

#define SUFFIX _avx2
#define TARGET __attribute__((target("avx2,fma")))
#define BYTES 32
#define MUL(a, b) ((U64)_mm256_mul_epu32((__m256i)(a), (__m256i)(b)))
#define UPPER(a, b) ((U64)_mm256_blend_epi32((__m256i)((a) >> 32), (__m256i)(b), 0xAA))
#define LOWER(a, b) ((U64)_mm256_blend_epi32((__m256i)(a), (__m256i)((b) << 32), 0xAA))
#define SQRT(x) ((F32)_mm256_sqrt_ps((__m256)(x)))
#define FMA(a, b, c) ((F32)_mm256_fmadd_ps((__m256)(a), (__m256)(b), (__m256)(c)))
#define ADD(x, bits) (((U32)(x) + (bits)) | (U32)((x) != (x)))
#define PACK(to, a, b)                                                                                          \
    _mm256_storeu_si256((__m256i *)(to), _mm256_permute4x64_epi64(                                              \
                                             _mm256_packus_epi32((__m256i)((a) >> 16), (__m256i)((b) >> 16)), 0xD8))
#define UNPACK(words, from)                                                                                     \
    do {                                                                                                        \
        const __m128i *const halves = (const __m128i *)(from);                                                  \
        (words)[0] = (U32)_mm256_cvtepu16_epi32(_mm_loadu_si128(halves)) << 16;                                 \
        (words)[1] = (U32)_mm256_cvtepu16_epi32(_mm_loadu_si128(halves + 1)) << 16;                             \
    } while (0)
#include "kernel_isa.h"

#define MUL(a, b) ((U64)_mm_mul_epu32((__m128i)(a), (__m128i)(b)))
#define SQRT(x) ((F32)_mm_sqrt_ps((__m128)(x)))
#else
#define MUL(a, b) (((a) & 0xFFFFFFFFu) * ((b) & 0xFFFFFFFFu))
#define SQRT(x) \
    ((F32){__builtin_sqrtf((x)[0]), __builtin_sqrtf((x)[1]), __builtin_sqrtf((x)[2]), __builtin_sqrtf((x)[3])})
#endif

#define SUFFIX _base
#define TARGET
#define BYTES 16
#define UPPER(a, b) (((a) >> 32) | ((b) & 0xFFFFFFFF00000000u))
#define LOWER(a, b) (((a) & 0xFFFFFFFFu) | ((b) << 32))
#define FMA(a, b, c) ((a) * (b) + (c))
#define ADD(x, bits) (((U32)(x) + (bits)) | (U32)((x) != (x)))
#define PACK(to, a, b)                                                                                          \
    do {                                                                                                        \
        U16 packed[2] = {__builtin_convertvector((a) >> 16, U16), __builtin_convertvector((b) >> 16, U16)};     \
        memcpy(to, packed, sizeof packed);                                                                      \
    } while (0)
#define UNPACK(words, from)                                                                                     \
    do {                                                                                                        \
        U16 packed[2];                                                                                          \
        memcpy(packed, from, sizeof packed);                                                                    \
        (words)[0] = __builtin_convertvector(packed[0], U32) << 16;                                             \
        (words)[1] = __builtin_convertvector(packed[1], U32) << 16;                                             \
    } while (0)
#include "kernel_isa.h"

typedef void (*Langevin)(const Step *, int64_t, int64_t, int64_t, double *);
typedef void (*Gaussian)(const Address *, int64_t, int64_t, int64_t, float *);
typedef void (*Descend)(const Outer *, int64_t, int64_t, int64_t, double *);
typedef void (*Add)(const Sketch *, const Pair *, uint32_t, int64_t, int64_t, float *, double *);
static Langevin langevin = langevin_base;
static Gaussian gaussian = gaussian_base;
static Descend descend = descend_base;
static Add add = add_base;

/* Of the interface between this file and kernel.py. */
int entropy_version(void)
{
    return 6;
}

int entropy_size(void)
{
    return (int)sizeof(Step);
}

/* Chooses the widest instruction set up to `limit` (2: AVX-512, 1: AVX2, 0: the platform's own) that this
 * processor has; returns the one chosen. */
int entropy_choose(int limit)
{
#if defined(__x86_64__)
    __builtin_cpu_init();
    int avx512 = __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512dq") &&
                 __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512vl");
    if (limit >= 2 && avx512)
        return langevin = langevin_avx512, gaussian = gaussian_avx512, descend = descend_avx512, add = add_avx512, 2;
    if (limit >= 1 && __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma"))
        return langevin = langevin_avx2, gaussian = gaussian_avx2, descend = descend_avx2, add = add_avx2, 1;
#endif
    (void)limit;
    return langevin = langevin_base, gaussian = gaussian_base, descend = descend_base, add = add_base, 0;
}

typedef void (*Parallel)(void (*)(void *), void *, unsigned, unsigned); /* GOMP_parallel */

/* Chunks that one thread works through in order, until others that are done with theirs help it. */
typedef struct {
    int64_t next __attribute__((aligned(64))), end; /* in a cache line of its own */
} Range;

typedef struct {
    const Step *step;
    const Outer *outer; /* in place of a Langevin step */
    const Tensor *tensors;
    int64_t count;
    const int64_t *ends; /* chunks up to and including each tensor */
    double *sums;
    float *const *out;
    Range ranges[RANGES];
    unsigned shares, arrived;
} Job;

static void work_on(const Job *job, int64_t chunk)
{
    int64_t tensor = 0; /* the first tensor whose end lies beyond this chunk */
    for (int64_t high = job->count; tensor < high;) {
        int64_t middle = (tensor + high) / 2;
        if (job->ends[middle] > chunk)
            high = middle;
        else
            tensor = middle + 1;
    }
    const Tensor *t = &job->tensors[tensor];
    int64_t first = t->start / TILE, end = (t->start + t->numel + TILE - 1) / TILE;
    int64_t from = first + (chunk - (tensor ? job->ends[tensor - 1] : 0)) * CHUNK;
    int64_t to = from + CHUNK < end ? from + CHUNK : end;
    if (job->outer)
        descend(job->outer, tensor, from, to, job->sums + 2 * chunk);
    else if (job->out)
        gaussian(&job->step->address, t->parameter, from, to, job->out[tensor] + (from - first) * TILE);
    else
        langevin(job->step, tensor, from, to, job->sums + 2 * chunk);
}

static void work(void *argument)
{
    Job *job = argument;
    const unsigned own = __atomic_fetch_add(&job->arrived, 1, __ATOMIC_RELAXED);
    for (unsigned turn = 0; turn < job->shares; turn++) {
        Range *range = &job->ranges[(own + turn) % job->shares];
        for (int64_t chunk; (chunk = __atomic_fetch_add(&range->next, 1, __ATOMIC_RELAXED)) < range->end;)
            work_on(job, chunk);
    }
}

/* How many chunks each tensor ends at; the last is the length of the `sums` that entropy_run needs, halved. */
int64_t entropy_chunks(const Tensor *tensors, int64_t count, int64_t *ends)
{
    int64_t chunks = 0;
    for (int64_t i = 0; i < count; i++) {
        const Tensor *t = &tensors[i];
        int64_t tiles = t->numel ? (t->start + t->numel + TILE - 1) / TILE - t->start / TILE : 0;
        ends[i] = chunks += (tiles + CHUNK - 1) / CHUNK;
    }
    return chunks;
}

static void run(Job *job, Parallel parallel, int32_t threads, double *total)
{
    const int64_t chunks = job->count ? job->ends[job->count - 1] : 0;
    const int together = parallel && threads > 1 && chunks > 1;
    const int64_t ranges = !together ? 1 : threads < RANGES ? threads : RANGES;
    job->shares = (unsigned)ranges, job->arrived = 0;
    for (int64_t i = 0; i < ranges; i++)
        job->ranges[i].next = chunks * i / ranges, job->ranges[i].end = chunks * (i + 1) / ranges;
    if (job->sums)
        memset(job->sums, 0, (size_t)chunks * 2 * sizeof(double));
    if (together)
        parallel(work, job, (unsigned)threads, 0);
    else
        work(job);
    if (total)
        for (int64_t tensor = 0, i = 0; tensor < job->count; tensor++)
            for (; i < job->ends[tensor]; i++) {
                total[2 * tensor] += job->sums[2 * i];
                total[2 * tensor + 1] += job->sums[2 * i + 1];
            }
}

/* With `out`, fills out[i] with the whole tiles of noise that tensor i touches. Without, makes a Langevin step
 * on every tensor; total[2 i] and total[2 i + 1] receive |x - x'|^2 of tensor i, and its |grad f(x)|^2 if this is
 * its first step. `sums` has room for two numbers a chunk. */
void entropy_run(Step *step, const int64_t *ends, double *sums, float *const *out, Parallel parallel,
                 int32_t threads, double *total)
{
    for (uint32_t round = 0; round < ROUNDS; round++) {
        step->address.keys[round] = (uint32_t)step->address.seed + round * INCREMENT0;
        step->address.keys[ROUNDS + round] = (uint32_t)(step->address.seed >> 32) + round * INCREMENT1;
    }
    Job job;
    job.step = step, job.outer = NULL, job.tensors = step->tensors, job.count = step->count;
    job.ends = ends, job.sums = sums, job.out = out;
    run(&job, parallel, threads, total);
}

/* Line 7 on every tensor; total[2 i] receives |x - mu|^2 of tensor i. */
void entropy_outer(const Outer *outer, const int64_t *ends, double *sums, Parallel parallel, int32_t threads,
                   double *total)
{
    Job job;
    job.step = NULL, job.outer = outer, job.tensors = outer->tensors, job.count = outer->count;
    job.ends = ends, job.sums = sums, job.out = NULL;
    run(&job, parallel, threads, total);
}

typedef struct {
    const Sketch *sketch;
    const int64_t *ends; /* tiles up to and including each pair */
    int64_t slabs, tiles, next;
    float (*parts)[BUCKETS + TILE];
    double *squares;
} Slabs;

static void work_on_slabs(void *argument)
{
    Slabs *job = argument;
    for (;;) {
        int64_t slab = __atomic_fetch_add(&job->next, 1, __ATOMIC_RELAXED);
        if (slab >= job->slabs)
            return;
        int64_t from = job->tiles * slab / job->slabs, to = job->tiles * (slab + 1) / job->slabs;
        float *part = job->parts[slab];
        memset(part, 0, sizeof job->parts[slab]);
        job->squares[slab] = 0;
        for (int64_t i = 0, begin = 0; i < job->sketch->count; begin = job->ends[i++]) {
            int64_t low = from > begin ? from : begin, high = to < job->ends[i] ? to : job->ends[i];
            if (low >= high)
                continue;
            const Pair *pair = &job->sketch->pairs[i];
            int64_t shift = pair->start / TILE - begin;
            add(job->sketch, pair, rounding_key(&job->sketch->address, pair->parameter, SKETCH), low + shift,
                high + shift, part, &job->squares[slab]);
        }
        for (int i = 0; i < TILE; i++)
            part[i] += part[BUCKETS + i];
    }
}

/* Adds the sketch of all pairs together to out[BUCKETS], and their squared norm to `square`. `ends` has room for
 * a number a pair, `parts` for SLABS (BUCKETS + TILE + 2) floats. */
void entropy_sketch(const Sketch *sketch, int64_t *ends, float *parts, Parallel parallel, int32_t threads, float *out,
                    double *square)
{
    Slabs job = {.sketch = sketch, .ends = ends, .parts = (void *)parts};
    job.squares = (double *)(parts + SLABS * (BUCKETS + TILE));
    for (int64_t i = 0; i < sketch->count; i++) {
        const Pair *p = &sketch->pairs[i];
        ends[i] = job.tiles += p->numel ? (p->start + p->numel + TILE - 1) / TILE - p->start / TILE : 0;
    }
    job.slabs = job.tiles / SLAB < 1 ? 1 : job.tiles / SLAB < SLABS ? job.tiles / SLAB : SLABS;
    if (parallel && threads > 1 && job.slabs > 1)
        parallel(work_on_slabs, &job, (unsigned)threads, 0);
    else
        work_on_slabs(&job);
    for (int64_t slab = 0; slab < job.slabs; slab++) {
        for (int i = 0; i < BUCKETS; i++)
            out[i] += job.parts[slab][i];
        *square += job.squares[slab];
    }
}

/* The inner product of two sketches. */
double entropy_dot(const float *a, const float *b)
{
    double sums[8] = {0}, total = 0;
    for (int i = 0; i < BUCKETS; i += 8)
        for (int k = 0; k < 8; k++)
            sums[k] += (double)a[i + k] * (double)b[i + k];
    for (int k = 0; k < 8; k++)
        total += sums[k];
    return total;
}
