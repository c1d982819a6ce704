"""What the state of a parameter holds beside the outer optimizer's own, and in how many bits.

                                                 float32      state_dtype=bfloat16
    entropy_x               x                    4 bytes      4
    entropy_mu              mu                   4
    entropy_mu_minus_x      mu - x                            2
    entropy_momentum, ...   of the inner rule    4            2

The states of 16 bits are rounded stochastically (rounding.py). mu - x is small where mu is not, so its 8 bits
of precision are those of the outer gradient. With alpha = 1 mu is x', and not kept.

Weights of bfloat16 have an x and a mu of float32: x goes on from cycle to cycle, and x' is rounded
stochastically. The parameter is x rounded to the nearest at the end of a cycle; where it is anything else,
someone has written it, and x follows. (Sharded bfloat16 weights have bfloat16 states.)
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from entropy_sgd.optim import sharding

# The prefix keeps the names apart from those of any outer optimizer. `entropy_step` counts p's Langevin steps
# in this cycle: 0 if it has had no gradient in it, and for all parameters at a cycle's end. `entropy_x` is x
# while `entropy_step` is above 0; otherwise the parameter is x, and the entry is scratch. `entropy_age`
# counts the steps since the rule was reset, with inner_state="keep". The rules have names too.
STEP, X, MU, AWAY, AGE = "entropy_step", "entropy_x", "entropy_mu", "entropy_mu_minus_x", "entropy_age"
X_PRIME = "entropy_x_prime"  # of bfloat16 weights, during eval()
GRADIENT = "entropy_gradient"  # kept by version 0.1.0

State = dict[str, Any]


def working_dtype(p: Tensor) -> torch.dtype:
    """Of x and mu."""
    return torch.float32 if has_master(p) else p.dtype


def has_master(p: Tensor) -> bool:
    """Whether x has more bits than the parameter."""
    return p.dtype is torch.bfloat16 and not sharding.any_distributed([p])


def prepare_x(p: Tensor, state: State) -> None:
    """Memory for x."""
    if X not in state:
        dtype = working_dtype(p)
        state[X] = torch.zeros_like(p) if dtype is p.dtype else p.detach().to(dtype)


def prepare_mean(p: Tensor, state: State, half: bool, needed: bool) -> str | None:
    """Memory for mu or, with `half`, for mu - x; returns its name, or None if it is not kept.

    Inside a cycle the value counts: what was kept in another form is converted, and what was not kept is x'.
    """
    name, other = (AWAY, MU) if half else (MU, AWAY)
    if not needed:
        state.pop(MU, None)
        state.pop(AWAY, None)
        return None
    dtype = torch.bfloat16 if half else working_dtype(p)
    value = state.get(name)
    if value is None and state.get(STEP, 0) > 0:
        x, mean = state[X], state.get(other)
        if half:
            value = p - x if mean is None else mean - x
        else:
            value = p.detach().clone() if mean is None else x + mean
    if value is None:
        state[name] = torch.zeros_like(p, dtype=dtype)
    elif value.dtype is not dtype:  # load_state_dict gives all states the parameter's dtype
        state[name] = value.to(dtype)
    else:
        state[name] = value
    state.pop(other, None)
    return name


def prepare_buffer(p: Tensor, state: State, name: str, made: Tensor | None, half: bool) -> None:
    """An entry of the inner rule: `made` if it is new, of 16 bits if it has the parameter's shape."""
    value: Tensor = state[name] if made is None else made
    if value.shape == p.shape:
        dtype = torch.bfloat16 if half else working_dtype(p)
        if value.dtype is not dtype:
            value = value.to(dtype)
    state[name] = value
