"""A family: one experiment and its recipes, those written by hand and one for each other method."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from entropy_sgd.lab import LabError, methods, unknown
from entropy_sgd.lab.methods import Hints
from entropy_sgd.lab.recipes.recipe import Drops, Recipe


@dataclass(frozen=True)
class Family:
    """What is trained, and how each method starts on it."""

    name: str
    """What comes before the slash."""
    base: Recipe
    """What the recipes of other methods take over: network, data, budget, batch, dropout, drops."""
    hints: Hints
    """Where their options start."""
    written: tuple[Recipe, ...] = ()
    """Recipes with every number chosen for them: the paper's and the demonstration's."""
    usual: tuple[str, ...] = ()
    """Methods to compare if none is named; by default those of `written`."""

    def compared(self) -> tuple[str, ...]:
        """The methods to compare if none is named."""
        return self.usual or tuple(recipe.method for recipe in self.written)

    def methods(self) -> list[str]:
        """The methods that this experiment has a recipe for, those written by hand first."""
        fitting = [name for name, method in methods.METHODS.items() if self.fits(method)]
        return list(dict.fromkeys([*(recipe.method for recipe in self.written), *fitting]))

    def fits(self, method: methods.Method[methods.Options]) -> bool:
        """Whether the method makes sense here."""
        return method.for_text or self.base.unroll is None

    def recipe(self, name: str) -> Recipe:
        """The recipe for a method: written by hand, or the base with the method's own defaults."""
        for recipe in self.written:
            if recipe.method == name:
                return recipe
        if name not in self.methods():
            raise unknown(f"method of {self.name}", name, self.methods())
        method = methods.get(name)
        return replace(
            self.base,
            name=f"{self.name}/{name}",
            paper="not in the paper",
            chosen=f"the defaults of {name}, untuned{f' ({method.origin})' if method.origin else ''}; "
            f"the rest as {self.base.name}"
            + ("" if method.drops or not self.base.drops.at else ", without its drops"),
            optimizer=method.defaults(self.hints),
            drops=self.base.drops if method.drops else Drops(),
        )


def gathered(families: Iterable[Family]) -> dict[str, Family]:
    """By name."""
    return {family.name: family for family in families}


def at_equal_budgets(chosen: Sequence[Recipe], budget: float | None) -> list[Recipe]:
    """The recipes stretched to the same budget, by default that of the first."""
    sizes = {recipe.batch_size for recipe in chosen}
    if len(sizes) > 1:
        raise LabError(f"equal budgets of gradients need equal batches, got sizes {sorted(sizes)}")
    return [recipe.stretched(budget if budget is not None else chosen[0].epochs) for recipe in chosen]
