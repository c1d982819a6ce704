"""Stochastic gradient Nosé-Hoover thermostat, `inner="sgnht"` (Ding et al., 2014; Appendix A).

    v  = (1 - xi) v - inner_lr dx' + sqrt(a inner_lr) noise N(0, I)         a = 1 - inner_momentum
    x' = x' + v
    xi = xi + (1 - xi / 2) |v|^2 / n - inner_lr T                           T = noise^2 / 2, xi = a at first

The friction xi is not fixed: it grows while the kinetic energy of the n elements exceeds what the temperature
T allows, and falls otherwise. So it also absorbs the noise of mini-batches, whose strength is unknown, and
the stationary law stays exp(-f / T). These are Ding et al.'s equations for U = f / T with h^2 = inner_lr T,
their h p as v and their h xi as xi, but for the factor 1 - xi / 2, which goes to 1 with h: a velocity that a
discrete step damps by 1 - xi has an energy of inner_lr T / (1 - xi / 2) where x' has the temperature T, and
without the factor x' would be too cold by xi / 2. Each parameter tensor has a thermostat of its own.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import sqrt
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from entropy_sgd.optim import sharding
from entropy_sgd.optim.rules.rule import Rule

if TYPE_CHECKING:
    from entropy_sgd.optim.langevin import Langevin, Tensors

THERMOSTAT = "entropy_thermostat"


class SGNHT(Rule):
    """SGHMC with a friction that keeps the temperature."""

    name = "sgnht"

    def buffers(self, h: Langevin) -> tuple[str, ...]:
        """The velocity, and the friction: one number for each parameter tensor."""
        del h
        return ("entropy_velocity", THERMOSTAT)

    def buffer(self, name: str, like: Tensor) -> Tensor:
        """A number for the friction, else memory like the parameter's."""
        if name == THERMOSTAT:
            real = like.real if like.is_complex() else like
            return torch.zeros((), dtype=real.dtype, device=like.device)
        return super().buffer(name, like)

    def reset_(self, h: Langevin, buffers: Sequence[Tensors]) -> None:
        """No velocity; the friction a."""
        v, xi = buffers
        torch._foreach_zero_(v)
        for friction in xi:
            friction.fill_(1 - h.inner_momentum)

    def step(
        self, h: Langevin, x_prime: Tensor, dx: Tensor, buffers: Sequence[Tensor], k: int, z: Tensor | None
    ) -> tuple[Tensor, tuple[Tensor, ...]]:
        """The equations above, for a parameter that is not sharded."""
        del k
        a, T = 1 - h.inner_momentum, h.noise**2 / 2
        v, xi = buffers
        v = (1 - xi) * v - h.inner_lr * dx
        if z is not None:
            v = v + sqrt(a * h.inner_lr) * h.noise * z
        xi = xi + (1 - xi / 2) * v.square().mean() - h.inner_lr * T
        return x_prime + v, (v, xi)

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
        """The same, in place; the energy of a sharded parameter is that of all its shards."""
        del k
        a, T = 1 - h.inner_momentum, h.noise**2 / 2
        v, xi = buffers
        torch._foreach_mul_(v, [1 - friction for friction in xi])
        torch._foreach_add_(v, dx, alpha=-h.inner_lr)
        if z is not None:
            torch._foreach_add_(v, z, alpha=sqrt(a * h.inner_lr) * h.noise)
        energies = sharding.totals([u.square().sum() for u in v], owners)
        for friction, energy, p in zip(xi, energies, owners, strict=True):
            n = max(1, p.numel() * (2 if p.is_complex() else 1))
            friction.add_((1 - friction / 2) * energy / n - h.inner_lr * T)
        torch._foreach_add_(x_prime, v)
