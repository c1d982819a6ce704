"""The search for the best settings of several methods, resumable: tune.json holds every trial."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any

from rich.console import Console
from torch import nn

from entropy_sgd.lab import LabError, jobs, methods
from entropy_sgd.lab.comparison import comparison
from entropy_sgd.lab.methods.base import Choice, Range, Search
from entropy_sgd.lab.recipes import Recipe
from entropy_sgd.lab.runs.claim import Claim
from entropy_sgd.lab.runs.folder import Settings
from entropy_sgd.lab.runs.records import Record, write_json
from entropy_sgd.lab.training.display import say
from entropy_sgd.lab.tuning import sensitivity
from entropy_sgd.lab.tuning.space import GENERATION, Draws, Sampler, parts

RESULT, FIGURES = "tune.json", ("sensitivity.png", "sensitivity.pdf")


@dataclass(frozen=True)
class Tuning:
    """What decides a search."""

    recipes: tuple[Recipe, ...]
    """One for each method, at the same budget; their options are drawn."""
    trials: int = 8
    seeds: tuple[int, ...] = (0,)
    """A trial is judged by its mean over them."""
    rates: int = 4
    """Further runs of each method's best trial, at other learning rates."""
    within: float = 1.2
    """Factor of the best result within which a rate works."""
    maximize: bool = False
    """Whether the metric is better when it is larger."""
    sampler: Sampler = "sobol"
    sampler_seed: int = 0
    search: Mapping[str, Mapping[str, Search]] = field(default_factory=dict[str, Mapping[str, Search]])
    """By method, in place of what its file says."""

    def __post_init__(self) -> None:
        for name, least in (("trials", 1), ("rates", 0), ("sampler_seed", 0)):
            if getattr(self, name) < least:
                raise LabError(f"{name} must be at least {least}, got {getattr(self, name)}")
        if not 1 < self.within < float("inf"):
            raise LabError(f"within must be a finite factor above 1, got {self.within}")
        if not self.recipes or not self.seeds:
            raise LabError("tuning needs at least one method and one seed")

    def space(self, method: str) -> Mapping[str, Search]:
        """What may change of a method."""
        return self.search.get(method) or methods.get(method).search


@dataclass
class Trial:
    """One setting of a method, trained once for each seed."""

    recipe: Recipe
    name: str
    """Of its folders, without the seed."""
    options: Record
    """What was drawn."""
    values: list[float | None] = field(default_factory=list[float | None])
    """The metric on validation data, for each seed; None where the run diverged or failed."""
    troubles: list[str] = field(default_factory=list[str])
    summaries: list[Record | None] = field(default_factory=list[Record | None])

    @property
    def method(self) -> str:
        """The method's name."""
        return self.recipe.method

    @property
    def title(self) -> str:
        """As messages have it."""
        return self.name.replace("-trial", " trial ").replace("-rate", f" {methods.get(self.method).rate} ")

    @property
    def rate(self) -> float:
        """Its learning rate."""
        return getattr(self.recipe.optimizer, methods.get(self.method).rate)

    @property
    def value(self) -> float | None:
        """The mean over the seeds; None if one of them has no result."""
        found = [value for value in self.values if value is not None]
        return statistics.fmean(found) if len(found) == len(self.values) and found else None

    def record(self) -> Record:
        """For tune.json."""
        return {
            "method": self.method,
            "name": self.name,
            "options": self.options,
            "rate": self.rate,
            "value": self.value,
            "values": self.values,
            "troubles": self.troubles,
            "optimizer": asdict(self.recipe.optimizer),
            "runs": self.summaries,
        }


@dataclass
class Found:
    """What a search found for one method."""

    recipe: Recipe
    """As it was before."""
    trials: list[Trial]
    rates: list[Trial]
    centre: Trial | None = None
    """The best of the trials drawn, whose settings are tried at other rates; None if none has a result."""
    best: Trial | None = None
    """The best of all."""
    works: sensitivity.Range | None = None

    @property
    def method(self) -> str:
        """The method's name."""
        return self.recipe.method

    def line(self) -> list[Trial]:
        """The best trial drawn and the same settings at other rates, by rate."""
        tried = self.rates if self.centre is None else [self.centre, *self.rates]
        return sorted(tried, key=lambda trial: trial.rate)


def run(
    tuning: Tuning,
    path: Path,
    *,
    resume: bool = False,
    overwrite: bool = False,
    data_dir: Path | None = None,
    device: str = "auto",
    console: Console | None = None,
    at_once: int | None = 1,
    dask: str | None = None,
) -> list[Found]:
    """Train what is not yet trained, write tune.json and the figure, and return what was found.

    A trial that diverges or fails is a result: the worst one. Test data are never read.
    """
    console = console or Console()
    tuning = replace(tuning, recipes=tuple(jobs.fixed_threads(recipe) for recipe in tuning.recipes))
    draws = [
        Draws(tuning.space(recipe.method), tuning.sampler, tuning.sampler_seed) for recipe in tuning.recipes
    ]
    for recipe in tuning.recipes:
        check_ends(recipe, tuning.space(recipe.method))
    settings: Record = {
        **{key: value for key, value in asdict(tuning).items() if key not in ("recipes", "search")},
        "recipes": {recipe.name: asdict(recipe) for recipe in tuning.recipes},
        "spaces": {recipe.method: _plain(tuning.space(recipe.method)) for recipe in tuning.recipes},
    }
    wanted = [Settings(recipe, tuning.seeds[0]) for recipe in tuning.recipes]
    how: dict[str, Any] = {"data_dir": data_dir, "device": device}
    where: dict[str, Any] = {"at_once": at_once, "dask": dask, "console": console}

    def train(trials: Sequence[Trial], claim: Claim) -> None:
        listed = [
            jobs.Job(
                path / f"{trial.name}-seed{seed}", Settings(trial.recipe, seed), **how, label=trial.title
            )
            for trial in trials
            for seed in dict.fromkeys(tuning.seeds)
        ]
        if not listed:
            return
        outcomes = jobs.run(listed, path, **where, ended=lambda outcome: claim.settle())
        if all(outcome.error is not None for outcome in outcomes):
            raise jobs.failures(outcomes) or AssertionError
        ended = iter(outcomes)
        for trial in trials:
            for _ in dict.fromkeys(tuning.seeds):
                _note(trial, next(ended))

    with comparison.claimed(
        path, settings, wanted, console, resume=resume, overwrite=overwrite, ours=_ours, **how
    ) as claim:
        found = _searched(tuning, draws, partial(train, claim=claim), console)
        write_json(path / RESULT, {"settings": settings, "methods": [_record(each) for each in found]})
    return found


def check_ends(recipe: Recipe, space: Mapping[str, Search]) -> None:
    """Refuse a range with an end, other than in the method's file, that the optimizer refuses."""
    method = methods.get(recipe.method)
    if method.replicas(recipe.optimizer) > 1:  # to be built they need processes
        return
    usual, (inside,) = parts(method.search), Draws(space, "sobol", 0).draw(1)
    for name, how in parts(space).items():
        option, dot, index = name.partition(".")
        for end in set(_ends(how)) - set(_ends(usual[name])):
            value = (*inside[option][: int(index)], end, *inside[option][int(index) + 1 :]) if dot else end
            chosen = _trial(recipe, {**inside, option: value}, "end").recipe.optimizer
            methods.build(chosen, nn.Linear(1, 1), seed=0, steps=1000)


def _ends(how: Range | Choice) -> tuple[Any, ...]:
    return (how.low, how.high) if isinstance(how, Range) else how.values


def _searched(
    tuning: Tuning, draws: Sequence[Draws], train: Callable[[Sequence[Trial]], None], console: Console
) -> list[Found]:
    """Draw and train the trials, then the best of each method at other rates."""
    found = [Found(recipe, [], []) for recipe in tuning.recipes]
    say(console, f"{tuning.trials} trials of each of {len(found)} methods")
    size = GENERATION if tuning.sampler == "tpe" else tuning.trials
    while (begun := len(found[0].trials)) < tuning.trials:
        count = min(size, tuning.trials - begun)
        new = [
            [_trial(each.recipe, options, f"trial{begun + k}") for k, options in enumerate(draw.draw(count))]
            for each, draw in zip(found, draws, strict=True)
        ]
        train([trial for together in zip(*new, strict=True) for trial in together])
        sign = -1 if tuning.maximize else 1
        for each, draw, trials in zip(found, draws, new, strict=True):
            each.trials += trials
            draw.tell([None if trial.value is None else sign * trial.value for trial in trials])
    for each in found:
        each.centre = _best(each.trials, maximize=tuning.maximize)
        if each.centre is not None:
            around = sensitivity.rates_around(each.centre.rate, tuning.rates)
            each.rates = [_at_rate(each.centre, rate) for rate in around]
    if tuning.rates:
        say(console, f"the best setting of each method at {tuning.rates} other learning rates")
    train([trial for each in found for trial in each.rates])
    for each in found:
        each.best = _best(each.line(), maximize=tuning.maximize)
        if each.best is not None and each.rates:
            points = [(trial.rate, trial.value) for trial in each.line()]
            each.works = sensitivity.range_that_works(
                points, each.best.rate, tuning.within, maximize=tuning.maximize
            )
    return found


def _ours(path: Path) -> tuple[str, ...]:
    return (RESULT, *FIGURES, *comparison.ours(path))


def _trial(recipe: Recipe, options: Record, name: str) -> Trial:
    method = methods.of(recipe.optimizer)
    chosen = replace(recipe, optimizer=method.searched(recipe.optimizer, options))
    return Trial(chosen, f"{recipe.method}-{name}", options)


def _at_rate(best: Trial, rate: float) -> Trial:
    name = methods.get(best.method).rate
    chosen = replace(best.recipe, optimizer=replace(best.recipe.optimizer, **{name: rate}))
    return Trial(chosen, f"{best.method}-rate{rate:g}", {**best.options, name: rate})


def _note(trial: Trial, outcome: jobs.Outcome) -> None:
    summary = outcome.summary
    trial.summaries.append(summary)
    if summary is not None and summary["status"] == "finished":
        trial.values.append(summary["validation"][summary["metric"]])
        return
    trial.values.append(None)
    trial.troubles.append(
        str(outcome.error) if summary is None else f"{summary['status']}: {summary['reason']}"
    )


def _best(trials: Sequence[Trial], *, maximize: bool) -> Trial | None:
    """The first of the best."""
    judged = [(trial.value, trial) for trial in trials if trial.value is not None]
    if not judged:
        return None
    return (max if maximize else min)(judged, key=lambda pair: pair[0])[1]


def _record(found: Found) -> Record:
    return {
        "method": found.method,
        "best": None if found.best is None else found.best.record(),
        "recipe": None if found.best is None else asdict(found.best.recipe),
        "works": None if found.works is None else {**asdict(found.works), "width": found.works.width},
        "rate": methods.get(found.method).rate,
        "trials": [trial.record() for trial in found.trials],
        "rates": [trial.record() for trial in found.rates],
    }


def _plain(search: Any) -> Record:
    """A search space as JSON has it."""
    return {
        name: [asdict(each) for each in how] if isinstance(how, tuple) else asdict(how)  # pyright: ignore[reportUnknownArgumentType, reportUnknownVariableType]
        for name, how in search.items()
    }
