"""x for x' and back: `eval()` and `train()` exchange the contents of tensors in place."""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import Tensor

# Elements held aside at a time. On the CPU they stay in a core's second-level cache, so that each tensor
# crosses the memory bus once in each direction; other devices want few and large launches.
BLOCK = 1 << 16
DEVICE_BLOCK = 1 << 24


def exchange(a: list[Tensor], b: list[Tensor]) -> None:
    """The contents of `a[i]` and `b[i]`, which have one shape, change places; no memory moves.

    What is held meanwhile is a block at most, or a row of a tensor where a row is larger.
    """
    for block in _blocks(a, b):
        first, second = map(list, zip(*block, strict=True))
        held = [torch.empty_like(t) for t in first]
        torch._foreach_copy_(held, first)
        torch._foreach_copy_(first, second)
        torch._foreach_copy_(second, held)


def _blocks(a: list[Tensor], b: list[Tensor]) -> Iterator[list[tuple[Tensor, Tensor]]]:
    """Small tensors together, large ones cut between rows."""
    block: list[tuple[Tensor, Tensor]] = []
    room = 0
    for x, y in zip(a, b, strict=True):
        limit = BLOCK if x.is_cpu else DEVICE_BLOCK
        pieces = [(x, y)]
        if x.numel() > limit:
            rows = max(1, limit * len(x) // x.numel())
            pieces = zip(torch.split(x, rows), torch.split(y, rows), strict=True)
        for piece in pieces:
            size = piece[0].numel()
            if block and size > room:
                yield block
                block = []
            if not block:
                room = limit
            block.append(piece)
            room -= size
    if block:
        yield block
