"""What `entropy-sgd landscape` does: a JSON file for each slice, and pictures of them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

from entropy_sgd.lab import LabError
from entropy_sgd.lab.report.figures import save
from entropy_sgd.lab.runs.reading import Run
from entropy_sgd.lab.runs.records import Record, read_json, write_json
from entropy_sgd.lab.slices import draw, measure
from entropy_sgd.lab.slices.how import On, Slice


def write(
    runs: Sequence[Run],
    how: Slice,
    out: Path,
    *,
    command: Sequence[str],
    overwrite: bool = False,
    data_dir: Path | None = None,
    said: Callable[[str], None] = lambda text: None,
) -> list[Record]:
    """Take the slices, write files and pictures to `out` and return the records.

    A file that holds the same slice already is kept as it is, so a command that was stopped can be given
    again. Everything that can be refused is refused before the first slice is taken.
    """
    on = how.along(len(runs))
    measure.check(runs, on)
    groups = [list(runs)] if on == "line" else [[run] for run in runs]
    paths = [out / f"{_name(group, on)}.json" for group in groups]
    for path in paths:
        if paths.count(path) > 1:
            raise LabError(f"two of the runs would be written to {path}: slice them with different --out")
    kept = [
        None if overwrite or not path.exists() else _kept(path, group, how, on)
        for path, group in zip(paths, groups, strict=True)
    ]
    out.mkdir(parents=True, exist_ok=True)
    records: list[Record] = []
    for path, group, before in zip(paths, groups, kept, strict=True):
        record = before or measure.measure(group, how, on, command=command, data_dir=data_dir)
        if before is None:
            write_json(path, record)
        said(f"{draw.name(record)}: {_describe(record)}: {path}")
        records.append(record)
    labels = {run.summary["weights_sha256"]: run.label for run in runs if run.summary is not None}
    name = paths[0].stem if len(records) == 1 else on
    figures = {name: draw.line(records[0], labels) if on == "line" else draw.planes(records, labels)}
    if on == "plane":
        figures[f"{name}-profile"] = draw.profile(records, labels)
    for path in save(figures, out):
        said(str(path))
    return records


def _describe(record: Record) -> str:
    found = record["slice"]
    if record["on"] == "line":
        barrier = f"a barrier of {draw.barrier(record):.4g} in the loss"
        return f"{barrier}, over a distance of {found['distance']:.4g}"
    finite = [value for row in found["loss"] for value in row if value is not None]
    return f"loss from {min(finite):.4g} to {max(finite):.4g}"


def _name(runs: Sequence[Run], on: On) -> str:
    names = [f"{run.recipe.replace('/', '-')}-seed{run.settings['seed']}" for run in runs]
    return "-to-".join(names) + f"-{on}"


def _kept(path: Path, runs: Sequence[Run], how: Slice, on: On) -> Record:
    """What the file holds, if it is this very slice."""
    record = read_json(path)
    now = {"options": measure.options(how, on), "runs": [measure.identity(run) for run in runs]}
    if any(record.get(key) != value for key, value in now.items()):
        raise LabError(
            f"{path} holds another slice, which --overwrite replaces and another --out leaves alone"
        )
    return record
