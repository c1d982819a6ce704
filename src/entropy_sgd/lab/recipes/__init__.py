"""Recipes: one for each row of the paper, network x data x optimizer, in plain Python."""

from __future__ import annotations

from entropy_sgd.lab import unknown
from entropy_sgd.lab.recipes import cifar, demo, mnist, ptb, small, warpeace
from entropy_sgd.lab.recipes.recipe import Drops, Metric, Recipe

__all__ = ["RECIPES", "Drops", "Metric", "Recipe", "families", "get", "names", "optimizers"]

RECIPES: dict[str, Recipe] = {
    recipe.name: recipe for module in (demo, mnist, cifar, ptb, warpeace, small) for recipe in module.RECIPES
}


def names() -> list[str]:
    """All recipes, as `network/optimizer`."""
    return list(RECIPES)


def families() -> list[str]:
    """What can be compared: the names before the slash."""
    return list(dict.fromkeys(name.partition("/")[0] for name in RECIPES))


def optimizers(family: str) -> list[str]:
    """The optimizers for which `family` has a recipe."""
    if family not in families():
        raise unknown("family of recipes", family, families())
    return [name.partition("/")[2] for name in RECIPES if name.startswith(f"{family}/")]


def get(name: str) -> Recipe:
    """The recipe of that name."""
    if name in families():
        raise unknown("recipe", name, [f"{name}/{optimizer}" for optimizer in optimizers(name)])
    if name not in RECIPES:
        family, slash, optimizer = name.partition("/")
        if slash and family in families():
            raise unknown(f"optimizer of {family}", optimizer, optimizers(family))
        raise unknown("recipe", name, names())
    return RECIPES[name]
