"""Which weights the model holds: x or x', and what happens when someone else writes them.

Inside a cycle the parameters hold x' and the state x; `eval()` exchanges them. Weights that other code
writes, freezes or converts in the meantime are noticed before the next operation (watch.py says how).
"""

from __future__ import annotations

import math
import sys
import warnings
from typing import Any
from weakref import WeakSet

import torch
from torch import Tensor
from torch.optim import Optimizer

from entropy_sgd.optim import annealing, sharding
from entropy_sgd.optim.bucket import real
from entropy_sgd.optim.exchange import exchange
from entropy_sgd.optim.outer_optimizer import OuterOptimizer
from entropy_sgd.optim.states import AGE, STEP, X_PRIME, X, has_master
from entropy_sgd.optim.watch import Watch, saved_in_two_modes

_OURS = ("entropy_sgd.", "torch.")
_in_backward: WeakSet[HeldWeights] = WeakSet()


class HeldWeights(Optimizer):
    """An optimizer with inner and outer weights; `LocalEntropy` says how they move."""

    _outer: OuterOptimizer | None
    _watch: Watch
    _loaded: bool  # since the last operation
    _scheduled: list[dict[str, Any]]  # what schedulers change, of each group at the last step
    _gradient: Tensor | None  # grad f(x) of the cycle under way, in the form of angle.py
    _warned: set[str]

    @property
    def _common(self) -> dict[str, Any]:
        """What is common to all groups, kept in the first."""
        first = self.param_groups[0]
        if "evaluating" not in first and self._outer is not None:
            raise RuntimeError(
                "param_groups[0] is not the same group as before, but the first group holds L, seed, gamma "
                "and the step counts for all: leave it in place, or empty its 'params'"
            )
        return first

    def _states(self) -> list[tuple[Tensor, dict[str, Any]]]:
        """Parameters and their states; outer optimizers may keep more under other keys."""
        return [(p, state) for p, state in self.state.items() if isinstance(p, Tensor)]  # pyright: ignore[reportUnnecessaryIsInstance]

    def _taking_part(self) -> list[Tensor]:
        """The parameters that are inside a cycle: they hold x', or x while evaluating."""
        return [p for p, state in self._states() if state.get(STEP, 0) > 0]

    def _warn_once(self, kind: str, message: str) -> None:
        if kind not in self._warned:
            self._warned.add(kind)
            frame, level = sys._getframe(1), 2  # the first line that is the user's
            while frame.f_back is not None and frame.f_globals.get("__name__", "").startswith(_OURS):
                frame, level = frame.f_back, level + 1
            warnings.warn(message, stacklevel=level)

    # ---- modes ----

    @property
    def evaluating(self) -> bool:
        """Whether the model holds the outer weights x because of `eval()`."""
        return self._common["evaluating"]

    @property
    def outer_steps(self) -> int:
        """Outer updates made so far."""
        return self._common["outer_step"]

    @property
    def inner_steps(self) -> int:
        """Langevin steps made in the current cycle; 0 at a cycle's end, where the model holds x."""
        return self._common["inner_step"]

    def eval(self) -> None:
        """Puts the outer weights x into the model, in exchange for x'. Does nothing at a cycle's end."""
        common = self._common
        if common["evaluating"]:
            return
        self._notice(release=self._some_learn())
        if common["outer_step"] == 0 and common["inner_step"] > 0:
            self._warn_once(
                "initial",
                "eval() before the first outer update: x is still the initial weights, after "
                f"{common['inner_step']} of L={common['L']} steps; finish() updates x with the steps made",
            )
        self._set_mode(evaluating=True)

    def train(self) -> None:
        """Puts the inner weights x' back after `eval()`."""
        if self._common["evaluating"]:
            self._notice(release=self._some_learn())
            if self._common["evaluating"]:
                self._set_mode(evaluating=False)

    def _some_learn(self) -> bool:
        """False if everything is frozen, as it may be for a while, for an evaluation."""
        return any(p.requires_grad for p in self._taking_part())

    @torch.no_grad()
    def _set_mode(self, *, evaluating: bool) -> None:
        """Exchanges x and x'; an outer optimizer that has modes changes them while the model holds x."""
        assert self._outer is not None
        self._check_shapes(inside=True)
        if evaluating:
            self._swap(evaluating=True)
            try:
                self._outer.mode(training=False)
            except BaseException:
                self._swap(evaluating=False)
                self._watch.record(self._taking_part())
                raise
        else:
            self._outer.mode(training=True)
            self._swap(evaluating=False)
        self._common["evaluating"] = evaluating
        self._watch.record(self._taking_part())

    def _swap(self, *, evaluating: bool) -> None:
        """Puts x in place of x' in the model, or x' in place of x."""
        params: list[Tensor] = []
        for p in self._taking_part():
            state = self.state[p]
            x: Tensor = state[X]
            if not evaluating and X_PRIME in state:
                p.copy_(state.pop(X_PRIME))
            elif evaluating and has_master(p):  # x has more bits than p: it stays, and x' steps aside
                state[X_PRIME] = p.detach().clone()
                p.copy_(x)
            elif x.dtype is not p.dtype:  # the model was converted to bfloat16 since `eval()`
                held = p.detach().to(x.dtype)
                p.copy_(x)
                x.copy_(held)
            else:
                params.append(p)
        xs: list[Tensor] = [self.state[p][X] for p in params]
        if sharding.any_distributed(params):
            params, xs = real(params), real(xs)
        if params:
            exchange(params, xs)

    def restart(self) -> None:
        """Begins a cycle at the weights that the model holds now.

        The current cycle is discarded, and with `inner_state="keep"` so are momentum and moments of the
        inner loop; the counts of updates and the state of the outer optimizer stay.
        """
        self._leave_eval([p for group in self.param_groups for p in group["params"]])
        self._start_over(self._taking_part())
        self._forget_moments([p for p, _ in self._states()])

    @torch.no_grad()
    def _leave_eval(self, found: list[Tensor]) -> None:
        """Training goes on with the weights `found` in the model; the outer optimizer must not move them."""
        if not self._common["evaluating"]:
            return
        self._common["evaluating"] = False
        assert self._outer is not None
        if hasattr(self._outer.optimizer, "train"):
            kept = [p.detach().clone() for p in found]
            self._outer.mode(training=True)
            for p, weights in zip(found, kept, strict=True):
                p.copy_(weights)

    # ---- what others do to the parameters ----

    @torch.no_grad()
    def _notice(self, *, release: bool = True) -> None:
        """Handles parameters that someone else has frozen, converted or written since the last operation.

        With `release`, frozen ones leave the cycle. The gradient at x is that of all who were in the cycle at
        its start; if any of them leaves it or begins it anew, the cycle has no such figure.
        """
        if self._loaded:
            self._notice_modes()
        inside = len(self._taking_part())
        members = {p for group in self.param_groups for p in group["params"]}
        for p, state in self._states():
            if p not in members and state.get(STEP, 0) > 0:  # taken out of its group: as if frozen
                self._watch.release(state)
                self._gradient = None  # it had a place in there
        written = self._watch.written(self._states(), release=release)
        if self._common["inner_step"] > 0 and not self._taking_part():
            self._start_over([])  # all were frozen
        if written:
            self._warn_once(
                "written",
                f"{len(written)} parameters were changed from outside in the middle of a cycle "
                "(load_state_dict, re-initialisation, ...): the cycle starts over from the current weights. "
                "Call restart() after such a change to do the same without this warning",
            )
            self._start_over(written)
        if len(self._taking_part()) < inside:
            self._common["gradient_sq"] = math.nan

    def _notice_modes(self) -> None:
        """After a load: model and optimizer must have been saved in the same mode."""
        self._loaded = False
        inside = [(p, state) for p, state in self._states() if state.get(STEP, 0) > 0]
        then = [*self._scheduled, *self.param_groups[len(self._scheduled) :]]  # at the last step
        rates = [annealing.inner_rate({**g, **t}) for g, t in zip(self.param_groups, then, strict=False)]
        if any(rate > 0 for rate in rates) and saved_in_two_modes(inside):
            held, lost = ("x'", "x") if self._common["evaluating"] else ("x", "x'")
            self._warn_once(
                "modes",
                f"the model and the optimizer were saved in different modes: both hold {held}, and {lost} of "
                f"the current cycle is in neither. The cycle starts over from {held}; save model and "
                "optimizer both between eval() and train(), or both outside",
            )
            params = [p for p, _ in inside]
            self._leave_eval(params)
            self._start_over(params)

    def _start_over(self, params: list[Tensor]) -> None:
        """These parameters begin a cycle with their next gradient; all begin one if no other is inside."""
        for p in params:
            state = self.state[p]
            state[STEP] = 0
            state.pop(X_PRIME, None)
        self._forget_moments(params)
        common = self._common
        if not self._taking_part():
            common["abandoned"] += common["inner_step"]
            common["inner_step"] = 0
            self._leave_eval(params)
        self._watch.record(self._taking_part())

    def _forget_moments(self, params: list[Tensor]) -> None:
        """What the inner loop keeps of these parameters from cycle to cycle is reset at their next step."""
        for p in params:
            if AGE in self.state[p]:
                self.state[p][AGE] = 0

    def _check_shapes(self, *, inside: bool = False) -> None:
        """All parameters, or those `inside` a cycle, still have the shapes of their states."""
        for p, state in self._states():
            before = state[X].shape if X in state and (state.get(STEP, 0) > 0 or not inside) else p.shape
            if before != p.shape:
                raise RuntimeError(
                    f"the size of a parameter has changed from {tuple(before)} to {tuple(p.shape)}: "
                    "build a new optimizer after such a change"
                )

    def _check_streams(self) -> None:
        """Optimizers of single parameters that step inside one backward pass must not share a seed.

        Their parameters all have index 0, and would draw the same noise.
        """
        if torch._C._current_graph_task_id() == -1 or self in _in_backward:
            return
        if any(other._common["seed"] == self._common["seed"] for other in _in_backward):
            self._warn_once(
                "streams",
                f"several optimizers with seed={self._common['seed']} step inside backward(): parameters of "
                "equal shape draw the same noise. Give each optimizer its own seed, such as the index of "
                "its parameter",
            )
        _in_backward.add(self)
