"""Statistics over seeds: mean, standard deviation, paired differences with their uncertainty."""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class Spread:
    """Mean and sample standard deviation; the latter is None for a single value."""

    mean: float
    deviation: float | None
    count: int


@dataclass(frozen=True)
class Difference:
    """Mean of paired differences and half its 95 % confidence interval, the latter None for one pair."""

    mean: float
    margin: float | None
    pairs: int


def spread(values: Sequence[float]) -> Spread:
    """Mean and standard deviation of at least one value."""
    return Spread(
        statistics.fmean(values), statistics.stdev(values) if len(values) > 1 else None, len(values)
    )


def paired_difference(values: dict[int, float], baseline: dict[int, float]) -> Difference | None:
    """Mean over the common seeds of value - baseline, with Student's t interval; None if no seed is common.

    A seed gives both methods the same initial weights and order of the data, so that much of what varies
    between seeds cancels in the difference.
    """
    differences = [values[seed] - baseline[seed] for seed in values if seed in baseline]
    if not differences:
        return None
    if len(differences) == 1:
        return Difference(differences[0], None, 1)
    from scipy import stats  # pyright: ignore[reportMissingTypeStubs]  # imported late: it takes a moment

    count = len(differences)
    quantile = float(stats.t.ppf(0.975, count - 1))  # pyright: ignore
    return Difference(
        statistics.fmean(differences), quantile * statistics.stdev(differences) / math.sqrt(count), count
    )
