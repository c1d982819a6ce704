"""One of two data-parallel processes of which one has fewer batches: `uneven.py FOLDER`, under torchrun."""

from __future__ import annotations

import sys
from pathlib import Path

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

from entropy_sgd import EntropySGD
from entropy_sgd.frameworks.ddp import synchronize
from network import batch, network, weights

BATCHES = (13, 9)  # of rank 0 and rank 1 in each of two epochs: the short one ends inside another cycle


def main() -> None:
    folder = Path(sys.argv[1])
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    model = DistributedDataParallel(network())
    optimizer = EntropySGD(model.parameters(), L=5, noise=1e-2)
    results = {}
    for epoch in range(2):
        with model.join():
            for i in range(BATCHES[rank]):
                inputs, targets = batch(1000 * epoch + 2 * i + rank)
                optimizer.zero_grad()
                nn.functional.cross_entropy(model(inputs), targets).backward()
                optimizer.step()
        synchronize(optimizer)
        results[f"inner-{epoch}"] = weights(model)
        optimizer.eval()
        results[f"outer-{epoch}"] = weights(model)
        optimizer.train()
    torch.save(results, folder / f"results-{rank}.pt")
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
