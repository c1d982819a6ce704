"""Stochastic gradient Langevin dynamics (Welling & Teh 2011), the baseline of Appendix C.1: `SGLD`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from entropy_sgd.lab.methods.base import DECAYS, RATES, Hints, Method, Options, Range, arguments

if TYPE_CHECKING:
    from torch import nn


@dataclass(frozen=True)
class SGLDOptions(Options):
    """Stochastic gradient Langevin dynamics with the step size η / (1 + t)^b (Appendix C.1)."""

    lr: float
    """η, the step size at the first update."""
    b: float
    """Exponent of the decay."""
    noise: float
    """ε, the thermal noise."""
    weight_decay: float = 0.0
    """L2 penalty added to the loss."""


class SGLD(Method[SGLDOptions]):
    """Langevin dynamics with a step size that decays by itself."""

    name = "sgld"
    options = SGLDOptions
    search = {
        "lr": RATES,
        "b": Range(0.0, 1.0),
        "noise": Range(1e-5, 1e-2, log=True),
        "weight_decay": DECAYS,
    }
    drops = False
    for_text = False

    def defaults(self, hints: Hints) -> SGLDOptions:
        # 1 / (1 - momentum) times as long, a step moves as far as SGD's in the long run
        lr = min(hints.lr / (1 - hints.momentum), 0.5)
        return SGLDOptions(lr=lr, b=0.3, noise=1e-3, weight_decay=hints.weight_decay)

    def build(self, options: SGLDOptions, model: nn.Module, *, seed: int, steps: int) -> Any:
        import entropy_sgd

        return entropy_sgd.SGLD(model.parameters(), seed=seed, **arguments(options))

    def diagnostics(self, optimizer: Any) -> dict[str, float | None]:
        """The step size now."""
        group = optimizer.param_groups[0]
        return {"lr": group["lr"] / (1 + group["t"]) ** group["b"]}


METHOD = SGLD()
