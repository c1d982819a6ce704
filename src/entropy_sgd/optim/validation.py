"""What the optimizers accept: an outer optimizer, a group's hyper-parameters, a saved state."""

from __future__ import annotations

import inspect
from typing import Any, cast

import torch
from torch import Tensor
from torch.optim import Optimizer

from entropy_sgd import arguments


def check_outer(outer: Any, options: Any) -> None:
    """`outer` can be an outer loop: an optimizer class whose `step` needs no closure."""
    if not (inspect.isclass(outer) and issubclass(outer, Optimizer)):
        raise arguments.refuse("outer", outer, "a class derived from torch.optim.Optimizer")
    closure = inspect.signature(outer.step).parameters.get("closure")
    needs_closure = closure is not None and closure.default is inspect.Parameter.empty
    if needs_closure or issubclass(outer, torch.optim.SparseAdam):
        raise arguments.refuse("outer", outer, "an optimizer that steps on dense gradients without a closure")
    if options is not None and not isinstance(options, dict):
        raise arguments.refuse(
            "outer_options", options, "a dictionary of the outer optimizer's keyword arguments"
        )
    check_outer_options(cast("dict[str, Any]", options or {}))
    for name, reason in {
        "maximize": "give it to the optimizer itself: the outer loop always descends -F",
        "differentiable": "Langevin noise cannot be differentiated through",
    }.items():
        if options and options.get(name):
            raise arguments.ArgumentError(f"outer_options must not set {name}={options[name]!r}; {reason}")


def check_group(group: dict[str, Any]) -> None:
    """Every hyper-parameter of a group is of its type and in its range."""
    arguments.choice("inner", group["inner"], ("sgd", "adam"))
    for name in ("inner_lr", "weight_decay", "noise"):
        arguments.number(name, group[name])
    arguments.number("inner_momentum", group["inner_momentum"], 0.0, 1.0, below=True)
    arguments.number("alpha", group["alpha"], 0.0, 1.0)
    arguments.betas("inner_betas", group["inner_betas"])
    arguments.number("inner_eps", group["inner_eps"])
    for name in ("inner_nesterov", "scale_by_gamma", "maximize"):
        arguments.flag(name, group[name])
    for name in ("foreach", "fused"):
        arguments.flag(name, group[name], optional=True)
    if group["foreach"] and group["fused"]:
        raise arguments.ArgumentError(
            "foreach and fused cannot be True together, got foreach=True, fused=True"
        )
    check_outer_options(group)


def check_outer_options(options: dict[str, Any]) -> None:
    """The usual options of an outer optimizer. torch checks some, by other names, and none of a group's."""
    if "lr" in options:
        arguments.learning_rate("lr", options["lr"])
    for name in ("momentum", "eps", "outer_weight_decay"):
        if name in options:
            arguments.number(name, options[name])
    for name in ("nesterov", "amsgrad"):
        if name in options:
            arguments.flag(name, options[name])
    if "betas" in options:
        arguments.betas("betas", options["betas"])


def check_state_dict(optimizer: Optimizer, state_dict: Any, keys: tuple[str, ...]) -> None:
    """`state_dict` came from an optimizer of this kind; its tensors `keys` have the parameters' shapes."""
    name = type(optimizer).__name__
    try:
        saved_states: dict[Any, dict[str, Any]] = state_dict["state"]
        saved_groups: list[dict[str, Any]] = state_dict["param_groups"]
    except (TypeError, KeyError):
        raise ValueError(f"state_dict: no optimizer's state; a state_dict() of {name} is accepted") from None
    for group in saved_groups:
        # torch adds `differentiable` to the defaults of an unpickled optimizer.
        missing = sorted(set(optimizer.defaults) - set(group) - {"differentiable"})
        if missing:
            raise ValueError(f"state_dict: of another optimizer; a {name} also has {', '.join(missing)}")
    shapes = {
        i: p.shape
        for group, saved in zip(optimizer.param_groups, saved_groups, strict=False)
        for p, i in zip(group["params"], saved["params"], strict=False)
    }
    for i, state in saved_states.items():
        for key in keys:
            value = state.get(key)
            if isinstance(value, Tensor) and i in shapes and value.shape != shapes[i]:
                raise ValueError(
                    f"state_dict: {key} of parameter {i} has shape {tuple(value.shape)}, "
                    f"but the parameter has shape {tuple(shapes[i])}"
                )
