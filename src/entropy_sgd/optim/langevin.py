"""The Langevin step: lines 4 to 6 of Algorithm 1, in a readable and in a fast form.

    line 4   dx' = grad f(x') + weight_decay x' - gamma (x - x')
    line 5   x'  = rule(x', dx', N(0, I)),     of SGD: x' - inner_lr dx' + sqrt(inner_lr) noise N(0, I)
    line 6   mu  = (1 - alpha) mu + alpha x'

The rule is what Section 4.2 calls modifying line 5; `rules/` has one file for each. `langevin_step` is the
text above, one tensor at a time. `langevin_step_` is what runs: the same on lists of tensors, in place. Tests
compare the two. A compiled kernel replaces `langevin_step_` alone.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from entropy_sgd.optim.rules import Rule

Tensors = list[Tensor] | tuple[Tensor, ...]


@dataclass(frozen=True)
class Langevin:
    """The hyper-parameters of a Langevin step, in the order of the algorithm."""

    gamma: float
    weight_decay: float
    rule: Rule
    inner_lr: float
    inner_momentum: float
    inner_nesterov: bool
    inner_betas: tuple[float, float]
    inner_eps: float
    noise: float
    alpha: float

    @classmethod
    def of(cls, group: dict[str, Any], rule: Rule, gamma: float) -> Langevin:
        """Those of a parameter group; one with a torch optimizer inside has no use for the rule's."""
        return cls(
            gamma,
            group["weight_decay"],
            rule,
            group["inner_lr"],
            group.get("inner_momentum", 0.0),
            group.get("inner_nesterov", False),
            group.get("inner_betas", (0.0, 0.0)),
            group.get("inner_eps", 0.0),
            group["noise"],
            group["alpha"],
        )


def langevin_step(
    h: Langevin,
    x_prime: Tensor,
    gradient: Tensor,
    x: Tensor,
    mu: Tensor,
    buffers: Sequence[Tensor],
    k: int,
    z: Tensor | None,
) -> tuple[Tensor, Tensor, tuple[Tensor, ...]]:
    """The new x', mu and buffers after step `k` = 1, 2, ... since the rule's reset, `z` ~ N(0, I); pure."""
    dx = gradient + h.weight_decay * x_prime - h.gamma * (x - x_prime)  # line 4
    x_prime, buffers = h.rule.step(h, x_prime, dx, buffers, k, z)  # line 5
    mu = (1 - h.alpha) * mu + h.alpha * x_prime  # line 6
    return x_prime, mu, buffers


def drift(h: Langevin, x_prime: Tensors, gradient: Tensors, x: Tensors) -> list[Tensor]:
    """The drift dx' of line 4, on lists."""
    dx = list(torch._foreach_sub(x_prime, x))
    torch._foreach_mul_(dx, h.gamma)
    torch._foreach_add_(dx, gradient)
    if h.weight_decay != 0:
        torch._foreach_add_(dx, x_prime, alpha=h.weight_decay)
    return dx


def langevin_step_(
    h: Langevin,
    x_prime: Tensors,
    gradient: Tensors,
    x: Tensors,
    mu: Tensors,
    buffers: Sequence[Tensors],
    k: list[int],
    z: Tensors | None,
    owners: Sequence[Tensor],
) -> None:
    """`langevin_step` on lists of tensors of one device and dtype: x', mu and buffers change in place."""
    dx = drift(h, x_prime, gradient, x)  # line 4
    h.rule.step_(h, x_prime, dx, buffers, k, z, owners)  # line 5
    if mu:  # line 6; with alpha = 1 mu is x'
        torch._foreach_lerp_(mu, x_prime, h.alpha)
