"""Several runs, one after the other, in the processes that torchrun has started: see test_group.py."""

from __future__ import annotations

import shutil
import signal
import sys
from dataclasses import replace
from pathlib import Path

import torch

from entropy_sgd.lab import Diverged, Interrupted, LabError, recipes, tasks
from entropy_sgd.lab.recipes import Recipe
from entropy_sgd.lab.runs.folder import RunFolder, Settings
from entropy_sgd.lab.training.processes import Processes, leave
from entropy_sgd.lab.training.trainer import train


def images() -> Recipe:
    """A network with batch normalisation and dropout on 100 digits, in cycles of 5 steps."""
    recipe = replace(recipes.get("demo/entropy-sgd"), train_limit=100, batch_size=8, statistics_samples=50)
    return replace(recipe, dropout=0.3, batch_norm=True, epochs=4, evaluate_every=2, log_every=0.5)


def plain(batch_size: int) -> Recipe:
    """The same without what makes two halves of a batch differ from the whole."""
    return replace(images(), batch_size=batch_size, dropout=0.0, batch_norm=False)


def text(path: Path) -> Recipe:
    """A small LSTM with dropout, in cycles of 5 steps."""
    path.write_bytes(bytes(32 + (i * i // 7 + i // 3) % 40 for i in range(1500)))
    recipe = replace(recipes.get("char-lstm/entropy-adam"), data=f"text:{path}", batch_size=6, unroll=10)
    return replace(recipe, epochs=2.5, dropout=0.3, evaluate_every=1)


class At:
    """While open, `action` happens in the `step`-th step on `rank`; the very first gradients make no step."""

    def __init__(self, group: Processes, rank: int, step: int, action) -> None:
        self.due, self.action = step + 1 if group.rank == rank else 0, action

    def __enter__(self) -> None:
        self.originals = {kind: kind.loss for kind in (tasks.Classification, tasks.LanguageModel)}
        for kind, original in self.originals.items():
            kind.loss = lambda task, batch, original=original: self.loss(original(task, batch))

    def loss(self, value: torch.Tensor) -> torch.Tensor:
        self.due -= 1
        return self.action(value) if self.due == 0 else value

    def __exit__(self, *_: object) -> None:
        for kind, original in self.originals.items():
            kind.loss = original


def terminate(value: torch.Tensor) -> torch.Tensor:
    signal.raise_signal(signal.SIGTERM)
    return value


def main(folder: Path) -> None:
    with Processes.from_environment() as group:
        if group.lead:
            shutil.rmtree(folder, ignore_errors=True)  # of an attempt that was aborted
            folder.mkdir()

        def run(recipe: Recipe, name: str) -> None:
            settings = Settings(recipe, processes=group.size)
            run_folder = group.first(lambda: RunFolder(folder / name, settings, resume=True))
            train(settings, run_folder, processes=group)
            torch.save(torch.get_rng_state(), folder / f"{name}-{group.rank}.pt")

        run(plain(8), "plain")
        for name, recipe in (("images", images()), ("text", group.first(lambda: text(folder / "text.txt")))):
            run(recipe, f"{name}-whole")
            for rank, step in ((1, 7), (0, 6)):
                try:
                    with At(group, rank, step, terminate):
                        run(recipe, f"{name}-parts")
                except Interrupted as stopped:
                    print(f"{name}: rank {group.rank} {stopped}, exit code {stopped.exit_code}")
            run(recipe, f"{name}-parts")
        try:
            with At(group, 1, 5, lambda value: value * torch.nan):
                run(images(), "diverging")
        except Diverged as diverged:
            print(f"diverging: rank {group.rank} {diverged}")
        try:
            with group.together():
                if group.rank == 1:
                    raise LabError("what rank 1 has to say")
        except LabError as error:
            print(f"rank {group.rank} knows {error}")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
    leave(0)  # as the command does: a thread of gloo may abort a process that cleans up
