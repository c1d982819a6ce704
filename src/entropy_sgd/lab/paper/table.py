"""The standing of all rows, Table 1 and Appendix C.1 as tables of text."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from entropy_sgd.lab import metrics, recipes
from entropy_sgd.lab.comparison.seeds import Spread
from entropy_sgd.lab.paper.entry import Row
from entropy_sgd.lab.paper.numbers import Number
from entropy_sgd.lab.paper.rows import TABLE_1
from entropy_sgd.lab.paper.standing import Standing, command
from entropy_sgd.lab.training.display import duration

NOT_RUN = "not run"


@dataclass(frozen=True)
class Table:
    """Headings and lines of text."""

    headings: tuple[str, ...]
    lines: tuple[tuple[str, ...], ...]


def progress(standings: Mapping[str, Standing], rows: tuple[Row, ...]) -> Table:
    """How many runs of each row are there."""
    lines: list[tuple[str, ...]] = []
    for row in rows:
        mine = [standings[entry.key] for entry in row.entries]
        wanted = sum(len(standing.entry.seeds) for standing in mine)
        missing = sum(len(standing.missing) for standing in mine)
        diverged = sum(standing.diverged for standing in mine)
        lines.append((row.name, row.title, f"{wanted - missing} of {wanted}", str(diverged or "")))
    return Table(("row", "", "runs", "diverged"), tuple(lines))


def row(row: Row, standings: Mapping[str, Standing]) -> Table:
    """One line for each entry of a row, and one more for each further number of the paper's."""
    lines: list[tuple[str, ...]] = []
    for entry in row.entries:
        standing = standings[entry.key]
        for index, number in enumerate(entry.paper or (None,)):
            part = standing.part if number is None else number.part
            lines.append(
                (
                    entry.what,
                    f"{part} {metrics.get(entry.recipe.metric).label}",
                    result(standing, part),
                    _seeds(standing),
                    "" if standing.epochs is None else f"{standing.epochs:.4g}",
                    "" if number is None else printed(number),
                    "" if number is None else f"{number.epochs:g}",
                    judgement(standing, number),
                    "" if index else _difference(standing),
                    "" if standing.seconds is None else duration(standing.seconds),
                )
            )
    headings = ("", "judged by", "mean ± sd", "seeds", "epochs", "the paper", "its epochs", "verdict")
    return Table((*headings, "difference (95 %)", "time per run"), tuple(lines))


def commands(row: Row) -> Table:
    """What makes one run of each entry by itself."""
    lines = tuple(
        (entry.what, _seed_list(entry.seeds), command(entry)) for entry in row.entries if entry.seeds
    )
    return Table(("", "seeds", "command"), lines)


def table_1(standings: Mapping[str, Standing]) -> Table:
    """Table 1, ours beside the paper's."""
    lines: list[tuple[str, ...]] = []
    for line in TABLE_1:
        cells = [line.model]
        for key in (line.ours, line.baseline):
            standing = standings[key]
            number = standing.entry.paper[0]
            epochs = "" if standing.epochs is None else f"{standing.epochs:.4g}"
            cells += [result(standing, number.part), epochs, printed(number), f"{number.epochs:g}"]
        lines.append(tuple(cells))
    rest = ("epochs", "the paper", "its epochs")
    return Table(("model", "Entropy-SGD", *rest, "SGD / Adam", *rest), tuple(lines))


def printed(number: Number) -> str:
    """As in the paper."""
    return f"{number.mean:g} ± {number.deviation:g}"


def result(standing: Standing, part: str) -> str:
    """Mean and standard deviation, or why there are none."""
    found = standing.result(part)
    if found is not None:
        return _spread(found, standing.entry.recipe.metric)
    return "diverged" if standing.runs else NOT_RUN


def judgement(standing: Standing, number: Number | None) -> str:
    """The verdict, and what limits it."""
    entry, said = standing.entry, list[str]()
    if not standing.runs:
        return NOT_RUN if number is not None or entry.seeds else ""
    if number is not None and (found := standing.verdict(number)) is not None:
        said.append(str(found))
    if number is not None and entry.apart:
        said.append(f"not compared: {entry.apart}")
    if standing.diverged:
        said.append(f"{standing.diverged} of {len(standing.runs)} diverged")
    elif len(standing.runs) == 1 and number is not None and not entry.apart:
        said.append("one seed")
    if standing.missing:
        said.append(f"{len(standing.missing)} of {len(entry.seeds)} seeds not run")
    said += _extrapolated(standing)
    return "; ".join(said)


def _extrapolated(standing: Standing) -> list[str]:
    """What a whole run would take, for one that was cut short, and the memory it held."""
    if not standing.entry.excerpt or standing.seconds is None or not standing.epochs:
        return []
    whole = recipes.get(standing.entry.recipe.name).epochs
    hours = standing.seconds / standing.epochs * whole / 3600
    said = [f"a whole run of {whole:g} epochs would take about {hours:.1f} hours at this speed"]
    peaks = [run.summary.get("peak_memory_bytes") or 0 for run in standing.finished]
    return [*said, f"{max(peaks) / 2**30:.1f} GiB of memory at most"] if max(peaks) else said


def _seeds(standing: Standing) -> str:
    if not standing.runs:
        return ""
    finished = str(len(standing.finished))
    return finished + (f" (+ {standing.diverged} diverged)" if standing.diverged else "")


def _spread(found: Spread, metric: str) -> str:
    how = metrics.get(metric)
    return how.number(found.mean) + ("" if found.deviation is None else f" ± {how.number(found.deviation)}")


def _difference(standing: Standing) -> str:
    found, metric = standing.difference, metrics.get(standing.entry.recipe.metric)
    if found is None:
        return ""
    margin = "" if found.margin is None else f" ± {metric.number(found.margin)}"
    mean = metric.number(found.mean, "+").replace("-", "−")
    return f"{mean}{margin} to {standing.entry.against}"


def _seed_list(seeds: tuple[int, ...]) -> str:
    return ", ".join(map(str, seeds))
