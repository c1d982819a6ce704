"""What a declaration of rows.py consists of."""

from __future__ import annotations

from dataclasses import dataclass, field

from entropy_sgd.lab.paper.numbers import Number
from entropy_sgd.lab.recipes import Recipe


@dataclass(frozen=True)
class Entry:
    """Runs of one recipe over seeds."""

    key: str
    """Beginning of the names of its files."""
    what: str
    """In the table."""
    recipe: Recipe
    seeds: tuple[int, ...]
    final: bool = True
    """Trained on all training data, the test set read once, at the end."""
    paper: tuple[Number, ...] = ()
    """What the paper prints for it; the first is the one of Table 1."""
    apart: str = ""
    """Why it cannot be compared with the paper's number."""
    excerpt: bool = False
    """Only the beginning of a run that takes too long."""
    against: str = ""
    """The entry that a paired difference over the seeds is taken to."""


@dataclass(frozen=True)
class Row:
    """Entries that are computed together."""

    name: str
    title: str
    entries: tuple[Entry, ...] = field(repr=False)


@dataclass(frozen=True)
class Line:
    """A line of Table 1: the entries on its two sides."""

    model: str
    ours: str
    baseline: str
