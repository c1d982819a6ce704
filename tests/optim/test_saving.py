"""What is saved is plain, and resumes and copies bit for bit."""

from __future__ import annotations

import copy
import io
import pickle
import warnings

import numpy as np
import pytest
import torch
from torch import nn

from entropy_sgd import SGLD, EntropySGD, LocalEntropy, scoping
from problem import Problem, flat, run


def through_a_file(state: dict) -> dict:
    buffer = io.BytesIO()
    torch.save(state, buffer)
    buffer.seek(0)
    return torch.load(buffer, weights_only=True)


@pytest.mark.parametrize("save_in_eval", [False, True])
@pytest.mark.parametrize("stop", range(9))
def test_resumes_bit_for_bit_from_any_point(make, stop, save_in_eval):
    problem = Problem()
    whole = problem.parameters()
    optimizer = make(whole)
    run(optimizer, whole, problem, 20)

    first = problem.parameters()
    interrupted, counter = make(first), [0]
    closure = problem.closure(first, counter)
    for _ in range(stop):
        interrupted.step(closure)
    if save_in_eval:
        interrupted.eval()
    saved = through_a_file({"weights": [p.detach() for p in first], "optimizer": interrupted.state_dict()})

    second = [nn.Parameter(w) for w in saved["weights"]]
    resumed = make(second)
    resumed.load_state_dict(saved["optimizer"])
    resumed.train()
    closure = problem.closure(second, counter)
    for _ in range(20 - stop):
        resumed.step(closure)
    assert torch.equal(flat(whole), flat(second))
    assert resumed.diagnostics() == pytest.approx(optimizer.diagnostics(), rel=1e-12, nan_ok=True)


@pytest.mark.parametrize("copier", [copy.deepcopy, lambda pair: pickle.loads(pickle.dumps(pair))])
def test_copies_go_on_alone(make, copier):
    problem = Problem()
    params = problem.parameters()
    optimizer, counter = make(params), [0]
    closure = problem.closure(params, counter)
    for _ in range(6):
        optimizer.step(closure)
    params_2, optimizer_2 = copier((params, optimizer))
    before = flat(params).clone()
    closure_2 = problem.closure(params_2, counter.copy())
    for _ in range(9):
        optimizer_2.step(closure_2)
    assert torch.equal(flat(params), before)
    for _ in range(9):
        optimizer.step(closure)
    assert torch.equal(flat(params), flat(params_2))
    assert optimizer_2.outer.state is optimizer_2.state


def test_state_dict_is_plain():
    problem = Problem()
    params = problem.parameters()
    optimizer = EntropySGD(params, L=4, gamma=scoping.MatchGradient())
    run(optimizer, params, problem, 6)

    def plain(value: object) -> bool:
        if isinstance(value, dict):
            return all(plain(v) for v in value.values())
        if isinstance(value, (list, tuple)):
            return all(plain(v) for v in value)
        return type(value) in (torch.Tensor, int, float, bool, str, type(None))

    assert plain(optimizer.state_dict())


def test_numbers_of_numpy_become_plain():
    p = nn.Parameter(torch.ones(2))
    optimizer = EntropySGD(
        [{"params": [p], "alpha": np.float64(0.5)}],
        lr=np.float64(0.5),
        inner_lr=np.float32(0.1),
        L=np.int64(3),
    )
    assert through_a_file(optimizer.state_dict())["param_groups"][0]["lr"] == 0.5


def test_the_saved_seed_and_L_win_over_the_constructor():
    problem = Problem()
    a, b = problem.parameters(), problem.parameters()
    saved = EntropySGD(a, L=4, seed=1, noise=0.1).state_dict()
    other = EntropySGD(b, L=7, seed=2, noise=0.1)
    other.load_state_dict(saved)
    run(EntropySGD(a, L=4, seed=1, noise=0.1), a, problem, 10)
    run(other, b, problem, 10)
    assert torch.equal(flat(a), flat(b))


def test_hooks_see_the_whole_state():
    """The outer optimizer's part too, on saving and on loading; what they change counts."""
    problem = Problem()
    params = problem.parameters()
    optimizer = LocalEntropy(params, torch.optim.AdamW, {"lr": 0.1}, L=4)
    run(optimizer, params, problem, 6)
    seen = []

    def halve(optimizer, state):
        seen.append({"lr", "betas", "outer_weight_decay"} <= set(state["param_groups"][0]))
        seen.append("exp_avg" in state["state"][0])
        groups = [{**group, "lr": group["lr"] / 2} for group in state["param_groups"]]
        return {**state, "param_groups": groups}

    optimizer.register_state_dict_post_hook(halve)
    saved = optimizer.state_dict()
    assert saved["param_groups"][0]["lr"] == 0.05
    other = LocalEntropy(problem.parameters(), torch.optim.AdamW, {"lr": 0.1}, L=4)
    other.register_load_state_dict_pre_hook(halve)
    other.register_load_state_dict_post_hook(lambda o: seen.append(o.param_groups[0]["lr"] == 0.025))
    other.load_state_dict(saved)
    assert other.param_groups[0]["lr"] == other.outer.param_groups[0]["lr"] == 0.025
    assert seen == [True] * 5


def test_a_checkpoint_of_another_gamma_is_told():
    def saved(gamma):
        p = nn.Parameter(torch.ones(3))
        optimizer = EntropySGD([p], gamma=gamma, L=3)
        p.grad = torch.ones(3)
        optimizer.step()
        return through_a_file(optimizer.state_dict())

    p = nn.Parameter(torch.ones(3))
    with pytest.warns(
        UserWarning, match=r"saved with gamma=0\.03, but .* gamma=Exponential\(.* which it keeps"
    ):
        EntropySGD([p]).load_state_dict(saved(0.03))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        EntropySGD([p], gamma=0.03).load_state_dict(saved(0.03))
        EntropySGD([p], gamma=scoping.Linear(0.1, 0.2)).load_state_dict(saved(scoping.Linear(0.1, 0.2)))
        EntropySGD([p], gamma=lambda t: 0.1).load_state_dict(saved(0.03))  # a function may be the same
        old = saved(0.03)
        del old["param_groups"][0]["gamma_schedule"]  # of a version before it was saved
        EntropySGD([p]).load_state_dict(old)


def test_numbers_of_numpy_are_plain_in_a_state_of_sgld():
    p = nn.Parameter(torch.ones(3))
    optimizer = SGLD([{"params": [p], "noise": np.float64(0.5)}], lr=np.float32(0.1), b=np.float64(0.6))
    through_a_file(optimizer.state_dict())
    assert type(optimizer.param_groups[0]["lr"]) is type(optimizer.param_groups[0]["noise"]) is float


@pytest.mark.parametrize("kind", [torch.optim.NAdam, torch.optim.ASGD])
@pytest.mark.parametrize("place", ["outer", "inner"])
@pytest.mark.parametrize("dtype", [torch.float64, torch.bfloat16])
def test_numbers_of_other_optimizers_keep_their_bits(kind, place, dtype):
    """NAdam's product of momenta and ASGD's rate are of float32; torch loads them in the weights' dtype."""

    def make(p: nn.Parameter) -> LocalEntropy:
        options = {place: kind, f"{place}_options": {"lr": 0.1}}
        return LocalEntropy([p], L=2, inner_state="keep", **options)

    def step(p: nn.Parameter, optimizer: LocalEntropy) -> None:
        p.grad = torch.sin(3 * p.detach())
        optimizer.step()

    p = nn.Parameter(torch.linspace(-1, 2, 24, dtype=dtype))
    optimizer = make(p)
    for _ in range(5):
        step(p, optimizer)
    other = nn.Parameter(p.detach().clone())
    resumed = make(other)
    resumed.load_state_dict(through_a_file(optimizer.state_dict()))
    dtypes = [
        {k: v.dtype for k, v in o.state_dict()["state"][0].items() if torch.is_tensor(v)}
        for o in (optimizer, resumed)
    ]
    assert dtypes[0] == dtypes[1]
    for _ in range(5):
        step(p, optimizer)
        step(other, resumed)
    assert torch.equal(p, other)


@pytest.mark.parametrize("place", ["outer", "inner"])
@pytest.mark.parametrize(
    ("before", "after"), [(torch.float32, torch.bfloat16), (torch.bfloat16, torch.float32)]
)
def test_moments_of_a_parameter_that_is_a_single_number_follow_its_dtype(place, before, after):
    """A temperature, say, of a model that was converted between saving and loading."""

    def train(p: nn.Parameter, saved: dict | None = None) -> dict:
        options = {place: torch.optim.Adam, f"{place}_options": {"lr": 0.1}}
        optimizer = LocalEntropy([p], L=2, inner_state="keep", **options)
        if saved is not None:
            optimizer.load_state_dict(saved)
        for _ in range(5):
            p.grad = torch.sin(3 * p.detach())
            optimizer.step()
        return optimizer.state_dict()

    p = nn.Parameter(torch.tensor(0.7, dtype=before))
    saved = train(p)
    q = nn.Parameter(p.detach().to(after))
    train(q, saved)
    assert torch.isfinite(q)
