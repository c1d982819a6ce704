"""Adam, `inner="adam"` (Kingma & Ba, 2015), which Section 4.2 names for line 5.

a  = b1 a + (1 - b1) dx'
s  = b2 s + (1 - b2) dx'^2
d  = (a / (1 - b1^k)) / (sqrt(s / (1 - b2^k)) + eps)             at the k-th step since the reset
x' = x' - inner_lr d + sqrt(inner_lr) noise N(0, I)              b1, b2 = inner_betas
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


class Adam(Rule):
    """Adam with its bias correction."""

    name = "adam"

    def buffers(self, h: Langevin) -> tuple[str, ...]:
        """Both running averages."""
        del h
        return ("entropy_exp_avg", "entropy_exp_avg_sq")

    def step(
        self, h: Langevin, x_prime: Tensor, dx: Tensor, buffers: Sequence[Tensor], k: int, z: Tensor | None
    ) -> tuple[Tensor, tuple[Tensor, ...]]:
        """The equations above."""
        b1, b2 = h.inner_betas
        a, s = buffers
        a = b1 * a + (1 - b1) * dx
        s = b2 * s + (1 - b2) * dx * dx
        d = (a / (1 - b1**k)) / ((s / (1 - b2**k)).sqrt() + h.inner_eps)
        x_prime = x_prime - h.inner_lr * d
        if z is not None:
            x_prime = x_prime + sqrt(h.inner_lr) * h.noise * z
        return x_prime, (a, s)

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
        del owners
        b1, b2 = h.inner_betas
        a, s = buffers
        torch._foreach_lerp_(a, dx, 1 - b1)
        torch._foreach_mul_(s, b2)
        torch._foreach_addcmul_(s, dx, dx, 1 - b2)
        root = torch._foreach_sqrt(s)
        torch._foreach_div_(root, [sqrt(1 - b2**i) for i in k])
        torch._foreach_add_(root, h.inner_eps)
        torch._foreach_copy_(dx, a)
        torch._foreach_div_(dx, [1 - b1**i for i in k])
        torch._foreach_div_(dx, root)
        torch._foreach_add_(x_prime, dx, alpha=-h.inner_lr)
        add_noise_(h, x_prime, z)
