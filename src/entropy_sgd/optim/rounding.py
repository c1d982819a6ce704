"""Stochastic rounding to bfloat16 with counter-based bits: a state of 16 bits that is right on average.

A running mean kept in bfloat16 stands still once its steps fall below half a unit in the last place. Rounded
up with a probability equal to the fraction cut off, it moves by the right amount on average, however small.

The bits of element `e` are a function of (seed, outer step, inner step, parameter, element), as the noise is,
but from a cheaper hash: rounding needs 16 bits without bias, not the quality of Philox. With `mix` below,

    key   = mix over (seed, t, l, parameter, slot), word by word
    bits  = mix(e mod 2^32  xor  mix(key + e div 2^32))

`slot` 0 serves the states (upper half: momentum, lower half: mean), 1 the weights (lower half). kernel.c and
triton_kernels.py have the same bits.
"""

from __future__ import annotations

import torch
from torch import Tensor

WORD = 0xFFFFFFFF
GOLDEN = 0x9E3779B9
# A bijection of 32-bit words with little bias (C. Wellons' search for such constants, "lowbias32").
MIX = (0x7FEB352D, 0x846CA68B)
STATES, WEIGHTS = 0, 1  # slots


def mix(word: int) -> int:
    """A hash of one 32-bit word."""
    word ^= word >> 16
    word = word * MIX[0] & WORD
    word ^= word >> 15
    word = word * MIX[1] & WORD
    return word ^ word >> 16


def key(seed: int, t: int, l: int, parameter: int, slot: int) -> int:
    """What the bits of all elements of one parameter share at one step."""
    k = 0
    for word in (seed, seed >> 32, t, l, parameter, slot):
        k = mix(((k ^ word) + GOLDEN) & WORD)
    return k


def words(shape: torch.Size, start: int, k: int, device: torch.device) -> Tensor:
    """32 bits for each element of a tensor whose first one is element `start` of its parameter, as int32."""
    numel = shape.numel()
    pieces: list[Tensor] = []
    while numel > 0:  # one turn, unless the parameter has elements beyond 2^32
        low, high = start & WORD, start >> 32
        length = min(numel, WORD + 1 - low)
        pieces.append(_words(low, length, mix((k + high) & WORD), device))
        start, numel = start + length, numel - length
    return torch.cat(pieces).view(shape) if pieces else torch.empty(shape, dtype=torch.int32, device=device)


def _words(low: int, length: int, k: int, device: torch.device) -> Tensor:
    """`mix` on int32 tensors, whose products wrap and whose shifts keep the sign, hence the masks."""
    w = torch.arange(low, low + length, device=device, dtype=torch.int64).to(torch.int32)
    w ^= _signed(k)
    w ^= (w >> 16) & 0xFFFF
    w *= _signed(MIX[0])
    w ^= (w >> 15) & 0x1FFFF
    w *= _signed(MIX[1])
    w ^= (w >> 16) & 0xFFFF
    return w


def _signed(word: int) -> int:
    return word - (word >> 31 << 32)


def to_bfloat16(value: Tensor, bits: Tensor) -> Tensor:
    """`value` (float32) as bfloat16: up in magnitude if the lower 16 `bits` and its own carry over."""
    rounded = value.view(torch.int32) + (bits & 0xFFFF)
    rounded = (rounded & ~0xFFFF).view(torch.float32)
    return torch.where(value.isnan(), value, rounded).to(torch.bfloat16)
