"""Reading measurements back from their files."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from entropy_sgd.lab import LabError
from entropy_sgd.lab.runs.records import Record, read_json


def read(paths: Iterable[Path]) -> list[Record]:
    """The measurements in these files, and in all files of these folders, in order."""
    records: list[Record] = []
    for path in paths:
        if not path.exists():
            raise LabError(f"{path} does not exist: make it with entropy-sgd spectrum or local-entropy")
        for file in sorted(path.glob("*.json")) if path.is_dir() else [path]:
            record = read_json(file)
            if "slice" in record and path.is_dir():  # entropy-sgd landscape may write to the same folder
                continue
            if "method" not in record or not {"spectrum", "local_entropy"} & record.keys():
                raise LabError(f"{file} holds neither a spectrum nor local entropies of this program")
            records.append(record)
    return records
