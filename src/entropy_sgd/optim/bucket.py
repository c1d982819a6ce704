"""Parameters of one group, device and dtype, as the lists that a Langevin step works on."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from itertools import chain
from operator import attrgetter, is_, itemgetter
from typing import Any, cast

import torch
from torch import Tensor

from entropy_sgd import arguments
from entropy_sgd.optim import angle, kernel, kernel_outer, narrow, sharding, triton_step
from entropy_sgd.optim.langevin import Langevin, Tensors, drift, langevin_step, langevin_step_
from entropy_sgd.optim.noise import thermal
from entropy_sgd.optim.rules import RULES
from entropy_sgd.optim.rules.rule import add_noise_
from entropy_sgd.optim.states import (
    AGE,
    AWAY,
    MU,
    STEP,
    X,
    has_master,
    prepare_buffer,
    prepare_mean,
    prepare_x,
)

HOST = "cpu"
# What the lists and the hyper-parameters of a step follow from; an optimizer inside brings its own for some.
OPTIONS = (
    "inner",
    "inner_state",
    "state_dtype",
    "weight_decay",
    "inner_lr",
    "inner_momentum",
    "inner_nesterov",
    "inner_betas",
    "inner_eps",
    "noise",
    "alpha",
)
gradient_of, layout_of = attrgetter("grad"), attrgetter("layout")
_step, _age = itemgetter(STEP), itemgetter(AGE)
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
        self.states: list[dict[str, Any]] = []  # of the params, at the last step
        self._plan: kernel.Plan | None = None
        self._ends: kernel_outer.Ends | None = None
        self._options: list[Any] = []
        self._layout: tuple[Any, ...] | None = None
        self._entries: list[Tensor] = []

    def enter(self, states: list[dict[str, Any]], gamma: float, gradient: list[Tensor] | None = None) -> None:
        """Makes what is missing in the members' states, counts the step, and takes the lists from them.

        `gradient` has the members' gradients, if they have been read already.
        `first` marks the members at the first step of a cycle, where line 1 is still to be done, and `reset`
        those whose rule is reset.
        """
        group = self.group
        self.states = states
        self._steps: list[int] = []  # counted before this step, of those members that it counts
        if gradient is None:
            gradient = list(map(gradient_of, self.params))
        # a tensor that a user has put there may be changed in place
        options = [gamma, *(v.item() if isinstance(v, Tensor) else v for v in map(group.get, OPTIONS))]
        same = options == self._options
        if same and self._unchanged(states):
            self._count(states, gradient)
            return
        # None for a torch optimizer, which keeps its own memory
        self._rule = rule = RULES.get(group["inner"])
        self._options, self.h = options, Langevin.of(group, rule or RULES["sgd"], gamma)
        names = () if rule is None else rule.buffers(self.h)
        self._keeping = keeping = group["inner_state"] == "keep"
        layout = (names, group["state_dtype"], group["alpha"] == 1, keeping)
        if not same and layout == self._layout and self._unchanged(states):
            self._count(states, gradient)
            return
        self._layout, self._same_lists = layout, False
        self.half = group["state_dtype"] is torch.bfloat16
        self.master = self.dtype is torch.bfloat16 and has_master(self.params[0])
        averaging = group["alpha"] != 1 or any(
            state.get(STEP, 0) > 0 and (MU in state or AWAY in state) for state in states
        )
        mean = None
        self.first: list[bool] = []
        self.reset: list[bool] = []
        self.k: list[int] = []
        for p, state in zip(self.params, states, strict=True):
            step = state.get(STEP, 0)
            prepare_x(p, state)
            mean = prepare_mean(p, state, self.half, averaging)
            age = state.get(AGE, step) if keeping else step
            for name in names:
                made = None if name in state else cast(Any, rule).buffer(name, p)
                prepare_buffer(p, state, name, made, self.half)
                age = age if made is None else 0
            self.first.append(step == 0)
            self.reset.append(age == 0)
            self.k.append(age + 1)
            self._steps.append(step)
            state[STEP] = step + 1
            if keeping:
                state[AGE] = age + 1
        self.x_prime = self.params
        self.gradient = gradient
        self.x: list[Tensor] = [state[X] for state in states]
        self.mu: list[Tensor] = [] if mean is None else [state[mean] for state in states]
        self.buffers: list[list[Tensor]] = [[state[name] for state in states] for name in names]
        self.whole_x = self.x  # as the parameters are, for a torch optimizer inside
        self._take = itemgetter(X, mean or X, *names)
        self._entries = list(chain.from_iterable(map(self._take, states)))
        self._nobody = [False] * len(states)
        self.sharded = sharding.any_distributed(self.params)
        self.offset = [sharding.offset(p) for p in self.params] if self.sharded else [0] * len(self.params)
        if self.dtype.is_complex or self.sharded:
            self.x_prime, self.gradient = real(self.x_prime), real(self.gradient)
            self.x, self.mu = real(self.x), real(self.mu)
            self.buffers = [real(buffer) for buffer in self.buffers]

    def leave(self) -> None:
        """Undoes the count of `enter`, for a step that was not made."""
        for state, step, k in zip(self.states, self._steps, self.k, strict=False):
            state[STEP] = step
            if AGE in state:
                state[AGE] = k - 1

    def _unchanged(self, states: list[dict[str, Any]]) -> bool:
        """Whether the entries of the states are the tensors in the lists, as they are from step to step."""
        if not self._entries:  # no step has been made yet
            return False
        try:
            entries = chain.from_iterable(map(self._take, states))
            same = all(map(is_, entries, self._entries))
            if self.mu and self.group["alpha"] == 1 and 0 in map(_step, states):
                return False  # alpha was changed in the last cycle: from this one on there is no mean to keep
        except KeyError:
            return False
        return same and (not self.master or all(x.dtype is torch.float32 for x in self.x))

    def _count(self, states: list[dict[str, Any]], gradient: list[Tensor]) -> None:
        """The step is one more with the same lists; only the gradients are new."""
        steps: list[int] = list(map(_step, states))
        ages: list[int] = list(map(_age, states)) if self._keeping else steps
        self.first = [step == 0 for step in steps] if 0 in steps else self._nobody
        self.reset = [age == 0 for age in ages] if 0 in ages else self._nobody
        self.k = [age + 1 for age in ages]
        self._steps, self._same_lists = steps, True
        for state in states:
            state[STEP] += 1
        if self._keeping:
            for state, age in zip(states, self.k, strict=True):
                state[AGE] = age
        self.gradient = gradient
        if self.dtype.is_complex or self.sharded:
            self.gradient, self.x_prime = real(self.gradient), real(self.params)

    def with_gradient(
        self, vector: Tensor, groups: list[dict[str, Any]], seed: int, t: int, steady: bool
    ) -> Tensor:
        """`vector` (see angle.py) and grad f(x) of the members at their first step.

        `steady` is that of `langevin`.
        """
        scales = (-1.0 if self.group["maximize"] else 1.0, self.h.weight_decay)
        ends = None
        if steady and self._same_lists and all(self.first) and angle.is_sketch(vector, HOST):
            ends = self.ends()
        if ends is not None and ends.plan.reads(self.gradient):
            ends.add_gradient_(vector, self.gradient, scales, seed, t)
            return vector
        begun = [i for i, first in enumerate(self.first) if first]
        gradient, x_prime = [self.gradient[i] for i in begun], [self.x_prime[i] for i in begun]
        owners, indices = [self.params[i] for i in begun], [self.indices[i] for i in begun]
        return angle.add(vector, gradient, x_prime, scales, owners, indices, groups, seed, t)[0]

    def ends(self) -> kernel_outer.Ends | None:
        """Both ends of the cycle by the CPU kernel, if a step has laid out a plan.

        For a step that is `steady`, as in `langevin`.
        """
        plan = self._plan
        if plan is None or self.sharded or not all(map(is_, plan.lists, (self.x_prime, self.x, self.mu))):
            return None
        if not plan.stays(self.x_prime):
            return None
        if self._ends is None or self._ends.plan is not plan:
            self._ends = kernel_outer.Ends(plan)
        return self._ends

    def langevin(self, seed: int, t: int, l: int, measure: bool, steady: bool = False) -> Sums:
        """Lines 1 and 4 to 6 of Algorithm 1, at inner step `l` of outer step `t`.

        `steady` says that nobody has moved the parameters since the last step.

        Returns:
            |x - x'|^2 after the step, and |grad f(x)|^2 of the members at their first step; zeros unless
            `measure`.
        """
        if self._rule is None:  # written into the group; the kernel would read buffers that are not there
            arguments.choice("inner", self.group["inner"], tuple(RULES))
        sums = self._compiled(seed, t, l, steady and self._same_lists)
        if sums is not None:
            # the kernels write behind torch's back; autograd and watch.py go by its count of writes
            torch.autograd.graph.increment_version(self.x_prime)
            return self._total(sums[0]), self._total(sums[1])
        gradient = self._ascending()
        gradient_sq = self._begin(gradient, measure)
        z = self._thermal(seed, t, l)
        if self.half or self.master:
            w, gradient = narrow.widened(self.x_prime), narrow.widened(gradient)
            buffers = [narrow.widened(buffer, w[0].dtype) for buffer in self.buffers]
            dx = drift(self.h, w, gradient, self.x)
            self.h.rule.step_(self.h, w, dx, buffers, self.k, z, self.params)
            for i, (buffer, wide) in enumerate(zip(self.buffers, buffers, strict=True)):
                self._rounder(seed, t, l).buffer_(i, buffer, wide)
            self._average(w, seed, t, l)
        elif self.group["foreach"] is False and not self.sharded:
            self._readable(self.h, gradient, z)
        else:
            langevin_step_(
                self.h, self.x_prime, gradient, self.x, self.mu, self.buffers, self.k, z, self.params
            )
        return self._distance_sq(measure), gradient_sq

    # ---- around a torch optimizer inside ----

    def give_drift(self, measure: bool) -> Tensor | float:
        """Lines 1 and 4: each parameter's `.grad` becomes dx'; returns |grad f(x)|^2 as `langevin` does."""
        gradient_sq = self._begin(self._ascending(), measure)
        gradient: list[Tensor] = [cast(Tensor, p.grad) for p in self.params]
        if self.group["maximize"]:
            gradient = list(torch._foreach_neg(gradient))
        for p, dx in zip(self.params, drift(self.h, self.params, gradient, self.whole_x), strict=True):
            p.grad = dx.to(p.dtype)
        return gradient_sq

    def take_step(self, seed: int, t: int, l: int, measure: bool) -> Tensor | float:
        """The noise of line 5 and line 6, after the optimizer has moved x'; returns |x - x'|^2."""
        w = narrow.widened(self.x_prime) if self.master else self.x_prime
        add_noise_(self.h, w, self._thermal(seed, t, l))
        self._average(w, seed, t, l)
        return self._distance_sq(measure)

    # ---- parts of a step ----

    def _ascending(self) -> Tensors:
        return torch._foreach_neg(self.gradient) if self.group["maximize"] else self.gradient

    def _thermal(self, seed: int, t: int, l: int) -> list[Tensor] | None:
        if self.h.noise == 0 or self.h.inner_lr == 0:
            return None
        like = self.x if self.master else self.x_prime
        return thermal(self.indices, self.params, like, seed, t, l)

    def _rounder(self, seed: int, t: int, l: int) -> narrow.Rounder:
        return narrow.Rounder(self.indices, self.offset, seed, t, l)

    def _average(self, w: Tensors, seed: int, t: int, l: int) -> None:
        """Line 6, after x' has received `w` if that is not x' itself."""
        if self.master:
            self._rounder(seed, t, l).weights_(self.x_prime, w)
            w = narrow.widened(self.x_prime)
        elif w is not self.x_prime and w[0].dtype is not self.x_prime[0].dtype:
            torch._foreach_copy_(self.x_prime, w)
        if self.half and self.mu:
            self._rounder(seed, t, l).mean_(self.mu, torch._foreach_sub(w, self.x), self.h.alpha)
        elif self.mu:
            torch._foreach_lerp_(self.mu, w, self.h.alpha)

    def _distance_sq(self, measure: bool) -> Tensor | float:
        return sum_of_squares(torch._foreach_sub(self.x, self.x_prime), self.params) if measure else 0.0

    def _total(self, values: Sequence[float] | Tensor) -> Tensor | float:
        """The sum of `values`, one for each member, over the slices of all ranks."""
        if isinstance(values, Tensor):
            return sharding.total(values, self.params)
        if not self.sharded:
            return sum(values)
        return sharding.total(torch.tensor(values, dtype=torch.float64), self.params)

    def _compiled(self, seed: int, t: int, l: int, same: bool) -> tuple[Any, Any] | None:
        """The step by a compiled kernel where one can, unless the user chose another path."""
        fused, foreach, maximize = self.group["fused"], self.group["foreach"], self.group["maximize"]
        if fused is False or (foreach is not None and not fused) or not self.h.rule.compiled:
            return None
        v = self.buffers[0] if self.buffers else []
        if self.device.type == HOST:
            plan = self._plan
            if plan is None or not (
                plan.stays(self.x_prime) if same else plan.holds(self.x_prime, self.x, self.mu, v)
            ):
                lists = [states for states in (self.mu, v) if states]
                plan = None
                if kernel.serves(self.x_prime, self.gradient, self.x, lists):
                    plan = kernel.Plan(self.x_prime, self.x, self.mu, v, self.indices, self.offset)
                self._plan = plan
            elif not plan.reads(self.gradient):
                return None
            if plan is None:
                return None
            return plan.step(self.h, self.gradient, self.first, self.reset, seed, t, l, maximize)
        if fused:
            triton_step.require(self.device)
        if not triton_step.serves(self.x_prime, self.gradient, (self.x, self.mu, v)):
            return None
        try:
            return triton_step.langevin_step_(
                self.h, self.x_prime, self.gradient, self.x, self.mu, v, self.first, self.reset, self.indices,
                self.offset, seed, t, l, maximize,
            )  # fmt: skip
        except triton_step.UnusableError as error:
            triton_step.give_up(self.device, error)
            return None

    def _begin(self, gradient: Tensors, measure: bool) -> Tensor | float:
        """Line 1, `x', mu = x`, for the members at their first step; returns their |grad f(x)|^2."""
        if any(self.reset):
            anew = [i for i, reset in enumerate(self.reset) if reset]
            self.h.rule.reset_(self.h, [[buffer[i] for i in anew] for buffer in self.buffers])
        begun = [i for i, first in enumerate(self.first) if first]
        if not begun:
            return 0.0
        start = [self.x_prime[i] for i in begun]
        x = [self.x[i] for i in begun]
        if self.master:  # x goes on, but for elements that someone else has written
            for centre, p in zip(x, start, strict=True):
                centre.copy_(torch.where(centre.to(p.dtype) == p, centre, p.to(centre.dtype)))
        else:
            torch._foreach_copy_(x, start)
        if self.half and self.mu:
            torch._foreach_zero_([self.mu[i] for i in begun])
        elif self.mu:
            torch._foreach_copy_([self.mu[i] for i in begun], x)
        if not measure:
            return 0.0
        at_x = torch._foreach_add([gradient[i] for i in begun], start, alpha=self.h.weight_decay)
        return sum_of_squares(at_x, [self.params[i] for i in begun])

    def _readable(self, h: Langevin, gradient: Tensors, z: Tensors | None) -> None:
        """Tensor by tensor, with the step as it is written in the paper."""
        for i, k in enumerate(self.k):
            mu = self.mu[i] if self.mu else self.x_prime[i]
            old = (self.x_prime[i], mu, *(buffer[i] for buffer in self.buffers))
            x_prime, mu, buffers = langevin_step(
                h, old[0], gradient[i], self.x[i], old[1], old[2:], k, None if z is None else z[i]
            )
            for tensor, value in zip(old, (x_prime, mu, *buffers), strict=True):
                tensor.copy_(value)


def reuse(buckets: list[Bucket], last: list[Bucket]) -> list[Bucket]:
    """`buckets`, with those of `last` in place of any that have the same members, since their plans exist."""
    found: list[Bucket] = []
    for bucket in buckets:
        same = (
            old
            for old in last
            if old.group is bucket.group
            and old.dtype is bucket.dtype
            and old.device == bucket.device
            and old.indices == bucket.indices
            and all(map(is_, old.params, bucket.params))
        )
        found.append(next(same, bucket))
    return found


def gather(groups: Sequence[dict[str, Any]], frozen: Collection[Tensor] = ()) -> list[Bucket]:
    """The parameters that have a gradient, in buckets of one group, device and dtype; has no side effects.

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
