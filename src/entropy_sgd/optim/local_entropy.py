"""Algorithm 1 around any torch optimizer.

    x', mu = x                                              line 1
    for l = 1 .. L:                                         line 2
        draw a mini-batch, take the gradient at x'          line 3     the user's backward()
        Langevin step on x', average into mu                lines 4-6  `step()`, see langevin.py
    x = outer update of x with the gradient x - mu          line 7     every L-th `step()`

The model's parameters hold x' inside a cycle and x at its end. The state of parameter p keeps x, mu, what the
inner rule remembers and the gradient at x, and beside these whatever the outer optimizer keeps there.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable, Iterable
from typing import Any

import torch
from torch import Tensor
from torch.optim import Optimizer

from entropy_sgd import arguments
from entropy_sgd.optim import scoping, sharding
from entropy_sgd.optim.bucket import GRADIENT, INNER_STATE, MU, STEP, X, gather, real
from entropy_sgd.optim.diagnostics import UNKNOWN, measure
from entropy_sgd.optim.exchange import exchange
from entropy_sgd.optim.outer import Outer
from entropy_sgd.optim.validation import check_group, check_outer, check_state_dict

Closure = Callable[[], Any]
Params = Iterable[Tensor] | Iterable[dict[str, Any]] | Iterable[tuple[str, Tensor]]

# Common to all groups, and so kept in the first one, where every checkpoint format finds them.
SHARED = (
    "L",
    "seed",
    "gamma",
    "outer_step",
    "inner_step",
    "evaluating",
    "distance",
    "gradient_sq",
    "diagnostics",
)


class LocalEntropy(Optimizer):
    r"""Descends the negative local entropy with any torch optimizer as the outer loop.

    One `step()` is one Langevin step on the gradients that stand in `.grad`; every `L`-th one also makes the
    outer update, in which `outer` receives `x - mu` through `.grad` in place of the back-propagated gradient.

    Args:
        params: parameters, named parameters or parameter groups, as for every torch optimizer.
        outer: class of the outer optimizer, e.g. `torch.optim.AdamW`.
        outer_options: its keyword arguments. They live in `param_groups` under their own names, so schedulers
            find them; one whose name this class uses too is kept as `outer_<name>` (`outer_weight_decay`).
        L: Langevin steps in a cycle (5 to 20 in the paper).
        gamma: the scope, a number >= 0 or a schedule of `entropy_sgd.scoping`.
        inner: `"sgd"` or `"adam"`, the rule of line 5.
        inner_lr: step size eta' of the Langevin steps; the paper never anneals it.
        inner_momentum: momentum in the inner loop; its buffer starts at zero in each cycle.
        inner_nesterov: Nesterov's form of it; with a momentum of zero, the plain step.
        inner_betas: Adam's coefficients for `inner="adam"`.
        inner_eps: Adam's epsilon for `inner="adam"`.
        weight_decay: L2 coefficient. L2 is part of f, so it acts in line 4, not in the outer update.
        noise: thermal noise epsilon of line 5.
        alpha: weight of the newest sample in mu, line 6.
        scale_by_gamma: give `outer` gamma (x - mu), as line 7 is printed; False gives x - mu (Section 4.3).
        seed: of the noise, which is a function of (seed, outer step, inner step, parameter, element) alone.
        maximize: maximize f instead of minimizing it.
        foreach: True runs the Langevin step on lists of tensors, False the readable one tensor by tensor.
        fused: False never runs the compiled Langevin step. By default (None for both) and with True it runs
            where it applies, on contiguous float32 tensors on the CPU with `inner="sgd"`; the one on lists of
            tensors runs elsewhere.
        monitor: measure what `diagnostics()` reports. It keeps one copy of the gradient at x and takes one
            norm a step; False saves both and leaves those figures NaN.

    `L`, `gamma`, `seed` and `monitor` hold for the whole optimizer; all else can differ by parameter group.
    A gradient that is not finite is passed on into the weights, as torch's own optimizers do.
    """

    def __init__(
        self,
        params: Params,
        outer: type[Optimizer] = torch.optim.SGD,
        outer_options: dict[str, Any] | None = None,
        *,
        L: int = 20,
        gamma: float | scoping.Schedule = 1e-3,
        inner: str = "sgd",
        inner_lr: float = 0.1,
        inner_momentum: float = 0.9,
        inner_nesterov: bool = True,
        inner_betas: tuple[float, float] = (0.9, 0.999),
        inner_eps: float = 1e-8,
        weight_decay: float = 0.0,
        noise: float = 1e-4,
        alpha: float = 0.75,
        scale_by_gamma: bool = False,
        seed: int = 0,
        maximize: bool = False,
        foreach: bool | None = None,
        fused: bool | None = None,
        monitor: bool = True,
    ) -> None:
        arguments.integer("L", L, 1)
        arguments.seed("seed", seed)
        arguments.flag("monitor", monitor)
        check_outer(outer, outer_options)
        self._schedule = scoping.as_schedule(gamma)
        self._monitor = monitor
        self._warned = False
        defaults: dict[str, Any] = {
            "inner": inner,
            "inner_lr": inner_lr,
            "inner_momentum": inner_momentum,
            "inner_nesterov": inner_nesterov,
            "inner_betas": inner_betas,
            "inner_eps": inner_eps,
            "weight_decay": weight_decay,
            "noise": noise,
            "alpha": alpha,
            "scale_by_gamma": scale_by_gamma,
            "maximize": maximize,
            "foreach": foreach,
            "fused": fused,
            "L": int(L),
            "seed": int(seed),
            "gamma": scoping.evaluate(self._schedule, 0),
            "outer_step": 0,
            "inner_step": 0,
            "evaluating": False,
            "distance": 0.0,
            "gradient_sq": 0.0,
            "diagnostics": dict(UNKNOWN),
        }
        super().__init__(params, arguments.plain(defaults))
        self._outer = Outer(self, outer, arguments.plain(outer_options or {}))

    @property
    def outer(self) -> Optimizer:
        """The outer optimizer. Its groups and state are this optimizer's."""
        return self._outer.optimizer

    def add_param_group(self, param_group: dict[str, Any]) -> None:
        """Adds a group, which takes part from its first gradient on."""
        groups = self.param_groups
        for name in SHARED:
            if name in param_group and (not groups or param_group[name] != groups[0][name]):
                raise arguments.ArgumentError(
                    f"{name} is common to all parameter groups, got {name}={param_group[name]!r} in one group"
                )
        check_group({**self.defaults, **param_group})
        super().add_param_group({**param_group, **arguments.plain(param_group)})
        sharding.check_params(self.param_groups)

    # ---- Algorithm 1 ----

    # Traced by torch.compile, a step would be compiled anew for each value of its counters and of gamma.
    # torch.compiler.disable does the same, but imports the compiler along with this module.
    @torch._disable_dynamo
    @torch.no_grad()
    def step(self, closure: Closure | None = None) -> Any:  # pyright: ignore[reportIncompatibleMethodOverride]
        """One Langevin step (lines 3 to 6); after the L-th of a cycle also the outer update (line 7).

        Args:
            closure: clears the gradients, draws a fresh mini-batch, calls `backward()` and returns the loss.
                It is called exactly once.

        Returns:
            what the closure returned, or None.
        """
        if self._shared["evaluating"]:
            if not self._warned:
                warnings.warn(
                    "step() in eval mode: the inner weights x' were put back now, so a gradient taken before "
                    "this call was taken at x; call train() before the forward pass",
                    stacklevel=2,
                )
                self._warned = True
            self.train()
        if closure is None and not self.state and sharding.only_asks_for_state(self.param_groups):
            self._make_state()
            return None
        loss = None
        if closure is not None:
            with torch.enable_grad():
                loss = closure()
        if self._langevin():
            shared = self._shared
            shared["inner_step"] += 1
            if shared["inner_step"] >= shared["L"]:
                self._update()
        return loss

    def cycle(self, closure: Closure) -> Any:
        """One iteration of Algorithm 1: calls `step(closure)` until the outer update is made.

        That is `L` calls, each of which must draw a fresh mini-batch; fewer if a cycle was under way.

        Returns:
            the mean of the losses.
        """
        losses: list[Any] = []
        while True:
            before = (self._shared["outer_step"], self._shared["inner_step"])
            loss = self.step(closure)
            losses.append(loss.detach() if isinstance(loss, Tensor) else loss)
            after = (self._shared["outer_step"], self._shared["inner_step"])
            if after == before:
                raise RuntimeError("cycle(closure): the closure left no gradient in any parameter")
            if after[1] == 0:
                return sum(losses) / len(losses)

    @property
    def _shared(self) -> dict[str, Any]:
        return self.param_groups[0]

    def _langevin(self) -> bool:
        """Lines 1 and 4 to 6 for every parameter that has a gradient; False if there is none."""
        shared = self._shared
        buckets = gather(self.param_groups)
        if not buckets:
            return False
        if shared["inner_step"] == 0:
            if not isinstance(self._schedule, scoping.MatchGradient):
                shared["gamma"] = scoping.evaluate(self._schedule, shared["outer_step"])
            shared["distance"] = shared["gradient_sq"] = 0.0
        address = (shared["seed"], shared["outer_step"], shared["inner_step"])
        distance_sq: Any = 0.0
        for bucket in buckets:
            bucket.enter([self.state[p] for p in bucket.params], keep_gradient=self._monitor)
            sums = bucket.langevin(shared["gamma"], *address, measure=self._measuring)
            # On one device, though the parameters may be spread over several.
            sums = [s.to(buckets[0].device) if isinstance(s, Tensor) else s for s in sums]
            distance_sq = distance_sq + sums[0]
            shared["gradient_sq"] = shared["gradient_sq"] + sums[1]
        shared["distance"] = shared["distance"] + distance_sq**0.5
        return True

    def _update(self) -> None:
        """Line 7: the outer optimizer steps from x with the gradient x - mu; the parameters are left at x."""
        shared = self._shared
        gamma = shared["gamma"]
        taking_part = [
            (group, p, self.state[p])
            for group in self.param_groups
            for p in group["params"]
            if self.state.get(p, {}).get(STEP, 0) > 0
        ]
        params = [p for _, p, _ in taking_part]
        gradients = [p.grad for p in params]
        d = real([state[X] for _, _, state in taking_part])
        torch._foreach_copy_(real(params), d)
        try:
            # x - mu, in the place of x, which the parameters hold: the next cycle takes a fresh x from them.
            torch._foreach_sub_(d, real([state[MU] for _, _, state in taking_part]))
            # No gradient was kept without monitoring, nor by a run that did not monitor and was resumed.
            self._measure(d, [state.get(GRADIENT) for _, _, state in taking_part], params)
            scaled = [x for (group, _, _), x in zip(taking_part, d, strict=True) if group["scale_by_gamma"]]
            if scaled:
                torch._foreach_mul_(scaled, gamma)
            if shared["outer_step"] == 0 and not self._outer.state_from_start:
                for _, _, state in taking_part:  # what the outer optimizer has there, `_make_state` made
                    for name in set(state) - set(INNER_STATE):
                        del state[name]
            for _, p, state in taking_part:
                p.grad = state[X]
            self._outer.step()
            shared["outer_step"] += 1
        finally:  # if anything fails, the cycle is given up, and the next one begins at x
            for (_, p, state), gradient in zip(taking_part, gradients, strict=True):
                p.grad = gradient
                state[STEP] = 0
            shared["inner_step"] = 0

    def _make_state(self) -> None:
        """Every entry that training will keep in `state`, for a checkpoint to be loaded into; else nothing.

        The values do not matter: the inner loop sets its own anew at the start of a cycle, and the first
        outer update drops those of the outer optimizer.
        """
        for bucket in gather(self.param_groups):
            bucket.enter([self.state[p] for p in bucket.params], keep_gradient=self._monitor)
        for p, state in self.state.items():
            state[X].copy_(p)
        self._outer.step()
        for p, state in self.state.items():
            p.copy_(state[X])
            state[STEP] = 0

    # ---- what is measured ----

    @property
    def _measuring(self) -> bool:
        return self._monitor or isinstance(self._schedule, scoping.MatchGradient)

    def _measure(self, d: list[Tensor], gradients: list[Tensor | None], params: list[Tensor]) -> None:
        """Fills `diagnostics` from x - mu and grad f(x), and lets MatchGradient choose the next scope."""
        shared = self._shared
        figures = {**UNKNOWN, "gamma": shared["gamma"]}
        if self._measuring:
            distance = shared["distance"] / shared["inner_step"] if self._monitor else math.nan
            figures |= measure(d, gradients, params, shared["gradient_sq"], distance)
        shared["diagnostics"] = figures
        if isinstance(self._schedule, scoping.MatchGradient):
            inner_lr = max(group["inner_lr"] for group in self.param_groups)
            matched = self._schedule.match(shared["gamma"], figures["gradient"], figures["x_minus_mu"])
            shared["gamma"] = min(matched, 1 / inner_lr) if inner_lr > 0 else matched

    def diagnostics(self) -> dict[str, float]:
        """Of the last whole cycle; NaN before there was one.

        Returns:
            `gamma`; `x_minus_mu`: ‖x - mu‖; `x_minus_x_prime`: the mean of ‖x - x'‖ over the cycle;
            `gradient`: ‖grad f(x)‖, on the first mini-batch; `cosine` of the angle between x - mu and
            grad f(x), which the paper monitors (Section 5.4).
        """
        return dict(self._shared["diagnostics"])

    # ---- which weights the model holds ----

    def eval(self) -> None:
        """Puts the outer weights x into the model, in exchange for x'. Nothing to do at a cycle's end."""
        if not self._shared["evaluating"]:
            self._swap()
            self._shared["evaluating"] = True

    def train(self) -> None:
        """Puts the inner weights x' back after `eval()`."""
        if self._shared["evaluating"]:
            self._swap()
            self._shared["evaluating"] = False

    @torch.no_grad()
    def _swap(self) -> None:
        pairs = [(p, state[X]) for p, state in self.state.items() if state.get(STEP, 0) > 0]
        params, xs = [p for p, _ in pairs], [x for _, x in pairs]
        if sharding.any_distributed(params):
            params, xs = real(params), real(xs)
        exchange(params, xs)

    # ---- saving and copying ----

    def state_dict(self) -> dict[str, Any]:
        """Plain tensors and numbers, from which training resumes bit for bit at any point of a cycle."""
        for name in ("distance", "gradient_sq"):
            self._shared[name] = float(self._shared[name])
        return super().state_dict()

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Resumes from a `state_dict()`; one of another optimizer or with other shapes is refused whole."""
        check_state_dict(self, state_dict, INNER_STATE)
        super().load_state_dict(state_dict)

    def __getstate__(self) -> dict[str, Any]:
        own = ("_outer", "_schedule", "_monitor", "_warned")
        return {**super().__getstate__(), **{name: getattr(self, name) for name in own}}

    def __setstate__(self, state: dict[str, Any]) -> None:
        super().__setstate__(state)
        self._outer.share(self)  # load_state_dict and unpickling bring new containers
