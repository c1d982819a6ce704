"""`entropy-sgd train`."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import tyro

from entropy_sgd.lab import LabError, recipes
from entropy_sgd.lab.cli.parse import parse, recipe_list
from entropy_sgd.lab.recipes import Recipe


@dataclass(frozen=True)
class Train:
    """Train one recipe in a folder of its own, and continue it after any interruption."""

    recipe: Annotated[Recipe, tyro.conf.arg(name="")]
    out: Path | None = None
    """Folder of the run; by default runs/NETWORK-OPTIMIZER-seedSEED."""
    seed: int = 0
    """Decides initial weights, order of the data, dropout and thermal noise."""
    budget: float | None = None
    """Effective epochs into which the whole recipe is squeezed, drops and scoping included (--epochs only
    cuts)."""
    final: bool = False
    """Train on all the training data, nothing held out, and read the test set once, at the end."""
    resume: bool = False
    """Continue the run in the folder, to the same bits; starts it if there is none."""
    overwrite: bool = False
    """Replace the run in the folder."""
    data_dir: Path | None = None
    """Where the data lie; by default $ENTROPY_SGD_DATA, else the cache folder."""
    device: str = "auto"
    """cpu, cuda, cuda:1, …; auto takes a GPU if there is one."""
    checkpoint_seconds: float = 30.0
    """Seconds between checkpoints, more if saving takes long; 0: after every step."""


def train(arguments: list[str]) -> None:
    """Run `entropy-sgd train` with these arguments."""
    if not arguments or arguments[0].startswith("-"):
        usage = "usage: entropy-sgd train RECIPE [OPTIONS]"
        if arguments and arguments[0] in ("-h", "--help"):
            print(f"{usage}\n\n{recipe_list()}\n\nentropy-sgd train RECIPE --help shows its options.")
            return
        raise LabError(f"the name of a recipe must come first. {usage}\n{recipe_list()}")
    name = arguments[0]
    known = recipes.get(name)
    description = f"{Train.__doc__}\n\nThe paper: {known.paper}.\n\nChosen here: {known.chosen}."
    options = parse(Train, arguments[1:], f"train {name}", Train(recipe=known), description)
    recipe = options.recipe if options.budget is None else options.recipe.stretched(options.budget)
    out = options.out or Path("runs") / f"{name.replace('/', '-')}-seed{options.seed}"

    from entropy_sgd.lab.training.folder import CONFIG, METRICS, RunFolder, Settings
    from entropy_sgd.lab.training.group import Group
    from entropy_sgd.lab.training.loop import train as run

    with Group.from_environment() as group:
        settings = Settings(recipe, options.seed, options.final, group.size)
        folder = group.first(
            lambda: RunFolder(out, settings, resume=options.resume, overwrite=options.overwrite)
        )
        try:
            run(
                settings,
                folder,
                data_dir=options.data_dir,
                device=options.device,
                checkpoint_seconds=options.checkpoint_seconds,
                group=group,
            )
        except (LabError, KeyboardInterrupt):
            # where nothing was trained, the folder is free for the corrected command
            if not folder.resumed and not (out / METRICS).exists():
                (out / CONFIG).unlink(missing_ok=True)
            raise
