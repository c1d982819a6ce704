from __future__ import annotations

import math

import pytest
import torch

from entropy_sgd import EntropySGD, scoping
from problem import Problem, flat


@pytest.mark.parametrize(
    ("schedule", "values"),
    [
        (scoping.Constant(0.5), {0: 0.5, 9: 0.5}),
        (
            scoping.Exponential(1e-4, 1e-3),
            {0: 1e-4, 1: 1.001e-4, 2: 1.002001e-4, 1000: 1e-4 * math.e**0.99950033},
        ),
        (scoping.Exponential(1e-4, 1e-3, maximum=1.0005e-4), {0: 1e-4, 1: 1.0005e-4, 10**9: 1.0005e-4}),
        (scoping.Linear(0.2, 0.5), {0: 0.2, 1: 0.3, 4: 0.6}),
        (scoping.Quadratic(0.2, 0.5), {0: 0.2, 1: 0.3, 2: 0.6}),
        (scoping.BoundedExponential(2.0, math.log(2)), {0: 0.0, 1: 1.0, 2: 1.5, 10**6: 2.0}),
    ],
)
def test_formulas(schedule, values):
    for t, gamma in values.items():
        assert isinstance(schedule(t), float)
        assert schedule(t) == pytest.approx(gamma, rel=1e-6)


def test_the_schedule_is_called_with_the_outer_updates_made():
    problem, calls = Problem(), []

    def schedule(t: int) -> float:
        calls.append(t)
        return 0.1 * (t + 1)

    params = problem.parameters()
    optimizer = EntropySGD(params, L=3, gamma=schedule)
    calls.clear()
    closure = problem.closure(params, [0])
    gammas = []
    for _ in range(4):
        optimizer.cycle(closure)
        gammas.append(optimizer.diagnostics()["gamma"])
    assert calls == [0, 1, 2, 3]
    assert gammas == pytest.approx([0.1, 0.2, 0.3, 0.4])


def test_match_gradient_takes_the_ratio_of_the_norms():
    problem = Problem()
    params = problem.parameters()
    optimizer = EntropySGD(params, L=5, lr=0.1, momentum=0.0, gamma=scoping.MatchGradient())
    closure = problem.closure(params, [0])
    expected = 1e-4
    for _ in range(10):
        optimizer.cycle(closure)
        d = optimizer.diagnostics()
        assert d["gamma"] == pytest.approx(expected)
        expected = min(d["gradient"] / d["x_minus_mu"], 1 / 0.1)


def test_match_gradient_matches_where_the_loss_is_linear():
    """A constant force g: the averaged displacement settles so that gamma |x - mu| = |g| to a few percent."""
    p = torch.nn.Parameter(torch.zeros(10, dtype=torch.float64))
    optimizer = EntropySGD([p], L=50, lr=0.1, momentum=0.0, noise=0.0, gamma=scoping.MatchGradient())
    for _ in range(40 * 50):
        p.grad = torch.ones_like(p)
        optimizer.step()
    d = optimizer.diagnostics()
    assert d["gamma"] * d["x_minus_mu"] == pytest.approx(d["gradient"], rel=0.05)


@pytest.mark.parametrize("maximum", [None, 0.05])
def test_match_gradient_is_bounded_and_survives_a_zero_gradient(maximum):
    p = torch.nn.Parameter(torch.ones(4))
    optimizer = EntropySGD([p], L=2, gamma=scoping.MatchGradient(maximum=maximum))
    for i in range(20):
        p.grad = torch.zeros_like(p) if i < 10 else torch.full_like(p, 1e6)
        optimizer.step()
    assert 0 <= optimizer.diagnostics()["gamma"] <= (maximum or 10)


@pytest.mark.parametrize("given", [None, 2.0])
@pytest.mark.parametrize("start", [0, 3])
def test_focus_starts_at_the_ratio_of_energies_and_grows(start, given):
    problem, T, growth, L = Problem(), 12, 50.0, 4
    params = problem.parameters()
    schedule = scoping.Focus(updates=T, start=start, growth=growth, loss=given)
    optimizer = EntropySGD(params, L=L, lr=0.5, noise=0.0, gamma=schedule)
    closure = problem.closure(params, [0])
    gammas, ratios = [], []
    for _ in range(8):
        f = float(optimizer.cycle(closure)) if given is None else (optimizer.cycle(closure), given)[1]
        d = optimizer.diagnostics()
        gammas.append(d["gamma"])
        ratios.append(f / (0.5 * d["x_minus_x_prime"] ** 2))
    first = max(start, 1)
    assert gammas[:first] == [0.0] * first
    expected = [ratios[first - 1] * growth ** (i / T) for i in range(8 - first)]
    assert gammas[first:] == pytest.approx(expected, rel=1e-9)


def test_focus_without_a_loss_says_what_it_needs():
    problem = Problem()
    params = problem.parameters()
    optimizer = EntropySGD(params, gamma=scoping.Focus(updates=10))
    problem.closure(params, [0])()
    before = flat(params).clone()
    with pytest.raises(RuntimeError, match=r"step\(closure\)"):
        optimizer.step()
    assert torch.equal(flat(params), before)


@pytest.mark.parametrize(
    "options", [{"updates": 0}, {"updates": 5, "growth": 0.5}, {"updates": 5, "start": -1}]
)
def test_focus_refuses_nonsense(options):
    with pytest.raises(ValueError, match="Focus"):
        scoping.Focus(**options)


def test_any_object_can_be_a_schedule_that_measures():
    class Halving:
        def __call__(self, t: int) -> float:
            return 1.0

        def after(self, gamma: float, cycle: scoping.Cycle) -> float:
            assert cycle.distance > 0
            return gamma / 2

    problem = Problem()
    params = problem.parameters()
    optimizer = EntropySGD(params, L=2, gamma=Halving())
    closure, gammas = problem.closure(params, [0]), []
    for _ in range(4):
        optimizer.cycle(closure)
        gammas.append(optimizer.diagnostics()["gamma"])
    assert gammas == [1.0, 0.5, 0.25, 0.125]
