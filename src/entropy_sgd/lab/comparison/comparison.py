"""Several methods and seeds at the same budget of gradient evaluations, resumable, and the table of it."""

from __future__ import annotations

from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, cast

from rich.console import Console

from entropy_sgd.lab import LabError, jobs
from entropy_sgd.lab.comparison.outcome import sentence
from entropy_sgd.lab.comparison.table import Row, forms, tabulate
from entropy_sgd.lab.jobs import lease
from entropy_sgd.lab.recipes import Recipe
from entropy_sgd.lab.runs import environment
from entropy_sgd.lab.runs.claim import CONFIG, Claim, holds_run
from entropy_sgd.lab.runs.folder import CHECKPOINTS, SUMMARY, Settings
from entropy_sgd.lab.runs.records import Record, mapping, write_json
from entropy_sgd.lab.terminal import prose, show
from entropy_sgd.lab.training import check
from entropy_sgd.lab.training.display import say

RESULT = "comparison.json"
KEPT = (*CHECKPOINTS, SUMMARY)
"""What a run has once there is something to keep of it."""


@dataclass(frozen=True)
class Comparison:
    """What decides a comparison; the first recipe is the baseline."""

    recipes: tuple[Recipe, ...]
    seeds: tuple[int, ...]
    final: bool = False

    def runs(self) -> list[tuple[str, Settings]]:
        """The folder and the settings of every run, seed by seed."""
        return [
            (f"{recipe.method}-seed{seed}", Settings(recipe, seed, self.final))
            for seed in dict.fromkeys(self.seeds)
            for recipe in self.recipes
        ]


def run(
    comparison: Comparison,
    path: Path,
    *,
    resume: bool = False,
    overwrite: bool = False,
    data_dir: Path | None = None,
    device: str = "auto",
    console: Console | None = None,
    at_once: int | None = 1,
    dask: str | None = None,
    maximize: bool | None = None,
) -> list[Row]:
    """Train what is not yet trained, print the table and write it to comparison.json.

    A run that diverges is a result: it is counted in the table, and the others go on; so they do when one
    fails, which is told at the end. `at_once` and `dask` are those of `jobs.run`: the table is the same.
    """
    if not comparison.recipes or not comparison.seeds:
        raise LabError("a comparison needs at least one method and one seed")
    console = console or Console()
    recipes = _fixed_threads(comparison.recipes, path, resume=resume)
    comparison = replace(comparison, recipes=recipes)
    settings = {
        "recipes": {recipe.name: asdict(recipe) for recipe in comparison.recipes},
        "seeds": list(comparison.seeds),
        "final": comparison.final,
    }
    with claimed(
        path,
        settings,
        [wanted for _, wanted in comparison.runs()],
        console,
        resume=resume,
        overwrite=overwrite,
        data_dir=data_dir,
        device=device,
    ) as claim:
        outcomes = jobs.run(
            [jobs.Job(path / name, wanted, data_dir, device) for name, wanted in comparison.runs()],
            path,
            at_once=at_once,
            dask=dask,
            console=console,
            ended=lambda outcome: claim.settle(),
        )
        failed = jobs.failures(outcomes)
        summaries = [outcome.summary for outcome in outcomes if outcome.summary is not None]
        if not summaries:
            raise failed or LabError("no run has a result")
        rows = _conclude(comparison, path, summaries, console, maximize)
        if failed is not None:
            raise failed
        return rows


def ours(path: Path) -> tuple[str, ...]:
    """All runs there, also those of seeds and methods that a comparison does not have, and its own files."""
    runs = [entry.name for entry in path.glob("*/") if entry.name[0] != "." and holds_run(entry)]
    return (*runs, RESULT, "report", lease.NAME, CONFIG)


def established(path: Path) -> bool:
    """Whether some run there has something to go on from."""
    return any(entry.parent.name[0] != "." for name in KEPT for entry in path.glob(f"*/{name}"))


@contextmanager
def claimed(
    path: Path,
    settings: Record,
    runs: Sequence[Settings],
    console: Console,
    *,
    resume: bool,
    overwrite: bool,
    data_dir: Path | None,
    device: str,
    ours: Callable[[Path], tuple[str, ...]] = ours,
) -> Generator[Claim]:
    """The folder of these runs, once all that can be wrong with them has been looked for."""
    # known networks, data and options are asked for before "already holds a run" is said
    for wanted in runs:
        check.names(wanted, data_dir=data_dir, device=device, present=not resume)
    claim = Claim(path, settings, resume=resume, overwrite=overwrite, ours=ours, established=established)
    for note in claim.notes:
        say(console, f"note: {note}")
    if not claim.continues:
        check.whole(runs, data_dir=data_dir, device=device)
    with claim:
        claim.begin(environment.describe())
        yield claim


def _conclude(
    comparison: Comparison, path: Path, summaries: list[Record], console: Console, maximize: bool | None
) -> list[Row]:
    """Write the table and print it."""
    rows = tabulate(summaries, [recipe.name for recipe in comparison.recipes])
    write_json(path / RESULT, {"rows": [asdict(row) for row in rows], "runs": summaries})
    at_most = any(recipe.stop_at_loss is not None for recipe in comparison.recipes)
    show(console, forms(rows, comparison.recipes[0].epochs, at_most=at_most))
    networks = {row.recipe.rpartition("/")[0] for row in rows}
    short = {row.recipe: row.recipe.rpartition("/")[2] for row in rows} if len(networks) == 1 else None
    prose(console, sentence(rows, short, maximize=maximize))
    say(console, f"runs and {RESULT}: {path}")
    return rows


def _fixed_threads(recipes: Sequence[Recipe], path: Path, *, resume: bool) -> tuple[Recipe, ...]:
    """The recipes with a number of threads; a comparison begun without one goes on as it was."""
    begun = mapping(path / CONFIG, "settings").get("recipes") if resume and holds_run(path) else None

    def without(recipe: Recipe) -> bool:
        there: Any = cast("Record", begun).get(recipe.name) if isinstance(begun, dict) else None
        return isinstance(there, dict) and cast("Record", there).get("threads") is None

    return tuple(recipe if without(recipe) else jobs.fixed_threads(recipe) for recipe in recipes)
