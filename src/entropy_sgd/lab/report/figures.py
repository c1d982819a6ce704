"""The figures of a report: curves against effective epochs, a colour for each recipe.

Mean over the seeds with a band of one standard deviation, the single runs thin behind it.
"""

from __future__ import annotations

import io
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import matplotlib as mpl
from matplotlib.figure import Figure
from matplotlib.ticker import NullFormatter

from entropy_sgd.lab import metrics
from entropy_sgd.lab.report.curves import curves
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
    "svg.fonttype": "none",  # text that takes its colour and font from the page
}
SIZE = (4.2, 3.0)
"""Of a figure in inches: small, so that its text is readable on a telephone."""
DASHES = ("-", "--", ":")
"""For labels beyond the number of colours."""


def plain(label: str, longest: int = 40) -> str:
    """A label that fits a figure."""
    return label if len(label) <= longest else f"{label[: longest - 1]}…"


def small_numbers(value: float, _: object = None) -> str:
    """A tick of a logarithmic axis, without the fonts of mathematics."""
    return f"{value:g}"


def few_numbers(value: float, _: object = None) -> str:
    """A tick between powers of ten: 2 and 5 alone have room."""
    return small_numbers(value) if f"{value:e}"[0] in "25" else ""


def logarithmic_ticks(axes: Any, ratio: float) -> None:
    """A logarithmic axis for values of which the largest is `ratio` times the smallest."""
    axes.set_yscale("log")
    axes.yaxis.set_major_formatter(small_numbers)
    axes.yaxis.set_minor_formatter(few_numbers if ratio < 200 else NullFormatter())


@dataclass(frozen=True)
class Panel:
    """How a measurement is drawn."""

    title: str
    axis: str
    logarithmic: bool = True


LOSSES = {
    "loss": Panel("Training loss", "loss at the trained weights"),
    "validation_loss": Panel("Validation loss", "loss at the evaluated weights"),
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


def keys(runs: Sequence[Run]) -> list[str]:
    """The measurements that any of the runs has, in the order in which they are drawn."""
    judged = dict.fromkeys(run.metric for run in runs if run.metric not in LOSSES)
    return [key for key in (*LOSSES, *judged, *DIAGNOSTICS) if any(run.series(key)[0] for run in runs)]


def draw(runs: Sequence[Run]) -> dict[str, Figure]:
    """A figure for each measurement that any of the runs has."""
    return {key: draw_one(runs, key) for key in keys(runs)}


def draw_one(runs: Sequence[Run], key: str, *, legend: bool = True) -> Figure:
    """The figure of one measurement."""
    how, found = panel(key), curves(runs, key)
    with mpl.rc_context(STYLE):
        figure: Any = Figure(figsize=SIZE, layout="constrained")
        axes = figure.subplots()
        for curve in found:
            colour, dashes = COLOURS[curve.place % len(COLOURS)], DASHES[curve.place // len(COLOURS) % 3]
            if len(curve.singles) > 1:
                for epochs, values in curve.singles:
                    axes.plot(epochs, values, color=colour, linewidth=0.6, alpha=0.35)
            marker = "o" if len(curve.epochs) < 2 else None
            axes.plot(
                curve.epochs,
                curve.mean,
                color=colour,
                label=plain(curve.label),
                marker=marker,
                markersize=3,
                linewidth=1.8,
                linestyle=dashes,
            )
        values = [value for curve in found for _, series in curve.singles for value in series]
        logarithmic = how.logarithmic and min(values) > 0 and max(values) > 4 * min(values)
        if logarithmic:
            logarithmic_ticks(axes, max(values) / min(values))
        limits = axes.get_ylim()  # of the curves: a band may reach below zero
        for curve in found:
            if curve.deviation is not None:
                low, high = zip(
                    *((m - d, m + d) for m, d in zip(curve.mean, curve.deviation, strict=True)), strict=True
                )
                low = [max(value, limits[0] / 10) for value in low] if logarithmic else low
                colour = COLOURS[curve.place % len(COLOURS)]
                axes.fill_between(curve.epochs, low, high, color=colour, alpha=0.15, linewidth=0)
        axes.set_ylim(*limits)
        axes.set_title(how.title, parse_math=False)
        axes.set_xlabel("effective epochs")
        axes.set_ylabel(how.axis, parse_math=False)
        if legend:
            entries = figure.legend(loc="outside lower center", ncols=2, frameon=False, fontsize="small")
            for text in entries.get_texts():
                text.set_parse_math(False)
    return figure


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
