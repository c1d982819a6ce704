"""Stochastic gradient Langevin dynamics, the baseline of Appendix C.1.

    x = x - (eta_t / 2) (grad f(x) + weight_decay x) + sqrt(eta_t) noise N(0, I)     Appendix A, last equation
    eta_t = lr / (1 + t)^b                                                           Appendix C.1

Welling & Teh (2011). With a constant step its stationary law is exp(-f / noise^2) up to terms of order eta;
for a loss that is the mean over N data, `noise = N ** -0.5` samples the posterior with a uniform prior.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, cast

import torch
from torch import Tensor
from torch.optim import Optimizer

from entropy_sgd import arguments
from entropy_sgd.optim import sharding
from entropy_sgd.optim.bucket import gather, real
from entropy_sgd.optim.local_entropy import Params
from entropy_sgd.optim.noise import thermal
from entropy_sgd.optim.options import complete_state_dict, described, take_common


class SGLD(Optimizer):
    """Welling & Teh's sampler with the paper's schedule `lr / (1 + t)^b`, t counting the steps made.

    The noise is counter-based, as in `EntropySGD`: a function of (seed, step, parameter, element) alone.

    Args:
        params: parameters, named parameters or parameter groups.
        lr: initial step size eta. A torch scheduler may change it too; both factors apply.
        b: exponent of the decay. 0 keeps the step constant; convergence needs 0.5 < b <= 1.
        noise: standard deviation epsilon of the thermal noise; 1 samples exp(-f).
        weight_decay: L2 coefficient, a Gaussian prior.
        seed: of the noise.
        maximize: take f for the log-likelihood instead of its negative.

    `seed` holds for the whole optimizer; all else can differ by parameter group.
    """

    def __init__(
        self,
        params: Params,
        lr: float | Tensor,
        b: float = 0.55,
        noise: float = 1.0,
        weight_decay: float = 0.0,
        seed: int = 0,
        *,
        maximize: bool = False,
    ) -> None:
        if not isinstance(params, Tensor):  # torch says what is wrong with a bare tensor
            params, common = take_common(list(params), {"seed": seed}, ("seed",))
            seed = common["seed"]
        arguments.seed("seed", seed)
        defaults: dict[str, Any] = {
            "lr": lr,
            "b": b,
            "noise": noise,
            "weight_decay": weight_decay,
            "maximize": maximize,
            "seed": int(seed),
            "t": 0,
        }
        super().__init__(params, arguments.plain(defaults))

    def __repr__(self) -> str:
        """As torch shows its optimizers, without the count of steps."""
        return described(self, ("t",), {})

    def add_param_group(self, param_group: dict[str, Any]) -> None:
        """Adds a group; it joins the schedule at the step the others have reached."""
        for name in ("seed", "t"):
            if name in param_group:
                raise arguments.ArgumentError(
                    f"{name} is common to all parameter groups, got it in one group"
                )
        group = {**self.defaults, **param_group}
        arguments.learning_rate("lr", group["lr"])
        for name in ("b", "noise", "weight_decay"):
            arguments.number(name, group[name])
        arguments.flag("maximize", group["maximize"])
        super().add_param_group({**param_group, **arguments.plain(param_group)})
        try:
            sharding.check_not_wrapped(self.param_groups[-1]["params"])
            sharding.check_group_params(self.param_groups[-1])
        except arguments.ArgumentError:
            self.param_groups.pop()
            raise

    @torch._disable_dynamo  # see LocalEntropy
    @torch.no_grad()
    def step(self, closure: Callable[[], Any] | None = None) -> Any:  # pyright: ignore[reportIncompatibleMethodOverride]
        """One step of the sampler on the gradients in `.grad`."""
        if closure is None and sharding.only_asks_for_state(self.param_groups):
            return None
        loss = None
        if closure is not None:
            with torch.enable_grad():
                loss = closure()
        shared = self.param_groups[0]
        buckets = gather(self.param_groups)
        for bucket in buckets:
            group = bucket.group
            eta = float(group["lr"]) / (1 + shared["t"]) ** group["b"]
            sign = -1 if group["maximize"] else 1
            x = real(bucket.params)
            drift = torch._foreach_mul(real([cast(Tensor, p.grad) for p in bucket.params]), -sign * eta / 2)
            torch._foreach_add_(drift, x, alpha=-eta / 2 * group["weight_decay"])
            if group["noise"] != 0:
                z = thermal(bucket.indices, bucket.params, x, shared["seed"], shared["t"], 0)
                torch._foreach_add_(drift, z, alpha=math.sqrt(eta) * group["noise"])
            torch._foreach_add_(x, drift)
        shared["t"] += bool(buckets)
        return loss

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Resumes from a `state_dict()`; one of another optimizer is refused."""
        super().load_state_dict(complete_state_dict(self, state_dict, (("b",), ("t",)), "entropy_"))
