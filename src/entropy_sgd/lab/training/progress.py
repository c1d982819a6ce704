"""How far a run is, in steps, effective epochs and gradient evaluations."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any, Self


@dataclass
class Progress:
    """Part of a run's checkpoint."""

    total: int
    """Steps of the whole run; fewer than the recipe's epochs make, once `stop_at_loss` is reached."""
    step: int = 0
    seconds: float = 0.0
    losses: float = 0.0
    """Sum of the `count` losses since the last line of metrics.jsonl."""
    count: int = 0
    changed_at: int = 0
    """Step at which the number of replicas last changed; what was done until then follows."""
    epochs_before: float = 0.0
    evaluations_before: int = 0

    @classmethod
    def read(cls, saved: Mapping[str, Any], total: int) -> Self:
        """That of a checkpoint; `total` where an old one does not have it."""
        known = {field.name: saved[field.name] for field in fields(cls) if field.name in saved}
        found = cls(**{"total": total, **known})
        for name in ("total", "step", "count", "changed_at", "evaluations_before"):
            if type(getattr(found, name)) is not int or getattr(found, name) < 0:
                raise ValueError(f"{name} is {getattr(found, name)!r}")
        for name in ("seconds", "losses", "epochs_before"):
            if not math.isfinite(getattr(found, name)):
                raise ValueError(f"{name} is {getattr(found, name)!r}")
        if found.step > found.total or found.step < found.count:
            raise ValueError(f"step {found.step} of {found.total}, {found.count} of them unlogged")
        return found

    def epoch(self, steps_per_epoch: float) -> float:
        """Effective epochs so far."""
        return self.epochs_before + (self.step - self.changed_at) / steps_per_epoch

    def passes(self, period: float, steps_per_epoch: float) -> bool:
        """Whether the last step reached a whole multiple of `period` effective epochs."""
        steps = period * steps_per_epoch
        if steps <= 1:  # a period of 1e-320 would overflow below
            return True
        step = self.step - self.changed_at + self.epochs_before * steps_per_epoch
        return math.floor(step / steps + 1e-9) > math.floor((step - 1) / steps + 1e-9)

    def evaluations(self, each: int) -> int:
        """Gradient evaluations so far, of all replicas; `each` are those of a step."""
        return self.evaluations_before + (self.step - self.changed_at) * each

    def change_replicas(
        self, before: int, now: int, *, cost: int, steps_per_epoch: float, epochs: float
    ) -> None:
        """After `before` replicas the budget goes on with `now`, which take `steps_per_epoch`."""
        self.evaluations_before = self.evaluations(cost * before)
        self.epochs_before = self.epoch(steps_per_epoch * now / before)
        self.changed_at = self.step
        self.total = self.step + max(0, round((epochs - self.epochs_before) * steps_per_epoch))
