"""`step` and `cycle`: two forms of one thing."""

from __future__ import annotations

import math

import pytest
import torch
from torch import nn

from entropy_sgd import EntropySGD
from problem import Problem, flat


def test_step_calls_the_closure_once_and_returns_its_value():
    p = nn.Parameter(torch.ones(3))
    optimizer = EntropySGD([p], L=2)
    calls = []

    def closure() -> str:
        assert torch.is_grad_enabled()
        calls.append(1)
        p.grad = torch.ones_like(p)
        return "loss"

    assert optimizer.step(closure) == "loss"
    assert len(calls) == 1


def test_cycle_returns_the_mean_loss_and_equals_steps_bit_for_bit(make):
    problem = Problem()
    a, b = problem.parameters(), problem.parameters()
    by_cycle, by_step = make(a), make(b)
    closure, losses = problem.closure(a, [0]), []
    means = [by_cycle.cycle(closure) for _ in range(5)]
    step_closure = problem.closure(b, [0])
    for _ in range(20):
        losses.append(step_closure())
        by_step.step()
    assert torch.equal(flat(a), flat(b))
    expected = torch.stack(losses).view(5, 4).mean(1)
    torch.testing.assert_close(torch.stack(means), expected.detach(), rtol=1e-12, atol=0)


def test_cycle_finishes_the_cycle_that_is_under_way():
    problem = Problem()
    params = problem.parameters()
    optimizer, counter = EntropySGD(params, L=5), [0]
    closure = problem.closure(params, counter)
    optimizer.step(closure)
    optimizer.cycle(closure)
    assert counter == [5]


def test_cycle_without_gradients_says_so():
    optimizer = EntropySGD([nn.Parameter(torch.ones(3))], L=2)
    with pytest.raises(RuntimeError, match="no gradient"):
        optimizer.cycle(lambda: 0.0)


def test_a_first_step_without_force_and_without_an_outer_rate_is_a_step_all_the_same():
    import torch.distributed.checkpoint.state_dict  # which probes optimizers with such steps, see sharding.py

    p = nn.Parameter(torch.zeros(1000))
    optimizer = EntropySGD([p], lr=0.0, noise=1.0, L=9)
    p.grad = torch.zeros_like(p)
    optimizer.step()
    assert p.detach().std().item() == pytest.approx(math.sqrt(0.1), rel=0.1)
