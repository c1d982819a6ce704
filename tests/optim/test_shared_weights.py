"""Others who use the weights: autograd and a second optimizer learn that a step has written them."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from entropy_sgd import EntropyAdam, EntropySGD


@pytest.mark.parametrize("kind", [EntropySGD, EntropyAdam])
@pytest.mark.parametrize("fused", [None, False])
@pytest.mark.parametrize("L", [1, 3])
def test_a_backward_pass_through_weights_that_have_changed_is_an_error(kind, fused, L):
    """As with torch's own optimizers: a forward pass before the step, its backward pass after it."""
    model = nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, 1))
    optimizer = kind(model.parameters(), L=L, fused=fused)
    inputs = torch.randn(16, 4)
    for _ in range(3):  # a first step, one like the last, and the end of a cycle
        first, second = model(inputs).square().mean(), (model(inputs) - 3).square().mean()
        first.backward()
        optimizer.step()
        optimizer.zero_grad()
        with pytest.raises(RuntimeError, match="modified by an inplace operation"):
            second.backward()


@pytest.mark.parametrize("fused", [None, False])
def test_two_optimizers_that_share_a_weight_notice_each_other(fused):
    """With a gradient of -1 every step adds to it, but what one wrote is never taken back by the other."""
    p = nn.Parameter(torch.zeros(64))
    options = {"L": 4, "inner_lr": 0.01, "inner_momentum": 0.0, "gamma": 0.0, "noise": 0.0, "alpha": 1.0}
    a, b = (EntropySGD([p], fused=fused, **options) for _ in range(2))

    def step(optimizer, count):
        for _ in range(count):
            p.grad = -torch.ones(64)
            optimizer.step()

    step(a, 1)
    step(b, 5)
    with pytest.warns(UserWarning, match="changed from outside"):
        step(a, 6)
    torch.testing.assert_close(p.detach(), torch.full((64,), 0.12))
