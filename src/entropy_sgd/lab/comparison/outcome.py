"""The outcome of a comparison in a sentence, from its table alone."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from entropy_sgd.lab import metrics
from entropy_sgd.lab.comparison.table import Row
from entropy_sgd.lab.metrics import LESS_IS_BETTER


def sentence(
    rows: Sequence[Row], names: Mapping[str, str] | None = None, *, maximize: bool | None = None
) -> str:
    """Which recipe was best and how it differs from the baseline, the first row; or that it cannot be told.

    `names` are what recipes are called in it. `maximize` says whether more of the metric is better; None:
    what is known of it.
    """

    def name(row: Row) -> str:
        return (names or {}).get(row.recipe, row.recipe)

    found = [row for row in rows if row.result is not None]
    text = _outcome(rows, found, name, maximize) if found else "No run has a result."
    diverged = [f"{_count(row.diverged, 'run')} of {name(row)}" for row in rows if row.diverged]
    return text + (f" Diverged: {', '.join(diverged)}." if diverged else "")


def _outcome(
    rows: Sequence[Row], found: Sequence[Row], name: Callable[[Row], str], maximize: bool | None
) -> str:
    kinds = {(row.part, row.metric) for row in found}
    if len(kinds) > 1:
        return "The runs have different metrics, so none is called best."
    part, key = kinds.pop()
    metric = metrics.get(key)
    first = found[0]

    def value(row: Row) -> str:
        assert row.result is not None
        return f"{metric.number(row.result.mean)}{metric.unit}"

    if len(found) == 1:
        assert first.result is not None
        return f"{name(first)}: {part} {key} {value(first)}{_over(first.result.count)}."
    if maximize is None and key not in LESS_IS_BETTER:
        listed = ", ".join(f"{name(row)} {metric.number(row.result.mean)}" for row in found if row.result)
        return f"Mean {part} {metric.label}: {listed}. Whether higher or lower is better is not known."
    choose, most = (max, "highest") if maximize else (min, "lowest")
    best = choose(found, key=lambda row: row.result.mean if row.result else 0.0)
    assert best.result is not None
    if len({row.result.mean for row in found if row.result}) == 1:
        return f"All {len(found)} have the same mean {part} {key}, {value(best)}{_over(best.result.count)}."
    lead = f"{name(best)} has the {most} {part} {key}, {value(best)}{_over(best.result.count)}"
    if rows[0].result is None:
        return f"{lead}; the baseline, {name(rows[0])}, has no result to compare with."
    if best is first:
        others = [row for row in found[1:] if row.result]
        rival = choose(others, key=lambda row: row.result.mean if row.result else 0.0)
        return f"{lead}; it is the baseline. Next is {name(rival)}, {_told(rival, metric, 'from it')}."
    return f"{lead}, {_told(best, metric, f'from the baseline {name(first)}')}."


def _told(row: Row, metric: metrics.Metric, whom: str) -> str:
    """The difference to the baseline, if it can be told."""
    difference = row.difference
    if difference is None:
        return f"but without a common seed no difference {whom} can be told"
    number = metric.number(difference.mean, "+")
    if difference.margin is None:
        return f"but no difference {whom} can be told from one seed ({number})"
    interval = f"{number} ± {metric.number(difference.margin)}"
    if abs(difference.mean) <= difference.margin:
        return f"but no difference {whom} can be told from {difference.pairs} seeds ({interval}, 95 %)"
    return f"a difference {whom} of {interval} (95 % interval, {difference.pairs} seeds)"


def _over(count: int) -> str:
    return f" (mean of {count} seeds)" if count > 1 else " (one seed)"


def _count(number: int, what: str) -> str:
    return f"{number} {what}{'' if number == 1 else 's'}"
