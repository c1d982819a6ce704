"""Algorithm 1 around any torch optimizer.

    x', mu = x                                              line 1
    for l = 1 .. L:                                         line 2
        draw a mini-batch, take the gradient at x'          line 3     the user's backward()
        Langevin step on x', average into mu                lines 4-6  `step()`, see langevin.py
    x = outer update of x with the gradient x - mu          line 7     every L-th `step()`

The model's parameters hold x' inside a cycle and x at its end. The state of parameter p keeps x, mu, what the
inner rule remembers, and beside these whatever the outer optimizer keeps there.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from typing import Any, ClassVar

import torch
from torch import Tensor
from torch.optim import Optimizer

from entropy_sgd import arguments
from entropy_sgd.optim import angle, outer_update, scoping, sharding
from entropy_sgd.optim.bucket import Bucket, gather, reuse
from entropy_sgd.optim.diagnostics import UNKNOWN, measure
from entropy_sgd.optim.held_weights import HeldWeights
from entropy_sgd.optim.hosted import Hosted
from entropy_sgd.optim.inner_optimizer import InnerOptimizer, check_hosted, name_of
from entropy_sgd.optim.options import check_group, check_state_dtype, complete_state_dict, take_common
from entropy_sgd.optim.outer_optimizer import OuterOptimizer
from entropy_sgd.optim.states import AGE, GRADIENT, STEP, X, has_master
from entropy_sgd.optim.steady import Steady
from entropy_sgd.optim.watch import Watch

Closure = Callable[[], Any]
Params = Iterable[Tensor] | Iterable[dict[str, Any]] | Iterable[tuple[str, Tensor]]

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
# In a state dict only, in the middle of a cycle.
SKETCH = "gradient_sketch"
# Options that every version has saved, by which a state dict is known.
CORE = ("inner_lr", "noise", "alpha", "scale_by_gamma")


def _scheduled(group: dict[str, Any]) -> dict[str, Any]:
    """The options that torch's schedulers change; a rate that is a tensor, they change in place."""
    options = {name: group[name] for name in ("lr", "momentum", "betas") if name in group}
    return {name: v.clone() if isinstance(v, Tensor) else v for name, v in options.items()}


class LocalEntropy(HeldWeights):
    r"""Descends the negative local entropy with any torch optimizer as the outer loop.

    One `step()` is one Langevin step on the gradients in `.grad`; every `L`-th one also makes the outer
    update, in which `outer` receives `x - mu` through `.grad` in place of the back-propagated gradient.

    Args:
        params: parameters, named parameters or parameter groups, as for every torch optimizer.
        outer: class of the outer optimizer, e.g. `torch.optim.AdamW`.
        outer_options: its keyword arguments, which it checks itself. They live in `param_groups` under their
            own names, so schedulers find them; one whose name this class uses too is kept as `outer_<name>`
            (`outer_weight_decay`).
        L: Langevin steps in a cycle (5 to 20 in the paper).
        gamma: the scope, a number >= 0 or a schedule of `entropy_sgd.scoping`.
        inner: the rule of line 5: `"sgd"`, `"adam"`, `"sghmc"`, `"sgnht"`, or the class of a torch optimizer.
        inner_options: keyword arguments of that class; they live in `param_groups` as `inner_<name>`.
        inner_state: `"reset"` starts momentum and moments of the inner loop at zero in each cycle; `"keep"`
            lets them live on from cycle to cycle.
        inner_lr: step size eta' of the Langevin steps; the paper never anneals it.
        inner_momentum: momentum in the inner loop; `"sghmc"` and `"sgnht"` have the friction 1 - momentum.
        inner_nesterov: Nesterov's form of it, for `"sgd"`; with a momentum of zero, the plain step.
        inner_betas: Adam's coefficients for `inner="adam"`.
        inner_eps: Adam's epsilon for `inner="adam"`.
        weight_decay: L2 coefficient. L2 is part of f, so it acts in line 4, not in the outer update.
        noise: thermal noise epsilon of line 5.
        alpha: weight of the newest sample in mu, line 6.
        scale_by_gamma: give `outer` gamma (x - mu), as line 7 is printed; False gives x - mu (Section 4.3).
        seed: of the noise, which is a function of (seed, outer step, inner step, parameter, element) alone.
            Optimizers that train one model together each need a seed of their own.
        maximize: maximize f instead of minimizing it.
        foreach: True runs the Langevin step on lists of tensors, False the readable one tensor by tensor.
        fused: False never runs the compiled Langevin step. By default (None for both) and with True it runs
            where it applies, with `inner="sgd"` on contiguous tensors: float32 on the CPU, float32 and
            bfloat16 on GPUs, where Triton compiles it. The one on lists of tensors runs elsewhere.
        monitor: measure what `diagnostics()` reports. It takes one norm a step and, for the cosine, 16 kB;
            False leaves those figures NaN.
        state_dtype: torch.bfloat16 keeps mu and the inner momentum in 16 bits, rounded stochastically; by
            default they have the dtype of the parameters.

    `L`, `gamma`, `seed` and `monitor` hold for the whole optimizer; all else can differ by parameter group.
    A gradient that is not finite is passed on into the weights, as torch's own optimizers do.
    """

    _common_state: ClassVar[dict[str, Any]] = COMMON_STATE

    def __init__(
        self,
        params: Params,
        outer: type[Optimizer] = torch.optim.SGD,
        outer_options: dict[str, Any] | None = None,
        *,
        L: int = 20,
        gamma: float | scoping.Schedule = 1e-3,
        inner: str | type[Optimizer] = "sgd",
        inner_options: dict[str, Any] | None = None,
        inner_state: str = "reset",
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
        state_dtype: torch.dtype | None = None,
    ) -> None:
        check_hosted("outer", outer, outer_options)
        if issubclass(outer, LocalEntropy):
            raise arguments.refuse("outer", outer, "an optimizer that has no inner loop of its own")
        self._hosts_inner = not isinstance(inner, str)
        if self._hosts_inner:
            check_hosted("inner", inner, inner_options)
            if inner_options and "lr" in inner_options:
                inner_lr = inner_options["lr"]
        elif inner_options:
            raise arguments.refuse(
                "inner_options", inner_options, "left out unless inner is an optimizer class"
            )
        common: dict[str, Any] = {"L": L, "seed": seed, "gamma": gamma, "monitor": monitor}
        if not isinstance(params, Tensor):  # torch says what is wrong with a bare tensor
            params, common = take_common(list(params), common, COMMON_OPTIONS)
        arguments.integer("L", common["L"], 1)
        arguments.seed("seed", common["seed"])
        arguments.flag("monitor", common["monitor"])
        self._schedule = scoping.as_schedule(common["gamma"])
        self._warned: set[str] = set()
        self._watch, self._loaded = Watch(), False
        self._scheduled: list[dict[str, Any]] = []  # what schedulers change, as it was at the last step
        self._buckets: list[Bucket] = []  # of the last step
        self._steady: Steady | None = None
        self._gradient: Tensor | None = None  # grad f(x) of the cycle under way, in the form of angle.py
        self._outer: OuterOptimizer | None = None
        self._inner: InnerOptimizer | None = None
        self._inner_name = inner if isinstance(inner, str) else name_of(inner)
        defaults: dict[str, Any] = {
            "inner": self._inner_name,
            "inner_state": inner_state,
            "inner_lr": inner_lr,
            "weight_decay": weight_decay,
            "noise": noise,
            "alpha": alpha,
            "scale_by_gamma": scale_by_gamma,
            "maximize": maximize,
            "foreach": foreach,
            "fused": fused,
            "state_dtype": state_dtype,
        }
        if not self._hosts_inner:  # an optimizer inside brings options of its own
            defaults |= {
                "inner_momentum": inner_momentum,
                "inner_nesterov": inner_nesterov,
                "inner_betas": inner_betas,
                "inner_eps": inner_eps,
            }
        taken = frozenset((*defaults, *COMMON_OPTIONS, *self._common_state))
        super().__init__(params, arguments.plain(defaults))
        self._common.update(
            {k: v.copy() if isinstance(v, dict) else v for k, v in self._common_state.items()},
            L=int(common["L"]),
            seed=int(common["seed"]),
            monitor=bool(common["monitor"]),
            gamma=scoping.evaluate(self._schedule, 0),
        )
        if not isinstance(inner, str):
            options = arguments.plain({**(inner_options or {}), "lr": inner_lr})
            self._inner = InnerOptimizer(self, inner, options)
        self._outer = OuterOptimizer(self, outer, arguments.plain(outer_options or {}), taken)
        for group in self.param_groups:
            sharding.check_group_params(group)

    @property
    def outer(self) -> Optimizer:
        """The outer optimizer. Its groups and state are this optimizer's."""
        assert self._outer is not None
        return self._outer.optimizer

    def _check_group(self, group: dict[str, Any]) -> None:
        """Every option of the group is of its type and in its range."""
        check_group(group, self._inner_name if self._hosts_inner else None)

    @property
    def _hosted(self) -> list[Hosted]:
        return [hosted for hosted in (self._inner, self._outer) if hosted is not None]

    def add_param_group(self, param_group: dict[str, Any]) -> None:
        """Adds a group, which takes part from its first gradient on."""
        group = dict(param_group)
        for name in (*COMMON_OPTIONS, *self._common_state):
            if name in group and group.pop(name) not in (self._common[name], self._schedule):
                raise arguments.ArgumentError(
                    f"{name} is common to all parameter groups, got {name}={param_group[name]!r} in one group"
                )
        self._check_group({**self.defaults, **group})
        super().add_param_group({**group, **arguments.plain(group)})
        added = self.param_groups[-1]
        try:
            sharding.check_not_wrapped(added["params"])
            sharding.check_group_params(added)
            check_state_dtype(added)
            for hosted in self._hosted:
                hosted.add_param_group(added)
        except Exception:
            self.param_groups.remove(added)
            raise
        self._watch.frozen(added["params"])

    # ---- Algorithm 1 ----

    # Traced by torch.compile, a step would be recompiled for each value of its counters and of gamma.
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
        common = self._common
        if common["evaluating"]:
            if closure is None and common["inner_step"] > 0:
                self._warn_once(
                    "mode",
                    "step() in eval mode: the inner weights x' were put back now, so a gradient taken before "
                    "this call was taken at x; call train() before the forward pass",
                )
            self.train()
        if closure is None and not self.state and sharding.only_asks_for_state(self.param_groups):
            self._make_state()
            return None
        if closure is None and (schedule := self._needs_loss()) is not None:
            raise RuntimeError(
                f"{schedule!r} needs the loss: call step(closure) or cycle(closure), or give it `loss=`"
            )
        loss = None
        if closure is not None:
            with torch.enable_grad():
                loss = closure()
        steady = self._steady
        if steady is None or not steady.holds(self.param_groups, self.state, self._watch):
            steady = self._steady = None
            self._notice()
        if self._langevin(loss, steady):
            common["inner_step"] += 1
            if common["inner_step"] >= common["L"]:
                self._update()
                self._steady = None
                self._watch.record(self._taking_part())
            elif steady is not None:
                self._watch.renew()
            else:
                self._settle()
            self._scheduled = [_scheduled(group) for group in self.param_groups]
        return loss

    def _settle(self) -> None:
        """After a step inside a cycle: the next one may find all as it is now."""
        steady = Steady(self.param_groups, self.state, self._buckets)
        taking_part = self._taking_part()
        if set(taking_part) == set(steady.params):
            self._steady, taking_part = steady, steady.params
        self._watch.record(taking_part)

    def cycle(self, closure: Closure) -> Any:
        """One iteration of Algorithm 1: calls `step(closure)` until the outer update is made.

        That is `L` calls, each of which must draw a fresh mini-batch; fewer if a cycle was under way.

        Returns:
            the mean of the losses.
        """
        losses: list[Any] = []
        while True:
            before = self._progress()
            loss = self.step(closure)
            if loss is None:
                raise RuntimeError("cycle(closure): the closure must return the loss, got None")
            losses.append(loss.detach() if isinstance(loss, Tensor) else loss)
            if self._progress() == before:
                raise RuntimeError("cycle(closure): the closure left no gradient in any parameter")
            if self._common["inner_step"] == 0:
                return sum(losses) / len(losses)

    def _progress(self) -> tuple[int, int]:
        """Outer updates, and steps since the last one, those of cycles that were started over included."""
        common = self._common
        return common["outer_step"], common["inner_step"] + common["abandoned"]

    @torch.no_grad()
    def finish(self) -> None:
        """Ends the cycle under way with the outer update it has earned, as if `L` were the steps made.

        Call it after the last step of training: the steps of an unfinished cycle are lost otherwise. The
        model holds x afterwards. Does nothing at a cycle's end.
        """
        evaluating = self._common["evaluating"]
        self.train()
        self._notice()
        if self._common["inner_step"] > 0:
            # The update was due at the last step; a scheduler may have moved on since.
            now = [{name: group[name] for name in _scheduled(group)} for group in self.param_groups]
            try:
                for group, then in zip(self.param_groups, self._scheduled, strict=False):
                    group.update(then)
                self._update()
            finally:
                for group, options in zip(self.param_groups, now, strict=True):
                    group.update(options)
            self._watch.forget()
        if evaluating:
            self.eval()

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
            if not hasattr(self._schedule, "after"):
                common["gamma"] = scoping.evaluate(self._schedule, common["outer_step"])
            common["distance"] = common["gradient_sq"] = common["loss"] = 0.0
            monitor = common["monitor"]
            self._gradient = angle.empty(self.param_groups, buckets[0].device) if monitor else None
        if self._needs_loss() is not None:
            common["loss"] = common["loss"] + (loss.detach() if isinstance(loss, Tensor) else float(loss))
        # Noise that a cycle has used before it was started over is not used again.
        address = (common["seed"], common["outer_step"], common["inner_step"] + common["abandoned"])
        for bucket in buckets:
            states = bucket.states if steady is not None else [self.state[p] for p in bucket.params]
            bucket.enter(states, common["gamma"])
            if self._gradient is not None and any(bucket.first):
                vector = self._gradient.to(buckets[0].device)
                self._gradient = bucket.with_gradient(vector, self.param_groups, *address[:2])
        if self._inner is not None:
            sums = self._hosted_langevin(self._inner, buckets, address)
        else:
            sums = [bucket.langevin(*address, measure=self._measuring) for bucket in buckets]
        distance_sq: Any = 0.0
        for pair in sums:  # brought to one device, though the parameters may be spread over several
            pair = [s.to(buckets[0].device) if isinstance(s, Tensor) else s for s in pair]
            distance_sq = distance_sq + pair[0]
            common["gradient_sq"] = common["gradient_sq"] + pair[1]
        common["distance"] = common["distance"] + distance_sq**0.5
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
        taking_part = [
            (group, p, self.state[p])
            for group in self.param_groups
            for p in group["params"]
            if self.state.get(p, {}).get(STEP, 0) > 0
        ]
        params = [p for _, p, _ in taking_part]
        others = {p: p.grad for group in self.param_groups for p in group["params"]}
        dot, displacement_sq = self._compare(taking_part)
        exposed = None
        try:
            if common["outer_step"] == 0 and not self._outer.state_from_start:
                self._outer.forget(params)  # what is there, `_make_state` made
            square = None
            if not self._changes_gradient:
                square = outer_update.fused_sgd(self._outer, taking_part, common["gamma"])
            if square is None:
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
                    p.grad = gradient
                self._outer.step()
            else:
                figures = self._measure(square if displacement_sq is None else displacement_sq, dot)
            common["outer_step"] += 1
            self._schedule_next(figures)
        finally:  # if anything fails, the cycle is given up, and the next one begins at x
            for p in params:
                p.grad = None
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
        """Makes of `d`, the local-entropy gradient of `params`, in place, what the outer optimizer gets."""

    def _make_state(self) -> None:
        """Every entry that training will keep in `state`, for a checkpoint to be loaded into; else nothing.

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

    def _compare(self, taking_part: list[outer_update.Member]) -> tuple[Any, Any]:
        """The inner product of grad f(x) and x - mu, from their sketches, and |x - mu|^2; None if unknown.

        There is no sketch without monitoring, nor in the cycle in which a run that did not monitor resumed.
        """
        common = self._common
        vector = self._gradient
        if vector is None or not taking_part:
            return None, None
        address = (common["seed"], common["outer_step"])
        displacement, square = outer_update.displacement(vector, taking_part, self.param_groups, *address)
        return torch.dot(vector, displacement[: len(vector)]), square

    def _measure(self, displacement_sq: Any, dot: Any) -> dict[str, float]:
        """Fills `diagnostics`."""
        common = self._common
        figures = {**UNKNOWN, "gamma": common["gamma"]}
        if self._measuring:
            distance = common["distance"] / common["inner_step"]
            figures |= measure(displacement_sq, common["gradient_sq"], distance, dot)
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
        """Of the last whole cycle; NaN before there was one.

        Returns:
            `gamma`; `x_minus_mu`: ‖x - mu‖; `x_minus_x_prime`: the mean of ‖x - x'‖ over the cycle;
            `gradient`: ‖grad f(x)‖, on the first mini-batch; `cosine` of the angle between x - mu and
            grad f(x), which the paper monitors (Section 5.4): exact up to 4,096 parameters, beyond that with
            a standard error of 0.016 to 0.022, independent from cycle to cycle (optim/sketch.py).
        """
        return dict(self._common["diagnostics"])

    # ---- saving and copying ----

    def state_dict(self) -> dict[str, Any]:
        """Plain tensors and numbers, from which training resumes bit for bit at any point of a cycle."""
        if not self._loaded:
            self._notice(release=False)
        for name in ("distance", "gradient_sq", "loss"):
            self._common[name] = float(self._common[name])
        saved = super().state_dict()
        if self._gradient is not None:
            saved["param_groups"][0][SKETCH] = angle.to_list(self._gradient)
        for name, hosted in (("inner", self._inner), ("outer", self._outer)):
            rest = hosted.save(saved) if hosted is not None else {}
            if rest:
                saved[name] = rest
        return saved

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Resumes from a `state_dict()` of this version or an older one, whole or not at all.

        The model's weights must be loaded too, before or after, saved in the same mode.
        """
        assert self._outer is not None
        outer_names = [self._outer.public_option(name) for name in self.outer.defaults]
        complete = complete_state_dict(self, state_dict, (CORE, outer_names), "entropy_")
        for i, group in enumerate(complete["param_groups"]):
            if group["inner"] != self._inner_name and (self._hosts_inner or "." in group["inner"]):
                raise ValueError(
                    f"state_dict: of an optimizer with inner={group['inner']!r}, "
                    f"this one has {self._inner_name!r}"
                )
            # Older versions kept stale copies in all groups.
            for name in (*COMMON_OPTIONS, *self._common_state):
                if i > 0:
                    group.pop(name, None)
                else:
                    group.setdefault(name, self._common_state.get(name, self._common[name]))
        before = (self.state, self.param_groups)
        try:
            super().load_state_dict(complete)
            for name, hosted in (("inner", self._inner), ("outer", self._outer)):
                if hosted is not None:
                    hosted.load(complete, complete.get(name, {}))
            self._keep_bits(state_dict)
        except BaseException:
            self.state, self.param_groups = before
            self._share()
            raise
        self._gradient = angle.from_list(self._common.pop(SKETCH, None))
        self._steady = None
        self._watch.forget()
        self._watch.learned(p for p in self._taking_part() if isinstance(p, torch.nn.Parameter))
        self._loaded, self._scheduled = True, []

    def _keep_bits(self, state_dict: dict[str, Any]) -> None:
        """After torch has given loaded states the parameters' dtype.

        The states of bfloat16 weights are of float32, and with `state_dtype=torch.bfloat16` those of float32
        weights of bfloat16.
        """
        for group, saved in zip(self.param_groups, state_dict["param_groups"], strict=True):
            for p, i in zip(group["params"], saved["params"], strict=True):
                state = self.state.get(p, {})
                state.pop(GRADIENT, None)
                for name, value in state_dict["state"].get(i, {}).items():
                    if name not in state or not isinstance(value, Tensor):
                        continue
                    master = has_master(p) and value.dtype is torch.float32
                    half = group["state_dtype"] is torch.bfloat16 and value.dtype is torch.bfloat16
                    if master or (half and name.startswith("entropy_")):
                        state[name] = value.detach().to(p.device, copy=True)

    def _share(self) -> None:
        for hosted in self._hosted:
            hosted.share()

    def __getstate__(self) -> dict[str, Any]:
        own = (
            "_gradient",
            "_scheduled",
            "_outer",
            "_inner",
            "_inner_name",
            "_hosts_inner",
            "_schedule",
            "_warned",
            "_loaded",
            "_watch",
        )
        return {**super().__getstate__(), **{name: getattr(self, name) for name in own}}

    def __setstate__(self, state: dict[str, Any]) -> None:
        super().__setstate__(state)
        self._buckets, self._steady = [], None
        self._share()  # load_state_dict and unpickling bring new containers
