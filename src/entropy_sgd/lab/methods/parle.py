"""Parle (Chaudhari et al., 2017): replicas of Entropy-SGD drawn to their mean once a cycle (`Replicas`)."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from entropy_sgd.lab import Diverged
from entropy_sgd.lab.methods.algorithm1 import FIXED, PAPER, SEARCH, AroundAlgorithm1, InnerOptions
from entropy_sgd.lab.methods.base import MOMENTA, Hints, Range, arguments

if TYPE_CHECKING:
    from torch import Tensor, nn

    from entropy_sgd.lab.methods.base import Closure


@dataclass(frozen=True, kw_only=True)
class ParleOptions(InnerOptions):
    """Replicas of Entropy-SGD in processes of their own, coupled by ρ."""

    lr: float
    """η, the outer learning rate at the start; the recipe's drops multiply it."""
    momentum: float = 0.0
    """Momentum of the outer loop."""
    nesterov: bool = True
    """Nesterov's form of the outer momentum."""
    gamma_maximum: float = 1.0
    """Upper bound of γ."""
    rho0: float = 0.01
    """ρ at the first outer update: the pull towards the mean of the replicas."""
    rho1: float = 1e-3
    """ρ₁ of ρ(t) = ρ₀ (1 + ρ₁)^t."""
    rho_maximum: float = 1.0
    """Upper bound of ρ; with η = 1 a replica moves onto the mean at 1."""
    replicas: int = 3
    """How many there are. Each sees its own part of the data, and their gradients all count."""


class Parle(AroundAlgorithm1[ParleOptions]):
    """Entropy-SGD in several processes."""

    name = "parle"
    options = ParleOptions
    origin = (
        "ascribed to Parle (Chaudhari et al. 2017), unchecked: 3 replicas, L = 25, γ and ρ from 0.01 on, "
        "both growing by 1 + 1/(2B) for B batches an epoch, γ to at most 1; chosen here: B = 500, η = 1, and "
        "so ρ to at most 1, not 10; noise and Langevin loop as entropy-sgd"
    )
    search = {
        "lr": Range(0.1, 1.0, log=True),
        "momentum": MOMENTA,
        "rho0": Range(1e-3, 1.0, log=True),
        "rho1": Range(1e-6, 1e-2, log=True),
        **SEARCH,
    }
    rate = "inner_lr"  # SGD's; the outer rate is about 1, which moves x to μ

    def defaults(self, hints: Hints) -> ParleOptions:
        """See `origin`: ρ may reach 10 with Parle's η = 0.1, but with η = 1 replicas meet at 1."""
        return ParleOptions(
            lr=1.0,
            L=25,
            inner_lr=hints.lr,
            inner_momentum=hints.momentum,
            weight_decay=hints.weight_decay,
            noise=1e-4,
            gamma0=0.01,
            gamma1=1e-3,
        )

    def replicas(self, options: ParleOptions) -> int:
        return options.replicas

    def with_replicas(self, options: ParleOptions, replicas: int) -> ParleOptions:
        return replace(options, replicas=replicas)

    def stretched(self, options: ParleOptions, ratio: float) -> ParleOptions:
        """Both scopes end where they would have ended."""
        return replace(super().stretched(options, ratio), rho1=math.expm1(math.log1p(options.rho1) / ratio))

    def build(self, options: ParleOptions, model: nn.Module, *, seed: int, steps: int) -> Any:
        import torch.distributed as dist

        import entropy_sgd

        chosen = arguments(options)
        replicas = chosen.pop("replicas")
        scope = entropy_sgd.scoping.Exponential
        gamma = scope(chosen.pop("gamma0"), chosen.pop("gamma1"), chosen.pop("gamma_maximum"))
        rho = scope(chosen.pop("rho0"), chosen.pop("rho1"), chosen.pop("rho_maximum"))
        given: dict[str, Any] = {"gamma": gamma, "seed": seed, **chosen, **FIXED, **PAPER}
        if replicas == 1 and dist.is_available() and dist.is_initialized():  # data-parallel in several
            return entropy_sgd.EntropySGD(model.parameters(), **given)
        return entropy_sgd.Replicas(model.parameters(), rho=rho, **given)

    def step(self, optimizer: Any, closure: Closure) -> Tensor:
        """A Langevin step; a replica that diverges stops all of them."""
        from entropy_sgd.optim.averaging import Diverged as DivergedReplica

        try:
            return super().step(optimizer, closure)
        except DivergedReplica as error:
            raise Diverged(str(error)) from None


METHOD = Parle()
