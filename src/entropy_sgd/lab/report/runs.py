"""Reading runs back from their folders."""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass, replace
from pathlib import Path

from entropy_sgd.lab import LabError
from entropy_sgd.lab.training.folder import CONFIG, METRICS, SUMMARY, Record, flatten, read_json


@dataclass(frozen=True)
class Run:
    """What a run's folder says."""

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
