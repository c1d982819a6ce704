"""The folder of a run: what it holds, and who may write into it.

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
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, TextIO

from entropy_sgd.lab import LabError
from entropy_sgd.lab.recipes import Recipe
from entropy_sgd.lab.runs import environment
from entropy_sgd.lab.runs.records import Record, flatten, read_json, write_json

CONFIG, METRICS, SUMMARY, WEIGHTS = "config.json", "metrics.jsonl", "summary.json", "weights.pt"
EXPERIMENT, TRAJECTORY = "experiment.py", "trajectory"
CHECKPOINTS = ("checkpoint.pt", "checkpoint.previous.pt")
OURS = (
    METRICS,
    SUMMARY,
    WEIGHTS,
    EXPERIMENT,
    *CHECKPOINTS,
    "tensorboard",
    TRAJECTORY,
    CONFIG,
)  # the last to go makes it a run's folder

ABSENT = {
    "processes": 1,
    "threads": None,
    "channels_last": False,
    "compile": False,
    "data_fraction": 1.0,
    "label_noise": 0.0,
    "data_seed": 0,
}
"""What held in a run whose config.json is older than these settings."""
NOTES = (".paper", ".chosen", ".source.path")
"""Settings that explain and decide nothing: a run is continued though they have changed."""

REPLICAS = "recipe.optimizer.replicas"
"""The setting with which a run may be continued though it has changed."""


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


def holds_run(path: Path) -> bool:
    """Whether the folder is a run's or comparison's. Many programs have a config.json: it must be ours."""
    return (path / CONFIG).exists() and {"settings", "environment"} <= set(read_json(path / CONFIG))


def prepare(
    path: Path,
    settings: Mapping[str, Any],
    *,
    resume: bool,
    overwrite: bool,
    ours: tuple[str, ...],
    free: str = "",
) -> bool:
    """Make `path` ready for the run (or comparison) that `settings` decide; True if it continues one there.

    A folder with anything else in it is refused. `resume` takes one with the same configuration, in which
    only the setting `free` may differ; `overwrite` deletes `ours` from it and nothing else.
    """
    if resume and overwrite:
        raise LabError("--resume and --overwrite exclude each other")
    try:
        path.mkdir(parents=True, exist_ok=True)
        present = [entry for entry in path.iterdir() if entry.name != f"{CONFIG}.tmp"]
    except OSError as error:
        raise LabError(f"cannot use {path} as the output folder: {error}") from error
    if not present:
        return False
    if not holds_run(path):
        raise LabError(f"{path} holds other files and no run: choose another folder with --out")
    if overwrite:
        for entry in (path / f"{name}{ending}" for name in ours for ending in ("", ".tmp")):
            if entry.is_dir():
                shutil.rmtree(entry)
            else:
                entry.unlink(missing_ok=True)
        return False
    if not resume:
        raise LabError(f"{path} already holds a run: continue it with --resume, replace it with --overwrite")
    there, here = read_json(path / CONFIG)["settings"], json.loads(json.dumps(settings))
    before, now = flatten(there), flatten(here)
    for key in now.keys() - before.keys():
        name = key.rpartition(".")[2]
        if name in ABSENT:
            before[key] = ABSENT[name]
    settled = (key for key in now | before if key != free and not key.endswith(NOTES))
    different = [key for key in settled if before.get(key) != now.get(key)]
    if different:
        changes = "\n".join(f"  {key}: {before.get(key)} there, {now.get(key)} now" for key in different)
        edited = any(key.endswith(".source.sha256") for key in different)
        hint = (
            f"\nThe file has been edited since; the run keeps its own copy, {EXPERIMENT}." if edited else ""
        )
        raise LabError(f"{path} holds a run with another configuration:\n{changes}{hint}")
    return True


class RunFolder:
    """One run's folder, open for writing."""

    def __init__(
        self, path: Path, settings: Settings, *, resume: bool = False, overwrite: bool = False
    ) -> None:
        self.path = path
        decided = asdict(settings)
        self.resumed = prepare(path, decided, resume=resume, overwrite=overwrite, ours=OURS, free=REPLICAS)
        self.notes: list[str] = []
        here = environment.describe()
        here["threads"] = settings.recipe.threads or here["threads"]
        if self.resumed:
            before = read_json(path / CONFIG)["environment"]
            self.notes += [
                f"{key} is {here[key]} now and was {before.get(key)} when the run began: bits may differ"
                for key in environment.DECIDES_BITS
                if before.get(key) != here[key]
            ]
            if flatten(read_json(path / CONFIG)["settings"]).get(REPLICAS) != flatten(decided).get(REPLICAS):
                write_json(path / CONFIG, {"settings": decided, "environment": before})
        else:
            if settings.recipe.source is not None:
                shutil.copyfile(settings.recipe.source.path, path / EXPERIMENT)
            write_json(path / CONFIG, {"settings": decided, "environment": here})

    @property
    def summary(self) -> Record | None:
        """The outcome, if the run has come to its end."""
        return read_json(self.path / SUMMARY) if (self.path / SUMMARY).exists() else None

    def write_summary(self, summary: Record) -> None:
        """Record the outcome."""
        write_json(self.path / SUMMARY, summary)


class MetricsLog:
    """metrics.jsonl, cut back on opening to what the checkpoint knew of."""

    def __init__(self, folder: Path, size: int) -> None:
        path = folder / METRICS
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
        """Close the file."""
        self._file.close()
