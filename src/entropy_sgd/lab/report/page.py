"""The report: one self-contained HTML page without scripts."""

from __future__ import annotations

import html
from collections.abc import Mapping, Sequence
from pathlib import Path

from entropy_sgd.lab import LabError
from entropy_sgd.lab.comparison.outcome import sentence
from entropy_sgd.lab.comparison.table import Row, cells, tabulate
from entropy_sgd.lab.report import figures
from entropy_sgd.lab.report.curves import curves, names
from entropy_sgd.lab.report.measured import Measured, find
from entropy_sgd.lab.report.style import CSS
from entropy_sgd.lab.report.svg import svg, with_values
from entropy_sgd.lab.runs.reading import Run, collect
from entropy_sgd.lab.runs.records import flatten, write_whole

NAME = "report.html"
MARK = b"effective epochs"
"""In every report since 0.1.0: how a page of another origin is told from one that may be replaced."""


def write(
    paths: Sequence[Path], out: Path, measured: Sequence[Path] = (), *, maximize: bool | None = None
) -> Path:
    """Write the report of the runs in `paths` and return the page's path.

    `out` is a folder, for report.html and its figures as PNG and PDF; or the page itself, ending in .html. A
    report there is replaced, another page is not.
    `measured` are files, or folders of files, of spectra, local entropies and slices; those in a folder
    `measured` of `paths` are taken too. What was measured at the weights of other runs is passed over.
    `maximize` says whether more of the metric is better; None: what is known of it.
    """
    runs = collect(paths)
    found = find(paths, measured, runs)
    alone = out.suffix == ".html"
    page = out if alone else out / NAME
    try:
        if page.is_file() and MARK not in page.read_bytes():
            raise LabError(
                f"{page} is not a report of entropy-sgd, so it is not replaced: choose another --out"
            )
        page.parent.mkdir(parents=True, exist_ok=True)
        if not alone:
            figures.save({**figures.draw(runs), **found.figures()}, out)
        write_whole(page, render(runs, found, maximize).encode())
    except OSError as error:
        raise LabError(f"cannot write the report to {out}: {error}") from error
    return page


def render(runs: Sequence[Run], found: Measured, maximize: bool | None = None) -> str:
    """The page, from the runs and what was measured at their weights."""
    called = names(runs)
    rows = tabulate([{**run.summary, "recipe": run.label} for run in runs if run.summary is not None])
    drawn = {key: _curves(runs, key) for key in figures.keys(runs)}
    legend = _legend(list(called.values()))
    results = "".join(text for key, text in drawn.items() if key not in figures.DIAGNOSTICS)
    diagnostics = "".join(text for key, text in drawn.items() if key in figures.DIAGNOSTICS)
    sections = {
        "Results": _results(rows, runs, called),
        "Curves": f'{legend}<div class="figures">{results}</div>' if results else "",
        "Flatness": _flatness(found, called),
        "Landscape": _landscape(found),
        "Diagnostics": f'{legend}<div class="figures">{diagnostics}</div>' if diagnostics else "",
        "Configuration": _columns({called[run.label]: flatten(run.settings) for run in _one_of_each(runs)}),
        "Environment": _columns({called[run.label]: flatten(run.environment) for run in _one_of_each(runs)}),
        "Runs": _fold(
            f"{len(runs)} folder{'' if len(runs) == 1 else 's'}",
            '<ul class="runs">' + "".join(f"<li>{html.escape(str(run.path))}</li>" for run in runs) + "</ul>",
        ),
    }
    body = "".join(f"<section><h2>{title}</h2>{text}</section>" for title, text in sections.items() if text)
    title = html.escape(", ".join(dict.fromkeys(run.recipe.rpartition("/")[0] or run.recipe for run in runs)))
    outcome = html.escape(sentence(rows, called, maximize=maximize) if rows else "No run has finished yet.")
    return (
        f'<!doctype html><html lang="en"><head><meta charset="utf-8"><title>{title}: {outcome}</title>'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f'<link rel="icon" href="data:,"><style>{CSS}</style></head>'
        f'<body><h1>{title}</h1><p class="outcome">{outcome}</p><p class="lead">{_lead(runs)}</p>'
        f"{body}</body></html>\n"
    )


def _lead(runs: Sequence[Run]) -> str:
    seeds = sorted({run.settings["seed"] for run in runs})
    labels = dict.fromkeys(run.label for run in runs)
    counted = [
        f"{len(labels)} {'recipe' if len(labels) == 1 else 'recipes'}",
        f"{len(seeds)} {'seed' if len(seeds) == 1 else 'seeds'}",
    ]
    return (
        f"{', '.join(counted)}. Progress is counted in effective epochs, gradient evaluations × batch / data "
        "size. Every method is evaluated at the weights it is meant to produce: the outer weights x, an "
        "average, or the weights themselves."
    )


def _results(rows: Sequence[Row], runs: Sequence[Run], called: Mapping[str, str]) -> str:
    unfinished = [str(run.path) for run in runs if run.summary is None]
    notes = [f"not finished, so not in the table: {', '.join(unfinished)}"] if unfinished else []
    notes += [
        f"{called[run.label]}, seed {run.settings['seed']}, diverged: {run.summary.get('reason', '')}"
        for run in runs
        if run.summary is not None and run.summary["status"] == "diverged"
    ]
    text = ""
    if rows:
        headings, lines = cells(rows)
        lines = [[called.get(line[0], line[0]), *line[1:]] for line in lines]
        empty = [all(not line[i] for line in lines) for i in range(len(headings))]
        headings = [heading for heading, nothing in zip(headings, empty, strict=True) if not nothing]
        lines = [[cell for cell, nothing in zip(line, empty, strict=True) if not nothing] for line in lines]
        text = _table(headings, lines, baseline=len(rows) > 1)
    if any(row.difference is not None and row.difference.margin is not None for row in rows):
        notes.append(
            "Differences are to the baseline, seed by seed: their mean with a 95 % confidence interval of "
            "Student's t distribution, each for one comparison on its own."
        )
    return text + "".join(f'<p class="note">{html.escape(note)}</p>' for note in notes)


def _curves(runs: Sequence[Run], key: str) -> str:
    figure = figures.draw_one(runs, key, legend=False)
    return _figure(with_values(svg(figure, key), figure, curves(runs, key)), figures.panel(key).title)


def _figure(drawing: str, title: str, wide: bool = False) -> str:
    kind = ' class="wide"' if wide else ""
    return f'<figure{kind} role="img" aria-label="{html.escape(title)}">{drawing}</figure>'


def _legend(labels: Sequence[str]) -> str:
    entries: list[str] = []
    for place, label in enumerate(labels):
        dashes = ("solid", "dashed", "dotted")[place // len(figures.COLOURS) % 3]
        colour = f"var(--c{place % len(figures.COLOURS)})"
        entries.append(f'<li><i style="border-top: 3px {dashes} {colour}"></i>{html.escape(label)}</li>')
    return f'<ul class="legend">{"".join(entries)}</ul>'


def _flatness(found: Measured, called: Mapping[str, str]) -> str:
    if not found.flatness and not found.notes:
        return ""
    notes = "".join(f'<p class="note">{html.escape(note)}</p>' for note in found.notes)
    if not found.flatness:
        return notes
    said = f'<p class="said">{html.escape(found.sentence(called))}</p>'
    headings, first, rest = found.table(called)
    return (
        said
        + _table(headings, first)
        + notes
        + (_fold("More of the spectra", _table(headings, rest)) if rest else "")
    )


def _landscape(found: Measured) -> str:
    drawn = [_figure(svg(figure, key), key) for key, figure in found.figures(single=True).items()]
    captions = "".join(f'<p class="note">{html.escape(text)}</p>' for text in found.captions())
    return f'<div class="figures">{"".join(drawn)}</div>{captions}' if drawn else ""


def _one_of_each(runs: Sequence[Run]) -> list[Run]:
    """The first run under each label: they differ in nothing but the seed."""
    return list({run.label: run for run in reversed(runs)}.values())[::-1]


def _table(headings: Sequence[str], lines: Sequence[Sequence[str]], *, baseline: bool = False) -> str:
    """A table whose rows become cards on a narrow screen; with `baseline` the first row is marked as it."""
    head = "".join(f"<th>{html.escape(text)}</th>" for text in headings)
    rows: list[str] = []
    for i, line in enumerate(lines):
        kind = ' class="baseline"' if baseline and i == 0 else ""
        cells_ = "".join(
            f'<td data-of="{html.escape(heading)}"><span>{html.escape(text)}</span></td>'
            if text
            else "<td></td>"
            for heading, text in zip(headings[1:], line[1:], strict=True)
        )
        rows.append(f"<tr{kind}><th>{html.escape(line[0])}</th>{cells_}</tr>")
    return f"<table><thead><tr>{head}</tr></thead><tbody>{''.join(rows)}</tbody></table>"


def _fold(title: str, content: str) -> str:
    return f"<details><summary>{html.escape(title)}</summary>{content}</details>"


def _columns(columns: Mapping[str, Mapping[str, object]]) -> str:
    """One column for each entry, one row for each key: first where they differ, the rest folded."""
    keys = list(dict.fromkeys(key for column in columns.values() for key in column))
    headings = ["", *columns]
    different: list[list[str]] = []
    same: list[list[str]] = []
    for key in keys:
        values = ["" if column.get(key) is None else str(column[key]) for column in columns.values()]
        if len(set(values)) > 1:
            different.append([key, *values])
        elif values[0]:
            same.append([key, values[0]])
    common = "value" if len(columns) == 1 else "all alike"
    folded = _fold(
        f"{len(same)} {'entries' if len(columns) == 1 else 'entries that are the same'}",
        _table(["", common], same),
    )
    return (_table(headings, different) if different else "") + (folded if same else "")
