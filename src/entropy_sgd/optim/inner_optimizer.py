"""A torch optimizer inside the loop: line 5 of Algorithm 1 by AdamW, RMSprop, Muon, ...

    dx' of line 4 goes to the optimizer through `.grad`;  it moves x'
    x'  = x' + sqrt(inner_lr) noise N(0, I)

Its options are in the groups as `inner_<name>` and its state beside the rest as `inner_<name>`, so both are
checkpointed and sharded like everything else.
"""

from __future__ import annotations

import inspect
import math
from typing import Any, cast

import torch
from torch.optim import Optimizer

from entropy_sgd import arguments
from entropy_sgd.optim.hosted import Hosted, Record
from entropy_sgd.optim.options import REFUSED, RULE_OPTIONS
from entropy_sgd.optim.rules import RULES

RESERVED = ("inner_state", "inner_step")  # the owner's own names with that prefix


def check_hosted(argument: str, kind: Any, options: Any) -> None:
    """`kind` steps on dense gradients without a closure; `options` are for its constructor."""
    if not (inspect.isclass(kind) and issubclass(kind, Optimizer)):
        named = "" if argument == "outer" else f"one of {', '.join(map(repr, RULES))}, or "
        raise arguments.refuse(argument, kind, f"{named}a class derived from torch.optim.Optimizer")
    closure = inspect.signature(kind.step).parameters.get("closure")
    needs_closure = closure is not None and closure.default is inspect.Parameter.empty
    if needs_closure or issubclass(kind, torch.optim.SparseAdam):
        raise arguments.refuse(argument, kind, "an optimizer that steps on dense gradients without a closure")
    if isinstance(inspect.getattr_static(kind, "param_groups", None), property):
        raise arguments.refuse(argument, kind, "an optimizer that does not wrap another")
    if options is not None and not isinstance(options, dict):
        raise arguments.refuse(
            f"{argument}_options", options, f"a dictionary of the {argument} optimizer's keyword arguments"
        )
    given = cast("dict[str, Any]", options or {})
    for name, value in given.items():
        if isinstance(value, float) and math.isnan(value):
            raise arguments.ArgumentError(f"{argument}_options must not set {name}=nan")
    for name, reason in REFUSED.items():
        if given.get(name):
            raise arguments.ArgumentError(f"{argument}_options must not set {name}={given[name]!r}; {reason}")


def name_of(kind: type[Optimizer]) -> str:
    """The name of this class in groups and checkpoints."""
    return f"{kind.__module__}.{kind.__qualname__}"


class InnerOptimizer(Hosted):
    """A torch optimizer of class `kind` that moves x'."""

    def __init__(self, owner: Optimizer, kind: type[Optimizer], options: Record) -> None:
        super().__init__(owner, kind, options)
        for group in owner.param_groups:
            self._check(group)

    def add_param_group(self, group: Record) -> None:
        """Refuses a group with options of Algorithm 1's own rules that this class does not have."""
        super().add_param_group(group)
        self._check(group)

    def _check(self, group: Record) -> None:
        for name in RULE_OPTIONS:
            if name in group and name[6:] not in self.optimizer.defaults:
                raise arguments.ArgumentError(
                    f"{type(self.optimizer).__name__} has no option {name[6:]!r}, "
                    f"got {name}={group[name]!r} in a group"
                )

    def option(self, key: str) -> str | None:
        """What begins with `inner_`."""
        return key[6:] if key.startswith("inner_") and key not in RESERVED else None

    def public_option(self, name: str) -> str:
        """With `inner_` before it."""
        return f"inner_{name}"

    def entry(self, key: str) -> str | None:
        """What begins with `inner_`."""
        return key[6:] if key.startswith("inner_") else None

    def public_entry(self, name: str) -> str:
        """With `inner_` before it."""
        return f"inner_{name}"
