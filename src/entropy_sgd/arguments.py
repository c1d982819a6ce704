"""Argument checks: every message names the argument, the value given, and what is accepted."""

from __future__ import annotations

import math
from collections.abc import Sequence
from numbers import Integral, Real
from typing import Any, cast

from torch import Tensor


class ArgumentError(ValueError, TypeError):
    """A hyper-parameter of the wrong type or outside its range.

    It is both a `ValueError` and a `TypeError`, so that code that catches either keeps working.
    """


def plain(options: dict[str, Any]) -> dict[str, Any]:
    """The options with numbers of other kinds (numpy's) as int and float, which every checkpoint can hold."""

    def convert(value: Any) -> Any:
        if type(value) in (tuple, list):
            return type(value)(map(convert, value))
        if type(value) in (bool, int, float) or not isinstance(value, Real):
            return value
        return int(value) if isinstance(value, Integral) else float(value)

    return {k: v if k in ("params", "param_names") else convert(v) for k, v in options.items()}


def refuse(name: str, value: object, accepted: str) -> ArgumentError:
    """The error for `name=value` where only `accepted` will do."""
    return ArgumentError(f"{name} must be {accepted}, got {value!r}")


def number(name: str, value: Any, low: float = 0.0, high: float = math.inf, *, below: bool = False) -> None:
    """`value` is a finite real number in [low, high], or in [low, high) with `below`."""
    interval = f"[{low:g}, {high:g}{')' if below or math.isinf(high) else ']'}"
    accepted = f"a finite number in {interval}"
    if isinstance(value, bool) or not isinstance(value, Real):
        raise refuse(name, value, accepted)
    real = float(value)
    if not math.isfinite(real) or real < low or real > high or (below and real == high):
        raise refuse(name, value, accepted)


def one_number(name: str, value: Any) -> None:
    """A number, or a tensor with one element, which torch takes too."""
    accepted = "a number or a tensor with one element"
    if isinstance(value, Tensor):
        if value.numel() != 1:
            raise refuse(name, value, accepted)
    elif isinstance(value, bool) or not isinstance(value, Real):
        raise refuse(name, value, accepted)


def learning_rate(name: str, value: Any) -> None:
    """A finite number that is not negative, or a tensor with one element that holds it."""
    one_number(name, value)
    number(name, value.item() if isinstance(value, Tensor) else value)


def integer(name: str, value: Any, low: int, high: int | None = None) -> None:
    """`value` is an integer, not below `low`, not above `high`."""
    accepted = f"an integer >= {low}" if high is None else f"an integer from {low} to {high}"
    if isinstance(value, bool) or not isinstance(value, Integral):
        raise refuse(name, value, accepted)
    whole = int(value)
    if whole < low or (high is not None and whole > high):
        raise refuse(name, value, accepted)


def seed(name: str, value: Any) -> None:
    """Any 64-bit integer, signed or not, as torch.manual_seed takes it."""
    integer(name, value, -(1 << 63), (1 << 64) - 1)


def flag(name: str, value: object, *, optional: bool = False) -> None:
    """`value` is True or False, or None with `optional`."""
    if not (isinstance(value, bool) or (optional and value is None)):
        raise refuse(name, value, "True, False or None" if optional else "True or False")


def choice(name: str, value: object, choices: Sequence[str]) -> None:
    """`value` is one of `choices`."""
    if value not in choices:
        raise refuse(name, value, " or ".join(repr(c) for c in choices))


def betas(name: str, value: object) -> None:
    """`value` is a pair of numbers in [0, 1)."""
    pair: Sequence[Any] = cast(Any, value) if isinstance(value, (tuple, list)) else ()
    if len(pair) != 2:
        raise refuse(name, cast(object, value), "a pair of numbers in [0, 1)")
    for i, beta in enumerate(pair):
        number(f"{name}[{i}]", beta, 0.0, 1.0, below=True)


def positive(name: str, value: Any) -> float:
    """`value` as a float; it must be a finite number above zero."""
    accepted = "a finite number above 0"
    try:
        number = float(value)
    except (TypeError, ValueError):
        raise refuse(name, value, accepted) from None
    if not (math.isfinite(number) and number > 0.0):
        raise refuse(name, value, accepted)
    return number


def count(name: str, value: Any, least: int = 1) -> int:
    """`value` as an int; it must be a whole number of at least `least`."""
    accepted = f"a whole number of at least {least}"
    try:
        whole = int(value)
    except (TypeError, ValueError, OverflowError):
        raise refuse(name, value, accepted) from None
    if isinstance(value, bool) or whole != value or whole < least:
        raise refuse(name, value, accepted)
    return whole
