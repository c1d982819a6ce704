"""Advice of docs/frameworks.md on which weights are held, followed to the letter."""

from __future__ import annotations

import torch
from torch import nn

from entropy_sgd import EntropySGD
from network import batch, network, weights


def trained(steps: int) -> tuple[nn.Module, EntropySGD]:
    model = network()
    optimizer = EntropySGD(model.parameters(), L=4)
    train(model, optimizer, range(steps))
    return model, optimizer


def train(model: nn.Module, optimizer: EntropySGD, steps: range) -> None:
    for step in steps:
        inputs, targets = batch(step)
        optimizer.zero_grad()
        nn.functional.cross_entropy(model(inputs), targets).backward()
        optimizer.step()


def test_a_parameter_is_frozen_at_x_between_eval_and_train():
    model, optimizer = trained(6)
    optimizer.eval()
    first = next(model.parameters())
    x = first.detach().clone()
    first.requires_grad_(False)
    optimizer.train()
    assert torch.equal(first, x)
    train(model, optimizer, range(6, 15))
    optimizer.eval()
    assert torch.equal(first, x)


def test_writes_through_data_in_place_are_not_noticed():
    """torch does not count them: the outer weights come back, unless `restart()` says so."""
    expected, _ = trained(4)
    for restart in (False, True):
        model, optimizer = trained(6)
        with torch.no_grad():
            for p in model.parameters():
                p.data.zero_()
        if restart:
            optimizer.restart()
        optimizer.eval()
        assert torch.equal(weights(model), torch.zeros_like(weights(model)) if restart else weights(expected))
