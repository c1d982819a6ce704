"""A spectrum in a few thousand numbers, so that evidence is small enough to keep and enough to draw from."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from entropy_sgd.lab.runs.records import Record
from entropy_sgd.landscape import SpectralDensity

THRESHOLDS = (1e-5, 1e-4, 1e-3, 1e-2)
"""Below which an eigenvalue counts as almost zero: the paper names 1e-5, 1e-4 and 1e-2 (Fig. 1 and 3)."""
TAIL = 200
"""Eigenvalues kept as they are at each end."""
QUANTILES = 1001
PER_DECADE = 20
LOWEST_DECADE = -12

Array = NDArray[np.float64]


def eigenvalues(values: Tensor) -> Record:
    """All of `values`, of any number and in any order, condensed.

    `histograms.symlog` holds every value: its bins have equal ratios from 1e-12 on in both directions and one
    bin between. The other three have equal widths: `centre` is where 99 % of the values are nearest to zero,
    `negative` and `positive` are the whole tails, from zero to the extreme.
    """
    sorted_: Array = np.sort(values.detach().cpu().double().numpy())
    magnitudes = np.abs(sorted_)
    low, high = float(sorted_[0]), float(sorted_[-1])
    centre = float(np.quantile(magnitudes, 0.99)) or float(magnitudes.max()) or 1.0
    histograms = {
        "symlog": _histogram(sorted_, symlog_edges(float(magnitudes.max()))),
        "centre": _histogram(sorted_, np.linspace(-centre, centre, 202)),  # one bin has zero in its middle
    }
    if low < 0:
        histograms["negative"] = _histogram(sorted_[sorted_ < 0], np.linspace(low, 0.0, 101))
    if high > 0:
        histograms["positive"] = _histogram(sorted_[sorted_ > 0], np.linspace(0.0, high, 101))
    return {
        "count": len(sorted_),
        "minimum": low,
        "maximum": high,
        "trace": float(sorted_.sum()),
        "negative": float((sorted_ < 0).mean()),
        "zero": float((sorted_ == 0).mean()),
        "near_zero": {f"{t:g}": float((magnitudes < t).mean()) for t in THRESHOLDS},
        "smallest": sorted_[:TAIL].tolist(),
        "largest": sorted_[-TAIL:].tolist(),
        "quantiles": np.quantile(sorted_, np.linspace(0.0, 1.0, QUANTILES)).tolist(),
        "histograms": histograms,
    }


def density(found: SpectralDensity) -> Record:
    """A density from Lanczos, condensed: what `eigenvalues` has as far as it can be known from it.

    Shares of the spectrum come with their standard error over the probes. `smoothed` is the density on a grid
    of equal steps; the bins of `histograms.symlog` hold shares times the number of parameters.
    """
    low, high = found.extremes
    nodes, weights = found.nodes.numpy(), found.weights.numpy()
    width = (high - low) / 200 or 1.0
    grid = np.linspace(low - 4 * width, high + 4 * width, 1001)
    smoothed: list[float] = found.density(torch.from_numpy(grid), width).tolist()  # pyright: ignore[reportUnknownVariableType]
    edges = symlog_edges(max(abs(low), abs(high)))
    return {
        **shares(found),
        "smoothed": {"from": float(grid[0]), "to": float(grid[-1]), "width": width, "density": smoothed},
        "histograms": {"symlog": _histogram(nodes, edges, found.dimension * weights)},
    }


def shares(found: SpectralDensity) -> Record:
    """Extremes, trace and shares of the spectrum alone."""
    low, high = found.extremes
    trace, trace_error = found.trace, found.trace_error
    below = {f"{t:g}": found.trace_of(lambda x, t=t: (x.abs() < t).double()) for t in THRESHOLDS}
    negative = found.trace_of(lambda x: (x < 0).double())
    n = found.dimension
    return {
        "count": n,
        "minimum": low,
        "maximum": high,
        "trace": trace,
        "trace_error": _or_none(trace_error),
        "negative": negative[0] / n,
        "negative_error": _or_none(negative[1] / n),
        "near_zero": {t: share / n for t, (share, _) in below.items()},
        "near_zero_error": {t: _or_none(error / n) for t, (_, error) in below.items()},
    }


def symlog_edges(largest: float) -> Array:
    """Edges of bins that reach to at least ±`largest`, in whole decades, symmetric about zero."""
    top = max(1, math.ceil(math.log10(largest))) if largest > 0 else 1
    positive = 10.0 ** (np.arange(LOWEST_DECADE * PER_DECADE, top * PER_DECADE + 1) / PER_DECADE)
    # 10^log10(largest) may round to just below it
    positive[-1] = max(float(positive[-1]), largest)
    return np.concatenate([-positive[::-1], positive])


def _histogram(values: Any, edges: Array, weights: Any = None) -> Record:
    counts = np.histogram(values, bins=edges, weights=weights)[0]
    return {"edges": edges.tolist(), "counts": counts.tolist()}


def _or_none(value: float) -> float | None:
    """JSON has no NaN: a single probe has no standard error."""
    return value if math.isfinite(value) else None
