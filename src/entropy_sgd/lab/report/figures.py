"""The figures of a report: curves against effective epochs, a colour for each recipe, a line for each run."""

from __future__ import annotations

import io
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import matplotlib as mpl
from matplotlib.figure import Figure

from entropy_sgd.lab import metrics
from entropy_sgd.lab.runs.reading import Run
from entropy_sgd.lab.runs.records import write_whole

# Okabe and Ito's colours, which colour-blind readers can tell apart.
COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000")

STYLE: dict[Any, Any] = {
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "grid.alpha": 0.25,
    "font.size": 10,
    "svg.hashsalt": "entropy-sgd",  # the same runs give the same bytes
    "svg.fonttype": "path",  # looks alike in every browser
}


@dataclass(frozen=True)
class Panel:
    """How a measurement is drawn."""

    title: str
    axis: str
    logarithmic: bool = True


LOSSES = {
    "loss": Panel("Training loss", "loss at the trained weights"),
    "validation_loss": Panel("Validation loss", "loss at the judged weights"),
}
DIAGNOSTICS = {
    "lr": Panel("Learning rate", "η"),
    "gamma": Panel("Scope", "γ"),
    "angle": Panel("Local-entropy gradient against the gradient", "angle, degrees", False),
    "x_minus_mu": Panel("Local-entropy gradient", "‖x − μ‖"),
    "rho": Panel("Coupling of the replicas", "ρ"),
    "x_minus_mean": Panel("Distance of a replica from their mean", "‖x − x̄‖"),
    "overlap": Panel("Overlap of a replica with their mean", "cosine", False),
}


def panel(key: str) -> Panel:
    """How the measurement of that name is drawn; one that is none of the above is a metric."""
    metric = metrics.get(key)
    return (LOSSES | DIAGNOSTICS).get(key) or Panel(metric.title, metric.axis, metric.logarithmic)


def draw(runs: Sequence[Run]) -> dict[str, Figure]:
    """A figure for each measurement that any of the runs has."""
    labels = list(dict.fromkeys(run.label for run in runs))
    figures: dict[str, Figure] = {}
    judged = dict.fromkeys(run.metric for run in runs if run.metric not in LOSSES)
    for key in (*LOSSES, *judged, *DIAGNOSTICS):
        if not any(run.series(key)[0] for run in runs):
            continue
        how = panel(key)
        with mpl.rc_context(STYLE):
            figure = Figure(figsize=(5.2, 3.4), layout="constrained")
            axes = figure.subplots()
            named: set[str] = set()
            for run in runs:
                epochs, values = run.series(key)
                if not epochs:
                    continue
                colour = COLOURS[labels.index(run.label) % len(COLOURS)]
                # a dollar sign in a file's name is not the beginning of a formula
                name = run.label.replace("$", r"\$") if run.label not in named else None
                named.add(run.label)
                marker = "o" if len(epochs) < 30 else None
                axes.plot(
                    epochs, values, color=colour, label=name, marker=marker, markersize=3, linewidth=1.2
                )
            axes.set(title=how.title, xlabel="effective epochs", ylabel=how.axis)
            positive = all(value > 0 for run in runs for value in run.series(key)[1])
            if how.logarithmic and positive:
                axes.set_yscale("log")
            figure.legend(loc="outside lower center", ncols=2 if len(named) > 3 else 3, frameon=False)
            figures[key] = figure
    return figures


def svg(figure: Figure) -> str:
    """The figure as an `<svg>` element."""
    stream = io.StringIO()
    with mpl.rc_context(STYLE):
        figure.savefig(stream, format="svg", metadata={"Date": None})
    text = stream.getvalue()
    return text[text.index("<svg") :]


def save(figures: dict[str, Figure], folder: Path) -> list[Path]:
    """Write each figure as PNG and PDF."""
    paths: list[Path] = []
    for name, figure in figures.items():
        for ending in ("png", "pdf"):
            path = folder / f"{name}.{ending}"
            stream = io.BytesIO()
            with mpl.rc_context(STYLE):
                # without the time of day, the same runs give the same bytes
                moment = {"CreationDate": None} if ending == "pdf" else None
                figure.savefig(stream, format=ending, dpi=160, metadata=moment)
            write_whole(path, stream.getvalue())
            paths.append(path)
    return paths
