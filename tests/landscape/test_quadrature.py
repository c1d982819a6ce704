from __future__ import annotations

import math
import warnings

import pytest
import scipy.integrate
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from entropy_sgd.landscape import local_entropy


def quadratic(h: Tensor, g: Tensor, x: Tensor, gamma: float) -> Tensor:
    """F of f(x') = g.x' + x'^T H x' / 2 in closed form."""
    d = len(g)
    slope = g + x @ h
    shifted = h + gamma * torch.eye(d, dtype=torch.float64)
    value = x @ g + ((x @ h) * x).sum(-1) / 2
    solve = (slope @ torch.linalg.inv(shifted) * slope).sum(-1) / 2
    return -value + solve + d / 2 * math.log(2 * math.pi) - torch.linalg.slogdet(shifted)[1] / 2


@settings(deadline=None, max_examples=25)
@given(st.floats(-0.9, 1e4), st.floats(-50, 50), st.floats(1e-3, 1e3), st.floats(-3, 3))
def test_quadratics_of_one_variable(relative: float, g: float, gamma: float, x: float) -> None:
    h = relative * gamma
    slope = torch.tensor([g * math.sqrt(gamma)], dtype=torch.float64)
    matrix, point = torch.tensor([[h]], dtype=torch.float64), torch.tensor([[x]], dtype=torch.float64)
    found = local_entropy(lambda p: (p @ slope) + h * p[..., 0] ** 2 / 2, point, gamma)
    torch.testing.assert_close(found, quadratic(matrix, slope, point, gamma), rtol=1e-9, atol=1e-8)


def test_quadratics_of_two_variables() -> None:
    h = torch.tensor([[3.0, 1.0], [1.0, -0.5]], dtype=torch.float64)
    g = torch.tensor([0.3, -2.0], dtype=torch.float64)
    x = torch.tensor([[[0.0, 0.0], [1.0, -2.0]], [[4.0, 0.5], [-1.0, 1.0]]], dtype=torch.float64)
    found = local_entropy(lambda p: p @ g + ((p @ h) * p).sum(-1) / 2, x, 2.0)
    assert found.shape == (2, 2)
    torch.testing.assert_close(found, quadratic(h, g, x, 2.0), rtol=1e-9, atol=1e-9)


def test_a_double_well_against_scipy() -> None:
    def f(p: float) -> float:
        return 8 * (p**2 - 1) ** 2 + p

    x = torch.tensor([[-1.3], [0.0], [0.4]])
    found = local_entropy(lambda p: 8 * (p[..., 0] ** 2 - 1) ** 2 + p[..., 0], x, 0.7)
    for value, (point,) in zip(found, x.double().tolist(), strict=True):
        integral, _ = scipy.integrate.quad(
            lambda p, point=point: math.exp(-f(p) - 0.35 * (p - point) ** 2),
            -6,
            6,
            points=[-1, 1],
            epsabs=1e-14,
        )
        assert float(value) == pytest.approx(math.log(integral), abs=1e-6)
    assert found.dtype == torch.float32


def test_a_distant_deep_well_is_not_cut_off() -> None:
    """Most of the mass 14 standard deviations from x: the grid must widen."""
    found = local_entropy(lambda p: -200 * torch.exp(-((p[..., 0] - 14) ** 2) / 2), torch.zeros(1, 1), 1.0)
    integral, _ = scipy.integrate.quad(
        lambda p: math.exp(200 * math.exp(-((p - 14) ** 2) / 2) - p**2 / 2 - 100),
        10,
        18,
        points=[13.9],
        limit=200,
    )
    assert float(found) == pytest.approx(math.log(integral) + 100, abs=1e-4)


def test_walls_and_kinks() -> None:
    """A half-line (a wall at 0) halves a centred Gaussian; |x| has a closed form with erfc."""
    with pytest.warns(RuntimeWarning, match="accurate to about"):
        half = local_entropy(
            lambda p: torch.where(p[..., 0] < 0, math.inf, 0.0), torch.zeros(1, 1).double(), 4.0
        )
    assert float(half) == pytest.approx(math.log(math.sqrt(2 * math.pi / 4) / 2), abs=1e-4)
    kink = local_entropy(lambda p: p[..., 0].abs(), torch.zeros(1, 1).double(), 1.0)
    exact = math.log(2 * math.sqrt(math.pi / 2) * math.exp(0.5) * math.erfc(math.sqrt(0.5)))
    assert float(kink) == pytest.approx(exact, abs=1e-9)


def test_the_gradient_is_gamma_times_the_displacement() -> None:
    """-grad F = gamma (x - <x'>), eq. (7), with <x'> integrated by scipy."""
    x = torch.tensor([0.3], dtype=torch.float64, requires_grad=True)
    local_entropy(lambda p: torch.sin(3 * p[..., 0]) + p[..., 0] ** 4, x, 1.5).backward()

    def density(p: float) -> float:
        return math.exp(-math.sin(3 * p) - p**4 - 0.75 * (p - 0.3) ** 2)

    mean = scipy.integrate.quad(lambda p: p * density(p), -5, 5)[0] / scipy.integrate.quad(density, -5, 5)[0]
    assert float(-x.grad) == pytest.approx(1.5 * (0.3 - mean), abs=1e-8)


def test_a_needle_comes_with_a_warning() -> None:
    with pytest.warns(RuntimeWarning, match="too sharp"):
        local_entropy(lambda p: torch.where(p.abs().sum(-1) < 0.004, -50.0, 0.0), torch.zeros(1, 2), 1.0)


@pytest.mark.parametrize("gamma", [0, -1.0, math.inf, math.nan])
def test_gamma_must_be_positive(gamma: float) -> None:
    with pytest.raises(ValueError, match="gamma"):
        local_entropy(lambda p: p[..., 0] ** 2, torch.zeros(1, 1), gamma)


def test_nonsense_is_refused() -> None:
    zero = torch.zeros(1, 1)
    with pytest.raises(ValueError, match="1 or 2 entries"):
        local_entropy(lambda p: p.sum(-1), torch.zeros(2, 3), 1.0)
    with pytest.raises(ValueError, match="must map points"):
        local_entropy(lambda p: p**2, zero, 1.0)
    with pytest.raises(ValueError, match="NaN"):
        local_entropy(lambda p: p[..., 0].log(), zero, 1.0)
    with pytest.raises(ValueError, match="not finite"):
        local_entropy(lambda p: p[..., 0], zero / 0, 1.0)
    with pytest.raises(ValueError, match="F diverges near x"):
        local_entropy(lambda p: -(p[..., 0] ** 2), zero, 1.0)


def test_a_grid_that_had_to_reach_far_is_not_called_inaccurate():
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        found = local_entropy(lambda p: -0.499 * (p**2).sum(-1), torch.zeros(2, dtype=torch.float64), 1.0)
    assert float(found) == pytest.approx(math.log(2 * math.pi / (1 - 2 * 0.499)), abs=1e-10)
