"""Scoping of gamma (Section 4.3): from a smooth landscape to ever finer scales.

A schedule is a callable: `schedule(t)` is the scope for the cycle that follows `t` outer updates, so
`schedule(0)` serves the first cycle. Any function from int to float will do; those of the paper are here.

    Constant             gamma0
    Exponential          gamma0 (1 + gamma1)^t          the paper's choice
    Linear               gamma0 (1 + gamma1 t)
    Quadratic            gamma0 (1 + gamma1 t^2)
    BoundedExponential   gamma0 (1 - exp(-tau t))       note: 0 at t = 0
    MatchGradient        such that |gamma (x - mu)| = |grad f(x)|, measured as training goes

Each takes an optional `maximum`, above which gamma does not rise.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass

from entropy_sgd import arguments

Schedule = Callable[[int], float]


class _Bounded(ABC):
    """A schedule with a formula of its own, cut off at `maximum`."""

    maximum: float | None

    def __post_init__(self) -> None:
        for name, value in vars(self).items():
            if value is not None or name != "maximum":
                arguments.number(f"{type(self).__name__}: {name}", value)

    @abstractmethod
    def formula(self, t: int) -> float:
        """The scope after `t` outer updates, were there no maximum."""

    def __call__(self, t: int) -> float:
        """The scope after `t` outer updates."""
        try:
            gamma = float(self.formula(t))
        except OverflowError:  # (1 + gamma1)^t outgrows a float after some hundred thousand updates
            gamma = math.inf
        return gamma if self.maximum is None else min(gamma, self.maximum)


@dataclass(frozen=True)
class Constant(_Bounded):
    """gamma(t) = gamma0."""

    gamma0: float
    maximum: float | None = None

    def formula(self, t: int) -> float:
        """gamma0."""
        return self.gamma0


@dataclass(frozen=True)
class Exponential(_Bounded):
    """gamma(t) = gamma0 (1 + gamma1)^t: the schedule of the paper's experiments."""

    gamma0: float
    gamma1: float
    maximum: float | None = None

    def formula(self, t: int) -> float:
        """gamma0 (1 + gamma1)^t."""
        return self.gamma0 * (1 + self.gamma1) ** t


@dataclass(frozen=True)
class Linear(_Bounded):
    """gamma(t) = gamma0 (1 + gamma1 t)."""

    gamma0: float
    gamma1: float
    maximum: float | None = None

    def formula(self, t: int) -> float:
        """gamma0 (1 + gamma1 t)."""
        return self.gamma0 * (1 + self.gamma1 * t)


@dataclass(frozen=True)
class Quadratic(_Bounded):
    """gamma(t) = gamma0 (1 + gamma1 t^2)."""

    gamma0: float
    gamma1: float
    maximum: float | None = None

    def formula(self, t: int) -> float:
        """gamma0 (1 + gamma1 t^2)."""
        return self.gamma0 * (1 + self.gamma1 * t**2)


@dataclass(frozen=True)
class BoundedExponential(_Bounded):
    """gamma(t) = gamma0 (1 - exp(-tau t)): it starts at 0 and settles at gamma0."""

    gamma0: float
    tau: float
    maximum: float | None = None

    def formula(self, t: int) -> float:
        """gamma0 (1 - exp(-tau t))."""
        return -self.gamma0 * math.expm1(-self.tau * t)


@dataclass(frozen=True)
class MatchGradient(_Bounded):
    """The paper's rule for choosing gamma (end of Section 4.2), applied anew after every cycle.

    "Match the magnitude of the gradient of the local entropy term, gamma (x - mu), to the gradient for
    vanilla SGD." Both norms are free: the first gradient of a cycle is taken at x, and x - mu is the outer
    update. The scope of the next cycle is

        gamma(t + 1) = |grad f(x_t)| / |x_t - mu_t|,    at most `maximum`.

    The larger gamma is, the shorter is x - mu, so the rule raises gamma as training goes: it scopes by
    itself. It settles where one inner step is undone by the spring, gamma = 1 / inner_lr, because averaging
    the mini-batch noise always leaves |gamma (x - mu)| a little short of |grad f(x)|; the optimizer does not
    let the rule go beyond that, where the spring would throw x' to the far side of x.

    The first cycle runs with `initial`, small as the paper advises.
    """

    initial: float = 1e-4
    maximum: float | None = None

    def formula(self, t: int) -> float:
        """Before anything was measured: `initial`."""
        return self.initial

    def match(self, gamma: float, gradient: float, displacement: float) -> float:
        """The next scope, from this one, |grad f(x)| and |x - mu|; unchanged if there is nothing to match."""
        if not (
            math.isfinite(gradient) and math.isfinite(displacement) and gradient > 0 and displacement > 0
        ):
            return gamma
        matched = gradient / displacement
        return matched if self.maximum is None else min(matched, self.maximum)


def as_schedule(gamma: float | Schedule) -> Schedule:
    """`gamma` itself if it is a schedule, else the constant schedule of that number."""
    if callable(gamma):
        return gamma
    arguments.number("gamma", gamma)
    return Constant(float(gamma))


def evaluate(schedule: Schedule, t: int) -> float:
    """`schedule(t)`, refused unless it is a finite number >= 0."""
    gamma = schedule(t)
    arguments.number(f"gamma at outer step {t} (from {schedule!r}; a `maximum` bounds a schedule)", gamma)
    return float(gamma)
