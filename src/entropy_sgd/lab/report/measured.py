"""What was measured at the weights of the runs in a report: flatness, and slices of the loss."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from entropy_sgd.lab import LabError
from entropy_sgd.lab.nearby import hint
from entropy_sgd.lab.runs.reading import Run
from entropy_sgd.lab.runs.records import Record, read_json
from entropy_sgd.lab.slices import shape
from entropy_sgd.lab.spectra import flatness, measurements

if TYPE_CHECKING:
    from matplotlib.figure import Figure

FOLDER = "measured"
"""Where measurements are looked for inside the folder of a run or a comparison."""
KINDS = ("plane", "trajectory", "line")
"""Of slices, in the order in which they are shown."""
MAIN = ("loss", "largest λ", "trace", "local entropy")
"""The numbers that are shown first, by how their names begin."""


@dataclass(frozen=True)
class Measured:
    """The measurements that belong to the runs of a report."""

    flatness: list[flatness.Row] = field(default_factory=list[flatness.Row])
    slices: list[Record] = field(default_factory=list[Record])
    labels: dict[str, str] = field(default_factory=dict[str, str])
    """The label of a run by the SHA-256 of its weights."""
    notes: list[str] = field(default_factory=list[str])

    def table(self, called: Mapping[str, str]) -> tuple[list[str], list[list[str]], list[list[str]]]:
        """Headings, the main rows and the others: a row for each number, a column for each recipe."""
        labels = list(dict.fromkeys(label for row in self.flatness for label in row.spreads))
        headings = ["", *(called.get(label, label) for label in labels)]
        main: list[list[str]] = []
        others: list[list[str]] = []
        for row in self.flatness:
            cells = [row.what, *(flatness.cell(row.spreads.get(label)) for label in labels)]
            (main if row.what.startswith(MAIN) else others).append(cells)
        return headings, main, others

    def sentence(self, called: Mapping[str, str]) -> str:
        """What the measurements tell."""
        return flatness.sentence(self.flatness, called)

    def figures(self, *, single: bool = False) -> dict[str, Figure]:
        """Pictures of the slices; `single`: each plane on its own."""
        if not self.slices:
            return {}
        from entropy_sgd.lab.slices import draw

        labels = self.labels
        planes = [record for record in self.slices if record["on"] == "plane"]
        alike = [record for record in planes if record["options"] == planes[0]["options"]]
        drawn: dict[str, Figure] = {}
        if alike:
            drawn["profile"] = draw.profile(alike, labels)
        if alike and not single:
            drawn["plane"] = draw.planes(alike, labels)
        rest = [record for record in self.slices if single or record not in alike]
        limits = draw.limits(alike) if alike else None
        for i, record in enumerate(rest):
            key = f"{record['on']}-{i}"
            if record["on"] == "line":
                drawn[key] = draw.line(record, labels)
            else:
                drawn[key] = draw.planes([record], labels, limits if record in alike else None)
        return drawn

    def captions(self) -> list[str]:
        """How each kind of picture is read."""
        words = {
            "plane": "Planes: the training loss around the weights, along two random directions whose "
            "filters have the same norms as the network's (Li et al., 2018); planes with the same options "
            "share a colour scale. The first picture is their mean, with its range, against the distance.",
            "trajectory": "Trajectories: the plane of the two principal directions of the weights along the "
            "run, with the share of their variance; the cross is where the run ends.",
            "line": "Lines: the loss at weights between those of two runs.",
        }
        return [text for on, text in words.items() if any(record["on"] == on for record in self.slices)]


def find(paths: Sequence[Path], given: Sequence[Path], runs: Sequence[Run]) -> Measured:
    """What was measured of these runs: in `given`, and in the folder `measured` of each of `paths`."""
    own = {run.summary.get("weights_sha256"): run for run in runs if run.summary is not None}
    labels = {digest: run.label for digest, run in own.items() if digest is not None}
    inside = [path / FOLDER for path in paths if (path / FOLDER).is_dir()]
    files = {file.resolve(): file for path in (*given, *inside) for file in _files(path)}
    records = [_checked(file) for file in files.values()]
    slices = [
        record
        for record in records
        if record.get("on") in KINDS
        and all(run.get("weights_sha256") in labels for run in record.get("runs", ()))
    ]
    spectra = [
        {**record, "recipe": labels[record["weights_sha256"]]}
        for record in records
        if {"spectrum", "local_entropy"} & record.keys() and record.get("weights_sha256") in labels
    ]
    order = list(dict.fromkeys(labels.values()))
    slices.sort(
        key=lambda record: [(order.index(labels[r["weights_sha256"]]), r["seed"]) for r in record["runs"]]
    )
    slices.sort(key=lambda record: KINDS.index(record["on"]))
    spectra.sort(key=lambda record: order.index(record["recipe"]))
    rows: list[flatness.Row] = []
    notes: list[str] = []
    if spectra:
        try:
            rows = flatness.tabulate(spectra)
        except LabError as error:
            notes.append(f"Flatness is not shown: {error}")
    if given and not slices and not spectra:
        raise LabError(f"nothing in {', '.join(map(str, given))} was measured at the weights of these runs")
    return Measured(rows, slices, labels, notes)


def _checked(file: Path) -> Record:
    record = read_json(file)
    if record.get("on") in KINDS:
        shape.check(file, record)
    elif {"spectrum", "local_entropy"} & record.keys():
        measurements.check(file, record, {**measurements.COMPARED, "weights_sha256": str})
    return record


def _files(path: Path) -> list[Path]:
    if not path.exists():
        commands = "spectrum, local-entropy or landscape"
        raise LabError(f"{path} does not exist: make it with entropy-sgd {commands}{hint(path)}")
    return sorted(path.glob("*.json")) if path.is_dir() else [path]
