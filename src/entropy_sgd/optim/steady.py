"""Whether a step finds everything as the last one left it.

Usually only the gradients and the numbers in the groups change from step to step. A few list comparisons
confirm this, which saves searching for the parameters that take part: half its time on a small network.
"""

from __future__ import annotations

from itertools import repeat
from operator import is_, is_not
from typing import Any

from torch import Tensor, strided

from entropy_sgd.optim.bucket import Bucket, gradient_of, layout_of
from entropy_sgd.optim.watch import Watch


class Steady:
    """The groups, states and parameters of a step.

    Args:
        groups: of the optimizer.
        state: of the optimizer.
        buckets: of the step; no other parameters are inside the cycle.
    """

    def __init__(self, groups: list[dict[str, Any]], state: dict[Tensor, Any], buckets: list[Bucket]) -> None:
        self.buckets = buckets
        self.gradients: list[list[Tensor]] = []  # of each bucket, as `holds` has found them
        self.params = [p for bucket in buckets for p in bucket.params]
        self._groups = list(groups)
        self._members = [list[Tensor](group["params"]) for group in groups]
        inside = set(self.params)
        self._others = [p for members in self._members for p in members if p not in inside]
        self._state, self._states = state, list(state.values())

    def holds(self, groups: list[dict[str, Any]], state: dict[Tensor, Any], watch: Watch) -> bool:
        """Whether the same parameters have gradients, and nobody has touched them or the states."""
        if not (
            state is self._state
            and len(state) == len(self._states)
            and all(map(is_, state.values(), self._states))
            and _same(groups, self._groups)
        ):
            return False
        for group, kept in zip(groups, self._members, strict=True):
            if not _same(group["params"], kept):
                return False
        self.gradients = [list(map(gradient_of, bucket.params)) for bucket in self.buckets]
        for found in self.gradients:
            if not all(map(is_not, found, repeat(None))) or set(map(layout_of, found)) != {strided}:
                return False
        return all(map(is_, map(gradient_of, self._others), repeat(None))) and watch.intact(self.params)


def _same(a: list[Any], b: list[Any]) -> bool:
    return len(a) == len(b) and all(map(is_, a, b))
