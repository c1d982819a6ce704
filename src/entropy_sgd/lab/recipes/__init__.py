"""Recipes, in plain Python: the paper's, network x data x method, and one for every other method.

A module of this package gives its `FAMILIES`; there is no other list of them.
"""

from __future__ import annotations

from entropy_sgd.lab import unknown
from entropy_sgd.lab.discovery import modules
from entropy_sgd.lab.recipes.family import Family, gathered
from entropy_sgd.lab.recipes.recipe import Drops, Recipe, Source

__all__ = ["FAMILIES", "Drops", "Family", "Recipe", "Source", "family", "get", "names", "written"]

FAMILIES: dict[str, Family] = gathered(
    family for module in modules(__name__, __path__) for family in getattr(module, "FAMILIES", ())
)


def family(name: str) -> Family:
    """The experiment of that name."""
    if name not in FAMILIES:
        raise unknown("network", name, FAMILIES, "entropy-sgd train --help")
    return FAMILIES[name]


def written() -> list[Recipe]:
    """The recipes whose numbers were chosen one by one."""
    return [recipe for family in FAMILIES.values() for recipe in family.written]


def names() -> list[str]:
    """All recipes, as `network/method`."""
    return [f"{family.name}/{method}" for family in FAMILIES.values() for method in family.methods()]


def get(name: str) -> Recipe:
    """The recipe of that name."""
    network, slash, method = name.partition("/")
    if not slash and network in FAMILIES:
        raise unknown("recipe", name, [f"{name}/{method}" for method in FAMILIES[network].methods()])
    return family(network).recipe(method)
