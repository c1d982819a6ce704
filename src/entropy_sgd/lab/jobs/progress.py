"""How far all runs are, and how long they still take, read from their folders.

So it is known of runs on other machines too, as long as they share the file system.
"""

from __future__ import annotations

import json
import os
import statistics
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

from rich.console import Console
from rich.text import Text

from entropy_sgd.lab.jobs.job import Job, Outcome
from entropy_sgd.lab.recipes import Recipe
from entropy_sgd.lab.runs.folder import METRICS
from entropy_sgd.lab.terminal import OnTerminal, filled
from entropy_sgd.lab.training.display import describe, duration, say

PERIOD = 1.0
"""Seconds between two looks at the folders."""
QUIET = 60.0
"""Seconds between two plain lines where there is no terminal."""


class Overall:
    """Effective epochs and seconds of every run, and what follows for the time left.

    `speeds` are seconds per epoch by the `kind` of the recipe, as they were in earlier runs.
    """

    def __init__(self, jobs: Sequence[Job], slots: int, speeds: Mapping[str, float] | None = None) -> None:
        self.jobs, self.slots, self.speeds = jobs, slots, speeds or {}
        self.ended: dict[int, Outcome] = {}
        self.done: dict[int, tuple[float, float]] = {}
        """Epochs and seconds of training of the runs of which something is known."""
        self.running: list[int] = []
        self._started: dict[int, tuple[float, float]] = {}
        """When each was started, and the seconds of training it had behind it then."""
        self._around: dict[int, float] = {}
        """Seconds of each beside its training: to start a process, import torch, read data, conclude."""

    def start(self, index: int) -> None:
        """A run is started, perhaps again."""
        if index not in self._started:
            before = latest(self.jobs[index].folder) or (0.0, 0.0)
            self._started[index] = time.monotonic(), before[1]

    def look(self, running: Sequence[int]) -> None:
        """Read how far the running ones are."""
        self.running = list(running)
        for index in running:
            found = latest(self.jobs[index].folder)
            if found is not None:
                if found != self.done.get(index):
                    self._note_around(index, found[1])
                self.done[index] = found

    def end(self, index: int, outcome: Outcome) -> None:
        """A run has ended."""
        self.ended[index] = outcome
        if outcome.summary is not None and "seconds" in outcome.summary:
            self.done[index] = outcome.summary["epochs"], outcome.summary["seconds"]
            self._note_around(index, outcome.summary["seconds"])

    def _note_around(self, index: int, trained: float) -> None:
        began, before = self._started.get(index, (time.monotonic(), trained))
        if trained > before:  # else nothing has been trained since the start
            self._around[index] = max(0.0, time.monotonic() - began - (trained - before))

    def seconds_left(self) -> float | None:
        """Time until all have ended; None before anything is known.

        At the speed of runs of the same recipe, or else of the same network, or else of any. A run that has
        not yet trained also takes what the others took beside their training.
        """
        speeds: dict[str, list[float]] = {}
        for index, (epochs, seconds) in self.done.items():
            if epochs > 0 and seconds > 0:
                speeds.setdefault(kind(self.jobs[index].settings.recipe), []).append(seconds / epochs)
        known = {**self.speeds, **{name: statistics.fmean(each) for name, each in speeds.items()}}
        if not known:
            return None
        beside = sum(self._around.values()) / len(self._around) if self._around else 0.0
        left: list[float] = []
        for index, job in enumerate(self.jobs):
            if index not in self.ended:
                recipe = job.settings.recipe
                epochs = max(0.0, recipe.epochs - self.done.get(index, (0.0, 0.0))[0])
                more = 0.0 if index in self._around else beside
                left.append(epochs * _speed(kind(recipe), known) + more)
        return max(max(left), sum(left) / self.slots) if left else 0.0

    def line(self) -> str:
        """All of it in a line that fits 80 columns."""
        left = self.seconds_left()
        count = len(self.ended)
        where = f"{count} of {len(self.jobs)} runs ended, {len(self.running)} running"
        return where + ("" if left is None else f", about {roughly(left)} left in all")


def kind(recipe: Recipe) -> str:
    """What takes the same time: NETWORK/METHOD, with the network's width."""
    network, _, method = recipe.name.partition("/")
    return f"{network}{'' if recipe.width is None else f' {recipe.width:g}'}/{method}"


def _speed(wanted: str, known: Mapping[str, float]) -> float:
    """Of a kind, or else of others of its network, or else of any."""
    if wanted in known:
        return known[wanted]
    network = wanted.partition("/")[0]
    alike = [speed for other, speed in known.items() if other.partition("/")[0] == network]
    return statistics.fmean(alike or known.values())


class Board(OnTerminal):
    """What the command shows while the runs go: a line for all, on a terminal also one for each of them."""

    def __init__(self, console: Console, overall: Overall) -> None:
        super().__init__(console)
        self.console, self.overall = console, overall
        self._looked, self._said = 0.0, time.monotonic()

    def update(self, running: Sequence[int], started: Sequence[int] = ()) -> None:
        """Called all the time; does nothing most of the time. Those `started` may not be seen running yet."""
        now = time.monotonic()
        for index in started:
            self.overall.start(index)
        if now - self._looked < PERIOD:
            return
        self._looked = now
        self.overall.look(running)
        if self._live:
            self._live.update(Text("\n").join(self._lines()), refresh=True)
        elif now - self._said > QUIET:
            self._said = now
            say(self.console, self.overall.line())

    def ended(self, index: int, outcome: Outcome) -> None:
        """A line that stays."""
        overall, job = self.overall, outcome.job
        overall.end(index, outcome)
        if outcome.error is not None:
            how = f"failed: {str(outcome.error).partition(chr(10))[0]}"
        elif outcome.summary is not None and outcome.summary["status"] == "finished":
            how = f"{describe(outcome.summary)} in {duration(outcome.summary['seconds'])}"
        else:
            how = "diverged"
        for note in outcome.notes:
            say(self.console, f"note: {job.title}: {note.removeprefix(job.title + ': ')}")
        left = overall.seconds_left()
        rest = "" if not left else f", about {roughly(left)} left in all"
        parts = [f"run {len(overall.ended)} of {len(overall.jobs)}{rest}:", f"{job.title}: {how}"]
        say(self.console, filled(parts, self.console.width) if self._live else " ".join(parts))
        self._said = time.monotonic()

    def _lines(self) -> list[Text]:
        lines = [Text(self.overall.line(), no_wrap=True, overflow="ellipsis")]
        for index in self.overall.running:
            job = self.overall.jobs[index]
            epochs = self.overall.done.get(index, (0.0, 0.0))[0]
            text = f"  {job.title}  epoch {epochs:.2f}/{job.settings.recipe.epochs:g}"
            lines.append(Text(text, no_wrap=True, overflow="ellipsis"))
        return lines


def latest(folder: Path) -> tuple[float, float] | None:
    """Effective epochs and seconds in the last whole line of metrics.jsonl; None if there is none."""
    try:
        with (folder / METRICS).open("rb") as file:
            size = file.seek(0, os.SEEK_END)
            file.seek(max(0, size - 4096))
            lines = file.read().split(b"\n")[:-1]
        record = json.loads(lines[-1])
        return float(record["epoch"]), float(record["seconds"])
    except (OSError, ValueError, LookupError, TypeError):  # not there yet, or being written
        return None


def roughly(seconds: float) -> str:
    """A duration as an estimate deserves it."""
    if seconds < 90:
        return f"{max(5, 5 * round(seconds / 5))} s"
    if seconds < 5400:
        return f"{round(seconds / 60)} min"
    return f"{seconds / 3600:.1f} h"
