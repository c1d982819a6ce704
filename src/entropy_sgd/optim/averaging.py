"""Means over replicas: tensors travel in one flat buffer per dtype and device while training continues.

This module knows process groups and lists of tensors, but not what is in them.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Any, cast

import torch
import torch.distributed as dist
from torch import Tensor

from entropy_sgd import arguments
from entropy_sgd.optim import sharding


class Seat:
    """The place of this process among the replicas: replica `index` of `count`, in a process group.

    Args:
        process_group: a group with one process of each replica, or a device mesh of one dimension; None is
            the default group, or one replica where torch.distributed is not in use.
    """

    def __init__(self, process_group: Any = None) -> None:
        if process_group is not None and hasattr(process_group, "get_group"):
            process_group = process_group.get_group()  # a DeviceMesh says itself that it needs one dimension
        if process_group is not None and not isinstance(process_group, dist.ProcessGroup):
            accepted = "a process group of torch.distributed that this process belongs to, or None"
            raise arguments.refuse("process_group", process_group, accepted)
        self.group: dist.ProcessGroup | None = process_group
        self.count, self.index = 1, 0
        if dist.is_available() and dist.is_initialized():
            self.count, self.index = dist.get_world_size(self.group), dist.get_rank(self.group)
        elif int(os.environ.get("WORLD_SIZE", "1")) > 1:
            raise RuntimeError(
                f"process_group: WORLD_SIZE={os.environ['WORLD_SIZE']} processes were started, but "
                "torch.distributed.init_process_group was not called; call it before the optimizer is built"
            )

    def ranks(self) -> list[int]:
        """The global ranks of the replicas' processes."""
        return dist.get_process_group_ranks(self.group) if self.count > 1 else [0]

    def check(self, params: Sequence[Tensor]) -> None:
        """No parameter is sharded over the replicas themselves."""
        ours = set(self.ranks()) if sharding.any_distributed(params) else set[int]()
        for p in params if self.count > 1 else ():
            mesh: Any = getattr(p, "device_mesh", None)
            if mesh is not None and len(ours & set(mesh.mesh.flatten().tolist())) > 1:
                raise arguments.ArgumentError(
                    f"process_group: its ranks {sorted(ours)} share one sharded copy of the parameters; pass "
                    'the dimension of the device mesh over which replicas lie, mesh["replica"].get_group()'
                )

    def __deepcopy__(self, memo: Any) -> Seat:
        return self

    def __reduce__(self) -> Any:
        return Seat, ()  # process groups cannot be saved: a loaded replica joins the default group


class Diverged(RuntimeError):
    """Some replicas have weights that are not finite."""


class Flight:
    """The sum of `tensors` over the replicas, on its way.

    Every buffer ends with one slot per replica, in which a replica flags that what it sends is not finite.

    Args:
        tensors: plain real tensors, of the same shapes on all replicas.
        owners: the parameters they belong to, which may be sharded.
        seat: of this process.
        dtype: on the way; None is the tensors' own, float32 at least.
    """

    def __init__(
        self, tensors: Sequence[Tensor], owners: Sequence[Tensor], seat: Seat, dtype: torch.dtype | None
    ) -> None:
        self.seat = seat
        self.shapes = [t.shape for t in tensors]
        self.members: list[list[int]] = []
        self.buffers: list[Tensor] = []
        self.works: list[Any] = []
        found: dict[tuple[torch.device, torch.dtype], list[int]] = {}
        for i, t in enumerate(tensors):
            wire = dtype or torch.promote_types(t.dtype, torch.float32)
            found.setdefault((t.device, wire), []).append(i)
        for (device, wire), members in found.items():
            size = sum(tensors[i].numel() for i in members)
            buffer = torch.zeros(size + seat.count, dtype=wire, device=device)
            self.members.append(members)
            self.buffers.append(buffer)
            parts = torch.split(buffer[:size], [tensors[i].numel() for i in members])
            torch._foreach_copy_(list(parts), [tensors[i].reshape(-1) for i in members])
            buffer[size + seat.index] = _not_finite(buffer[:size], [owners[i] for i in members])
        for buffer in self.buffers:
            self.works.append(dist.all_reduce(buffer, group=seat.group, async_op=True))

    def means(self) -> list[Tensor]:
        """The mean of each tensor, when all have arrived; `Diverged` if a replica sent what is not finite."""
        for work in self.works:
            work.wait()
        n = self.seat.count
        diverged = {
            a
            for buffer in self.buffers
            for a, flag in enumerate(cast("list[float]", buffer[-n:].tolist()))
            if flag != 0
        }
        if diverged:
            ranks = self.seat.ranks()
            named = ", ".join(f"replica {a} (rank {ranks[a]})" for a in sorted(diverged))
            raise Diverged(f"{named} of {n} diverged: weights that are not finite")
        result: dict[int, Tensor] = {}
        for buffer, members in zip(self.buffers, self.members, strict=True):
            buffer /= n
            parts = torch.split(buffer[:-n], [self.shapes[i].numel() for i in members])
            result |= {i: part.view(self.shapes[i]) for i, part in zip(members, parts, strict=True)}
        return [result[i] for i in range(len(self.shapes))]


def _not_finite(sent: Tensor, owners: Sequence[Tensor]) -> Tensor:
    """1 if there is an infinity or NaN in `sent`, in any shard of this replica; else 0."""
    lowest, highest = torch.aminmax(sent) if sent.numel() else (sent.sum(), sent.sum())
    flag = (~(lowest.isfinite() & highest.isfinite())).to(torch.float32)
    sharded = [p for p in owners if sharding.any_distributed([p])][:1]
    return (sharding.total(flag.reshape(1), sharded) if sharded else flag).clamp(max=1)


def broadcast(tensors: Sequence[Tensor], seat: Seat) -> None:
    """Gives all replicas the tensors of the first."""
    for t in tensors:
        whole = t.contiguous()
        dist.broadcast(whole, group=seat.group, group_src=0)
        t.copy_(whole)
