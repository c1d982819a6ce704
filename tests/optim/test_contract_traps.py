"""Traps that a review found: defaults of torch, states of 16 bits, freezing, modes of an outer optimizer."""

from __future__ import annotations

import copy

import pytest
import torch
from torch import nn

from entropy_sgd import SGLD, EntropySGD, LocalEntropy
from entropy_sgd.optim.noise import Span, gaussian
from problem import Problem, flat

HALF = {"state_dtype": torch.bfloat16}


@pytest.fixture
def default_dtype():
    yield torch.set_default_dtype
    torch.set_default_dtype(torch.float32)


def stepped(optimizer, params, problem, steps, counter=None):
    counter = [0] if counter is None else counter
    closure = problem.closure(params, counter)
    for _ in range(steps):
        closure()
        optimizer.step()
    return counter


@pytest.mark.parametrize("dtype", [torch.float64, torch.bfloat16])
@pytest.mark.parametrize("size", [200, 6000])
def test_torchs_default_dtype_changes_nothing(default_dtype, dtype, size):
    def run() -> list[torch.Tensor]:
        spans = [Span(0, 3, size)]
        found = list(gaussian(spans, 1, 2, 3, torch.device("cpu")))
        for make in (lambda p: EntropySGD([p], L=2, noise=1.0), lambda p: SGLD([p], lr=0.1)):
            for weights in (torch.float32, torch.float64):
                p = nn.Parameter(torch.zeros(size, dtype=weights))
                optimizer = make(p)
                for _ in range(4):
                    p.grad = torch.ones_like(p)
                    optimizer.step()
                found.append(p.detach().clone())
        return found

    expected = run()
    default_dtype(dtype)
    for got, want in zip(run(), expected, strict=True):
        assert torch.equal(got, want)


def test_states_of_16_bits_resume_and_finish_at_once():
    problem = Problem()
    params = problem.parameters(torch.float32)
    optimizer = EntropySGD(params, L=4, **HALF)
    stepped(optimizer, params, problem, 6)
    weights = [nn.Parameter(p.detach().clone()) for p in params]
    resumed = EntropySGD(weights, L=4, **HALF)
    resumed.load_state_dict(copy.deepcopy(optimizer.state_dict()))
    assert str(resumed.state_dict()["state"]) == str(optimizer.state_dict()["state"])
    optimizer.finish()
    resumed.finish()
    assert torch.equal(flat(params), flat(weights))


def test_groups_may_be_generators_and_names_with_states_of_16_bits():
    model = nn.Sequential(nn.Linear(3, 4), nn.Linear(4, 2))
    grouped = EntropySGD([{"params": model[0].parameters()}], **HALF)
    grouped.add_param_group({"params": model[1].parameters()})
    assert [len(group["params"]) for group in grouped.param_groups] == [2, 2]
    assert len(EntropySGD(model.named_parameters(), **HALF).param_groups[0]["params"]) == 4
    with pytest.raises(ValueError, match="complex"):
        EntropySGD([torch.zeros(2, dtype=torch.complex64)], **HALF)


def test_half_weights_saved_while_evaluating_resume_in_the_first_cycle():
    problem = Problem()
    whole = problem.parameters(torch.bfloat16)
    stepped(EntropySGD(whole, L=5), whole, problem, 9)
    params = problem.parameters(torch.bfloat16)
    optimizer = EntropySGD(params, L=5)
    counter = stepped(optimizer, params, problem, 3)
    optimizer.eval()
    weights = [nn.Parameter(p.detach().clone()) for p in params]
    resumed = EntropySGD(weights, L=5)
    resumed.load_state_dict(copy.deepcopy(optimizer.state_dict()))
    resumed.train()
    stepped(resumed, weights, problem, 6, counter)
    assert torch.equal(flat(weights), flat(whole))


@pytest.mark.parametrize(
    ("before", "after"), [(torch.float32, torch.bfloat16), (torch.bfloat16, torch.float32)]
)
def test_a_model_converted_while_evaluating(before, after):
    problem = Problem()
    params = problem.parameters(before)
    optimizer = EntropySGD(params, L=5)
    stepped(optimizer, params, problem, 7)
    x_prime = flat(params).detach().clone()
    optimizer.eval()
    nn.ParameterList(params).to(after)
    optimizer.train()
    torch.testing.assert_close(flat(params).detach(), x_prime.to(after), rtol=0, atol=0)
    stepped(optimizer, params, problem, 6)


def test_weights_loaded_while_a_schedule_free_optimizer_outside_evaluates():
    schedulefree = pytest.importorskip("schedulefree")
    problem = Problem()
    for restart in (False, True):
        params = problem.parameters()
        optimizer = LocalEntropy(params, schedulefree.SGDScheduleFree, {"lr": 0.5}, L=5)
        stepped(optimizer, params, problem, 8)
        optimizer.eval()
        with torch.no_grad():
            for p in params:
                p.fill_(0.25)
        if restart:
            optimizer.restart()
        else:
            with pytest.warns(UserWarning, match="changed from outside"):
                optimizer.train()
        assert torch.equal(flat(params), torch.full_like(flat(params), 0.25))
        stepped(optimizer, params, problem, 7)


def test_finish_when_everything_was_frozen():
    problem = Problem()
    params = problem.parameters()
    optimizer = EntropySGD(params, L=5)
    stepped(optimizer, params, problem, 7)
    held = flat(params).detach().clone()
    for p in params:
        p.requires_grad_(False)
    optimizer.finish()
    assert torch.equal(flat(params), held)
    assert optimizer.inner_steps == 0


def test_freezing_for_an_evaluation_does_not_end_the_cycle():
    problem = Problem()
    a, b = problem.parameters(), problem.parameters()
    plain, looked_at = EntropySGD(a, L=5), EntropySGD(b, L=5)
    counter = stepped(plain, a, problem, 7)
    stepped(looked_at, b, problem, 7)
    plain.eval()
    x = flat(a).detach().clone()
    plain.train()
    for p in b:
        p.requires_grad_(False)
    looked_at.state_dict()
    looked_at.eval()
    assert torch.equal(flat(b), x)
    looked_at.train()
    for p in b:
        p.requires_grad_(True)
    stepped(plain, a, problem, 6, counter.copy())
    stepped(looked_at, b, problem, 6, counter.copy())
    assert torch.equal(flat(a), flat(b))


def test_a_parameter_frozen_before_a_resume_stays():
    problem = Problem()
    params = problem.parameters()
    optimizer = EntropySGD(params, L=5)
    stepped(optimizer, params, problem, 7)
    weights = [nn.Parameter(p.detach().clone()) for p in params]
    weights[0].requires_grad_(False)
    held = weights[0].detach().clone()
    resumed = EntropySGD(weights, L=5)
    resumed.load_state_dict(copy.deepcopy(optimizer.state_dict()))
    resumed.eval()
    assert torch.equal(weights[0], held)
    resumed.train()
    for _ in range(5):
        for p in weights[1:]:
            p.grad = torch.ones_like(p)
        resumed.step()
    assert torch.equal(weights[0], held)


@pytest.mark.parametrize("inner", ["adam", "sghmc"])
def test_states_of_16_bits_beside_float64_parameters(inner):
    problem = Problem()
    params = problem.parameters()
    optimizer = EntropySGD(params, L=3, inner=inner, inner_lr=0.01, **HALF)
    stepped(optimizer, params, problem, 7)
    assert flat(params).isfinite().all()


def test_a_closure_that_returns_nothing_is_named():
    problem = Problem()
    params = problem.parameters()
    closure = problem.closure(params, [0])
    with pytest.raises(RuntimeError, match="must return the loss"):
        EntropySGD(params, L=3).cycle(lambda: (closure(), None)[1])
