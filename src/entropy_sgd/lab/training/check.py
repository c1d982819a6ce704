"""What can be wrong with a run, found before the first file is touched."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import torch
from torch import nn

from entropy_sgd.lab import LabError, data, methods, models, tasks
from entropy_sgd.lab.data import Images, Text
from entropy_sgd.lab.runs.folder import Settings
from entropy_sgd.lab.training import acceleration
from entropy_sgd.lab.training.processes import Processes


def names(
    settings: Settings,
    *,
    data_dir: Path | None = None,
    device: str = "auto",
    processes: Processes | None = None,
    present: bool = True,
) -> None:
    """The network, the data, the method's options and the device, in a moment and without reading the data.

    Without `present` the data need not be there: a run that is continued may be finished.
    """
    recipe = settings.recipe
    if recipe.source is None:
        try:
            models.options(recipe.network)
        except ValueError as error:
            raise LabError(str(error)) from error
        data.check(recipe.data, data_dir, present=present)
    chosen = (processes or Processes()).device(device)
    acceleration.check_threads(recipe.threads)
    if present:
        acceleration.require_compiler(recipe, chosen)
    if methods.of(recipe.optimizer).replicas(recipe.optimizer) == 1:  # those need their processes
        methods.build(recipe.optimizer, nn.Linear(1, 1), seed=settings.seed, steps=1000)


def whole(runs: Sequence[Settings], *, data_dir: Path | None = None, device: str = "auto") -> None:
    """Everything: the data are read, once, and each network meets them.

    A user's own experiment has been loaded by now; its model is made when it is trained, and only then.
    """
    loaded: dict[tuple[str, bool], Images | Text] = {}
    chosen = Processes().device(device)
    known = {(wanted.recipe, wanted.final): wanted for wanted in reversed(runs)}
    for wanted in known.values():
        recipe = wanted.recipe
        if recipe.source is not None:
            tasks.refuse_foreign(recipe)
            continue
        key = recipe.data, wanted.final
        if key not in loaded:
            loaded[key] = data.load(recipe.data, data_dir, final=wanted.final)
        with torch.random.fork_rng():
            task = tasks.build(recipe, loaded[key], wanted.seed, chosen)
        if methods.of(recipe.optimizer).replicas(recipe.optimizer) == 1:
            methods.build(recipe.optimizer, task.model, seed=wanted.seed, steps=1000)
