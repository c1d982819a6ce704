"""The folder of a run and what it holds.

config.json     the recipe, the seed, versions and commit: what decides the run, and where it was made
experiment.py   a copy of the user's file, if the experiment is the user's own
metrics.jsonl   one line per measurement
tensorboard/    the same, for TensorBoard
checkpoint.pt   where the run is; checkpoint.previous.pt is the one before it
trajectory/     weights along the run, if they were asked for
weights.pt      at the end: the weights that are judged and their batch statistics, for `load_state_dict`
summary.json    the outcome, once there is one
"""

from __future__ import annotations

import json
import os
import shutil
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Self, TextIO

from entropy_sgd.lab import LabError
from entropy_sgd.lab.recipes import Recipe
from entropy_sgd.lab.runs import environment
from entropy_sgd.lab.runs.claim import ASIDE, CONFIG, EXPERIMENT, Claim, holds_run
from entropy_sgd.lab.runs.records import Record, Shape, mapping, read_json, require, write_json

__all__ = ["CONFIG", "EXPERIMENT", "METRICS", "SUMMARY", "WEIGHTS", "MetricsLog", "RunFolder", "Settings"]
__all__ += ["TRAJECTORY", "holds_run", "read_summary"]

METRICS, SUMMARY, WEIGHTS, TRAJECTORY = "metrics.jsonl", "summary.json", "weights.pt", "trajectory"
CHECKPOINTS = ("checkpoint.pt", "checkpoint.previous.pt")
FINISHED: Shape = {
    "final": bool,
    "metric": str,
    "validation": (dict, type(None)),
    "test": (dict, type(None)),
    "weights_sha256": str,
    "epochs": float,
    "seconds": float,
}
"""What the summary of a finished run has, and is read again."""
OURS = (METRICS, SUMMARY, WEIGHTS, EXPERIMENT, *CHECKPOINTS, "tensorboard", TRAJECTORY, CONFIG)


@dataclass(frozen=True)
class Settings:
    """What decides the bits of a run."""

    recipe: Recipe
    seed: int = 0
    final: bool = False
    """Train on all the training data and read the test set once, at the end."""
    processes: int = 1
    """How many train together, each on its part of a batch."""

    def __post_init__(self) -> None:
        if not 0 <= self.seed < 1 << 63:
            raise LabError(f"seed must be in [0, 2^63), got {self.seed}")


def established(path: Path) -> bool:
    """Whether the run there has something to go on from; a diverged one is a result if it replaces none."""
    if any((path / name).exists() for name in CHECKPOINTS):
        return True
    return (path / SUMMARY).exists() and not (path / ASIDE).exists()


class RunFolder:
    """One run's folder. Construction checks that it can be used and writes nothing.

    Inside `with`, which whoever trains enters, it is locked; `begin` makes it the run's.
    """

    def __init__(
        self, path: Path, settings: Settings, *, resume: bool = False, overwrite: bool = False
    ) -> None:
        self.path, self._settings = path, settings
        self._claim = Claim(
            path,
            asdict(settings),
            resume=resume,
            overwrite=overwrite,
            ours=_ours,
            established=established,
        )
        self._described = environment.describe()
        self._described["threads"] = settings.recipe.threads or self._described["threads"]

    @property
    def resumed(self) -> bool:
        """Whether a run is continued."""
        return self._claim.continues

    @property
    def notes(self) -> list[str]:
        """What the user should know of the folder."""
        notes = [*self._claim.notes]
        if self.resumed:
            before, here = mapping(self.path / CONFIG, "environment"), self._described
            notes += [
                f"{key} is {here[key]} now and was {before.get(key)} when the run began: bits may differ"
                for key in environment.DECIDES_BITS
                if before.get(key) != here[key]
            ]
        return notes

    def __enter__(self) -> Self:
        self._claim.__enter__()
        return self

    def __exit__(self, *what: Any) -> None:
        self._claim.__exit__(*what)

    def begin(self) -> None:
        """Set an old run aside and write the configuration of the new one; a resumed run has it already."""
        self._claim.begin(self._described)
        source = self._settings.recipe.source
        if source is not None and not self.resumed:
            shutil.copyfile(source.path, self.path / EXPERIMENT)

    def saved(self) -> None:
        """There is a checkpoint: what was set aside is no longer needed."""
        self._claim.settle()

    @property
    def summary(self) -> Record | None:
        """The outcome, if the run has come to its end; not that of a run which is to be replaced."""
        return None if self._claim.replaces else read_summary(self.path)

    def write_summary(self, summary: Record) -> None:
        """Record the outcome."""
        write_json(self.path / SUMMARY, summary)


def _ours(path: Path) -> tuple[str, ...]:
    return OURS


def read_summary(path: Path) -> Record | None:
    """The outcome of the run in a folder, known to be whole; None while it has none."""
    file = path / SUMMARY
    if not file.exists():
        return None
    summary = read_json(file)
    check_summary(file, summary)
    return summary


def check_summary(file: Path, summary: Record) -> None:
    """Refuse a summary that is not whole; `file` is where it was read."""
    require(file, summary, {"status": str, "recipe": str, "seed": int})
    if summary["status"] == "finished":
        require(file, summary, FINISHED)
        for part in ("validation", "test"):
            if summary[part] is not None:
                require(file, summary, {part: {"loss": float, summary["metric"]: float}})
        if summary["test" if summary["final"] else "validation"] is None:
            raise LabError(f"{file} has no result: it is damaged")
    elif summary["status"] == "diverged":
        require(file, summary, {"reason": str})
    else:
        raise LabError(f"{file} must have finished or diverged as status, got {summary['status']!r}")


class MetricsLog:
    """metrics.jsonl, cut back on opening to what the checkpoint knew of."""

    def __init__(self, folder: Path, size: int) -> None:
        path = folder / METRICS
        if path.exists() and not path.is_file():
            raise LabError(f"{path} is not a regular file: use --overwrite to train again")
        path.touch()
        if path.stat().st_size < size:
            raise LabError(
                f"{path} is shorter than when the checkpoint was written: use --overwrite to train again"
            )
        os.truncate(path, size)
        self._file: TextIO = path.open("a", encoding="utf-8")

    def write(self, record: Record) -> None:
        """Append one line."""
        self._file.write(json.dumps(record, allow_nan=False) + "\n")
        self._file.flush()

    def sync(self) -> int:
        """Put all lines on the disk and return the length of the file."""
        self._file.flush()
        os.fsync(self._file.fileno())
        return os.fstat(self._file.fileno()).st_size

    def close(self) -> None:
        """Close the file; lines that no longer fit the disk are not in the checkpoint either."""
        with suppress(OSError):
            self._file.close()
