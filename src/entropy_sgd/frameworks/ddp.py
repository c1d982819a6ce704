"""Data parallelism with uneven data."""

from __future__ import annotations

from typing import Any

import torch.distributed as dist

from entropy_sgd.optim import LocalEntropy


def synchronize(optimizer: LocalEntropy, group: dist.ProcessGroup | None = None) -> None:
    """Gives every rank the optimizer state of the rank that has made the most steps.

    Call it after `with model.join():`. A rank whose data ends early makes no more steps. At the end of
    `join`, DDP sends it the weights of a rank that trained to the end, but no optimizer state: not x, mu,
    the momenta or the counters.
    """
    counts: list[Any] = [None] * dist.get_world_size(group)
    dist.all_gather_object(counts, (optimizer.outer_steps, optimizer.inner_steps), group=group)
    source = counts.index(max(counts))
    state: list[Any] = [None]
    if dist.get_rank(group) == source:
        # DDP has written the weights of this rank too, with their own values. The optimizer would take them
        # for new ones and start its cycle over.
        optimizer._watch.forget()  # pyright: ignore[reportPrivateUsage]
        state = [optimizer.state_dict()]
    dist.broadcast_object_list(state, group=group, group_src=source)
    optimizer.load_state_dict(state[0])
