"""Reading options with tyro, and naming a recipe before reading the options that depend on it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Any, TypeVar

import tyro

from entropy_sgd.lab import recipes
from entropy_sgd.lab.recipes import Recipe

Options = TypeVar("Options")


def some(name: str) -> Any:
    """For a positional tuple that must not be empty: tyro's help would show it as one that may be."""
    return tyro.conf.arg(metavar=f"{name} [{name} ...]", help_behavior_hint="(required)")


def parse(
    kind: type[Options],
    arguments: list[str],
    command: str,
    default: Options | None = None,
    description: str | None = None,
    more: tuple[Any, ...] = (),
) -> Options:
    """The options of a command; prints help, or what is wrong and the closest names, and exits."""
    # A recipe's optimizer keeps its kind; what cannot be changed is not shown.
    config = (tyro.conf.AvoidSubcommands, tyro.conf.SuppressFixed, tyro.conf.FlagCreatePairsOff, *more)
    prog = f"entropy-sgd {command}"
    if default is None:
        return tyro.cli(kind, args=arguments, prog=prog, config=config)
    return tyro.cli(kind, args=arguments, prog=prog, default=default, description=description, config=config)


@dataclass(frozen=True)
class _Overridden:
    recipe: Annotated[Recipe, tyro.conf.arg(name="")]


def override(recipe: Recipe, changes: list[str], command: str) -> Recipe:
    """The recipe with `FIELD=VALUE` changes, read as `entropy-sgd train` reads `--FIELD VALUE`.

    What is a flag there, such as `--compile`, takes True or False here.
    """
    arguments = [
        part for change in changes for part in (f"--{change.partition('=')[0]}", change.partition("=")[2])
    ]
    values = (tyro.conf.FlagConversionOff,)
    return parse(_Overridden, arguments, command, _Overridden(recipe), more=values).recipe


def recipe_list() -> str:
    """All recipes, a line for each network."""
    families = [
        f"  {family + '/':<17}{', '.join(recipes.optimizers(family))}" for family in recipes.families()
    ]
    return "\n".join(["recipes, as NETWORK/OPTIMIZER:", *families])
