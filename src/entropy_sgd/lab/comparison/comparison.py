"""Several methods and seeds at the same budget of gradient evaluations, resumable, and the table of it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path

from rich.console import Console

from entropy_sgd.lab import LabError, jobs
from entropy_sgd.lab.comparison.outcome import sentence
from entropy_sgd.lab.comparison.table import Row, forms, tabulate
from entropy_sgd.lab.jobs import lease
from entropy_sgd.lab.recipes import Recipe
from entropy_sgd.lab.runs import environment
from entropy_sgd.lab.runs.folder import CONFIG, Settings, holds_run, prepare
from entropy_sgd.lab.runs.records import Record, read_json, write_json
from entropy_sgd.lab.terminal import prose, show
from entropy_sgd.lab.training.acceleration import require_compiler
from entropy_sgd.lab.training.display import say
from entropy_sgd.lab.training.processes import Processes

RESULT = "comparison.json"


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
) -> list[Row]:
    """Train what is not yet trained, print the table and write it to comparison.json.

    A run that diverges is a result: it is counted in the table, and the others go on; so they do when one
    fails, which is told at the end. `at_once` and `dask` are those of `jobs.run`: the table is the same.
    """
    if not comparison.recipes or not comparison.seeds:
        raise LabError("a comparison needs at least one method and one seed")
    console = console or Console()
    comparison = replace(comparison, recipes=_fixed_threads(comparison.recipes, path, resume=resume))
    if not resume:  # otherwise it may be that nothing is left to train
        for recipe in comparison.recipes:
            require_compiler(recipe, Processes().device(device))
    settings = {
        "recipes": {recipe.name: asdict(recipe) for recipe in comparison.recipes},
        "seeds": list(comparison.seeds),
        "final": comparison.final,
    }
    # all runs there, also those of seeds and methods that this comparison does not have
    runs = [entry.name for entry in path.glob("*/") if holds_run(entry)]
    ours = (*runs, RESULT, "report", lease.NAME, CONFIG)
    if not prepare(path, settings, resume=resume, overwrite=overwrite, ours=ours):
        write_json(path / CONFIG, {"settings": settings, "environment": environment.describe()})
    outcomes = jobs.run(
        [jobs.Job(path / name, run_settings, data_dir, device) for name, run_settings in comparison.runs()],
        path,
        at_once=at_once,
        dask=dask,
        console=console,
    )
    failed = jobs.failures(outcomes)
    summaries = [outcome.summary for outcome in outcomes if outcome.summary is not None]
    if not summaries:
        raise failed or LabError("no run has a result")
    rows = tabulate(summaries)
    write_json(path / RESULT, {"rows": [asdict(row) for row in rows], "runs": summaries})
    at_most = any(recipe.stop_at_loss is not None for recipe in comparison.recipes)
    show(console, forms(rows, comparison.recipes[0].epochs, at_most=at_most))
    networks = {row.recipe.rpartition("/")[0] for row in rows}
    short = {row.recipe: row.recipe.rpartition("/")[2] for row in rows} if len(networks) == 1 else None
    prose(console, sentence(rows, short))
    say(console, f"runs and {RESULT}: {path}")
    if failed is not None:
        raise failed
    return rows


def _fixed_threads(recipes: Sequence[Recipe], path: Path, *, resume: bool) -> tuple[Recipe, ...]:
    """The recipes with a number of threads; a comparison begun without one goes on as it was."""
    begun: Record = {}
    if resume and holds_run(path):
        begun = read_json(path / CONFIG)["settings"].get("recipes", {})
    return tuple(
        recipe
        if recipe.name in begun and begun[recipe.name].get("threads") is None
        else jobs.fixed_threads(recipe)
        for recipe in recipes
    )
