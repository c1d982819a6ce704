/* Lines 1 and 4 to 6 of Algorithm 1, for one instruction set: kernel_isa.h includes this file. */

/* Lines 4 to 6 of Algorithm 1 on one whole tile. The flags are constants wherever this is inlined; `bare` says that
 * the sign is 1 and the decay 0, as they mostly are. The sums of squares run in sixteen lanes whatever the
 * instruction set. `key` and `low`, the tile's first element modulo 2^32, give the bits of rounding. */
TARGET INLINE void NAME(update)(const Step *s, const Row *row, const float *z, uint32_t key, uint32_t low, int bare,
                                int momentum, int nesterov, int mean, int half, float *sums)
{
    const F32 zero = {0}, gamma = zero + s->gamma, sign = zero + s->sign, decay = zero + s->weight_decay;
    const F32 m = zero + s->inner_momentum, minus_lr = zero - s->inner_lr, scale = zero + s->noise_scale;
    const F32 beta = zero + (1.0f - s->alpha);
    float *const x_prime = row->x_prime; /* loaded once: what is stored below might be the row for all GCC knows */
    const float *const gradient = row->gradient, *const centre = row->x;
    void *const means = row->mu, *const momenta = row->v;
    U32 element = {0};
    for (int i = 0; i < LANES; i++)
        element[i] = (uint32_t)i;
    const uint32_t place = low ^ key; /* `low` is a multiple of TILE */
    F32 lanes[BLOCKS / LANES];
    memcpy(lanes, sums, sizeof lanes);
#pragma GCC unroll 8
    for (int j = 0; j < TILE; j += 2 * LANES) { /* two vectors at a time, which a store of 16-bit states takes */
        U32 upper[2], lower[2];
        F32 v[2], mu[2];
        if (momentum)
            NAME(load_states)(v, momenta, j, half);
        if (mean)
            NAME(load_states)(mu, means, j, half);
#pragma GCC unroll 2
        for (int i = 0; i < 2; i++) {
            const int at = j + i * LANES;
            if (half) {
                U32 bits = (element + (uint32_t)at) ^ place;
                MIX_BUT_LAST(bits);
                upper[i] = bits >> 16, lower[i] = (bits ^ upper[i]) & 0xFFFFu; /* the last step, and the halves */
            }
            F32 w = NAME(load)(x_prime + at), x = NAME(load)(centre + at), g = NAME(load)(gradient + at);
            F32 dx = FMA(w - x, gamma, bare ? g : FMA(g, sign, w * decay)); /* line 4 */
            F32 d = dx;
            if (momentum) {
                v[i] = FMA(v[i], m, dx);
                d = nesterov ? FMA(v[i], m, dx) : v[i];
            }
            w = FMA(NAME(load)(z + at), scale, FMA(d, minus_lr, w)); /* line 5 */
            NAME(store)(x_prime + at, w);
            if (mean) { /* line 6, of mu - x where half */
                F32 newest = half ? w - x : w;
                mu[i] = FMA(mu[i] - newest, beta, newest);
            }
            F32 *sum = &lanes[at / LANES % (BLOCKS / LANES)];
            *sum = FMA(w - x, w - x, *sum);
        }
        if (momentum)
            NAME(store_states)(momenta, j, v, upper, half);
        if (mean)
            NAME(store_states)(means, j, mu, lower, half);
    }
    memcpy(sums, lanes, sizeof lanes);
}

/* Line 1 on one whole tile, and |grad f(x)|^2. */
TARGET INLINE void NAME(begin)(const Step *s, const Row *row, int reset, float *sums)
{
    const float sign = s->sign, decay = s->weight_decay;
    const size_t size = s->half ? 2 : 4;
    for (int j = 0; j < TILE; j += LANES) {
        F32 w = NAME(load)(row->x_prime + j);
        F32 g = NAME(load)(row->gradient + j) * sign + w * decay;
        NAME(store)(row->x + j, w);
        if (row->mu && !s->half)
            NAME(store)((float *)row->mu + j, w);
        float *lanes = sums + BLOCKS + j % BLOCKS;
        NAME(store)(lanes, NAME(load)(lanes) + g * g);
    }
    if (row->mu && s->half)
        memset(row->mu, 0, TILE * size);
    if (row->v && reset)
        memset(row->v, 0, TILE * size);
}

/* A tile that the tensor fills in part, from element `low` to `high`: on a copy, padded with zeros that stay zero. */
TARGET static __attribute__((noinline)) void NAME(part)(const Step *s, const Tensor *t, int64_t tile, const float *z,
                                                        uint32_t key, float *sums)
{
    const int64_t at = tile * TILE - t->start, low = at < 0 ? -at : 0;
    const int64_t high = t->numel - at < TILE ? t->numel - at : TILE, size = s->half ? 2 : 4;
    char *const tensors[5] = {(char *)t->x_prime, (char *)t->gradient, (char *)t->x, t->mu, t->v};
    const int64_t sizes[5] = {4, 4, 4, size, size};
    float copy[5][TILE] = {{0}}, some[TILE] = {0};
    for (int k = 0; k < 5; k++)
        if (tensors[k])
            memcpy((char *)copy[k] + sizes[k] * low, tensors[k] + sizes[k] * (at + low),
                   (size_t)(sizes[k] * (high - low)));
    memcpy(some + low, z + low, (size_t)(high - low) * sizeof *z);
    const Row row = {copy[0], copy[1], copy[2], t->mu ? copy[3] : NULL, t->v ? copy[4] : NULL};
    if (t->first)
        NAME(begin)(s, &row, t->reset != 0, sums);
    NAME(update)(s, &row, some, key, (uint32_t)(tile * TILE), 0, s->inner_momentum != 0.0f, s->inner_nesterov,
                 t->mu != NULL, s->half, sums);
    for (int k = 0; k < 5; k++)
        if (tensors[k] && k != 1)
            memcpy(tensors[k] + sizes[k] * (at + low), (char *)copy[k] + sizes[k] * low,
                   (size_t)(sizes[k] * (high - low)));
}

/* Asks for the memory of a group of tiles that begins at element `at` and is AHEAD of the one that is worked on. With
 * 16-bit states, where most of the time goes into the noise and the rounding, that is 10 % less (EPYC, family 26);
 * with float32 it changes nothing. */
TARGET INLINE void NAME(prefetch)(const Tensor *t, int64_t at, int momentum, int mean)
{
#pragma GCC unroll 8
    for (int64_t j = at; j < at + GROUP * TILE; j += 16) { /* 64 bytes of float32 */
        __builtin_prefetch((void *)((uintptr_t)t->x_prime + 4 * (uintptr_t)j));
        __builtin_prefetch((void *)((uintptr_t)t->gradient + 4 * (uintptr_t)j));
        __builtin_prefetch((void *)((uintptr_t)t->x + 4 * (uintptr_t)j));
        if ((j - at) % 32 == 0) {
            if (mean)
                __builtin_prefetch((void *)((uintptr_t)t->mu + 2 * (uintptr_t)j));
            if (momentum)
                __builtin_prefetch((void *)((uintptr_t)t->v + 2 * (uintptr_t)j));
        }
    }
}

/* Tiles `from` to `to` of one tensor. The flags are constants wherever this is inlined. */
TARGET INLINE void NAME(walk)(const Step *s, const Tensor *t, int64_t from, int64_t to, int bare, int momentum,
                              int nesterov, int mean, int half, float *lanes)
{
    float z[GROUP * TILE] __attribute__((aligned(64))) = {0};
    NAME(keys) keys;
    U32 words[2][WORDS];
    const int noisy = s->noise_scale != 0.0f;
    if (noisy) {
        NAME(expand)(&keys, &s->address, t->parameter);
        NAME(philox)(words[0], &keys, from);
    }
    const int64_t size = half ? 2 : 4; /* bytes of an element of mu and of v */
    const uint32_t step_key = half ? rounding_key(&s->address, t->parameter, STATES) : 0;
    int turn = 0;
    for (int64_t group = from; group < to; group += GROUP, turn ^= 1) {
        if (half)
            NAME(prefetch)(t, (group + AHEAD) * TILE - t->start, momentum, mean);
        if (noisy) {
            NAME(philox)(words[turn ^ 1], &keys, group + GROUP); /* for the next turn: it waits for nothing here */
            NAME(normals)(z, words[turn]);
        }
        for (int64_t tile = group; tile < group + GROUP && tile < to; tile++) {
            const int64_t at = tile * TILE - t->start;
            uint32_t key = 0;
            if (half) {
                key = step_key + (uint32_t)(tile * TILE >> 32);
                MIX(key);
            }
            if (at < 0 || t->numel - at < TILE) {
                NAME(part)(s, t, tile, z + (tile - group) * TILE, key, lanes);
                continue;
            }
            const Row row = {t->x_prime + at, t->gradient + at, t->x + at, mean ? (char *)t->mu + size * at : NULL,
                             momentum ? (char *)t->v + size * at : NULL};
            if (t->first)
                NAME(begin)(s, &row, t->reset != 0, lanes);
            NAME(update)(s, &row, z + (tile - group) * TILE, key, (uint32_t)(tile * TILE), bare, momentum, nesterov,
                         mean, half, lanes);
        }
    }
}

#define WALK(bare, momentum, nesterov)                                                                          \
    do {                                                                                                        \
        if (t->mu && s->half)                                                                                   \
            NAME(walk)(s, t, from, to, bare, momentum, nesterov, 1, 1, lanes);                                  \
        else if (t->mu)                                                                                         \
            NAME(walk)(s, t, from, to, bare, momentum, nesterov, 1, 0, lanes);                                  \
        else if (s->half)                                                                                       \
            NAME(walk)(s, t, from, to, bare, momentum, nesterov, 0, 1, lanes);                                  \
        else                                                                                                    \
            NAME(walk)(s, t, from, to, bare, momentum, nesterov, 0, 0, lanes);                                  \
    } while (0)

/* Tiles `from` to `to` of one tensor; `sums` receives |x - x'|^2 and |grad f(x)|^2. */
TARGET static void NAME(langevin)(const Step *s, int64_t tensor, int64_t from, int64_t to, double *sums)
{
    const Tensor *t = &s->tensors[tensor];
    float lanes[2 * BLOCKS] __attribute__((aligned(64))) = {0};
    if (s->inner_momentum == 0.0f)
        WALK(0, 0, 0);
    else if (!s->inner_nesterov)
        WALK(0, 1, 0);
    else if (s->sign == 1.0f && s->weight_decay == 0.0f)
        WALK(1, 1, 1);
    else
        WALK(0, 1, 1);
    for (int i = 0; i < BLOCKS; i++) {
        sums[0] += lanes[i];
        sums[1] += lanes[BLOCKS + i];
    }
}
#undef WALK
