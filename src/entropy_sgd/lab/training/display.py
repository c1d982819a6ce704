"""What a run shows while it goes: a live line on a terminal, plain lines elsewhere."""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from typing import Any, Self

from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

from entropy_sgd.lab.recipes import Metric

REFRESH = 0.2
"""Seconds between updates of the live line."""
PATIENCE = 60.0
"""Seconds after which a plain line is printed between evaluations too."""

SHOWN: dict[str, tuple[str, Callable[[float], str]]] = {
    "loss": ("loss", lambda value: f"{value:.4f}"),
    "error": ("validation error", lambda value: f"{value:.2f} %"),
    "perplexity": ("validation perplexity", lambda value: f"{value:.2f}"),
    "nats": ("validation nats", lambda value: f"{value:.4f}"),
    "lr": ("lr", lambda value: f"{value:.3g}"),
    "gamma": ("γ", lambda value: f"{value:.3g}"),
    "angle": ("angle", lambda value: f"{value:.0f}°"),
}


def duration(seconds: float) -> str:
    """Seconds as people say them."""
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return (
        f"{hours} h {minutes:02} min" if hours else f"{minutes} min {rest:02} s" if minutes else f"{rest} s"
    )


class Display:
    """The progress of one run, on `console`."""

    def __init__(self, console: Console, title: str, epochs: float, metric: Metric) -> None:
        self.console, self.title, self.epochs = console, title, epochs
        self._shown = [key for key in SHOWN if key not in ("error", "perplexity", "nats") or key == metric]
        self._values: dict[str, Any] = {}
        self._begun: tuple[float, float] | None = None
        self._refreshed, self._printed = -math.inf, time.monotonic()
        self._progress: Progress | None = None
        if console.is_terminal:
            columns = (
                TextColumn("{task.description}"),
                BarColumn(bar_width=20),
                TextColumn("{task.completed:.2f}/{task.total:g} epochs  {task.fields[values]}"),
                TimeRemainingColumn(),
            )
            self._progress = Progress(*columns, console=console, auto_refresh=False)
            self._task = self._progress.add_task(title, total=epochs, values="")

    def __enter__(self) -> Self:
        if self._progress:
            self._progress.start()
        return self

    def __exit__(self, *_: object) -> None:
        if self._progress:
            self._progress.stop()

    def say(self, text: str) -> None:
        """A line that stays."""
        self.console.print(text, highlight=False, soft_wrap=True)

    def advance(self, epoch: float, now: float) -> None:
        """Move the live line; called after every step, so it does nothing most of the time."""
        if self._begun is None:
            self._begun = (now, epoch)
        if self._progress and now - self._refreshed >= REFRESH:
            self._refreshed = now
            self._progress.update(self._task, completed=epoch, values=self._text())
            self._progress.refresh()

    def show(self, record: dict[str, Any], *, evaluated: bool) -> None:
        """Take new values; those of an evaluation stay on the screen as a line."""
        self._values |= {key: value for key, value in record.items() if value is not None}
        now = time.monotonic()
        if evaluated or (not self._progress and now - self._printed > PATIENCE):
            self._printed = now
            left = f"  {self._left(record['epoch'], now)} left" if not self._progress else ""
            self.say(f"{self.title}  epoch {record['epoch']:.2f}/{self.epochs:g}  {self._text()}{left}")

    def _text(self) -> str:
        parts = [(label, form(self._values[key])) for key, (label, form) in self._entries()]
        return "  ".join(f"{label} {value}" for label, value in parts)

    def _entries(self) -> list[tuple[str, tuple[str, Callable[[float], str]]]]:
        return [(key, SHOWN[key]) for key in self._shown if key in self._values]

    def _left(self, epoch: float, now: float) -> str:
        if self._begun is None or epoch <= self._begun[1]:
            return "?"
        return duration((now - self._begun[0]) / (epoch - self._begun[1]) * (self.epochs - epoch))
