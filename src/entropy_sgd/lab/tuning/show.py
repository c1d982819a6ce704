"""What a search found: tables that fit 80 columns, and the figure of error against learning rate."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Column, Table

from entropy_sgd.lab import methods, metrics
from entropy_sgd.lab.training.display import count, say
from entropy_sgd.lab.tuning.edges import edges
from entropy_sgd.lab.tuning.tuning import Found, Trial, Tuning


def table(found: Sequence[Found], tuning: Tuning) -> Table:
    """The trials: a row for each method, in the order given."""
    metric = metrics.get(tuning.recipes[0].metric)
    rows = Table(
        Column("method", no_wrap=True),
        Column("best", justify="right"),
        Column("median", justify="right"),
        Column("failed", justify="right"),
        Column("learning rate of the best"),
        title=f"validation {metric.label}: {count(tuning.trials, 'trial')} of each method, "
        f"{count(tuning.recipes[0].epochs, 'effective epoch')} each",
    )
    for each in found:
        values = [trial.value for trial in each.trials if trial.value is not None]
        rows.add_row(
            each.method,
            _result(each.centre, metric),
            metric.number(statistics.median(values)) if values else "",
            _failed(each.trials),
            _rate(each.centre),
        )
    return rows


def rates_table(found: Sequence[Found], tuning: Tuning) -> Table:
    """The best trial of each method, and its settings at other learning rates."""
    metric = metrics.get(tuning.recipes[0].metric)
    rows = Table(
        Column("method", no_wrap=True),
        Column("best", justify="right"),
        Column("failed", justify="right"),
        Column("best learning rate"),
        Column(f"rates within {tuning.within:g}x", no_wrap=True),
        title=f"the best trials at {count(tuning.rates, 'other learning rate')}",
    )
    for each in found:
        works = "" if each.works is None else each.works.text()
        rows.add_row(each.method, _result(each.best, metric), _failed(each.rates), _rate(each.best), works)
    return rows


def _result(trial: Trial | None, metric: metrics.Metric) -> str:
    return "none" if trial is None or trial.value is None else metric.number(trial.value)


def _failed(trials: Sequence[Trial]) -> str:
    lost = sum(trial.value is None for trial in trials)
    return str(lost) if lost else ""


def _rate(trial: Trial | None) -> str:
    if trial is None:
        return ""
    return f"{methods.get(trial.method).rate.replace('_', '-')} {trial.rate:.3g}"


def show(console: Console, found: Sequence[Found], tuning: Tuning) -> None:
    """Print the tables, what lies at an edge of what was searched, and what went wrong."""
    console.print(table(found, tuning))
    if tuning.rates:
        console.print(rates_table(found, tuning))
    for each in found:
        reasons = {reason.partition("\n")[0] for trial in each.trials for reason in trial.troubles}
        troubles = [f"{each.method}: {reason}" for reason in sorted(reasons)]
        for line in (*edges(each, tuning.space(each.method)), *troubles):
            say(console, line)


def draw(found: Sequence[Found], tuning: Tuning, paths: Sequence[Path]) -> None:
    """Error against learning rate: the best settings as a line, all other trials as dots."""
    from matplotlib.figure import Figure

    metric = metrics.get(tuning.recipes[0].metric)
    figure = Figure(figsize=(7, 4.5), layout="constrained")
    axes: Any = figure.subplots()
    for index, each in enumerate(found):
        colour = f"C{index % 10}"
        dots = [(trial.rate, trial.value) for trial in each.trials if trial.value is not None]
        if dots:
            axes.plot(*zip(*dots, strict=True), ".", color=colour, alpha=0.35)
        if each.best is not None:
            line = [(trial.rate, trial.value) for trial in each.line() if trial.value is not None]
            name = methods.get(each.method).rate
            label = each.method if name == "lr" else f"{each.method}, {name}"
            axes.plot(*zip(*line, strict=True), "o-", color=colour, markersize=4, label=label)
            axes.plot(each.best.rate, each.best.value, "o", color=colour, markersize=8, fillstyle="none")
        _mark_lost(axes, [*each.trials, *each.rates], colour)
    axes.set_xscale("log")
    if metric.logarithmic:
        axes.set_yscale("log")
        for ticks in (axes.yaxis.set_major_formatter, axes.yaxis.set_minor_formatter):
            ticks("{x:g}")
    axes.set_xlabel("learning rate")
    axes.set_ylabel(f"validation {metric.label}", parse_math=False)
    axes.set_title(
        f"{tuning.recipes[0].epochs:g} effective epochs; lines: the best settings at other rates", fontsize=9
    )
    if axes.get_legend_handles_labels()[0]:
        axes.legend(fontsize=8)
    for path in paths:
        figure.savefig(path, dpi=150)


def _mark_lost(axes: Any, trials: Sequence[Trial], colour: str) -> None:
    """Trials without a result, as crosses on the upper edge."""
    rates = [trial.rate for trial in trials if trial.value is None]
    upper = axes.get_xaxis_transform()  # x in data, y from 0 to 1
    axes.plot(rates, [0.99] * len(rates), "x", color=colour, transform=upper, clip_on=False)
