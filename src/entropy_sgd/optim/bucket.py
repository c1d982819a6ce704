"""Parameters of one group, device and dtype, as the lists that a Langevin step works on."""

from __future__ import annotations

import math
from collections.abc import Collection, Sequence
from typing import Any, cast

import torch
from torch import Tensor

from entropy_sgd.optim import kernel, sharding
from entropy_sgd.optim.langevin import Langevin, Tensors, drift, langevin_step, langevin_step_
from entropy_sgd.optim.noise import thermal
from entropy_sgd.optim.rules import RULES
from entropy_sgd.optim.rules.rule import add_noise_

# Names in state[p]; the prefix keeps them apart from those of any outer optimizer. `entropy_step` counts p's
# Langevin steps in this cycle: 0 if it has had no gradient in it, and for all parameters at a cycle's end.
# `entropy_x` is x while `entropy_step` is above 0; otherwise the parameter is x, and the entry is scratch.
# `entropy_age` counts the steps since the rule was reset, with inner_state="keep". The rules have names too.
STEP, X, MU, GRADIENT = "entropy_step", "entropy_x", "entropy_mu", "entropy_gradient"
AGE = "entropy_age"

Sums = tuple[Tensor | float, Tensor | float]


def real(tensors: list[Tensor]) -> list[Tensor]:
    """The elements on this rank; complex ones are seen as real with a last dimension of two."""
    if sharding.any_distributed(tensors):
        tensors = [sharding.local(t) for t in tensors]
    return [torch.view_as_real(t) if t.is_complex() else t for t in tensors]


def sum_of_squares(tensors: Tensors, owners: Sequence[Tensor]) -> Tensor:
    """The squared norm of all the tensors together, on the first one's device; at least float32.

    `tensors` are as `real` gives them, and belong to the parameters `owners`.
    """
    dtype = torch.float64 if any(t.dtype is torch.float64 for t in tensors) else torch.float32
    norms = torch._foreach_norm(tensors, 2, dtype)
    return sharding.total(torch.stack([n.to(tensors[0].device) for n in norms]).square(), owners)


class Bucket:
    """Lists gathered from the parameters and their states, with which they share memory.

    Complex tensors are in the lists as real ones with two components: the noise is N(0, I) on both.
    """

    def __init__(self, group: dict[str, Any], device: torch.device, dtype: torch.dtype) -> None:
        self.group = group
        self.device, self.dtype = device, dtype
        self.indices: list[int] = []  # of the parameters in the optimizer: the noise depends on them
        self.params: list[Tensor] = []

    def enter(self, states: list[dict[str, Any]], gamma: float, keep_gradient: bool) -> None:
        """Makes what is missing in the members' states, counts the step, and takes the lists from them.

        `first` marks the members at the first step of a cycle, where line 1 is still to be done, and `reset`
        those whose rule begins anew.
        """
        group = self.group
        rule = RULES.get(group["inner"])  # None for a torch optimizer, which keeps its own memory
        self.h = Langevin.of(group, rule or RULES["sgd"], gamma)
        names = () if rule is None else rule.buffers(self.h)
        wanted = (X, MU, GRADIENT) if keep_gradient else (X, MU)
        keeping = group["inner_state"] == "keep"
        self.first: list[bool] = []
        self.reset: list[bool] = []
        self.k: list[int] = []
        for p, state in zip(self.params, states, strict=True):
            step = state.get(STEP, 0)
            for name in wanted:
                if name not in state:  # inside a cycle that was not monitored so far, grad f(x) is unknown
                    unknown = name == GRADIENT and step > 0
                    state[name] = torch.full_like(p, math.nan) if unknown else torch.zeros_like(p)
            age = state.get(AGE, 0) if keeping else step
            for name in names:
                if name not in state:
                    state[name] = cast(Any, rule).buffer(name, p)
                    age = 0
            self.first.append(step == 0)
            self.reset.append(age == 0)
            self.k.append(age + 1)
            state[STEP] = step + 1
            if keeping:
                state[AGE] = age + 1
        self.x_prime = self.params
        self.gradient = [cast(Tensor, p.grad) for p in self.params]
        self.x: list[Tensor] = [state[X] for state in states]
        self.mu: list[Tensor] = [state[MU] for state in states]
        self.buffers: list[list[Tensor]] = [[state[name] for state in states] for name in names]
        self.kept: list[Tensor] = [state[GRADIENT] for state in states] if keep_gradient else []
        self.whole_x = self.x  # as the parameters are, for a torch optimizer inside
        self.sharded = sharding.any_distributed(self.params)
        if self.dtype.is_complex or self.sharded:
            self.x_prime, self.gradient = real(self.x_prime), real(self.gradient)
            self.x, self.mu, self.kept = real(self.x), real(self.mu), real(self.kept)
            self.buffers = [real(buffer) for buffer in self.buffers]

    def langevin(self, seed: int, t: int, l: int, measure: bool) -> Sums:
        """Lines 1 and 4 to 6 of Algorithm 1, at inner step `l` of outer step `t`.

        Returns:
            |x - x'|^2 after the step, and |grad f(x)|^2 of the members at their first step; zeros unless
            `measure`.
        """
        group, h = self.group, self.h
        if self._fused(h):
            v = self.buffers[0] if self.buffers else ()
            offset = [sharding.offset(p) for p in self.params] if self.sharded else [0] * len(self.params)
            distance_sq, gradient_sq = kernel.langevin_step_(
                h, self.x_prime, self.gradient, self.x, self.mu, v, self.kept, self.first, self.reset,
                self.indices, offset, seed, t, l, group["maximize"],
            )  # fmt: skip
            return self._total(distance_sq), self._total(gradient_sq)
        gradient = self._ascending()
        gradient_sq = self._begin(gradient, measure)
        z = self._thermal(seed, t, l)
        if group["foreach"] is False and not self.sharded:
            self._readable(h, gradient, z)
        else:
            langevin_step_(h, self.x_prime, gradient, self.x, self.mu, self.buffers, self.k, z, self.params)
        return self._distance_sq(measure), gradient_sq

    # ---- around a torch optimizer inside ----

    def give_drift(self, measure: bool) -> Tensor | float:
        """Lines 1 and 4: each parameter's `.grad` becomes dx'; returns |grad f(x)|^2 as `langevin` does."""
        gradient_sq = self._begin(self._ascending(), measure)
        gradient: list[Tensor] = [cast(Tensor, p.grad) for p in self.params]
        if self.group["maximize"]:
            gradient = list(torch._foreach_neg(gradient))
        for p, dx in zip(self.params, drift(self.h, self.params, gradient, self.whole_x), strict=True):
            p.grad = dx
        return gradient_sq

    def take_step(self, seed: int, t: int, l: int, measure: bool) -> Tensor | float:
        """The noise of line 5 and line 6, after the optimizer has moved x'; returns |x - x'|^2."""
        add_noise_(self.h, self.x_prime, self._thermal(seed, t, l))
        torch._foreach_lerp_(self.mu, self.x_prime, self.h.alpha)
        return self._distance_sq(measure)

    # ---- parts of a step ----

    def _ascending(self) -> Tensors:
        return torch._foreach_neg(self.gradient) if self.group["maximize"] else self.gradient

    def _thermal(self, seed: int, t: int, l: int) -> list[Tensor] | None:
        if self.h.noise == 0 or self.h.inner_lr == 0:
            return None
        return thermal(self.indices, self.params, self.x_prime, seed, t, l)

    def _distance_sq(self, measure: bool) -> Tensor | float:
        return sum_of_squares(torch._foreach_sub(self.x, self.x_prime), self.params) if measure else 0.0

    def _total(self, values: Sequence[float]) -> Tensor | float:
        """The sum of `values`, one for each member, over the slices of all ranks."""
        if not self.sharded:
            return sum(values)
        return sharding.total(torch.tensor(values, dtype=torch.float64), self.params)

    def _fused(self, h: Langevin) -> bool:
        """Whether the compiled step runs: wherever it can, unless the user chose another path."""
        fused, foreach = self.group["fused"], self.group["foreach"]
        if fused is False or (foreach is not None and not fused) or not h.rule.compiled:
            return False
        return kernel.serves(self.x_prime, self.gradient, (self.x, self.mu, self.kept, *self.buffers))

    def _begin(self, gradient: Tensors, measure: bool) -> Tensor | float:
        """Line 1, `x', mu = x`, for the members at their first step; their grad f(x) is kept and measured."""
        if any(self.reset):
            anew = [i for i, reset in enumerate(self.reset) if reset]
            self.h.rule.reset_(self.h, [[buffer[i] for i in anew] for buffer in self.buffers])
        begun = [i for i, first in enumerate(self.first) if first]
        if not begun:
            return 0.0
        start = [self.x_prime[i] for i in begun]
        torch._foreach_copy_([self.x[i] for i in begun], start)
        torch._foreach_copy_([self.mu[i] for i in begun], start)
        if not (measure or self.kept):
            return 0.0
        at_x = torch._foreach_add([gradient[i] for i in begun], start, alpha=self.h.weight_decay)
        if self.kept:
            torch._foreach_copy_([self.kept[i] for i in begun], at_x)
        return sum_of_squares(at_x, [self.params[i] for i in begun])

    def _readable(self, h: Langevin, gradient: Tensors, z: Tensors | None) -> None:
        """Tensor by tensor, with the step as it is written in the paper."""
        for i, k in enumerate(self.k):
            old = (self.x_prime[i], self.mu[i], *(buffer[i] for buffer in self.buffers))
            x_prime, mu, buffers = langevin_step(
                h, old[0], gradient[i], self.x[i], old[1], old[2:], k, None if z is None else z[i]
            )
            for tensor, value in zip(old, (x_prime, mu, *buffers), strict=True):
                tensor.copy_(value)


def gather(groups: Sequence[dict[str, Any]], frozen: Collection[Tensor] = ()) -> list[Bucket]:
    """The parameters that have a gradient, in buckets of one group, device and dtype. Changes nothing.

    Those in `frozen` are left out.
    """
    buckets: list[Bucket] = []
    index = 0
    for group in groups:
        found: dict[tuple[torch.device, torch.dtype], Bucket] = {}
        for p in group["params"]:
            gradient = p.grad
            if gradient is not None and not (frozen and p in frozen):
                if gradient.layout is not torch.strided:
                    raise RuntimeError(
                        f"the gradient of parameter {index} is sparse ({gradient.layout}), but Langevin "
                        "noise is dense: use layers with dense gradients, e.g. nn.Embedding(sparse=False)"
                    )
                key = (p.device, p.dtype)
                bucket = found.get(key)
                if bucket is None:
                    bucket = found[key] = Bucket(group, *key)
                    buckets.append(bucket)
                bucket.indices.append(index)
                bucket.params.append(p)
            index += 1
    return buckets
