"""`entropy-sgd train`."""

from __future__ import annotations

import sys
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated, Any

import tyro

from entropy_sgd.lab import LabError, methods, recipes
from entropy_sgd.lab.cli import hints
from entropy_sgd.lab.cli.parse import find, parse, recipe_list, take
from entropy_sgd.lab.experiment import is_file
from entropy_sgd.lab.recipes import Recipe


@dataclass(frozen=True)
class Train:
    """Train one recipe in a folder of its own, and continue it after any interruption."""

    recipe: Annotated[Recipe, tyro.conf.arg(name="")]
    out: Path | None = None
    """Folder of the run; by default runs/NETWORK-METHOD-seedSEED."""
    seed: int = 0
    """Decides initial weights, order of the data, dropout and thermal noise."""
    budget: float | None = None
    """Fit the whole recipe, drops and scoping included, into this many effective epochs (--epochs only cuts
    it short)."""
    replicas: int | None = None
    """Number of replicas, one process each, for a method that has them; under torchrun, the processes it
    started."""
    final: bool = False
    """Train on all the training data, nothing held out, and read the test set once, at the end."""
    resume: bool = False
    """Continue the run in the folder, bit for bit; start one if there is none."""
    overwrite: bool = False
    """Replace the run in the folder."""
    data_dir: Path | None = None
    """Folder of the data; by default $ENTROPY_SGD_DATA, else the cache folder."""
    device: str = "auto"
    """cpu, cuda, cuda:1, …; auto takes a GPU if there is one."""
    checkpoint_seconds: float = 30.0
    """Seconds between checkpoints, more if saving takes long; 0: after every step."""
    keep_weights: int = 0
    """Number of points along the run at which to keep the evaluated weights, in half precision, for
    `entropy-sgd landscape --on trajectory`."""

    def __post_init__(self) -> None:
        if self.keep_weights < 0 or self.keep_weights == 1:
            raise LabError(f"keep_weights must be 0, or at least 2, got {self.keep_weights}")


USAGE = """usage: entropy-sgd train NETWORK --method METHOD [OPTIONS]
       entropy-sgd train NETWORK/METHOD [OPTIONS]"""


def chosen_recipe(name: str, method: str | None) -> Recipe:
    """The recipe named by `NETWORK/METHOD`, or by a network or the user's file and `--method`."""
    if is_file(name) or method is not None or name in recipes.FAMILIES:
        if "/" in name and not is_file(name):
            raise LabError(f"{name!r} names a method already: leave out --method {method}")
        family = find(name)
        if method is None:
            raise LabError(
                f"--method is missing: entropy-sgd train {name} --method METHOD, "
                f"with one of {', '.join(family.methods())}"
            )
        return family.recipe(method)
    file, _, wanted = name.rpartition("/")
    if is_file(file):
        raise LabError(
            f"your own file takes its method by --method: entropy-sgd train {file} --method {wanted}"
        )
    return recipes.get(name)


def with_replicas(recipe: Recipe, wanted: int | None, processes: int) -> tuple[Recipe, int]:
    """The recipe for as many replicas, and the processes that train each network together."""
    method = methods.of(recipe.optimizer)
    if wanted is not None:
        recipe = replace(recipe, optimizer=method.with_replicas(recipe.optimizer, wanted))
    count = method.replicas(recipe.optimizer)
    if count < 1:
        raise LabError(f"replicas must be an integer >= 1, got {count}")
    if count == 1 or processes == 1:
        return recipe, processes
    if wanted not in (None, processes):
        raise LabError(f"--replicas {wanted} does not fit the {processes} processes of torchrun")
    return replace(recipe, optimizer=method.with_replicas(recipe.optimizer, processes)), 1


def train(arguments: list[str]) -> object:
    """Run `entropy-sgd train` with these arguments; the summary."""
    if not arguments or arguments[0].startswith("-"):
        if arguments and arguments[0] in ("-h", "--help"):
            then = "entropy-sgd train NETWORK/METHOD --help shows its options."
            print(hints.overview(USAGE, hints.of_train("lenet/sgd"), then))
            return None
        raise LabError(f"the name of a network must come first. {USAGE}\n{recipe_list()}")
    name = arguments[0]
    method, rest = take("method", arguments[1:])
    hints.refuse_method_as_option(rest, name)
    help_wanted = bool({"-h", "--help"} & set(rest))
    note = ""
    if help_wanted and method is None and (is_file(name) or name in recipes.FAMILIES):
        family = find(name)
        method = family.compared()[0]
        note = f"\n\nThe options of {method}. Other methods: {', '.join(family.methods()[1:])}."
    known = chosen_recipe(name, method)
    called = name if method is None else f"{name} --method {method}"
    description = hints.described(hints.of_train(called), Train) + note
    paper = known.paper if known.paper.startswith("not in") else f"in the paper: {known.paper}"
    description += f"\n\n{paper[0].upper()}{paper[1:]}.\n\nChosen here: {known.chosen}."
    shown = hints.applicable(known) if help_wanted else known
    options = parse(Train, rest, f"train {called}", Train(recipe=shown), description)
    recipe = options.recipe if options.budget is None else options.recipe.stretched(options.budget)
    out = options.out or Path("runs") / f"{recipe.name.replace('/', '-')}-seed{options.seed}"

    from entropy_sgd.lab.runs.folder import RunFolder, Settings
    from entropy_sgd.lab.training import check
    from entropy_sgd.lab.training.processes import Processes
    from entropy_sgd.lab.training.trainer import train as run

    with Processes.from_environment() as processes:
        recipe, together = with_replicas(recipe, options.replicas, processes.size)
        settings = Settings(recipe, options.seed, options.final, together)
        place: dict[str, Any] = {"data_dir": options.data_dir, "device": options.device}
        with processes.together():
            check.names(settings, **place, processes=processes, present=not options.resume)
        if options.resume and processes.lead and not out.exists():
            print(
                f"note: {out} does not exist: there is nothing to resume, a new run starts", file=sys.stderr
            )
        folder = processes.first(
            lambda: RunFolder(out, settings, resume=options.resume, overwrite=options.overwrite)
        )
        summary = run(
            settings,
            folder,
            **place,
            checkpoint_seconds=options.checkpoint_seconds,
            keep_weights=options.keep_weights,
            processes=processes,
        )
    return {"folder": out, **summary}
