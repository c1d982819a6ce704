"""`entropy-sgd compare` and `entropy-sgd demo`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

from entropy_sgd.lab import LabError
from entropy_sgd.lab.cli import hints
from entropy_sgd.lab.cli.parse import check_jobs, direction, find, override, parse, recipe_list, several
from entropy_sgd.lab.recipes import Family, Recipe
from entropy_sgd.lab.recipes.family import at_equal_budgets


@dataclass(frozen=True)
class Compare:
    """Train by several methods, each with its own recipe, at the same budget of gradient evaluations.

    The first method is the baseline: the table gives the others' paired difference to it over the seeds.
    """

    methods: Annotated[tuple[str, ...], several("METHOD …", "--optimizers")] = ()
    """Methods to compare, the baseline first; by default those with a recipe of their own, or
    sgd, adam and entropy-sgd on your own file."""
    seeds: Annotated[tuple[int, ...], several("SEED …")] = (0, 1, 2)
    """Seeds; each gives all methods the same initial weights and order of the data."""
    budget: float | None = None
    """Effective epochs for each run, into which drops and scoping are squeezed; by default the baseline's."""
    set: Annotated[tuple[str, ...], several("[METHOD:]FIELD=VALUE …")] = ()
    """Fields of all recipes, or of one method's, to change: batch-size=64 sgd:optimizer.lr=0.05"""
    maximize: bool = False
    """Higher is better: for the sentence under the table, with a metric of your own."""
    minimize: bool = False
    """Lower is better, as is known of error, loss, perplexity and nats."""
    out: Path | None = None
    """Folder of the comparison; by default runs/compare-NETWORK."""
    final: bool = False
    """Train on all the training data, nothing held out, and read the test set once, at the end."""
    resume: bool = False
    """Continue the comparison in the folder where it stopped, perhaps with more seeds."""
    overwrite: bool = False
    """Replace the comparison in the folder."""
    data_dir: Path | None = None
    """Folder of the data; by default $ENTROPY_SGD_DATA, else the cache folder."""
    device: str = "auto"
    """cpu, cuda, cuda:1, …; auto takes a GPU if there is one."""
    jobs: int | None = None
    """Runs at once, each in its own process with one thread, unless --set threads=N; by default one per
    core, or one on a GPU. The results are bit-identical for any number."""
    dask: str | None = None
    """Address of a Dask scheduler, tcp://HOST:8786, whose workers make the runs; they share the folder."""

    def __post_init__(self) -> None:
        check_jobs(self.jobs)
        direction(self.maximize, self.minimize)
        twice = [seed for seed in dict.fromkeys(self.seeds) if self.seeds.count(seed) > 1]
        if twice:
            raise LabError(f"--seeds names {twice[0]} more than once: each seed is one run of each method")


@dataclass(frozen=True)
class Demo:
    """Compare SGD, Adam and Entropy-SGD on LeNet and 5,000 real digits, offline.

    The error of each, how flat its minima are, pictures of the loss around them, and a report.
    """

    out: Path = Path("runs/demo")
    """Folder of the comparison and its report; an interrupted demo there is continued."""
    overwrite: bool = False
    """Start over."""


def chosen_recipes(family: Family, options: Compare, what: str | None = None) -> list[Recipe]:
    """The recipes to compare, changed as asked and brought to the same budget.

    `what` is the family as it was typed, for messages.
    """
    names = options.methods or family.compared()
    chosen: list[Recipe] = []
    for name in dict.fromkeys(names):
        addressed = (address("--set", change, names, "FIELD=VALUE") for change in options.set)
        changes = [change for meant, change in addressed if meant in (None, name)]
        chosen.append(override(family.recipe(name), changes, what or family.name))
    return at_equal_budgets(chosen, options.budget)


def address(option: str, change: str, names: Sequence[str], form: str) -> tuple[str | None, str]:
    """The method, one of `names`, that [METHOD:]FIELD=VALUE is meant for, None for all; and FIELD=VALUE.

    `form` is what the user should have written.
    """
    target, colon, rest = change.partition(":")
    if "=" not in change:
        raise LabError(f"{option} takes {form} or METHOD:{form}, got {change!r}")
    if not colon or "=" in target:  # a value may hold a colon itself: data=text:FILE
        return None, change
    if target not in names:
        raise LabError(f"{option} {change}: {target!r} is not among the methods {', '.join(names)}")
    return target, rest


def compare(arguments: list[str]) -> object:
    """Run `entropy-sgd compare` with these arguments; what comparison.json holds."""
    if not arguments or arguments[0].startswith("-"):
        usage = "usage: entropy-sgd compare NETWORK [--methods …] [--seeds …] [OPTIONS]"
        if arguments and arguments[0] in ("-h", "--help"):
            then = "entropy-sgd compare NETWORK --help shows the options."
            print(hints.overview(usage, hints.of_compare("lenet"), then))
            return None
        raise LabError(f"the name of a network must come first. {usage}\n{recipe_list()}")
    family = find(arguments[0])  # an unknown network is refused before its options are read
    hints.refuse_fields(arguments[1:], Compare, family, "compare")
    described = hints.described(hints.of_compare(arguments[0]), Compare)
    options = parse(Compare, arguments[1:], f"compare {arguments[0]}", description=described)
    chosen = chosen_recipes(family, options, arguments[0])

    from entropy_sgd.lab.comparison.comparison import RESULT, Comparison, run
    from entropy_sgd.lab.runs.records import read_json

    out = options.out or Path("runs") / f"compare-{family.name}"
    run(
        Comparison(tuple(chosen), options.seeds, options.final),
        out,
        resume=options.resume,
        overwrite=options.overwrite,
        data_dir=options.data_dir,
        device=options.device,
        at_once=options.jobs,
        dask=options.dask,
        maximize=direction(options.maximize, options.minimize),
    )
    return {"folder": out, **read_json(out / RESULT)}


def demo(arguments: list[str]) -> object:
    """Run `entropy-sgd demo` with these arguments; the rows of the table and the report."""
    options = parse(Demo, arguments, "demo")

    from entropy_sgd.lab.demonstration import demonstrate

    rows, page = demonstrate(options.out, overwrite=options.overwrite)
    return {"folder": options.out, "rows": rows, "report": page}
