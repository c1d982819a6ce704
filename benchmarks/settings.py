"""Threads, `channels_last` and `torch.compile` for each network: the time of a step, and whether it is right.

    python benchmarks/settings.py [--seconds 6] [--threads 1 2] [--only lenet/entropy-sgd …] [--quick]

A step is the recipe's own: batch, dropout, clipping and optimizer, on random data of the real shapes. All
settings of a network take turns on the same weights, so that other load on the machine affects all of
them; the fastest turn of each is compared with that of the plain setting: torch's own number of threads, no
`channels_last`, not compiled. Compiling is timed apart, with an empty cache.

Each setting is also checked against the plain one, from the same weights and without dropout, which is drawn
differently: the greatest relative difference of the loss over a few steps of gradient descent, and the
relative distance between the first gradients (batch normalisation magnifies rounding there). A network with
dropout has to be recompiled for that, so its compiled settings are checked with one number of threads.

A setting that fails is recorded with its error. Writes results/bench/settings.json.
"""

from __future__ import annotations

import argparse
import os
import shlex
import statistics
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import torch
from common import machine, table, write
from torch import nn
from torch._dynamo.utils import counters
from torch.nn.utils import clip_grad_norm_

from entropy_sgd.lab import methods, recipes, tasks
from entropy_sgd.lab.data import Images, Split, Text
from entropy_sgd.lab.methods.algorithm1 import InnerOptions
from entropy_sgd.lab.recipes import Recipe
from entropy_sgd.lab.training import acceleration

NAMES = (
    "small-mnistfc/sgd",
    "small-lenet/adam",
    "small-char-lstm/adam",
    "mnistfc/entropy-sgd",
    "lenet/entropy-sgd",  # network, batch and dropout of demo/entropy-sgd are the same
    "allcnn/entropy-sgd",
    "char-lstm/entropy-adam",
    "ptb-lstm-small/entropy-sgd",
    "ptb-lstm/entropy-sgd",
)
IMAGES = {"mnist": (1, 28, 28), "cifar10": (3, 32, 32)}
VOCABULARIES = {"warpeace": 87, "ptb": 10_000}
BATCHES = 8
TURN = 0.3
"""Seconds of a turn, one step at least."""
TURNS = 3
"""Turns of each setting at least."""
CHECKED = 3
"""Steps of the comparison with the plain setting."""
LEARNING_RATE = 1e-4
"""Random data teach nothing: weights that hardly move keep every turn alike."""


@dataclass
class Setting:
    """One way to compute the same step, and what was found."""

    threads: int
    channels_last: bool
    compile: bool
    turns: list[float] = field(default_factory=list)
    """Seconds of a step, a mean for each turn."""
    compile_seconds: float | None = None
    graphs: int | None = None
    """Graphs that torch has compiled: none for an LSTM."""
    loss_difference: float | None = None
    gradient_difference: float | None = None
    error: str | None = None


def random_data(recipe: Recipe) -> Images | Text:
    generator = torch.Generator().manual_seed(0)
    if recipe.unroll is None:
        size = BATCHES * recipe.batch_size
        inputs = torch.randn(size, *IMAGES[recipe.data], generator=generator)
        split = Split(inputs, torch.randint(0, 10, (size,), generator=generator))
        return Images("random", split, None, 10, lambda: split)
    vocabulary = VOCABULARIES[recipe.data]
    length = BATCHES * recipe.batch_size * recipe.unroll + 1
    tokens = torch.randint(0, vocabulary, (length,), generator=generator)
    return Text("random", tokens, tokens, list(range(vocabulary)), lambda: tokens)


class Bench:
    """One network, all settings."""

    def __init__(self, name: str, threads: Sequence[int], default_threads: int) -> None:
        chosen = recipes.get(name)
        slow = {"lr": LEARNING_RATE}
        if isinstance(chosen.optimizer, InnerOptions):
            slow["inner_lr"] = LEARNING_RATE
        self.recipe = replace(chosen, optimizer=replace(chosen.optimizer, **slow))
        torch.manual_seed(0)
        self.task = tasks.build(self.recipe, random_data(self.recipe), 0, torch.device("cpu"))
        self.model = self.task.model
        self.dropouts = [
            (module, name)
            for module in self.model.modules()
            for name in ("p", "dropout")
            if isinstance(module, (nn.Dropout, nn.LSTM)) and getattr(module, name, 0.0)
        ]
        acceleration.compile_forward(self.task)
        self.compiled = self.task.forward
        layouts = (False, True) if any(isinstance(m, nn.Conv2d) for m in self.model.modules()) else (False,)
        self.counts = sorted({*threads, default_threads})
        self.plain = Setting(default_threads, False, False)
        others = [
            Setting(count, layout, compiled)
            for compiled in (False, True)
            for layout in layouts
            for count in self.counts
        ]
        self.settings = [self.plain, *(setting for setting in others if setting != self.plain)]

    def take(self, setting: Setting) -> None:
        torch.set_num_threads(setting.threads)
        self.task.forward = self.compiled if setting.compile else self.model
        if isinstance(self.task, tasks.Classification):
            self.task.layout = torch.channels_last if setting.channels_last else torch.preserve_format

    def gradient(self) -> float:
        """The gradient of the next batch, as in the laboratory's loop; returns the loss."""
        self.model.zero_grad()
        loss = self.task.loss(self.task.draw())
        (loss * self.task.scale if self.task.scale != 1 else loss).backward()
        return loss.item()

    def check(self) -> None:
        """Fills in the differences to the plain setting; weights and statistics stay as they were."""
        rates = [getattr(module, name) for module, name in self.dropouts]
        start = {name: value.clone() for name, value in self.model.state_dict().items()}
        place = self.task.state_dict()
        losses: list[float] = []
        gradients: list[torch.Tensor] = []
        for module, name in self.dropouts:
            setattr(module, name, 0.0)
        for setting in self.settings:
            if setting.compile and self.dropouts and setting.threads != self.counts[-1]:
                continue
            try:
                self.take(setting)
                found = [self.gradient()]
                first = [parameter.grad.clone() for parameter in self.model.parameters()]
                for _ in range(CHECKED - 1):
                    with torch.no_grad():
                        for parameter in self.model.parameters():
                            parameter -= 0.01 * parameter.grad
                    found.append(self.gradient())
                if setting is self.plain:
                    losses, gradients = found, first
                setting.loss_difference = max(abs(a / b - 1) for a, b in zip(found, losses, strict=True))
                distance = sum((a - b).square().sum() for a, b in zip(first, gradients, strict=True))
                setting.gradient_difference = (
                    float(distance / sum(g.square().sum() for g in gradients)) ** 0.5
                )
            except Exception as error:
                setting.error = f"check: {type(error).__name__}: {str(error).partition(chr(10))[0]}"
            self.model.load_state_dict(start)
            self.task.load_state_dict(place)
        for (module, name), rate in zip(self.dropouts, rates, strict=True):
            setattr(module, name, rate)

    def time(self, seconds: float) -> None:
        """Fills in the turns, and what compiling took."""
        optimizer = methods.build(self.recipe.optimizer, self.model, seed=0, steps=1)

        def steps(count: int) -> float:
            begin = time.perf_counter()
            for _ in range(count):
                self.gradient()
                if self.recipe.clip_norm is not None:
                    clip_grad_norm_(self.model.parameters(), self.recipe.clip_norm)
                optimizer.step()
            return (time.perf_counter() - begin) / count

        counts: dict[int, int] = {}  # steps of a turn
        for setting in self.settings:
            try:
                self.take(setting)
                graphs = counters["stats"]["unique_graphs"]
                warming = 2 * steps(2)  # text meets its network without a state, and then with one
                ready = steps(1)
                if setting.compile:
                    setting.compile_seconds = max(0.0, warming - 2 * ready)
                    setting.graphs = counters["stats"]["unique_graphs"] - graphs
                counts[id(setting)] = max(1, round(TURN / ready))
            except Exception as error:
                setting.error = f"{type(error).__name__}: {str(error).partition(chr(10))[0]}"
        working = [setting for setting in self.settings if id(setting) in counts]
        end = time.perf_counter() + seconds * len(working)
        while len(working[-1].turns) < TURNS or time.perf_counter() < end:
            for setting in working:
                self.take(setting)
                setting.turns.append(steps(counts[id(setting)]))


def measure(name: str, seconds: float, threads: Sequence[int], default_threads: int) -> list[dict[str, Any]]:
    bench = Bench(name, threads, default_threads)
    bench.time(seconds)
    bench.check()
    rows: list[dict[str, Any]] = []
    for setting in bench.settings:
        row: dict[str, Any] = {
            "recipe": name,
            "threads": setting.threads,
            "channels_last": setting.channels_last,
            "compile": setting.compile,
        }
        best = min(setting.turns, default=None)
        row["best, ms"] = None if best is None else 1e3 * best
        row["median, ms"] = None if best is None else 1e3 * statistics.median(setting.turns)
        row["speed / plain"] = None if best is None else min(bench.plain.turns) / best
        row["loss differs"] = setting.loss_difference
        row["gradient differs"] = setting.gradient_difference
        row["compiling, s"] = setting.compile_seconds
        row["graphs"] = setting.graphs
        rows.append({**row, "turns": len(setting.turns), "error": setting.error})
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--seconds", type=float, default=6.0, help="for each setting of each network")
    parser.add_argument("--threads", type=int, nargs="+", default=(1, 2), help="beside torch's own number")
    parser.add_argument("--only", nargs="+", default=NAMES, choices=NAMES, metavar="RECIPE")
    parser.add_argument("--quick", action="store_true", help="half a second each, and nothing is written")
    arguments = parser.parse_args()
    description, default_threads = machine(), torch.get_num_threads()
    torch._dynamo.config.recompile_limit = 64  # beyond it torch would time eager code, in silence
    rows: list[dict[str, Any]] = []
    begin = time.perf_counter()
    with tempfile.TemporaryDirectory() as cache:
        os.environ["TORCHINDUCTOR_CACHE_DIR"] = cache
        for name in arguments.only:
            seconds = 0.5 if arguments.quick else arguments.seconds
            found = measure(name, seconds, arguments.threads, default_threads)
            table(f"{name}: time of a training step; the first line is the plain setting", found)
            rows += found
    print(f"\n{time.perf_counter() - begin:.0f} s in all")
    if not arguments.quick:
        content = {
            "command": shlex.join(["python", "benchmarks/settings.py", *sys.argv[1:]]),
            "machine": description,
            "threads": default_threads,
        }
        write("settings", {**content, "rows": rows})


if __name__ == "__main__":
    main()
