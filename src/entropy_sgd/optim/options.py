"""What the optimizers accept: the options of a group, those common to all groups, a saved state."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor
from torch.optim import Optimizer

from entropy_sgd import arguments
from entropy_sgd.optim import annealing
from entropy_sgd.optim.diagnostics import UNKNOWN
from entropy_sgd.optim.rules import RULES

INNER_LR = float("0.1")  # an object of its own: the default is told from a 0.1 that was given
INNER_STATES = ("reset", "keep")
STATE_DTYPES = (None, torch.float32, torch.bfloat16)
# Options of the rules in `rules/`; an optimizer class as `inner` has its own.
RULE_OPTIONS: dict[str, Any] = {
    "inner_momentum": 0.9,
    "inner_nesterov": True,
    "inner_betas": (0.9, 0.999),
    "inner_eps": 1e-8,
}
# What neither optimizer may set, in its options or in a group.
REFUSED = {
    "maximize": "give it to the optimizer itself: both loops descend",
    "differentiable": "Langevin noise cannot be differentiated through",
}

# Common to all groups, and so kept once, in the first group, where every checkpoint format finds them.
COMMON_OPTIONS = ("L", "seed", "gamma", "monitor")
COMMON_STATE: dict[str, Any] = {
    "outer_step": 0,
    "inner_step": 0,
    "abandoned": 0,  # steps of cycles that were started over since the last outer update
    "evaluating": False,
    "distance": 0.0,
    "gradient_sq": 0.0,
    "loss": 0.0,
    "diagnostics": UNKNOWN,
}


def check_group(group: dict[str, Any], hosted: str | None) -> None:
    """Every option of the inner loop is of its type and in its range.

    `hosted` is the name of the torch optimizer inside, if there is one, which checks its own options.
    """
    if hosted is None:
        arguments.choice("inner", group["inner"], tuple(RULES))
        arguments.number("inner_momentum", group["inner_momentum"], 0.0, 1.0, below=True)
        arguments.betas("inner_betas", group["inner_betas"])
        arguments.number("inner_eps", group["inner_eps"])
        arguments.flag("inner_nesterov", group["inner_nesterov"])
    elif group["inner"] != hosted:
        raise arguments.ArgumentError(
            f"inner={hosted!r}, a torch optimizer, is common to all parameter groups, "
            f"got {group['inner']!r} in one"
        )
    arguments.choice("inner_state", group["inner_state"], INNER_STATES)
    for name in ("inner_lr", "weight_decay", "noise"):
        arguments.number(name, group[name])
    arguments.number("alpha", group["alpha"], 0.0, 1.0)
    arguments.choice("anneal", group["anneal"], annealing.CHOICES)
    if group["state_dtype"] not in STATE_DTYPES:
        raise arguments.refuse("state_dtype", group["state_dtype"], "torch.bfloat16, torch.float32 or None")
    for name in ("scale_by_gamma", "maximize"):
        arguments.flag(name, group[name])
    for name in ("foreach", "fused"):
        arguments.flag(name, group[name], optional=True)
    for name in (f"{prefix}{name}" for prefix in ("inner_", "outer_") for name in REFUSED):
        if group.get(name):
            reason = REFUSED[name[6:]]
            raise arguments.ArgumentError(f"a group must not set {name}={group[name]!r}; {reason}")
    if group["foreach"] and group["fused"]:
        raise arguments.ArgumentError(
            "foreach and fused cannot be True together, got foreach=True, fused=True"
        )


def check_state_dtype(group: dict[str, Any]) -> None:
    """bfloat16 states need real parameters; float32 states need parameters of float32 or bfloat16."""
    if group["state_dtype"] is torch.bfloat16 and any(p.is_complex() for p in group["params"]):
        raise arguments.ArgumentError("state_dtype=torch.bfloat16 is for real parameters, got complex ones")
    others = {p.dtype for p in group["params"]} - {torch.float32, torch.bfloat16}
    if group["state_dtype"] is torch.float32 and others:
        raise arguments.ArgumentError(
            "state_dtype=torch.float32 is for parameters of float32 and bfloat16, got "
            f"{min(map(str, others))}; without it states have the dtype of their parameters"
        )


def check_rate(group: dict[str, Any]) -> None:
    """The learning rate of an outer SGD or Adam, and that torch takes it together with `foreach`."""
    arguments.learning_rate("lr", group["lr"])
    if isinstance(group["lr"], Tensor) and (group["foreach"] or group.get("outer_foreach")):
        raise arguments.ArgumentError(
            f"lr must be a number with foreach=True, got {group['lr']!r}: leave foreach unset for a tensor"
        )


def take_common(
    params: list[Any], common: dict[str, Any], names: Sequence[str]
) -> tuple[list[Any], dict[str, Any]]:
    """The groups without the options called `names`, and those options, where the groups agree on them.

    Args:
        params: tensors or groups, as a torch optimizer takes them.
        common: the values of these options given beside the groups.
        names: options that hold for all groups.
    """
    if not params or not all(isinstance(group, dict) for group in params):
        return params, common
    groups: list[dict[str, Any]] = [dict(group) for group in params]
    common = dict(common)
    for name in names:
        given = [group.pop(name) for group in groups if name in group]
        if not given:
            continue
        differs = next((value for value in given if value != given[0]), given[0])
        if differs != given[0] or (len(given) < len(groups) and given[0] != common[name]):
            raise arguments.ArgumentError(
                f"{name} is common to all parameter groups, got {name}={differs!r} in one group"
            )
        common[name] = given[0]
    return groups, common


def described(optimizer: Optimizer, hidden: Iterable[str], shown: Mapping[str, Any]) -> str:
    """The optimizer with its options, in the form of torch's `repr`.

    Args:
        optimizer: whose groups are shown.
        hidden: entries of the groups that are no options but state.
        shown: what to show in place of some entries.
    """
    left_out = {"params", "differentiable", *hidden}
    lines = [f"{type(optimizer).__name__} ("]
    for index, group in enumerate(optimizer.param_groups):
        lines.append(f"Parameter Group {index}")
        for name in sorted(set(group) - left_out):
            if not name.startswith("outer_") or group[name]:  # of the outer optimizer, and not in use
                lines.append(f"    {name}: {shown.get(name, group[name])}")
    return "\n".join([*lines, ")"])


# Options that many optimizers have: they do not tell one from another.
GENERIC = {
    f"{prefix}{name}"
    for prefix in ("", "outer_")
    for name in ("lr", "weight_decay", "maximize", "foreach", "fused", "capturable", "differentiable")
}

# What versions did that had no such option.
EARLIER = {"inner_state": "reset", "anneal": "outer"}


def complete_state_dict(
    optimizer: Optimizer, state_dict: Any, marks: Sequence[Sequence[str]], prefix: str
) -> dict[str, Any]:
    """A copy of `state_dict` with the options that it lacks; a foreign one is refused.

    Those have their defaults, but for the ones that say what an older version did without asking.

    Args:
        optimizer: that will load it.
        state_dict: saved by this version or an older one.
        marks: names of options; a state dict that lacks all of one set is of another optimizer.
        prefix: of the entries whose tensors must have the shapes of the parameters.
    """
    name = type(optimizer).__name__
    try:
        states: dict[Any, Any] = state_dict["state"]
        groups: list[dict[str, Any]] = state_dict["param_groups"]
    except (TypeError, KeyError):
        raise ValueError(
            f"state_dict: not an optimizer's state; a state_dict() of {name} is accepted"
        ) from None
    for group in groups:
        for telling in (set(names) - GENERIC for names in marks):
            if telling and not telling & set(group):
                missing = ", ".join(sorted(telling))
                raise ValueError(f"state_dict: saved by another optimizer; {name} also has {missing}")
    shapes = {
        i: p.shape
        for group, saved in zip(optimizer.param_groups, groups, strict=False)
        for p, i in zip(group["params"], saved["params"], strict=False)
    }
    for i, state in states.items():
        for key, value in state.items() if i in shapes else ():
            if not (str(key).startswith(prefix) and isinstance(value, Tensor) and value.dim() > 0):
                continue
            if value.shape != shapes[i]:
                raise ValueError(
                    f"state_dict: {key} of parameter {i} has shape {tuple(value.shape)}, "
                    f"but the parameter has shape {tuple(shapes[i])}"
                )
    earlier = {name: value for name, value in EARLIER.items() if name in optimizer.defaults}
    filled = [{**optimizer.defaults, **earlier, **group} for group in groups]
    return {**state_dict, "param_groups": filled}
