"""States and weights of 16 bits on the torch path: float32 for a step, then rounded stochastically.

Slots and halves of the bits are those of rounding.py, the same as in the compiled kernels.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from entropy_sgd.optim import rounding

FURTHER = 8  # slot of an inner rule's second buffer; the third has the next


def widened(tensors: Sequence[Tensor], dtype: torch.dtype = torch.float32) -> list[Tensor]:
    """Copies in `dtype`; tensors of other than 16 bits as they are."""
    return [t.to(dtype) if t.dtype in (torch.bfloat16, torch.float16) else t for t in tensors]


@dataclass(frozen=True)
class Rounder:
    """Stochastic rounding at one step, for parameters with these indices, or shards of them at `offset`."""

    indices: Sequence[int]
    offset: Sequence[int]
    seed: int
    t: int
    l: int

    def _bits(self, i: int, like: Tensor, slot: int) -> Tensor:
        key = rounding.key(self.seed, self.t, self.l, self.indices[i], slot)
        return rounding.words(like.shape, self.offset[i], key, like.device)

    def _store_(self, target: Tensor, value: Tensor, bits: Tensor) -> None:
        target.copy_(rounding.to_bfloat16(value.to(torch.float32).contiguous(), bits))

    def weights_(self, x_prime: Sequence[Tensor], values: Sequence[Tensor]) -> None:
        """Weights of bfloat16."""
        for i, (target, value) in enumerate(zip(x_prime, values, strict=True)):
            self._store_(target, value, self._bits(i, target, rounding.WEIGHTS))

    def buffer_(self, number: int, buffers: Sequence[Tensor], values: Sequence[Tensor]) -> None:
        """The inner rule's buffer of that number; tensors of other dtypes are copied."""
        for i, (target, value) in enumerate(zip(buffers, values, strict=True)):
            if target.dtype is not torch.bfloat16:
                if target is not value:
                    target.copy_(value)
            elif number == 0:
                self._store_(target, value, self._bits(i, target, rounding.STATES) >> 16)
            else:
                self._store_(target, value, self._bits(i, target, FURTHER + number))

    def mean_(self, mean: Sequence[Tensor], away: Sequence[Tensor], alpha: float) -> None:
        """Line 6 for mu - x, of which `away`, x' - x, is the newest sample."""
        for i, (target, newest) in enumerate(zip(mean, away, strict=True)):
            value = (target.to(newest.dtype) - newest).mul_(1 - alpha).add_(newest)
            self._store_(target, value, self._bits(i, target, rounding.STATES))
