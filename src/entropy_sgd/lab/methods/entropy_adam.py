"""Entropy-Adam (Section 5.4.2): `EntropyAdam`, Algorithm 1 with Adam as the outer update."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from entropy_sgd.lab.methods.algorithm1 import (
    FIXED,
    PAPER,
    SEARCH,
    AroundAlgorithm1,
    InnerOptions,
    inner_defaults,
)
from entropy_sgd.lab.methods.base import ADAM_RATES, BETAS, Hints, arguments

if TYPE_CHECKING:
    from torch import nn


L = 3
"""Gradients in a cycle, and the outer rate as a multiple of Adam's."""


@dataclass(frozen=True, kw_only=True)
class EntropyAdamOptions(InnerOptions):
    """Entropy-Adam: Algorithm 1 with Adam as the outer update (Section 5.4.2)."""

    lr: float
    """Outer learning rate at the start; the recipe's drops multiply it."""
    betas: tuple[float, float]
    """Decay of the running averages of the local-entropy gradient and of its square."""


class EntropyAdam(AroundAlgorithm1[EntropyAdamOptions]):
    """Algorithm 1 with Adam outside."""

    name = "entropy-adam"
    options = EntropyAdamOptions
    search = {"lr": ADAM_RATES, "betas": BETAS, **SEARCH}

    def defaults(self, hints: Hints) -> EntropyAdamOptions:
        """L and γ of the class `entropy_sgd.EntropyAdam`, whatever L suits other outer updates."""
        inner: dict[str, Any] = {**inner_defaults(hints), "L": L, "gamma0": 1e-2, "gamma1": 0.0}
        return EntropyAdamOptions(lr=L * hints.adam_lr, betas=(0.5, 0.999), **inner)

    def build(self, options: EntropyAdamOptions, model: nn.Module, *, seed: int, steps: int) -> Any:
        import entropy_sgd

        chosen = arguments(options)
        gamma = entropy_sgd.scoping.Exponential(chosen.pop("gamma0"), chosen.pop("gamma1"))
        return entropy_sgd.EntropyAdam(model.parameters(), gamma=gamma, seed=seed, **chosen, **FIXED, **PAPER)


METHOD = EntropyAdam()
