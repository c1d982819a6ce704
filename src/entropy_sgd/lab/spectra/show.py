"""Showing a measurement on the terminal."""

from __future__ import annotations

from pathlib import Path

from rich.console import Console
from rich.table import Table

from entropy_sgd.lab.runs.records import Record
from entropy_sgd.lab.training.display import duration, say


def show(console: Console, path: Path, record: Record) -> None:
    """The file, where it was measured, and the numbers the paper speaks of."""
    title = f"{record['recipe']} seed {record['seed']}: {record['of']}, {record['method']}"
    console.print(title, highlight=False, soft_wrap=True)
    table = Table(show_header="local_entropy" in record)
    if "local_entropy" in record:
        for heading in ("γ", "F", "normalised", "± standard error"):
            table.add_column(heading, justify="right")
        for entry in record["local_entropy"]:
            numbers = [f"{entry[key]:.4f}" for key in ("value", "normalized", "error") if key in entry]
            table.add_row(f"{entry['gamma']:g}", *(numbers or ["-", "does not exist", "-"]))
    else:
        found = record["spectrum"]
        table.add_row("smallest, largest", f"{found['minimum']:.4g}, {found['maximum']:.4g}")
        error = found.get("trace_error")
        table.add_row("trace", f"{found['trace']:.4g}" + ("" if error is None else f" ± {error:.2g}"))
        table.add_row("negative", f"{100 * found['negative']:.2f} %")
        for threshold, share in found["near_zero"].items():
            table.add_row(f"|λ| < {threshold}", f"{100 * share:.2f} %")
    console.print(table)
    wrapped = console.is_terminal  # a line of a file is never broken
    for entry in record.get("local_entropy", []):
        if "reason" in entry:
            console.print(entry["reason"], highlight=False, soft_wrap=not wrapped)
    parts = [
        f"loss {record['loss']:.6g}, gradient norm {record['gradient_norm']:.3g} on {record['samples']} of "
        f"{record['samples_available']} training samples;",
        f"{record['parameters']} parameters, {duration(record['seconds'])}:",
        str(path),
    ]
    say(console, "\n".join(parts) if wrapped else " ".join(parts))
