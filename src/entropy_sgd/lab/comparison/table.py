"""The table of a comparison, from the summaries of its runs: one row for each recipe."""

from __future__ import annotations

import textwrap
from collections.abc import Sequence
from dataclasses import dataclass

from entropy_sgd.lab import metrics
from entropy_sgd.lab.comparison.seeds import Difference, Spread, paired_difference, spread
from entropy_sgd.lab.runs.records import Record
from entropy_sgd.lab.terminal import Form
from entropy_sgd.lab.training.display import count, duration


@dataclass(frozen=True)
class Row:
    """One recipe over its seeds."""

    recipe: str
    metric: str
    part: str
    """`validation`, or `test` for final runs."""
    result: Spread | None
    """None if every run diverged or failed."""
    difference: Difference | None
    """To the first row, over common seeds; None for the first row itself."""
    seconds: float | None
    """Mean time of a run."""
    epochs: float | None
    """Mean effective epochs of a run."""
    diverged: int


def tabulate(summaries: Sequence[Record], order: Sequence[str] = ()) -> list[Row]:
    """One row per recipe, those in `order` first, then in the order in which they come.

    The first is the baseline, also if none of its runs has a summary because all failed.
    """
    rows: list[Row] = []
    baseline: dict[int, float] = {}
    for recipe in dict.fromkeys([*order, *(summary["recipe"] for summary in summaries)]):
        mine = [summary for summary in summaries if summary["recipe"] == recipe]
        finished = [summary for summary in mine if summary["status"] == "finished"]
        part = "test" if any(summary["final"] for summary in finished) else "validation"
        metric = finished[0]["metric"] if finished else ""
        values = {summary["seed"]: summary[part][metric] for summary in finished}
        if not rows:
            baseline = values
        comparable = not rows or (rows[0].part, rows[0].metric) == (part, metric)
        rows.append(
            Row(
                recipe=recipe,
                metric=metric,
                part=part,
                result=spread(list(values.values())) if values else None,
                difference=paired_difference(values, baseline) if rows and comparable else None,
                seconds=spread([summary["seconds"] for summary in finished]).mean if finished else None,
                epochs=spread([summary["epochs"] for summary in finished]).mean if finished else None,
                diverged=len(mine) - len(finished),
            )
        )
    return rows


def cells(rows: Sequence[Row]) -> tuple[list[str], list[list[str]]]:
    """Headings and text of the table."""
    measures = {f"{row.part} {metrics.get(row.metric).label}" for row in rows if row.result}
    what = measures.pop() if len(measures) == 1 else "result"
    headings = ["recipe", what, "sd", "seeds", "difference (95 %)", "epochs", "time"]
    lines: list[list[str]] = []
    for row in rows:
        if row.result is None:
            how = "diverged" if row.diverged else "failed"
            lines.append([row.recipe, how, "", str(row.diverged), "", "", ""])
            continue
        metric = metrics.get(row.metric)
        difference = ""
        if row.difference is not None:
            margin = row.difference.margin
            difference = metric.number(row.difference.mean, "+")
            difference += "" if margin is None else f" ± {metric.number(margin)}"
        lines.append(
            [
                row.recipe,
                metric.number(row.result.mean) + (f" {row.part} {metric.label}" if what == "result" else ""),
                "" if row.result.deviation is None else metric.number(row.result.deviation),
                str(row.result.count) + (f" (+ {row.diverged} diverged)" if row.diverged else ""),
                difference,
                "" if row.epochs is None else f"{row.epochs:.1f}",
                "" if row.seconds is None else duration(row.seconds),
            ]
        )
    return headings, lines


def forms(rows: Sequence[Row], epochs: float, *, at_most: bool = False) -> list[Form]:
    """The table for a terminal, from its widest form to its narrowest."""
    headings, lines = cells(rows)
    budget = f"{'at most ' if at_most else ''}{count(epochs, 'effective epoch')} each"
    network = {row.recipe.rpartition("/")[0] for row in rows}
    whole = Form(headings, lines, budget)
    if len(network) == 1:  # it is the same for all, so it goes into the title
        lines = [[line[0].rpartition("/")[2], *line[1:]] for line in lines]
        budget = f"{network.pop()}: {budget}"
    lines = [[line[0], f"{line[1]} ± {line[2]}" if line[2] else line[1], *line[3:]] for line in lines]
    what, difference = (
        "\n".join(textwrap.wrap(heading, 15))
        for heading in (f"{headings[1]} ±\u00a0sd", "difference (95\u00a0%)")
    )
    narrow = Form([headings[0], what, "seeds", difference, *headings[5:]], lines, budget)
    left_out = [
        Form(
            [text for i, text in enumerate(narrow.headings) if i not in without],
            [[text for i, text in enumerate(line) if i not in without] for line in lines],
            budget,
        )
        for without in ((4,), (4, 5), (2, 4, 5))  # epochs, which the title has; time; seeds
    ]
    return [whole, narrow, *left_out]
