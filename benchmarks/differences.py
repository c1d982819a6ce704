"""Errors by seed: their mean, and the difference between two of them seed by seed."""

from __future__ import annotations

import math
import statistics

from entropy_sgd.lab.comparison.seeds import paired_difference


def mean(values: dict[int, float]) -> float:
    return statistics.fmean(values.values()) if values else math.inf


def less(values: dict[int, float], baseline: dict[int, float]) -> str:
    """The mean difference, seed by seed, with its 95 % interval."""
    found = paired_difference(values, baseline)
    if found is None:
        return ""
    return f"{found.mean:+.2f}" + ("" if found.margin is None else f" ± {found.margin:.2f}")
