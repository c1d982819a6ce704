"""Whether someone else has changed the parameters since the optimizer last touched them.

`load_state_dict`, a re-initialisation or `p.data = ...` in the middle of a cycle makes x, mu and x' strangers to
each other. torch counts the in-place changes of a tensor, and a new storage has another address: both are read
after each operation of the optimizer and compared before the next, at no cost in memory. Not seen are writes
through `p.data` in place, which torch does not count.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

import torch
from torch import Tensor

from entropy_sgd.optim import sharding


class _Mark(NamedTuple):
    version: int
    local_version: int
    address: int
    dtype: torch.dtype
    device: torch.device
    shape: torch.Size
    stride: tuple[int, ...]


def _mark(p: Tensor) -> _Mark:
    if type(p) is torch.nn.Parameter or type(p) is Tensor:
        version = p._version
        return _Mark(version, version, p.data_ptr(), p.dtype, p.device, p.shape, p.stride())
    local = sharding.local(p)
    return _Mark(p._version, local._version, 0, p.dtype, p.device, p.shape, p.stride())


class Watch:
    """Marks of parameters, taken by `record` and compared by `changed`."""

    def __init__(self) -> None:
        self._marks: dict[Tensor, _Mark] = {}

    def record(self, params: Iterable[Tensor]) -> None:
        """These parameters are as the optimizer left them; of others nothing is known."""
        self._marks = {p: _mark(p) for p in params}

    def forget(self) -> None:
        """Nothing is known: whatever the parameters hold next is taken as it is."""
        self._marks = {}

    def changed(self, params: Iterable[Tensor]) -> list[Tensor]:
        """Those that hold other values than when they were recorded.

        A conversion to another dtype, device or layout is not such a change.
        """
        marks = self._marks
        found: list[Tensor] = []
        for p in params:
            mark = marks.get(p)
            if mark is not None and mark != (now := _mark(p)) and mark[3:] == now[3:]:
                found.append(p)
        return found
