"""Computes what is missing of the rows: runs as jobs, and a small file of each that ends."""

from __future__ import annotations

import statistics
from collections.abc import Iterator, Mapping
from pathlib import Path

from rich.console import Console

from entropy_sgd.lab import Interrupted, jobs
from entropy_sgd.lab.jobs import Job, Outcome
from entropy_sgd.lab.jobs.progress import kind
from entropy_sgd.lab.paper.entry import Entry, Row
from entropy_sgd.lab.paper.kept import file_name, keep
from entropy_sgd.lab.paper.rows import ROWS
from entropy_sgd.lab.paper.standing import Standing, stand
from entropy_sgd.lab.runs.folder import Settings
from entropy_sgd.lab.runs.lock import Lock
from entropy_sgd.lab.runs.reading import read
from entropy_sgd.lab.training.display import say


def run(
    rows: tuple[Row, ...],
    results: Path,
    folder: Path,
    *,
    known: tuple[Row, ...] = ROWS,
    at_once: int | None = None,
    checkpoint_seconds: float = 30.0,
    data_dir: Path | None = None,
    device: str = "auto",
    console: Console | None = None,
) -> list[Path]:
    """Make the missing runs of `rows` in `folder`, in order, and keep each in `results` when it ends.

    A run that is kept is never made again, one that diverged included: it would diverge again. `known` are
    all rows that `results` may have runs of. Returns the files that were written.
    """
    console = console or Console()
    standings = stand(results, known)
    missing = [
        Job(
            folder / file_name(entry, seed).removesuffix(".json"),
            Settings(entry.recipe, seed, entry.final),
            data_dir=data_dir,
            device=device,
            checkpoint_seconds=checkpoint_seconds,
        )
        for entry, seed in _missing(rows, standings)
    ]
    if not missing:
        say(console, f"nothing is missing: every run is kept in {results}")
        return []
    kept: list[Path] = []

    def ended(outcome: Outcome) -> None:
        if outcome.summary is not None:
            kept.append(keep(read(outcome.job.folder), results, known))
            say(console, f"kept: {kept[-1]}")

    folder.mkdir(parents=True, exist_ok=True)
    held = Lock(folder)  # two of these commands would end each other's runs
    try:
        outcomes = jobs.run(
            missing, folder, at_once=at_once, console=console, ended=ended, speeds=_speeds(standings)
        )
    except Interrupted as error:  # this command always resumes
        raise Interrupted(error.signum, str(error).replace("--resume", "the same command")) from None
    finally:
        held.release()
    failed = jobs.failures(outcomes, again="the same command")
    if failed is not None:
        raise failed
    return kept


def _speeds(standings: Mapping[str, Standing]) -> dict[str, float]:
    """Seconds per epoch of the runs that are kept, by the kind of recipe, perhaps of another machine."""
    found: dict[str, list[float]] = {}
    for standing in standings.values():
        if standing.seconds is not None and standing.epochs:
            found.setdefault(kind(standing.entry.recipe), []).append(standing.seconds / standing.epochs)
    return {name: statistics.fmean(each) for name, each in found.items()}


def _missing(rows: tuple[Row, ...], standings: Mapping[str, Standing]) -> Iterator[tuple[Entry, int]]:
    for row in rows:
        for seed in sorted({seed for entry in row.entries for seed in entry.seeds}):
            for entry in row.entries:
                if seed in standings[entry.key].missing:
                    yield entry, seed
