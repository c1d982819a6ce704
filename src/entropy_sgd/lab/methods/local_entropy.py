"""Algorithm 1 in full generality: `LocalEntropy` around any optimizer, with any inner rule and any scoping.

Names stand for classes: `outer` for one of `torch.optim`, `inner` for a rule of Algorithm 1 or again for one
of `torch.optim`, `schedule` for one of `entropy_sgd.scoping`; written in any case, with hyphens or without.
"""

from __future__ import annotations

import ast
import inspect
import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Literal

from entropy_sgd.lab import LabError, unknown
from entropy_sgd.lab.methods.algorithm1 import SEARCH, AroundAlgorithm1, InnerOptions, inner_defaults
from entropy_sgd.lab.methods.base import BETAS, Choice, Hints, Range

if TYPE_CHECKING:
    from torch import nn


@dataclass(frozen=True, kw_only=True)
class LocalEntropyOptions(InnerOptions):
    """Local entropy: Algorithm 1 with any optimizer outside, any rule inside and any scoping."""

    lr: float
    """Outer learning rate at the start; the recipe's drops multiply it."""
    outer: str = "sgd"
    """Outer optimizer, a class of torch.optim: sgd, adamw, rmsprop, …"""
    outer_options: tuple[str, ...] = ()
    """Its options besides lr: momentum=0.9 nesterov=True"""
    inner: str = "sgd"
    """Rule of the Langevin loop: sgd, adam, sghmc, sgnht, or a class of torch.optim."""
    inner_options: tuple[str, ...] = ()
    """Options of an inner class of torch.optim: weight_decay=0.01"""
    inner_state: Literal["reset", "keep"] = "reset"
    """Whether momentum and moments of the Langevin loop start from zero in each cycle or are kept."""
    anneal: Literal["outer", "inner", "both"] = "outer"
    """What the recipe's drops multiply: lr, inner_lr in its place, or both."""
    schedule: str = "exponential"
    """Scoping: constant, exponential, linear, quadratic, bounded-exponential, match-gradient, focus; those
    that have γ₀ and γ₁ take gamma0 and gamma1."""
    schedule_options: tuple[str, ...] = ()
    """Other options of the scoping: tau=0.01 maximum=10. A scope above 2 / inner_lr makes the inner loop
    unstable; focus grows beyond that unless it has a maximum."""
    scale_by_gamma: bool = False
    """Update with γ (x - μ), as line 7 is printed, not with x - μ (Section 4.3)."""


class LocalEntropy(AroundAlgorithm1[LocalEntropyOptions]):
    """Algorithm 1 around any optimizer."""

    name = "local-entropy"
    options = LocalEntropyOptions
    search = {
        "lr": Range(1e-4, 2.0, log=True),
        "outer": Choice(("sgd", "adamw", "rmsprop")),
        "outer_momentum": BETAS[0],
        "outer_beta2": BETAS[1],
        "inner_state": Choice(("reset", "keep")),
        "schedule": Choice(("constant", "exponential", "match-gradient")),
        **SEARCH,
    }
    rate = "inner_lr"

    def defaults(self, hints: Hints) -> LocalEntropyOptions:
        momentum = (f"momentum={hints.outer_momentum}", "nesterov=True")
        return LocalEntropyOptions(lr=1.0, outer_options=momentum, **inner_defaults(hints))

    def searched(self, options: LocalEntropyOptions, chosen: Mapping[str, Any]) -> LocalEntropyOptions:
        """Momentum and β₂ of the outer loop, by the names that the outer optimizer has for them."""
        rest = dict(chosen)
        momentum, beta2 = rest.pop("outer_momentum"), rest.pop("outer_beta2")
        named = {
            "sgd": (f"momentum={momentum}", f"nesterov={momentum > 0}"),
            "adamw": (f"betas=({momentum},{beta2})",),
            "rmsprop": (f"momentum={momentum}", f"alpha={beta2}"),
        }
        return replace(options, outer_options=named[rest["outer"]], **rest)

    def stretched(self, options: LocalEntropyOptions, ratio: float) -> LocalEntropyOptions:
        """The formulas in t, the number of outer updates, with t / ratio in its place."""
        gamma1 = options.gamma1
        match _plain(options.schedule):
            case "exponential":
                gamma1 = math.expm1(math.log1p(gamma1) / ratio)
            case "linear":
                gamma1 /= ratio
            case "quadratic":
                gamma1 /= ratio**2
            case _:
                pass
        others = _keywords("schedule_options", options.schedule_options)
        if "tau" in others:
            others["tau"] /= ratio
        for count in ("start", "updates"):
            if count in others:
                others[count] = round(others[count] * ratio)
        given = tuple(f"{name}={value!r}" for name, value in others.items())
        return replace(options, gamma1=gamma1, schedule_options=given)

    def build(self, options: LocalEntropyOptions, model: nn.Module, *, seed: int, steps: int) -> Any:
        import entropy_sgd

        keywords: dict[str, Any] = {
            "outer_options": {"lr": options.lr, **_keywords("outer_options", options.outer_options)},
            "inner": _inner(options.inner),
            "seed": seed,
        }
        names = ["L", "inner_lr", "inner_state", "noise", "alpha", "weight_decay", "scale_by_gamma", "anneal"]
        if isinstance(keywords["inner"], str):  # a class of torch.optim has its own in inner_options
            names += ["inner_momentum", "inner_nesterov"]
        for name in names:
            keywords[name] = getattr(options, name)
        if options.inner_options:
            keywords["inner_options"] = _keywords("inner_options", options.inner_options)
        try:
            keywords["gamma"] = _schedule(options, updates=max(1, steps // options.L))
            return entropy_sgd.LocalEntropy(model.parameters(), _torch_optimizer(options.outer), **keywords)
        except TypeError as error:  # an option that the named class does not have
            raise LabError(
                f"{self.name} refuses its options: {error}; another outer or inner optimizer needs options "
                "of its own (--optimizer.outer-options, --optimizer.inner-options, --optimizer.lr)"
            ) from error


def _plain(name: str) -> str:
    return name.lower().replace("-", "").replace("_", "")


def _keywords(option: str, given: Iterable[str]) -> dict[str, Any]:
    """`NAME=VALUE …` as keyword arguments; the values are Python's numbers, tuples, True, False and None."""
    found: dict[str, Any] = {}
    for entry in given:
        name, equals, value = entry.partition("=")
        try:
            if not equals:
                raise ValueError
            found[name.replace("-", "_")] = ast.literal_eval(value)
        except (ValueError, SyntaxError) as error:
            raise LabError(f"{option} takes NAME=VALUE, such as momentum=0.9, got {entry!r}") from error
    return found


def _torch_optimizer(name: str) -> Any:
    import torch

    kinds = {
        kind.lower(): found
        for kind, found in vars(torch.optim).items()
        if inspect.isclass(found) and issubclass(found, torch.optim.Optimizer) and kind != "Optimizer"
    }
    if _plain(name) not in kinds:
        raise unknown("optimizer of torch.optim", name, kinds)
    return kinds[_plain(name)]


def _inner(name: str) -> Any:
    from entropy_sgd.optim.rules import RULES

    return _plain(name) if _plain(name) in RULES else _torch_optimizer(name)


def _schedule(options: LocalEntropyOptions, updates: int) -> Any:
    """The scoping; one that needs the number of outer updates of the run receives it."""
    from entropy_sgd import scoping

    kinds = {
        kind.lower(): found
        for kind, found in vars(scoping).items()
        if inspect.isclass(found) and inspect.isfunction(getattr(found, "__call__", None))  # noqa: B004
        if not inspect.isabstract(found)
    }
    kind = kinds.get(_plain(options.schedule))
    if kind is None:
        raise unknown("schedule of scoping", options.schedule, kinds)
    accepted = inspect.signature(kind).parameters
    known = {"gamma0": options.gamma0, "gamma1": options.gamma1, "updates": updates}
    offered = {name: value for name, value in known.items() if name in accepted}
    return kind(**{**offered, **_keywords("schedule_options", options.schedule_options)})


METHOD = LocalEntropy()
