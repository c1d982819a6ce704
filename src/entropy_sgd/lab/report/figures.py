"""The figures of a report: curves against effective epochs, a colour for each recipe, a line for each run."""

from __future__ import annotations

import io
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import matplotlib as mpl
from matplotlib.figure import Figure

from entropy_sgd.lab.report.runs import Run

# Okabe and Ito's colours, told apart by colour-blind readers too.
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

PANELS: dict[str, tuple[str, str, bool]] = {
    "loss": ("Training loss", "cross-entropy at x′", True),
    "validation_loss": ("Validation loss", "cross-entropy at x", True),
    "error": ("Validation error", "%", True),
    "perplexity": ("Validation perplexity", "perplexity", True),
    "nats": ("Validation cross-entropy", "nats per character", False),
    "lr": ("Learning rate", "η", True),
    "gamma": ("Scope", "γ", True),
    "angle": ("Local-entropy gradient against the gradient", "angle, degrees", False),
    "x_minus_mu": ("Local-entropy gradient", "‖x − μ‖", True),
}
"""The measurements drawn: title, label, and whether the axis is logarithmic."""


def draw(runs: Sequence[Run]) -> dict[str, Figure]:
    """A figure for each measurement that any of the runs has."""
    labels = list(dict.fromkeys(run.label for run in runs))
    figures: dict[str, Figure] = {}
    shown = [
        key for key in PANELS if key not in ("nats", "perplexity") or any(run.metric == key for run in runs)
    ]
    for key in shown:
        if not any(run.series(key)[0] for run in runs):
            continue
        title, label, logarithmic = PANELS[key]
        with mpl.rc_context(STYLE):
            figure = Figure(figsize=(5.2, 3.4), layout="constrained")
            axes = figure.subplots()
            named: set[str] = set()
            for run in runs:
                epochs, values = run.series(key)
                if not epochs:
                    continue
                colour = COLOURS[labels.index(run.label) % len(COLOURS)]
                name = run.label if run.label not in named else None
                named.add(run.label)
                marker = "o" if len(epochs) < 30 else None
                axes.plot(
                    epochs, values, color=colour, label=name, marker=marker, markersize=3, linewidth=1.2
                )
            axes.set(title=title, xlabel="effective epochs", ylabel=label)
            positive = all(value > 0 for run in runs for value in run.series(key)[1])
            if logarithmic and positive:
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
            with mpl.rc_context(STYLE):
                # without the time of day, the same runs give the same bytes
                figure.savefig(path, dpi=160, metadata={"CreationDate": None} if ending == "pdf" else None)
            paths.append(path)
    return paths
