"""Time of a training step in the laboratory's loop against a bare loop, step for step in one process.

    python benchmarks/training.py [--quick]

The bare loop is forward, backward and `step()` on slices of tensors in memory, with the same network,
optimizer and batch size. The laboratory's adds shuffled batches, learning-rate drops, the check for a loss
that is not finite, measurements written to metrics.jsonl and TensorBoard, and the display. The two take
turns, a block of 40 steps each, so that other load on the machine affects both; the ratio is the median
over the blocks.

What interrupts the steps is timed in a second run, on random data of the real sizes: the seconds of an
evaluation (with recomputed batch statistics), of a line of measurements and of a checkpoint, and the share of
training time that each takes at the recipe's own frequencies. Writes results/bench/training.json.
"""

from __future__ import annotations

import argparse
import collections
import io
import itertools
import json
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any
from unittest import mock

import torch
from rich.console import Console
from torch.nn import functional
from torch.nn.utils import clip_grad_norm_

from entropy_sgd.lab import data, methods, recipes, tasks
from entropy_sgd.lab.recipes import Recipe
from entropy_sgd.lab.runs import environment
from entropy_sgd.lab.runs.folder import RunFolder, Settings
from entropy_sgd.lab.training import acceleration, trainer
from entropy_sgd.lab.training.processes import Processes
from entropy_sgd.lab.training.trainer import train

NAMES = ("mnistfc/entropy-sgd", "lenet/entropy-sgd", "char-lstm/entropy-adam")
BLOCK = 40
"""Steps in a block, and between measurements: what 0.1 epochs of MNIST are at a batch of 128."""
IMAGES = (55_000, 5_000)
"""Training and validation images of MNIST."""
TEXT = (2_606_596, 325_825)
"""Training and validation characters of War and Peace."""
EVALUATIONS, BETWEEN = 3, 4
"""Evaluations in the run that is interrupted, and steps for each."""
CHECKPOINT_SECONDS = 30.0
"""Between checkpoints, unless a twentieth of the time would not be enough for them: the default."""


def bare(recipe: Recipe) -> Iterator[None]:
    """The bare loop, one step for each `next`."""
    dataset = data.load(recipe.data)
    task = tasks.build(recipe, dataset, 0, torch.device("cpu"))
    model, size, length = task.model, recipe.batch_size, recipe.unroll
    optimizer = methods.build(recipe.optimizer, model, seed=0, steps=1)
    if recipe.compile:
        acceleration.compile_forward(task)
    forward = task.forward
    if length is None:
        images = dataset.train.inputs[: 20 * size].to(memory_format=task.layout)
        batches = list(zip(images.split(size), dataset.train.targets[: 20 * size].split(size), strict=True))
    else:
        tokens = dataset.train[: size * length * 20 + 1]
        inputs, targets = (
            tokens[:-1].view(size, -1).split(length, 1),
            tokens[1:].view(size, -1).split(length, 1),
        )
        batches = list(zip(inputs, targets, strict=True))
    hidden = None
    for inputs, targets in itertools.cycle(batches):
        optimizer.zero_grad()
        if length is None:
            loss = functional.cross_entropy(forward(inputs), targets)
        else:
            logits, (h, c) = forward(inputs, hidden)
            hidden = (h.detach(), c.detach())
            loss = functional.cross_entropy(logits.flatten(0, 1), targets.flatten())
        loss.backward()
        if recipe.clip_norm is not None:
            clip_grad_norm_(model.parameters(), recipe.clip_norm)
        optimizer.step()
        yield


def measure(recipe: Recipe, blocks: int, folder: Path) -> list[tuple[float, float]]:
    """Seconds of each block in the laboratory's loop and of the bare block after it."""
    plain = bare(recipe)
    kind = tasks.Classification if recipe.unroll is None else tasks.LanguageModel
    original, calls, resumed = kind.loss, 0, 0.0
    pairs: list[tuple[float, float]] = []

    def loss(self: tasks.Task, batch: Any) -> torch.Tensor:
        """The loss of the batch, as ever; at the end of a block the bare loop has its turn first."""
        nonlocal calls, resumed
        if calls % BLOCK == 0:
            arrived = time.perf_counter()
            for _ in range(BLOCK):
                next(plain)
            pairs.append((arrived - resumed, time.perf_counter() - arrived))
            resumed = time.perf_counter()
        calls += 1
        return original(self, batch)  # pyright: ignore[reportArgumentType]

    task = tasks.build(recipe, data.load(recipe.data), 0, torch.device("cpu"))
    epoch = task.size / task.batch  # in steps
    epochs = (blocks + 1) * BLOCK / epoch + 1 / epoch
    recipe = replace(recipe, epochs=epochs, evaluate_every=epochs, log_every=BLOCK / epoch)
    settings = Settings(recipe)
    kind.loss = loss
    try:
        train(settings, RunFolder(folder, settings), console=Console(file=io.StringIO()))
    finally:
        kind.loss = original
    return pairs[2:]  # before the first turn nothing was timed, and the first block warmed up


def full_size(recipe: Recipe) -> data.Images | data.Text:
    """Random data with the sizes of MNIST or War and Peace as the laboratory splits them."""
    generator = torch.Generator().manual_seed(0)
    if recipe.unroll is not None:
        train, validation = (torch.randint(0, 87, (size,), generator=generator) for size in TEXT)
        return data.Text("random", train, validation, list(range(87)), lambda: validation)
    train, validation = (
        data.Split(
            torch.randn(size, 1, 28, 28, generator=generator),
            torch.randint(0, 10, (size,), generator=generator),
        )
        for size in IMAGES
    )
    return data.Images("random", train, validation, 10, lambda: validation)


def interruptions(recipe: Recipe, step_seconds: float, folder: Path) -> dict[str, float]:
    """Seconds of an evaluation, a log line and a checkpoint, and their shares of the training time in %."""
    dataset = full_size(recipe)
    size = len(dataset.train) / (recipe.batch_size * (recipe.unroll or 1))  # an epoch, in steps
    spent: dict[str, list[float]] = collections.defaultdict(list)
    first, judged_weights = Processes.first, trainer.judged_weights

    def timed_first(processes: Processes, work: Callable[[], Any]) -> Any:
        """The loop measures, saves and concludes inside `first`: the time of each, by its name."""
        begin = time.perf_counter()
        try:
            return first(processes, work)
        finally:
            spent[getattr(work, "func", work).__name__.strip("_")].append(time.perf_counter() - begin)

    @contextmanager
    def timed_judged_weights(*arguments: Any) -> Iterator[None]:
        begin = time.perf_counter()
        with judged_weights(*arguments):
            yield
        spent["evaluation"].append(time.perf_counter() - begin)

    steps = EVALUATIONS * BETWEEN  # a line and a checkpoint after each
    short = replace(recipe, epochs=steps / size, evaluate_every=BETWEEN / size, log_every=1 / size)
    settings, console = Settings(short), Console(file=io.StringIO())
    with (
        mock.patch.object(data, "load", return_value=dataset),
        mock.patch.object(trainer, "judged_weights", timed_judged_weights),
        mock.patch.object(Processes, "first", timed_first),
    ):
        train(settings, RunFolder(folder, settings), console=console, checkpoint_seconds=0.0)
    evaluations = spent["evaluation"][:EVALUATIONS]  # the one after them keeps the weights at the end
    evaluation, saved = statistics.median(evaluations), statistics.median(spent["save"])
    line = (sum(spent["measure"]) - sum(evaluations)) / steps
    epoch = size * step_seconds
    return {
        "seconds_evaluation": evaluation,
        "seconds_log_line": line,
        "seconds_checkpoint": saved,
        "percent_evaluation": 100 * evaluation / (recipe.evaluate_every * epoch),
        "percent_log_line": 100 * line / (recipe.log_every * epoch),
        "percent_checkpoint": 100 * saved / max(CHECKPOINT_SECONDS, 20 * saved),
    }


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--quick", action="store_true", help="4 blocks instead of 20")
    parser.add_argument("--out", type=Path, default=Path("results/bench/training.json"))
    arguments = parser.parse_args()
    rows: dict[str, dict[str, float]] = {}
    with tempfile.TemporaryDirectory() as temporary:
        text = Path(temporary) / "text"
        generator = torch.Generator().manual_seed(0)
        text.write_bytes(bytes(torch.randint(30, 117, (400_000,), generator=generator).tolist()))
        for name in NAMES:
            recipe = recipes.get(name)
            recipe = replace(recipe, data="digits" if recipe.unroll is None else f"text:{text}")
            pairs = measure(recipe, 4 if arguments.quick else 20, Path(temporary) / recipe.network)
            rows[name] = {
                "ratio": statistics.median(mine / plain for mine, plain in pairs),
                "milliseconds_laboratory": 1e3 / BLOCK * statistics.median(mine for mine, _ in pairs),
                "milliseconds_bare": 1e3 / BLOCK * statistics.median(plain for _, plain in pairs),
                "blocks": len(pairs),
            }
            step = rows[name]["milliseconds_laboratory"] / 1e3
            rows[name] |= interruptions(recipe, step, Path(temporary) / f"{recipe.network}-interrupted")
            print(f"{name:<24}", *(f"{key} {value:.3f}" for key, value in rows[name].items()), sep="  ")
    arguments.out.parent.mkdir(parents=True, exist_ok=True)
    arguments.out.write_text(
        json.dumps({"environment": environment.describe(), "rows": rows}, indent=2) + "\n"
    )
    print(arguments.out)


if __name__ == "__main__":
    main()
