"""The public classes: Entropy-SGD across machines, and the same around any outer optimizer."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.optim import Optimizer

from entropy_sgd.optim import scoping
from entropy_sgd.optim.entropy_sgd import EntropySGD
from entropy_sgd.optim.local_entropy import Params
from entropy_sgd.optim.replica import Replica


class Replicas(Replica, EntropySGD):
    """Entropy-SGD in several processes that exchange weights once every `L` steps, instead of gradients.

    ::

        torch.distributed.init_process_group()
        optimizer = Replicas(model.parameters(), lr=1.0, rho=0.1)   # all start from the weights of rank 0
        for inputs, targets in loader:                              # each rank its own batches
            optimizer.zero_grad()
            loss_fn(model(inputs), targets).backward()              # no DistributedDataParallel
            optimizer.step()
        optimizer.finish()                                          # the update of an unfinished last cycle
        optimizer.eval()                                            # the mean x̄, the same on all ranks

    Replicas start from the weights of replica 0, which are sent when the optimizer is built. They differ in
    their noise (the number of the replica is mixed into `seed`) and in whatever the program varies by rank:
    order of data, shards of data, dropout. All must make the same number of steps.

    Args:
        params: parameters, named parameters or parameter groups.
        lr: outer learning rate, as for `EntropySGD`. Without gradients the distance between replicas
            changes by the factor 1 - lr rho in a cycle.
        more: further positional arguments of `EntropySGD`.
        rho: the coupling: a number >= 0, a schedule of `entropy_sgd.scoping`, or `inf` for one common x whose
            outer gradient is the mean of x - mu_a.
        process_group: one process of each replica, a group or a device mesh of one dimension; None is the
            default group. In a mesh of replicas × shards it is the dimension of the replicas, and the model
            is sharded (FSDP2) or data-parallel (DDP) over the other.
        exchange_dtype: dtype of what is sent: None is the parameters' own, at least float32; `torch.bfloat16`
            halves the bytes and sends the change since the last mean, so x̄ stays precise.
        options: further keyword arguments of `EntropySGD`.
    """

    def __init__(
        self,
        params: Params,
        lr: float | Tensor = 1.0,
        *more: Any,
        rho: float | scoping.Schedule = 0.1,
        process_group: Any = None,
        exchange_dtype: torch.dtype | None = None,
        **options: Any,
    ) -> None:
        super().__init__(params, lr, *more, **options)
        self._join(rho, process_group, exchange_dtype)

    def _update(self) -> None:
        super()._update()
        rho = self._common["rho"]
        if self._couples and any(float(group["lr"]) * rho > 2 for group in self.param_groups):
            self._warn_once(
                "apart",
                f"rho={rho:g} drives the replicas apart with this lr: their distance changes by the factor "
                "1 - lr rho in a cycle; keep lr * rho below 2",
            )


class ReplicatedLocalEntropy(Replica):
    """`Replicas` around any outer optimizer, as `LocalEntropy` is.

    With `rho=inf` and an inner AdamW whose state is kept, this is DiLoCo (Douillard et al., 2023)::

        ReplicatedLocalEntropy(
            model.parameters(), torch.optim.SGD, {"lr": 0.7, "momentum": 0.9, "nesterov": True}, L=500,
            rho=math.inf, gamma=0.0, alpha=1.0, noise=0.0,
            inner=torch.optim.AdamW, inner_options={"lr": 4e-4, "weight_decay": 0.1}, inner_state="keep",
        )

    Args:
        params: parameters, named parameters or parameter groups.
        outer: class of the outer optimizer; one with its own modes (`eval()`) works only with `rho=inf`.
        outer_options: its keyword arguments.
        rho: as for `Replicas`.
        process_group: as for `Replicas`.
        exchange_dtype: as for `Replicas`.
        options: further keyword arguments of `LocalEntropy`.
    """

    def __init__(
        self,
        params: Params,
        outer: type[Optimizer] = torch.optim.SGD,
        outer_options: dict[str, Any] | None = None,
        *,
        rho: float | scoping.Schedule = 0.1,
        process_group: Any = None,
        exchange_dtype: torch.dtype | None = None,
        **options: Any,
    ) -> None:
        super().__init__(params, outer, outer_options, **options)
        self._join(rho, process_group, exchange_dtype)
