"""A file that shows that the runs are still wanted, for processes that share nothing but a file system.

The command writes a new number into it every few seconds. If the number stays the same for long, or the file
is gone or belongs to another command, the run saves itself and stops.
"""

from __future__ import annotations

import secrets
import time
from pathlib import Path

NAME = ".jobs"
PERIOD = 5.0
"""Seconds between two numbers."""
PATIENCE = 120.0
"""Seconds after which a number that stays the same means that the command is gone."""


class Lease:
    """The command's side; `home` is a folder that belongs to these runs alone."""

    def __init__(self, home: Path) -> None:
        self.path = home / NAME
        self.token = secrets.token_hex(8)
        self._count, self._written = 0, 0.0
        home.mkdir(parents=True, exist_ok=True)
        self.renew()

    def renew(self) -> None:
        """Write the next number, if it is time."""
        now = time.monotonic()
        if self._count and now - self._written < PERIOD:
            return
        self._count, self._written = self._count + 1, now
        temporary = self.path.with_name(f"{NAME}.tmp")
        temporary.write_text(f"{self.token} {self._count}\n", encoding="utf-8")
        temporary.replace(self.path)

    def end(self) -> None:
        """Nobody wants the runs any longer."""
        if read(self.path).startswith(self.token):
            self.path.unlink(missing_ok=True)


class Watch:
    """A run's side."""

    def __init__(self, path: Path, token: str) -> None:
        self.path, self.token = path, token
        self._seen, self._when = "", time.monotonic()
        self._looked = self._when

    def wanted(self) -> bool:
        """Whether the command still wants the run."""
        try:
            content = read(self.path)
        except OSError:  # of a network file system, for a moment: patience decides
            content = self._seen or self.token
        now = time.monotonic()
        if not content.startswith(self.token):
            return False
        if content != self._seen or now - self._looked > PERIOD:  # who was stopped has not waited
            self._seen, self._when = content, now
        self._looked = now
        return now - self._when < PATIENCE


def read(path: Path) -> str:
    """What the file holds; nothing if it is gone."""
    try:
        return path.read_text(encoding="utf-8")
    except FileNotFoundError:
        return ""
