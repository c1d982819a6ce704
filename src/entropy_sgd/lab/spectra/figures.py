"""The paper's Fig. 1 and Fig. 3, from the files of `entropy-sgd spectrum` alone."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import matplotlib as mpl
import numpy as np
from matplotlib.figure import Figure

from entropy_sgd.lab.report.figures import COLOURS, STYLE, save
from entropy_sgd.lab.spectra import files
from entropy_sgd.lab.training.folder import Record


@dataclass(frozen=True)
class Panel:
    """One of the paper's pictures: which runs it shows, and what its caption counts."""

    title: str
    recipe: str
    method: str
    threshold: str
    """Below which the paper counts |λ| as almost zero."""


FIGURES = {
    "figure-1-small-lenet": Panel("small-LeNet, Hessian", "small-lenet/adam", "exact", "0.0001"),
    "figure-3a-small-mnistfc": Panel("small-mnistfc, Hessian", "small-mnistfc/sgd", "exact", "0.01"),
    "figure-3b-small-char-lstm": Panel("small char-LSTM, Hessian", "small-char-lstm/adam", "exact", "1e-05"),
    "figure-3c-allcnn": Panel("All-CNN, Fisher diagonal", "allcnn/adam", "fisher", "1e-05"),
}
SIDES = {"negative": "negative tail, whole", "centre": "around zero", "positive": "positive tail, whole"}


def write(folder: Path, out: Path) -> list[str]:
    """Draw what the files in `folder` allow into `out`; a line for each file written, or figure missing."""
    records = [record for record in files.read([folder]) if "spectrum" in record]
    lines: list[str] = []
    for name, panel in FIGURES.items():
        mine = [
            record
            for record in records
            if (record["recipe"], record["method"]) == (panel.recipe, panel.method)
        ]
        if mine:
            out.mkdir(parents=True, exist_ok=True)
            lines += [str(path) for path in save({name: draw(panel, mine)}, out)]
        else:
            lines.append(
                f"missing: {name}, for {folder} has no spectrum of {panel.recipe} by --method {panel.method}"
            )
    return lines


def draw(panel: Panel, records: Sequence[Record]) -> Figure:
    """The spectrum around zero between its two tails, a line for each run."""
    with mpl.rc_context(STYLE):
        figure: Any = Figure(figsize=(10.0, 3.6), layout="constrained")
        axes = dict(zip(SIDES, figure.subplots(1, 3, width_ratios=(1, 2, 1)), strict=True))
        for colour, record in zip(COLOURS * len(records), records, strict=False):
            found = record["spectrum"]
            # Adam's moments come from its last mini-batches, not from the samples of the loss
            source = record["data"]
            if panel.method == "exact":
                source = f"{record['samples']:,} samples of {source}"
            label = (
                f"seed {record['seed']}, {source}: "
                f"{100 * found['near_zero'][panel.threshold]:.1f} % with |λ| < {panel.threshold}, "
                f"smallest {found['minimum']:.2g}, largest {found['maximum']:.3g}"
            )
            for side, histogram in found["histograms"].items():
                if side in axes:
                    # a bin without eigenvalues has no place on a logarithmic axis: the line is broken there
                    counts = np.array(histogram["counts"], dtype=float)
                    counts[counts == 0] = np.nan
                    name = label if side == "centre" else None
                    axes[side].stairs(counts, histogram["edges"], color=colour, linewidth=1.2, label=name)
        for side, title in SIDES.items():
            axes[side].set(title=title, yscale="log", ylim=(0.5, None))
            axes[side].locator_params(axis="x", nbins=7 if side == "centre" else 4)
            axes[side].set_xlabel("eigenvalue" if panel.method == "exact" else "entry")
            if not axes[side].patches:
                axes[side].text(0.5, 0.5, "none", transform=axes[side].transAxes, ha="center")
                axes[side].set(xticks=[], yticks=[])
        axes["negative"].set_ylabel("number in a bin")
        figure.suptitle(f"{panel.title}, {records[0]['parameters']:,} weights")
        figure.legend(loc="outside lower center", frameon=False)
    return figure
