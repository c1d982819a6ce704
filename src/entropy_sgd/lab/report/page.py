"""The report: one HTML page that needs nothing but itself."""

from __future__ import annotations

import html
import re
from collections.abc import Sequence
from pathlib import Path

from entropy_sgd.lab import LabError
from entropy_sgd.lab.comparison.table import cells, tabulate
from entropy_sgd.lab.report import figures
from entropy_sgd.lab.runs.reading import Run, collect
from entropy_sgd.lab.runs.records import flatten, write_whole

NAME = "report.html"

STYLE = """
:root { color-scheme: light; }
body { font: 16px/1.5 system-ui, sans-serif; color: #1a1a1a; background: #fff; max-width: 72rem;
       margin: 2rem auto; padding: 0 1.5rem; }
h1 { font-size: 1.7rem; margin-bottom: .2rem; } h2 { font-size: 1.2rem; margin-top: 2.2rem; }
p.lead { color: #555; margin-top: 0; }
.wide { overflow-x: auto; }
table { border-collapse: collapse; font-size: .9rem; }
th, td { text-align: left; padding: .3rem .8rem .3rem 0; border-bottom: 1px solid #ddd; vertical-align: top; }
td { font-variant-numeric: tabular-nums; } td.same { color: #888; }
.figures { display: grid; grid-template-columns: repeat(auto-fit, minmax(22rem, 1fr)); gap: 1rem; }
figure { margin: 0; } figure svg { width: 100%; height: auto; }
"""


def write(paths: Sequence[Path], out: Path) -> Path:
    """Write the report of the runs in `paths` and return the page's path.

    `out` is a folder, for report.html and its figures as PNG and PDF; or the page itself, ending in .html.
    """
    runs = collect(paths)
    drawn = figures.draw(runs)
    alone = out.suffix == ".html"
    page = out if alone else out / NAME
    try:
        page.parent.mkdir(parents=True, exist_ok=True)
        if not alone:
            figures.save(drawn, out)
        text = render(runs, {key: figures.svg(figure) for key, figure in drawn.items()})
        write_whole(page, text.encode())
    except OSError as error:
        raise LabError(f"cannot write the report to {out}: {error}") from error
    return page


def render(runs: Sequence[Run], drawn: dict[str, str]) -> str:
    """The page, from the runs and the figures as SVG."""
    outcome = [{**run.summary, "recipe": run.label} for run in runs if run.summary is not None]
    unfinished = [str(run.path) for run in runs if run.summary is None]
    notes = [f"not finished, so not in the table: {', '.join(unfinished)}"] if unfinished else []
    notes += [str(summary["reason"]) for summary in outcome if summary["status"] == "diverged"]
    headings, lines = cells(tabulate(outcome)) if outcome else ([], [])
    drawings = {key: _isolate(key, svg) for key, svg in drawn.items()}
    results = "".join(text for key, text in drawings.items() if key not in figures.DIAGNOSTICS)
    diagnostics = "".join(text for key, text in drawings.items() if key in figures.DIAGNOSTICS)
    sections = [
        ("Results", _table(headings, lines) + "".join(f"<p>{html.escape(note)}</p>" for note in notes)),
        ("Curves", f'<div class="figures">{results}</div>'),
        ("Diagnostics", f'<div class="figures">{diagnostics}</div>'),
        ("Configuration", _columns({run.label: flatten(run.settings) for run in _one_of_each(runs)})),
        ("Environment", _columns({run.label: flatten(run.environment) for run in _one_of_each(runs)})),
        ("Runs", "<ul>" + "".join(f"<li>{html.escape(str(run.path))}</li>" for run in runs) + "</ul>"),
    ]
    body = "".join(f"<section><h2>{title}</h2>{content}</section>" for title, content in sections)
    lead = "Curves are drawn against effective epochs: gradient evaluations × batch / data size. "
    lead += "Validation is at the weights that each method judges: the outer weights x, or an average."
    title = html.escape(", ".join(dict.fromkeys(run.recipe for run in runs)))
    return (
        f'<!doctype html><html lang="en"><head><meta charset="utf-8"><title>{title}</title>'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f'<link rel="icon" href="data:,"><style>{STYLE}</style></head>'
        f'<body><h1>{title}</h1><p class="lead">{lead}</p>{body}</body></html>\n'
    )


def _one_of_each(runs: Sequence[Run]) -> list[Run]:
    """The first run under each label: they differ in nothing but the seed."""
    return list({run.label: run for run in reversed(runs)}.values())[::-1]


def _isolate(key: str, svg: str) -> str:
    """A figure whose identifiers do not clash with those of the other figures on the page."""
    svg = re.sub(r'(\bid="|url\(#|href="#)', rf"\g<1>{key}-", svg)
    return f'<figure role="img" aria-label="{html.escape(figures.panel(key).title)}">{svg}</figure>'


def _table(headings: Sequence[str], lines: Sequence[Sequence[str]]) -> str:
    head = "".join(f"<th>{html.escape(text)}</th>" for text in headings)
    rows = "".join(
        "<tr>" + "".join(f"<td>{html.escape(text)}</td>" for text in line) + "</tr>" for line in lines
    )
    return f'<div class="wide"><table><thead><tr>{head}</tr></thead><tbody>{rows}</tbody></table></div>'


def _columns(columns: dict[str, dict[str, object]]) -> str:
    """One column for each entry, one row for each key; rows where all agree are grey."""
    keys = list(dict.fromkeys(key for column in columns.values() for key in column))
    head = "".join(f"<th>{html.escape(text)}</th>" for text in ("", *columns))
    rows: list[str] = []
    for key in keys:
        values = ["" if column.get(key) is None else str(column[key]) for column in columns.values()]
        if not any(values):
            continue
        kind = ' class="same"' if len(columns) > 1 and len(set(values)) == 1 else ""
        cells_ = "".join(f"<td{kind}>{html.escape(value)}</td>" for value in values)
        rows.append(f"<tr><th>{html.escape(key)}</th>{cells_}</tr>")
    return (
        f'<div class="wide"><table><thead><tr>{head}</tr></thead><tbody>{"".join(rows)}</tbody></table></div>'
    )
