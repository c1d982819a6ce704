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

import functools
from collections.abc import Callable, Iterable
from typing import Any, ClassVar

import torch
from torch import Tensor
from torch.autograd import profiler
from torch.optim import Optimizer
from torch.optim.optimizer import _global_optimizer_post_hooks, _global_optimizer_pre_hooks

from entropy_sgd import arguments
from entropy_sgd.optim import annealing, scoping, sharding
from entropy_sgd.optim.inner_optimizer import InnerOptimizer, check_hosted, name_of
from entropy_sgd.optim.options import (
    COMMON_OPTIONS,
    COMMON_STATE,
    RULE_OPTIONS,
    check_group,
    check_state_dtype,
    described,
    take_common,
)
from entropy_sgd.optim.outer_optimizer import OuterOptimizer
from entropy_sgd.optim.saving import Saving, scheduled
from entropy_sgd.optim.steady import Steady
from entropy_sgd.optim.watch import Watch

Closure = Callable[[], Any]
Params = Iterable[Tensor] | Iterable[dict[str, Any]] | Iterable[tuple[str, Tensor]]


class LocalEntropy(Saving):
    r"""Descends the negative local entropy with any torch optimizer as the outer loop.

    One `step()` is one Langevin step on the gradients in `.grad`; every `L`-th one also makes the outer
    update, in which `outer` receives `x - mu` through `.grad` in place of the back-propagated gradient.

    Args:
        params: parameters, named parameters or parameter groups, as for every torch optimizer.
        outer: class of the outer optimizer, e.g. `torch.optim.AdamW`.
        outer_options: its keyword arguments, which it checks itself. They live in `param_groups` under their
            own names, so schedulers find them; one whose name this class uses too is kept as `outer_<name>`
            (`outer_weight_decay`). The outer optimizer makes one update in `L` gradients: give Adam and its
            kin about `L` times their usual rate, and SGD 1, which moves x to mu (torch's default is 1e-3).
        L: Langevin steps in a cycle (5 to 20 in the paper).
        gamma: the scope, a number >= 0 or a schedule of `entropy_sgd.scoping`.
        inner: the rule of line 5: `"sgd"`, `"adam"`, `"sghmc"`, `"sgnht"`, or the class of a torch optimizer.
        inner_options: keyword arguments of that class; they live in `param_groups` as `inner_<name>`.
        inner_state: `"reset"` starts momentum and moments of the inner loop at zero in each cycle; `"keep"`
            carries them over from cycle to cycle.
        inner_lr: step size eta' of the Langevin steps; the paper never anneals it.
        anneal: what a scheduler on `lr` moves: `"outer"`, the outer rate, as in the paper; `"inner"`, the
            step size `inner_lr` in its place, by the same factor; `"both"`.
        inner_momentum: momentum in the inner loop; `"sghmc"` and `"sgnht"` have the friction 1 - momentum.
        inner_nesterov: Nesterov's form of it, for `"sgd"`; with a momentum of zero, the plain step.
        inner_betas: Adam's coefficients for `inner="adam"`.
        inner_eps: Adam's epsilon for `inner="adam"`.
        weight_decay: L2 coefficient. L2 is part of f, so it acts in line 4, not in the outer update.
        noise: thermal noise epsilon of line 5.
        alpha: weight of the newest sample in mu, line 6.
        scale_by_gamma: give `outer` gamma (x - mu), line 7 as printed; False gives x - mu (Section 4.3).
        seed: of the noise, which is a function of (seed, outer step, inner step, parameter, element) alone.
            Optimizers that train one model together each need their own seed.
        maximize: maximize f instead of minimizing it.
        foreach: True runs the Langevin step on lists of tensors, False the readable one tensor by tensor.
        fused: False never runs the compiled Langevin step. By default (None for both) and with True it runs
            where it applies, with `inner="sgd"` on contiguous tensors: float32 on the CPU, float32 and
            bfloat16 on GPUs, where Triton compiles it. Elsewhere the step on lists of tensors runs.
        monitor: measure what `diagnostics()` reports. It costs one norm per step and, for the cosine, 16 kB;
            with False those figures are NaN.
        state_dtype: torch.bfloat16 keeps mu and the inner momentum in 16 bits, rounded stochastically; by
            default they have the dtype of the parameters.

    `L`, `gamma`, `seed` and `monitor` hold for the whole optimizer; everything else can differ by group.
    A gradient that is not finite is passed on into the weights, as torch's own optimizers do.
    """

    _common_state: ClassVar[dict[str, Any]] = COMMON_STATE
    _unit: ClassVar[float] = 0.0
    """What a later rate of a group that was built with `lr=0` is relative to; see `annealing.remember`."""

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
        anneal: str = "outer",
    ) -> None:
        self._hosts_inner = not isinstance(inner, str)
        check_hosted("outer", outer, outer_options)
        if self._hosts_inner:
            check_hosted("inner", inner, inner_options)
        for argument, kind in (("outer", outer), ("inner", inner)):
            if not isinstance(kind, str) and issubclass(kind, LocalEntropy):
                raise arguments.refuse(argument, kind, "an optimizer that has no inner loop of its own")
        rule_options = {
            "inner_momentum": inner_momentum,
            "inner_nesterov": inner_nesterov,
            "inner_betas": inner_betas,
            "inner_eps": inner_eps,
        }
        if self._hosts_inner:
            for name, value in rule_options.items():
                if value != RULE_OPTIONS[name]:
                    raise arguments.refuse(name, value, "left out where inner is a class: use inner_options")
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
        self._scheduled = []
        self._buckets, self._steady, self._gradient = [], None, None
        self._inner, self._outer = None, None
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
            "anneal": anneal,
            annealing.BASE: None,
        }
        if not self._hosts_inner:  # an optimizer inside brings options of its own
            defaults |= rule_options
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
            annealing.remember(group)

    @property
    def outer(self) -> Optimizer:
        """The outer optimizer. Its groups and state are this optimizer's."""
        assert self._outer is not None
        return self._outer.optimizer

    def __repr__(self) -> str:
        """As torch shows its optimizers: the options of each group, and no state."""
        hidden = {*self._common_state, annealing.BASE} - {"rho"}  # the strength of a coupling is an option
        shown = {"gamma": self._schedule} if not isinstance(self._schedule, scoping.Constant) else {}
        return described(self, hidden, shown)

    def _check_group(self, group: dict[str, Any]) -> None:
        """Every option of the group is of its type and in its range."""
        check_group(group, self._inner_name if self._hosts_inner else None)

    def add_param_group(self, param_group: dict[str, Any]) -> None:
        """Adds a group; it takes part from its first gradient on."""
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
            annealing.remember(added)
        except Exception:
            self.param_groups.pop()
            raise
        self._watch.frozen(added["params"])

    # ---- Algorithm 1 ----

    @staticmethod
    def profile_hook_step(func: Callable[..., Any]) -> Callable[..., Any]:
        """The wrapper that torch puts around `step`, but only if there are hooks or a profiler.

        It would take a tenth of the time of a step on a small network. A compiled caller always gets it:
        otherwise a hook that is registered after the compilation would be missed.
        """
        watched = Optimizer.profile_hook_step(func)

        @functools.wraps(func)
        def step(self: LocalEntropy, *args: Any, **kwargs: Any) -> Any:
            if (
                torch.compiler.is_dynamo_compiling()
                or profiler._is_profiler_enabled
                or _global_optimizer_pre_hooks
                or _global_optimizer_post_hooks
                or self._optimizer_step_pre_hooks
                or self._optimizer_step_post_hooks
            ):
                return watched(self, *args, **kwargs)
            return func(self, *args, **kwargs)

        return step

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
                    "step() in eval mode: the inner weights x' were restored only now, so a gradient taken "
                    "before this call was taken at x; call train() before the forward pass",
                )
            self.train()
        if closure is None and not self.state and sharding.only_asks_for_state(self.param_groups):
            self._make_state()
            return None
        if closure is None and (schedule := self._needs_loss()) is not None:
            raise RuntimeError(
                f"{schedule!r} needs the loss: call step(closure) or cycle(closure), or set its `loss=`"
            )
        loss = None
        if closure is not None:
            with torch.enable_grad():
                loss = closure()
        steady = self._steady
        if steady is None or not steady.holds(self.param_groups, self.state, self._watch):
            steady = self._steady = None
            self._notice()
        if common["inner_step"] == 0 or steady is None:
            for group in self.param_groups:
                if (message := annealing.misread(group, self.defaults.get("momentum"))) is not None:
                    self._warn_once("scheduler", message)
                if (common["outer_step"], common["inner_step"]) == (1, 0) and (
                    message := annealing.written(group)
                ) is not None:
                    self._warn_once("written rate", message)
        with annealing.Applied(self.param_groups, self._unit):
            try:
                stepped = self._langevin(loss, steady)
            except RuntimeError:
                self._check_shapes()
                raise
            common["inner_step"] += stepped
            whole = stepped and common["inner_step"] >= common["L"]
            if whole:
                try:
                    self._update()
                except BaseException:  # a diverged replica: the step before was this optimizer's own write
                    self._watch.record(self._taking_part())
                    raise
        if stepped:
            if steady is None:
                self._settle()
            elif self._inner is None and not whole:
                self._watch.renew()
            else:  # another optimizer may have given a parameter another address
                self._watch.record(steady.params)
            self._scheduled = [scheduled(group) for group in self.param_groups]
        return loss

    def _settle(self) -> None:
        """Records the state after a step, which the next one may find unchanged."""
        steady = Steady(self.param_groups, self.state, self._buckets)
        taking_part = self._taking_part()
        if set(taking_part) <= set(steady.params):
            self._steady, taking_part = steady, steady.params
        self._watch.record(taking_part)

    def cycle(self, closure: Closure) -> Any:
        """One iteration of Algorithm 1: calls `step(closure)` until the outer update is made.

        That is `L` calls, each of which must draw a fresh mini-batch; fewer if a cycle had already begun.

        Returns:
            the mean of the losses.
        """
        losses: list[Any] = []
        abandoned = self._common["abandoned"]
        while True:
            before = self._progress()
            loss = self.step(closure)
            if loss is None:
                raise RuntimeError("cycle(closure): the closure must return the loss, got None")
            losses.append(loss.detach() if isinstance(loss, Tensor) else loss)
            if self._progress() == before:
                raise RuntimeError("cycle(closure): the closure left no gradient in any parameter")
            if self._common["abandoned"] - abandoned >= self._common["L"]:
                raise RuntimeError(
                    "cycle(closure): the closure writes the weights, so that every step starts the cycle "
                    "over; write them between two cycles"
                )
            if self._common["inner_step"] == 0:
                return sum(losses) / len(losses)

    def _progress(self) -> tuple[int, int]:
        """Outer updates, and steps since the last one, those of cycles that were started over included."""
        common = self._common
        return common["outer_step"], common["inner_step"] + common["abandoned"]

    @torch.no_grad()
    def finish(self) -> None:
        """Ends the current cycle early, with the outer update as if `L` were the number of steps made.

        Call it after the last step of training: otherwise the steps of an unfinished cycle are lost. The
        model holds x afterwards. Does nothing at a cycle's end.
        """
        evaluating = self._common["evaluating"]
        self.train()
        self._steady = None
        self._notice()
        if self._common["inner_step"] > 0:
            # The update was due at the last step; a scheduler may have moved on since.
            now = [{name: group[name] for name in scheduled(group)} for group in self.param_groups]
            try:
                for group, then in zip(self.param_groups, self._scheduled, strict=False):
                    group.update(then)
                with annealing.Applied(self.param_groups, self._unit):
                    self._update()
            finally:
                for group, options in zip(self.param_groups, now, strict=True):
                    group.update(options)
            self._watch.forget()
        if evaluating:
            self.eval()
