"""What `diagnostics` says, and that monitoring changes nothing else."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from torch import nn

from entropy_sgd import EntropySGD
from problem import Problem, run


def test_diagnostics_against_numpy():
    problem, L, gamma = Problem(8), 5, 0.3
    params = problem.parameters()
    optimizer = EntropySGD(
        params, L=L, gamma=gamma, noise=0.0, momentum=0.0, inner_momentum=0.0, weight_decay=0.1, alpha=0.75
    )
    assert all(math.isnan(v) for v in optimizer.diagnostics().values())
    x = problem.start
    x_prime, mu, distances = x.copy(), x.copy(), []
    for i in range(L):
        x_prime = x_prime - 0.1 * (problem.gradient(x_prime, i) + 0.1 * x_prime - gamma * (x - x_prime))
        mu = 0.25 * mu + 0.75 * x_prime
        distances.append(np.linalg.norm(x - x_prime))
    g = problem.gradient(x, 0) + 0.1 * x
    run(optimizer, params, problem, L)
    assert optimizer.diagnostics() == pytest.approx(
        {
            "gamma": gamma,
            "x_minus_mu": np.linalg.norm(x - mu),
            "x_minus_x_prime": np.mean(distances),
            "gradient": np.linalg.norm(g),
            "cosine": (x - mu) @ g / np.linalg.norm(x - mu) / np.linalg.norm(g),
        },
        rel=1e-9,
    )


def test_monitoring_changes_no_weight_and_can_be_left_out():
    problem = Problem()
    results = []
    for monitor in (True, False):
        params = problem.parameters()
        optimizer = EntropySGD(params, L=4, monitor=monitor)
        results.append(run(optimizer, params, problem, 12))
    assert torch.equal(*results)
    assert "entropy_gradient" not in optimizer.state[params[0]]
    assert math.isnan(optimizer.diagnostics()["cosine"])
    assert optimizer.diagnostics()["gamma"] == pytest.approx(1e-4 * 1.001**2)


def test_the_cosine_is_unknown_where_monitoring_began_inside_a_cycle():
    p = nn.Parameter(torch.ones(3))
    blind = EntropySGD([p], L=2, monitor=False)
    p.grad = torch.ones(3)
    blind.step()
    seeing = EntropySGD([p], L=2)
    seeing.load_state_dict(blind.state_dict())
    seeing.step()
    assert math.isnan(seeing.diagnostics()["cosine"])
