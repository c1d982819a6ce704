"""The paper's table and figures beside ours: one HTML page, or a page with pictures for the documentation."""

from __future__ import annotations

import base64
import html
import io
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import matplotlib as mpl
from matplotlib.figure import Figure

from entropy_sgd.lab import LabError
from entropy_sgd.lab.paper import figures, table
from entropy_sgd.lab.paper.entry import Row
from entropy_sgd.lab.paper.rows import ROWS
from entropy_sgd.lab.paper.standing import Standing
from entropy_sgd.lab.paper.table import Table
from entropy_sgd.lab.report.figures import STYLE
from entropy_sgd.lab.runs.records import write_whole

TITLE = "The paper's table and figures"
LEAD = (
    "Chaudhari et al., Entropy-SGD (ICLR 2017), beside this project's runs. Drawn by entropy-sgd paper from "
    "the files in results/paper."
)
TERMS = (
    "Epochs are effective epochs: gradient evaluations × batch / data size.",
    "A verdict is the difference of the means in standard errors (se) of that difference; it says "
    "“agrees” up to 2.",
    "Our standard error is s/√n over the seeds; for one or two seeds s is at least the paper's ±. That of "
    "the paper is its ± over √runs where it gives their number, else the ± itself.",
    "Differences between our own runs are paired, seed by seed.",
    "Runs that diverge are counted, not averaged. A run whose final loss is within 5 % of that of guessing "
    "counts as diverged: the network gives nearly every image the same answer.",
)
CSS = """
:root { color-scheme: light; }
body { font: 16px/1.5 system-ui, sans-serif; color: #1a1a1a; background: #fff; max-width: 80rem;
       margin: 2rem auto; padding: 0 1.5rem; }
h1 { font-size: 1.7rem; margin-bottom: .2rem; } h2 { font-size: 1.2rem; margin-top: 2.2rem; }
.wide { overflow-x: auto; } table { border-collapse: collapse; font-size: .85rem; }
th, td { text-align: left; padding: .3rem .8rem .3rem 0; border-bottom: 1px solid #ddd; vertical-align: top; }
td { font-variant-numeric: tabular-nums; } img { max-width: 100%; }
"""


@dataclass(frozen=True)
class Picture:
    """A figure of the page."""

    name: str
    title: str
    figure: Figure


Block = str | Table | Picture
Section = tuple[str, Sequence[Block]]
"""A heading and what is under it."""


def sections(
    standings: Mapping[str, Standing], measured: Path, rows: tuple[Row, ...] = ROWS
) -> list[Section]:
    """All of the page."""
    drawn = figures.draw(standings, measured)
    found: list[Section] = [("Where it stands", [table.progress(standings, rows)])]
    found.append(("Table 1", [table.table_1(standings)]))
    found += [(_heading(row), [table.row(row, standings)]) for row in rows]
    for name, figure in drawn.items():
        title = figures.TITLES[name]
        found.append((title, [f"{table.NOT_RUN}." if figure is None else Picture(name, title, figure)]))
    commands: list[Block] = []
    for row in rows:
        commands += [f"{_heading(row)}:", table.commands(row)]
    found.append(("Commands", commands))
    return found


def _heading(row: Row) -> str:
    """Its title; names of networks stay as they are."""
    return row.title if row.title.startswith(row.name) else row.title[0].upper() + row.title[1:]


def check(pages: Sequence[Path]) -> None:
    """Refuse a page of an unknown kind before anything is drawn."""
    for page in pages:
        if page.suffix not in (".html", ".md"):
            raise LabError(f"--out must end in .html or .md, got {page}")


def write(standings: Mapping[str, Standing], measured: Path, out: Path, rows: tuple[Row, ...] = ROWS) -> Path:
    """Write the page: complete in itself if `out` ends in .html, with pictures beside it if in .md."""
    check([out])
    content = sections(standings, measured, rows)
    try:
        out.parent.mkdir(parents=True, exist_ok=True)
        text = _html(content) if out.suffix == ".html" else _markdown(content, out)
        write_whole(out, text.encode())
    except OSError as error:
        raise LabError(f"cannot write the page to {out}: {error}") from error
    return out


def _html(content: Iterable[Section]) -> str:
    body = "".join(
        f"<section><h2>{html.escape(title)}</h2>{''.join(map(_html_block, blocks))}</section>"
        for title, blocks in content
    )
    terms = "".join(f"<li>{html.escape(term)}</li>" for term in TERMS)
    return (
        f'<!doctype html><html lang="en"><head><meta charset="utf-8"><title>{html.escape(TITLE)}</title>'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f'<link rel="icon" href="data:,"><style>{CSS}</style></head>'
        f"<body><h1>{html.escape(TITLE)}</h1><p>{html.escape(LEAD)}</p><ul>{terms}</ul>{body}</body></html>\n"
    )


def _html_block(block: Block) -> str:
    if isinstance(block, str):
        return f"<p>{html.escape(block)}</p>"
    if isinstance(block, Picture):  # an image of its own: identifiers of two figures do not clash
        stream = io.BytesIO()
        with mpl.rc_context({**STYLE, "svg.fonttype": "path"}):  # an image has no fonts of the page
            block.figure.savefig(stream, format="svg", metadata={"Date": None})
        data = base64.b64encode(stream.getvalue()).decode()
        return f'<img alt="{html.escape(block.title)}" src="data:image/svg+xml;base64,{data}">'
    head = "".join(f"<th>{html.escape(text)}</th>" for text in block.headings)
    lines = "".join(
        "<tr>" + "".join(f"<td>{html.escape(text)}</td>" for text in line) + "</tr>" for line in block.lines
    )
    return f'<div class="wide"><table><thead><tr>{head}</tr></thead><tbody>{lines}</tbody></table></div>'


def _markdown(content: Iterable[Section], out: Path) -> str:
    """The same for a folder of documentation; figures are PNG files in its images/."""
    parts = [f"# {TITLE}", LEAD, "\n".join(f"- {term}" for term in TERMS)]
    for title, blocks in content:
        parts += [f"## {title}", *(_markdown_block(block, out.parent / "images") for block in blocks)]
    return "\n\n".join(parts) + "\n"


def _markdown_block(block: Block, images: Path) -> str:
    if isinstance(block, str):
        return block
    if isinstance(block, Picture):
        images.mkdir(parents=True, exist_ok=True)
        path = images / f"{block.name}.png"
        with mpl.rc_context(STYLE):
            block.figure.savefig(path, dpi=160)
        return f"![{block.title}](images/{path.name})"
    lines = (block.headings, ("---",) * len(block.headings), *block.lines)
    return "\n".join("| " + " | ".join(text.replace("|", "\\|") for text in line) + " |" for line in lines)
