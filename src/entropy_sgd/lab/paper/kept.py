"""What is kept of a run: its settings, summary and curves in one small JSON file of results/paper."""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, cast

from entropy_sgd.lab import LabError
from entropy_sgd.lab.paper.entry import Entry, Row
from entropy_sgd.lab.paper.rows import ROWS, entries
from entropy_sgd.lab.recipes import Recipe
from entropy_sgd.lab.runs.folder import check_summary
from entropy_sgd.lab.runs.reading import Run, read_recipe
from entropy_sgd.lab.runs.records import Record, flatten, read_json, write_whole

POINTS = 100
"""Of a training curve."""
GUESSING = 0.95 * math.log(10)
"""Loss of a guess among ten classes, which MNIST and CIFAR-10 have; with 5 % for a network that has collapsed
but for a few images."""
INDIFFERENT = ("paper", "chosen", "threads", "channels_last", "compile", "log_every", "evaluate_every")
"""Fields of a recipe that explain it, or decide its speed and what is written down, not its result."""


@dataclass(frozen=True)
class Kept:
    """A run that has ended."""

    path: Path
    entry: Entry
    seed: int
    summary: Record
    evaluations: list[Record]
    training_loss: tuple[list[float], list[float]]
    """Effective epochs and losses."""

    @property
    def finished(self) -> bool:
        """Whether it came to its end and learned something there; otherwise it diverged."""
        return self.summary["status"] == "finished" and not self._guesses

    @property
    def _guesses(self) -> bool:
        """Whether the network ended hardly better than one that gives every image the same probabilities."""
        if self.summary["metric"] != "error":
            return False
        judged: Record = self.summary.get("test") or self.summary.get("validation") or {}
        return float(judged.get("loss", 0.0)) >= GUESSING

    def result(self, part: str) -> float | None:
        """How the run is judged on `validation` or `test` data; None if it did not come to that."""
        judged = self.summary.get(part) if self.finished else None
        return None if judged is None else float(judged[self.summary["metric"]])

    def series(self, key: str) -> tuple[list[float], list[float]]:
        """Effective epochs and values of one measurement of the evaluations."""
        found = [record for record in self.evaluations if record.get(key) is not None]
        return [record["epoch"] for record in found], [record[key] for record in found]


def differences(run: Run, entry: Entry) -> dict[str, tuple[object, object]]:
    """What tells the run from those of the entry but the seed: there, and in the entry."""
    there = _decisive(read_recipe(run)) | {"final": run.settings["final"]}
    here = _decisive(entry.recipe) | {"final": entry.final}
    return {key: (there.get(key), here.get(key)) for key in here | there if there.get(key) != here.get(key)}


def _decisive(recipe: Recipe) -> Record:
    described = json.loads(json.dumps(asdict(recipe)))
    return flatten({key: value for key, value in described.items() if key not in INDIFFERENT})


def belongs(run: Run, rows: tuple[Row, ...] = ROWS) -> Entry:
    """The entry that the run is one of."""
    known = list(entries(rows))
    for entry in known:
        if not differences(run, entry):
            return entry
    nearest = min(known, key=lambda entry: len(differences(run, entry)))
    changes = "\n".join(
        f"  {key}: {there} there, {here} here" for key, (there, here) in differences(run, nearest).items()
    )
    raise LabError(
        f"{run.path} is not a run of the paper's rows: it differs from {nearest.key} in\n{changes}"
    )


def file_name(entry: Entry, seed: int) -> str:
    """The file that a run is kept in."""
    return f"{entry.key}-seed{seed}.json"


def keep(run: Run, folder: Path, rows: tuple[Row, ...] = ROWS, *, overwrite: bool = False) -> Path:
    """Write what is kept of a run that has ended, and return the file."""
    if run.summary is None:
        raise LabError(f"{run.path} has not ended: there is no result to keep yet")
    entry = belongs(run, rows)
    path = folder / file_name(entry, run.settings["seed"])
    content = condensed(run)
    if path.exists() and not overwrite:
        before = read_json(path).get("summary")
        if before != content["summary"]:
            raise LabError(f"{path} holds another run of {entry.key}: use --overwrite to replace it")
        return path
    folder.mkdir(parents=True, exist_ok=True)
    write_whole(path, _compact(content).encode())
    return path


def condensed(run: Run) -> Record:
    """Settings, environment, summary, evaluations, and at most `POINTS` points of the training loss."""
    environment = dict(run.environment)
    # where program, data and run were on that machine is of no use elsewhere
    environment["command"] = [
        Path(word).name if i == 0 or Path(word).is_absolute() else word
        for i, word in enumerate(environment.get("command", []))
    ]
    step = run.settings["recipe"]["epochs"] / POINTS
    # the last line in each stretch of that length
    points = {math.ceil(record["epoch"] / step - 1e-9): record for record in run.records}
    return {
        "settings": run.settings,
        "environment": environment,
        "summary": run.summary,
        "evaluations": [record for record in run.records if "validation_loss" in record],
        "training_loss": {
            "epoch": [round(record["epoch"], 4) for _, record in sorted(points.items())],
            "loss": [round(record["loss"], 6) for _, record in sorted(points.items())],
        },
    }


def _compact(content: Record) -> str:
    """JSON with a line for each part of a part, so that hundreds of numbers do not take as many lines."""
    parts: list[str] = []
    for key, value in content.items():
        opening, closing = "{}" if isinstance(value, dict) else "[]"
        inside = (
            cast("Record", value).items() if isinstance(value, dict) else ((None, part) for part in value)
        )
        lines = (
            "  " + ("" if name is None else f"{json.dumps(name)}: ") + json.dumps(part, ensure_ascii=False)
            for name, part in inside
        )
        parts.append(f" {json.dumps(key)}: {opening}\n" + ",\n".join(lines) + f"\n {closing}")
    return "{\n" + ",\n".join(parts) + "\n}\n"


def read(folder: Path, rows: tuple[Row, ...] = ROWS) -> list[Kept]:
    """All runs kept in a folder; none if there is no folder."""
    found: dict[tuple[str, int], Kept] = {}
    for path in sorted(folder.glob("*.json")):
        kept = _read(path, rows)
        place = kept.entry.key, kept.seed
        if place in found:
            raise LabError(f"{found[place].path} and {path} hold the same run: delete one of them")
        found[place] = kept
    return list(found.values())


def _read(path: Path, rows: tuple[Row, ...]) -> Kept:
    content = read_json(path)
    try:
        settings, summary = content["settings"], content["summary"]
        curve: Any = content["training_loss"]
        entry = belongs(Run(path, settings, content["environment"], [], summary), rows)
        if isinstance(curve, list):  # the first files have the loss at the end of each epoch
            losses = cast("list[float]", curve)
            curve = {"epoch": [float(epoch) for epoch in range(1, len(losses) + 1)], "loss": losses}
        check_summary(path, summary)
        points = _numbers(curve["epoch"]), _numbers(curve["loss"])
        if len(points[0]) != len(points[1]):
            raise ValueError("epochs and losses of different number")
        evaluations = [
            dict(zip(record, _numbers(record.values()), strict=True)) for record in content["evaluations"]
        ]
        return Kept(path, entry, settings["seed"], summary, evaluations, points)
    except (KeyError, TypeError, AttributeError, ValueError) as error:
        raise LabError(f"{path} is not what `entropy-sgd paper keep` writes: {error!r}") from error


def _numbers(values: Iterable[Any]) -> list[Any]:
    """The values, known to be numbers, or None where there is none."""
    found = list(values)
    for value in found:
        if value is not None and (isinstance(value, bool) or not isinstance(value, int | float)):
            raise TypeError(f"{value!r} is not a number")
    return found


def of(kept: Sequence[Kept], entry: Entry) -> list[Kept]:
    """The runs of an entry that are among its seeds, in their order."""
    mine = {run.seed: run for run in kept if run.entry.key == entry.key and run.seed in entry.seeds}
    return [mine[seed] for seed in sorted(mine)]
