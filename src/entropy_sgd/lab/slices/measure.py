"""Taking slices of the loss at the judged weights of finished runs; each is one JSON file.

Batch statistics belong to one set of weights, so they are computed anew at every position.
"""

from __future__ import annotations

import json
import math
import shlex
import time
from collections.abc import Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from entropy_sgd.lab import LabError
from entropy_sgd.lab.runs import environment, trajectory
from entropy_sgd.lab.runs.reading import Run, read_recipe, require_finished
from entropy_sgd.lab.runs.records import Record
from entropy_sgd.lab.slices.how import On, Slice
from entropy_sgd.lab.spectra.trained import Trained, judged_weights, load
from entropy_sgd.landscape import line, plane, principal_directions

MARGIN = 0.25
"""How far a picture goes beyond what it shows, as a share of that."""


def measure(
    runs: Sequence[Run], how: Slice, on: On, *, command: Sequence[str], data_dir: Path | None = None
) -> Record:
    """The slice of these runs, two for a line and one for a plane."""
    trained = load(runs[0], samples=how.samples, batch=how.batch, dtype=torch.float32, data_dir=data_dir)
    began = time.monotonic()
    try:
        found = {"line": _line, "plane": _plane, "trajectory": _trajectory}[on](trained, runs, how)
    except ValueError as error:  # what the slice refuses, for one of its arguments
        raise LabError(str(error)) from error
    here = environment.describe()
    return {
        "on": on,
        "runs": [identity(run) for run in runs],
        "network": trained.recipe.network,
        "data": trained.recipe.data,
        "command": shlex.join(["entropy-sgd", *command]),
        "options": options(how, on),
        "parameters": sum(parameter.numel() for parameter in trained.model.parameters()),
        "samples": trained.samples,
        "samples_available": trained.available,
        "seconds": time.monotonic() - began,
        "environment": {key: value for key, value in here.items() if key != "command"},
        "slice": found,
    }


def identity(run: Run) -> Record:
    """What tells the run, and its weights, from others."""
    digest = require_finished(run)["weights_sha256"]
    return {"recipe": run.recipe, "seed": run.settings["seed"], "weights_sha256": digest}


def options(how: Slice, on: On) -> Record:
    """The options that decide a slice, as JSON gives them back."""
    chosen = replace(how, on=on, points=how.points or (51 if on == "line" else 21))
    return json.loads(json.dumps(asdict(chosen)))


def check(runs: Sequence[Run], on: On) -> None:
    """Refuse runs that this slice does not fit, before anything is measured."""
    for run in runs:
        require_finished(run)
        if on == "trajectory" and (found := len(trajectory.read(run.path))) < 2:
            raise LabError(
                f"{run.path} has kept weights at {found} steps only: train it with, say, --keep-weights 20"
            )
    if on != "line":
        return
    first, second = (read_recipe(run) for run in runs)
    for what in ("network", "data"):
        if getattr(first, what) != getattr(second, what):
            raise LabError(
                f"a line goes between two runs of the same {what}, got {getattr(first, what)} in "
                f"{runs[0].path} and {getattr(second, what)} in {runs[1].path}"
            )


def _line(trained: Trained, runs: Sequence[Run], how: Slice) -> Record:
    start, end = trained.model.state_dict(), judged_weights(runs[1])
    positions = torch.linspace(-MARGIN, 1 + MARGIN, options(how, "line")["points"], dtype=torch.float64)
    found = line(trained.model, trained.loss_fn, trained.batches, start, end, positions=positions)
    names = [name for name, _ in trained.model.named_parameters()]
    distance = math.sqrt(sum(float((end[name] - start[name]).double().square().sum()) for name in names))
    return {
        "positions": _plain(found.positions),
        "loss": _plain(found.loss),
        "error": _plain(found.error),
        "distance": distance,
    }


def _plane(trained: Trained, runs: Sequence[Run], how: Slice) -> Record:
    found = plane(
        trained.model,
        trained.loss_fn,
        trained.batches,
        radius=how.radius,
        points=options(how, "plane")["points"],
        seed=how.seed,
    )
    return _record(found)


def _trajectory(trained: Trained, runs: Sequence[Run], how: Slice) -> Record:
    names = [name for name, value in trained.model.named_parameters() if value.requires_grad]
    final = dict(trained.model.named_parameters())
    try:
        kept = [_flat(weights, names) for weights in trajectory.read(runs[0].path)]
        way = principal_directions([*kept, _flat(final, names)])
    except (KeyError, ValueError) as error:
        raise LabError(f"the weights kept in {runs[0].path} give no trajectory: {error}") from error
    points = options(how, "trajectory")["points"]
    sides: list[Tensor] = []
    for side in way.coordinates.T:
        low, high = float(side.min()), float(side.max())
        beyond = MARGIN * (high - low)
        sides.append(torch.linspace(low - beyond, high + beyond, points, dtype=torch.float64))
    found = plane(
        trained.model,
        trained.loss_fn,
        trained.batches,
        positions=(sides[0], sides[1]),
        directions=way.directions,
    )
    return {**_record(found), "coordinates": _plain(way.coordinates), "shares": list(way.shares)}


def _record(found: Any) -> Record:
    return {
        "first": _plain(found.first),
        "second": _plain(found.second),
        "loss": _plain(found.loss),
        "error": _plain(found.error),
    }


def _flat(weights: dict[str, Any], names: list[str]) -> Tensor:
    return torch.cat([weights[name].detach().flatten() for name in names])


def _plain(values: Tensor | None) -> Any:
    """Lists of numbers with six digits; None, for JSON has no NaN, where a value is not finite."""

    def convert(value: Any) -> Any:
        if isinstance(value, list):
            return [convert(entry) for entry in value]  # pyright: ignore[reportUnknownVariableType]
        return float(f"{value:.6g}") if math.isfinite(value) else None

    return None if values is None else convert(values.tolist())  # pyright: ignore[reportUnknownMemberType]
