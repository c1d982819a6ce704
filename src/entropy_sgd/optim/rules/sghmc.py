"""Stochastic gradient Hamiltonian Monte Carlo, `inner="sghmc"` (Chen et al., 2014, Eq. 15; Appendix A).

    v  = (1 - a) v - inner_lr dx' + sqrt(a inner_lr) noise N(0, I)          a = 1 - inner_momentum
    x' = x' + v

The noise enters the velocity and the friction a takes out what it puts in. Its strength is that for which the
stationary law is the one of the Langevin step, exp(-f / T) with T = noise^2 / 2, up to terms of order
inner_lr; with a = 1 (no momentum) it is the Langevin step itself.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import sqrt
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from entropy_sgd.optim.rules.rule import Rule

if TYPE_CHECKING:
    from entropy_sgd.optim.langevin import Langevin, Tensors


class SGHMC(Rule):
    """Langevin dynamics of second order."""

    name = "sghmc"

    def buffers(self, h: Langevin) -> tuple[str, ...]:
        """The velocity."""
        del h
        return ("entropy_velocity",)

    def step(
        self, h: Langevin, x_prime: Tensor, dx: Tensor, buffers: Sequence[Tensor], k: int, z: Tensor | None
    ) -> tuple[Tensor, tuple[Tensor, ...]]:
        """The equations above."""
        del k
        a = 1 - h.inner_momentum
        v = (1 - a) * buffers[0] - h.inner_lr * dx
        if z is not None:
            v = v + sqrt(a * h.inner_lr) * h.noise * z
        return x_prime + v, (v,)

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
        (v,) = buffers
        torch._foreach_mul_(v, h.inner_momentum)
        torch._foreach_add_(v, dx, alpha=-h.inner_lr)
        if z is not None:
            torch._foreach_add_(v, z, alpha=sqrt((1 - h.inner_momentum) * h.inner_lr) * h.noise)
        torch._foreach_add_(x_prime, v)
