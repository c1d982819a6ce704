"""`entropy-sgd tune`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal

from entropy_sgd.lab import LabError, methods, unknown
from entropy_sgd.lab.cli import hints
from entropy_sgd.lab.cli.compare import Compare, address, chosen_recipes
from entropy_sgd.lab.cli.copying import compare_command, train_command
from entropy_sgd.lab.cli.parse import check_jobs, direction, find, parse, recipe_list, several
from entropy_sgd.lab.methods.base import Choice, Search
from entropy_sgd.lab.metrics import LESS_IS_BETTER


@dataclass(frozen=True)
class Tune:
    """Search for the best settings of several methods, with the same number of trials and gradients for each.

    Each method's file defines what is searched, momenta and betas included; --search changes it.
    Trials are judged on validation data; those that diverge are kept as results. tune.json has every trial;
    --resume continues a search that was stopped, with the same trials.
    """

    methods: Annotated[tuple[str, ...], several("METHOD …", "--optimizers")] = ()
    """Methods to tune; by default those that compare would compare."""
    trials: int = 8
    """Settings to try for each method."""
    budget: float | None = None
    """Effective epochs for each run; by default those of the first method's recipe."""
    seeds: Annotated[tuple[int, ...], several("SEED …")] = (0,)
    """Each setting is trained with each seed; the mean result counts."""
    rates: int = 4
    """Further runs of each method's best setting at other learning rates: 1/2, 2, 1/4, 4, … times its own."""
    within: float = 1.2
    """A learning rate works if its result is within this factor of the best."""
    maximize: bool = False
    """Higher is better; a metric of your own needs this or --minimize."""
    minimize: bool = False
    """Lower is better, as for error, loss, perplexity and nats."""
    sampler: Literal["sobol", "random", "tpe"] = "sobol"
    """How Optuna draws: quasi-random, random, or learning from earlier trials."""
    sampler_seed: int = 0
    """Decides what is drawn."""
    search: Annotated[tuple[str, ...], several("[METHOD:]OPTION=LOW..HIGH …")] = ()
    """Other ranges, for all methods that search the option or for one: sgd:lr=0.01..10 inner-lr=0.01..1.
    Commas list values to choose from: L=5,20. A single value fixes the option: sgd:momentum=0.9. (lr and
    momentum of the local-entropy methods are those of the outer loop.)"""
    set: Annotated[tuple[str, ...], several("[METHOD:]FIELD=VALUE …")] = ()
    """Fields of all recipes, or of one method's, to change: data=digits batch-size=64"""
    out: Path | None = None
    """Folder of the search; by default runs/tune-NETWORK."""
    resume: bool = False
    """Continue the search in the folder where it stopped."""
    overwrite: bool = False
    """Replace the search in the folder."""
    data_dir: Path | None = None
    """Folder of the data; by default $ENTROPY_SGD_DATA, else the cache folder."""
    device: str = "auto"
    """cpu, cuda, cuda:1, …; auto takes a GPU if there is one."""
    jobs: int | None = None
    """Runs at once, as in compare."""
    dask: str | None = None
    """Address of a Dask scheduler, as in compare."""

    def __post_init__(self) -> None:
        check_jobs(self.jobs)


def _searches(changes: Sequence[str], names: Sequence[str]) -> dict[str, Mapping[str, Search]]:
    """What is searched of each method, as --search changes it."""
    from entropy_sgd.lab.tuning.space import changed, parts

    found = {name: methods.get(name).search for name in names}
    for change in changes:
        meant, rest = address("--search", change, names, "OPTION=LOW..HIGH")
        option, _, text = rest.partition("=")
        option = option.replace("-", "_")
        targets = [name for name in names if option in parts(found[name])] if meant is None else [meant]
        if not targets:
            known = dict.fromkeys(part for name in names for part in parts(found[name]))
            raise unknown("searched option", option, known)
        for name in targets:
            try:
                found[name] = changed(found[name], option, text)
            except LabError as error:
                raise LabError(f"--search {change}: {error}") from error
    for name, search in found.items():
        if all(isinstance(how, Choice) and len(how.values) == 1 for how in parts(search).values()):
            raise LabError(f"--search leaves nothing of {name} to search: `compare` trains one setting")
    return found


def _check_direction(options: Tune, metric: str) -> None:
    if direction(options.maximize, options.minimize) is None and metric not in LESS_IS_BETTER:
        raise LabError(f"is a higher or a lower {metric!r} better? Add --maximize or --minimize")


USAGE = "usage: entropy-sgd tune NETWORK [--methods …] [--trials 8] [--budget 5] [OPTIONS]"


def tune(arguments: list[str]) -> object:
    """Run `entropy-sgd tune` with these arguments; what tune.json holds, and the commands."""
    if not arguments or arguments[0].startswith("-"):
        if arguments and arguments[0] in ("-h", "--help"):
            then = "entropy-sgd tune NETWORK --help shows the options."
            print(hints.overview(USAGE, hints.of_tune("lenet"), then))
            return None
        raise LabError(f"the name of a network must come first. {USAGE}\n{recipe_list()}")
    what = arguments[0]
    family = find(what)
    hints.refuse_fields(arguments[1:], Tune, family, "tune")
    described = hints.described(hints.of_tune(what), Tune)
    options = parse(Tune, arguments[1:], f"tune {what}", description=described)
    chosen = chosen_recipes(family, Compare(options.methods, set=options.set, budget=options.budget), what)

    _check_direction(options, chosen[0].metric)

    from rich.console import Console

    from entropy_sgd.lab.runs.records import read_json
    from entropy_sgd.lab.training.display import say
    from entropy_sgd.lab.tuning.show import draw, show
    from entropy_sgd.lab.tuning.tuning import FIGURES, RESULT, Tuning, run

    tuning = Tuning(
        tuple(chosen),
        trials=options.trials,
        seeds=options.seeds,
        rates=options.rates,
        within=options.within,
        maximize=options.maximize,
        sampler=options.sampler,
        sampler_seed=options.sampler_seed,
        search=_searches(options.search, [recipe.method for recipe in chosen]),
    )
    out = options.out or Path("runs") / f"tune-{family.name}"
    console = Console()
    found = run(
        tuning,
        out,
        resume=options.resume,
        overwrite=options.overwrite,
        data_dir=options.data_dir,
        device=options.device,
        console=console,
        at_once=options.jobs,
        dask=options.dask,
    )
    draw(found, tuning, [out / name for name in FIGURES])
    show(console, found, tuning)
    best = [each.best.recipe for each in found if each.best is not None]
    commands: list[str] = []
    if best:
        fresh = [seed for seed in range(max(options.seeds) + 6) if seed not in options.seeds][:5]
        say(console, "\nthe best settings, as commands:")
        commands = [train_command(what, family, recipe) for recipe in best]
        for command in commands:
            say(console, command)
        say(console, "\nand compared on seeds that have not been used:")
        maximize = direction(options.maximize, options.minimize)
        commands.append(compare_command(what, family, best, fresh, maximize))
        say(console, commands[-1])
    say(console, f"\nruns, {RESULT} and {FIGURES[0]}: {out}")
    return {"folder": out, "commands": commands, **read_json(out / RESULT)}
