"""`entropy-sgd report` and `entropy-sgd valley`."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import tyro

from entropy_sgd.lab import LabError
from entropy_sgd.lab.cli.parse import direction, parse, several, some


@dataclass(frozen=True)
class Report:
    """Write one self-contained HTML page from the folders of runs, and its figures as PNG and PDF.

    They are written to ./report unless --out says otherwise; a report that is there is replaced.
    """

    runs: Annotated[tuple[Path, ...], tyro.conf.Positional, some("RUN")]
    """Folders of runs, or of comparisons."""
    out: Path = Path("report")
    """Folder for report.html and its figures; or a file's name, ending in .html, for the page alone."""
    measured: Annotated[tuple[Path, ...], several("FILE …")] = ()
    """Files, or folders of files, that spectrum, local-entropy and landscape wrote for these runs; a folder
    `measured` inside a run or comparison is always read."""
    maximize: bool = False
    """Higher is better: for the sentence at the head, with a metric of your own."""
    minimize: bool = False
    """Lower is better, as is known of error, loss, perplexity and nats."""


@dataclass(frozen=True)
class Valley:
    """Draw local entropy on the wide and the sharp valley of the paper's Fig. 2."""

    out: Path = Path("valley.png")
    """The picture to write."""


def report(arguments: list[str]) -> object:
    """Run `entropy-sgd report` with these arguments; the page."""
    options = parse(Report, arguments, "report")
    maximize = direction(options.maximize, options.minimize)
    if not options.runs:
        raise LabError("name at least one folder of a run: entropy-sgd report RUN…")

    from entropy_sgd.lab.report import write

    page = write(list(options.runs), options.out, options.measured, maximize=maximize)
    print(page)
    return {"report": page}


def valley(arguments: list[str]) -> object:
    """Run `entropy-sgd valley` with these arguments; the picture."""
    options = parse(Valley, arguments, "valley")

    if options.out.suffix not in (".png", ".svg", ".pdf"):
        raise LabError(f"--out must end in .png, .svg or .pdf, got {options.out}")

    from entropy_sgd.lab.valley import draw

    draw(options.out)
    print(options.out)
    return {"file": options.out}
