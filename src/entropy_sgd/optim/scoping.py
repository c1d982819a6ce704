"""Scoping of gamma (Section 4.3): from a smooth landscape to ever finer scales.

A schedule is a callable: `schedule(t)` is the scope for the cycle that follows `t` outer updates, so
`schedule(0)` serves the first cycle. Any function from int to float will do; those of the paper are here.

    Constant             gamma0
    Exponential          gamma0 (1 + gamma1)^t          the paper's choice
    Linear               gamma0 (1 + gamma1 t)
    Quadratic            gamma0 (1 + gamma1 t^2)
    BoundedExponential   gamma0 (1 - exp(-tau t))       note: 0 at t = 0
    MatchGradient        such that |gamma (x - mu)| = |grad f(x)|, measured during training
    Focus                from the ratio of two energies, f and |x - x'|^2 / 2, then exponential

and for the coupling rho of `Replicas`, a schedule of the same kind:

    parle(batches)       gamma and rho as Parle has them
    ReplicaFocus         from the ratio of f and |x - mean of the replicas|^2 / 2, then exponential

Each takes an optional `maximum`, an upper bound of gamma.

A schedule that measures also has a method `after(gamma, cycle)`: the optimizer calls it after every cycle
with its measurements, a `Cycle`, and uses the result as the scope of the next cycle. A schedule that needs
the loss sets `needs_loss = True`.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass

from entropy_sgd import arguments

Schedule = Callable[[int], float]


@dataclass(frozen=True)
class Cycle:
    """The measurements of a cycle, for a schedule that uses them."""

    t: int
    """Outer updates made, this cycle's included."""
    gradient: float
    """|grad f(x)| on the first mini-batch."""
    displacement: float
    """|x - mu|."""
    distance: float
    """The mean of |x - x'| over the steps."""
    loss: float
    """The mean loss over the steps; NaN unless the schedule needs it."""
    inner_lr: float
    """The largest step size of the inner loop."""


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
    """The paper's rule for choosing gamma (end of Section 4.2), applied again after every cycle.

    "Match the magnitude of the gradient of the local entropy term, gamma (x - mu), to the gradient for
    vanilla SGD." Both norms are free: the first gradient of a cycle is taken at x, and x - mu is the outer
    update. The scope of the next cycle is

        gamma(t + 1) = |grad f(x_t)| / |x_t - mu_t|,    at most `maximum`.

    The larger gamma is, the shorter x - mu, so the rule raises gamma as training proceeds: no other scoping
    is needed. It settles at gamma = 1 / inner_lr, where the spring undoes one inner step, because averaging
    the mini-batch noise always leaves |gamma (x - mu)| a little short of |grad f(x)|. The rule does not go
    beyond that value, where the spring would throw x' to the far side of x.

    The first cycle runs with `initial`, small as the paper advises.
    """

    initial: float = 1e-4
    maximum: float | None = None

    def formula(self, t: int) -> float:
        """Before anything was measured: `initial`."""
        return self.initial

    def after(self, gamma: float, cycle: Cycle) -> float:
        """The next scope; unchanged if there is nothing to match."""
        if not (0 < cycle.gradient < math.inf and 0 < cycle.displacement < math.inf):
            return gamma
        matched = cycle.gradient / cycle.displacement
        if cycle.inner_lr > 0:
            matched = min(matched, 1 / cycle.inner_lr)
        return matched if self.maximum is None else min(matched, self.maximum)


@dataclass(frozen=True)
class Focus(_Bounded):
    """Focusing (Pittorino et al., 2021, "Entropic gradient descent algorithms and wide flat minima").

    The scope is 0 up to outer update `start`. There it becomes the ratio of the two energies in the exponent
    of local entropy, and grows exponentially from then on:

        gamma(t0) = f / (|x - x'|^2 / 2),    gamma(t + 1) = (1 + gamma1) gamma(t),
        gamma1 = growth^(1 / updates) - 1,

    so that it is `growth` times its initial value after `updates` more outer updates. With `start=0` the
    first cycle is the one that is measured, without a spring. Above 2 / inner_lr the spring throws x' further
    from x at each step: if the ratio or its growth may lead there, set `maximum=1 / inner_lr`.

    Args:
        updates: T, the outer updates of the whole run.
        start: t0, the outer updates made with a scope of 0; at least one.
        growth: factor by which the scope grows over `updates` outer updates.
        loss: f in the ratio. None takes the mean loss of the cycle before, for which the training loop must
            call `step(closure)` or `cycle(closure)`.
        maximum: above which the scope does not rise.
    """

    updates: int
    start: int = 0
    growth: float = 1e4
    loss: float | None = None
    maximum: float | None = None

    def __post_init__(self) -> None:
        arguments.integer("Focus: updates", self.updates, 1)
        arguments.integer("Focus: start", self.start, 0)
        arguments.number("Focus: growth", self.growth, 1.0)
        for name in ("loss", "maximum"):
            if getattr(self, name) is not None:
                arguments.number(f"Focus: {name}", getattr(self, name))

    @property
    def needs_loss(self) -> bool:
        """Whether the mean loss of a cycle must be measured."""
        return self.loss is None

    def formula(self, t: int) -> float:
        """Before anything was measured: 0."""
        del t
        return 0.0

    def after(self, gamma: float, cycle: Cycle) -> float:
        """The next scope; 0 as long as the energies give none."""
        gamma = self._focused(gamma, cycle)
        return gamma if self.maximum is None else min(gamma, self.maximum)

    def _focused(self, gamma: float, cycle: Cycle) -> float:
        if cycle.t < self.start:
            return 0.0
        if gamma == 0:
            f = cycle.loss if self.loss is None else self.loss
            energy = cycle.distance**2 / 2
            gamma = f / energy if energy > 0 else 0.0
            if not 0 <= gamma < math.inf:  # a loss below zero or not finite gives no ratio of energies
                return 0.0
        else:
            gamma *= self.growth ** (1 / self.updates)
        return gamma


@dataclass(frozen=True)
class ReplicaFocus(Focus):
    """Focusing of replicas, rSGD (Pittorino et al., 2021): for the coupling `rho` of `Replicas`.

    rSGD descends the mean over the replicas of f(x_a) + g |x_a - x̄|^2 / 2, where

        g(t0) = mean of f(x_a) / mean of |x_a - x̄|^2 / 2,    g(t + 1) = growth^(1 / updates) g(t).

    Its step of size eta' adds eta' g (x_a - x̄) to eta' grad f(x_a), so rho = eta' g, with eta' = `inner_lr`.
    Replicas start together, so g begins after the first cycle that has spread them.

    Args:
        updates: T, the outer updates of the whole run.
        start: t0, the outer updates made without coupling; at least one.
        growth: factor by which the coupling grows over `updates` outer updates.
        loss: f in the ratio. None takes the mean loss of the cycle, for which the training loop must call
            `step(closure)` or `cycle(closure)`.
        maximum: above which rho does not rise. With an outer `lr` of 1 a replica moves onto the mean at 1.
    """

    maximum: float | None = 1.0

    def after(self, gamma: float, cycle: Cycle) -> float:
        """The next coupling."""
        rho = self._focused(gamma / cycle.inner_lr, cycle) * cycle.inner_lr if cycle.inner_lr > 0 else 0.0
        return rho if self.maximum is None else min(rho, self.maximum)


def parle(batches: int) -> tuple[Exponential, Exponential]:
    """The gamma and rho of Parle (Chaudhari et al., 2017, "Parle: parallelizing SGD").

    Both are 0.01 (1 + 1/(2B))^t, with B mini-batches per epoch; gamma is at most 1, rho at most 10. Parle
    prints their inverses, which shrink. Replicas move towards their mean at the rate lr * rho, which must
    stay below 2: with `lr=0.1` it ends at 1.
    """
    arguments.integer("batches", batches, 1)
    growth = 1 / (2 * batches)
    return Exponential(0.01, growth, maximum=1.0), Exponential(0.01, growth, maximum=10.0)


def as_schedule(gamma: float | Schedule, name: str = "gamma") -> Schedule:
    """`gamma` itself if it is a schedule, else the constant schedule of that number."""
    if callable(gamma):
        return gamma
    arguments.number(name, gamma)
    return Constant(float(gamma))


def description(schedule: Schedule) -> str | None:
    """What a schedule of this module is built with; None for a function of the user's."""
    if isinstance(schedule, Constant):
        return repr(schedule(0))
    return repr(schedule) if isinstance(schedule, _Bounded) else None


def evaluate(schedule: Schedule, t: int, name: str = "gamma") -> float:
    """`schedule(t)`, refused unless it is a finite number >= 0."""
    return checked(schedule(t), schedule, t, name)


def checked(gamma: float, schedule: Schedule, t: int, name: str = "gamma") -> float:
    """`gamma`, which `schedule` gave after `t` outer updates; refused unless it is a finite number >= 0."""
    if type(gamma) is not float or not 0.0 <= gamma < math.inf:  # to write the message takes long
        what = f"{name} at outer step {t} (from {schedule!r}; a `maximum` bounds a schedule)"
        arguments.number(what, gamma)
    return float(gamma)
