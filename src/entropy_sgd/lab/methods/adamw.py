"""AdamW (Loshchilov & Hutter 2019): `torch.optim.AdamW`, Adam whose decay is not rescaled by its moments."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from entropy_sgd.lab.methods.base import ADAM_RATES, BETAS, Hints, Method, Options, Range, arguments

if TYPE_CHECKING:
    from torch import nn


@dataclass(frozen=True)
class AdamWOptions(Options):
    """AdamW, `torch.optim.AdamW`."""

    lr: float
    """Learning rate at the start; the recipe's drops multiply it."""
    betas: tuple[float, float] = (0.9, 0.999)
    """Decay of the running averages of the gradient and of its square."""
    weight_decay: float = 0.01
    """Each step first multiplies the weights by 1 - lr * weight_decay."""


class AdamW(Method[AdamWOptions]):
    """Adam with decoupled weight decay."""

    name = "adamw"
    options = AdamWOptions
    search = {"lr": ADAM_RATES, "betas": BETAS, "weight_decay": Range(1e-4, 1.0, log=True)}
    keeps_moments = True

    def defaults(self, hints: Hints) -> AdamWOptions:
        return AdamWOptions(lr=hints.adam_lr)

    def build(self, options: AdamWOptions, model: nn.Module, *, seed: int, steps: int) -> Any:
        import torch

        return torch.optim.AdamW(model.parameters(), **arguments(options))


METHOD = AdamW()
