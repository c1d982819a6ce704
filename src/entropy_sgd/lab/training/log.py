"""The measurements of a run as they come: metrics.jsonl and TensorBoard."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from entropy_sgd.lab.runs.folder import MetricsLog
from entropy_sgd.lab.runs.records import Record


class Log:
    """Both, opened at step `step` of a run whose metrics.jsonl had `size` bytes at that time."""

    def __init__(self, folder: Path, size: int, step: int) -> None:
        from torch.utils.tensorboard import SummaryWriter  # takes a second to import

        self._lines = MetricsLog(folder, size)
        # what earlier writers in the folder wrote of later steps is hidden
        self._board: Any = SummaryWriter(str(folder / "tensorboard"), purge_step=step + 1)

    def write(self, record: Record) -> None:
        """Add a line, and a point to each curve."""
        self._lines.write(record)
        for key, value in record.items():
            if value is not None and key != "step":
                self._board.add_scalar(key, value, record["step"])

    def sync(self) -> int:
        """Put all lines on the disk and return the length of metrics.jsonl."""
        return self._lines.sync()

    def close(self) -> None:
        """Close both."""
        self._lines.close()
        self._board.close()
