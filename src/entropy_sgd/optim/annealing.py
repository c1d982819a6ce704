"""Which of the two learning rates a scheduler moves.

A scheduler writes `lr`. Its factor is `lr` over the value that the group was given at first, the base rate:

    anneal="outer"   the outer rate is lr, and inner_lr stays as it is        Section 4.2 of the paper
    anneal="inner"   inner_lr is multiplied by the factor, and the outer rate stays the base rate
    anneal="both"    inner_lr is multiplied by the factor, and the outer rate is lr
"""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor

from entropy_sgd import arguments

CHOICES = ("outer", "inner", "both")
BASE = "entropy_base_lr"


def remember(group: dict[str, Any], unit: float = 0.0) -> None:
    """The rate that the factor is relative to, in a group that has not got one yet.

    A rate of 0 is no scale. As long as it stays 0, x stays where it is and the inner loop steps with
    `inner_lr`; a later rate is relative to `unit`, or to itself if that is 0.
    """
    if not group.get(BASE) and group.get("lr") is not None:
        arguments.one_number("lr", group["lr"])
        lr, rises = float(group["lr"]), group.get(BASE) == 0.0
        group[BASE] = (unit or lr) if rises and lr else lr


def factor(group: dict[str, Any]) -> float:
    """What schedulers have made of the rate; 1 for an outer optimizer without one, or with a rate of 0."""
    base, lr = group.get(BASE), group.get("lr")
    return float(lr) / base if base and lr is not None else 1.0


def inner_rate(group: dict[str, Any]) -> float:
    """The step size of the inner loop, as schedulers have moved it."""
    return group["inner_lr"] * (1.0 if group["anneal"] == "outer" else factor(group))


def misread(group: dict[str, Any], momentum: float | None) -> str | None:
    """Absolute values that a scheduler has set as for SGD, and what they do here.

    `OneCycleLR` leaves `max_lr` in the group, it and `CyclicLR` leave `max_momentum`. `momentum` is what the
    optimizer was built with, None if it has no such option.
    """
    found: list[str] = []
    base, peak, moves_inner = group.get(BASE), group.get("max_lr"), group["anneal"] != "outer"
    if isinstance(peak, Tensor) and peak.numel() == 1:
        peak = peak.item()
    if moves_inner and base and isinstance(peak, int | float) and abs(peak / base - 1) > 1e-6:
        found.append(
            f"max_lr={peak:g} is a factor on inner_lr, relative to lr={base:g}, so the inner loop peaks at "
            f"{group['inner_lr'] * peak / base:g}: set max_lr={base:g} and pass the peak as inner_lr"
        )
    if "max_momentum" in group and momentum is not None and (moves_inner or momentum == 0):
        found.append(
            "`momentum` is the outer loop's and carries x beyond mu: set cycle_momentum=False, and give "
            "rates relative to lr"
        )
    return f"a scheduler has set absolute values, as for SGD: {'; '.join(found)}" if found else None


def written(group: dict[str, Any]) -> str | None:
    """What an `lr` does that is `inner_lr`, and that no scheduler has set.

    Asked once, after the first cycle, when a warm-up by hand is unlikely to be at this very factor.
    """
    base, lr, inner_lr = group.get(BASE), group.get("lr"), group["inner_lr"]
    if group["anneal"] == "outer" or not base or not lr or "initial_lr" in group:
        return None
    if not math.isclose(float(lr), inner_lr, rel_tol=1e-6) or math.isclose(inner_lr, base, rel_tol=1e-6):
        return None
    return (
        f"lr={float(lr):g} is a factor on inner_lr, relative to lr={base:g}, so the inner loop steps with "
        f"{inner_lr * float(lr) / base:g}. If it was meant as SGD's rate, write lr={base:g} times its decay"
    )


class Applied:  # a generator in its place would take three times as long
    """Inside, `inner_lr` and `lr` of the groups are the rates to step with."""

    def __init__(self, groups: list[dict[str, Any]], unit: float) -> None:
        self._groups, self._unit = groups, unit
        self._before: list[tuple[dict[str, Any], dict[str, Any]]] = []

    def __enter__(self) -> None:
        try:
            for group in self._groups:
                if group["anneal"] != "outer":
                    self._apply(group)
        except BaseException:
            self.__exit__()
            raise

    def _apply(self, group: dict[str, Any]) -> None:
        remember(group, self._unit)
        lr, base, inner_lr = group.get("lr"), group.get(BASE), group["inner_lr"]
        self._before.append(
            (group, {"inner_lr": inner_lr} if lr is None else {"inner_lr": inner_lr, "lr": lr})
        )
        group["inner_lr"] = inner_rate(group)
        if group["anneal"] == "inner" and base is not None:
            group["lr"] = torch.full_like(lr, base) if isinstance(lr, Tensor) else base

    def __exit__(self, *_: object) -> None:
        for group, rates in self._before:
            group.update(rates)
