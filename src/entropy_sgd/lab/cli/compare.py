"""`entropy-sgd compare` and `entropy-sgd demo`."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import tyro

from entropy_sgd.lab import LabError, recipes
from entropy_sgd.lab.cli.parse import override, parse, recipe_list
from entropy_sgd.lab.recipes import Recipe


@dataclass(frozen=True)
class Compare:
    """Train several optimizers, each by its own recipe, at the same budget of gradient evaluations.

    The first optimizer is the baseline: the table gives the others' paired difference to it over the seeds.
    """

    optimizers: tuple[str, ...] = ()
    """Optimizers of the recipes to compare, the baseline first; by default all there are."""
    seeds: tuple[int, ...] = (0, 1, 2)
    """Seeds; each decides the same initial weights and order of the data for all optimizers."""
    budget: float | None = None
    """Effective epochs for each run, into which drops and scoping are squeezed; by default the baseline's."""
    set: Annotated[tuple[str, ...], tyro.conf.arg(metavar="[OPTIMIZER:]FIELD=VALUE …")] = ()
    """Fields of all recipes, or of one optimizer's, to change: batch-size=64 sgd:optimizer.lr=0.05"""
    out: Path | None = None
    """Folder of the comparison; by default runs/compare-NETWORK."""
    final: bool = False
    """Train on all the training data, nothing held out, and read the test set once, at the end."""
    resume: bool = False
    """Continue the comparison in the folder where it stopped."""
    overwrite: bool = False
    """Replace the comparison in the folder."""
    data_dir: Path | None = None
    """Where the data lie; by default $ENTROPY_SGD_DATA, else the cache folder."""
    device: str = "auto"
    """cpu, cuda, cuda:1, …; auto takes a GPU if there is one."""


@dataclass(frozen=True)
class Demo:
    """Compare SGD, Adam and Entropy-SGD on LeNet and 5,000 real digits, offline, and write a report."""

    out: Path = Path("runs/demo")
    """Folder of the comparison and its report; a demonstration stopped there is continued."""
    overwrite: bool = False
    """Begin anew."""


def chosen_recipes(family: str, options: Compare) -> list[Recipe]:
    """The recipes to compare, changed as asked and brought to the same budget."""
    names = options.optimizers or tuple(recipes.optimizers(family))
    chosen: list[Recipe] = []
    for name in dict.fromkeys(names):
        changes: list[str] = []
        for change in options.set:
            target, colon, rest = change.partition(":")
            if "=" not in change:
                raise LabError(f"--set takes FIELD=VALUE or OPTIMIZER:FIELD=VALUE, got {change!r}")
            if not colon or "=" in target:  # a value may hold a colon itself: data=text:FILE
                changes.append(change)
            elif target not in names:
                raise LabError(f"--set {change}: {target!r} is not among the optimizers {', '.join(names)}")
            elif target == name:
                changes.append(rest)
        chosen.append(override(recipes.get(f"{family}/{name}"), changes, f"compare {family} --set"))
    sizes = {recipe.batch_size for recipe in chosen}
    if len(sizes) > 1:
        raise LabError(f"equal budgets of gradients need equal batches, got sizes {sorted(sizes)}")
    budget = options.budget if options.budget is not None else chosen[0].epochs
    return [recipe.stretched(budget) for recipe in chosen]


def compare(arguments: list[str]) -> None:
    """Run `entropy-sgd compare` with these arguments."""
    if not arguments or arguments[0].startswith("-"):
        usage = "usage: entropy-sgd compare NETWORK [--optimizers …] [--seeds …] [OPTIONS]"
        if arguments and arguments[0] in ("-h", "--help"):
            print(f"{usage}\n\n{recipe_list()}\n\nentropy-sgd compare NETWORK --help shows the options.")
            return
        raise LabError(f"the name of a network must come first. {usage}\n{recipe_list()}")
    family = arguments[0]
    recipes.optimizers(family)  # an unknown one is better refused before its options are
    options = parse(Compare, arguments[1:], f"compare {family}")
    chosen = chosen_recipes(family, options)

    from entropy_sgd.lab.training.comparison import Comparison, run

    run(
        Comparison(tuple(chosen), options.seeds, options.final),
        options.out or Path("runs") / f"compare-{family}",
        resume=options.resume,
        overwrite=options.overwrite,
        data_dir=options.data_dir,
        device=options.device,
    )


def demo(arguments: list[str]) -> None:
    """Run `entropy-sgd demo` with these arguments."""
    options = parse(Demo, arguments, "demo")

    from entropy_sgd.lab.report import write
    from entropy_sgd.lab.training.comparison import Comparison, run

    chosen = tuple(recipes.get(f"demo/{name}") for name in recipes.optimizers("demo"))
    run(Comparison(chosen, (0, 1, 2)), options.out, resume=not options.overwrite, overwrite=options.overwrite)
    print(f"report: {write([options.out], options.out / 'report')}")
