"""Pictures of slices, from their records alone."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import matplotlib as mpl
import numpy as np
from matplotlib import colors
from matplotlib.figure import Figure
from matplotlib.ticker import NullLocator

from entropy_sgd.lab.report.figures import COLOURS, STYLE, logarithmic_ticks, plain, small_numbers
from entropy_sgd.lab.runs.records import Record

LEVELS = 14
SIZE = (4.2, 3.2)
"""Of one panel, in inches."""


def name(record: Record, labels: Mapping[str, str] | None = None) -> str:
    """The runs of a slice in words; `labels` name runs by the SHA-256 of their weights."""
    words = [
        f"{(labels or {}).get(run['weights_sha256'], run['recipe'])}, seed {run['seed']}"
        for run in record["runs"]
    ]
    return " to ".join(words)


def barrier(record: Record) -> float:
    """How far the loss rises above the straight line between its two ends (0 for none)."""
    where, loss = _array(record["slice"]["positions"]), _array(record["slice"]["loss"])
    interpolate: Any = np.interp
    start, end = (float(interpolate(at, where, loss)) for at in (0.0, 1.0))
    inside = (where >= 0) & (where <= 1)
    rise: Any = loss[inside] - ((1 - where[inside]) * start + where[inside] * end)
    return max(0.0, float(np.nanmax(rise)))


def line(record: Record, labels: Mapping[str, str] | None = None) -> Figure:
    """Loss, and error where there is one, from one run's weights to another's."""
    found = record["slice"]
    with mpl.rc_context(STYLE):
        figure: Any = Figure(figsize=SIZE, layout="constrained")
        rows = 1 if found["error"] is None else 2
        panels = figure.subplots(rows, 1, sharex=True, squeeze=False)[:, 0]
        for axes, key, axis, factor in zip(
            panels, ("loss", "error"), ("training loss", "training error, %"), (1, 100), strict=False
        ):
            axes.plot(found["positions"], factor * _array(found[key]), color=COLOURS[0], linewidth=1.8)
            for end in (0.0, 1.0):
                axes.axvline(end, color="black", linewidth=0.8, alpha=0.4)
            axes.set_ylabel(axis)
        panels[0].set_title("Loss from one run to another")
        ends = [plain(name({"runs": [run]}, labels)) for run in record["runs"]]
        panels[-1].set_xticks([0, 0.5, 1], [ends[0], "", ends[1]], parse_math=False)
        panels[-1].grid(False, axis="x")
    return figure


def limits(records: Sequence[Record]) -> tuple[float, float]:
    """The lowest and the highest loss of these planes, for colours that compare; a zero has no logarithm."""
    losses = [_array(record["slice"]["loss"]) for record in records]
    high = max(float(np.nanmax(loss)) for loss in losses)
    low = max(min(float(np.nanmin(loss)) for loss in losses), high * 1e-4, 1e-12)
    return low, max(high, 1.001 * low)


def planes(
    records: Sequence[Record],
    labels: Mapping[str, str] | None = None,
    shared: tuple[float, float] | None = None,
) -> Figure:
    """The loss on one plane or several, side by side, with the same colours for the same loss."""
    low, high = shared or limits(records)
    levels = np.geomspace(low, high, LEVELS)
    norm = colors.LogNorm(low, high)
    with mpl.rc_context(STYLE):
        width = SIZE[0] if len(records) == 1 else 3.1 * len(records) + 0.8
        figure: Any = Figure(figsize=(width, SIZE[1]), layout="constrained")
        panels = figure.subplots(1, len(records), squeeze=False)[0]
        drawn: Any = None
        for axes, record in zip(panels, records, strict=True):
            found = record["slice"]
            loss = _array(found["loss"])
            # rows are the first direction: it goes to the right
            x, y, z = found["first"], found["second"], np.clip(loss.T, low, high)
            drawn = axes.contourf(x, y, np.ma.masked_invalid(z), levels, norm=norm, cmap="viridis_r")
            axes.contour(x, y, np.ma.masked_invalid(z), levels, norm=norm, colors="white", linewidths=0.3)
            if "coordinates" in found:
                way = np.array(found["coordinates"])
                axes.plot(*way.T, color="#d55e00", marker="o", markersize=2.5, linewidth=1.2)
                first, second = (f"{100 * share:.0f} %" for share in found["shares"])
                axes.set(xlabel=f"first direction, {first}", ylabel=f"second direction, {second}")
            else:
                axes.set(xlabel="first direction", aspect="equal")
                axes.set_ylabel("second direction" if axes is panels[0] else "")
            axes.plot(0, 0, marker="+", color="#d55e00", markersize=9, markeredgewidth=1.8)
            axes.set_title(plain(name(record, labels)), fontsize="medium", parse_math=False)
            axes.grid(False)
        bar = figure.colorbar(drawn, ax=list(panels), ticks=_ticks(low, high), shrink=0.9)
        bar.ax.yaxis.set_major_formatter(small_numbers)
        bar.ax.yaxis.set_minor_locator(NullLocator())
        bar.set_label("training loss")
    return figure


def profile(records: Sequence[Record], labels: Mapping[str, str] | None = None) -> Figure:
    """The loss against the distance from each run's weights: mean and range over the rings of its plane."""
    known = list(dict.fromkeys((labels or {}).values()))
    with mpl.rc_context(STYLE):
        figure: Any = Figure(figsize=SIZE, layout="constrained")
        axes = figure.subplots()
        for i, record in enumerate(records):
            digest = record["runs"][0]["weights_sha256"]
            place = known.index(labels[digest]) if labels and digest in labels else i
            colour = COLOURS[place % len(COLOURS)]
            distance, mean, low, high = rings(record)
            label = plain(name(record, labels))
            axes.plot(distance, mean, color=colour, linewidth=1.8, label=label)
            axes.fill_between(distance, low, high, color=colour, alpha=0.15, linewidth=0)
        axes.set(title="Loss around each minimum", xlabel="distance from the weights, in their own length")
        axes.set_ylabel("training loss")
        low, high = limits(records)
        logarithmic_ticks(axes, high / low)
        for text in axes.legend(frameon=False, fontsize="small").get_texts():
            text.set_parse_math(False)
    return figure


def rings(record: Record) -> tuple[Any, Any, Any, Any]:
    """Distance, mean, lowest and highest loss of the rings around the middle of a plane.

    A ring is as wide as the grid is fine; those that the plane does not hold whole are left out.
    """
    found = record["slice"]
    first, second = np.array(found["first"]), np.array(found["second"])
    step = max(float(np.diff(first).max()), float(np.diff(second).max()))
    radius = np.hypot(first[:, None], second[None, :])
    whole = min(abs(first[0]), first[-1], abs(second[0]), second[-1])
    index = np.rint(radius / step).astype(int)
    loss = _array(found["loss"])
    inside = np.isfinite(loss) & (radius <= whole + step / 2) & (loss > 0)
    kept = [k for k in range(int(index.max()) + 1) if (inside & (index == k)).any()]
    groups = [loss[inside & (index == k)] for k in kept]
    return (
        [float(radius[inside & (index == k)].mean()) for k in kept],
        [float(group.mean()) for group in groups],
        [float(group.min()) for group in groups],
        [float(group.max()) for group in groups],
    )


def _array(values: Any) -> Any:
    """Numbers, with NaN where there was none."""
    return np.array(values, dtype=float)


def _ticks(low: float, high: float) -> list[float]:
    """Powers of ten, and their halves and doubles where there are few."""
    decades = range(math.floor(math.log10(low)), math.ceil(math.log10(high)) + 1)
    tens = [10.0**k for k in decades if low <= 10.0**k <= high]
    fine = [m * 10.0**k for k in decades for m in (1, 2, 5) if low <= m * 10.0**k <= high]
    return tens if len(tens) > 2 else fine
