"""Reading measurements back from their files."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import cast

from entropy_sgd.lab import LabError
from entropy_sgd.lab.nearby import hint
from entropy_sgd.lab.runs.records import Record, Shape, number, read_json, require

DRAWN: Shape = {"recipe": str, "network": str, "method": str}
"""What every file has."""
COMPARED: Shape = {
    **DRAWN,
    "seed": int,
    "data": str,
    "samples": int,
    "options": dict,
    "loss": float,
    "gradient_norm": float,
    "run": {"settings": {"recipe": dict}},
}
"""What is needed to compare recipes."""
WHOLE: Shape = {
    **COMPARED,
    "of": str,
    "command": str,
    "weights_sha256": str,
    "seconds": float,
    "parameters": int,
    "samples_available": int,
}
"""What `measure` writes."""
SPECTRUM: Shape = {
    "minimum": float,
    "maximum": float,
    "trace": float,
    "negative": float,
    "near_zero": dict,
}
VALUES: Shape = {"value": float, "normalized": float, "error": float}


def read(paths: Iterable[Path], shape: Shape = DRAWN) -> list[Record]:
    """The measurements in these files, and in all files of these folders, in order, if of this shape."""
    records: list[Record] = []
    for path in paths:
        if not path.exists():
            raise LabError(
                f"{path} does not exist: make it with entropy-sgd spectrum or local-entropy{hint(path)}"
            )
        for file in sorted(path.glob("*.json")) if path.is_dir() else [path]:
            record = read_json(file)
            if "slice" in record and path.is_dir():  # entropy-sgd landscape may write to the same folder
                continue
            if "method" not in record or not {"spectrum", "local_entropy"} & record.keys():
                raise LabError(f"{file} holds neither a spectrum nor local entropies of this program")
            check(file, record, shape)
            records.append(record)
    return records


def check(file: Path, record: Record, shape: Shape = WHOLE) -> None:
    """Refuse a measurement that is not of this shape, or whose results are not of theirs."""
    require(file, record, shape)
    if "spectrum" in record:
        if shape is DRAWN:
            require(file, record, {"seed": int, "data": str, "samples": int, "parameters": int})
        require(file, record, {"spectrum": SPECTRUM})
        found = record["spectrum"]
        if "local_entropy" not in record:
            require(file, found, {"histograms": dict}, "spectrum.")
        for name in found["near_zero"]:
            require(file, found, {"near_zero": {name: float}}, "spectrum.")
        for name in found.get("histograms", ()):
            require(file, found, {"histograms": {name: {"edges": list, "counts": list}}}, "spectrum.")
            edges, counts = (found["histograms"][name][key] for key in ("edges", "counts"))
            if len(edges) != len(counts) + 1 or not all(map(number, [*edges, *counts])):
                raise LabError(f"{file} holds a damaged histogram {name}")
    if "local_entropy" in record:
        require(file, record, {"local_entropy": list})
        for entry in record["local_entropy"]:
            known = cast("Record", entry) if isinstance(entry, dict) else {}
            kept = {"reason": str} if "reason" in known else VALUES
            require(file, known, {"gamma": float, **kept}, "local_entropy.")
