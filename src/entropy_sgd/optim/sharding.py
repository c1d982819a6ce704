"""Parameters spread over processes: the DTensors of FSDP2 (`torch.distributed.fsdp.fully_shard`).

A rank holds a slice of each parameter's rows, `Shard(0)`: the chunks of `torch.chunk`, of which the last may
be shorter or empty. A Langevin step is element by element, so it works on these slices alone. Three things
look beyond them, and are here:

    noise         element i of a slice is element offset + i of the parameter, and draws its noise
    norms         squares and products are summed over the slices of all ranks
    checkpoints   torch.distributed.checkpoint makes an optimizer's state by an empty step before it loads one
"""

from __future__ import annotations

import math
import sys
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any, cast

import torch
from torch import Tensor

from entropy_sgd import arguments

if TYPE_CHECKING:
    from torch.distributed import ProcessGroup
    from torch.distributed.tensor import DTensor


def _distributed(tensor: Tensor) -> DTensor | None:
    """`tensor` if it is a DTensor."""
    return cast("DTensor", tensor) if any_distributed([tensor]) else None


def any_distributed(tensors: Iterable[Tensor]) -> bool:
    """Whether there is a DTensor. Whoever has one has imported its module, which is slow to import."""
    module: Any = sys.modules.get("torch.distributed.tensor")
    return module is not None and any(issubclass(kind, module.DTensor) for kind in set(map(type, tensors)))


def local(tensor: Tensor) -> Tensor:
    """The plain tensor of this rank's elements, sharing their memory; `tensor` itself if it is plain."""
    dtensor = _distributed(tensor)
    return tensor if dtensor is None else dtensor.to_local()


def _sharded_dimension(tensor: DTensor) -> int | None:
    """The dimension of the device mesh over which the rows are spread; None for a replicated tensor."""
    # A Shard over one process is no sharding; subclasses of Shard interleave the rows.
    spread = [
        (i, placement)
        for i, placement in enumerate(tensor.placements)
        if not placement.is_replicate() and tensor.device_mesh.size(i) > 1
    ]
    if not spread:
        return None
    from torch.distributed.tensor import Shard

    dimension, placement = spread[0]
    if len(spread) > 1 or type(placement) is not Shard or placement.dim != 0:
        raise arguments.ArgumentError(
            f"params: got a DTensor with placements {tensor.placements}; Shard(0) over one dimension of the "
            "device mesh and Replicate() over the others are accepted, as fully_shard makes them"
        )
    return dimension


def offset(tensor: Tensor) -> int:
    """The place of this rank's first element in the flattened whole, a complex element counted as two."""
    if type(tensor) is torch.nn.Parameter or type(tensor) is Tensor:
        return 0
    dtensor = _distributed(tensor)
    dimension = None if dtensor is None else _sharded_dimension(dtensor)
    if dtensor is None or dimension is None:
        return 0
    rows = tensor.shape[0]
    chunk = -(-rows // dtensor.device_mesh.size(dimension))
    first = min(dtensor.device_mesh.get_local_rank(dimension) * chunk, rows)
    return first * math.prod(tensor.shape[1:]) * (2 if tensor.is_complex() else 1)


def process_groups(owners: Sequence[Tensor]) -> dict[ProcessGroup | None, list[int]]:
    """Positions of the `owners` that each group of processes holds slices of; None: whole on all ranks."""
    if not any_distributed(owners):
        return {None: list(range(len(owners)))}
    groups: dict[ProcessGroup | None, list[int]] = {}
    for i, owner in enumerate(owners):
        dtensor = _distributed(owner)
        dimension = None if dtensor is None else _sharded_dimension(dtensor)
        group = None if dtensor is None or dimension is None else dtensor.device_mesh.get_group(dimension)
        groups.setdefault(group, []).append(i)
    return groups


def total(values: Tensor, owners: Sequence[Tensor]) -> Tensor:
    """The sum of `values`, one for each of `owners`, where a slice's value stands for that slice alone."""
    if not any_distributed(owners):
        return values.sum()
    sums: list[Tensor] = []
    for group, indices in process_groups(owners).items():
        part = values[indices].sum()
        if group is not None:
            torch.distributed.all_reduce(part, group=group)
        sums.append(part)
    return torch.stack(sums).sum()


def check_group_params(group: dict[str, Any]) -> None:
    """The DTensors of the group are placed as `offset` expects, and mixed only where torch can."""
    kinds = {_distributed(p) is None for p in group["params"]}
    for p in group["params"]:
        offset(p)
    for name in ("outer_foreach", "outer_fused"):
        if len(kinds) > 1 and group.get(name):
            raise arguments.ArgumentError(
                f"params: DTensors and plain tensors in one group cannot be combined with {name[6:]}=True; "
                "leave it unset, or put each kind in its own group"
            )


def only_asks_for_state(groups: Iterable[dict[str, Any]]) -> bool:
    """Whether this step is not one of training, but torch.distributed.checkpoint asking for a state.

    `get_optimizer_state_dict` and `set_optimizer_state_dict` step an optimizer that has no state yet, with
    learning rates of zero and gradients of zero, for a state to load into. A user may do the same on
    purpose, to watch the inner loop around a fixed x, so the caller's frame decides.
    """
    module: Any = sys.modules.get("torch.distributed.checkpoint.state_dict")
    if module is None or not all(_is_zero(group.get("lr")) for group in groups):
        return False
    frame = sys._getframe(1)
    while frame is not None and frame.f_code is not module._init_optim_state.__code__:
        frame = frame.f_back
    return frame is not None


def _is_zero(rate: object) -> bool:
    """Whether a learning rate is zero; some optimizers have none, or None."""
    if isinstance(rate, Tensor):
        return rate.numel() == 1 and float(rate) == 0
    return rate == 0


def totals(values: Sequence[Tensor], owners: Sequence[Tensor]) -> list[Tensor]:
    """Each of `values` summed over the slices of its owner."""
    return [total(v.reshape(1), [owner]) for v, owner in zip(values, owners, strict=True)]


def check_not_wrapped(params: Iterable[Tensor]) -> None:
    """Refuses parameters of FSDP1, and being built by ZeroRedundancyOptimizer, by name."""
    if any(getattr(p, "_fsdp_flattened", False) for p in params):
        raise arguments.ArgumentError(
            "params: these belong to FullyShardedDataParallel (FSDP1), which hides where in the parameter a "
            "rank's elements lie, so noise and norms would be wrong; use fully_shard (FSDP2)"
        )
    module: Any = sys.modules.get("torch.distributed.optim.zero_redundancy_optimizer")
    frame = None if module is None else sys._getframe(1)
    while frame is not None:
        if isinstance(frame.f_locals.get("self"), cast(Any, module).ZeroRedundancyOptimizer):
            raise arguments.ArgumentError(
                "ZeroRedundancyOptimizer cannot wrap this optimizer: eval() would show x for the parameters "
                "of this rank alone; shard with fully_shard (FSDP2) instead"
            )
        frame = frame.f_back
