"""What a rule of the inner loop is: line 5 of Algorithm 1, written readably and written fast.

A rule turns dx' of line 4 into the next x'. It has no state of its own: what it remembers is in the state of
each parameter under the names in `buffers`, and its hyper-parameters are those of `Langevin`.

To add a sampler, write one file with a subclass in this folder: `name` is what `inner` calls it.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from math import sqrt
from typing import TYPE_CHECKING, ClassVar

import torch
from torch import Tensor

if TYPE_CHECKING:
    from entropy_sgd.optim.langevin import Langevin, Tensors


class Rule(ABC):
    """Line 5 of Algorithm 1: how x' moves, given dx'."""

    name: ClassVar[str]
    compiled: ClassVar[bool] = False
    """Whether the compiled kernels know this rule."""

    @abstractmethod
    def buffers(self, h: Langevin) -> tuple[str, ...]:
        """Names of what is remembered of each parameter from step to step."""

    def buffer(self, name: str, like: Tensor) -> Tensor:
        """Memory for `name`, one of `buffers`, of a parameter `like` this; its value does not matter."""
        del name
        return torch.zeros_like(like)

    def reset_(self, h: Langevin, buffers: Sequence[Tensors]) -> None:
        """Puts the buffers, one list for each name, at their values before the first step."""
        del h
        for tensors in buffers:
            torch._foreach_zero_(tensors)

    @abstractmethod
    def step(
        self, h: Langevin, x_prime: Tensor, dx: Tensor, buffers: Sequence[Tensor], k: int, z: Tensor | None
    ) -> tuple[Tensor, tuple[Tensor, ...]]:
        """The new x' and buffers after step `k` = 1, 2, ... since the reset, with `z` ~ N(0, I); pure."""

    @abstractmethod
    def step_(
        self,
        h: Langevin,
        x_prime: Tensors,
        dx: Tensors,
        buffers: Sequence[Tensors],
        k: list[int],
        z: Tensors | None,
        owners: Sequence[Tensor],
    ) -> None:
        """`step` on lists, in place: x' and buffers change, dx' may be overwritten.

        `owners` are the parameters that the lists belong to, which may be sharded.
        """


def add_noise_(h: Langevin, x_prime: Tensors, z: Tensors | None) -> None:
    """The thermal noise of line 5, sqrt(inner_lr) noise N(0, I)."""
    if z is not None:
        torch._foreach_add_(x_prime, z, alpha=sqrt(h.inner_lr) * h.noise)
