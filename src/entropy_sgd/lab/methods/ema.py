"""Exponential moving average of SGD's weights: `torch.optim.swa_utils.AveragedModel`.

m = decay m + (1 - decay) x    after every step, from m = x after the first; m is judged
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


class EMA(Method[EMAOptions]):
    """A running mean of the weights."""

    name = "ema"
    options = EMAOptions
    search = {**sgd.SEARCH, "decay": Range(0.9, 0.9999)}

    def defaults(self, hints: Hints) -> EMAOptions:
        return EMAOptions.hinted(hints)

    def build(self, options: EMAOptions, model: nn.Module, *, seed: int, steps: int) -> Any:
        import torch
        from torch.optim.swa_utils import AveragedModel, get_ema_multi_avg_fn

        rule: Any = get_ema_multi_avg_fn(options.decay)  # pyright: ignore[reportUnknownVariableType]
        average = AveragedModel(model, multi_avg_fn=rule)
        optimizer = torch.optim.SGD(model.parameters(), **options.keywords())
        return Averaging(optimizer, model, average, lambda step: True)

    def judged(self, optimizer: Any) -> AbstractContextManager[None]:
        """The running mean."""
        return optimizer.averaged()


METHOD = EMA()
