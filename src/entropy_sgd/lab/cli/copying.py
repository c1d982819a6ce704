"""Recipes as commands to copy: what differs from the recipe that the name alone would give."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

from entropy_sgd.lab.recipes import Family, Recipe
from entropy_sgd.lab.runs.records import flatten


def changes(recipe: Recipe, base: Recipe) -> dict[str, tuple[Any, Any]]:
    """The fields that differ, by the name of their option: the value now and before."""
    now, before = flatten(asdict(recipe)), flatten(asdict(base))
    return {
        key.replace("_", "-"): (value, before.get(key))
        for key, value in now.items()
        if value != before.get(key) and key not in ("name", "paper", "chosen")
    }


def train_command(what: str, family: Family, recipe: Recipe) -> str:
    """`entropy-sgd train …` that trains this very recipe."""
    words = ["entropy-sgd", "train", what, "--method", recipe.method]
    for option, (value, before) in changes(recipe, family.recipe(recipe.method)).items():
        if isinstance(before, bool):  # a flag
            owner, dot, name = option.rpartition(".")
            words.append(f"--{option}" if value else f"--{owner}{dot}no-{name}")
        else:
            words += [f"--{option}", *_words(value)]
    return shlex.join(words)


def compare_command(
    what: str, family: Family, recipes: Sequence[Recipe], seeds: Sequence[int], maximize: bool | None = None
) -> str:
    """`entropy-sgd compare …` of these recipes; `maximize` as it was given, None if it was not."""
    by_method = {recipe.method: changes(recipe, family.recipe(recipe.method)) for recipe in recipes}
    alike = set[str].intersection(
        *({_assigned(*item) for item in each.items()} for each in by_method.values())
    )
    words = ["entropy-sgd", "compare", what, "--methods", *by_method, "--seeds", *map(str, seeds)]
    words += [] if maximize is None else ["--maximize" if maximize else "--minimize"]
    words += ["--set", *sorted(alike)]
    for method, changed in by_method.items():
        own = [_assigned(*item) for item in changed.items()]
        words += [f"{method}:{change}" for change in own if change not in alike]
    return shlex.join(words)


def _assigned(option: str, values: tuple[Any, Any]) -> str:
    return f"{option}={','.join(_words(values[0]))}"


def _words(value: Any) -> list[str]:
    if isinstance(value, (tuple, list)):
        return [word for each in value for word in _words(each)]  # pyright: ignore[reportUnknownArgumentType, reportUnknownVariableType]
    return [repr(value).removesuffix(".0") if isinstance(value, float) else str(value)]
