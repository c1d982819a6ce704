"""Reading runs back from their folders."""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, cast

from entropy_sgd.lab import LabError, methods
from entropy_sgd.lab.nearby import hint
from entropy_sgd.lab.recipes import Drops, Recipe, Source
from entropy_sgd.lab.runs.claim import ASIDE
from entropy_sgd.lab.runs.folder import CONFIG, METRICS, SUMMARY, read_summary
from entropy_sgd.lab.runs.records import Record, Shape, flatten, number, read_json, require

MOST = 5
"""Folders that a message names."""
SHAPE: Shape = {
    "settings": {
        "recipe": {"name": str, "metric": str, "network": str, "data": str, "optimizer": dict, "drops": dict},
        "seed": int,
        "final": bool,
    },
    "environment": dict,
}
"""What the configuration of a run has, and is read again."""


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
    config = _config(path)
    if "recipe" not in config["settings"]:
        raise LabError(f"{path / CONFIG} is not the configuration of a run")
    require(path / CONFIG, config, SHAPE)
    settings, summary = config["settings"], read_summary(path)
    if summary is not None and (summary["recipe"], summary["seed"]) != (
        settings["recipe"]["name"],
        settings["seed"],
    ):
        raise LabError(
            f"{path / SUMMARY} is from another run, {summary['recipe']} with seed {summary['seed']}, "
            f"not {settings['recipe']['name']} with seed {settings['seed']}"
        )
    return Run(path, settings, config["environment"], _records(path / METRICS), summary)


def _config(path: Path) -> Record:
    if not (path / CONFIG).exists() and (path / ASIDE / CONFIG).exists():
        raise LabError(
            f"{path} holds a run that was set aside to be replaced by a command that was then killed: "
            "repeat that command with --resume or --overwrite, or move the files of "
            f"{path / ASIDE} back"
        )
    if not path.exists():
        raise LabError(f"{path} is not the folder of a run: it does not exist{hint(path)}")
    if not path.is_dir():
        raise LabError(f"{path} is not the folder of a run: it is a file")
    if not (path / CONFIG).exists() and (
        inside := sorted(entry.parent for entry in path.glob(f"*/{CONFIG}"))
    ):
        more = " …" if len(inside) > MOST else ""
        named = " ".join(str(entry) for entry in inside[:MOST])
        raise LabError(f"{path} is not the folder of a run, but holds some: name these: {named}{more}")
    config = read_json(path / CONFIG)
    require(path / CONFIG, config, {"settings": dict, "environment": dict})
    return config


def _records(path: Path) -> list[Record]:
    """The lines of metrics.jsonl; a run being written, or killed, may end in half a line."""
    if not path.exists():
        return []
    records: list[Record] = []
    try:
        if not path.is_file():
            raise LabError(f"cannot read {path}: it is not a regular file")
        lines = path.read_text(encoding="utf-8").split("\n")[:-1]
    except (OSError, ValueError) as error:
        raise LabError(f"cannot read {path}: {error}") from error
    for place, line in enumerate(lines, 1):
        where = f"line {place} of {path}"
        try:
            record = json.loads(line)
        except (ValueError, RecursionError) as error:
            raise LabError(f"{where} is damaged: {error}") from error
        if not isinstance(record, dict) or not number(cast("Record", record).get("epoch")):
            raise LabError(f"{where} is damaged: it must be an object with an epoch")
        for key, value in cast("Record", record).items():
            if value is not None and not number(value):
                raise LabError(f"{where} is damaged: {key} must be a finite number or null, got {value!r}")
        records.append(cast("Record", record))
    return records


def collect(paths: Iterable[Path]) -> list[Run]:
    """The runs in these folders, each the folder of a run or of a comparison, in order and labelled."""
    runs: list[Run] = []
    for path in paths:
        settings = _config(path)["settings"]
        if "recipes" in settings:
            require(path / CONFIG, settings, {"recipes": dict})
            folders = [entry.parent for entry in sorted(path.glob(f"*/{CONFIG}"))]
            inside = [read(folder) for folder in folders if not folder.name.startswith(".")]
            order = {name: place for place, name in enumerate(settings["recipes"])}
            # a run that the configuration does not have comes last
            places = {run.path: order.get(run.recipe, len(order)) for run in inside}
            runs += sorted(inside, key=lambda run: (places[run.path], run.settings["seed"]))
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
    source = fields.pop("source", None)
    try:
        method = methods.get(run.recipe.rpartition("/")[2])
        optimizer = method.options(**_tuples(fields.pop("optimizer")))
        drops = Drops(**_tuples(fields.pop("drops")))
        if source is not None:
            fields["source"] = Source(**source)
        return Recipe(**fields, optimizer=optimizer, drops=drops)
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise LabError(f"{run.path}: this version does not understand the recipe there: {error}") from error
    except LabError as error:
        raise LabError(f"{run.path}: the recipe there cannot be used: {error}") from error


def _tuples(fields: dict[str, Any]) -> dict[str, Any]:
    """JSON has lists where dataclasses have tuples."""
    return {key: tuple(value) if isinstance(value, list) else value for key, value in fields.items()}  # pyright: ignore[reportUnknownArgumentType, reportUnknownVariableType]
