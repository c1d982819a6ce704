"""What a run shows while it goes: a live line on a terminal, plain lines elsewhere."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Container, Iterable
from typing import Any

from rich.cells import cell_len
from rich.console import Console, ConsoleOptions, RenderableType
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from entropy_sgd.lab import metrics
from entropy_sgd.lab.terminal import OnTerminal, filled

REFRESH = 0.2
"""Seconds between updates of the live line."""
PATIENCE = 60.0
"""Seconds after which a plain line is printed between evaluations too."""

Shown = tuple[str, Callable[[float], str]]
"""The label of a value, and how it is written."""

DIAGNOSTICS: dict[str, Shown] = {
    "lr": ("lr", lambda value: f"{value:.3g}"),
    "gamma": ("γ", lambda value: f"{value:.3g}"),
    "angle": ("angle", lambda value: f"{value:.0f}°"),
}


def shown(metric: str) -> dict[str, Shown]:
    """What the line has, in order, for a run that is judged by `metric`."""
    known = metrics.get(metric)
    key = "validation_loss" if metric == "loss" else metric
    return {
        "loss": ("loss", lambda value: f"{value:.4f}"),
        key: (f"validation {metric}", lambda value: f"{known.number(value)}{known.unit}"),
        **DIAGNOSTICS,
    }


def duration(seconds: float) -> str:
    """Seconds as hours, minutes and seconds."""
    minutes, rest = divmod(round(max(0.0, seconds)), 60)
    hours, minutes = divmod(minutes, 60)
    return (
        f"{hours} h {minutes:02} min" if hours else f"{minutes} min {rest:02} s" if minutes else f"{rest} s"
    )


def count(number: float, what: str) -> str:
    """A number of things: 1 epoch, 2 epochs, 0.5 epochs."""
    return f"{number:g} {what}{'' if number == 1 else 's'}"


def describe(summary: dict[str, Any]) -> str:
    """The outcome in a few words."""
    metric = metrics.get(summary["metric"])
    parts = [
        f"{part} {metric.phrase.format(metric.number(summary[part][summary['metric']]))}"
        for part in ("validation", "test")
        if summary[part] is not None
    ]
    return ", ".join(parts) or "no validation data"


def say(console: Console, text: str) -> None:
    """Print a line as it is: no wrapping, and no markup where a path has brackets."""
    console.print(text, markup=False, highlight=False, soft_wrap=True)


class _TwoLines:
    """How far, and how long still; under it the latest values, as many as fit."""

    def __init__(self, title: str, epochs: float) -> None:
        self.title, self.epochs = title, epochs
        self.done, self.left, self.values = 0.0, "?", list[str]()

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> Iterable[RenderableType]:
        """Title, bar and time; the bar takes the room that is left, and none if that is little."""
        width = options.max_width
        state = f"{self.done:.2f}/{count(self.epochs, 'epoch')}, {self.left} left"
        room = width - cell_len(self.title) - cell_len(state) - 2
        if room < 4:
            yield Text(filled([self.title, state], width), no_wrap=True, overflow="ellipsis")
        else:
            row = Table.grid(padding=(0, 1))
            bar = ProgressBar(total=self.epochs, completed=self.done, width=min(room, 20))
            row.add_row(Text(self.title), bar, Text(state))
            yield row
        yield Text(filled(self.values, width).partition("\n")[0], no_wrap=True, overflow="ellipsis")


class Display(OnTerminal):
    """The progress of one run, on `console`."""

    def __init__(self, console: Console, title: str, epochs: float, metric: str) -> None:
        self._lines = _TwoLines(title, epochs)
        super().__init__(console, self._lines)
        self.console, self.title, self.epochs = console, title, epochs
        self._shown = shown(metric)
        self._values: dict[str, Any] = {}
        self._begun: tuple[float, float] | None = None
        self._refreshed, self._printed = -math.inf, time.monotonic()

    def say(self, text: str) -> None:
        """A line that stays."""
        say(self.console, text)

    def advance(self, epoch: float, now: float) -> None:
        """Move the live line; called after every step, so it does nothing most of the time."""
        if self._begun is None:
            self._begun = (now, epoch)
        if self._live and now - self._refreshed >= REFRESH:
            self._refreshed = now
            self._lines.done, self._lines.left = epoch, self._left(epoch, now)
            self._lines.values = self._parts()
            self._live.refresh()

    def show(self, record: dict[str, Any], *, evaluated: bool) -> None:
        """Take new values; those of an evaluation stay on the screen as a line."""
        self._values |= {key: value for key, value in record.items() if value is not None}
        now = time.monotonic()
        if evaluated or (not self._live and now - self._printed > PATIENCE):
            self._printed = now
            where = [self.title, f"epoch {record['epoch']:.2f}/{self.epochs:g}"]
            if self._live:
                # the live line has the rest
                parts = [*where, *self._parts(without=DIAGNOSTICS)]
                self.say(filled(parts, self.console.width))
            else:
                self.say("  ".join([*where, *self._parts(), f"{self._left(record['epoch'], now)} left"]))

    def _parts(self, without: Container[str] = ()) -> list[str]:
        known = [key for key in self._shown if key in self._values and key not in without]
        return [f"{self._shown[key][0]} {self._shown[key][1](self._values[key])}" for key in known]

    def _left(self, epoch: float, now: float) -> str:
        if self._begun is None or epoch <= self._begun[1]:
            return "?"
        return duration((now - self._begun[0]) / (epoch - self._begun[1]) * (self.epochs - epoch))
