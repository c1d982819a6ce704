"""SGD with momentum, `inner="sgd"`: the rule of the paper's experiments (Section 4.2).

v  = m v + dx'
d  = dx' + m v  (Nesterov)  or  v
x' = x' - inner_lr d + sqrt(inner_lr) noise N(0, I)          m = inner_momentum
"""

from __future__ import annotations

from collections.abc import Sequence
from math import sqrt
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from entropy_sgd.optim.rules.rule import Rule, add_noise_

if TYPE_CHECKING:
    from entropy_sgd.optim.langevin import Langevin, Tensors


class Momentum(Rule):
    """SGD, with momentum or without, Nesterov's or not."""

    name = "sgd"
    compiled = True

    def buffers(self, h: Langevin) -> tuple[str, ...]:
        """v, unless the momentum is zero."""
        return ("entropy_momentum",) if h.inner_momentum != 0 else ()

    def step(
        self, h: Langevin, x_prime: Tensor, dx: Tensor, buffers: Sequence[Tensor], k: int, z: Tensor | None
    ) -> tuple[Tensor, tuple[Tensor, ...]]:
        """The equations above."""
        del k
        d = dx
        if h.inner_momentum != 0:
            v = h.inner_momentum * buffers[0] + dx
            d = dx + h.inner_momentum * v if h.inner_nesterov else v
            buffers = (v,)
        x_prime = x_prime - h.inner_lr * d
        if z is not None:
            x_prime = x_prime + sqrt(h.inner_lr) * h.noise * z
        return x_prime, tuple(buffers)

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
        """The same, in place."""
        del k, owners
        d = dx
        if h.inner_momentum != 0:
            (v,) = buffers
            torch._foreach_mul_(v, h.inner_momentum)
            torch._foreach_add_(v, dx)
            if h.inner_nesterov:
                torch._foreach_add_(dx, v, alpha=h.inner_momentum)
            else:
                d = v
        torch._foreach_add_(x_prime, d, alpha=-h.inner_lr)
        add_noise_(h, x_prime, z)
