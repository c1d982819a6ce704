"""Several methods and seeds at the same budget of gradient evaluations, resumable, and the table of it."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from pathlib import Path

from rich.console import Console

from entropy_sgd.lab import Diverged, LabError
from entropy_sgd.lab.comparison.outcome import sentence
from entropy_sgd.lab.comparison.table import Row, forms, tabulate
from entropy_sgd.lab.recipes import Recipe
from entropy_sgd.lab.runs import environment
from entropy_sgd.lab.runs.folder import CONFIG, RunFolder, Settings, holds_run, prepare
from entropy_sgd.lab.runs.records import Record, write_json
from entropy_sgd.lab.terminal import prose, show
from entropy_sgd.lab.training.acceleration import require_compiler
from entropy_sgd.lab.training.display import say
from entropy_sgd.lab.training.processes import Processes
from entropy_sgd.lab.training.trainer import train

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
) -> list[Row]:
    """Train what is not yet trained, print the table and write it to comparison.json.

    A run that diverges is a result: it is counted in the table, and the others go on.
    """
    if not comparison.recipes or not comparison.seeds:
        raise LabError("a comparison needs at least one method and one seed")
    console = console or Console()
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
    ours = (*runs, RESULT, "report", CONFIG)
    if not prepare(path, settings, resume=resume, overwrite=overwrite, ours=ours):
        write_json(path / CONFIG, {"settings": settings, "environment": environment.describe()})
    summaries: list[Record] = []
    for name, run_settings in comparison.runs():
        folder = RunFolder(path / name, run_settings, resume=True)
        try:
            summary = train(run_settings, folder, data_dir=data_dir, device=device, console=console)
        except Diverged as error:
            say(console, str(error))
            summary = folder.summary or {}
        summaries.append(summary)
    rows = tabulate(summaries)
    write_json(path / RESULT, {"rows": [asdict(row) for row in rows], "runs": summaries})
    at_most = any(recipe.stop_at_loss is not None for recipe in comparison.recipes)
    show(console, forms(rows, comparison.recipes[0].epochs, at_most=at_most))
    networks = {row.recipe.rpartition("/")[0] for row in rows}
    short = {row.recipe: row.recipe.rpartition("/")[2] for row in rows} if len(networks) == 1 else None
    prose(console, sentence(rows, short))
    say(console, f"runs and {RESULT}: {path}")
    return rows
