"""A finished run as what the measurements take: network at its outer weights, loss, and training samples."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

from entropy_sgd.lab import LabError, data, recipes
from entropy_sgd.lab.data import Images
from entropy_sgd.lab.recipes import Drops, Recipe
from entropy_sgd.lab.report.runs import Run
from entropy_sgd.lab.training import checkpoint, tasks
from entropy_sgd.lab.training.folder import WEIGHTS


@dataclass(frozen=True)
class Trained:
    """The network of a finished run, in eval mode, and the loss it was trained on.

    The loss is the cross-entropy (per token, for text): neither weight decay nor dropout is in it. A sample
    is an image, or a stretch of text of the recipe's `unroll` tokens, which the network meets with a zero
    state, as in training when the whole text is one batch of such stretches.
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
    finished = require_finished(run)
    recipe = read_recipe(run)
    dataset = data.load(recipe.data, data_dir, final=run.settings["final"])
    task = tasks.build(recipe, dataset, run.settings["seed"], torch.device("cpu"))
    task.model.load_state_dict(_weights(run.path / WEIGHTS, finished["weights_sha256"]))
    if isinstance(dataset, Images):
        chosen = tasks.spread(len(dataset.train), recipe.train_limit)
        inputs, targets = dataset.train.inputs[chosen].to(dtype), dataset.train.targets[chosen]
        loss_fn = functional.cross_entropy
    else:
        windows = [next(task.batches)[:2] for _ in range(len(task.batches))]
        inputs, targets = (torch.cat(part) for part in zip(*windows, strict=True))
        loss_fn = _token_loss
    chosen = tasks.spread(len(inputs), samples)
    pairs = zip(torch.split(inputs[chosen], batch), torch.split(targets[chosen], batch), strict=True)
    count = min(samples, len(inputs))
    return Trained(run, recipe, task.model.to(dtype).eval(), loss_fn, list(pairs), count, len(inputs))


def require_finished(run: Run) -> dict[str, Any]:
    """The summary of a run that has come to its end; an error that says what to do for any other."""
    if run.summary is None:
        raise LabError(
            f"{run.path} is not finished: continue it with "
            f"entropy-sgd train {run.recipe} --resume --out {run.path} and the options it was started with"
        )
    if run.summary["status"] != "finished":
        raise LabError(f"{run.path} has {run.summary['status']}: there are no outer weights to measure at")
    return run.summary


def read_recipe(run: Run) -> Recipe:
    """The recipe that the run's config.json holds."""
    fields: dict[str, Any] = {
        key: value for key, value in run.settings["recipe"].items() if key not in ("optimizer", "drops")
    }
    known = recipes.get(run.recipe)
    try:
        optimizer = replace(known.optimizer, **_tuples(run.settings["recipe"]["optimizer"]))
        drops = Drops(**_tuples(run.settings["recipe"]["drops"]))
        return replace(known, **fields, optimizer=optimizer, drops=drops)
    except (KeyError, TypeError) as error:
        raise LabError(f"{run.path}: this version does not understand the recipe there: {error}") from error


def _tuples(fields: dict[str, Any]) -> dict[str, Any]:
    """JSON has lists where dataclasses have tuples."""
    return {key: tuple(value) if isinstance(value, list) else value for key, value in fields.items()}  # pyright: ignore[reportUnknownArgumentType, reportUnknownVariableType]


def _weights(path: Path, sha256: str) -> dict[str, Tensor]:
    try:
        weights: dict[str, Tensor] = torch.load(path, weights_only=True, map_location="cpu")
    except FileNotFoundError as error:
        raise LabError(f"{path} does not exist, though the run is finished: train it again") from error
    except Exception as error:  # a damaged file can fail anywhere in torch's reader, with any type of error
        raise LabError(f"{path} is damaged: {str(error).strip().partition(chr(10))[0]}") from error
    if checkpoint.digest(weights) != sha256:
        raise LabError(f"{path} does not hold the weights whose SHA-256 the run's summary has")
    return weights


def _token_loss(outputs: tuple[Tensor, Any], targets: Tensor) -> Tensor:
    return functional.cross_entropy(outputs[0].flatten(0, 1), targets.flatten())
