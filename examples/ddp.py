"""Data-parallel training that survives a killed process.

    export TORCH_DISABLE_SHARE_RDZV_TCP_STORE=1
    torchrun --standalone --nproc-per-node 2 --max-restarts 3 examples/ddp.py

Kill one of the processes: torchrun restarts all of them, they continue from the last checkpoint, and the
weights at the end are those of an undisturbed run. Without the variable, torchrun keeps one store of
addresses for all its attempts, and restarted processes may find those of the dead ones there (pytorch issue
135712).
"""

from __future__ import annotations

import argparse
from pathlib import Path

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel

from entropy_sgd import EntropySGD


def batch(step: int, rank: int) -> tuple[Tensor, Tensor]:
    """A mini-batch of this rank: points in the plane, labelled by their quadrant."""
    points = torch.randn(32, 2, generator=torch.Generator().manual_seed(1000 * step + rank))
    return points, (2 * (points[:, 0] > 0) + (points[:, 1] > 0)).long()


def train(steps: int, folder: Path) -> None:
    rank = dist.get_rank()
    torch.manual_seed(rank)  # ranks may seed as they like: the noise is the same on all of them
    model = DistributedDataParallel(nn.Sequential(nn.Linear(2, 32), nn.Tanh(), nn.Linear(32, 4)))
    optimizer = EntropySGD(model.parameters(), L=5, noise=1e-3)

    done, checkpoint = 0, folder / "checkpoint.pt"
    if checkpoint.exists():
        saved = torch.load(checkpoint, weights_only=True)
        model.load_state_dict(saved["model"])
        optimizer.load_state_dict(saved["optimizer"])
        done = saved["done"]

    for step in range(done, steps):
        inputs, labels = batch(step, rank)
        optimizer.zero_grad()
        with model.no_sync():  # gradients of two halves add up; only the second is sent around
            (nn.functional.cross_entropy(model(inputs[:16]), labels[:16]) / 2).backward()
        (nn.functional.cross_entropy(model(inputs[16:]), labels[16:]) / 2).backward()
        optimizer.step()
        if (step + 1) % 12 == 0 and rank == 0:  # anywhere in a cycle: x' is in the model, x in the optimizer
            state = {"model": model.state_dict(), "optimizer": optimizer.state_dict(), "done": step + 1}
            torch.save(state, checkpoint.with_suffix(".tmp"))
            checkpoint.with_suffix(".tmp").replace(checkpoint)  # whole or not at all

    optimizer.finish()  # the last cycle ends with the steps it has, and the model holds the outer weights
    torch.save(model.module.state_dict(), folder / f"weights-{rank}.pt")
    dist.barrier()  # none takes the connections down while another still uses them


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--steps", type=int, default=203)
    parser.add_argument("--folder", type=Path, default=Path("runs/ddp"))
    arguments = parser.parse_args()
    arguments.folder.mkdir(parents=True, exist_ok=True)
    dist.init_process_group("gloo")
    try:
        train(arguments.steps, arguments.folder)
    finally:
        dist.destroy_process_group()


if __name__ == "__main__":
    main()
