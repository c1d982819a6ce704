"""What the methods around Algorithm 1 share: options of the Langevin loop, x in place of x′, diagnostics."""

from __future__ import annotations

import math
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, TypeVar

from entropy_sgd.lab.methods.base import DECAYS, MOMENTA, RATES, Hints, Method, Options, Range

if TYPE_CHECKING:
    from torch import Tensor

    from entropy_sgd.lab.methods.base import Closure


@dataclass(frozen=True, kw_only=True)
class InnerOptions(Options):
    """The Langevin loop of Algorithm 1 and the scope."""

    L: int
    """Langevin steps, hence gradient evaluations, per outer update."""
    inner_lr: float
    """η′, the step size of the Langevin loop: SGD's learning rate."""
    inner_momentum: float
    """Momentum of the Langevin loop."""
    noise: float
    """ε, the thermal noise of line 5."""
    gamma0: float
    """γ₀, the scope at the first outer update."""
    gamma1: float = 0.0
    """γ₁ of γ(t) = γ₀ (1 + γ₁)^t for the t-th outer update (Section 4.3); 0 is a constant scope."""
    alpha: float = 0.75
    """α, the weight of the new sample in μ, line 6 (Section 4.2)."""
    inner_nesterov: bool = True
    """Nesterov's form of the inner momentum."""
    weight_decay: float = 0.0
    """L2 penalty, part of the loss and so of the Langevin loop."""


SEARCH = {
    "L": Range(2, 40, log=True, integer=True),
    "inner_lr": RATES,
    "inner_momentum": MOMENTA,
    "noise": Range(1e-6, 1e-2, log=True),
    "gamma0": Range(1e-5, 1.0, log=True),
    "gamma1": Range(1e-6, 1e-2, log=True),
    "alpha": Range(0.05, 1.0),
    "weight_decay": DECAYS,
}

FIXED: dict[str, Any] = {"inner": "sgd", "scale_by_gamma": False}
"""What Entropy-SGD and Entropy-Adam are, whatever the defaults of their classes become."""

PAPER: dict[str, Any] = {"inner_state": "reset", "anneal": "outer"}
"""What they are in the paper besides; Entropy-SGD has options for these."""

FEW = 10
"""Outer updates below which a run is too short for its L."""

I = TypeVar("I", bound=InnerOptions)


def inner_defaults(hints: Hints) -> dict[str, Any]:
    """The Langevin loop is SGD as it trains the network, with the noise and the scoping of Section 5.2."""
    scope = {"noise": 1e-4, "gamma0": 1e-4, "gamma1": 1e-3}
    rates = {"inner_lr": hints.lr, "inner_momentum": hints.momentum, "weight_decay": hints.weight_decay}
    return {"L": hints.L, **rates, **scope}


class AroundAlgorithm1(Method[I]):
    """A method whose optimizer is a `LocalEntropy`."""

    def stretched(self, options: I, ratio: float) -> I:
        """The scope reaches the same value at the end.

        (1 + γ₁)^(1/r) replaces 1 + γ₁ when there are r times as many outer updates.
        """
        return replace(options, gamma1=math.expm1(math.log1p(options.gamma1) / ratio))

    def notes(self, options: I, steps: int) -> list[str]:
        """A run with few outer updates, or without one."""
        updates = steps // options.L
        if updates >= FEW:
            return []
        if updates == 0:
            short = f"{steps} steps are less than one cycle of L={options.L}"
            return [f"{short}: the only outer update is at the end"]
        few = f"{steps} steps make only {updates} cycle{'s' if updates > 1 else ''} of L={options.L}"
        return [f"{few}: the evaluated weights lag behind those being trained; a smaller L helps"]

    def step(self, optimizer: Any, closure: Closure) -> Tensor:
        """A Langevin step; a scope that is measured reads the loss that the closure returns."""
        return optimizer.step(closure)

    def finish(self, optimizer: Any) -> None:
        """A run shorter than a cycle is judged at what its steps have earned, not at the initial weights.

        Longer runs are judged at the x of their last whole cycle, as Algorithm 1 has it.
        """
        if optimizer.outer_steps == 0:
            optimizer.finish()

    def judged(self, optimizer: Any) -> AbstractContextManager[None]:
        """The outer weights x."""
        from entropy_sgd.frameworks.outer_weights import outer_weights

        return outer_weights(optimizer)

    def diagnostics(self, optimizer: Any) -> dict[str, float | None]:
        """Scope, lengths and angle of the last whole cycle, None before it."""
        values: dict[str, float] = optimizer.diagnostics()
        cosine = values.pop("cosine")
        # rounding may push the cosine past 1; NaN, before the first whole cycle, stays NaN
        angle = math.nan if math.isnan(cosine) else math.degrees(math.acos(max(-1.0, min(1.0, cosine))))
        found = {**values, "angle": angle}
        return {key: value if math.isfinite(value) else None for key, value in found.items()}
