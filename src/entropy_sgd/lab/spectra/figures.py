"""The paper's Fig. 1 and Fig. 3, from the files of `entropy-sgd spectrum` alone."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import matplotlib as mpl
import numpy as np
from matplotlib.figure import Figure

from entropy_sgd.lab.report.figures import COLOURS, STYLE, save
from entropy_sgd.lab.runs.records import Record
from entropy_sgd.lab.spectra import measurements


@dataclass(frozen=True)
class Panel:
    """One of the paper's pictures: which runs it shows, and what the paper says of it."""

    title: str
    recipe: str
    method: str
    exponent: int
    """Of ten, below which the paper counts |λ| as almost zero."""
    paper: str
    """The share that the paper gives, and the range where it does."""

    def shows(self, record: Record) -> bool:
        """Whether this measurement belongs in the figure: the paper's network, optimizer and method."""
        network = self.recipe.partition("/")[0]
        wanted = network, self.recipe, self.method
        return "spectrum" in record and wanted == (record["network"], record["recipe"], record["method"])


FIGURES = {
    "figure-1-small-lenet": Panel(
        "small-LeNet, Hessian", "small-lenet/adam", "exact", -4, "94 %, −0.46 to almost 40"
    ),
    "figure-3a-small-mnistfc": Panel("small-mnistfc, Hessian", "small-mnistfc/sgd", "exact", -2, "90 %"),
    "figure-3b-small-char-lstm": Panel(
        "small char-LSTM, Hessian", "small-char-lstm/adam", "exact", -5, "almost 95 %"
    ),
    "figure-3c-allcnn": Panel("All-CNN, Fisher diagonal", "allcnn/adam", "fisher", -5, "95 %"),
}
INSETS = {"negative": (0.06, 0.54, 0.28, 0.36), "positive": (0.70, 0.54, 0.28, 0.36)}
"""Where the tails are drawn, in shares of the picture: left, bottom, width, height."""
BELOW_INSETS = 0.36
"""The height, in shares of the picture, that the histogram may reach below the insets."""
EMPTY = 0.5
"""Zero has no place on a logarithmic axis: a bin without eigenvalues ends here, at the bottom."""


def write(folder: Path, out: Path) -> list[str]:
    """Draw what the files in `folder` allow into `out`; a line for each file written, or figure missing."""
    records = measurements.read([folder])
    lines: list[str] = []
    for name, panel in FIGURES.items():
        mine = [record for record in records if panel.shows(record)]
        if mine:
            out.mkdir(parents=True, exist_ok=True)
            lines += [str(path) for path in save({name: draw(panel, mine)}, out)]
        else:
            lines.append(
                f"missing: {name}, for {folder} has no spectrum of {panel.recipe} by --method {panel.method}"
            )
    return lines


def draw(panel: Panel, records: Sequence[Record]) -> Figure:
    """The spectrum around zero, with the whole tails as insets, a colour for each run."""
    runs = list(zip(COLOURS * len(records), records, strict=False))
    with mpl.rc_context(STYLE):
        figure: Any = Figure(figsize=(8.0, 4.3 + 0.2 * math.ceil(len(records) / 2)), layout="constrained")
        centre = figure.subplots()
        for colour, record in runs:
            _stairs(centre, record, "centre", colour, label=_label(panel, record))
        edge = min(record["spectrum"]["histograms"]["centre"]["edges"][-1] for record in records)
        peak, top = _peak_and_top(records, edge)
        centre.set(xlim=(-edge, edge), yscale="log", ylim=(EMPTY, top))
        centre.set_yticks([10.0**decade for decade in range(math.ceil(math.log10(peak)) + 1)])
        centre.set_yticks([], minor=True)
        centre.set(xlabel="eigenvalue" if panel.method == "exact" else "entry", ylabel="number in a bin")
        for side, place in INSETS.items():
            tails = [run for run in runs if side in run[1]["spectrum"]["histograms"]]
            if tails:
                inset = centre.inset_axes(place)
                for colour, record in tails:
                    _stairs(inset, record, side, colour)
                inset.set(yscale="log", ylim=(EMPTY, None))
                inset.set_title(f"{side} tail, whole", fontsize="medium")
                inset.tick_params(labelsize="small")
                inset.locator_params(axis="x", nbins=4)
        for axes in (centre, *centre.child_axes):
            axes.ticklabel_format(axis="x", scilimits=(-3, 3), useMathText=True)
        title = f"{panel.title}: {records[0]['parameters']:,} weights, {_source(panel, records)}"
        figure.suptitle(title, parse_math=False)
        counted = f"share with |λ| < $10^{{{panel.exponent}}}$ and range"
        title = f"{counted}; in the paper: {panel.paper}"
        figure.legend(loc="outside lower center", ncols=2, frameon=False, title=title)
    return figure


def _stairs(axes: Any, record: Record, side: str, colour: str, label: str | None = None) -> None:
    histogram = record["spectrum"]["histograms"][side]
    counts = np.maximum(histogram["counts"], EMPTY)
    # Filled, so that single eigenvalues far out are seen; see-through, so that all runs are.
    axes.stairs(counts, histogram["edges"], baseline=EMPTY, fill=True, color=colour, alpha=0.25)
    axes.stairs(counts, histogram["edges"], baseline=EMPTY, color=colour, linewidth=0.9, label=label)


def _label(panel: Panel, record: Record) -> str:
    found = record["spectrum"]
    share = 100 * found["near_zero"][f"{10.0**panel.exponent:g}"]
    extremes = (f"{found[key]:.3g}".replace("-", "−") for key in ("minimum", "maximum"))
    return f"seed {record['seed']}: {share:.1f} %, {' to '.join(extremes)}"


def _source(panel: Panel, records: Sequence[Record]) -> str:
    """The data, and how many samples of them the loss was taken over."""
    sources = [
        # Adam's moments come from its last mini-batches, not from the samples of the loss.
        f"{record['samples']:,} samples of {record['data']}" if panel.method == "exact" else record["data"]
        for record in records
    ]
    return "; ".join(dict.fromkeys(sources))


def _peak_and_top(records: Sequence[Record], edge: float) -> tuple[float, float]:
    """The largest count, and a top of the axis so high that the insets cover nothing."""
    between = 1 - 2 * (1 - INSETS["positive"][0]) - 0.1  # the insets' tick labels need a place too
    peak = beside = 1.0
    for record in records:
        histogram = record["spectrum"]["histograms"]["centre"]
        counts, edges = np.array(histogram["counts"]), np.array(histogram["edges"])
        peak = max(peak, float(counts.max()))
        outer = np.maximum(np.abs(edges[:-1]), np.abs(edges[1:])) > between * edge
        beside = max(beside, float(counts[outer].max()))
    return peak, max(2 * peak, EMPTY * (beside / EMPTY) ** (1 / BELOW_INSETS))
