"""Entropy-SGD: Algorithm 1 with SGD (Nesterov) in both loops, the optimizer of Sections 5.2 to 5.4.1."""

from __future__ import annotations

from typing import Any, ClassVar, Self

import torch

from entropy_sgd import arguments
from entropy_sgd.optim import scoping
from entropy_sgd.optim.local_entropy import LocalEntropy, Params
from entropy_sgd.optim.options import INNER_LR, check_rate

GAMMA = scoping.Exponential(1e-4, 1e-3, maximum=1.0)
"""Section 5.2's. The paper's runs end long before the maximum, at outer update 9,215; without one, from
update 12,212 on the scope is above 2 / inner_lr, where the spring throws x' ever further from x."""
PAPER: dict[str, Any] = {
    "lr": 1.0,
    "momentum": 0.9,
    "nesterov": True,
    "weight_decay": 0.0,
    "L": 20,
    "inner_lr": 0.1,
    "inner_momentum": 0.9,
    "inner_nesterov": True,
    "inner_state": "reset",
    "gamma": GAMMA,
    "noise": 1e-4,
    "alpha": 0.75,
    "anneal": "outer",
}
"""Of Section 5.2, but for the noise, which is Section 5.3's (5.2 has 1e-3), and the momentum of 0.9 that
Section 5.4.2 names for convolutional networks."""
PLAIN: dict[str, Any] = {"inner_state": "keep", "anneal": "inner", "alpha": 0.9}
"""Without an outer momentum. mu lags (1 - alpha) / alpha steps behind a steady x', and each cycle loses
these: a ninth of a step. A third, with the paper's alpha, costs 1 % of the error where the rate is low for
the length of the run (docs/evidence.md)."""


def _by_momentum(momentum: float) -> dict[str, Any]:
    """With an outer momentum the paper's way, without one what trains as SGD does."""
    names = ("inner_state", "anneal", "alpha")
    return {name: PAPER[name] for name in names} if momentum else PLAIN


class EntropySGD(LocalEntropy):
    """Drop-in for `torch.optim.SGD` that seeks wide valleys.

    ::

        optimizer = EntropySGD(model.parameters(), inner_lr=0.1)   # SGD's learning rate
        for inputs, targets in loader:            # every step sees a fresh mini-batch
            optimizer.zero_grad()
            loss_fn(model(inputs), targets).backward()
            optimizer.step()                      # a Langevin step; every L-th also updates x
        optimizer.finish()                        # the outer update of an unfinished last cycle
        optimizer.eval()                          # the outer weights x, for validation and saving

    Args:
        params: parameters, named parameters or parameter groups.
        lr: outer learning rate eta; leave it at 1, which moves x to mu. A scheduler on it
            scales `inner_lr` (see `anneal`).
        momentum: of the outer loop; the paper's 0.9 can diverge on networks without normalisation.
        nesterov: Nesterov's form of it; with a momentum of zero, the plain step.
        weight_decay: L2 coefficient, part of f: it acts in the inner loop.
        L: Langevin steps in a cycle.
        inner_lr: their step size eta', the rate that SGD would have.
        inner_momentum: momentum of the inner loop.
        inner_nesterov: Nesterov's form of it.
        gamma: the scope: a number or a schedule of `entropy_sgd.scoping`.
        noise: thermal noise epsilon.
        alpha: weight of the newest sample in the average mu. By default 0.9; the paper's 0.75 with a
            `momentum`.
        scale_by_gamma: update with gamma (x - mu), line 7 as printed, instead of x - mu.
        seed: of the thermal noise.
        inner: `"sgd"`, `"adam"`, `"sghmc"`, `"sgnht"`, or the class of a torch optimizer.
        inner_options: keyword arguments of that class.
        inner_state: `"keep"` carries the inner momentum over from cycle to cycle, `"reset"` starts it at zero
            in each. By default `"keep"`, or `"reset"` with a `momentum`, which carries the speed instead.
        inner_betas: for `inner="adam"`.
        inner_eps: for `inner="adam"`.
        maximize: maximize f instead.
        foreach: as in `torch.optim`, for both loops; by default the fastest path that applies.
        fused: as in `torch.optim`, for both loops: the compiled Langevin step, torch's fused outer update.
        monitor: measure what `diagnostics()` reports, see `LocalEntropy`.
        anneal: what a scheduler on `lr` moves: `"inner"`, `inner_lr` in its place by the same factor;
            `"outer"`, `lr` alone, as in the paper; `"both"`. By default `"inner"`, or `"outer"` with a
            `momentum`.
        state_dtype: torch.bfloat16 keeps mu and the inner momentum in 16 bits, see `LocalEntropy`.
    """

    _unit: ClassVar[float] = 1.0

    def __init__(
        self,
        params: Params,
        lr: float | torch.Tensor = 1.0,
        momentum: float = 0.0,
        nesterov: bool = True,
        weight_decay: float = 0.0,
        L: int = 20,
        inner_lr: float = INNER_LR,
        inner_momentum: float = 0.9,
        inner_nesterov: bool = True,
        gamma: float | scoping.Schedule = GAMMA,
        noise: float = 1e-4,
        alpha: float | None = None,
        scale_by_gamma: bool = False,
        seed: int = 0,
        *,
        inner: str | type[torch.optim.Optimizer] = "sgd",
        inner_options: dict[str, Any] | None = None,
        inner_state: str | None = None,
        inner_betas: tuple[float, float] = (0.9, 0.999),
        inner_eps: float = 1e-8,
        maximize: bool = False,
        foreach: bool | None = None,
        fused: bool | None = None,
        monitor: bool = True,
        state_dtype: torch.dtype | None = None,
        anneal: str | None = None,
    ) -> None:
        given: dict[str, Any] = {"inner_state": inner_state, "anneal": anneal, "alpha": alpha}
        self._follow = [name for name, value in given.items() if value is None]
        self._own = {"lr": lr, "momentum": momentum, "nesterov": nesterov}
        chosen = {**_by_momentum(momentum), **{k: v for k, v in given.items() if v is not None}}
        super().__init__(
            params,
            torch.optim.SGD,
            {**self._own, "foreach": foreach, "fused": fused},
            L=L,
            gamma=gamma,
            inner=inner,
            inner_options=inner_options,
            inner_state=chosen["inner_state"],
            inner_lr=inner_lr,
            inner_momentum=inner_momentum,
            inner_nesterov=inner_nesterov,
            inner_betas=inner_betas,
            inner_eps=inner_eps,
            weight_decay=weight_decay,
            noise=noise,
            alpha=chosen["alpha"],
            scale_by_gamma=scale_by_gamma,
            seed=seed,
            maximize=maximize,
            foreach=foreach,
            fused=fused,
            monitor=monitor,
            state_dtype=state_dtype,
            anneal=chosen["anneal"],
        )
        rates = [float(group["lr"]) for group in self.param_groups if group["inner_lr"] is INNER_LR]
        if inner == "sgd" and (slow := [rate for rate in rates if 0 < rate < 0.5]):
            self._warn_once(
                "rate",
                f"EntropySGD: lr={slow[0]:g} is the rate of the outer update, with which x moves slowly. "
                "SGD's learning rate belongs in inner_lr; leave lr and momentum out: "
                f"EntropySGD(params, inner_lr={slow[0]:g}). (An explicit inner_lr silences this warning.)",
            )

    @classmethod
    def paper(cls, params: Params, **options: Any) -> Self:
        """The paper's momenta, reset and annealing for convolutional networks; `options` override them.

        They suit normalised layers and long runs, because the outer momentum carries x up to ten times as far
        as mu. gamma and noise differ by network in the paper: Section 5.2 (MNIST) has `noise=1e-3`, Section
        5.3 (CIFAR-10) `gamma=scoping.Exponential(0.03, 1e-3)`.
        """
        return cls(params, **{**PAPER, **options})

    def add_param_group(self, param_group: dict[str, Any]) -> None:
        """A group with a momentum of its own has the defaults that go with it."""
        given = param_group
        if isinstance(param_group, dict) and "momentum" in param_group:  # pyright: ignore[reportUnnecessaryIsInstance]
            defaults = _by_momentum(param_group["momentum"])
            follow = getattr(self, "_follow", ())  # absent if pickled by an older version
            param_group = {**{name: defaults[name] for name in follow}, **param_group}
        super().add_param_group(param_group)
        group = self.param_groups[-1]
        if "lr" not in given or "inner_lr" in given or group["anneal"] == "outer" or group["inner"] != "sgd":
            return
        if 0 < (rate := float(group["lr"])) < 0.5:
            self._warn_once(
                "rate",
                f"EntropySGD: lr={rate:g} of a parameter group is the rate of its outer update, with which x "
                f"moves slowly; its inner loop steps with inner_lr={group['inner_lr']:g}. SGD's rates by "
                f"group belong in inner_lr: {{'params': ..., 'inner_lr': {rate:g}}}",
            )

    def __getstate__(self) -> dict[str, Any]:
        return {**super().__getstate__(), "_follow": getattr(self, "_follow", ())}

    def _check_group(self, group: dict[str, Any]) -> None:
        super()._check_group(group)
        group = {**getattr(self, "_own", {}), **group}  # before the outer optimizer gave its defaults
        check_rate(group)
        arguments.number("momentum", group["momentum"])
        arguments.flag("nesterov", group["nesterov"])
