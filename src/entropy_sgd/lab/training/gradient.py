"""The closure of a step, which methods call for their gradients."""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor
from torch.nn.utils import clip_grad_norm_

from entropy_sgd.lab import Diverged
from entropy_sgd.lab.tasks import Task
from entropy_sgd.lab.training.processes import Processes


class Gradient:
    """The gradient of one batch at the weights that the model holds when this is called.

    A method that calls it twice (`repeated`) has the same batch, and the same units dropped, at both weights.
    """

    def __init__(
        self, task: Task, processes: Processes, *, clip_norm: float | None, repeated: bool, where: str
    ) -> None:
        self.task, self.processes, self.clip_norm, self.where = task, processes, clip_norm, where
        self.batch = task.draw()
        self.generators = generators() if repeated else None
        self.calls = 0
        self.value = 0.0
        """The loss of the first call, the mean over all processes."""

    def __call__(self) -> Tensor:
        """Clear the gradients, compute the loss of the batch, propagate it back and clip."""
        task = self.task
        if self.calls and self.generators is not None:
            set_generators(self.generators)
        task.model.zero_grad()
        loss = task.loss(self.batch)
        (loss * task.scale if task.scale != 1 else loss).backward()
        value = self.processes.mean(loss.item())
        if not math.isfinite(value):
            losses = self.processes.gather(loss.item())
            ranks = [str(rank) for rank, own in enumerate(losses) if not math.isfinite(own)]
            whose = f", on rank {', '.join(ranks)}" if self.processes.size > 1 else ""
            raise Diverged(f"a loss of {value} at {self.where}{whose}")
        if self.clip_norm is not None:
            clip_grad_norm_(task.model.parameters(), self.clip_norm)
        if not self.calls:
            self.value = value
        self.calls += 1
        return loss


def generators() -> dict[str, Any]:
    """The state of torch's own generators, which dropout draws from."""
    return {"cpu": torch.get_rng_state(), "cuda": torch.cuda.get_rng_state_all()}


def set_generators(state: dict[str, Any]) -> None:
    """Put the generators back into a state."""
    torch.set_rng_state(state["cpu"])
    if state["cuda"]:
        torch.cuda.set_rng_state_all(state["cuda"])
