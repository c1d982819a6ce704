"""x for x' and back: `eval()` and `train()` exchange the contents of tensors in place."""

from __future__ import annotations

import torch
from torch import Tensor

# Elements held aside at a time. On the CPU they stay in a core's second-level cache, so that each tensor
# crosses the memory bus once in each direction; other devices want few and large launches.
BLOCK = 1 << 17
DEVICE_BLOCK = 1 << 24


def exchange(a: list[Tensor], b: list[Tensor]) -> None:
    """Swaps the contents of `a[i]` and `b[i]`, which have the same shape, in place.

    Small tensors are swapped together, large ones in blocks of whole rows. At most one block needs temporary
    memory, or one row where a row is larger.
    """
    first: list[Tensor] = []
    second: list[Tensor] = []
    room = 0
    for x, y in zip(a, b, strict=True):
        limit, size = BLOCK if x.is_cpu else DEVICE_BLOCK, x.numel()
        if size > limit:
            rows = max(1, limit * len(x) // size)
            for p, q in zip(torch.split(x, rows), torch.split(y, rows), strict=True):
                _exchange([p], [q])
            continue
        if size > room:
            _exchange(first, second)
            first, second, room = [], [], limit
        first.append(x)
        second.append(y)
        room -= size
    _exchange(first, second)


def _exchange(a: list[Tensor], b: list[Tensor]) -> None:
    if a:
        held = [torch.empty_like(t) for t in a]
        torch._foreach_copy_(held, a)
        torch._foreach_copy_(a, b)
        torch._foreach_copy_(b, held)
