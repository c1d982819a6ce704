"""Line 7 of Algorithm 1: x and x - mu where an outer optimizer finds them, or the whole update in one pass.

A torch optimizer steps on parameters and `.grad`. So x is put into the parameters, and x - mu into the memory
of x, which is no longer needed: the next cycle takes a fresh x from the parameters. Where the outer
optimizer is torch.optim.SGD, as it is in EntropySGD, one pass of a compiled kernel does all of it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import torch
from torch import Tensor

from entropy_sgd.optim import angle, kernel, kernel_outer, sharding, triton_step
from entropy_sgd.optim.bucket import Bucket, real, sum_of_squares
from entropy_sgd.optim.descent import Descent
from entropy_sgd.optim.exchange import exchange
from entropy_sgd.optim.outer_optimizer import MOMENTUM, OuterOptimizer
from entropy_sgd.optim.states import AWAY, MU, State, X, has_master

Member = tuple[dict[str, Any], Tensor, State]  # group, parameter, state
LaidOut = tuple[Bucket, kernel_outer.Ends]


def displacement(
    like: Tensor, members: Sequence[Member], groups: Sequence[dict[str, Any]], seed: int, t: int
) -> tuple[Tensor, Tensor]:
    """Before the update: x - mu of the members in a vector `like` that of angle.py, and |x - mu|^2."""
    vector = torch.zeros_like(like)
    indices = {p: i for i, p in enumerate(p for group in groups for p in group["params"])}
    square = torch.zeros((), dtype=torch.float64, device=vector.device)
    # as the buckets of a step are: partial sums, and so their rounding, are the same on every path
    parts: dict[tuple[Any, ...], list[tuple[Tensor, State]]] = {}
    for group, p, state in members:
        parts.setdefault((_mean(state), id(group), p.device, p.dtype), []).append((p, state))
    for (name, *_), chosen in parts.items():
        params = [p for p, _ in chosen]
        x = [] if name == AWAY else real([state[X] for _, state in chosen])
        mean = real(params if name is None else [state[name] for _, state in chosen])
        places = [indices[p] for p in params]
        vector, added = angle.add(vector, x, mean, (1.0, -1.0), params, places, groups, seed, t)
        square += added
    return vector, square


def _mean(state: State) -> str | None:
    return MU if MU in state else AWAY if AWAY in state else None


class Exposed:
    """x in the parameters; x - mu in `gradients`, one for each member, and in `displacement` on this rank.

    Half weights stay as they are: `stand_ins` has a float32 parameter in place of each, which is its x. (If
    the parameter itself were given another dtype for a while, torch would make a new node for its gradient,
    without the hooks of DistributedDataParallel.)
    """

    def __init__(self, members: Sequence[Member]) -> None:
        self._held: list[tuple[Tensor, State]] = []
        self.stand_ins: dict[Tensor, Tensor] = {}
        self.gradients: list[Tensor] = []
        plain: dict[str | None, list[tuple[Tensor, State]]] = {MU: [], AWAY: [], None: []}
        for _, p, state in members:
            if has_master(p):
                self.gradients.append(self._lift(p, state))
            else:
                plain[_mean(state)].append((p, state))
                self.gradients.append(state[X])
        for name, pairs in plain.items():
            if not pairs:
                continue
            params, xs = real([p for p, _ in pairs]), real([state[X] for _, state in pairs])
            if name is None:  # the parameters hold mu
                torch._foreach_sub_(params, xs)
                exchange(params, xs)
                torch._foreach_neg_(xs)
                continue
            torch._foreach_copy_(params, xs)
            means = real([state[name] for _, state in pairs])
            if name == AWAY:
                torch._foreach_copy_(xs, means)
                torch._foreach_neg_(xs)
            else:
                torch._foreach_sub_(xs, means)
        self.displacement = real(self.gradients)

    def _lift(self, p: Tensor, state: State) -> Tensor:
        """Half weights: for this update a parameter that is the float32 x itself stands in."""
        x, name = state[X], _mean(state)
        if name == MU:
            gradient = state[MU].neg_().add_(x)
        else:
            gradient = x - p if name is None else -state[AWAY].to(x.dtype)
        self._held.append((p, state))
        self.stand_ins[p] = torch.nn.Parameter(x)
        return gradient

    def stand_in(self, p: Tensor) -> Tensor:
        """What the outer optimizer steps on for `p`: mostly itself."""
        return self.stand_ins.get(p, p)

    def close(self) -> None:
        """Half weights come back: the new x, rounded."""
        for p, state in self._held:
            state[X] = self.stand_ins[p].detach()
            p.copy_(state[X])


def squared_norm(displacement: list[Tensor], members: Sequence[Member]) -> Tensor:
    """|x - mu|^2 over all ranks."""
    return sum_of_squares(displacement, [p for _, p, _ in members])


# ---- SGD outside, in one pass ----


def fused_sgd(
    outer: OuterOptimizer, members: Sequence[Member], gamma: float, buckets: Sequence[LaidOut] | None
) -> Tensor | float | None:
    """Line 7 by a compiled kernel; returns |x - mu|^2, or None, having changed nothing, if none applies.

    `buckets` are those of the members, if the CPU's kernel can work on all of them.
    """
    optimizer = outer.optimizer
    if type(optimizer) is not torch.optim.SGD or "step" in vars(optimizer):
        return None
    if optimizer._optimizer_step_pre_hooks or optimizer._optimizer_step_post_hooks:
        return None
    if buckets is None:
        by_group: dict[int, list[Member]] = {}
        for member in members:
            by_group.setdefault(id(member[0]), []).append(member)
        calls = [_call(outer, part, gamma) for part in by_group.values()]
    else:
        calls = [_laid_out(outer, bucket, ends, gamma) for bucket, ends in buckets]
    if not calls or any(call is None for call in calls):
        return None
    total: Tensor | float = 0.0
    for i, call in enumerate(calls):
        assert call is not None
        step, params, buffers, states, device = call
        try:
            squares = step()
        except triton_step.UnusableError as error:
            triton_step.give_up(device, error)
            if i > 0:  # a part has had its update
                raise
            return None
        torch.autograd.graph.increment_version(params)  # as in Bucket.langevin
        for state, buffer in zip(states, buffers, strict=bool(buffers)):
            state[MOMENTUM] = buffer
        total = total + (squares.sum() if isinstance(squares, Tensor) else sum(squares))
    return total


# A step that returns |x - mu|^2 of each member; these; the momenta to be kept in the states; the device.
_Call = tuple[Callable[[], Any], list[Tensor], list[Tensor], list[State], torch.device]


def _descent(outer: OuterOptimizer, group: dict[str, Any], gamma: float) -> Descent | None:
    """Of a group; None where the user has chosen another path."""
    own = {name: group[outer.public_option(name)] for name in outer.optimizer.defaults}
    if group["fused"] is False or group["foreach"] is not None or own["differentiable"]:
        return None
    if own["fused"] is False or own["foreach"] is not None:
        return None
    return Descent(
        lr=float(own["lr"]),
        momentum=own["momentum"],
        dampening=own["dampening"],
        weight_decay=own["weight_decay"],
        nesterov=own["nesterov"],
        scale=(gamma if group["scale_by_gamma"] else 1.0) * (-1.0 if own["maximize"] else 1.0),
    )


def _laid_out(outer: OuterOptimizer, bucket: Bucket, ends: kernel_outer.Ends, gamma: float) -> _Call | None:
    h = _descent(outer, bucket.group, gamma)
    if h is None or (h.momentum != 0 and bucket.dtype.is_complex):  # the momenta are complex, the lists real
        return None
    kept = [state.get(MOMENTUM) for state in bucket.states] if h.momentum != 0 else []
    if not _fit(bucket.params, kept):
        return None
    buffers = [torch.empty_like(x) if b is None else b for x, b in zip(bucket.x, kept, strict=False)]
    fresh = [b is None for b in kept]
    return partial(ends.step_, h, buffers, fresh), bucket.params, buffers, bucket.states, bucket.device


def _call(outer: OuterOptimizer, members: list[Member], gamma: float) -> _Call | None:
    params, states = [p for _, p, _ in members], [state for *_, state in members]
    h = _descent(outer, members[0][0], gamma)
    if h is None or sharding.any_distributed(params):
        return None
    name = _mean(states[0])
    if any(_mean(state) != name for state in states):
        return None
    if name == AWAY and any(state[AWAY].dtype is not torch.bfloat16 for state in states):
        return None  # the kernel knows mu - x from mu by its dtype
    xs = [state[X] for state in states]
    means: list[Tensor] = [] if name is None else [state[name] for state in states]
    kept = [state.get(MOMENTUM) for state in states] if h.momentum != 0 else []
    lists = [means] if means else []
    if kernel.serves(params, params, xs, lists):
        module, fits = kernel_outer, _fit(params, kept)
    elif triton_step.serves(params, params, (xs, *lists)):
        module = triton_step
        there = [(p, b) for p, b in zip(params, kept, strict=False) if b is not None]
        fits = all(b.is_contiguous() and b.dtype is torch.float32 and b.shape == p.shape for p, b in there)
    else:
        return None
    if not fits:
        return None
    buffers = [torch.empty_like(x) if b is None else b for x, b in zip(xs, kept, strict=False)]
    fresh = [b is None for b in kept] or [False] * len(params)
    step = partial(module.outer_step_, h, params, xs, means, buffers, fresh)
    return step, params, buffers, states, params[0].device


def _fit(params: list[Tensor], kept: list[Tensor | None]) -> bool:
    """Whether the CPU's kernel can work on the momenta that are there."""
    there = [(p, b) for p, b in zip(params, kept, strict=False) if b is not None]
    return kernel.plain([b for _, b in there], [p.numel() for p, _ in there], torch.float32)
