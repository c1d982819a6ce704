"""The outer optimizer: line 7 of Algorithm 1, any torch optimizer.

Its options are in the groups under their own names, where schedulers find them. One whose name the inner
loop uses too (`weight_decay`, `foreach`, ...) is there as `outer_<name>`.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.optim import Optimizer

from entropy_sgd.optim import sharding
from entropy_sgd.optim.hosted import Hosted, Record

MOMENTUM = "momentum_buffer"  # of torch's SGD


class OuterOptimizer(Hosted):
    """A torch optimizer of class `kind` that steps on the local-entropy gradient."""

    def __init__(
        self, owner: Optimizer, kind: type[Optimizer], options: Record, taken: frozenset[str]
    ) -> None:
        self.taken = taken  # names of the owner's own options
        nesterov = options.get("nesterov", False)
        if nesterov and not options.get("momentum", 0.0):
            options = {**options, "nesterov": False}  # torch refuses it; `adjust` makes it the plain step
        given = ["nesterov" in group for group in owner.param_groups]
        super().__init__(owner, kind, options)
        if nesterov:
            owner.defaults["nesterov"] = True
            for group, own in zip(owner.param_groups, given, strict=True):
                group["nesterov"] = group["nesterov"] if own else True
        self.mode(training=True)

    def option(self, key: str) -> str | None:
        """Everything that is not the inner loop's."""
        if key.startswith("outer_") and self._collides(key[6:]):
            return key[6:]
        return None if self._collides(key) else key

    def public_option(self, name: str) -> str:
        """`outer_<name>` if the inner loop has an option of that name."""
        return f"outer_{name}" if self._collides(name) else name

    def _collides(self, name: str) -> bool:
        return name in self.taken or name.startswith("inner_")

    def entry(self, key: str) -> str | None:
        """Everything but what the inner loop keeps."""
        return None if key.startswith(("entropy_", "inner_")) else key

    def public_entry(self, name: str) -> str:
        """The entry's own name."""
        return name

    def adjust(self, index: int, group: Record) -> Record:
        """Nesterov's form without momentum is the plain step; the fastest path that applies is taken."""
        owner = self.owner.param_groups[index]
        before = {name: group[name] for name in ("nesterov", "foreach", "fused") if name in group}
        if group.get("nesterov") and group.get("momentum") == 0:
            group["nesterov"] = False
        if "foreach" in group and group["foreach"] is None:
            group["foreach"] = owner["foreach"]
        if "fused" in group:
            group["fused"] = self._fused(group, owner["fused"])
        return before

    def _fused(self, group: Record, inner: bool | None) -> bool | None:
        """Whether the update of this group is torch's fused one; `inner` is the choice for the inner loop.

        torch itself never chooses it on the CPU, where it is by far the fastest. There it ignores strides
        and sizes, and does not update half-precision weights (torch 2.13).
        """
        params: list[Tensor] = group["params"]
        chosen: bool | None = group["fused"]
        if chosen and any(p.is_cpu and p.dtype in (torch.bfloat16, torch.float16) for p in params):
            return False
        state: dict[Any, Any] = self.optimizer.state
        begun = {state.get(p, {}).get(MOMENTUM) is not None for p in params if p.grad is not None}
        if len(begun) > 1:  # parameters that take part from a later cycle on: torch's fused SGD fails
            return False
        if chosen is not None or group["foreach"] is not None:
            return chosen
        if inner is False:
            return False
        return not sharding.any_distributed(params) and all(
            t.is_cpu
            and t.dtype in (torch.float32, torch.float64)
            and t.is_contiguous()
            and t.shape == p.shape
            for p in params
            for t in (p, p.grad, *(entry for entry in state.get(p, {}).values() if _has_shape(entry)))
            if t is not None
        )


def _has_shape(entry: Any) -> bool:
    """Not a count, such as Adam's `step`."""
    return isinstance(entry, Tensor) and entry.dim() > 0
