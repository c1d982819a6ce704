"""Entropy-SGD (Algorithm 1): `EntropySGD`, SGD in both loops and the scope γ₀ (1 + γ₁)^t of Section 4.3."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

from entropy_sgd.lab.methods.algorithm1 import FIXED, SEARCH, AroundAlgorithm1, InnerOptions, inner_defaults
from entropy_sgd.lab.methods.base import MOMENTA, Choice, Hints, Range, arguments

if TYPE_CHECKING:
    from torch import nn


@dataclass(frozen=True, kw_only=True)
class EntropySGDOptions(InnerOptions):
    """Entropy-SGD: Algorithm 1 with SGD as the outer update."""

    lr: float
    """η, the outer learning rate at the start; 1 moves x to μ."""
    momentum: float
    """Momentum of the outer loop."""
    nesterov: bool = True
    """Nesterov's form of the outer momentum."""
    inner_state: Literal["reset", "keep"] = "reset"
    """Whether the inner momentum starts from zero in each cycle, as in the paper's recipes, or is kept."""
    anneal: Literal["outer", "inner", "both"] = "outer"
    """What the recipe's drops multiply: lr, as in the paper, inner_lr in its place, or both."""


class EntropySGD(AroundAlgorithm1[EntropySGDOptions]):
    """Algorithm 1 with SGD outside."""

    name = "entropy-sgd"
    options = EntropySGDOptions
    search = {
        "lr": Range(0.1, 2.0, log=True),
        "momentum": MOMENTA,
        "inner_state": Choice(("reset", "keep")),
        "anneal": Choice(("outer", "inner")),
        **SEARCH,
    }
    rate = "inner_lr"  # SGD's; the outer rate is about 1, which moves x to μ

    def defaults(self, hints: Hints) -> EntropySGDOptions:
        """Those of the class `entropy_sgd.EntropySGD`, not of the paper."""
        own = {"lr": 1.0, "momentum": 0.0, "inner_state": "keep", "anneal": "inner", "alpha": 0.9}
        return EntropySGDOptions(**own, **inner_defaults(hints))

    def build(self, options: EntropySGDOptions, model: nn.Module, *, seed: int, steps: int) -> Any:
        import entropy_sgd

        chosen = arguments(options)
        gamma = entropy_sgd.scoping.Exponential(chosen.pop("gamma0"), chosen.pop("gamma1"))
        return entropy_sgd.EntropySGD(model.parameters(), gamma=gamma, seed=seed, **chosen, **FIXED)


METHOD = EntropySGD()
