"""Counts the operations of torch that would each be a launch on a GPU, and the bytes they read and write."""

from __future__ import annotations

import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves


class Launches(TorchDispatchMode):
    """Inside, every operation is counted but for views and allocations, which move nothing."""

    def __init__(self) -> None:
        super().__init__()
        self.count = self.bytes = self.widest_int64 = 0

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        kwargs = kwargs or {}
        out = function(*args, **kwargs)
        if function.is_view or function.overloadpacket.__name__ in ("empty", "empty_like", "_unsafe_view"):
            return out
        inputs = tree_leaves((args, {k: v for k, v in kwargs.items() if k != "out"}))
        tensors = [t for t in (*inputs, *tree_leaves(out)) if isinstance(t, torch.Tensor)]
        self.count += 1
        self.bytes += sum(t.numel() * t.element_size() for t in tensors)
        self.widest_int64 = max([self.widest_int64, *(t.numel() for t in tensors if t.dtype is torch.int64)])
        return out
