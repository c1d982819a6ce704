"""What a run shows while it goes: a live line on a terminal, plain lines elsewhere."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterable
from typing import Any, Self

from rich.console import Console, RenderableType
from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn
from rich.text import Text

from entropy_sgd.lab import metrics

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


class _TwoLines(Progress):
    """How far, and how long still; under it the latest values. Gone when the run is over."""

    def __init__(self, console: Console) -> None:
        self.values = ""
        super().__init__(
            TextColumn("{task.description}"),
            BarColumn(bar_width=20),
            TextColumn("{task.completed:.2f}/{task.total:g} epochs,"),
            TimeRemainingColumn(),
            TextColumn("left"),
            console=console,
            auto_refresh=False,
            transient=True,
        )

    def get_renderables(self) -> Iterable[RenderableType]:
        """The bar and the values."""
        yield from super().get_renderables()
        yield Text(self.values, no_wrap=True, overflow="ellipsis")


class Display:
    """The progress of one run, on `console`."""

    def __init__(self, console: Console, title: str, epochs: float, metric: str) -> None:
        self.console, self.title, self.epochs = console, title, epochs
        self._shown = shown(metric)
        self._values: dict[str, Any] = {}
        self._begun: tuple[float, float] | None = None
        self._refreshed, self._printed = -math.inf, time.monotonic()
        self._progress: _TwoLines | None = None
        if console.is_terminal:
            self._progress = _TwoLines(console)
            self._task = self._progress.add_task(title, total=epochs)

    def __enter__(self) -> Self:
        if self._progress:
            self._progress.start()
        return self

    def __exit__(self, *_: object) -> None:
        if self._progress:
            self._progress.stop()

    def say(self, text: str) -> None:
        """A line that stays."""
        say(self.console, text)

    def advance(self, epoch: float, now: float) -> None:
        """Move the live line; called after every step, so it does nothing most of the time."""
        if self._begun is None:
            self._begun = (now, epoch)
        if self._progress and now - self._refreshed >= REFRESH:
            self._refreshed = now
            self._progress.values = self._text()
            self._progress.update(self._task, completed=epoch, refresh=True)

    def show(self, record: dict[str, Any], *, evaluated: bool) -> None:
        """Take new values; those of an evaluation stay on the screen as a line."""
        self._values |= {key: value for key, value in record.items() if value is not None}
        now = time.monotonic()
        if evaluated or (not self._progress and now - self._printed > PATIENCE):
            self._printed = now
            left = f"  {self._left(record['epoch'], now)} left" if not self._progress else ""
            self.say(f"{self.title}  epoch {record['epoch']:.2f}/{self.epochs:g}  {self._text()}{left}")

    def _text(self) -> str:
        entries = [(*how, self._values[key]) for key, how in self._shown.items() if key in self._values]
        return "  ".join(f"{label} {form(value)}" for label, form, value in entries)

    def _left(self, epoch: float, now: float) -> str:
        if self._begun is None or epoch <= self._begun[1]:
            return "?"
        return duration((now - self._begun[0]) / (epoch - self._begun[1]) * (self.epochs - epoch))
