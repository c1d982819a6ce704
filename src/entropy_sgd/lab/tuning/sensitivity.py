"""How wide the range of learning rates is that works: a result of its own.

The best settings of a method are trained again with rates 2, 4, … times as large and as small; the range are
the rates around the best whose result stays within a factor of it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class Range:
    """The rates that work, `high / low` wide; it may be wider still where an end was the last one tried."""

    low: float
    high: float
    open_below: bool
    open_above: bool

    @property
    def width(self) -> float:
        """As a factor."""
        return self.high / self.low

    def text(self) -> str:
        """As the table has it."""
        more = "≥ " if self.open_below or self.open_above else ""
        return f"{self.low:.2g}–{self.high:.2g} ({more}{self.width:.3g}x)"


def rates_around(best: float, count: int) -> list[float]:
    """`count` rates beside the best one: 1/2, 2, 1/4, 4, … times as large, ascending."""
    powers = [(-1) ** (k + 1) * (k // 2 + 1) for k in range(count)]
    return sorted(float(f"{best * 2.0**power:.4g}") for power in powers)


def range_that_works(
    results: Sequence[tuple[float, float | None]], best: float, within: float, *, maximize: bool = False
) -> Range:
    """The range around the rate `best`; `results` are rates and values, None without a result."""
    ordered = sorted(results, key=lambda pair: pair[0])
    middle = next(index for index, (rate, _) in enumerate(ordered) if rate == best)
    reached = ordered[middle][1]
    assert reached is not None

    def works(index: int) -> bool:
        if not 0 <= index < len(ordered):
            return False
        value = ordered[index][1]
        if value is None:
            return False
        # a factor of a positive value: of an error, a loss, a perplexity
        return value * within >= reached if maximize else value <= reached * within

    low = high = middle
    while works(low - 1):
        low -= 1
    while works(high + 1):
        high += 1
    return Range(ordered[low][0], ordered[high][0], low == 0, high == len(ordered) - 1)
