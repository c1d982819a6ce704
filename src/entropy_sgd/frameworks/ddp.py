"""Data parallelism with uneven data."""

from __future__ import annotations

from typing import Any

import torch.distributed as dist

from entropy_sgd.optim import LocalEntropy


def synchronize(optimizer: LocalEntropy, group: dist.ProcessGroup | None = None) -> None:
    """Gives every rank the optimizer state of the rank that has made the most steps.

    To be called after `with model.join():`. A rank whose data ended early made no steps from then on. At the
    end of `join`, DDP sends it the weights of a rank that went on to the last; x, mu, the momenta and the
    counters do not come with them, of any torch optimizer.
    """
    shared = optimizer.param_groups[0]
    made = (shared["outer_step"], shared["inner_step"])
    counts: list[Any] = [None] * dist.get_world_size(group)
    dist.all_gather_object(counts, made, group=group)
    source = counts.index(max(counts))
    state: list[Any] = [optimizer.state_dict() if dist.get_rank(group) == source else None]
    dist.broadcast_object_list(state, group=group, group_src=source)
    if made != max(counts):
        optimizer.load_state_dict(state[0])
