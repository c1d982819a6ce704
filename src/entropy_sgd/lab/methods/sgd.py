"""Stochastic gradient descent: `torch.optim.SGD`.

    v = momentum v + g,   x = x - lr v,   or   x = x - lr (g + momentum v)   in Nesterov's form,

where g is the gradient with weight_decay x.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from entropy_sgd.lab.methods.base import DECAYS, MOMENTA, RATES, Hints, Method, Options

if TYPE_CHECKING:
    from torch import nn


@dataclass(frozen=True)
class SGDOptions(Options):
    """Stochastic gradient descent, `torch.optim.SGD`."""

    lr: float
    """Learning rate η at the start; the recipe's drops multiply it."""
    momentum: float = 0.9
    """Momentum; 0 is plain SGD."""
    nesterov: bool = True
    """Nesterov's form of the momentum (only acts with a momentum above 0)."""
    weight_decay: float = 0.0
    """L2 penalty added to the loss."""

    @classmethod
    def hinted(cls, hints: Hints, **more: Any) -> Any:
        """The options that `hints` give, for this class and for methods around SGD."""
        known = {"lr": hints.lr, "momentum": hints.momentum, "weight_decay": hints.weight_decay}
        return cls(**known, **more)

    def keywords(self) -> dict[str, Any]:
        """The arguments of `torch.optim.SGD`, which refuses Nesterov's form where it is the plain step."""
        nesterov = self.nesterov and self.momentum > 0
        known = {"lr": self.lr, "momentum": self.momentum, "weight_decay": self.weight_decay}
        return {**known, "nesterov": nesterov}


SEARCH = {"lr": RATES, "momentum": MOMENTA, "weight_decay": DECAYS}


class SGD(Method[SGDOptions]):
    """SGD with momentum."""

    name = "sgd"
    options = SGDOptions
    search = SEARCH

    def defaults(self, hints: Hints) -> SGDOptions:
        return SGDOptions.hinted(hints)

    def build(self, options: SGDOptions, model: nn.Module, *, seed: int, steps: int) -> Any:
        import torch

        return torch.optim.SGD(model.parameters(), **options.keywords())


METHOD = SGD()
