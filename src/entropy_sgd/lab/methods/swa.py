"""Stochastic weight averaging (Izmailov et al. 2018): `torch.optim.swa_utils.AveragedModel` beside SGD.

SGD as in the recipe up to `start`, then at the constant rate `swa_lr`; the plain mean of its weights at
`models` evenly spaced moments from there to the end is judged.
"""

from __future__ import annotations

from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from entropy_sgd.lab import LabError
from entropy_sgd.lab.methods import sgd
from entropy_sgd.lab.methods.averaging import Averaging
from entropy_sgd.lab.methods.base import RATES, Hints, Method, Range

if TYPE_CHECKING:
    from torch import nn


@dataclass(frozen=True)
class SWAOptions(sgd.SGDOptions):
    """Stochastic weight averaging beside SGD."""

    start: float = 0.75
    """Share of the run after which averaging begins."""
    models: int = 30
    """How many weights are averaged, evenly spaced from `start` to the end."""
    swa_lr: float | None = None
    """Learning rate while averaging; None: as the recipe has it."""

    def __post_init__(self) -> None:
        if not 0 <= self.start < 1:
            raise LabError(f"start must be in [0, 1), got {self.start}")
        if self.models < 1:
            raise LabError(f"models must be at least 1, got {self.models}")


class Tail(Averaging):
    """Averages the end of a run of `steps` steps, at a rate of its own."""

    def __init__(
        self, optimizer: Any, model: nn.Module, average: Any, options: SWAOptions, steps: int
    ) -> None:
        start, models = int(options.start * steps), options.models

        def count(step: int) -> int:
            return max(0, step - start) * models // (steps - start)

        super().__init__(optimizer, model, average, lambda step: count(step) > count(step - 1))
        self.start, self.lr = start, options.swa_lr

    def step(self) -> None:
        """A step at the constant rate, once it holds."""
        if self.lr is not None and self.steps >= self.start:
            for group in self.param_groups:
                group["lr"] = self.lr
        super().step()


class SWA(Method[SWAOptions]):
    """The mean of the weights at the end of the run."""

    name = "swa"
    options = SWAOptions
    search = {**sgd.SEARCH, "start": Range(0.25, 0.9), "swa_lr": RATES}

    def defaults(self, hints: Hints) -> SWAOptions:
        return SWAOptions.hinted(hints, swa_lr=hints.lr / 2)

    def build(self, options: SWAOptions, model: nn.Module, *, seed: int, steps: int) -> Any:
        import torch
        from torch.optim.swa_utils import AveragedModel

        optimizer = torch.optim.SGD(model.parameters(), **options.keywords())
        return Tail(optimizer, model, AveragedModel(model), options, steps)

    def judged(self, optimizer: Any) -> AbstractContextManager[None]:
        """The mean."""
        return optimizer.averaged()

    def diagnostics(self, optimizer: Any) -> dict[str, float | None]:
        """The rate in force and how many weights are averaged."""
        averaged = float(optimizer.average.n_averaged)
        return {"lr": float(optimizer.param_groups[0]["lr"]), "averaged": averaged}


METHOD = SWA()
