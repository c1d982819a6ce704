"""States saved by older versions load, and go on to the same bits."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from torch import nn

from entropy_sgd import SGLD, EntropySGD
from problem import KINDS, Problem

SPECIMENS = Path(__file__).parents[1] / "data"
MAKE = {**KINDS, "sgld": lambda params: SGLD(params, lr=1e-2, noise=1e-2)}


@pytest.mark.parametrize("version", ["0.1.0"])
@pytest.mark.parametrize("kind", MAKE)
@pytest.mark.parametrize("steps", [6, 8])
def test_a_state_of_an_older_version_goes_on_to_the_same_bits(version, kind, steps):
    specimen = torch.load(SPECIMENS / f"optimizers-{version}.pt", weights_only=True)[f"{kind}-{steps}"]
    problem = Problem()
    params = [nn.Parameter(w) for w in specimen["weights"]]
    optimizer = MAKE[kind](params)
    optimizer.load_state_dict(specimen["optimizer"])
    closure = problem.closure(params, [steps])
    for _ in range(specimen["after"]):
        closure()
        optimizer.step()
    for p, expected in zip(params, specimen["expected"], strict=True):
        torch.testing.assert_close(p.detach(), expected, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("name", ["monitor", "fused", "outer_foreach", "nesterov"])
def test_an_option_that_a_checkpoint_lacks_takes_its_default(name):
    problem = Problem()
    params = problem.parameters()
    optimizer = EntropySGD(params, L=4)
    closure = problem.closure(params, [0])
    for _ in range(6):
        optimizer.step(closure)
    saved = optimizer.state_dict()
    expected = saved["param_groups"][0].pop(name)
    resumed = EntropySGD(params, L=4)
    resumed.load_state_dict(saved)
    assert resumed.param_groups[0][name] == expected


@pytest.mark.parametrize(("name", "earlier"), [("inner_state", "reset"), ("anneal", "outer")])
def test_an_option_that_came_later_takes_what_was_done_before(name, earlier):
    problem = Problem()
    params = problem.parameters()
    optimizer = EntropySGD(params, L=4)
    optimizer.step(problem.closure(params, [0]))
    saved = optimizer.state_dict()
    assert saved["param_groups"][0].pop(name) != earlier
    resumed = EntropySGD(params, L=4)
    resumed.load_state_dict(saved)
    assert resumed.param_groups[0][name] == earlier
