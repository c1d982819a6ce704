"""Runs of every method that take a moment, in one process or in those that torchrun has started."""

from __future__ import annotations

import io
import signal
import sys
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

from rich.console import Console

from entropy_sgd.lab import Interrupted, methods, recipes, tasks
from entropy_sgd.lab.recipes import Recipe
from entropy_sgd.lab.runs.folder import RunFolder, Settings
from entropy_sgd.lab.training.processes import Processes
from entropy_sgd.lab.training.trainer import train

DIGITS = Path(__file__).parents[2] / "data" / "lab-0.1.0" / "digits"
BUDGET, EPOCH = 4, 15  # effective epochs, and gradient evaluations of one
CYCLE = 4


def recipe(method: str, batch_size: int = 16, **changes) -> Recipe:
    """A network of 5,000 weights with dropout and batch normalisation, on 240 digits of 8 x 8."""
    found = recipes.get(f"mnistfc/{method}")
    inner = {"L": CYCLE} if hasattr(found.optimizer, "L") else {}
    if methods.of(found.optimizer).replicas(found.optimizer) > 1:
        inner["replicas"] = 1  # more start processes of their own: see ../training/test_replicas.py
    tiny = {"network": "small-mnistfc", "data": f"idx:{DIGITS}", "train_limit": 240, "epochs": BUDGET}
    tiny |= {"dropout": 0.2, "batch_norm": True, "statistics_samples": 100, "evaluate_every": 2}
    drops = replace(found.drops, at=tuple(2 for _ in found.drops.at[:1]))
    optimizer = replace(found.optimizer, **inner)
    return replace(found, batch_size=batch_size, drops=drops, optimizer=optimizer, **tiny | changes)


@contextmanager
def watched(kind=tasks.Classification, *, stop: int | None = None):
    """Counts the gradient evaluations, and sends a signal in number `stop`."""
    original, calls = kind.loss, []

    def loss(task, batch):
        calls.append(batch)
        if len(calls) == stop:
            signal.raise_signal(signal.SIGTERM)
        return original(task, batch)

    kind.loss = loss
    try:
        yield calls
    finally:
        kind.loss = original


def start(recipe: Recipe, path: Path, processes: Processes | None = None) -> dict:
    settings = Settings(recipe, 1, processes=processes.size if processes else 1)
    if processes:
        folder = processes.first(lambda: RunFolder(path, settings, resume=True))
    else:
        folder = RunFolder(path, settings, resume=True)
    return train(settings, folder, console=Console(file=io.StringIO()), processes=processes)


def main(folder: Path) -> None:
    """Every method in several processes: whole, and stopped and continued."""
    with Processes.from_environment() as processes:
        for method in methods.names():
            small = recipe(method, 8)
            start(replace(small, dropout=0.0, batch_norm=False), folder / f"{method}-plain", processes)
            start(small, folder / f"{method}-whole", processes)
            try:
                with watched(stop=20 if processes.rank == 1 else None):
                    start(small, folder / f"{method}-parts", processes)
            except Interrupted:
                start(small, folder / f"{method}-parts", processes)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
