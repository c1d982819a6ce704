"""DistributedDataParallel over two processes against one process with both their batches."""

from __future__ import annotations

import runpy
from pathlib import Path

import pytest
import torch
from torch import nn

from entropy_sgd import EntropySGD
from frameworks.launch import EXAMPLES, torchrun
from frameworks.uneven import BATCHES
from network import batch, network, weights

STEPS = 203  # ends inside a cycle


def saved(folder: Path) -> list[torch.Tensor]:
    files = [torch.load(folder / f"weights-{rank}.pt", weights_only=True) for rank in range(2)]
    return [torch.cat([w.flatten() for w in file.values()]) for file in files]


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory: pytest.TempPathFactory) -> list[torch.Tensor]:
    folder = tmp_path_factory.mktemp("ddp")
    torchrun(EXAMPLES / "ddp.py", "--folder", folder, "--steps", STEPS)
    return saved(folder)


def test_ranks_are_equal_bit_for_bit_whatever_they_seed(undisturbed):
    assert torch.equal(*undisturbed)


def test_the_trajectory_is_that_of_one_process(undisturbed):
    make_batch = runpy.run_path(str(EXAMPLES / "ddp.py"))["batch"]
    torch.manual_seed(0)  # rank 0's, whose first weights DDP sends to all
    model = nn.Sequential(nn.Linear(2, 32), nn.Tanh(), nn.Linear(32, 4))
    optimizer = EntropySGD(model.parameters(), L=5, noise=1e-3)
    for step in range(STEPS):
        inputs, labels = (torch.cat(t) for t in zip(*(make_batch(step, r) for r in range(2)), strict=True))
        optimizer.zero_grad()
        nn.functional.cross_entropy(model(inputs), labels).backward()
        optimizer.step()
    optimizer.finish()
    torch.testing.assert_close(undisturbed[0], weights(model), rtol=1e-3, atol=1e-4)


def test_a_killed_process_is_restarted_and_ends_in_the_same_weights(tmp_path, undisturbed):
    killed = Path(__file__).with_name("killed.py")
    torchrun(killed, EXAMPLES / "ddp.py", "--folder", tmp_path, "--steps", STEPS, processes=2, restarts=1)
    assert (tmp_path / "rank-1-died").exists()
    for a, b in zip(saved(tmp_path), undisturbed, strict=True):
        assert torch.equal(a, b)


def test_uneven_data(tmp_path):
    """`join` divides by the number of ranks also where only one has a batch left."""
    torchrun(Path(__file__).with_name("uneven.py"), tmp_path)
    first, second = (torch.load(tmp_path / f"results-{rank}.pt", weights_only=True) for rank in range(2))
    model = network()
    optimizer = EntropySGD(model.parameters(), L=5, noise=1e-2)
    for epoch in range(2):
        for i in range(max(BATCHES)):
            optimizer.zero_grad()
            for rank in (r for r in range(2) if i < BATCHES[r]):
                inputs, targets = batch(1000 * epoch + 2 * i + rank)
                (nn.functional.cross_entropy(model(inputs), targets) / 2).backward()
            optimizer.step()
        for name in ("inner", "outer"):
            if name == "outer":
                optimizer.eval()
            assert torch.equal(first[f"{name}-{epoch}"], second[f"{name}-{epoch}"])
            torch.testing.assert_close(first[f"{name}-{epoch}"], weights(model), rtol=1e-3, atol=1e-4)
        optimizer.train()
