"""The search space of a method, drawn by Optuna: quasi-random points (Sobol's, scrambled) by default.

A draw depends on the space, the sampler, its seed and, for `tpe`, the values told before; never on the order
in which runs end. So a search that was stopped is drawn again, and finds its runs finished.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, Literal

from entropy_sgd import extras
from entropy_sgd.lab import LabError
from entropy_sgd.lab.methods.base import Choice, Range, Search

Sampler = Literal["sobol", "random", "tpe"]
GENERATION = 4
"""Trials of a method that `tpe` draws before it learns how the ones before ended: a number of its own, so
that the search does not depend on how many runs there are at once."""
DIGITS = 4
"""Significant ones of a number drawn: what a command to copy should have."""


def parts(search: Mapping[str, Search]) -> dict[str, Range | Choice]:
    """One entry for each number or name to draw; those of a tuple are called `betas.0`, `betas.1`."""
    found: dict[str, Range | Choice] = {}
    for name, how in search.items():
        if isinstance(how, tuple):
            found |= {f"{name}.{index}": each for index, each in enumerate(how)}
        else:
            found[name] = how
    return found


def assembled(drawn: Mapping[str, Any], search: Mapping[str, Search]) -> dict[str, Any]:
    """The options that the numbers drawn make."""
    return {
        name: tuple(drawn[f"{name}.{index}"] for index in range(len(how)))
        if isinstance(how, tuple)
        else drawn[name]
        for name, how in search.items()
    }


def changed(search: Mapping[str, Search], name: str, text: str) -> dict[str, Search]:
    """`search` with another range or other values for one option (`betas.0` is one of a tuple).

    `text` is `LOW..HIGH`, or values with commas between them; one value fixes the option.
    """
    known = parts(search)
    if name not in known:
        raise LabError(f"{name!r} is not searched, only {', '.join(known)}")
    found: Search = _parsed(name, text, known[name])
    option, dot, index = name.partition(".")
    if dot:
        whole = search[option]
        assert isinstance(whole, tuple)
        found = (*whole[: int(index)], found, *whole[int(index) + 1 :])
    return {**search, option: found}


def _parsed(name: str, text: str, how: Range | Choice) -> Range | Choice:
    low, dots, high = text.partition("..")
    if dots:
        numbers = [_number(part) for part in (low, high)]
        if isinstance(how, Choice) or None in numbers:
            raise LabError(_accepted(how))
        first, last = (number for number in numbers if number is not None)
        if not first < last or (how.log and first <= 0):
            above = " above 0" if how.log else ""
            raise LabError(f"the range must go up, from a number{above}")
        if how.integer and not (first.is_integer() and last.is_integer()):
            raise LabError(f"{name} is a whole number")
        return replace(how, low=int(first) if how.integer else first, high=int(last) if how.integer else last)
    values: list[str | float | bool] = []
    for part in text.split(","):
        if isinstance(how, Choice):
            value = {str(each): each for each in how.values}.get(part)
        else:
            value = _number(part)
            if value is not None and how.integer:
                value = int(value) if value.is_integer() else None
        if value is None:
            raise LabError(_accepted(how))
        values.append(value)
    return Choice(tuple(dict.fromkeys(values)))


def _number(text: str) -> float | None:
    try:
        value = float(text)
    except ValueError:
        return None
    return value if math.isfinite(value) else None


def _accepted(how: Range | Choice) -> str:
    if isinstance(how, Choice):
        return f"give one or more of {', '.join(map(str, how.values))}, with commas between them"
    kind = "whole numbers" if how.integer else "numbers"
    return f"give a range of {kind}, such as {how.low:g}..{how.high:g}, or values with commas between them"


class Draws:
    """The trials of one method, drawn by Optuna."""

    def __init__(self, search: Mapping[str, Search], sampler: Sampler, seed: int) -> None:
        try:
            import optuna
        except ImportError as error:
            raise LabError(f"tune needs the package optuna: {extras.hint('lab,tune')}") from error
        optuna.logging.set_verbosity(optuna.logging.ERROR)
        self.search, self._space = search, {name: _distribution(how) for name, how in parts(search).items()}
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # that the sampler's interface may change
            chosen: Any = {
                "sobol": lambda: optuna.samplers.QMCSampler(scramble=True, seed=seed),
                "random": lambda: optuna.samplers.RandomSampler(seed=seed),
                "tpe": lambda: optuna.samplers.TPESampler(seed=seed, n_startup_trials=GENERATION),
            }[sampler]()
        self._study = optuna.create_study(sampler=chosen)
        self._asked: list[Any] = []
        if sampler == "sobol":  # it takes the space from a trial before the first
            middle = {name: _any(how) for name, how in parts(search).items()}
            told = optuna.trial.create_trial(params=middle, distributions=self._space, value=0.0)
            self._study.add_trial(told)

    def draw(self, count: int) -> list[dict[str, Any]]:
        """The options of the next `count` trials."""
        found: list[dict[str, Any]] = []
        for _ in range(count):
            trial = self._study.ask(self._space)
            self._asked.append(trial)
            drawn = {name: _rounded(value, parts(self.search)[name]) for name, value in trial.params.items()}
            found.append(assembled(drawn, self.search))
        return found

    def tell(self, values: Sequence[float | None]) -> None:
        """How the trials drawn last ended, smaller is better; None: without a result."""
        import optuna

        for trial, value in zip(self._asked, values, strict=True):
            if value is None:
                self._study.tell(trial, state=optuna.trial.TrialState.FAIL)
            else:
                self._study.tell(trial, value)
        self._asked = []


def _distribution(how: Range | Choice) -> Any:
    from optuna import distributions

    if isinstance(how, Choice):
        return distributions.CategoricalDistribution(how.values)
    if how.integer:
        return distributions.IntDistribution(int(how.low), int(how.high), log=how.log)
    return distributions.FloatDistribution(how.low, how.high, log=how.log)


def _any(how: Range | Choice) -> Any:
    return how.values[0] if isinstance(how, Choice) else int(how.low) if how.integer else how.low


def _rounded(value: Any, how: Range | Choice) -> Any:
    if isinstance(how, Choice) or how.integer:
        return value
    return min(how.high, max(how.low, float(f"{value:.{DIGITS}g}")))
