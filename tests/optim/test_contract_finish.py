"""`finish()` gives what an L equal to the steps made would have given, schedulers or not."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import nn

from entropy_sgd import EntropySGD, LocalEntropy
from network import batch, network, weights


def train(model: nn.Module, optimizer: torch.optim.Optimizer, steps: int, scheduler: Any = None) -> None:
    for step in range(steps):
        inputs, targets = batch(step)
        optimizer.zero_grad()
        nn.functional.cross_entropy(model(inputs), targets).backward()
        optimizer.step()
        if scheduler is not None:
            scheduler.step()


def test_finish_after_a_schedule_that_ends_at_zero():
    """The update is due at the last step, whose rate it takes; the scheduler has moved on to zero since."""
    found = []
    for L in (6, 50):
        model = network()
        optimizer = EntropySGD(model.parameters(), L=L)
        scheduler = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: 1 - step / 6)
        train(model, optimizer, 6, scheduler)
        optimizer.finish()
        found.append(weights(model))
    assert not torch.equal(found[0], weights(network()))
    assert torch.equal(found[0], found[1])


class NoModes(torch.optim.SGD):
    """Has modes, but cannot change them."""

    def train(self) -> None:
        pass

    def eval(self) -> None:
        raise KeyError("ema")


def test_a_failure_of_the_outer_optimizers_eval_changes_nothing():
    model = network()
    optimizer = LocalEntropy(model.parameters(), NoModes, {"lr": 1.0}, L=4)
    train(model, optimizer, 6)
    inner = weights(model)
    with pytest.raises(KeyError, match="ema"):
        optimizer.eval()
    assert not optimizer.evaluating
    assert torch.equal(weights(model), inner)


@pytest.mark.parametrize("tensor", [False, True])
def test_finish_after_a_resume_takes_the_rate_of_the_last_step_before_it(tensor):
    """A scheduler has moved on between the last step and the checkpoint."""
    found = []
    for resumed in (False, True):
        model = network()
        lr = torch.tensor(1.0) if tensor else 1.0
        optimizer = EntropySGD(model.parameters(), lr=lr, L=50)
        scheduler = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: 1 - step / 6)
        train(model, optimizer, 6, scheduler)
        if resumed:
            saved = optimizer.state_dict()
            optimizer = EntropySGD(model.parameters(), lr=lr, L=50)
            optimizer.load_state_dict(saved)
        optimizer.finish()
        found.append(weights(model))
        assert float(optimizer.param_groups[0]["lr"]) == 0
        assert "last_step" not in optimizer.state_dict()["param_groups"][0]
    assert not torch.equal(found[0], weights(network()))
    assert torch.equal(found[0], found[1])
