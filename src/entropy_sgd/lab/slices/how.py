"""How a slice of the loss is taken: the options of the command, without torch."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

from entropy_sgd.lab import LabError

On = Literal["line", "plane", "trajectory"]


@dataclass(frozen=True)
class Slice:
    """How a slice is taken."""

    on: On | None = None
    """line: between the weights of two runs; plane: around those of each run, along two random directions,
    filter-normalised; trajectory: along the two principal directions of the path each run took, which needs
    runs trained with --keep-weights. By default a line for two runs, planes otherwise."""
    points: int | None = None
    """Positions along each direction: 51 on a line, 21 on planes, if not given."""
    radius: float = 1.0
    """Half the width of a plane of random directions: at 1, each filter moves by its own norm at the
    edges."""
    samples: int = 1024
    """Training samples (images, or stretches of text), evenly spaced, for the loss."""
    batch: int = 256
    """Samples taken at once; batch statistics are the mean over such batches."""
    seed: int = 0
    """Seed of the random directions."""

    def __post_init__(self) -> None:
        if not 0 < self.radius < math.inf:
            raise LabError(f"radius must be a finite number above 0, got {self.radius}")
        for argument, least in (("points", 3), ("samples", 1), ("batch", 1), ("seed", 0)):
            value = getattr(self, argument)
            if value is not None and value < least:
                raise LabError(f"{argument} must be at least {least}, got {value}")

    def along(self, runs: int) -> On:
        """What is sliced for this many runs."""
        chosen: On = self.on or ("line" if runs == 2 else "plane")
        if chosen == "line" and runs != 2:
            raise LabError(f"a line goes between two runs, got {runs}: --on plane takes any number")
        return chosen
