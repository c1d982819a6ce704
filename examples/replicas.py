"""Replicas that communicate once every L steps, and survive a killed process.

    export TORCH_DISABLE_SHARE_RDZV_TCP_STORE=1         # see examples/ddp.py
    torchrun --standalone --nproc-per-node 3 --max-restarts 3 examples/replicas.py

Each process is a replica with its own data. There is no DistributedDataParallel: only the weights are sent,
once per cycle. Every replica writes its own checkpoints. Kill one process: torchrun restarts all of them,
they continue from the last step that all have saved, and end with the weights of an undisturbed run.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import torch
import torch.distributed as dist
from torch import Tensor, nn

from entropy_sgd import Replicas, scoping


def batch(step: int, replica: int) -> tuple[Tensor, Tensor]:
    """A mini-batch of this replica: points in the plane, labelled by their quadrant."""
    points = torch.randn(32, 2, generator=torch.Generator().manual_seed(1000 * step + replica))
    return points, (2 * (points[:, 0] > 0) + (points[:, 1] > 0)).long()


def saved_by_all(folder: Path, replica: int) -> int:
    """The last step for which every replica has a checkpoint; 0 if there is none."""
    steps = [int(path.stem) for path in folder.glob(f"replica-{replica}/*.pt")]
    last = torch.tensor(max(steps, default=0))
    dist.all_reduce(last, op=dist.ReduceOp.MIN)
    return int(last)


def train(steps: int, folder: Path) -> None:
    torch.manual_seed(dist.get_rank())  # the weights of replica 0 are sent to all when the optimizer is built
    model = nn.Sequential(nn.Linear(2, 32), nn.Tanh(), nn.Linear(32, 4))
    rho = scoping.Exponential(0.01, 0.1, maximum=1.0)  # free at first, together at the end
    optimizer = Replicas(model.parameters(), lr=1.0, L=5, noise=1e-3, rho=rho)
    replica = optimizer.replica
    own = folder / f"replica-{replica}"
    own.mkdir(parents=True, exist_ok=True)

    done = saved_by_all(folder, replica)
    if done:
        saved = torch.load(own / f"{done}.pt", weights_only=True)
        model.load_state_dict(saved["model"])
        optimizer.load_state_dict(saved["optimizer"])

    for step in range(done, steps):
        inputs, labels = batch(step, replica)
        optimizer.zero_grad()
        nn.functional.cross_entropy(model(inputs), labels).backward()
        optimizer.step()
        if (step + 1) % 12 == 0:  # anywhere in a cycle
            state = {"model": model.state_dict(), "optimizer": optimizer.state_dict()}
            torch.save(state, own / "new.tmp")
            (own / "new.tmp").replace(own / f"{step + 1}.pt")  # whole or not at all
            # The one before stays: another replica may die before it has written this one.
            (own / f"{step - 23}.pt").unlink(missing_ok=True)

    optimizer.eval()  # the mean of the replicas, the same on all ranks
    torch.save(model.state_dict(), folder / f"weights-{replica}.pt")
    inputs, labels = batch(steps, 0)
    right = (model(inputs).argmax(1) == labels).float().mean().item()
    figures = optimizer.diagnostics()
    print(f"replica {replica}: overlap {figures['overlap']:.3f}, rho {figures['rho']:.2f}, right {right:.2f}")
    dist.barrier()  # none takes the connections down while another still uses them


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--steps", type=int, default=203)
    parser.add_argument("--folder", type=Path, default=Path("runs/replicas"))
    arguments = parser.parse_args()
    dist.init_process_group("gloo")
    try:
        train(arguments.steps, arguments.folder)
    finally:
        dist.destroy_process_group()


if __name__ == "__main__":
    main()
