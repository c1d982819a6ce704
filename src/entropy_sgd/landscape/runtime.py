"""What long measurements share: a random stream of their own, a progress line, and the memory limit."""

from __future__ import annotations

import os
import sys
import time
from pathlib import Path

import torch

from entropy_sgd import arguments

QUIET = 10.0  # seconds before a measurement reports its progress


def generator(seed: int) -> torch.Generator:
    """A generator for `seed` whose stream differs from that of `torch.manual_seed(seed)`.

    Data and weights are often drawn after `torch.manual_seed` with the same small number, and probes that
    equal the data are not random: that once put a log-determinant twenty standard errors off.
    """
    arguments.seed("seed", seed)
    return torch.Generator().manual_seed((int(seed) * 0x9E3779B97F4A7C15 + 0x632BE59BD9B4E019) % 2**63)


class Progress:
    """One line on standard error: the share done, the time elapsed and the time left.

    A terminal shows a single line that is rewritten; a log file gets a new line every half minute.
    """

    def __init__(self, label: str, shown: bool):
        self._label, self.shown = label, shown
        self._terminal = sys.stderr.isatty()
        self._begin = time.monotonic()
        self._first: tuple[float, float] | None = None  # (time, fraction) of the first call
        self._last = self._begin

    def at(self, fraction: float) -> None:
        """Report that `fraction` of the task is done."""
        now = time.monotonic()
        if self._first is None:
            self._first = now, fraction
            return
        pause = 0.5 if self._terminal else 30.0
        if not self.shown or now - self._begin < QUIET or (now - self._last < pause and fraction < 1.0):
            return
        then, before = self._first  # a resumed task starts above zero
        left = (1.0 - fraction) * (now - then) / (fraction - before)
        line = f"{self._label}: {fraction:6.1%}, {duration(now - self._begin)} elapsed, {duration(left)} left"
        end = "\n" if fraction >= 1.0 or not self._terminal else ""
        print(f"\r{line:<70}" if self._terminal else line, end=end, file=sys.stderr, flush=True)
        self._last = now

    def say(self, message: str) -> None:
        """Print `message` on a line of its own."""
        if self.shown:
            print(message, file=sys.stderr, flush=True)


def duration(seconds: float) -> str:
    """Seconds as h:mm:ss."""
    whole = round(seconds)
    return f"{whole // 3600}:{whole // 60 % 60:02d}:{whole % 60:02d}"


def available_memory() -> int:
    """Bytes that can be allocated without swapping: the machine's, or a control group's if that is less."""
    try:
        lines = Path("/proc/meminfo").read_text().splitlines()
        free = next(int(line.split()[1]) * 1024 for line in lines if line.startswith("MemAvailable:"))
    except (OSError, StopIteration):  # not Linux: fall back to all physical memory
        free = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    group = Path("/sys/fs/cgroup")
    for limit, used in (
        ("memory.max", "memory.current"),
        ("memory/memory.limit_in_bytes", "memory/memory.usage_in_bytes"),
    ):
        try:
            free = min(free, int((group / limit).read_text()) - int((group / used).read_text()))
        except (OSError, ValueError):  # no such file, or "max"
            continue
    return free


def gibibytes(size: float) -> str:
    """A size in bytes for a message."""
    return f"{size / 2**30:.2f} GiB"
