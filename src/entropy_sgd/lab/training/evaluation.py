"""Judging a run: always at the outer weights x, with batch statistics that belong to x."""

from __future__ import annotations

from collections.abc import Generator
from contextlib import contextmanager

import torch

from entropy_sgd import LocalEntropy, recalibrate_batchnorm
from entropy_sgd.lab.training.tasks import Task


@contextmanager
def outer_weights(task: Task, optimizer: torch.optim.Optimizer) -> Generator[None]:
    """Inside, the model is in evaluation mode and holds x and the batch statistics of x.

    The statistics gathered in training belong to the wandering x′; those of x are computed anew from training
    data. Afterwards weights and statistics are those of training again, and no generator has moved.
    """
    model = task.model
    kept = [buffer.clone() for buffer in model.buffers()]
    if isinstance(optimizer, LocalEntropy):
        optimizer.eval()
    try:
        recalibrate_batchnorm(model, task.statistics_batches())
        model.eval()
        yield
    finally:
        model.train()
        for buffer, before in zip(model.buffers(), kept, strict=True):
            buffer.copy_(before)
        if isinstance(optimizer, LocalEntropy):
            optimizer.train()
