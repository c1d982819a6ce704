"""What the optimizers promise around Algorithm 1: modes, saving, groups, missing gradients, dtypes."""

from __future__ import annotations

import copy
import io
import math
import pickle
import warnings

import numpy as np
import pytest
import torch
from torch import nn

from entropy_sgd import SGLD, EntropyAdam, EntropySGD, LocalEntropy, scoping
from problem import Problem, flat, run

KINDS = {
    "sgd": lambda params: EntropySGD(params, L=4, noise=1e-2),
    "adam": lambda params: EntropyAdam(params, L=4, noise=1e-2, inner="adam", inner_lr=0.01),
    "adamw": lambda params: LocalEntropy(
        params, torch.optim.AdamW, {"lr": 1e-2, "weight_decay": 0.1}, L=4, noise=1e-2, weight_decay=0.01
    ),
    "match": lambda params: EntropySGD(params, L=4, noise=1e-2, gamma=scoping.MatchGradient()),
    "rmsprop": lambda params: LocalEntropy(params, torch.optim.RMSprop, {"lr": 1e-2}, L=4, noise=1e-2),
}


@pytest.fixture(params=KINDS)
def make(request):
    return KINDS[request.param]


# ---- step and cycle ----


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


# ---- eval and train ----


def test_eval_shows_x_and_train_shows_x_prime(make):
    problem = Problem()
    params = problem.parameters()
    optimizer, closure = make(params), problem.closure(params, [0])
    for step in range(11):
        x_before = flat(params).clone() if step % 4 == 0 else x_before  # noqa: F821  set at step 0
        optimizer.step(closure)
        x_prime = flat(params).clone()
        x = x_prime if step % 4 == 3 else x_before
        for _ in range(2):
            optimizer.eval()
            assert torch.equal(flat(params), x)
        for _ in range(2):
            optimizer.train()
            assert torch.equal(flat(params), x_prime)


def test_step_in_eval_mode_swaps_back_and_warns_once():
    problem = Problem()
    a, b = problem.parameters(), problem.parameters()
    careless, careful = EntropySGD(a, L=4), EntropySGD(b, L=4)
    closures = problem.closure(a, [0]), problem.closure(b, [0])
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        for _ in range(10):
            careless.step(closures[0])
            careless.eval()
    for _ in range(10):
        careful.step(closures[1])
    careless.train()
    assert [str(w.message).startswith("step() in eval mode") for w in caught] == [True]
    assert torch.equal(flat(a), flat(b))


# ---- saving ----


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


def test_the_saved_seed_and_L_win_over_the_constructor():
    problem = Problem()
    a, b = problem.parameters(), problem.parameters()
    saved = EntropySGD(a, L=4, seed=1, noise=0.1).state_dict()
    other = EntropySGD(b, L=7, seed=2, noise=0.1)
    other.load_state_dict(saved)
    run(EntropySGD(a, L=4, seed=1, noise=0.1), a, problem, 10)
    run(other, b, problem, 10)
    assert torch.equal(flat(a), flat(b))


# ---- groups and gradients ----


def test_every_hyper_parameter_can_differ_by_group():
    """Two groups in one optimizer equal two optimizers, wherever the noise is off."""
    options = [
        {"lr": 0.5, "momentum": 0.9, "nesterov": True, "weight_decay": 0.1, "inner_lr": 0.05, "alpha": 0.6},
        {
            "lr": 0.9,
            "momentum": 0.0,
            "nesterov": False,
            "inner": "adam",
            "inner_betas": (0.7, 0.9),
            "inner_eps": 1e-3,
            "scale_by_gamma": True,
            "maximize": True,
        },
    ]
    generator = torch.Generator().manual_seed(0)
    start = [torch.randn(4, generator=generator) for _ in options]
    gradients = [torch.randn(12, 4, generator=generator) for _ in options]
    together = [nn.Parameter(x.clone()) for x in start]
    optimizer = EntropySGD(
        [{"params": [p], **o} for p, o in zip(together, options, strict=True)], L=3, noise=0.0, gamma=0.2
    )
    for i in range(12):
        for p, g in zip(together, gradients, strict=True):
            p.grad = g[i].clone()
        optimizer.step()
    for x, g, o, p in zip(start, gradients, options, together, strict=True):
        alone = nn.Parameter(x.clone())
        single = EntropySGD([alone], L=3, noise=0.0, gamma=0.2, **o)
        for i in range(12):
            alone.grad = g[i].clone()
            single.step()
        assert torch.equal(alone, p)


def test_noise_can_differ_by_group():
    quiet, loud = nn.Parameter(torch.zeros(1000)), nn.Parameter(torch.zeros(1000))
    optimizer = EntropySGD([{"params": [quiet], "noise": 0.0}, {"params": [loud], "noise": 0.5}], L=9)
    quiet.grad, loud.grad = torch.zeros(1000), torch.zeros(1000)
    optimizer.step()
    assert quiet.abs().max() == 0
    assert loud.detach().std().item() == pytest.approx(math.sqrt(0.1) * 0.5, rel=0.1)


def test_outer_weight_decay_and_inner_weight_decay_are_two_things():
    """AdamW's decoupled decay shrinks x by 1 - lr wd in each cycle, whatever the gradient."""
    p = nn.Parameter(torch.ones(5, dtype=torch.float64))
    optimizer = LocalEntropy([p], torch.optim.AdamW, {"lr": 0.1, "weight_decay": 0.5}, L=2, noise=0.0)
    assert optimizer.param_groups[0]["weight_decay"] == 0.0
    assert optimizer.param_groups[0]["outer_weight_decay"] == 0.5
    for _ in range(6):
        p.grad = torch.zeros_like(p)
        optimizer.step()
    torch.testing.assert_close(p.detach(), torch.full_like(p, (1 - 0.05) ** 3))


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
    optimizer = EntropySGD([p, other], lr=1.0, momentum=0.0, L=4, noise=0.0, gamma=0.5, inner_momentum=0.0)
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


def test_parameters_added_later_join_in():
    problem = Problem()
    params = problem.parameters()
    optimizer = EntropySGD(params[:2], L=4, noise=0.0, gamma=0.1)
    for p in params[:2]:
        p.grad = torch.ones_like(p)
    optimizer.step()
    optimizer.add_param_group({"params": [params[2]], "lr": 0.5})
    assert optimizer.outer.param_groups is optimizer.param_groups
    start = params[2].detach().clone()
    for _ in range(3):
        params[2].grad = torch.ones_like(params[2])
        optimizer.step()
    assert not torch.equal(params[2], start)
    assert optimizer.param_groups[1]["lr"] == 0.5


# ---- dtypes ----


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16, torch.float16])
def test_dtypes_keep_their_states_and_descend(dtype):
    p = nn.Parameter(torch.full((64,), 3.0, dtype=dtype))
    optimizer = EntropySGD([p], L=5, lr=0.5, noise=1e-2)
    for _ in range(50):
        optimizer.zero_grad()
        p.square().sum().div(2).backward()
        optimizer.step()
    assert p.detach().abs().max() < 0.5
    for name in ("entropy_x", "entropy_mu", "entropy_momentum"):
        assert optimizer.state[p][name].dtype == dtype


def test_a_complex_parameter_is_two_real_ones():
    generator = torch.Generator().manual_seed(0)
    start = torch.randn(5, 2, generator=generator, dtype=torch.float64)
    gradients = torch.randn(12, 5, 2, generator=generator, dtype=torch.float64)
    results = []
    for view in (torch.view_as_complex, lambda x: x):
        for kind in (KINDS["sgd"], KINDS["match"], lambda ps: SGLD(ps, lr=0.1)):
            p = nn.Parameter(view(start.clone()).clone())
            optimizer = kind([p])
            for g in gradients:
                p.grad = view(g.clone()).clone()
                optimizer.step()
            results.append(torch.view_as_real(p.detach()) if p.is_complex() else p.detach())
    for with_complex, with_real in zip(results[:3], results[3:], strict=True):
        torch.testing.assert_close(with_complex, with_real, rtol=1e-12, atol=1e-12)


def test_a_first_step_without_force_and_without_an_outer_rate_is_a_step_all_the_same():
    import torch.distributed.checkpoint.state_dict  # which probes optimizers with such steps, see sharding.py

    p = nn.Parameter(torch.zeros(1000))
    optimizer = EntropySGD([p], lr=0.0, noise=1.0, L=9)
    p.grad = torch.zeros_like(p)
    optimizer.step()
    assert p.detach().std().item() == pytest.approx(math.sqrt(0.1), rel=0.1)


# ---- diagnostics ----


def test_diagnostics_against_numpy():
    problem, L, gamma = Problem(8), 5, 0.3
    params = problem.parameters()
    optimizer = EntropySGD(
        params, L=L, gamma=gamma, noise=0.0, momentum=0.0, inner_momentum=0.0, weight_decay=0.1
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


def test_a_non_finite_gradient_is_passed_on():
    p = nn.Parameter(torch.ones(3))
    optimizer = EntropySGD([p], L=1, gamma=scoping.MatchGradient())
    p.grad = torch.tensor([1.0, math.nan, math.inf])
    optimizer.step()
    assert torch.isfinite(p).tolist() == [True, False, False]
    p.grad = torch.ones(3)
    optimizer.step()


# ---- an outer update that fails, states made early, odd numbers ----


def test_a_failed_outer_update_gives_up_the_cycle_and_keeps_x(monkeypatch):
    problem = Problem()
    params = problem.parameters()
    optimizer = EntropySGD(params, L=3, momentum=0.0)
    closure = problem.closure(params, [0])
    optimizer.cycle(closure)
    x = flat(params).clone()

    def fail() -> None:
        raise MemoryError

    with monkeypatch.context() as patch:
        patch.setattr(optimizer.outer, "step", fail)
        with pytest.raises(MemoryError):
            optimizer.cycle(closure)
    assert torch.equal(flat(params), x)
    before = [p.grad for p in params]
    assert all(g is not None for g in before)
    optimizer.cycle(closure)
    assert not torch.equal(flat(params), x)


def test_an_outer_optimizer_may_make_its_state_when_it_is_built():
    class Sum(torch.optim.Optimizer):
        def __init__(self, params, lr):
            super().__init__(params, {"lr": lr})
            for p in self.param_groups[0]["params"]:
                self.state[p]["sum"] = torch.zeros_like(p)

        @torch.no_grad()
        def step(self, closure=None):
            for p in self.param_groups[0]["params"]:
                self.state[p]["sum"] += p.grad
                p -= self.param_groups[0]["lr"] * self.state[p]["sum"]

    p = nn.Parameter(torch.zeros(2, dtype=torch.float64))
    inner = {"noise": 0.0, "alpha": 1.0, "inner_lr": 1.0, "inner_momentum": 0.0}
    optimizer = LocalEntropy([p], Sum, {"lr": 1.0}, L=1, **inner)
    for _ in range(3):
        p.grad = torch.ones_like(p)
        optimizer.step()
    torch.testing.assert_close(p.detach(), torch.full_like(p, -6.0))  # 1, then 2, then 3


def test_numbers_of_numpy_become_plain():
    p = nn.Parameter(torch.ones(2))
    optimizer = EntropySGD(
        [{"params": [p], "alpha": np.float64(0.5)}],
        lr=np.float64(0.5),
        inner_lr=np.float32(0.1),
        L=np.int64(3),
    )
    assert through_a_file(optimizer.state_dict())["param_groups"][0]["lr"] == 0.5


@pytest.mark.parametrize(
    "dtypes", [(torch.float32, torch.float64), (torch.float64, torch.bfloat16, torch.float32)]
)
def test_parameters_of_several_dtypes(dtypes):
    params = [nn.Parameter(torch.ones(3, dtype=dtype)) for dtype in dtypes]
    optimizer = EntropySGD(params, L=2, lr=0.5)
    for _ in range(8):
        for p in params:
            p.grad = p.detach().clone()
        optimizer.step()
    assert all((p < 0.9).all() for p in params)
    assert math.isfinite(optimizer.diagnostics()["cosine"])


def test_a_group_can_choose_its_path_in_both_loops(monkeypatch):
    calls = []
    fused = torch._fused_sgd_
    monkeypatch.setattr(torch, "_fused_sgd_", lambda *a, **k: (calls.append(1), fused(*a, **k)))
    for options, expected in (({}, 1), ({"foreach": False}, 0), ({"fused": False}, 0)):
        calls.clear()
        p = nn.Parameter(torch.ones(3))
        optimizer = EntropySGD([{"params": [p], **options}], L=1)
        p.grad = torch.ones(3)
        optimizer.step()
        assert len(calls) == expected, options


def test_half_precision_moves_with_fused_too():
    """torch 2.13's own fused SGD leaves such weights where they are."""
    p = nn.Parameter(torch.ones(8, dtype=torch.bfloat16))
    optimizer = EntropySGD([p], L=1, fused=True)
    p.grad = torch.ones_like(p)
    optimizer.step()
    assert (p < 1).all()


def test_the_cosine_is_unknown_where_monitoring_began_inside_a_cycle():
    p = nn.Parameter(torch.ones(3))
    blind = EntropySGD([p], L=2, monitor=False)
    p.grad = torch.ones(3)
    blind.step()
    seeing = EntropySGD([p], L=2)
    seeing.load_state_dict(blind.state_dict())
    seeing.step()
    assert math.isnan(seeing.diagnostics()["cosine"])
