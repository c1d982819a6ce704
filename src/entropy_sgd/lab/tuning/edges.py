"""Best settings at the edge of what was searched: better ones may lie beyond."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from typing import Any

from entropy_sgd.lab import methods
from entropy_sgd.lab.methods.base import Choice, Range, Search
from entropy_sgd.lab.tuning.space import parts
from entropy_sgd.lab.tuning.tuning import Found

MARGIN = 0.02
"""The part of a range, at each end, that counts as its edge."""


def edges(found: Found, space: Mapping[str, Search]) -> Iterator[str]:
    """What is at an edge, in sentences: the rate among those tried, other options in their ranges."""
    if found.best is None:
        return
    method, best = methods.get(found.method), found.best
    tried = [trial.rate for trial in found.line()] if found.rates else []
    if tried and best.rate in (tried[0], tried[-1]):
        yield (
            f"{found.method}: {_name(method.rate)} {best.rate:.3g} is at the edge of the rates tried, "
            f"{tried[0]:.3g} to {tried[-1]:.3g}: --rates {len(found.rates) + 2} tries more"
        )
    for name, how in parts(space).items():
        if isinstance(how, Choice) or (name == method.rate and tried):
            continue
        if at_edge(value := _value(best.options, name), how):
            yield (
                f"{found.method}: {_name(name)} {value:.3g} is at the edge of its range, "
                f"{how.low:g} to {how.high:g}: --search {found.method}:{_name(name)}={_wider(value, how)} "
                "tries more"
            )


def at_edge(value: float, how: Range) -> bool:
    """Whether the value is at an end of the range beyond which there is more."""
    low, high, there = _places(value, how)
    margin = MARGIN * (high - low)
    bounded = not how.log and how.high <= 1  # momenta, betas and the like end at 0 and at 1
    least = how.low == (1 if how.integer else 0)
    return (there <= low + margin and not least) or (there >= high - margin and not bounded)


def _places(value: float, how: Range) -> tuple[float, float, float]:
    low, high, there = (math.log(x) if how.log else x for x in (how.low, how.high, value))
    return low, high, there


def _wider(value: float, how: Range) -> str:
    """A range that goes on where the value is at the end of this one."""
    low, high, there = _places(value, how)
    if there - low > high - there:
        return f"{how.low:g}..{how.high * 10 if how.log else 2 * how.high - how.low:g}"
    if how.integer:
        return f"{max(1, how.low // 10):g}..{how.high:g}"
    return f"{how.low / 10 if how.low > 0 else 2 * how.low - how.high:g}..{how.high:g}"


def _value(options: dict[str, Any], name: str) -> float:
    option, dot, index = name.partition(".")
    return options[option][int(index)] if dot else options[option]


def _name(option: str) -> str:
    return option.replace("_", "-")
