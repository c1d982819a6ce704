"""The shape of a slice's file: one that is damaged is told before it is drawn."""

from __future__ import annotations

from pathlib import Path
from typing import Any, cast

from entropy_sgd.lab import LabError
from entropy_sgd.lab.runs.records import Record, Shape, number, require

SHAPE: Shape = {"on": str, "runs": list, "options": dict, "samples": int, "slice": {"loss": list}}
RUN: Shape = {"recipe": str, "seed": int, "weights_sha256": str}


def check(file: Path, record: Record) -> None:
    """Refuse a slice that is not of the shape in which `measure` writes it."""
    require(file, record, SHAPE)
    for run in record["runs"]:
        require(file, run, RUN, "runs.")
    found = record["slice"]
    if record["on"] == "line":
        require(file, found, {"positions": list, "distance": float}, "slice.")
        whole = len(record["runs"]) == 2 and _numbers(found["positions"])
        whole = whole and _numbers(found["loss"], len(found["positions"]), none=True)
    else:
        require(file, found, {"first": list, "second": list}, "slice.")
        whole = len(record["runs"]) == 1 and _numbers(found["first"]) and _numbers(found["second"])
        whole = whole and len(found["loss"]) == len(found["first"])
        whole = whole and all(_numbers(row, len(found["second"]), none=True) for row in found["loss"])
        whole = whole and any(value is not None for row in found["loss"] for value in row)
        if record["on"] == "trajectory":
            require(file, found, {"coordinates": list, "shares": list}, "slice.")
            whole = whole and all(_numbers(pair, 2) for pair in found["coordinates"])
            whole = whole and _numbers(found["shares"], 2)
    if not whole:
        raise LabError(f"{file} holds a damaged slice")


def _numbers(values: Any, length: int | None = None, *, none: bool = False) -> bool:
    """Whether these are numbers, at least two or `length` of them."""
    if not isinstance(values, list):
        return False
    entries = cast("list[Any]", values)
    if len(entries) < 2 if length is None else len(entries) != length:
        return False
    return all(number(value) or (none and value is None) for value in entries)
