"""The demonstration: three methods on real digits, and how flat the minima are that they find.

It must not know how anything is trained, measured or drawn.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from rich.console import Console

from entropy_sgd.lab import recipes
from entropy_sgd.lab.comparison.comparison import Comparison, run
from entropy_sgd.lab.comparison.table import Row
from entropy_sgd.lab.report import write
from entropy_sgd.lab.report.measured import FOLDER
from entropy_sgd.lab.runs.reading import collect
from entropy_sgd.lab.slices import write as slices
from entropy_sgd.lab.slices.how import Slice
from entropy_sgd.lab.spectra import flatness
from entropy_sgd.lab.spectra.how import LocalEntropy
from entropy_sgd.lab.spectra.measure import measure
from entropy_sgd.lab.terminal import Form, prose, show
from entropy_sgd.lab.training.acceleration import threads
from entropy_sgd.lab.training.display import say

SEEDS = (0, 1, 2)
FLATNESS = LocalEntropy(gamma=(10.0,), samples=150, batch=75, dtype="float32", probes=4, steps=4)
"""Enough for the largest eigenvalue, which stands apart from the rest, and for a γ above all of them."""
PLANE = Slice(on="plane", points=9, samples=150, batch=75)


def demonstrate(
    out: Path, *, overwrite: bool = False, console: Console | None = None
) -> tuple[list[Row], Path]:
    """Train, measure, draw and tell; what is there already is kept. Returns table and report."""
    console = console or Console()
    family = recipes.family("demo")
    rows = run(
        Comparison(family.written, SEEDS),
        out,
        resume=not overwrite,
        overwrite=overwrite,
        console=console,
        at_once=None,
    )
    runs = [run for run in collect([out]) if run.summary and run.summary["status"] == "finished"]
    where, command = out / FOLDER, ["demo"]
    first = [run for run in runs if run.settings["seed"] == SEEDS[0]]
    say(console, f"measuring flatness where {len(runs)} runs ended, and the loss around {len(first)} of them")
    with threads(1):  # networks and batches this small gain nothing by more, and lose much on a busy machine
        records = measure(runs, FLATNESS, where, command=command, overwrite=overwrite)
        if first:
            slices.write(first, PLANE, where, command=command, overwrite=overwrite)
    if records:
        _show(console, rows, flatness.tabulate(records))
    page = write([out], out / "report")
    if first:
        say(console, f"the loss around each minimum: {page.parent / 'plane.png'}")
    say(console, f"report: {page}")
    return rows, page


def _show(console: Console, rows: Sequence[Row], measured: Sequence[flatness.Row]) -> None:
    """Flatness beside the error, and what can be told from it."""
    wanted = {
        "largest λ": "largest\neigenvalue",
        "local entropy": f"local entropy,\nγ = {FLATNESS.gamma[0]:g}",
    }
    found = {
        heading: next(row for row in measured if row.what.startswith(start))
        for start, heading in wanted.items()
    }
    names = {row.recipe: row.recipe.rpartition("/")[2] for row in rows}
    lines = [
        [
            names[row.recipe],
            f"{row.result.mean:.2f} ± {row.result.deviation or 0:.2f}" if row.result else "diverged",
            *(flatness.cell(entry.spreads.get(row.recipe)).partition(" (")[0] for entry in found.values()),
        ]
        for row in rows
    ]
    caption = "flatter: a smaller eigenvalue, a higher local entropy"
    title = f"mean ± sd over {len(SEEDS)} seeds"
    show(console, [Form(["method", "validation\nerror, %", *found], lines, title, caption)])
    prose(console, flatness.sentence(measured, names))
    ours: Any = recipes.get("demo/entropy-sgd").optimizer
    prose(
        console,
        "All three were tuned on these validation digits with other seeds, SGD and Adam in their rate, "
        f"entropy-sgd in three options (L={ours.L}, an outer momentum of {ours.momentum:g}, its inner rate). "
        "The defaults of EntropySGD differ.",
    )
