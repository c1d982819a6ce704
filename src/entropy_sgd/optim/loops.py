"""The two loops of Algorithm 1: what a Langevin step and an outer update do, and what they measure."""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor

from entropy_sgd.optim import angle, outer_update, scoping
from entropy_sgd.optim.bucket import HOST, Bucket, gather, reuse
from entropy_sgd.optim.diagnostics import UNKNOWN, measure
from entropy_sgd.optim.held_weights import HeldWeights
from entropy_sgd.optim.hosted import Hosted
from entropy_sgd.optim.inner_optimizer import InnerOptimizer
from entropy_sgd.optim.states import AGE, STEP, X
from entropy_sgd.optim.steady import Steady


class Loops(HeldWeights):
    """What one step and one outer update do; `LocalEntropy` says when."""

    _schedule: scoping.Schedule
    _inner: InnerOptimizer | None
    _buckets: list[Bucket]  # of the last step
    _steady: Steady | None

    @property
    def _hosted(self) -> list[Hosted]:
        return [hosted for hosted in (self._inner, self._outer) if hosted is not None]

    def _langevin(self, loss: Any, steady: Steady | None) -> bool:
        """Lines 1 and 4 to 6 for every parameter that has a gradient; False if there is none."""
        common = self._common
        if steady is not None:
            buckets = steady.buckets
        else:
            frozen = self._watch.frozen(p for group in self.param_groups for p in group["params"])
            buckets = self._buckets = reuse(gather(self.param_groups, frozen), self._buckets)
        if not buckets:
            return False
        self._check_streams()
        if common["inner_step"] == 0:
            if steady is None:
                self._check_shapes()
            if not hasattr(self._schedule, "after"):
                common["gamma"] = scoping.evaluate(self._schedule, common["outer_step"])
            common["distance"] = common["gradient_sq"] = common["loss"] = 0.0
            monitor = common["monitor"]
            self._gradient = angle.empty(self.param_groups, buckets[0].device) if monitor else None
        if self._needs_loss() is not None:
            common["loss"] = _sum(common["loss"], loss.detach() if isinstance(loss, Tensor) else float(loss))
        # Noise that a cycle has used before it was started over is not used again.
        address = (common["seed"], common["outer_step"], common["inner_step"] + common["abandoned"])
        entered: list[Bucket] = []
        sums: list[tuple[Any, Any]] = []
        try:
            for i, bucket in enumerate(buckets):
                entered.append(bucket)
                if steady is not None:
                    bucket.enter(bucket.states, common["gamma"], steady.gradients[i])
                else:
                    bucket.enter([self.state[p] for p in bucket.params], common["gamma"])
                if self._gradient is not None and any(bucket.first):
                    vector = self._gradient.to(buckets[0].device)
                    self._gradient = bucket.with_gradient(
                        vector, self.param_groups, *address[:2], steady is not None
                    )
            if self._inner is not None:
                sums = self._hosted_langevin(self._inner, buckets, address)
            else:
                for bucket in buckets:
                    sums.append(bucket.langevin(*address, self._measuring, steady is not None))
        except BaseException:  # out of memory, Ctrl-C: what has not been stepped has not been counted
            for bucket in entered[len(sums) :]:
                bucket.leave()
            self._steady = None
            self._watch.record(self._taking_part())  # what was written here is no one else's
            raise
        finally:  # zero_grad() frees the gradients
            for bucket in buckets:
                bucket.gradient = []
            if steady is not None:
                steady.gradients = []
        distance_sq: Any = 0.0
        for distance, gradient in sums:  # on one device, though the parameters may be spread over several
            device = buckets[0].device
            distance_sq = distance_sq + (distance.to(device) if isinstance(distance, Tensor) else distance)
            gradient = gradient.to(device) if isinstance(gradient, Tensor) else gradient
            common["gradient_sq"] = _sum(common["gradient_sq"], gradient)
        common["distance"] = _sum(common["distance"], distance_sq**0.5)
        return True

    def _hosted_langevin(
        self, inner: InnerOptimizer, buckets: list[Bucket], address: tuple[int, int, int]
    ) -> list[tuple[Any, Any]]:
        """`Bucket.langevin` for all buckets with a torch optimizer in place of a rule."""
        params = [p for bucket in buckets for p in bucket.params]
        gradients = {p: p.grad for group in self.param_groups for p in group["params"]}
        try:
            gradient_sq = [bucket.give_drift(self._measuring) for bucket in buckets]
            for p in gradients.keys() - set(params):
                p.grad = None
            inner.forget([p for b in buckets for p, reset in zip(b.params, b.reset, strict=True) if reset])
            inner.step()
        finally:
            for p, gradient in gradients.items():
                p.grad = gradient
        return [
            (b.take_step(*address, self._measuring), g) for b, g in zip(buckets, gradient_sq, strict=True)
        ]

    def _update(self) -> None:
        """Line 7: the outer optimizer steps from x with the gradient x - mu; the parameters are left at x."""
        common = self._common
        assert self._outer is not None
        buckets: list[outer_update.LaidOut] | None = None
        if self._steady is None:
            self._check_shapes()
        else:
            laid_out = [(bucket, bucket.ends()) for bucket in self._steady.buckets]
            buckets = [(bucket, ends) for bucket, ends in laid_out if ends is not None]
            buckets = buckets if len(buckets) == len(laid_out) else None
        taking_part = [
            (group, p, self.state[p])
            for group in self.param_groups
            for p in group["params"]
            if self.state.get(p, {}).get(STEP, 0) > 0
        ]
        params = [p for _, p, _ in taking_part]
        others: dict[Tensor, Tensor | None] = {}
        dot, displacement_sq = self._compare(taking_part, buckets)
        exposed = None
        try:
            if common["outer_step"] == 0 and not self._outer.state_from_start:
                self._outer.forget(params)  # what is there, `_make_state` made
            square = None
            if not self._changes_gradient:
                square = outer_update.fused_sgd(self._outer, taking_part, common["gamma"], buckets)
            if square is None:
                others = {p: p.grad for group in self.param_groups for p in group["params"]}
                exposed = outer_update.Exposed(taking_part)
                d = exposed.displacement
                if displacement_sq is None and self._measuring:
                    displacement_sq = outer_update.squared_norm(d, taking_part)
                figures = self._measure(displacement_sq, dot)
                scaled = [x for (group, *_), x in zip(taking_part, d, strict=True) if group["scale_by_gamma"]]
                if scaled:
                    torch._foreach_mul_(scaled, common["gamma"])
                if self._changes_gradient:
                    self._outer_gradient(params, d)
                for p in others:
                    p.grad = None
                for p, gradient in zip(params, exposed.gradients, strict=True):
                    exposed.stand_in(p).grad = gradient
                self._outer.stand_ins = exposed.stand_ins
                self._outer.step()
            else:
                figures = self._measure(square if displacement_sq is None else displacement_sq, dot)
            common["outer_step"] += 1
            self._schedule_next(figures)
        finally:  # if anything fails, the cycle is given up, and the next one begins at x
            self._outer.stand_ins = {}
            if exposed is not None:
                exposed.close()
            for p, gradient in others.items():
                p.grad = gradient
            for _, _, state in taking_part:
                state[STEP] = 0
            common["inner_step"] = common["abandoned"] = 0
            self._gradient = None

    @property
    def _changes_gradient(self) -> bool:
        """Whether `_outer_gradient` does anything."""
        return False

    def _outer_gradient(self, params: list[Tensor], d: list[Tensor]) -> None:
        """Turns `d`, the local-entropy gradient of `params`, into what the outer optimizer gets, in place."""

    def _make_state(self) -> None:
        """Creates every entry that training will keep in `state`, for a checkpoint to be loaded into.

        The values do not matter: the inner loop sets its own at the start of a cycle, and the first
        outer update drops those of the outer optimizer.
        """
        for bucket in gather(self.param_groups):
            states = [self.state[p] for p in bucket.params]
            bucket.enter(states, self._common["gamma"])
        for p, state in self._states():
            state[X].copy_(p)
        for hosted in self._hosted:
            hosted.step()
        for p, state in self._states():
            if X in state:
                p.copy_(state[X])
                state[STEP] = 0
                if AGE in state:
                    state[AGE] = 0

    # ---- what is measured ----

    def _needs_loss(self) -> scoping.Schedule | None:
        """A schedule that needs the loss."""
        return self._schedule if getattr(self._schedule, "needs_loss", False) else None

    @property
    def _measuring(self) -> bool:
        return self._common["monitor"] or hasattr(self._schedule, "after")

    def _compare(
        self, taking_part: list[outer_update.Member], buckets: list[outer_update.LaidOut] | None
    ) -> tuple[Any, Any]:
        """The inner product of grad f(x) and x - mu, from their sketches, and |x - mu|^2; None if unknown.

        `buckets` are as for `outer_update.fused_sgd`. There is no sketch without monitoring, nor in the cycle
        in which a run that did not monitor resumed.
        """
        common = self._common
        vector = self._gradient
        if vector is None or not taking_part:
            return None, None
        address = (common["seed"], common["outer_step"])
        if buckets is not None and angle.is_sketch(vector, HOST):
            displacement, square = torch.zeros_like(vector), 0.0
            for _, ends in buckets:
                square += ends.add_displacement_(displacement, *address)
        else:
            displacement, square = outer_update.displacement(vector, taking_part, self.param_groups, *address)
        return angle.dot(vector, displacement), square

    def _measure(self, displacement_sq: Any, dot: Any) -> dict[str, float]:
        """Fills `diagnostics`."""
        common = self._common
        figures = {**UNKNOWN, "gamma": common["gamma"]}
        if self._measuring:
            sums = displacement_sq, common["gradient_sq"], common["distance"], dot
            figures |= measure(*sums, steps=common["inner_step"])
        common["diagnostics"] = figures if common["monitor"] else {**figures, "x_minus_x_prime": math.nan}
        return figures

    def _schedule_next(self, figures: dict[str, float]) -> None:
        """Lets a schedule that measures choose the next scope."""
        common = self._common
        after = getattr(self._schedule, "after", None)
        if after is None:
            return
        cycle = scoping.Cycle(
            t=common["outer_step"],
            gradient=figures["gradient"],
            displacement=figures["x_minus_mu"],
            distance=figures["x_minus_x_prime"],
            loss=float(common["loss"]) / common["inner_step"] if self._needs_loss() is not None else math.nan,
            inner_lr=max(group["inner_lr"] for group in self.param_groups),
        )
        common["gamma"] = scoping.checked(after(common["gamma"], cycle), self._schedule, common["outer_step"])

    def diagnostics(self) -> dict[str, float]:
        """Figures of the last whole cycle; NaN before the first.

        Returns:
            `gamma`; `x_minus_mu`: ‖x - mu‖; `x_minus_x_prime`: the mean of ‖x - x'‖ over the cycle;
            `gradient`: ‖grad f(x)‖, on the first mini-batch; `cosine` of the angle between x - mu and
            grad f(x), which the paper monitors (Section 5.4): exact up to 4,096 parameters, beyond that with
            a standard error of 0.016 to 0.022, independent from cycle to cycle (optim/sketch.py). `gradient`
            and `cosine` are NaN if a parameter has left the cycle, or begun it anew.
        """
        return dict(self._common["diagnostics"])


def _sum(total: Any, part: Any) -> Any:
    """Of figures; on the CPU a number, as in a state dict: a tensor might round the next sum otherwise."""
    total = total + part
    return float(total) if isinstance(total, Tensor) and total.is_cpu else total
