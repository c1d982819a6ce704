"""The laboratory from Python: `train` and `compare`, as the commands of these names do it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import fields, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from entropy_sgd.lab import LabError, experiment, recipes, unknown
from entropy_sgd.lab.recipes import Drops, Family, Recipe
from entropy_sgd.lab.recipes.family import at_equal_budgets

if TYPE_CHECKING:
    from rich.console import Console

    from entropy_sgd.lab.comparison.table import Row

What = str | Path | Callable[[], Any]
"""A network of the paper's, a file FILE.py, or the function that makes an `Experiment`."""


def train(
    what: What,
    method: str,
    *,
    out: str | Path,
    seed: int = 0,
    budget: float | None = None,
    optimizer: Mapping[str, Any] | None = None,
    final: bool = False,
    resume: bool = False,
    overwrite: bool = False,
    data_dir: Path | None = None,
    device: str = "auto",
    keep_weights: int = 0,
    console: Console | None = None,
    **changes: Any,
) -> dict[str, Any]:
    """Train `what` by `method` in the folder `out` and return the summary.

    Args:
        what: the name of one of the paper's networks, the path of a file, or a function that makes an
            `Experiment`.
        method: one of `entropy_sgd.lab.methods.names()`.
        out: folder of the run.
        seed: decides initial weights, order of the data, dropout and thermal noise.
        budget: effective epochs into which the whole recipe is squeezed.
        optimizer: options of the method to change, such as `{"lr": 0.05}`.
        final: train on all the training data and read the test data once, at the end.
        resume: continue the run in the folder.
        overwrite: replace the run in the folder.
        data_dir: where the paper's data are.
        device: cpu, cuda, …; auto takes a GPU if there is one.
        keep_weights: number of points along the run at which to keep the evaluated weights, for
            `entropy-sgd landscape`.
        console: where to print; `rich.console.Console(quiet=True)` prints nothing.
        **changes: other fields of the recipe, such as `epochs=5` or `batch_size=64`.

    """
    from entropy_sgd.lab.runs.folder import RunFolder, Settings
    from entropy_sgd.lab.training import check
    from entropy_sgd.lab.training.trainer import train as run

    recipe = _changed(_family(what).recipe(method), optimizer, changes)
    settings = Settings(recipe if budget is None else recipe.stretched(budget), seed, final)
    check.names(settings, data_dir=data_dir, device=device, present=not resume)
    folder = RunFolder(Path(out), settings, resume=resume, overwrite=overwrite)
    return run(settings, folder, data_dir=data_dir, device=device, keep_weights=keep_weights, console=console)


def compare(
    what: What,
    methods: Sequence[str],
    *,
    out: str | Path,
    seeds: Sequence[int] = (0, 1, 2),
    budget: float | None = None,
    optimizers: Mapping[str, Mapping[str, Any]] | None = None,
    final: bool = False,
    resume: bool = False,
    overwrite: bool = False,
    data_dir: Path | None = None,
    device: str = "auto",
    jobs: int | None = 1,
    dask: str | None = None,
    maximize: bool | None = None,
    console: Console | None = None,
    **changes: Any,
) -> list[Row]:
    """Train `what` by each of `methods` at the same budget and return the rows of the table.

    Args:
        what: as for `train`.
        methods: the methods to compare, the baseline first.
        out: folder of the comparison.
        seeds: each decides the same initial weights and order of the data for all methods.
        budget: effective epochs of each run; by default the baseline's.
        optimizers: options to change, by method: `{"sgd": {"lr": 0.05}}`.
        final: as for `train`.
        resume: continue the comparison in the folder.
        overwrite: replace the comparison in the folder.
        data_dir: where the paper's data are.
        device: cpu, cuda, …; auto takes a GPU if there is one.
        jobs: runs at once, each in its own process; None: as many as there are cores. The results are
            bit-identical for any number.
        dask: address of a Dask scheduler, whose workers make the runs.
        maximize: whether more of a metric of your own is better, for the sentence under the table.
        console: where to print.
        **changes: other fields of all recipes.

    """
    from entropy_sgd.lab.comparison.comparison import Comparison, run

    family, own = _family(what), dict(optimizers or {})
    if foreign := own.keys() - set(methods):
        raise LabError(f"optimizers has options for {', '.join(foreign)}, which is not among the methods")
    chosen = [_changed(family.recipe(name), own.get(name), changes) for name in dict.fromkeys(methods)]
    return run(
        Comparison(tuple(at_equal_budgets(chosen, budget)), tuple(seeds), final),
        Path(out),
        resume=resume,
        overwrite=overwrite,
        data_dir=data_dir,
        device=device,
        at_once=jobs,
        dask=dask,
        maximize=maximize,
        console=console,
    )


def _family(what: What) -> Family:
    if isinstance(what, str) and not experiment.is_file(what):
        return recipes.family(what)
    return experiment.family(what)


def _changed(recipe: Recipe, optimizer: Mapping[str, Any] | None, changes: Mapping[str, Any]) -> Recipe:
    """The recipe with other options and fields; an unknown one is refused with the closest names."""
    options = recipe.optimizer
    for owner, given in ((options, optimizer or {}), (recipe, changes)):
        known = [field.name for field in fields(owner)]
        for name in given:
            if name not in known:
                raise unknown(f"option of {recipe.name}", name, known)
    if isinstance(changes.get("drops"), Mapping):
        changes = {**changes, "drops": Drops(**changes["drops"])}
    return replace(recipe, optimizer=replace(options, **(optimizer or {})), **changes)
