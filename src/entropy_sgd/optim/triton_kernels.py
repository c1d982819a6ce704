"""The Langevin step on one block of elements, in Triton: lines 1 and 4 to 6 with the noise made in registers.

Device code only: triton_step.py lays out the arguments and launches it. The operations are those of
kernel_isa.h in the same order, written out as fused multiply-adds where that file has them. It must be
compiled with `enable_fp_fusion=False`: what the compiler fused on its own would change the bits of the noise.
"""
# pyright: basic, reportGeneralTypeIssues=false

from __future__ import annotations

import triton
import triton.language as tl

TILE = tl.constexpr(64)
LANES = tl.constexpr(16)  # Philox blocks of a tile
FIELDS = tl.constexpr(10)  # 64-bit integers that describe a tensor
SIGN = tl.constexpr(0x80000000)
CANONICAL_NAN = tl.constexpr(0x7FC00000)


@triton.jit
def philox(c0, c1, c2, c3, k0, k1):
    """noise.philox, seven rounds on uint32 words."""
    for _ in tl.static_range(7):
        p0 = c0.to(tl.uint64) * 0xD2511F53
        p1 = c2.to(tl.uint64) * 0xCD9E8D57
        c0, c1, c2, c3 = (
            (p1 >> 32).to(tl.uint32) ^ c1 ^ k0,
            p1.to(tl.uint32),
            (p0 >> 32).to(tl.uint32) ^ c3 ^ k1,
            p0.to(tl.uint32),
        )
        k0 = (k0 + 0x9E3779B9).to(tl.uint32)
        k1 = (k1 + 0xBB67AE85).to(tl.uint32)
    return c0, c1, c2, c3


@triton.jit
def box_muller(w0, w1):
    """noise.box_muller."""
    bits = ((w0 >> 1) | 1).to(tl.int32).to(tl.float32).to(tl.int32, bitcast=True)
    exponent = (bits - 0x3F3504F3) >> 23
    m = (bits - (exponent << 23)).to(tl.float32, bitcast=True)
    s = tl.div_rn(m - 1.0, m + 1.0)
    s2 = s * s
    log_m = ((s2 * 0.4120303931 + 0.6665559726) * s2 + 2.0) * s
    r = tl.sqrt_rn((31 - exponent).to(tl.float32) * 0.69314718055994530942 - log_m)
    phi = (w1 << 2).to(tl.int32, bitcast=True).to(tl.float32) * 3.657295198167899e-10
    y = phi * phi
    sine = (((y * -0.000195173 + 0.0083321781) * y - 0.1666665494) * y + 1.0) * phi
    cosine = ((y * -0.0013597823 + 0.0416562946) * y - 0.4999989478) * y + 1.0
    z0 = ((cosine - sine) * r).to(tl.uint32, bitcast=True) ^ (w1 & SIGN)
    z1 = ((cosine + sine) * r).to(tl.uint32, bitcast=True) ^ ((w1 << 1) & SIGN)
    return z0.to(tl.float32, bitcast=True), z1.to(tl.float32, bitcast=True)


@triton.jit
def mix(w):
    """rounding.mix."""
    w = w ^ (w >> 16)
    w = (w * 0x7FEB352D).to(tl.uint32)
    w = w ^ (w >> 15)
    w = (w * 0x846CA68B).to(tl.uint32)
    return w ^ (w >> 16)


@triton.jit
def to_bfloat16(value, bits):
    """rounding.to_bfloat16, as the float32 that is exactly representable."""
    rounded = (value.to(tl.uint32, bitcast=True) + (bits & 0xFFFF)) & 0xFFFF0000
    rounded = tl.where(value == value, rounded, CANONICAL_NAN)
    return rounded.to(tl.float32, bitcast=True)


@triton.jit
def nearest_bfloat16(value):
    """`value` rounded to bfloat16, ties to even, as float32."""
    return to_bfloat16(value, 0x7FFF + ((value.to(tl.uint32, bitcast=True) >> 16) & 1))


@triton.jit
def update(
    z, at, mask, bits, weight_bits, x_prime, gradient, x, mu, v, first, fresh, gamma, decay, lr,
    momentum, scale, alpha, sign,
    MOMENTUM: tl.constexpr, NESTEROV: tl.constexpr, NOISE: tl.constexpr, MEAN: tl.constexpr,
    HALF_STATE: tl.constexpr, HALF_WEIGHTS: tl.constexpr,
):  # fmt: skip
    """Lines 1 and 4 to 6 at the elements `at`; returns (x - x')^2 and, at the first step, grad f(x)^2."""
    w = tl.load(x_prime + at, mask=mask, other=0.0).to(tl.float32)
    g = tl.load(gradient + at, mask=mask, other=0.0).to(tl.float32)
    if HALF_WEIGHTS:  # x, in more bits than x', goes on from cycle to cycle, where no one has written x'
        centre = tl.load(x + at, mask=mask, other=0.0)
        centre = tl.where(first & (nearest_bfloat16(centre) != w), w, centre)
        tl.store(x + at, centre, mask=mask & first)
    else:
        centre = tl.where(first, w, tl.load(x + at, mask=mask & (first == 0), other=0.0))
        tl.store(x + at, w, mask=mask & first)  # line 1
    at_x = g * sign + w * decay
    gradient_sq = tl.where(mask & first, at_x * at_x, 0.0)
    dx = tl.fma(w - centre, gamma, tl.fma(g, sign, w * decay))  # line 4
    d = dx
    if MOMENTUM:
        buffer = tl.fma(tl.load(v + at, mask=mask & (fresh == 0), other=0.0).to(tl.float32), momentum, dx)
        if HALF_STATE:
            tl.store(v + at, to_bfloat16(buffer, bits >> 16).to(tl.bfloat16), mask=mask)
        else:
            tl.store(v + at, buffer, mask=mask)
        d = tl.fma(buffer, momentum, dx) if NESTEROV else buffer
    w = tl.fma(d, -lr, w)  # line 5
    if NOISE:
        w = tl.fma(z, scale, w)
    if HALF_WEIGHTS:
        w = to_bfloat16(w, weight_bits)
        tl.store(x_prime + at, w.to(tl.bfloat16), mask=mask)
    else:
        tl.store(x_prime + at, w, mask=mask)
    away = w - centre
    if MEAN:  # line 6, of mu or of mu - x
        old = tl.load(mu + at, mask=mask & (first == 0), other=0.0).to(tl.float32)
        if HALF_STATE:
            mean = tl.fma(old - away, 1.0 - alpha, away)
            tl.store(mu + at, to_bfloat16(mean, bits).to(tl.bfloat16), mask=mask)
        else:
            old = tl.where(first, centre, old)
            tl.store(mu + at, tl.fma(old - w, 1.0 - alpha, w), mask=mask)
    return tl.where(mask, away * away, 0.0), gradient_sq


@triton.jit(do_not_specialize=["k0", "k1", "t", "l"])
def langevin(
    table, blocks, sums, k0, k1, t, l, gamma, decay, lr, momentum, scale, alpha, sign,
    MOMENTUM: tl.constexpr, NESTEROV: tl.constexpr, NOISE: tl.constexpr, MEAN: tl.constexpr,
    HALF_STATE: tl.constexpr, HALF_WEIGHTS: tl.constexpr, TILES: tl.constexpr,
):  # fmt: skip
    """One block of TILES tiles: `blocks` has its tensor and its number in it, `table` describes the tensor.

    A thread makes the four words of a Philox block, which are the noise of four elements sixteen apart.
    """
    program = tl.program_id(0)
    row = table + tl.load(blocks + 2 * program).to(tl.int64) * FIELDS
    number = tl.load(blocks + 2 * program + 1)
    weights = tl.bfloat16 if HALF_WEIGHTS else tl.float32
    states = tl.bfloat16 if HALF_STATE else tl.float32
    x_prime = tl.load(row).to(tl.pointer_type(weights))
    gradient = tl.load(row + 1).to(tl.pointer_type(weights))
    x = tl.load(row + 2).to(tl.pointer_type(tl.float32))
    mu = tl.load(row + 3).to(tl.pointer_type(states))
    v = tl.load(row + 4).to(tl.pointer_type(states))
    numel = tl.load(row + 5)
    start = tl.load(row + 6)
    parameter = tl.load(row + 7).to(tl.uint32)
    first = tl.load(row + 8) != 0
    fresh = first & (tl.load(row + 9) != 0)

    tile = (start // (TILE * TILES) + number.to(tl.int64)) * TILES
    lane = tl.arange(0, TILES * LANES)
    element = tile * TILE + (lane // LANES * TILE + lane % LANES)
    w0, w1, w2, w3 = (0, 0, 0, 0)
    z0, z1, z2, z3 = (0.0, 0.0, 0.0, 0.0)
    k0, k1, t, l = k0.to(tl.uint32), k1.to(tl.uint32), t.to(tl.uint32), l.to(tl.uint32)
    if NOISE:
        block = (tile * LANES + lane).to(tl.uint32)
        w0, w1, w2, w3 = philox(block, parameter, l, t, k0, k1)
        z0, z1 = box_muller(w0, w1)
        z2, z3 = box_muller(w2, w3)
    states_key, weights_key = k0, k0
    if HALF_STATE or HALF_WEIGHTS:  # rounding.key; a block never crosses a multiple of 2^32
        high = (tile * TILE >> 32).to(tl.uint32)
        common = mix((k0 + 0x9E3779B9).to(tl.uint32))
        common = mix(((common ^ k1) + 0x9E3779B9).to(tl.uint32))
        common = mix(((common ^ t) + 0x9E3779B9).to(tl.uint32))
        common = mix(((common ^ l) + 0x9E3779B9).to(tl.uint32))
        common = mix(((common ^ parameter) + 0x9E3779B9).to(tl.uint32))
        states_key = mix((mix((common + 0x9E3779B9).to(tl.uint32)) + high).to(tl.uint32))
        weights_key = mix((mix(((common ^ 1) + 0x9E3779B9).to(tl.uint32)) + high).to(tl.uint32))

    distance_sq = tl.zeros((TILES * LANES,), tl.float32)
    gradient_sq = distance_sq
    for j in tl.static_range(4):
        z = z0 if j == 0 else (z1 if j == 1 else (z2 if j == 2 else z3))
        e = element + j * LANES
        at = e - start
        bits, weight_bits = e, e
        if HALF_STATE:
            bits = mix(e.to(tl.uint32) ^ states_key)
        if HALF_WEIGHTS:
            weight_bits = mix(e.to(tl.uint32) ^ weights_key)
        a, b = update(
            z, at, (at >= 0) & (at < numel), bits, weight_bits, x_prime, gradient, x, mu, v, first,
            fresh, gamma, decay, lr, momentum, scale, alpha, sign,
            MOMENTUM, NESTEROV, NOISE, MEAN, HALF_STATE, HALF_WEIGHTS,
        )  # fmt: skip
        distance_sq += a
        gradient_sq += b
    tl.store(sums + 2 * program, tl.sum(distance_sq))
    tl.store(sums + 2 * program + 1, tl.sum(gradient_sq))


@triton.jit
def outer(
    table, blocks, sums, lr, momentum, keep, decay, scale,
    MOMENTUM: tl.constexpr, NESTEROV: tl.constexpr, MEAN: tl.constexpr, HALF_STATE: tl.constexpr,
    HALF_WEIGHTS: tl.constexpr, SIZE: tl.constexpr,
):  # fmt: skip
    """Line 7 with torch.optim.SGD outside, on SIZE elements, as in kernel_outer.h.

    Half weights are rounded to the nearest: x is kept beside them, and trains on.
    """
    program = tl.program_id(0)
    row = table + tl.load(blocks + 2 * program).to(tl.int64) * FIELDS
    weights = tl.bfloat16 if HALF_WEIGHTS else tl.float32
    states = tl.bfloat16 if HALF_STATE else tl.float32
    p = tl.load(row).to(tl.pointer_type(weights))
    x = tl.load(row + 2).to(tl.pointer_type(tl.float32))
    mu = tl.load(row + 3).to(tl.pointer_type(states))
    v = tl.load(row + 4).to(tl.pointer_type(tl.float32))
    fresh = tl.load(row + 8) != 0
    at = tl.load(blocks + 2 * program + 1).to(tl.int64) * SIZE + tl.arange(0, SIZE)
    mask = at < tl.load(row + 5)
    centre = tl.load(x + at, mask=mask, other=0.0)
    if not MEAN:
        d = centre - tl.load(p + at, mask=mask, other=0.0).to(tl.float32)
    elif HALF_STATE:
        d = -tl.load(mu + at, mask=mask, other=0.0).to(tl.float32)
    else:
        d = centre - tl.load(mu + at, mask=mask, other=0.0)
    g = tl.fma(centre, decay, d * scale)
    if MOMENTUM:
        old = tl.load(v + at, mask=mask & (fresh == 0), other=0.0)
        buffer = tl.fma(old, momentum, g * tl.where(fresh, 1.0, keep))
        tl.store(v + at, buffer, mask=mask)
        g = tl.fma(buffer, momentum, g) if NESTEROV else buffer
    new = tl.fma(g, -lr, centre)
    if HALF_WEIGHTS:
        tl.store(p + at, nearest_bfloat16(new).to(tl.bfloat16), mask=mask)
        tl.store(x + at, new, mask=mask)
    else:
        tl.store(p + at, new, mask=mask)
    tl.store(sums + 2 * program, tl.sum(d * d))
    tl.store(sums + 2 * program + 1, 0.0)


@triton.jit(do_not_specialize=["seed", "seed_high", "t"])
def sketch(
    pairs, blocks, out, sums, seed, seed_high, t, a_scale, b_scale,
    SUM: tl.constexpr, HALF_A: tl.constexpr, HALF_B: tl.constexpr, TILES: tl.constexpr, BUCKETS: tl.constexpr,
):  # fmt: skip
    """sketch.add_ on TILES tiles. Blocks add in any order: the last bits differ from run to run."""
    program = tl.program_id(0)
    row = pairs + tl.load(blocks + 2 * program).to(tl.int64) * 5
    a = tl.load(row).to(tl.pointer_type(tl.bfloat16 if HALF_A else tl.float32))
    b = tl.load(row + 1).to(tl.pointer_type(tl.bfloat16 if HALF_B else tl.float32))
    numel = tl.load(row + 2)
    start = tl.load(row + 3)
    number = tl.load(blocks + 2 * program + 1).to(tl.int64)
    tile = (start // (TILE * TILES) + number) * TILES + tl.arange(0, TILES)[:, None]
    lane = tl.arange(0, TILE)[None, :]
    at = tile * TILE + lane - start
    mask = (at >= 0) & (at < numel)
    value = tl.load(b + at, mask=mask, other=0.0).to(tl.float32) * b_scale
    if SUM:
        value = tl.load(a + at, mask=mask, other=0.0).to(tl.float32) * a_scale + value
    key = mix((seed.to(tl.uint32) + 0x9E3779B9).to(tl.uint32))  # rounding.key, slot 2
    key = mix(((key ^ seed_high.to(tl.uint32)) + 0x9E3779B9).to(tl.uint32))
    key = mix(((key ^ t.to(tl.uint32)) + 0x9E3779B9).to(tl.uint32))
    key = mix((key + 0x9E3779B9).to(tl.uint32))
    key = mix(((key ^ tl.load(row + 4).to(tl.uint32)) + 0x9E3779B9).to(tl.uint32))
    key = mix(((key ^ 2) + 0x9E3779B9).to(tl.uint32))
    key = mix((key + (tile * 4 >> 32).to(tl.uint32)).to(tl.uint32))
    index = (tile * 4).to(tl.uint32)
    bucket = (mix(index ^ key) + lane.to(tl.uint32)) % BUCKETS
    signs = mix(tl.where(lane < 32, index + 1, index + 2).to(tl.uint32) ^ key)
    signs = ((signs >> (lane % 32).to(tl.uint32)) & 1) << 31
    signed = (value.to(tl.uint32, bitcast=True) ^ signs).to(tl.float32, bitcast=True)
    tl.atomic_add(out + bucket, signed, mask=mask, sem="relaxed")
    tl.store(sums + 2 * program, tl.sum(tl.sum(value * value, 1)))
    tl.store(sums + 2 * program + 1, 0.0)


@triton.jit
def by_tensor(sums, ends, totals, WIDTH: tl.constexpr):
    """Adds up the sums of a tensor's blocks, always in the same order."""
    tensor = tl.program_id(0)
    begin = tl.load(ends + tensor)
    end = tl.load(ends + tensor + 1)
    lane = tl.arange(0, WIDTH)
    distance_sq = tl.zeros((WIDTH,), tl.float64)
    gradient_sq = tl.zeros((WIDTH,), tl.float64)
    for i in range(begin, end, WIDTH):
        mask = i + lane < end
        distance_sq += tl.load(sums + 2 * (i + lane), mask=mask, other=0.0).to(tl.float64)
        gradient_sq += tl.load(sums + 2 * (i + lane) + 1, mask=mask, other=0.0).to(tl.float64)
    tl.store(totals + 2 * tensor, tl.sum(distance_sq))
    tl.store(totals + 2 * tensor + 1, tl.sum(gradient_sq))
