from __future__ import annotations

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from entropy_sgd.landscape import local_entropy, smoothness_factor, stability_bound, stability_ratio


def displacement(f: object, x: Tensor, gamma: float) -> Tensor:
    """x - <x'> = -grad F / gamma, eq. (7)."""
    x = x.detach().requires_grad_()
    local_entropy(f, x, gamma).sum().backward()  # type: ignore[arg-type]
    return -x.grad / gamma


def test_the_displacement_to_first_order() -> None:
    """x - <x'> = (H + gamma I)^-1 grad f where f is quadratic; half of what is beyond, half the error."""
    h = torch.tensor([[2.0, 0.5], [0.5, 0.7]], dtype=torch.float64)
    x, gamma = torch.tensor([0.4, -0.3], dtype=torch.float64), 2.0
    errors: list[float] = []
    for beyond in (0.02, 0.01, 0.005):

        def f(p: Tensor, beyond: float = beyond) -> Tensor:
            return (
                ((p @ h) * p).sum(-1) / 2
                - p[..., 1]
                + beyond * torch.sin(p[..., 0]) * torch.cos(2 * p[..., 1])
            )

        gradient = torch.autograd.functional.jacobian(f, x)
        hessian = torch.autograd.functional.hessian(f, x)
        expected = torch.linalg.solve(hessian + gamma * torch.eye(2, dtype=torch.float64), gradient)
        errors.append(float((displacement(f, x, gamma) - expected).norm() / expected.norm()))
    assert 1e-4 < errors[0] < 0.02
    assert errors[0] / errors[1] == pytest.approx(2.0, rel=0.05)
    assert errors[1] / errors[2] == pytest.approx(2.0, rel=0.05)


def test_the_displacement_is_exact_on_a_quadratic() -> None:
    h = torch.tensor([[2.0, 0.5], [0.5, -0.3]], dtype=torch.float64)
    x = torch.tensor([1.0, -2.0], dtype=torch.float64)
    found = displacement(lambda p: ((p @ h) * p).sum(-1) / 2, x, 0.9)
    torch.testing.assert_close(found, torch.linalg.solve(h + 0.9 * torch.eye(2), h @ x), rtol=1e-6, atol=1e-7)


@pytest.mark.parametrize("gamma", [0.3, 1.0, 5.0])
def test_lemma_1_on_a_function_that_meets_its_assumption(gamma: float) -> None:
    """f'' lies in [c, beta], so F must be beta / (1 + c / gamma)-smooth.

    The Lemma's constant is loose where f'' is large, for A f'' = f'' / (1 + f''/gamma) grows less than f''.
    """
    c, beta = 0.5, 2.5

    def f(p: Tensor) -> Tensor:
        return 1.5 * p[..., 0] ** 2 / 2 + torch.cos(p[..., 0])  # f'' = 1.5 - cos

    x = torch.linspace(-4, 4, 161, dtype=torch.float64)[:, None]
    slope = gamma * displacement(f, x, gamma)[:, 0]
    curvature = slope.diff() / (x[1, 0] - x[0, 0])
    bound = beta * smoothness_factor(gamma, c)
    assert float(curvature.abs().max()) <= bound
    assert float(curvature.abs().max()) < beta
    # and on the constant curvature where it is sharp, F'' = -beta / (1 + beta / gamma)
    sharp = gamma * displacement(lambda p: beta * p[..., 0] ** 2 / 2, x, gamma)[:, 0]
    assert float((sharp.diff() / 0.05).max()) == pytest.approx(
        beta * smoothness_factor(gamma, beta), rel=1e-6
    )


@pytest.mark.parametrize("gamma", [0.3, 1.0, 5.0])
def test_lemma_1_multiplies_the_lipschitz_constant_by_the_factor(gamma: float) -> None:
    """f = c x^2 / 2 has slopes up to 2 c on [-2, 2]; those of F, by quadrature, are the factor times that."""
    c = 0.5
    x = torch.linspace(-2, 2, 9, dtype=torch.float64)[:, None]
    slope = gamma * displacement(lambda p: c * p[..., 0] ** 2 / 2, x, gamma)
    alpha = 2 * c
    assert float(slope.abs().max()) == pytest.approx(alpha * smoothness_factor(gamma, c), rel=1e-6)
    assert float(slope.abs().max()) < alpha


@pytest.mark.parametrize("gamma", [0.3, 1.0, 5.0])
def test_the_factor_is_the_largest_norm_of_a_outside_the_gap(gamma: float) -> None:
    """max |1 / (1 + lambda / gamma)| over eigenvalues outside (-2 gamma - c, c), reached at both ends."""
    c = 0.5
    ends = torch.tensor([-2 * gamma - c, c], dtype=torch.float64)
    outside = torch.cat([ends, ends + torch.tensor([[-0.1, 0.1], [-3.0, 7.0]]).sum(0)])
    norms = (1 / (1 + outside / gamma)).abs()
    assert float(norms.max()) == pytest.approx(smoothness_factor(gamma, c), rel=1e-12)
    torch.testing.assert_close(norms[:2], norms.max().expand(2))
    assert float((1 / (1 + torch.tensor(-1.9 * gamma) / gamma)).abs()) > smoothness_factor(gamma, c)


@pytest.mark.parametrize("gamma", [0.05, 1.0, 20.0])
def test_a_convex_loss_keeps_its_minimiser(gamma: float) -> None:
    """For a convex f that is symmetric about its minimiser, -F has the same minimiser and is convex."""
    x = torch.linspace(-1, 3, 81, dtype=torch.float64)[:, None]
    negative = -local_entropy(lambda p: torch.cosh(p[..., 0] - 1.0), x, gamma)
    assert float(x[negative.argmin(), 0]) == pytest.approx(1.0)
    assert bool((negative.diff(n=2) > 0).all())


def test_without_symmetry_the_minimiser_of_a_convex_loss_moves() -> None:
    """The paper's remark holds to the order of its proof: the Gaussian average feels the third derivative."""
    x = torch.linspace(-1, 1, 401, dtype=torch.float64)[:, None]

    def f(p: Tensor) -> Tensor:
        return torch.exp(p[..., 0]) - p[..., 0]

    shifts = [float(x[(-local_entropy(f, x, gamma)).argmin(), 0]) for gamma in (1.0, 30.0)]
    assert shifts[0] < -0.2  # towards the flatter side
    assert abs(shifts[1]) < 0.05  # and back as gamma grows


positive = st.floats(1e-3, 1e3)


@settings(max_examples=50)
@given(positive, positive, positive, st.floats(1e-3, 10), st.integers(1, 10**7))
def test_the_stability_ratio(gamma: float, c: float, alpha: float, beta: float, T: int) -> None:
    ratio = stability_ratio(gamma, c, alpha, beta, T)
    assert ratio == pytest.approx(math.exp((c / (gamma + c)) * beta * math.log(alpha / T)), rel=1e-9)
    assert (ratio <= 1.0) == (alpha <= T) or ratio == 1.0


def test_eq_9_is_the_ratio_of_two_bounds_for_a_small_beta() -> None:
    """Theorem 3 with alpha and beta both multiplied by Lemma 1's factor k; eq. (9) also drops k itself."""
    gamma, c, alpha, T, N = 0.2, 0.1, 3.0, 10_000, 500
    k = smoothness_factor(gamma, c)
    for beta, tolerance in ((1e-4, 1e-5), (1e-3, 2e-3), (1e-2, 0.2)):
        full = stability_bound(k * alpha, k * beta, T, N) / stability_bound(alpha, beta, T, N)
        printed = stability_ratio(gamma, c, alpha, beta, T)
        assert full / k ** (1 / (1 + k * beta)) == pytest.approx(printed, rel=tolerance)


def test_more_scope_less_smoothing() -> None:
    assert smoothness_factor(1.0, 1.0) == 0.5
    assert smoothness_factor(1e-9, 1.0) < 1e-8
    assert smoothness_factor(1e9, 1.0) == pytest.approx(1.0)
    with pytest.raises(ValueError, match="gamma"):
        smoothness_factor(0.0, 1.0)
    with pytest.raises(ValueError, match="T must"):
        stability_ratio(1.0, 1.0, 1.0, 1.0, 0)
