"""The outer optimizer, which shares `param_groups` and `state` with the optimizer around it.

It is a plain torch optimizer: schedulers, checkpoints and its own fused or foreach paths work on the shared
groups. An option whose name the inner loop uses as well (`weight_decay`, `foreach`, ...) stands in the groups
as `outer_<name>`, and takes the place of the inner one while the outer optimizer steps.
"""

from __future__ import annotations

from collections.abc import Generator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor
from torch.optim import Optimizer

from entropy_sgd.optim import sharding
from entropy_sgd.optim.bucket import INNER_STATE
from entropy_sgd.optim.validation import check_group


class Outer:
    """A torch optimizer of class `kind`, built on the groups of `owner`, to which it adds its options."""

    def __init__(self, owner: Optimizer, kind: type[Optimizer], options: dict[str, Any]) -> None:
        nesterov = options.get("nesterov", False)
        if not options.get("momentum", 0.0) and nesterov:
            options["nesterov"] = False  # torch refuses it; `_lent` makes it the plain step
        own = set(owner.defaults)
        groups = [
            {k.removeprefix("outer_"): v for k, v in group.items() if k not in own and k != "param_names"}
            for group in owner.param_groups
        ]
        self.optimizer = kind(groups, **options)
        self._renamed = tuple(sorted(own & set(self.optimizer.defaults)))
        for target, source in [
            (owner.defaults, self.optimizer.defaults),
            *zip(owner.param_groups, self.optimizer.param_groups, strict=True),
        ]:
            for name, value in source.items():
                if name == "nesterov" and name not in target:
                    value = nesterov
                target.setdefault(f"outer_{name}" if name in self._renamed else name, value)
        for group in owner.param_groups:
            check_group(group)
            sharding.check_params([group])
        self.state_from_start = bool(self.optimizer.state)  # some make their state when they are built
        for p, state in self.optimizer.state.items():
            owner.state[p].update(state)
        self.share(owner)

    def share(self, owner: Optimizer) -> None:
        """The outer optimizer works on the containers of `owner`, the same objects."""
        self.optimizer.param_groups, self.optimizer.state = owner.param_groups, owner.state

    def step(self) -> None:
        """One step of the outer optimizer on the gradients in `.grad`."""
        with self._lent():
            self.optimizer.step()

    @contextmanager
    def _lent(self) -> Generator[None]:
        """Shows the outer optimizer its own options and its own state only.

        Adam and others start a parameter's state when they find it empty, hence the entries of the inner loop
        step aside for the outer update.
        """
        groups, state_of = self.optimizer.param_groups, self.optimizer.state
        options = [{name: group[name] for name in self._renamed} for group in groups]
        states: dict[Tensor, dict[str, Any]] = {}
        try:
            for p, state in state_of.items():
                states[p] = {name: state.pop(name) for name in INNER_STATE if name in state}
            for group, own in zip(groups, options, strict=True):
                group.update({name: group[f"outer_{name}"] for name in self._renamed})
                if group.get("nesterov") and group.get("momentum") == 0:
                    own["nesterov"] = True
                    group["nesterov"] = False
                if "outer_foreach" in group and group["foreach"] is None:
                    group["foreach"] = own["foreach"]
                if "outer_fused" in group:
                    group["fused"] = self._fused(group, own["fused"])
            yield
        finally:
            for group, own in zip(groups, options, strict=True):
                group.update(own)
            for p, own in states.items():
                state_of[p].update(own)

    def _fused(self, group: dict[str, Any], own: bool | None) -> bool | None:
        """Whether the update of this group is torch's fused one; `own` is the choice for the inner loop.

        torch itself never chooses it on the CPU, where it is the fastest by far. There it walks memory
        without regard to strides, and does not move weights of half precision (torch 2.13).
        """
        params: list[Tensor] = group["params"]
        chosen: bool | None = group["fused"]
        if chosen and any(p.is_cpu and p.dtype in (torch.bfloat16, torch.float16) for p in params):
            return False
        if chosen is not None or group["foreach"] is not None:
            return chosen
        if own is False:
            return False
        return not sharding.any_distributed(params) and all(
            t.is_cpu and t.dtype in (torch.float32, torch.float64) and t.is_contiguous()
            for p in params
            for t in (p, p.grad, *self.optimizer.state.get(p, {}).values())
            if isinstance(t, Tensor) and t.dim() > 0
        )
