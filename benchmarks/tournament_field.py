"""Who takes part in `tournament.py`, what is searched for each, and on which tasks.

Every entrant has a learning rate, a momentum (or betas) and an L2 penalty to search, and at most two numbers
of its own. The other options are fixed here, before the first trial; γ grows as in the recipe, however short
the run is.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from entropy_sgd.lab.methods.base import Range, Search

RATE = Range(0.005, 0.5, log=True)
MOMENTUM = Range(0.0, 0.98)
DECAY = Range(1e-6, 1e-3, log=True)
BETAS = (Range(0.0, 0.98), Range(0.9, 0.9999))
SGD = {"lr": RATE, "momentum": MOMENTUM, "weight_decay": DECAY}
INNER = {"inner_lr": RATE, "inner_momentum": MOMENTUM, "weight_decay": DECAY}
AVERAGE = {"alpha": Range(0.02, 1.0, log=True)}
PAPER = {
    "noise": 1e-4,
    "gamma0": 1e-4,
    "gamma1": 1e-3,
    "alpha": 0.75,
    "L": 20,
    "lr": 1.0,
    "inner_state": "reset",
    "anneal": "outer",
}
KEPT = {**PAPER, "inner_state": "keep", "outer": "sgd", "outer_options": ()}
SIMPLE = {**PAPER, "momentum": 0.0, "inner_state": "keep", "anneal": "inner"}


@dataclass(frozen=True)
class Entrant:
    """A method of the laboratory, with what is fixed and what is searched."""

    method: str
    search: Mapping[str, Search]
    fixed: Mapping[str, Any] = field(default_factory=dict[str, Any])
    later: bool = False
    """Written down when the others had been run, so it does not count in their ranks."""


ENTRANTS: dict[str, Entrant] = {
    "SGD": Entrant("sgd", SGD),
    "SGD + EMA": Entrant("ema", {**SGD, "decay": Range(0.98, 0.999)}),
    "Entropy-SGD, kept": Entrant(
        "local-entropy", {**INNER, **AVERAGE}, {**KEPT, "anneal": "inner", "schedule": "exponential"}
    ),
    "Entropy-SGD, paper": Entrant("entropy-sgd", {**INNER, "momentum": Range(0.0, 0.9)}, PAPER),
    "SAM": Entrant("sam", {**SGD, "rho": Range(0.01, 0.5, log=True)}),
    "AdamW": Entrant(
        "adamw",
        {"lr": Range(1e-4, 1e-2, log=True), "betas": BETAS, "weight_decay": Range(1e-4, 1.0, log=True)},
    ),
    "Schedule-Free": Entrant(
        "schedule-free",
        {"lr": Range(0.05, 5.0, log=True), "momentum": Range(0.5, 0.98), "weight_decay": DECAY},
        {"base": "sgd", "warmup": 0.05},
    ),
    "SGD + SWA": Entrant("swa", {**SGD, "swa_lr": RATE, "start": Range(0.25, 0.9)}),
    "Lookahead": Entrant(
        "lookahead", {**SGD, "k": Range(5, 40, log=True, integer=True), "alpha": Range(0.2, 1.0)}
    ),
    "ASAM": Entrant("asam", {**SGD, "rho": Range(0.1, 4.0, log=True)}),
    "SNOO": Entrant(
        "local-entropy",
        {**INNER, "outer_momentum": Range(0.0, 0.8), "lr": Range(0.3, 1.0)},
        {**KEPT, "anneal": "inner", "schedule": "constant", "gamma0": 0.0, "noise": 0.0, "alpha": 1.0},
    ),
    "Entropy-SGD, kept, both rates": Entrant(
        "local-entropy", {**INNER, **AVERAGE}, {**KEPT, "anneal": "both", "schedule": "exponential"}
    ),
    "Entropy-SGD, kept, MatchGradient": Entrant(
        "local-entropy",
        {**INNER, **AVERAGE},
        {**KEPT, "anneal": "inner", "schedule": "match-gradient", "schedule_options": ("maximum=1.0",)},
    ),
    "Entropy-SGD, kept, Focus": Entrant(
        "local-entropy",
        {**INNER, **AVERAGE},
        {**KEPT, "anneal": "inner", "schedule": "focus", "schedule_options": ("maximum=1.0",)},
    ),
    "Entropy-Adam": Entrant(
        "entropy-adam",
        {**INNER, "lr": Range(1e-3, 1e-1, log=True), "betas": BETAS},
        {"L": 5, "alpha": 0.75, "gamma0": 1e-2, "gamma1": 0.0, "noise": 1e-4},
    ),
    "Replicas, n = 3": Entrant(
        "parle",
        {**INNER, "rho0": Range(1e-3, 0.5, log=True)},
        {"lr": 1.0, "momentum": 0.0, "L": 20, "alpha": 0.75, "noise": 1e-4, "replicas": 3},
    ),
    "Entropy-SGD, kept, alpha 0.25": Entrant("entropy-sgd", INNER, {**SIMPLE, "alpha": 0.25}, later=True),
    # With this lr x keeps pace with a steady x', which mu lags behind by (1 - alpha) / alpha steps.
    "Entropy-SGD, kept, alpha 0.25, lr 1.18": Entrant(
        "entropy-sgd", INNER, {**SIMPLE, "alpha": 0.25, "lr": 1.1758}, later=True
    ),
    "Entropy-SGD, kept, alpha 0.75": Entrant("entropy-sgd", INNER, SIMPLE, later=True),
    "Entropy-SGD, defaults": Entrant("entropy-sgd", INNER, {**SIMPLE, "alpha": 0.9}, later=True),
}


@dataclass(frozen=True)
class Task:
    """A network, its data and a budget in effective epochs."""

    network: str
    epochs: float
    changes: Mapping[str, Any] = field(default_factory=dict[str, Any])
    """Of the recipe."""
    entrants: tuple[str, ...] = tuple(ENTRANTS)
    qualifying: tuple[str, ...] = ()
    """If there are such tasks, the best of the entrants there take part, `PLACES` of them."""
    ranges: Mapping[str, Mapping[str, Search]] = field(default_factory=dict[str, Mapping[str, Search]])
    """What is searched elsewhere than on the other tasks, by entrant."""

    def search(self, title: str) -> dict[str, Search]:
        """The space of an entrant."""
        return {**ENTRANTS[title].search, **self.ranges.get(title, {})}


PLACES = 5

SIX = ("SGD", "AdamW", "SGD + EMA", "SAM", "Entropy-SGD, paper", "Entropy-SGD, kept")
# Text wants higher rates: the recipes have 1 for SGD and for the inner loop. A first search, over the ranges
# of the images, had nearly all of SGD's trials fail (results/tournament/char-lstm-narrow.json).
FAST = Range(0.05, 5.0, log=True)
TEXT: dict[str, Mapping[str, Search]] = {
    "AdamW": {"lr": Range(1e-3, 3e-2, log=True)},
    "SGD": {"lr": FAST},
    "Entropy-Adam": {"inner_lr": FAST},
    "Entropy-SGD, kept": {"inner_lr": FAST},
    "Entropy-SGD, kept, alpha 0.75": {"inner_lr": FAST},
    "Entropy-SGD, defaults": {"inner_lr": FAST},
}
SHORT = ("mnistfc-tenth", "mnistfc", "lenet", "mnistfc-wrong-labels")
TASKS: dict[str, Task] = {
    "mnistfc-tenth": Task("mnistfc", 20, {"data_fraction": 0.1, "evaluate_every": 5.0}),
    "mnistfc": Task("mnistfc", 5),
    "lenet": Task("lenet", 5, {"channels_last": True}),
    "mnistfc-wrong-labels": Task("mnistfc", 5, {"label_noise": 0.2}),
    "mnistfc-long": Task("mnistfc", 20, qualifying=SHORT),
    "mnistfc-wrong-labels-long": Task("mnistfc", 20, {"label_noise": 0.2}, qualifying=SHORT),
    "allcnn-quarter": Task("allcnn", 10, {"width": 0.25}, SIX),
    "char-lstm": Task("char-lstm", 1, {}, tuple(TEXT), ranges=TEXT),
}
