"""Argument checks shared by the measurements: each names the argument, what came and what is accepted."""

from __future__ import annotations

import math


def positive(name: str, value: float) -> float:
    """``value`` as a float; it must be a finite number above zero."""
    number = float(value)
    if not (math.isfinite(number) and number > 0.0):
        raise ValueError(f"{name} must be a finite number above 0, got {value!r}")
    return number


def count(name: str, value: int, least: int = 1) -> int:
    """``value`` if it is a whole number of at least ``least``."""
    if isinstance(value, bool) or int(value) != value or value < least:
        raise ValueError(f"{name} must be a whole number of at least {least}, got {value!r}")
    return int(value)
