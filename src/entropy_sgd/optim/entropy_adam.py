"""Entropy-Adam: Adam fed the local-entropy gradient, the optimizer of the char-LSTM (Section 5.4.2)."""

from __future__ import annotations

from typing import Any, Self

import torch

from entropy_sgd import arguments
from entropy_sgd.optim import scoping
from entropy_sgd.optim.local_entropy import LocalEntropy, Params
from entropy_sgd.optim.options import INNER_LR, check_rate

ADAM_LR = 1e-3
"""The default of `torch.optim.Adam`."""
PAPER: dict[str, Any] = {
    "lr": 1e-2,
    "betas": (0.5, 0.999),
    "weight_decay": 0.0,
    "L": 5,
    "inner_lr": 0.1,
    "inner_momentum": 0.9,
    "inner_nesterov": True,
    "inner_state": "reset",
    "gamma": 1e-2,
    "noise": 1e-4,
    "alpha": 0.75,
    "anneal": "outer",
}
"""Section 5.4.2; it names the rate, betas, L and gamma, the inner loop is that of Section 4.2."""


class EntropyAdam(LocalEntropy):
    """Drop-in for `torch.optim.Adam` that seeks wide valleys.

    Adam moves x by about `lr` once per cycle of `L` gradients, so `lr` is about `L` times what it would be
    for Adam alone (docs/evidence.md). Adam normalises its gradient, so `scale_by_gamma` matters only through
    `eps` while gamma is constant.

    Args:
        params: parameters, named parameters or parameter groups.
        lr: learning rate of the outer Adam, about `L` times that of Adam alone.
        betas: its coefficients; the paper lowers the first to 0.5.
        eps: its epsilon.
        amsgrad: its AMSGrad variant.
        weight_decay: L2 coefficient, part of f: it acts in the inner loop.
        L: Langevin steps in a cycle.
        inner_lr: their step size eta'.
        inner_momentum: momentum of the inner loop.
        inner_nesterov: Nesterov's form of it.
        gamma: the scope: a number or a schedule of `entropy_sgd.scoping`.
        noise: thermal noise epsilon.
        alpha: weight of the newest sample in the average mu.
        scale_by_gamma: update with gamma (x - mu) instead of x - mu.
        seed: of the thermal noise.
        inner: `"sgd"`, `"adam"`, `"sghmc"`, `"sgnht"`, or the class of a torch optimizer.
        inner_options: keyword arguments of that class.
        inner_state: `"reset"` starts the inner momentum at zero in each cycle, `"keep"` carries it over.
        inner_betas: for `inner="adam"`.
        inner_eps: for `inner="adam"`.
        maximize: maximize f instead.
        foreach: as in `torch.optim`, for both loops; by default the fastest path that applies.
        fused: as in `torch.optim`, for both loops: the compiled Langevin step, torch's fused outer update.
        monitor: measure what `diagnostics()` reports, see `LocalEntropy`.
        anneal: `"outer"`: a scheduler moves `lr` alone; `"inner"`: `inner_lr` in its place; `"both"`.
        state_dtype: torch.bfloat16 keeps mu and the inner momentum in 16 bits, see `LocalEntropy`.
    """

    def __init__(
        self,
        params: Params,
        lr: float | torch.Tensor = 3e-3,
        betas: tuple[float, float] = (0.5, 0.999),
        eps: float = 1e-8,
        weight_decay: float = 0.0,
        amsgrad: bool = False,
        L: int = 3,
        inner_lr: float = INNER_LR,
        inner_momentum: float = 0.9,
        inner_nesterov: bool = True,
        gamma: float | scoping.Schedule = 1e-2,
        noise: float = 1e-4,
        alpha: float = 0.75,
        scale_by_gamma: bool = False,
        seed: int = 0,
        *,
        inner: str | type[torch.optim.Optimizer] = "sgd",
        inner_options: dict[str, Any] | None = None,
        inner_state: str = "reset",
        inner_betas: tuple[float, float] = (0.9, 0.999),
        inner_eps: float = 1e-8,
        maximize: bool = False,
        foreach: bool | None = None,
        fused: bool | None = None,
        monitor: bool = True,
        state_dtype: torch.dtype | None = None,
        anneal: str = "outer",
    ) -> None:
        self._own = {"lr": lr, "betas": betas, "eps": eps, "amsgrad": amsgrad}
        super().__init__(
            params,
            torch.optim.Adam,
            {**self._own, "foreach": foreach, "fused": fused},
            L=L,
            gamma=gamma,
            inner=inner,
            inner_options=inner_options,
            inner_state=inner_state,
            inner_lr=inner_lr,
            inner_momentum=inner_momentum,
            inner_nesterov=inner_nesterov,
            inner_betas=inner_betas,
            inner_eps=inner_eps,
            weight_decay=weight_decay,
            noise=noise,
            alpha=alpha,
            scale_by_gamma=scale_by_gamma,
            seed=seed,
            maximize=maximize,
            foreach=foreach,
            fused=fused,
            monitor=monitor,
            state_dtype=state_dtype,
            anneal=anneal,
        )
        rates = [float(group["lr"]) for group in self.param_groups if group["inner_lr"] is INNER_LR]
        cycle = self._common["L"]  # a group may name it
        if cycle > 1 and (slow := [rate for rate in rates if 0 < rate <= ADAM_LR]):
            rate = slow[0]
            self._warn_once(
                "rate",
                f"EntropyAdam: lr={rate:g} is the rate of the outer Adam, which makes one step in L={cycle} "
                f"gradients: x moves about as fast as with Adam at {rate / cycle:.2g}. To move as fast as "
                f"with Adam at {rate:g}: EntropyAdam(params, lr={rate * cycle:g}, inner_lr=0.1). (An "
                "explicit inner_lr silences this warning.)",
            )

    @classmethod
    def paper(cls, params: Params, **options: Any) -> Self:
        """The settings of Section 5.4.2, for the char-LSTM; `options` override them."""
        return cls(params, **{**PAPER, **options})

    def _check_group(self, group: dict[str, Any]) -> None:
        super()._check_group(group)
        group = {**getattr(self, "_own", {}), **group}  # before the outer optimizer gave its defaults
        check_rate(group)
        arguments.betas("betas", group["betas"])
        arguments.number("eps", group["eps"])
        arguments.flag("amsgrad", group["amsgrad"])
