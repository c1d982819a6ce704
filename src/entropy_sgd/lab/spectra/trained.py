"""A finished run as what the measurements take: network at its outer weights, loss, and training samples."""

from __future__ import annotations

import copy
import math
from collections.abc import Callable, Generator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from entropy_sgd.lab import LabError, tasks
from entropy_sgd.lab.experiment import users_code
from entropy_sgd.lab.recipes import Recipe
from entropy_sgd.lab.runs import checkpoint
from entropy_sgd.lab.runs.folder import CONFIG, EXPERIMENT, WEIGHTS
from entropy_sgd.lab.runs.reading import Run, read_recipe, require_finished
from entropy_sgd.lab.tasks.base import spread
from entropy_sgd.landscape.inputs import Samples


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
    loss_fn: Callable[[Any, Any], Tensor]
    batches: list[tuple[Any, Any]]
    samples: int
    """Samples in `batches`, evenly spaced in the training data."""
    available: int
    """Samples in the training data of the run."""

    def loss_and_gradient_norm(self) -> tuple[float, float]:
        """The loss over all of `batches` and the length of its gradient."""
        parameters = [parameter for parameter in self.model.parameters() if parameter.requires_grad]
        # counts as the measurements do, without the targets of -100 that losses ignore
        samples = Samples(self.batches, parameters[0].device, parameters[0].dtype)
        gradient = [torch.zeros_like(parameter) for parameter in parameters]
        value = 0.0
        for inputs, targets, size in samples:
            loss = self.loss_fn(self.model(inputs), targets) * (size / samples.total)
            value += loss.item()
            slope = torch.autograd.grad(loss, parameters, allow_unused=True, materialize_grads=True)
            for sum_, part in zip(gradient, slope, strict=True):
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
    chosen = torch.arange(measured.count)[spread(measured.count, samples)]
    with users_code_of(recipe):
        batches = [measured.take(index) for index in torch.split(chosen, batch)]
    loss_fn = measured.loss_fn
    if isinstance(loss_fn, nn.Module):  # it may hold tensors, such as weights of the classes
        loss_fn = copy.deepcopy(loss_fn).to(dtype)
    model = task.model.to(dtype).eval()
    return Trained(run, recipe, model, loss_fn, batches, len(chosen), measured.count)


@contextmanager
def users_code_of(recipe: Recipe) -> Generator[None]:
    """Inside, an error in the user's own experiment becomes a message with its traceback."""
    if recipe.source is None:
        yield
    else:
        with users_code(recipe.source.path):
            yield


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
