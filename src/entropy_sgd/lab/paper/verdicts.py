"""A result against the paper's: agrees, better or worse, in standard errors of the difference.

The standard error of our mean is s/√n over the n seeds. The paper's is its ± divided by √runs where the text
gives the number of runs, and the ± itself where it does not. One seed has no s, and that of two may be tiny
by chance: there s is at least the paper's ±.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

from entropy_sgd.lab.comparison.seeds import Spread
from entropy_sgd.lab.paper.numbers import Number

LIMIT = 2.0
"""Standard errors up to which a difference is called chance."""

FEW = 3
"""Seeds from which on their own deviation is trusted."""


@dataclass(frozen=True)
class Verdict:
    """How a result compares; lower is better for every metric of the paper."""

    word: Literal["agrees", "better", "worse"]
    errors: float
    """Our mean minus the paper's, in standard errors."""

    def __str__(self) -> str:
        return f"{self.word} ({self.errors:+.1f} se)".replace("-", "−")


def verdict(ours: Spread, paper: Number) -> Verdict:
    """The result of `ours.count` seeds beside the paper's number."""
    deviation = ours.deviation or 0.0
    if ours.count < FEW:
        deviation = max(deviation, paper.deviation)
    theirs = paper.deviation / math.sqrt(paper.runs or 1)
    error = math.hypot(deviation / math.sqrt(ours.count), theirs)
    errors = (ours.mean - paper.mean) / error
    return Verdict("agrees" if abs(errors) <= LIMIT else "better" if errors < 0 else "worse", errors)
