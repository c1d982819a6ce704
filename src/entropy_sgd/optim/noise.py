"""Counter-based Gaussian noise: a pure function of (seed, outer step, inner step, parameter, element).

Line 5 of Algorithm 1 adds `N(0, I)` to the weights. A stateful generator would make that draw depend on how
many numbers were drawn before, on the rank, on the sharding and on whatever the user seeds. Here nothing is
stateful: element `e` of parameter `p` at inner step `l` of outer step `t` is computed from its own address.

    words = Philox4x32(counter = (block, p, l, t), key = seed)        Salmon et al., SC 2011
    pairs of words -> pairs of normals                                Box & Muller, 1958

Sixteen blocks of four words serve a tile of 64 consecutive elements: word `j` of block `16 tile + i` is
element `64 tile + 16 j + i`, so that a vector kernel over 16 blocks writes four whole registers in order.

Only operations whose rounding IEEE 754 defines are used (add, multiply, divide, square root, integers; the
logarithm, sine and cosine are short polynomials in these). So the bits do not depend on the number of
threads, the slice asked for, or the device, as long as no compiler fuses a multiplication into an addition.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Sequence
from functools import lru_cache
from typing import NamedTuple, cast

import torch
from torch import Tensor

from entropy_sgd.optim import kernel, sharding

# Philox4x32 passes BigCrush from 7 rounds on (Salmon et al., Table 2); 10 would cost 40 % more.
ROUNDS = 7
MULTIPLIERS = (0xD2511F53, 0xCD9E8D57)
KEY_INCREMENTS = (0x9E3779B9, 0xBB67AE85)
WORD = 0xFFFFFFFF
SIGN = -(1 << 31)  # the sign bit of a float, as an int32

BLOCKS_PER_TILE = 16
TILE = 4 * BLOCKS_PER_TILE
# Tiles made at a time: the dozen temporaries of a chunk stay in a core's second-level cache.
CHUNK = 4096

# ln(m) = s (2 + s² P(s²)) with s = (m - 1) / (m + 1), m in [√½, √2]; relative error below 1.5e-7.
LOG = (0.6665559726, 0.4120303931)
SQRT_HALF_BITS = 0x3F3504F3
# sin(φ) = φ + φ³ P(φ²) and cos(φ) = 1 + φ² P(φ²) on [-π/4, π/4]; errors below 4e-9 and 4e-8.
SIN = (-0.1666665494, 0.0083321781, -0.000195173)
COS = (-0.4999989478, 0.0416562946, -0.0013597823)


class Span(NamedTuple):
    """Elements `start` to `start + numel` of the parameter with index `parameter`, in flattened order."""

    parameter: int
    start: int
    numel: int


def philox(
    counter: tuple[Tensor | int, Tensor | int, Tensor | int, Tensor | int], key: tuple[int, int], rounds: int
) -> tuple[Tensor, Tensor]:
    """Philox4x32 on 32-bit words held in int64 tensors (or plain integers, which broadcast).

    An int64 product wraps, so it holds all 64 bits of the product of two words. Words 0 and 2 go through a
    round side by side, in one tensor. Words 1 and 3 are the lower halves of the products before; they and the
    upper halves are read as int32, which needs neither a shift nor a mask.

    Returns:
        words 0 and 2, and words 1 and 3, each stacked and as int32.
    """
    device = next(word.device for word in counter if isinstance(word, Tensor))
    full = [word if isinstance(word, Tensor) else torch.full((), word, device=device) for word in counter]
    c0, c1, c2, c3 = cast("list[Tensor]", torch.broadcast_tensors(*full))
    factors = _multipliers(device, c0.dim())
    even: Tensor = torch.stack((c0, c2))
    odd: Tensor = torch.stack((c3, c1))
    for i in range(rounds):
        products = even * factors
        keys = ((k + i * increment) & WORD for k, increment in zip(key, KEY_INCREMENTS, strict=True))
        for row, (other, k) in enumerate(zip((1, 0), keys, strict=True)):
            word = _half(even[row], LOW)  # the upper halves are zero and stay so
            torch.bitwise_xor(_half(products[other], HIGH), _half(odd[other], LOW), out=word)
            word ^= _signed(k)
        odd = products
    return _half(even, LOW), _half(odd, LOW).flip(0)


@lru_cache(maxsize=16)
def _multipliers(device: torch.device, dimensions: int) -> Tensor:
    return torch.tensor(MULTIPLIERS, device=device).view(2, *[1] * dimensions)


# Where the lower and the upper 32 bits of an int64 are in memory.
LOW, HIGH = (0, 1) if sys.byteorder == "little" else (1, 0)


def _half(words: Tensor, which: int) -> Tensor:
    """The lower or the upper halves of int64 words, a view."""
    return words.view(torch.int32).view(*words.shape, 2)[..., which]


def _signed(word: int) -> int:
    return word - (word >> 31 << 32)


def box_muller(w0: Tensor, w1: Tensor) -> tuple[Tensor, Tensor]:
    """Two independent standard normals (float32) from two 32-bit words (int32).

    Radius: `u = v / 2^31` for an odd 31-bit `v`; the customary factor √2 of the radius cancels against the
    √½ of the angle addition below, so `r = sqrt(-ln u)`. The largest value is sqrt(62 ln 2) = 6.56.
    Angle: two bits of `w1` choose the quadrant as two signs; the other thirty give φ in [-π/4, π/4), and
    `√2 cos(φ + π/4) = cos φ - sin φ`, `√2 sin(φ + π/4) = cos φ + sin φ`.
    """
    bits = (w0 >> 1).bitwise_and_(0x7FFFFFFF).bitwise_or_(1).to(torch.float32).view(torch.int32)
    exponent = (bits - SQRT_HALF_BITS) >> 23
    m = (bits - (exponent << 23)).view(torch.float32)
    s = (m - 1).div_(m + 1)
    s2 = s * s
    log_m = s2.mul(LOG[1]).add_(LOG[0]).mul_(s2).add_(2).mul_(s)
    r = _sqrt((31 - exponent).to(torch.float32).mul_(math.log(2)).sub_(log_m))

    phi = (w1 << 2).to(torch.float32).mul_(math.pi / 4 / 2**31)
    y = phi * phi
    sin = y.mul(SIN[2]).add_(SIN[1]).mul_(y).add_(SIN[0]).mul_(y).add_(1).mul_(phi)
    cos = y.mul(COS[2]).add_(COS[1]).mul_(y).add_(COS[0]).mul_(y).add_(1)
    z0 = (cos - sin).mul_(r)
    z1 = cos.add_(sin).mul_(r)
    z0.view(torch.int32).bitwise_xor_(w1 & SIGN)
    z1.view(torch.int32).bitwise_xor_((w1 << 1).bitwise_and_(SIGN))
    return z0, z1


def _sqrt(x: Tensor) -> Tensor:
    """The correctly rounded square root, which torch's for float32 on the CPU is not.

    A float64 root, even one that is off by a last bit, rounds to the right float32: no root of a 24-bit
    number comes closer than 2^-51 to the middle between two of them.
    """
    return x.to(torch.float64).sqrt_().to(torch.float32) if x.device.type == "cpu" else x.sqrt()


@lru_cache(maxsize=16)
def _tiles(spans: tuple[Span, ...], device: torch.device) -> tuple[Tensor, Tensor, list[int]]:
    """For every tile the spans touch, its number and parameter, both (tiles, 1); each span's first row."""
    numbers: list[Tensor] = []
    parameters: list[Tensor] = []
    rows = [0]
    for parameter, start, numel in spans:
        number = torch.arange(start // TILE, -(-(start + numel) // TILE), device=device)
        numbers.append(number)
        parameters.append(torch.full_like(number, parameter))
        rows.append(rows[-1] + len(number))
    return torch.cat(numbers)[:, None], torch.cat(parameters)[:, None], rows


def gaussian(spans: Sequence[Span], seed: int, t: int, l: int, device: torch.device) -> list[Tensor]:
    """N(0, 1) in float32 for each span, flat, at inner step `l` of outer step `t`."""
    if device.type == "cpu" and kernel.library() is not None:
        return kernel.gaussian(spans, seed, t, l)
    return gaussian_by_torch(spans, seed, t, l, device)


def gaussian_by_torch(spans: Sequence[Span], seed: int, t: int, l: int, device: torch.device) -> list[Tensor]:
    """`gaussian` without the compiled kernel: on any device, with the same bits.

    In chunks on the CPU; elsewhere all at once, in as many launches whatever the size.
    """
    number, parameter, rows = _tiles(tuple(spans), device)
    key = (seed & WORD, (seed >> 32) & WORD)
    lane = torch.arange(BLOCKS_PER_TILE, device=device)
    size = (len(number), 2, 2, BLOCKS_PER_TILE)  # (tiles, pairs, words, blocks)
    z = torch.empty(size, dtype=torch.float32, device=device)
    length = CHUNK if device.type == "cpu" else max(1, len(number))
    for i in range(0, len(number), length):
        chunk = slice(i, i + length)
        block = number[chunk] * BLOCKS_PER_TILE + lane
        words = philox((block, parameter[chunk], l & WORD, t & WORD), key, ROUNDS)
        for word, values in enumerate(box_muller(*words)):
            z[chunk, :, word] = values.transpose(0, 1)
    flat = z.view(-1)
    firsts = (row * TILE + span.start % TILE for row, span in zip(rows, spans, strict=False))
    return [flat[first : first + span.numel] for first, span in zip(firsts, spans, strict=True)]


def thermal(
    indices: Sequence[int], params: Sequence[Tensor], tensors: Sequence[Tensor], seed: int, t: int, l: int
) -> list[Tensor]:
    """N(0, I) shaped like `tensors`: the elements on this rank of `params`, which have these `indices`."""
    triples = zip(indices, params, tensors, strict=True)
    spans = [Span(i, sharding.offset(p), x.numel()) for i, p, x in triples]
    flat = gaussian(spans, seed, t, l, tensors[0].device)
    return [z.view(x.shape).to(x.dtype) for z, x in zip(flat, tensors, strict=True)]
