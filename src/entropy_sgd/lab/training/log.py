"""The measurements of a run as they come: metrics.jsonl and TensorBoard."""

from __future__ import annotations

import threading
from contextlib import suppress
from pathlib import Path
from typing import Any

from entropy_sgd.lab.runs.folder import MetricsLog
from entropy_sgd.lab.runs.records import Record


class Log:
    """Both, opened at step `step` of a run whose metrics.jsonl had `size` bytes at that time.

    A full disk ends the curves of TensorBoard, which are for convenience, without a word: metrics.jsonl and
    the checkpoints, which must be kept, are errors of their own.
    """

    def __init__(self, folder: Path, size: int, step: int) -> None:
        from torch.utils.tensorboard import SummaryWriter  # takes a second to import

        self._lines = MetricsLog(folder, size)
        self._hook, threading.excepthook = threading.excepthook, self._failed
        self._board: Any = None
        with suppress(OSError):
            # what earlier writers in the folder wrote of later steps is hidden
            self._board = SummaryWriter(str(folder / "tensorboard"), purge_step=step + 1)

    def _failed(self, failure: threading.ExceptHookArgs) -> None:
        """TensorBoard writes in a thread, whose traceback is not for the user; `write` meets its error."""
        board = type(failure.thread).__module__.startswith("tensorboard.")
        if not (board and isinstance(failure.exc_value, OSError)):
            self._hook(failure)

    def write(self, record: Record) -> None:
        """Add a line, and a point to each curve."""
        self._lines.write(record)
        try:
            for key, value in record.items():
                if self._board is not None and value is not None and key != "step":
                    self._board.add_scalar(key, value, record["step"])
        except OSError:
            self._close_board()

    def sync(self) -> int:
        """Put all lines on the disk and return the length of metrics.jsonl."""
        return self._lines.sync()

    def close(self) -> None:
        """Close both."""
        try:
            self._lines.close()
        finally:
            self._close_board()
            threading.excepthook = self._hook

    def _close_board(self) -> None:
        with suppress(OSError):
            if self._board is not None:
                self._board.close()
        self._board = None
