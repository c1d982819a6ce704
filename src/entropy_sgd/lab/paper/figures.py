"""Fig. 4 to 6 from kept runs, Fig. 1 and 3 from measured spectra, Fig. 2 computed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import matplotlib as mpl
import numpy as np
from matplotlib.figure import Figure

from entropy_sgd.lab import metrics, valley
from entropy_sgd.lab.paper.entry import Entry
from entropy_sgd.lab.paper.kept import Kept
from entropy_sgd.lab.paper.standing import Standing
from entropy_sgd.lab.report.figures import COLOURS, STYLE
from entropy_sgd.lab.spectra import figures as spectra
from entropy_sgd.lab.spectra import measurements

Series = Sequence[tuple[list[float], list[float]]]


@dataclass(frozen=True)
class Curve:
    """One method in a panel."""

    label: str
    loss: str
    """The entry whose training loss is drawn, and whose paper's number is the mark."""
    validation: str
    """The entry that has validation data."""


@dataclass(frozen=True)
class Panel:
    """One network."""

    title: str
    curves: tuple[Curve, ...]
    marks: tuple[str, ...] = ()
    """Entries with the paper's numbers, where the curves' own have none."""


CURVES = {
    "figure-4": (
        Panel(
            "mnistfc",
            (
                Curve("Adam", "mnistfc-adam", "mnistfc-adam-curve"),
                Curve(
                    "Entropy-SGD, with batch normalisation",
                    "mnistfc-entropy-sgd-batch-norm",
                    "mnistfc-entropy-sgd-batch-norm-curve",
                ),
                Curve("Entropy-SGD, as in the text", "mnistfc-entropy-sgd", ""),
            ),
        ),
        Panel(
            "LeNet",
            (
                Curve("Adam", "lenet-adam", "lenet-adam-curve"),
                Curve("Entropy-SGD", "lenet-entropy-sgd", "lenet-entropy-sgd-curve"),
            ),
        ),
    ),
    "figure-5": (
        Panel(
            "All-CNN-BN, here at quarter width",
            (
                Curve("SGD", "allcnn-quarter-sgd", "allcnn-quarter-sgd-curve"),
                Curve("Entropy-SGD", "allcnn-quarter-entropy-sgd", "allcnn-quarter-entropy-sgd-curve"),
            ),
        ),
    ),
    "figure-6": (
        Panel(
            "PTB-LSTM, here the small one",
            (
                Curve("SGD", "ptb-lstm-small-sgd", "ptb-lstm-small-sgd"),
                Curve("Entropy-SGD", "ptb-lstm-small-entropy-sgd", "ptb-lstm-small-entropy-sgd"),
            ),
            ("ptb-lstm-sgd", "ptb-lstm-entropy-sgd"),
        ),
        Panel(
            "char-LSTM",
            (
                Curve("Adam", "char-lstm-adam", "char-lstm-adam"),
                Curve("Entropy-Adam", "char-lstm-entropy-adam", "char-lstm-entropy-adam"),
                Curve("SGD with the inner loop's settings", "char-lstm-sgd", "char-lstm-sgd"),
            ),
        ),
    ),
}
TITLES = {
    "figure-1-small-lenet": "Fig. 1: the Hessian's spectrum, small-LeNet",
    "figure-2": "Fig. 2: local entropy concentrates on wide valleys",
    "figure-3a-small-mnistfc": "Fig. 3a: small-mnistfc",
    "figure-3b-small-char-lstm": "Fig. 3b: small char-LSTM",
    "figure-3c-allcnn": "Fig. 3c: All-CNN, Fisher diagonal",
    "figure-4": "Fig. 4: Entropy-SGD and Adam on MNIST",
    "figure-5": "Fig. 5: Entropy-SGD and SGD on CIFAR-10",
    "figure-6": "Fig. 6: recurrent networks",
}


def draw(standings: Mapping[str, Standing], measured: Path) -> dict[str, Figure | None]:
    """Every figure of `TITLES`, None where there is nothing to draw it from."""
    records = measurements.read([measured]) if measured.exists() else []
    drawn: dict[str, Figure | None] = {"figure-2": valley.picture(valley.compute())}
    for name, panel in spectra.FIGURES.items():
        mine = [record for record in records if panel.shows(record)]
        drawn[name] = spectra.draw(panel, mine) if mine else None
    drawn |= {name: curves(panels, standings) for name, panels in CURVES.items()}
    return {name: drawn[name] for name in TITLES}


def band(series: Series, points: int = 200) -> tuple[Any, Any, Any]:
    """Epochs, mean and standard deviation of curves, as far as all of them reach."""
    grid = np.linspace(max(x[0] for x, _ in series), min(x[-1] for x, _ in series), points)
    values = np.array([np.interp(grid, x, y) for x, y in series])
    return grid, values.mean(0), values.std(0, ddof=1) if len(series) > 1 else np.zeros(points)


def curves(panels: Sequence[Panel], standings: Mapping[str, Standing]) -> Figure | None:
    """Training loss and validation error against effective epochs; None if no run is there."""
    used = {
        key for panel in panels for curve in panel.curves for key in (curve.loss, curve.validation) if key
    }
    if not any(standings[key].runs for key in used):
        return None
    with mpl.rc_context(STYLE):
        figure: Any = Figure(figsize=(11.5, 3.2 * len(panels)), layout="constrained")
        grid = figure.subplots(len(panels), 2, squeeze=False)
        for panel, (left, right) in zip(panels, grid, strict=True):
            _panel(panel, standings, left, right)
    return figure


def _panel(panel: Panel, standings: Mapping[str, Standing], left: Any, right: Any) -> None:
    recipe = standings[panel.curves[0].loss].entry.recipe
    metric = metrics.get(recipe.metric)
    left.set(title=panel.title, ylabel="training loss, cross-entropy", yscale="log")
    held_out = any(standings[curve.validation].finished for curve in panel.curves if curve.validation)
    right.set(title=metric.title if held_out else "On test data, at the end", ylabel=metric.label)
    heights: list[float] = []
    for colour, curve in zip(COLOURS, panel.curves, strict=False):
        standing = standings[curve.loss]
        _line(
            left, [run.training_loss for run in standing.finished], colour, _label(curve, standing.finished)
        )
        for run in standing.runs:
            if not run.finished:  # each for itself: it would end the others' mean
                left.plot(*run.training_loss, color=colour, linewidth=0.8, linestyle=":")
        if standing.diverged:
            left.plot(
                [], [], color=colour, linestyle=":", label=f"{curve.label}: {standing.diverged} diverged"
            )
        judged = standings[curve.validation].finished if curve.validation else []
        heights += _line(
            right, _series(judged, recipe.metric), colour, f"{_label(curve, judged)}, validation"
        )
        ours = standing.result("test")
        if ours is not None and standing.epochs is not None:
            right.errorbar(
                standing.epochs, ours.mean, ours.deviation or 0.0, color=colour, marker="o", capsize=3,
                label=f"{_label(curve, standing.finished)}, test",
            )  # fmt: skip
            heights.append(ours.mean)
    drawn = {left: bool(left.lines), right: bool(heights)}
    marked = panel.marks or tuple(curve.loss for curve in panel.curves)
    seen: set[float] = set()
    for colour, key in zip(COLOURS, marked, strict=False):
        heights += _mark(right, standings[key].entry, colour, seen)
    left.set_xlabel("effective epochs (epochs × L)")
    right.set_xlabel("effective epochs (epochs × L)")
    right.set_xlim(left=0)
    if heights:  # the first epochs would hide the last
        right.set_ylim(0.9 * min(heights), 2.2 * max(heights) if metric.logarithmic else 1.3 * max(heights))
    for axes in (left, right):
        if axes.get_legend_handles_labels()[0]:
            beside = {"loc": "upper left", "bbox_to_anchor": (1.01, 1.0)} if axes is right else {}
            axes.legend(fontsize="x-small", frameon=False, **beside)
        if not drawn[axes]:
            axes.text(0.5, 0.5, "not run", transform=axes.transAxes, ha="center", color="0.5")


def _label(curve: Curve, runs: Sequence[Kept]) -> str:
    return f"{curve.label}: {len(runs)} seed{'' if len(runs) == 1 else 's'}"


def _series(runs: Sequence[Kept], key: str) -> Series:
    return [series for run in runs if (series := run.series(key))[0]]


def _line(axes: Any, series: Series, colour: str, label: str) -> list[float]:
    """Mean and band; the mean's last value, if there is anything to draw."""
    series = [(x, y) for x, y in series if x]
    if not series:
        return []
    epochs, mean, deviation = band(series)
    axes.plot(epochs, mean, color=colour, linewidth=1.3, label=label)
    axes.fill_between(epochs, mean - deviation, mean + deviation, color=colour, alpha=0.2, linewidth=0)
    return [float(mean[-1])]


def _mark(axes: Any, entry: Entry, colour: str, seen: set[float]) -> list[float]:
    """The paper's numbers where the paper has them, each once."""
    heights: list[float] = []
    for number in entry.paper:
        if number.mean not in seen:
            seen.add(number.mean)
            method = entry.what.partition(",")[0]
            label = f"the paper, {method}: {number.mean:g} ± {number.deviation:g}, {number.part}"
            marker = "*" if number.part == "test" else "x"
            axes.errorbar(
                number.epochs, number.mean, number.deviation, color=colour, marker=marker, markersize=9,
                linestyle="none", capsize=3, label=label,
            )  # fmt: skip
            heights.append(number.mean)
    return heights
