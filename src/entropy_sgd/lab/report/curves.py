"""Curves over seeds: the mean of the runs of one label, its band, and the single runs."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from dataclasses import dataclass

from entropy_sgd.lab.runs.reading import Run

Series = tuple[list[float], list[float]]
"""Effective epochs and values."""


@dataclass(frozen=True)
class Curve:
    """One measurement of the runs of one label."""

    label: str
    place: int
    """Of the label among all, which decides its colour."""
    singles: list[Series]
    """Of each run."""
    epochs: list[float]
    """Where all of the runs have a value: the mean and the band are taken there."""
    mean: list[float]
    deviation: list[float] | None
    """Standard deviation over seeds; None for a single run."""


def names(runs: Sequence[Run]) -> dict[str, str]:
    """How each label is written: without the network, where all have the same."""
    labels = list(dict.fromkeys(run.label for run in runs))
    networks = {label.partition("/")[0] for label in labels}
    if len(networks) > 1 or len(labels) == 1:
        return {label: label for label in labels}
    return {label: label.partition("/")[2] or label for label in labels}


def curves(runs: Sequence[Run], key: str) -> list[Curve]:
    """A curve for each label that has the measurement `key`."""
    written = names(runs)
    found: list[Curve] = []
    for place, (label, name) in enumerate(written.items()):
        singles = [run.series(key) for run in runs if run.label == label]
        singles = [series for series in singles if series[0]]
        if not singles:
            continue
        # a step count times batch / data size lands a rounding error beside that of another run
        by_epoch = [{round(epoch, 6): value for epoch, value in zip(*s, strict=True)} for s in singles]
        common = sorted(set(by_epoch[0]).intersection(*by_epoch[1:]))
        values = [[one[epoch] for one in by_epoch] for epoch in common]
        found.append(
            Curve(
                name,
                place,
                singles,
                common,
                [statistics.fmean(each) for each in values],
                [statistics.stdev(each) for each in values] if len(singles) > 1 else None,
            )
        )
    return found
