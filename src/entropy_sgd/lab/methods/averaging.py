"""What SWA and EMA share: SGD, and beside it the average of its weights by `torch.optim.swa_utils`."""

from __future__ import annotations

from collections.abc import Callable, Generator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from torch import nn


class Averaging:
    """An optimizer and the average of the weights it passes through, kept in an `AveragedModel`.

    `due(steps)` is whether the weights after that many steps enter the average.
    """

    def __init__(self, optimizer: Any, model: nn.Module, average: Any, due: Callable[[int], bool]) -> None:
        self.optimizer, self.model, self.average, self.due = optimizer, model, average, due
        self.steps = 0

    @property
    def param_groups(self) -> list[dict[str, Any]]:
        """Those of the optimizer."""
        return self.optimizer.param_groups

    def step(self) -> None:
        """A step of the optimizer; its weights enter the average if they are due."""
        self.optimizer.step()
        self.steps += 1
        if self.due(self.steps):
            self.average.update_parameters(self.model)

    def state_dict(self) -> dict[str, Any]:
        """The optimizer, the average and the number of steps made."""
        return {
            "optimizer": self.optimizer.state_dict(),
            "average": self.average.state_dict(),
            "steps": self.steps,
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Continue from a `state_dict`."""
        self.optimizer.load_state_dict(state["optimizer"])
        self.average.load_state_dict(state["average"])
        self.steps = state["steps"]

    @contextmanager
    def averaged(self) -> Generator[None]:
        """Inside, the model holds the average, once there is one."""
        import torch

        if not int(self.average.n_averaged):
            yield
            return
        parameters = list(self.model.parameters())
        kept = [parameter.detach().clone() for parameter in parameters]

        def put(values: list[Any]) -> None:
            with torch.no_grad():
                for parameter, value in zip(parameters, values, strict=True):
                    parameter.copy_(value)

        put(list(self.average.module.parameters()))
        try:
            yield
        finally:
            put(kept)
