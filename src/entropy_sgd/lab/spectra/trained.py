"""A finished run as what the measurements take: network at its outer weights, loss, and training samples."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from entropy_sgd.lab import LabError, tasks
from entropy_sgd.lab.recipes import Recipe
from entropy_sgd.lab.runs import checkpoint
from entropy_sgd.lab.runs.folder import CONFIG, EXPERIMENT, WEIGHTS
from entropy_sgd.lab.runs.reading import Run, read_recipe, require_finished
from entropy_sgd.lab.tasks.base import spread


@dataclass(frozen=True)
class Trained:
    """The network of a finished run, in eval mode, and the loss it was trained on.

    The loss is the cross-entropy (per token, for text) or the user's own, without weight decay or dropout. A
    sample is an image, or a stretch of text of the recipe's `unroll` tokens, which the network meets with a
    zero state, as in training when the whole text is one batch of such stretches.
    """

    run: Run
    recipe: Recipe
    model: nn.Module
    loss_fn: Callable[[Any, Tensor], Tensor]
    batches: list[tuple[Tensor, Tensor]]
    samples: int
    """Samples in `batches`, evenly spaced in the training data."""
    available: int
    """Samples in the training data of the run."""

    def loss_and_gradient_norm(self) -> tuple[float, float]:
        """The loss over all of `batches` and the length of its gradient."""
        total = sum(targets.numel() for _, targets in self.batches)
        parameters = list(self.model.parameters())
        gradient = [torch.zeros_like(parameter) for parameter in parameters]
        value = 0.0
        for inputs, targets in self.batches:
            loss = self.loss_fn(self.model(inputs), targets) * (targets.numel() / total)
            value += loss.item()
            for sum_, part in zip(gradient, torch.autograd.grad(loss, parameters), strict=True):
                sum_ += part
        return value, math.sqrt(sum(float(part.double().square().sum()) for part in gradient))


def load(run: Run, *, samples: int, batch: int, dtype: torch.dtype, data_dir: Path | None = None) -> Trained:
    """The network of `run` in `dtype`, and `samples` of its training samples in batches of `batch`."""
    for argument, value in (("samples", samples), ("batch", batch)):
        if value < 1:
            raise LabError(f"{argument} must be at least 1, got {value}")
    weights = judged_weights(run)
    recipe = read_recipe(run)
    task = tasks.load(
        recipe,
        seed=run.settings["seed"],
        final=run.settings["final"],
        device=torch.device("cpu"),
        data_dir=data_dir,
        copy=run.path / EXPERIMENT,
    )
    try:
        task.model.load_state_dict(weights)
    except (RuntimeError, TypeError, AttributeError, KeyError, ValueError) as error:
        reason = str(error).strip().partition("\n")[0]
        raise LabError(f"{run.path / WEIGHTS} is not of the network in {CONFIG}: {reason}") from error
    measured = task.measured()
    inputs, targets = measured.take(spread(measured.count, samples))
    if not isinstance(inputs, Tensor) or not isinstance(targets, Tensor):
        raise LabError(f"{run.path}: measurements need inputs and targets that are tensors")
    inputs, targets = (part.to(dtype) if part.is_floating_point() else part for part in (inputs, targets))
    pairs = zip(torch.split(inputs, batch), torch.split(targets, batch), strict=True)
    count = min(samples, measured.count)
    model = task.model.to(dtype).eval()
    return Trained(run, recipe, model, measured.loss_fn, list(pairs), count, measured.count)


def judged_weights(run: Run) -> dict[str, Tensor]:
    """The weights that a finished run is judged by, and their batch statistics."""
    path, sha256 = run.path / WEIGHTS, require_finished(run)["weights_sha256"]
    try:
        weights: dict[str, Tensor] = torch.load(path, weights_only=True, map_location="cpu")
    except FileNotFoundError as error:
        raise LabError(f"{path} does not exist, though the run is finished: train it again") from error
    except Exception as error:  # a damaged file can fail anywhere in torch's reader, with any type of error
        raise LabError(f"{path} is damaged: {str(error).strip().partition(chr(10))[0]}") from error
    if checkpoint.digest(weights) != sha256:
        raise LabError(f"{path} does not hold the weights whose SHA-256 the run's summary has")
    return weights
