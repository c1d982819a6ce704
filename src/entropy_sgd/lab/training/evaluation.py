"""Evaluating at the weights that the method wants judged, not at those that happen to be trained."""

from __future__ import annotations

from collections.abc import Generator
from contextlib import contextmanager
from typing import Any

from entropy_sgd import recalibrate_batchnorm
from entropy_sgd.lab.methods import Method
from entropy_sgd.lab.tasks import Task


@contextmanager
def judged_weights(task: Task, method: Method[Any], optimizer: Any) -> Generator[None]:
    """Inside, the model is in evaluation mode and holds the weights to judge and their batch statistics.

    The statistics gathered in training belong to the weights that were trained; those of the weights to judge
    are recomputed from training data. Afterwards weights and statistics are those of training again, and
    no generator has moved.
    """
    model = task.model
    kept = [buffer.clone() for buffer in model.buffers()]
    with method.judged(optimizer):
        try:
            recalibrate_batchnorm(model, task.statistics_batches())
            model.eval()
            yield
        finally:
            model.train()
            for buffer, before in zip(model.buffers(), kept, strict=True):
                buffer.copy_(before)
