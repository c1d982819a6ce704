"""`entropy-sgd paper`, `paper run` and `paper keep`."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import tyro

from entropy_sgd.lab import LabError, unknown
from entropy_sgd.lab.cli.parse import check_jobs, parse, several, some

RESULTS = Path("results/paper")


@dataclass(frozen=True)
class Paper:
    """Show where the reproduction stands, and draw the paper's table and figures beside its own numbers.

    `entropy-sgd paper run [ROW …]` computes what is missing, `entropy-sgd paper keep RUN …` adds runs
    that were made elsewhere.
    """

    results: Path = RESULTS
    """Folder of the kept runs."""
    spectra: Path = Path("results/spectra")
    """Folder of the spectra for Fig. 1 and 3."""
    out: Annotated[tuple[Path, ...], several("FILE …")] = (Path("paper.html"),)
    """Pages to write: FILE.html is self-contained, FILE.md has its pictures in images/ beside it."""


@dataclass(frozen=True)
class Run:
    """Compute the missing runs of the paper's rows, in order.

    A run that was stopped continues. Each run that ends is kept as one small file.
    """

    rows: Annotated[tuple[str, ...], tyro.conf.Positional, several("[ROW …]")] = ()
    """Names of rows; by default all."""
    jobs: int | None = None
    """Runs at the same time, of one thread each; by default as many as there are cores."""
    results: Path = RESULTS
    """Folder for the kept runs, one small file each."""
    runs: Path = Path("runs/paper")
    """Folder for the runs themselves, with checkpoints and weights."""
    data_dir: Path | None = None
    """Folder of the data; by default $ENTROPY_SGD_DATA, else the cache folder."""
    device: str = "auto"
    """cpu, cuda, cuda:1, …; auto takes a GPU if there is one."""

    def __post_init__(self) -> None:
        check_jobs(self.jobs)


@dataclass(frozen=True)
class Keep:
    """Keep runs that were made elsewhere: one small file each, if they are runs of the paper's rows."""

    runs: Annotated[tuple[Path, ...], tyro.conf.Positional, some("RUN")]
    """Folders of runs that have ended."""
    results: Path = RESULTS
    """Folder for the files."""
    overwrite: bool = False
    """Replace a kept run with the same seed."""


def paper(arguments: list[str]) -> object:
    """Run `entropy-sgd paper` with these arguments; where it stands, or the files that were kept."""
    if not arguments or arguments[0].startswith("-"):
        return _show(arguments)
    if arguments[0] not in ACTIONS:
        raise unknown("paper action", arguments[0], ACTIONS)
    return ACTIONS[arguments[0]](arguments[1:])


def _show(arguments: list[str]) -> object:
    options = parse(Paper, arguments, "paper")

    from rich.console import Console

    from entropy_sgd.lab.paper import page
    from entropy_sgd.lab.paper.show import show
    from entropy_sgd.lab.paper.standing import records, stand

    page.check(options.out)
    standings = stand(options.results)
    if not options.results.is_dir():
        print(f"note: there is no {options.results} here: source checkouts have it; --results names another")
    show(Console(), standings)
    for path in options.out:
        print(page.write(standings, options.spectra, path))
    return {"entries": records(standings), "pages": options.out}


def _run(arguments: list[str]) -> object:
    options = parse(Run, arguments, "paper run")

    from entropy_sgd.lab.paper.rows import ROWS

    known = {row.name: row for row in ROWS}
    for name in options.rows:  # before torch is imported
        if name not in known:
            raise unknown("row of the paper", name, known)

    from entropy_sgd.lab.paper.running import run

    found = run(
        tuple(row for row in ROWS if row.name in (options.rows or known)),
        options.results,
        options.runs,
        at_once=options.jobs,
        data_dir=options.data_dir,
        device=options.device,
    )
    return {"kept": found}


def _keep(arguments: list[str]) -> object:
    options = parse(Keep, arguments, "paper keep")
    if not options.runs:
        raise LabError("name at least one folder of a run: entropy-sgd paper keep RUN…")

    from entropy_sgd.lab.paper.kept import keep
    from entropy_sgd.lab.runs.reading import read

    found = [keep(read(path), options.results, overwrite=options.overwrite) for path in options.runs]
    print("\n".join(map(str, found)))
    return {"kept": found}


ACTIONS = {"run": _run, "keep": _keep}
