"""Progress of a long measurement on standard error, without a dependency."""

from __future__ import annotations

import sys
import time

QUIET = 10.0  # seconds that a measurement may take before it speaks


class Progress:
    """One line that says how far a task is and how long the rest may take.

    On a terminal the line is rewritten; elsewhere (a log file) a new one is written every half minute.
    """

    def __init__(self, label: str, shown: bool):
        self._label, self.shown = label, shown
        self._terminal = sys.stderr.isatty()
        self._begin = time.monotonic()
        self._first: tuple[float, float] | None = None  # (time, fraction) of the first call
        self._last = self._begin

    def at(self, fraction: float) -> None:
        """Say that ``fraction`` of the task is done."""
        now = time.monotonic()
        if self._first is None:
            self._first = now, fraction
            return
        pause = 0.5 if self._terminal else 30.0
        if not self.shown or now - self._begin < QUIET or (now - self._last < pause and fraction < 1.0):
            return
        then, before = self._first  # a resumed task starts above zero
        left = (1.0 - fraction) * (now - then) / (fraction - before)
        line = f"{self._label}: {fraction:6.1%}, {duration(now - self._begin)} gone, {duration(left)} left"
        end = "\n" if fraction >= 1.0 or not self._terminal else ""
        print(f"\r{line:<70}" if self._terminal else line, end=end, file=sys.stderr, flush=True)
        self._last = now

    def say(self, message: str) -> None:
        """A line of its own."""
        if self.shown:
            print(message, file=sys.stderr, flush=True)


def duration(seconds: float) -> str:
    """Seconds as h:mm:ss."""
    whole = round(seconds)
    return f"{whole // 3600}:{whole // 60 % 60:02d}:{whole % 60:02d}"
