"""A run to be made, and how it ended."""

from __future__ import annotations

import sys
from dataclasses import dataclass, field, replace
from pathlib import Path

from entropy_sgd.lab import LabError
from entropy_sgd.lab.recipes import Recipe
from entropy_sgd.lab.runs.folder import Settings
from entropy_sgd.lab.runs.records import Record


@dataclass(frozen=True)
class Job:
    """One run in a folder of its own, continued if it was begun there."""

    folder: Path
    settings: Settings
    data_dir: Path | None = None
    device: str = "auto"
    checkpoint_seconds: float = 30.0
    label: str = ""
    """What it is called; by default its recipe."""
    command: tuple[str, ...] = field(default_factory=lambda: tuple(sys.argv))
    """What asked for it, for the run's config.json."""

    @property
    def title(self) -> str:
        """As the run is called in messages."""
        return f"{self.label or self.settings.recipe.name} seed {self.settings.seed}"


@dataclass(frozen=True)
class Outcome:
    """How a job ended: with a summary, of a run that diverged too, or with an error."""

    job: Job
    summary: Record | None = None
    error: LabError | None = None
    notes: tuple[str, ...] = ()
    """What the run had to say."""


def fixed_threads(recipe: Recipe, count: int = 1) -> Recipe:
    """The recipe with a number of threads of its own, `count` if it has none: they decide its rounding."""
    return recipe if recipe.threads is not None else replace(recipe, threads=count)
