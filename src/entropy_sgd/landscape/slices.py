"""Loss and error along a line between two sets of weights, and on a plane through one.

Random directions are filter-normalised: each filter (the weights of one output unit) of a direction has the
length of that filter in the model, and biases and normalisation parameters are zero, so that slices of
different networks can be compared (Li et al., "Visualizing the loss landscape of neural nets", 2018).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, cast

import torch
from torch import Tensor, nn

from entropy_sgd.arguments import count, positive
from entropy_sgd.landscape.inputs import Batches, counted, describe, trainable
from entropy_sgd.landscape.objective import LossFunction, Objective, objective
from entropy_sgd.landscape.runtime import Progress, generator
from entropy_sgd.landscape.typed_torch import lengths

Weights = nn.Module | Mapping[str, Tensor] | Tensor
ErrorFunction = Callable[[Any, Any], float | Tensor]


@dataclass(frozen=True)
class Line:
    """A slice from one set of weights (position 0) to another (position 1)."""

    positions: Tensor
    loss: Tensor
    error: Tensor | None
    """The share of wrong answers; None if targets and outputs are not classes and their scores and no
    `error_fn` was given."""


@dataclass(frozen=True)
class Plane:
    """A slice through the model's weights, which are at (0, 0): rows by `first`, columns by `second`."""

    first: Tensor
    second: Tensor
    loss: Tensor
    error: Tensor | None
    """The share of wrong answers; None if targets and outputs are not classes and their scores and no
    `error_fn` was given."""


def line(
    model: nn.Module,
    loss_fn: LossFunction,
    batches: Batches,
    start: Weights,
    end: Weights,
    *,
    positions: Tensor | None = None,
    error_fn: ErrorFunction | None = None,
    dtype: torch.dtype | None = None,
    progress: bool = True,
) -> Line:
    """Loss and error at `(1 - p) * start + p * end` for each of `positions`.

    Args:
        model: provides the architecture and everything that is not trainable; it is measured in eval mode and
            left unchanged. Running statistics of batch normalisation belong to one set of weights only, so
            they are recomputed from `batches` at every position, each batch weighted by its size.
        loss_fn: `loss_fn(model(inputs), targets)`, the mean over a batch.
        batches: a re-iterable of `(inputs, targets)`.
        start: a module like `model`, its `state_dict`, or a flat vector of the trainable parameters.
        end: the same.
        positions: any numbers, also outside [0, 1]; defaults to 51 from -0.25 to 1.25.
        error_fn: `error_fn(outputs, targets)`, a mean over the batch; defaults to the share of targets (whole
            numbers) that are not the largest of the outputs (of the first output, if there are several).
            Classes are in dimension 1 of the outputs, as in torch's losses, or in the last if only this fits
            the targets; targets of -100 do not count. A single output per target, as of a binary classifier,
            needs an `error_fn`.
        dtype: the type of all computations; defaults to the parameters' own.
        progress: report progress on standard error once the call has taken 10 seconds.

    Returns:
        A `Line`.
    """
    if positions is None:
        positions = torch.linspace(-0.25, 1.25, 51, dtype=torch.float64, device="cpu")
    where = torch.as_tensor(positions, dtype=torch.float64, device="cpu").flatten()
    with objective(model, loss_fn, batches, dtype) as f:
        a, b = _vector("start", start, model, f), _vector("end", end, model, f)
        points = ((1 - float(p)) * a + float(p) * b for p in where)
        loss, error = _measure(f, points, len(where), error_fn, Progress("line", progress))
        return Line(where, loss, error)


def plane(
    model: nn.Module,
    loss_fn: LossFunction,
    batches: Batches,
    *,
    radius: float = 1.0,
    points: int = 21,
    positions: tuple[Tensor, Tensor] | None = None,
    directions: tuple[Weights, Weights] | None = None,
    seed: int = 0,
    error_fn: ErrorFunction | None = None,
    dtype: torch.dtype | None = None,
    progress: bool = True,
) -> Plane:
    """Loss and error at the model's weights plus multiples of two directions.

    Args:
        model: as for `line`; its weights are the origin.
        loss_fn: `loss_fn(model(inputs), targets)`, the mean over a batch.
        batches: a re-iterable of `(inputs, targets)`.
        radius: the largest multiple of each direction, on both sides.
        points: positions along each direction (odd numbers include the origin).
        positions: the multiples of the first and of the second direction, in place of `radius` and `points`.
        directions: two directions, each like `start` of `line`; defaults to filter-normalised random ones;
            see also `principal_directions`.
        seed: of the random directions; torch's global generator is not used.
        error_fn: as for `line`.
        dtype: as for `line`.
        progress: as for `line`.

    Returns:
        A `Plane`.
    """
    if positions is None:
        radius, points = positive("radius", radius), count("points", points, least=2)
        side = torch.linspace(-radius, radius, points, dtype=torch.float64, device="cpu")
        positions = side, side.clone()
    first, second = (torch.as_tensor(side, dtype=torch.float64, device="cpu").flatten() for side in positions)
    if not len(first) or not len(second):
        raise ValueError(f"positions must not be empty, got {len(first)} and {len(second)}")
    with objective(model, loss_fn, batches, dtype) as f:
        if directions is None:
            stream = generator(seed)
            a, b = (random_direction(model, stream).to(f.device, f.dtype) for _ in range(2))
        else:
            a, b = (_vector("directions", direction, model, f) for direction in directions)
        grid = (f.weights + float(p) * a + float(q) * b for p in first for q in second)
        shape = (len(first), len(second))
        loss, error = _measure(f, grid, len(first) * len(second), error_fn, Progress("plane", progress))
        return Plane(first, second, loss.view(shape), None if error is None else error.view(shape))


def random_direction(model: nn.Module, stream: torch.Generator) -> Tensor:
    """A filter-normalised Gaussian direction, flat and in parameter order, in float64 on the CPU."""
    parts: list[Tensor] = []
    for p in trainable(model).values():
        rows = (
            p.detach().cpu().double().flatten(1) if p.dim() > 1 else torch.zeros(p.numel(), 1, device="cpu")
        )
        draw = torch.randn(rows.shape, generator=stream, dtype=torch.float64, device="cpu")
        parts.append((draw * (lengths(rows) / lengths(draw))[:, None]).flatten())
    return torch.cat(parts)


def classification_error(outputs: Any, targets: Any) -> Tensor | None:
    """The share of `targets` that are not the largest of `outputs`; None if that has no meaning for them."""
    while isinstance(outputs, tuple | list):
        outputs = cast(list[Any], outputs)[0]
    if not isinstance(outputs, Tensor) or not isinstance(targets, Tensor):
        return None
    if targets.is_floating_point() or targets.is_complex():
        return None
    # Classes are second, as in torch's losses, or last; a loss that flattens has them last.
    ways = ((1, _same_shape), (-1, _same_shape), (1, _same_but_ones), (-1, _flattened), (1, _flattened))
    for dimension, fits in ways:
        if outputs.dim() < 2 or outputs.shape[dimension] < 2:  # one number has no largest: a binary score
            continue
        answers = outputs.argmax(dimension)
        if fits(answers, targets):
            wrong = answers.flatten() != targets.flatten()
            return wrong[counted(targets).flatten()].double().mean()
    return None


def _same_shape(answers: Tensor, targets: Tensor) -> bool:
    return answers.shape == targets.shape


def _same_but_ones(answers: Tensor, targets: Tensor) -> bool:
    """Whether they differ in dimensions of 1 only."""
    return answers.squeeze().shape == targets.squeeze().shape


def _flattened(answers: Tensor, targets: Tensor) -> bool:
    """Whether one of them is the other flattened, or they differ in dimensions of 1 only."""
    flat = min(answers.squeeze().dim(), targets.squeeze().dim()) < 2
    return answers.numel() == targets.numel() and (flat or _same_but_ones(answers, targets))


def _measure(
    f: Objective, points: Any, total: int, error_fn: ErrorFunction | None, bar: Progress
) -> tuple[Tensor, Tensor | None]:
    """Loss and error at each of `points`."""
    losses: list[float] = []
    errors: list[float] = []
    for done, w in enumerate(points, start=1):
        f.recompute_statistics(w)
        loss = error = 0.0
        for outputs, targets, batch_loss, share in f.outputs(w):
            loss += share * float(batch_loss)
            wrong = (error_fn or classification_error)(outputs, targets)
            error += share * (float("nan") if wrong is None else float(wrong))
        losses.append(loss)
        errors.append(error)
        bar.at(done / total)
    error = torch.tensor(errors, dtype=torch.float64, device="cpu")
    nothing = error_fn is None and bool(error.isnan().all())
    return torch.tensor(losses, dtype=torch.float64, device="cpu"), None if nothing else error


def _vector(name: str, weights: Weights, model: nn.Module, f: Objective) -> Tensor:
    """The trainable parameters in `weights` as one vector."""
    if isinstance(weights, nn.Module):
        weights = weights.state_dict()
    if isinstance(weights, Tensor):
        vector = weights.detach()
        if vector.shape != (f.n,):
            raise ValueError(f"{name} must have {f.n} entries, as many as the model; got {describe(weights)}")
    else:
        parts: list[Tensor] = []
        for key, p in trainable(model).items():
            if key not in weights or weights[key].shape != p.shape:
                found = describe(weights[key]) if key in weights else "nothing"
                raise ValueError(f"{name} must hold {key!r} of shape {tuple(p.shape)}; got {found}")
            parts.append(weights[key].detach().flatten())
        vector = torch.cat(parts)
    if not bool(torch.isfinite(vector).all()):
        raise ValueError(f"{name} holds values that are not finite")
    return vector.to(f.device, f.dtype)
