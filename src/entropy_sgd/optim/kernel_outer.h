/* Line 7 of Algorithm 1 with SGD outside, and the sketch of a gradient, for one instruction set: kernel_isa.h
 * includes this file. */

/* Line 7 on one whole tile: torch.optim.SGD with the gradient scale (x - mu). Without mu it is x', in `p`. */
TARGET INLINE void NAME(outer_tile)(const Outer *o, float *p, const float *x, const void *mu, float *v, int fresh,
                                    float *lanes)
{
    const F32 zero = {0}, momentum = zero + o->momentum, keep = zero + (fresh ? 1.0f : o->keep);
    const F32 scale = zero + o->scale, decay = zero + o->weight_decay, minus_lr = zero - o->lr;
    F32 means[2] = {zero, zero};
    for (int j = 0; j < TILE; j += LANES) {
        if (mu && j % (2 * LANES) == 0)
            NAME(load_states)(means, mu, j, o->half);
        F32 centre = NAME(load)(x + j), mean = mu ? means[j / LANES % 2] : NAME(load)(p + j);
        F32 d = mu && o->half ? zero - mean : centre - mean;
        F32 g = FMA(centre, decay, d * scale);
        if (v) {
            F32 old = fresh ? zero : NAME(load)(v + j);
            F32 buffer = FMA(old, momentum, g * keep);
            NAME(store)(v + j, buffer);
            g = o->nesterov ? FMA(buffer, momentum, g) : buffer;
        }
        NAME(store)(p + j, FMA(g, minus_lr, centre));
        float *sums = lanes + j % BLOCKS;
        NAME(store)(sums, FMA(d, d, NAME(load)(sums)));
    }
}

/* Tiles `from` to `to` of one tensor; sums[0] receives |x - mu|^2. */
TARGET static void NAME(descend)(const Outer *o, int64_t tensor, int64_t from, int64_t to, double *sums)
{
    const Tensor *t = &o->tensors[tensor];
    const int64_t size = o->half ? 2 : 4;
    float lanes[BLOCKS] __attribute__((aligned(64))) = {0}, copy[4][TILE];
    for (int64_t tile = from; tile < to; tile++) {
        int64_t at = tile * TILE, high = t->numel - at;
        const char *mu = t->mu ? (const char *)t->mu + size * at : NULL;
        float *v = t->v ? (float *)t->v + at : NULL;
        if (high >= TILE) {
            NAME(outer_tile)(o, t->x_prime + at, t->x + at, mu, v, t->first != 0, lanes);
            continue;
        }
        size_t bytes = (size_t)high * sizeof(float);
        memset(copy, 0, sizeof copy);
        memcpy(copy[0], t->x_prime + at, bytes);
        memcpy(copy[1], t->x + at, bytes);
        if (mu)
            memcpy(copy[2], mu, (size_t)(size * high));
        if (v)
            memcpy(copy[3], v, bytes);
        NAME(outer_tile)(o, copy[0], copy[1], mu ? copy[2] : NULL, v ? copy[3] : NULL, t->first != 0, lanes);
        memcpy(t->x_prime + at, copy[0], bytes);
        if (v)
            memcpy(v, copy[3], bytes);
    }
    for (int i = 0; i < BLOCKS; i++)
        sums[0] += lanes[i];
}

/* Adds tiles `from` to `to` of a pair to the sketch: see sketch.py. */
TARGET static void NAME(add)(const Sketch *s, const Pair *pair, uint32_t key, int64_t from, int64_t to, float *part,
                             double *square)
{
    const F32 zero = {0}, a_scale = zero + s->a_scale, b_scale = zero + s->b_scale;
    const int64_t size = s->half ? 2 : 4;
    float lanes[BLOCKS] __attribute__((aligned(64))) = {0}, copy[2][TILE];
    U32 shift = {0};
    for (int i = 0; i < LANES; i++)
        shift[i] = 31 - (uint32_t)i;
    for (int64_t tile = from; tile < to; tile++) {
        int64_t at = tile * TILE - pair->start, low = at < 0 ? -at : 0;
        int64_t high = pair->numel - at < TILE ? pair->numel - at : TILE;
        const float *a = pair->a ? pair->a + at : NULL;
        const char *b = (const char *)pair->b + size * at;
        if (high - low < TILE) {
            memset(copy, 0, sizeof copy);
            if (a) {
                memcpy(copy[0] + low, a + low, (size_t)(high - low) * sizeof(float));
                a = copy[0];
            }
            memcpy((char *)copy[1] + size * low, b + size * low, (size_t)(size * (high - low)));
            b = (const char *)copy[1];
        }
        uint32_t words[3];
        for (int i = 0; i < 3; i++) {
            uint64_t index = 4 * (uint64_t)tile + (uint64_t)i;
            uint32_t high_word = key + (uint32_t)(index >> 32);
            MIX(high_word);
            words[i] = (uint32_t)index ^ high_word;
            MIX(words[i]);
        }
        float *bucket = part + words[0] % BUCKETS;
        F32 values[2];
        for (int j = 0; j < TILE; j += LANES) {
            if (j % (2 * LANES) == 0)
                NAME(load_states)(values, b, j, s->half);
            F32 value = values[j / LANES % 2] * b_scale;
            if (a)
                value = NAME(load)(a + j) * a_scale + value;
            U32 sign = (((U32){0} + words[1 + j / 32]) << (shift - (uint32_t)(j % 32))) & SIGN;
            NAME(store)(bucket + j, NAME(load)(bucket + j) + (F32)((U32)value ^ sign));
            float *sums = lanes + j % BLOCKS;
            NAME(store)(sums, NAME(load)(sums) + value * value);
        }
        if (tile + 1 < to && (tile - from) % CHUNK != CHUNK - 1)
            continue;
        for (int i = 0; i < BLOCKS; i++) { /* before single precision wears off */
            *square += lanes[i];
            lanes[i] = 0.0f;
        }
    }
}
