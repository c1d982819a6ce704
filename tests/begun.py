"""Runs that have just begun, as a process that is killed leaves them."""

from __future__ import annotations

from pathlib import Path

from entropy_sgd.lab.runs.folder import RunFolder, Settings


def begun(path: Path, settings: Settings, **options) -> RunFolder:
    """The folder with its config.json and no checkpoint; the lock is gone, as the process is."""
    folder = RunFolder(path, settings, **options)
    claim = folder._claim.__enter__()
    folder.begin()
    claim._leave()
    return folder
