"""Stopping: Ctrl-C and SIGTERM are noted and take effect between two steps."""

from __future__ import annotations

import signal
import threading
from types import FrameType
from typing import Self


class StopSignals:
    """While open, the first SIGINT or SIGTERM is kept in `received`; a second one acts as usual, at once."""

    def __init__(self) -> None:
        self.received: int | None = None
        self._previous: dict[int, object] = {}

    def _note(self, signum: int, frame: FrameType | None) -> None:
        self.received = signum
        self._restore()

    def _restore(self) -> None:
        for signum, handler in self._previous.items():
            signal.signal(signum, handler)  # pyright: ignore[reportArgumentType]  # what signal.signal itself returned
        self._previous.clear()

    def __enter__(self) -> Self:
        if threading.current_thread() is threading.main_thread():  # Python allows handlers there only
            for signum in (signal.SIGINT, signal.SIGTERM):
                self._previous[signum] = signal.signal(signum, self._note)
        return self

    def __exit__(self, *_: object) -> None:
        self._restore()
