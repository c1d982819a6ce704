"""The right to write a run, or a comparison, into a folder, and the care for what is there already.

A claim is checked first, and nothing is touched. Entering it locks the folder. `begin` sets an old run aside,
into a hidden folder inside, and writes the configuration of the new one. The old run is deleted once the new
one is `established`, has a first checkpoint; if it never is, the old one is put back: at the end of the
claim, or by the next command if the process was killed.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import Any, Self, cast

from entropy_sgd.lab import LabError
from entropy_sgd.lab.runs import lock
from entropy_sgd.lab.runs.records import flatten, mapping, read_json, write_json

CONFIG = "config.json"
EXPERIMENT = "experiment.py"
ASIDE, REMOVED = ".replaced", ".removed"
PASSING = (f"{CONFIG}.tmp", lock.NAME, ASIDE, REMOVED)
"""What a process that was killed may leave in a folder without a run."""

ABSENT = {
    "processes": 1,
    "threads": None,
    "channels_last": False,
    "compile": False,
    "data_fraction": 1.0,
    "label_noise": 0.0,
    "data_seed": 0,
    "anneal": "outer",
    "inner_state": "reset",
    "warmup": False,
}
"""What held in a run whose config.json is older than these settings."""
NOTES = (".paper", ".chosen", ".source.path")
"""Settings that explain and decide nothing: a run is continued though they have changed."""

REPLICAS = "recipe.optimizer.replicas"
"""A run may be continued with another number of them."""
SEEDS = "seeds"
"""A comparison may be continued with more of them."""


def holds_run(path: Path) -> bool:
    """Whether the folder is a run's or comparison's. Many programs have a config.json: it must be ours."""
    return (path / CONFIG).exists() and {"settings", "environment"} <= set(read_json(path / CONFIG))


def differences(there: Mapping[str, Any], here: Mapping[str, Any]) -> list[str]:
    """The settings that decide a run and are not the same, a line for each."""
    before, now = flatten(there), flatten(json.loads(json.dumps(here)))
    for key in now.keys() - before.keys():
        name = key.rpartition(".")[2]
        if name in ABSENT:
            before[key] = ABSENT[name]
    return [
        f"{key}: {before.get(key)} there, {now.get(key)} now"
        for key in now | before
        if before.get(key) != now.get(key)
        and key != REPLICAS
        and not key.endswith(NOTES)
        and not (key == SEEDS and _contains(now.get(key), before.get(key)))
    ]


def _contains(seeds: Any, others: Any) -> bool:
    """Whether the seeds include the others, which a damaged file may have as anything."""
    both = isinstance(seeds, list) and isinstance(others, list)
    return both and all(seed in seeds for seed in cast("list[Any]", others))


class Claim:
    """A claim on `path` for the run, or comparison, that `settings` decide.

    A folder with anything else in it is refused. `resume` takes one with the same configuration, `overwrite`
    replaces what is `ours` in it and nothing else. `established` is whether the new run has something to go
    on from.
    """

    def __init__(
        self,
        path: Path,
        settings: Mapping[str, Any],
        *,
        resume: bool,
        overwrite: bool,
        ours: Callable[[Path], Sequence[str]],
        established: Callable[[Path], bool],
    ) -> None:
        if resume and overwrite:
            raise LabError("--resume and --overwrite cannot be used together")
        self.path, self.settings, self.resume, self.overwrite = path, settings, resume, overwrite
        self._ours, self._established = ours, established
        self._lock: lock.Lock | None = None
        self._begun = self._made = False
        self.notes: list[str] = []
        self.continues = self._check()

    def _check(self) -> bool:
        """Whether there is a run to continue; refuses what cannot be used, and writes nothing.

        But a run that a killed process has left aside is put back: it is the one to speak of.
        """
        path = self.path
        try:
            if path.exists() and self._lock is None:
                lock.refuse_if_held(path)
                self._recover()
            present = {entry.name for entry in path.iterdir()} - set(PASSING) if path.exists() else set[str]()
        except OSError as error:
            raise LabError(f"cannot use {path} as the output folder: {error}") from error
        if not present:
            return False
        if not holds_run(path):
            raise LabError(f"{path} holds other files and no run: choose another folder with --out")
        if self.overwrite:
            return False
        if not self.resume:
            raise LabError(
                f"{path} already holds a run: continue it with --resume, replace it with --overwrite"
            )
        changed = differences(mapping(path / CONFIG, "settings"), self.settings)
        if changed:
            edited = any(line.partition(":")[0].endswith(".source.sha256") for line in changed)
            hint = f"\nThe file has been edited since; the run keeps its own copy, {EXPERIMENT}."
            raise LabError(
                f"{path} holds a run with another configuration:\n"
                + "\n".join(f"  {line}" for line in changed)
                + (hint if edited else "")
            )
        return True

    def __enter__(self) -> Self:
        made = not self.path.exists()
        try:
            self.path.mkdir(parents=True, exist_ok=True)
            self._lock = lock.Lock(self.path)
        except OSError as error:
            raise LabError(f"cannot use {self.path} as the output folder: {error}") from error
        self._made = made
        try:
            self._recover_locked()
            self.continues = self._check()  # another process may have come in between
        except BaseException:
            self._leave()
            raise
        return self

    def begin(self, described: Mapping[str, Any]) -> None:
        """Set aside what is to be replaced and write config.json; from here on the folder is this run's.

        `described` is where the run is made.
        """
        if self.continues:
            before = read_json(self.path / CONFIG)
            there, here = flatten(before["settings"]), flatten(self.settings)
            if any(there.get(key) != here.get(key) for key in (REPLICAS, SEEDS)):
                write_json(self.path / CONFIG, {**before, "settings": self.settings})
            return
        if holds_run(self.path):
            _move(self.path, self.path / ASIDE, _in_order(self._ours(self.path)))
        self._begun = True
        write_json(self.path / CONFIG, {"settings": self.settings, "environment": described})

    @property
    def replaces(self) -> bool:
        """Whether what is in the folder is still the old run."""
        return self.overwrite and not self._begun

    def settle(self) -> None:
        """Delete what was set aside, if the new run is established."""
        if (self.path / ASIDE).exists() and self._established(self.path):
            self._remove()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            if self._begun and not self._established(self.path):
                kept = (self.path / ASIDE).exists()
                self._clear()
                if kept and error is not None:
                    error.add_note(f"The previous run in {self.path} is unchanged.")
            elif self._begun:
                self.settle()
        finally:
            self._leave()

    def _leave(self) -> None:
        if self._lock is not None:
            self._lock.release()
            self._lock = None
        if self._made:
            with suppress(OSError):  # it is not empty: there is a run now
                self.path.rmdir()

    def _clear(self) -> None:
        """Remove the new run, of which nothing can be used, and put back the old one."""
        for name in self._ours(self.path):
            for entry in (self.path / name, self.path / f"{name}.tmp"):
                if entry.is_dir() and not entry.is_symlink():
                    shutil.rmtree(entry)
                else:
                    entry.unlink(missing_ok=True)
        self._put_back()

    def _remove(self) -> None:
        """Delete what was set aside; renamed before, so that half of it is never taken for a run."""
        shutil.rmtree(self.path / REMOVED, ignore_errors=True)
        (self.path / ASIDE).rename(self.path / REMOVED)
        shutil.rmtree(self.path / REMOVED, ignore_errors=True)

    def _put_back(self) -> None:
        aside = self.path / ASIDE
        if aside.exists():
            # config.json first: without it `aside` is known to be half moved, whichever way
            names = sorted((entry.name for entry in aside.iterdir()), key=lambda name: name != CONFIG)
            _move(aside, self.path, names)
            aside.rmdir()

    def _recover(self) -> None:
        """What a process that was killed after `begin` has left: the new run or the old one, whole."""
        if not (self.path / ASIDE).exists():
            return
        self._lock = lock.Lock(self.path)
        try:
            self._recover_locked()
        finally:
            self._lock.release()
            self._lock = None

    def _recover_locked(self) -> None:
        if not (self.path / ASIDE).exists():
            return
        if not (self.path / ASIDE / CONFIG).exists():
            self._put_back()
        elif self._established(self.path):
            self._remove()
        else:
            self._clear()
            self.notes.append(
                f"the run in {self.path} was restored: the one to replace it ended without a checkpoint"
            )


def _in_order(names: Sequence[str]) -> list[str]:
    """config.json last: until it is moved, nothing new has been written."""
    return sorted(names, key=lambda name: name == CONFIG)


def _move(source: Path, target: Path, names: Sequence[str]) -> None:
    target.mkdir(exist_ok=True)
    for name in names:
        if (source / name).exists():
            (source / name).replace(target / name)
