"""Exponential moving average of SGD's weights: `torch.optim.swa_utils.AveragedModel`.

m = d m + (1 - d) x    after every step, from m = x after the first; m is judged
d = min(decay, (1 + t) / (10 + t))    after t averaged steps, so that a short run forgets its start as well
"""

from __future__ import annotations

from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from entropy_sgd.lab.methods import sgd
from entropy_sgd.lab.methods.averaging import Averaging
from entropy_sgd.lab.methods.base import Hints, Method, Range

if TYPE_CHECKING:
    from torch import nn


@dataclass(frozen=True)
class EMAOptions(sgd.SGDOptions):
    """Exponential moving average of SGD's weights."""

    decay: float = 0.999
    """Weight of the average so far; 1 / (1 - decay) steps are remembered."""
    warmup: bool = True
    """A lower decay at first, (1 + t) / (10 + t) after t steps, so that the initial weights are forgotten."""


class EMA(Method[EMAOptions]):
    """A running mean of the weights."""

    name = "ema"
    options = EMAOptions
    search = {**sgd.SEARCH, "decay": Range(0.9, 0.9999)}

    def defaults(self, hints: Hints) -> EMAOptions:
        return EMAOptions.hinted(hints)

    def build(self, options: EMAOptions, model: nn.Module, *, seed: int, steps: int) -> Any:
        import torch
        from torch.optim.swa_utils import AveragedModel

        def rule(averages: Any, weights: Any, count: Any) -> None:
            steps = int(count)
            decay = min(options.decay, (1 + steps) / (10 + steps)) if options.warmup else options.decay
            with torch.no_grad():
                torch._foreach_lerp_(averages, weights, 1 - decay)  # pyright: ignore[reportPrivateUsage]

        average = AveragedModel(model, multi_avg_fn=rule)
        optimizer = torch.optim.SGD(model.parameters(), **options.keywords())
        return Averaging(optimizer, model, average, lambda step: True)

    def judged(self, optimizer: Any) -> AbstractContextManager[None]:
        """The running mean."""
        return optimizer.averaged()


METHOD = EMA()
