"""Gradients: left as they were, missing, coming and going, not finite."""

from __future__ import annotations

import math

import torch
from torch import nn

from entropy_sgd import EntropySGD, scoping
from problem import Problem, flat, run


def test_gradients_are_left_as_they_were(make):
    problem = Problem()
    params = problem.parameters()
    optimizer, closure = make(params), problem.closure(params, [0])
    for _ in range(8):
        closure()
        tensors = [p.grad for p in params]
        values = [g.clone() for g in tensors]
        optimizer.step()
        for p, tensor, value in zip(params, tensors, values, strict=True):
            assert p.grad is tensor
            assert torch.equal(tensor, value)


def test_a_parameter_without_a_gradient_is_left_alone(make):
    problem = Problem()
    params = problem.parameters()
    frozen, unused = nn.Parameter(torch.ones(3), requires_grad=False), nn.Parameter(torch.ones(2))
    optimizer = make([*params, frozen, unused])
    run(optimizer, params, problem, 9)
    assert torch.equal(frozen, torch.ones(3))
    assert torch.equal(unused, torch.ones(2))
    assert frozen not in optimizer.state
    alone = problem.parameters()
    run(make(alone), alone, problem, 9)
    assert torch.equal(flat(params), flat(alone))


def test_a_gradient_that_comes_and_goes():
    """p takes part in steps 2 and 3 of the first cycle only: a cycle of its own, begun where it stood."""
    p, other = (
        nn.Parameter(torch.ones(2, dtype=torch.float64)),
        nn.Parameter(torch.zeros(1, dtype=torch.float64)),
    )
    optimizer = EntropySGD(
        [p, other], lr=1.0, momentum=0.0, L=4, noise=0.0, gamma=0.5, inner_momentum=0.0, alpha=0.75
    )
    for step in range(4):
        other.grad = torch.zeros_like(other)
        p.grad = torch.ones_like(p) if step in (1, 2) else None
        optimizer.step()
    x1 = 1 - 0.1 * 1.0
    x2 = x1 - 0.1 * (1.0 - 0.5 * (1 - x1))
    mu = 0.25 * (0.25 * 1 + 0.75 * x1) + 0.75 * x2
    torch.testing.assert_close(p.detach(), torch.full_like(p, mu), rtol=1e-14, atol=0)


def test_nothing_advances_without_any_gradient():
    p = nn.Parameter(torch.ones(2))
    optimizer = EntropySGD([p], L=1)
    before = optimizer.state_dict()
    optimizer.step()
    assert optimizer.state_dict() == before


def test_a_non_finite_gradient_is_passed_on():
    p = nn.Parameter(torch.ones(3))
    optimizer = EntropySGD([p], L=1, gamma=scoping.MatchGradient())
    p.grad = torch.tensor([1.0, math.nan, math.inf])
    optimizer.step()
    assert torch.isfinite(p).tolist() == [True, False, False]
    p.grad = torch.ones(3)
    optimizer.step()
