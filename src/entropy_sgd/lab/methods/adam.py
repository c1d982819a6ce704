"""Adam (Kingma & Ba 2015): `torch.optim.Adam`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from entropy_sgd.lab.methods.base import ADAM_RATES, BETAS, DECAYS, Hints, Method, Options, arguments

if TYPE_CHECKING:
    from torch import nn


@dataclass(frozen=True)
class AdamOptions(Options):
    """Adam, `torch.optim.Adam`."""

    lr: float
    """Learning rate at the start; the recipe's drops multiply it."""
    betas: tuple[float, float] = (0.9, 0.999)
    """Decay of the running averages of the gradient and of its square."""
    weight_decay: float = 0.0
    """L2 penalty added to the loss."""


class Adam(Method[AdamOptions]):
    """Adam, with the penalty in the gradient."""

    name = "adam"
    options = AdamOptions
    search = {"lr": ADAM_RATES, "betas": BETAS, "weight_decay": DECAYS}
    keeps_moments = True

    def defaults(self, hints: Hints) -> AdamOptions:
        return AdamOptions(lr=hints.adam_lr)

    def build(self, options: AdamOptions, model: nn.Module, *, seed: int, steps: int) -> Any:
        import torch

        return torch.optim.Adam(model.parameters(), **arguments(options))


METHOD = Adam()
