"""Reading runs back from their folders."""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from entropy_sgd.lab import LabError, methods
from entropy_sgd.lab.recipes import Drops, Recipe, Source
from entropy_sgd.lab.runs.folder import CONFIG, METRICS, SUMMARY
from entropy_sgd.lab.runs.records import Record, flatten, read_json


@dataclass(frozen=True)
class Run:
    """The contents of a run's folder."""

    path: Path
    settings: Record
    environment: Record
    records: list[Record]
    summary: Record | None
    """None while the run is unfinished."""
    label: str = ""
    """Its recipe, and what tells it from runs of the same recipe besides the seed."""

    @property
    def recipe(self) -> str:
        """The name of its recipe."""
        return self.settings["recipe"]["name"]

    @property
    def metric(self) -> str:
        """How it is judged."""
        return self.settings["recipe"]["metric"]

    def series(self, key: str) -> tuple[list[float], list[float]]:
        """Effective epochs and values of one measurement, where it was taken."""
        found = [(record["epoch"], record[key]) for record in self.records if record.get(key) is not None]
        return [epoch for epoch, _ in found], [value for _, value in found]


def read(path: Path) -> Run:
    """One run."""
    config = read_json(path / CONFIG)
    if "recipe" not in config.get("settings", {}):
        raise LabError(f"{path / CONFIG} is not the configuration of a run")
    records: list[Record] = []
    if (path / METRICS).exists():
        # a run being written, or killed, may end in half a line
        lines = (path / METRICS).read_text(encoding="utf-8").split("\n")[:-1]
        try:
            records = [json.loads(line) for line in lines]
        except ValueError as error:
            raise LabError(f"cannot read {path / METRICS}: {error}") from error
    summary = read_json(path / SUMMARY) if (path / SUMMARY).exists() else None
    return Run(path, config["settings"], config["environment"], records, summary)


def collect(paths: Iterable[Path]) -> list[Run]:
    """The runs in these folders, each the folder of a run or of a comparison, in order and labelled."""
    runs: list[Run] = []
    for path in paths:
        config = read_json(path / CONFIG)
        if "recipes" in config.get("settings", {}):
            inside = [read(entry.parent) for entry in sorted(path.glob(f"*/{CONFIG}"))]
            order = list(config["settings"]["recipes"])
            runs += sorted(inside, key=lambda run: (order.index(run.recipe), run.settings["seed"]))
        else:
            runs.append(read(path))
    if not runs:
        raise LabError(f"no run in {', '.join(map(str, paths))}")
    labelled: list[Run] = []
    for run in runs:
        mine = flatten(run.settings)
        others = [flatten(other.settings) for other in runs if other.recipe == run.recipe]
        different = [
            key for key in mine if key != "seed" and any(other.get(key) != mine[key] for other in others)
        ]
        label = ", ".join([run.recipe, *(f"{key.removeprefix('recipe.')} {mine[key]}" for key in different)])
        labelled.append(replace(run, label=label))
    return labelled


def require_finished(run: Run) -> Record:
    """The summary of a finished run; for any other, an error with what to do."""
    if run.summary is None:
        raise LabError(
            f"{run.path} is not finished: continue it with "
            f"entropy-sgd train {run.recipe} --resume --out {run.path} and the options it was started with"
        )
    if run.summary["status"] != "finished":
        raise LabError(f"{run.path} has {run.summary['status']}: there are no outer weights to measure at")
    return run.summary


def read_recipe(run: Run) -> Recipe:
    """The recipe that the run's config.json holds."""
    fields: Record = dict(run.settings["recipe"])
    method = methods.get(run.recipe.rpartition("/")[2])
    source = fields.pop("source", None)
    try:
        optimizer = method.options(**_tuples(fields.pop("optimizer")))
        drops = Drops(**_tuples(fields.pop("drops")))
        if source is not None:
            fields["source"] = Source(**source)
        return Recipe(**fields, optimizer=optimizer, drops=drops)
    except (KeyError, TypeError) as error:
        raise LabError(f"{run.path}: this version does not understand the recipe there: {error}") from error


def _tuples(fields: dict[str, Any]) -> dict[str, Any]:
    """JSON has lists where dataclasses have tuples."""
    return {key: tuple(value) if isinstance(value, list) else value for key, value in fields.items()}  # pyright: ignore[reportUnknownArgumentType, reportUnknownVariableType]
