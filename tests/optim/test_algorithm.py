"""The optimizers against Algorithm 1 as transcribed in tests/reference.py."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
import torch

from entropy_sgd import EntropyAdam, EntropySGD, LocalEntropy, scoping
from entropy_sgd.optim.noise import Span, gaussian
from problem import SHAPES, Problem, flat, run
from reference import algorithm_1

STEPS = 100
SEED = 11


def drawn(t: int, ell: int) -> np.ndarray:
    """The optimizer's own draw: what is compared here is where it enters, not how it is made."""
    spans = [Span(i, 0, int(np.prod(s))) for i, s in enumerate(SHAPES)]
    return torch.cat(gaussian(spans, SEED, t, ell, torch.device("cpu"))).double().numpy()


@pytest.mark.parametrize(
    ("momentum", "inner_momentum", "nesterov", "inner_nesterov"),
    [(0.0, 0.0, False, False), (0.9, 0.0, False, True), (0.9, 0.5, True, True), (0.5, 0.9, True, False)],
)
@pytest.mark.parametrize("L", [1, 5, 20])
def test_entropy_sgd_is_algorithm_1(momentum, inner_momentum, nesterov, inner_nesterov, L):
    problem = Problem()
    paths = itertools.cycle([(None, 1e-2), (None, 0.0), (False, 0.0), (None, 0.0), (False, 1e-2)])
    schedules = [scoping.Constant(0.3), scoping.Exponential(0.03, 0.05), scoping.Linear(0.02, 0.5)]
    for decay, schedule, scale, alpha in itertools.product(
        [0.0, 0.03], schedules, [False, True], [0.75, 1.0]
    ):
        foreach, noise = next(paths)  # 5 paths over 24 settings: each path meets each setting's neighbours
        params = problem.parameters()
        optimizer = EntropySGD(
            params, lr=0.7, momentum=momentum, nesterov=nesterov, weight_decay=decay, L=L, inner_lr=0.05,
            inner_momentum=inner_momentum, inner_nesterov=inner_nesterov, gamma=schedule, noise=noise,
            alpha=alpha, scale_by_gamma=scale, seed=SEED, foreach=foreach, inner_state="reset",
        )  # fmt: skip
        got = run(optimizer, params, problem, STEPS).numpy()
        expected = algorithm_1(
            problem.start, problem.gradient, STEPS // L, L=L, gamma=schedule, eta=0.7, eta_prime=0.05,
            alpha=alpha, epsilon=noise, noise=drawn if noise else None, momentum=momentum, nesterov=nesterov,
            inner_momentum=inner_momentum, inner_nesterov=inner_nesterov, weight_decay=decay,
            scale_by_gamma=scale,
        )  # fmt: skip
        np.testing.assert_allclose(got, expected, rtol=0, atol=1e-10)


@pytest.mark.parametrize("foreach", [None, False])
@pytest.mark.parametrize("inner", ["sgd", "adam"])
@pytest.mark.parametrize("L", [1, 5])
def test_entropy_adam_is_algorithm_1_with_adam_outside(inner, L, foreach):
    problem = Problem(1)
    params = problem.parameters()
    optimizer = EntropyAdam(
        params, lr=0.02, L=L, gamma=0.1, noise=1e-2, seed=SEED, inner=inner, inner_lr=0.03, weight_decay=0.01,
        inner_momentum=0.5, inner_betas=(0.8, 0.95), foreach=foreach,
    )  # fmt: skip
    got = run(optimizer, params, problem, STEPS).numpy()
    expected = algorithm_1(
        problem.start, problem.gradient, STEPS // L, L=L, gamma=lambda t: 0.1, eta=0.02, eta_prime=0.03,
        alpha=0.75, epsilon=1e-2, noise=drawn, outer="adam", betas=(0.5, 0.999), inner=inner,
        inner_betas=(0.8, 0.95), inner_momentum=0.5, inner_nesterov=True, weight_decay=0.01,
    )  # fmt: skip
    np.testing.assert_allclose(got, expected, rtol=0, atol=1e-10)


def test_inside_a_cycle_the_parameters_hold_x_prime():
    problem = Problem(2)
    params = problem.parameters()
    optimizer = EntropySGD.paper(params, L=7, noise=1e-2, gamma=0.2, seed=SEED)
    trace: list[np.ndarray] = []
    algorithm_1(
        problem.start, problem.gradient, 3, L=7, gamma=lambda t: 0.2, eta=1.0, eta_prime=0.1, alpha=0.75,
        epsilon=1e-2, noise=drawn, momentum=0.9, nesterov=True, inner_momentum=0.9, inner_nesterov=True,
        trace=trace,
    )  # fmt: skip
    closure = problem.closure(params, [0])
    for i, x_prime in enumerate(trace):
        optimizer.step(closure)
        if (i + 1) % 7:  # the last of a cycle leaves x instead
            np.testing.assert_allclose(flat(params).detach().numpy(), x_prime, rtol=0, atol=1e-10)


@pytest.mark.parametrize(
    ("outer", "options"),
    [
        (torch.optim.SGD, {"lr": 0.5, "momentum": 0.9}),
        (torch.optim.Adam, {"lr": 0.01}),
        (torch.optim.AdamW, {"lr": 0.01, "weight_decay": 0.1}),
        (torch.optim.RMSprop, {"lr": 0.01, "momentum": 0.5}),
        (torch.optim.NAdam, {"lr": 0.01}),
        (torch.optim.Adagrad, {"lr": 0.1}),
        (torch.optim.Adadelta, {"lr": 1.0}),
        (torch.optim.Adamax, {"lr": 0.01}),
        (torch.optim.ASGD, {"lr": 0.1}),
        (torch.optim.RAdam, {"lr": 0.01}),
        (torch.optim.Rprop, {"lr": 0.01}),
    ],
)
def test_the_outer_loop_is_that_torch_optimizer(outer, options):
    """The same torch optimizer, stepped by hand on x - mu from the transcription's inner loop."""
    problem, L = Problem(3), 4
    params = problem.parameters()
    optimizer = LocalEntropy(params, outer, options, L=L, gamma=0.2, noise=1e-2, seed=SEED, weight_decay=0.02)
    got = run(optimizer, params, problem, 10 * L)

    by_hand = problem.parameters()
    plain = outer(by_hand, **options)
    for t in range(10):
        x = flat(by_hand).detach().numpy()
        mu = x - algorithm_1_displacement(problem, x, t, L)
        for p, d in zip(by_hand, torch.tensor(x - mu).split([p.numel() for p in by_hand]), strict=True):
            p.grad = d.view_as(p).clone()
        plain.step()
    torch.testing.assert_close(got, flat(by_hand).detach(), rtol=0, atol=1e-10)


def algorithm_1_displacement(problem: Problem, x: np.ndarray, t: int, L: int) -> np.ndarray:
    """x - mu of one cycle begun at x: with eta = 1 and no momentum, line 7 leaves x at mu."""
    mu = algorithm_1(
        x, lambda y, i: problem.gradient(y, t * L + i), 1, L=L, gamma=lambda _: 0.2, eta=1.0, eta_prime=0.1,
        alpha=0.75, epsilon=1e-2, noise=lambda _, ell: drawn(t, ell), inner_momentum=0.9, inner_nesterov=True,
        weight_decay=0.02,
    )  # fmt: skip
    return x - mu


def test_maximize_climbs_f():
    problem = Problem(4)
    up, down = problem.parameters(), problem.parameters()
    ascend = EntropySGD(up, L=3, maximize=True, gamma=0.1, seed=SEED, weight_decay=0.01)
    descend = EntropySGD(down, L=3, gamma=0.1, seed=SEED, weight_decay=0.01)
    closures = problem.closure(up, [0]), problem.closure(down, [0])
    for _ in range(12):
        closures[0]()
        ascend.step()
        closures[1]()
        for p in down:
            p.grad = -p.grad
        descend.step()
    assert torch.equal(flat(up), flat(down))


# ---- degenerate cases, to rounding ----


def test_one_noiseless_step_a_cycle_is_plain_sgd():
    problem = Problem(5)
    params, plain = problem.parameters(), problem.parameters()
    optimizer = EntropySGD(
        params, lr=1.0, momentum=0.0, nesterov=True, L=1, alpha=1.0, noise=0.0, inner_momentum=0.0,
        gamma=0.0, inner_lr=0.07, weight_decay=0.01,
    )  # fmt: skip
    sgd = torch.optim.SGD(plain, lr=0.07, weight_decay=0.01)
    got, expected = run(optimizer, params, problem, 50), run(sgd, plain, problem, 50)
    torch.testing.assert_close(got, expected, rtol=0, atol=1e-13)


def test_without_an_outer_learning_rate_x_stays():
    problem = Problem(6)
    params = problem.parameters()
    optimizer = EntropySGD(params, lr=0.0, L=5)
    run(optimizer, params, problem, 20)
    np.testing.assert_array_equal(flat(params).detach().numpy(), problem.start)


@pytest.mark.parametrize("fused", [None, True])
def test_nesterov_without_momentum_is_the_plain_step(fused):
    problem = Problem(7)
    results = []
    for nesterov in (True, False):
        params = problem.parameters()
        optimizer = EntropySGD(
            params,
            momentum=0.0,
            nesterov=nesterov,
            inner_momentum=0.0,
            inner_nesterov=nesterov,
            L=4,
            fused=fused,
        )
        results.append(run(optimizer, params, problem, 40))
    assert torch.equal(*results)
