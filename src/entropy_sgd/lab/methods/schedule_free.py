"""Schedule-Free (Defazio et al. 2024): `schedulefree.SGDScheduleFree` and `AdamWScheduleFree`.

    z = z - lr g(y),    x = (1 - c) x + c z,    y = (1 - momentum) z + momentum x,    c = lr² / sum of lr²

Gradients are taken at y, x is judged. The library computes this as printed, but its way from y to x and back
is not exact to the bit: y is therefore kept aside while x is judged.
"""

from __future__ import annotations

from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

from entropy_sgd.lab.methods.base import BETAS, DECAYS, Choice, Hints, Method, Options, Range, peer

if TYPE_CHECKING:
    from torch import nn


@dataclass(frozen=True)
class ScheduleFreeOptions(Options):
    """Schedule-Free SGD or AdamW: an average in the place of a schedule."""

    lr: float
    """Learning rate; no drops are needed. That of SGD is 10 to 50 times the rate of SGD with momentum 0.9."""
    momentum: float = 0.9
    """Where between z (0) and x (1) gradients are taken; Adam's β₁."""
    beta2: float = 0.999
    """AdamW only: decay of the running average of the squared gradient."""
    weight_decay: float = 0.0
    """L2 penalty at y."""
    warmup: float = 0.05
    """Share of the run in which the rate rises from 0 to lr."""
    base: Literal["sgd", "adamw"] = "sgd"
    """The step of z."""


class ScheduleFree(Method[ScheduleFreeOptions]):
    """SGD or AdamW whose average replaces the schedule."""

    name = "schedule-free"
    options = ScheduleFreeOptions
    search = {
        "lr": Range(1e-3, 10.0, log=True),
        "momentum": Range(0.0, 0.99),
        "beta2": BETAS[1],
        "weight_decay": DECAYS,
        "warmup": Range(0.0, 0.2),
        "base": Choice(("sgd", "adamw")),
    }
    drops = False

    def defaults(self, hints: Hints) -> ScheduleFreeOptions:
        lr = round(hints.lr / (1 - hints.momentum), 6)  # as far as SGD moves in the long run
        return ScheduleFreeOptions(lr=lr, weight_decay=hints.weight_decay)

    def build(self, options: ScheduleFreeOptions, model: nn.Module, *, seed: int, steps: int) -> Any:
        common = {"lr": options.lr, "weight_decay": options.weight_decay}
        common["warmup_steps"] = round(options.warmup * steps)
        if options.base == "sgd":
            kind, own = "SGDScheduleFree", {"momentum": options.momentum}
        else:
            kind, own = "AdamWScheduleFree", {"betas": (options.momentum, options.beta2)}
        optimizer = peer("schedulefree", kind, self.name)(model.parameters(), **common, **own)
        optimizer.train()
        return optimizer

    @contextmanager
    def judged(self, optimizer: Any) -> Generator[None]:
        """The average x."""
        import torch

        parameters = [p for group in optimizer.param_groups for p in group["params"]]
        kept = [p.detach().clone() for p in parameters]
        optimizer.eval()
        try:
            yield
        finally:
            optimizer.train()
            with torch.no_grad():
                for p, y in zip(parameters, kept, strict=True):
                    p.copy_(y)

    def diagnostics(self, optimizer: Any) -> dict[str, float | None]:
        """The rate in force during warm-up."""
        return {"lr": float(optimizer.param_groups[0]["scheduled_lr"])}


METHOD = ScheduleFree()
