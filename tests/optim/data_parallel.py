"""One of two data-parallel processes: `python data_parallel.py RANK FOLDER`."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

from entropy_sgd import EntropySGD

sys.path.insert(0, str(Path(__file__).parents[1]))
from network import batch, network, weights

rank, folder = int(sys.argv[1]), Path(sys.argv[2])
torch.set_num_threads(1)
os.environ["GLOO_SOCKET_IFNAME"] = "lo"
dist.init_process_group("gloo", init_method=f"file://{folder}/store", rank=rank, world_size=2)
model = DistributedDataParallel(network())
torch.manual_seed(1000 + rank)  # each rank seeds differently from here on
optimizer = EntropySGD(model.parameters(), L=5, noise=1e-2)
for i in range(50):
    optimizer.zero_grad()
    inputs, targets = batch(2 * i + rank)
    torch.rand(rank + 1)  # and draws differently
    nn.functional.cross_entropy(model(inputs), targets).backward()
    optimizer.step()
torch.save(weights(model), folder / f"weights-{rank}.pt")
dist.barrier()
dist.destroy_process_group()
