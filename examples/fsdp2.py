"""Sharded training (FSDP2) with a checkpoint that any number of processes can load.

    torchrun --standalone --nproc-per-node 2 examples/fsdp2.py
    torchrun --standalone --nproc-per-node 1 examples/fsdp2.py --steps 200     # continues with one

The parameters, and with them x, mu and the momenta, are DTensors; each rank draws its slice of the noise.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
from torch import Tensor, nn
from torch.distributed.checkpoint.state_dict import get_state_dict, set_state_dict
from torch.distributed.fsdp import fully_shard

from entropy_sgd import EntropyAdam, scoping


def batch(step: int, rank: int, ranks: int) -> tuple[Tensor, Tensor]:
    """The part of this rank of a mini-batch: points in the plane, labelled by their quadrant."""
    points = torch.randn(32, 2, generator=torch.Generator().manual_seed(step))
    labels = 2 * (points[:, 0] > 0) + (points[:, 1] > 0)
    return points.chunk(ranks)[rank], labels.long().chunk(ranks)[rank]


def train(steps: int, folder: Path) -> None:
    rank, ranks = dist.get_rank(), dist.get_world_size()
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(2, 33), nn.Tanh(), nn.Linear(33, 17), nn.Tanh(), nn.Linear(17, 4))
    for layer in model:
        if isinstance(layer, nn.Linear):
            fully_shard(layer)
    fully_shard(model)
    optimizer = EntropyAdam(model.parameters(), lr=0.05, L=5, gamma=scoping.MatchGradient(), noise=1e-3)

    done = max((int(path.name) for path in folder.glob("*")), default=0)
    if done:
        weights, state = get_state_dict(model, optimizer)
        dcp.load({"model": weights, "optimizer": state}, checkpoint_id=folder / str(done))
        set_state_dict(model, optimizer, model_state_dict=weights, optim_state_dict=state)
        optimizer.train()  # the checkpoint was written in eval mode

    for step in range(done, steps):
        inputs, labels = batch(step, rank, ranks)
        optimizer.zero_grad()
        loss = nn.functional.cross_entropy(model(inputs), labels)
        loss.backward()
        optimizer.step()

    optimizer.eval()  # the outer weights, for validation and for the checkpoint
    weights, state = get_state_dict(model, optimizer)
    dcp.save({"model": weights, "optimizer": state}, checkpoint_id=folder / str(steps))
    if rank == 0:
        print(f"{steps} steps on {ranks} processes", optimizer.diagnostics())


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--steps", type=int, default=102)
    parser.add_argument("--folder", type=Path, default=Path("runs/fsdp2"))
    arguments = parser.parse_args()
    dist.init_process_group("gloo")
    try:
        train(arguments.steps, arguments.folder)
    finally:
        dist.destroy_process_group()


if __name__ == "__main__":
    main()
