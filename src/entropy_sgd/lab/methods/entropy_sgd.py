"""Entropy-SGD (Algorithm 1): `EntropySGD`, SGD in both loops and the scope γ₀ (1 + γ₁)^t of Section 4.3."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from entropy_sgd.lab.methods.algorithm1 import FIXED, SEARCH, AroundAlgorithm1, InnerOptions, inner_defaults
from entropy_sgd.lab.methods.base import MOMENTA, Hints, Range, arguments

if TYPE_CHECKING:
    from torch import nn


@dataclass(frozen=True, kw_only=True)
class EntropySGDOptions(InnerOptions):
    """Entropy-SGD: Algorithm 1 with SGD as the outer update."""

    lr: float
    """η, the outer learning rate at the start; the recipe's drops divide it."""
    momentum: float
    """Momentum of the outer loop."""
    nesterov: bool = True
    """Nesterov's form of the outer momentum."""


class EntropySGD(AroundAlgorithm1[EntropySGDOptions]):
    """Algorithm 1 with SGD outside."""

    name = "entropy-sgd"
    options = EntropySGDOptions
    search = {"lr": Range(0.1, 2.0, log=True), "momentum": MOMENTA, **SEARCH}
    rate = "inner_lr"  # SGD's; the outer rate is about 1, which moves x to μ

    def defaults(self, hints: Hints) -> EntropySGDOptions:
        return EntropySGDOptions(lr=1.0, momentum=hints.outer_momentum, **inner_defaults(hints))

    def build(self, options: EntropySGDOptions, model: nn.Module, *, seed: int, steps: int) -> Any:
        import entropy_sgd

        chosen = arguments(options)
        gamma = entropy_sgd.scoping.Exponential(chosen.pop("gamma0"), chosen.pop("gamma1"))
        return entropy_sgd.EntropySGD(model.parameters(), gamma=gamma, seed=seed, **chosen, **FIXED)


METHOD = EntropySGD()
