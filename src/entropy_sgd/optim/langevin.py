"""The Langevin step: lines 3 to 6 of Algorithm 1, once readable and once fast.

    line 4   dx' = grad f(x') + weight_decay x' - gamma (x - x')
    line 5   x'  = x' - inner_lr d + sqrt(inner_lr) noise N(0, I),    d = rule(dx')
    line 6   mu  = (1 - alpha) mu + alpha x'

The rule is what Section 4.2 calls modifying line 5: momentum (Nesterov's or not) or Adam.

    momentum   v = m v + dx';   d = dx' + m v  (Nesterov)  or  v
    Adam       a = b1 a + (1 - b1) dx';   s = b2 s + (1 - b2) dx'^2;
               d = (a / (1 - b1^k)) / (sqrt(s / (1 - b2^k)) + eps)   at the k-th step of the cycle

`langevin_step` is the text above, one tensor at a time. `langevin_step_` is what runs: the same on lists of
tensors, in place. Tests hold the one against the other. A faster kernel replaces `langevin_step_` alone.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import sqrt
from typing import ClassVar

import torch
from torch import Tensor

Tensors = list[Tensor] | tuple[Tensor, ...]


@dataclass(frozen=True)
class Langevin:
    """The hyper-parameters of a Langevin step, in the order of the algorithm."""

    gamma: float
    weight_decay: float
    inner: str
    inner_lr: float
    inner_momentum: float
    inner_nesterov: bool
    inner_betas: tuple[float, float]
    inner_eps: float
    noise: float
    alpha: float

    # Everything but gamma is taken from a parameter group under the same name.
    FROM_GROUP: ClassVar[tuple[str, ...]] = (
        "weight_decay",
        "inner",
        "inner_lr",
        "inner_momentum",
        "inner_nesterov",
        "inner_betas",
        "inner_eps",
        "noise",
        "alpha",
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
    """The new x', mu and buffers after step `k` = 1, 2, ... of the cycle, with `z` ~ N(0, I); pure."""
    dx = gradient + h.weight_decay * x_prime - h.gamma * (x - x_prime)  # line 4
    if h.inner == "adam":
        b1, b2 = h.inner_betas
        a, s = buffers
        a = b1 * a + (1 - b1) * dx
        s = b2 * s + (1 - b2) * dx * dx
        d = (a / (1 - b1**k)) / ((s / (1 - b2**k)).sqrt() + h.inner_eps)
        buffers = (a, s)
    elif h.inner_momentum != 0:
        (v,) = buffers
        v = h.inner_momentum * v + dx
        d = dx + h.inner_momentum * v if h.inner_nesterov else v
        buffers = (v,)
    else:
        d = dx
    x_prime = x_prime - h.inner_lr * d  # line 5
    if z is not None:
        x_prime = x_prime + sqrt(h.inner_lr) * h.noise * z
    mu = (1 - h.alpha) * mu + h.alpha * x_prime  # line 6
    return x_prime, mu, tuple(buffers)


def langevin_step_(
    h: Langevin,
    x_prime: Tensors,
    gradient: Tensors,
    x: Tensors,
    mu: Tensors,
    buffers: Sequence[Tensors],
    k: list[int],
    z: Tensors | None,
) -> None:
    """`langevin_step` on lists of tensors of one device and dtype: x', mu and buffers change in place."""
    dx = torch._foreach_sub(x_prime, x)  # line 4
    torch._foreach_mul_(dx, h.gamma)
    torch._foreach_add_(dx, gradient)
    if h.weight_decay != 0:
        torch._foreach_add_(dx, x_prime, alpha=h.weight_decay)

    if h.inner == "adam":
        a, s = buffers
        d = _adam_(h, dx, a, s, k)
    elif h.inner_momentum != 0:
        (v,) = buffers
        torch._foreach_mul_(v, h.inner_momentum)
        torch._foreach_add_(v, dx)
        if h.inner_nesterov:
            torch._foreach_add_(dx, v, alpha=h.inner_momentum)
        d = dx if h.inner_nesterov else v
    else:
        d = dx

    torch._foreach_add_(x_prime, d, alpha=-h.inner_lr)  # line 5
    if z is not None:
        torch._foreach_add_(x_prime, z, alpha=sqrt(h.inner_lr) * h.noise)
    torch._foreach_lerp_(mu, x_prime, h.alpha)  # line 6


def _adam_(h: Langevin, dx: Tensors, a: Tensors, s: Tensors, k: list[int]) -> Tensors:
    """Adam's direction from dx', which it overwrites."""
    b1, b2 = h.inner_betas
    torch._foreach_lerp_(a, dx, 1 - b1)
    torch._foreach_mul_(s, b2)
    torch._foreach_addcmul_(s, dx, dx, 1 - b2)
    root = torch._foreach_sqrt(s)
    torch._foreach_div_(root, [sqrt(1 - b2**i) for i in k])
    torch._foreach_add_(root, h.inner_eps)
    torch._foreach_copy_(dx, a)
    torch._foreach_div_(dx, [1 - b1**i for i in k])
    torch._foreach_div_(dx, root)
    return dx
