"""The inner chain samples what the paper says it samples, and its average is the local-entropy gradient."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from scipy import integrate

from entropy_sgd import SGLD, EntropySGD


def chain(
    force, x: float, gamma: float, *, eta: float, epsilon: float, steps: int, copies: int
) -> torch.Tensor:
    """x' after each step of one long cycle begun at x, for `copies` independent chains: (steps, copies)."""
    p = torch.nn.Parameter(torch.full((copies,), x, dtype=torch.float64))
    optimizer = EntropySGD(
        [p], L=steps + 1, inner_lr=eta, inner_momentum=0.0, gamma=gamma, noise=epsilon, monitor=False
    )
    samples = torch.empty(steps, copies, dtype=torch.float64)
    for i in range(steps):
        p.grad = force(p.detach())
        optimizer.step()
        samples[i] = p.detach()
    return samples


def test_on_a_quadratic_the_stationary_law_is_the_closed_form():
    """x' = (1 - eta k) x' + eta gamma x + sqrt(eta) eps z with k = h + gamma: an AR(1) process."""
    h, gamma, x, eta, epsilon = 0.8, 0.5, 1.5, 0.2, 0.7
    samples = chain(lambda y: h * y, x, gamma, eta=eta, epsilon=epsilon, steps=60, copies=40_000)[-1]
    k = h + gamma
    mean = gamma * x / k
    variance = eta * epsilon**2 / (1 - (1 - eta * k) ** 2)
    n = len(samples)
    assert abs(samples.mean() - mean) < 4.5 * math.sqrt(variance / n)
    assert abs(samples.var() / variance - 1) < 4.5 * math.sqrt(2 / n)


def test_gamma_times_x_minus_mu_is_the_gradient_of_local_entropy_on_a_quadratic():
    """Eqn. (7) of the paper; with f = h y^2 / 2, -dF/dx = gamma h x / (h + gamma), exactly."""
    h, gamma, x = 2.0, 0.6, 0.9
    samples = chain(lambda y: h * y, x, gamma, eta=0.02, epsilon=math.sqrt(2), steps=400, copies=20_000)
    mu = samples[200:].mean(0)  # time averages after burn-in, one a chain: independent of one another
    estimate = gamma * (x - mu)
    error = estimate.std() / math.sqrt(len(estimate))
    exact = gamma * h * x / (h + gamma)
    assert error < 0.01
    assert abs(estimate.mean() - exact) < 4.5 * error


def test_gamma_times_x_minus_mu_is_the_gradient_of_local_entropy_on_a_double_well():
    """f = (y^2 - 1)^2 + y / 4: the exact gradient by quadrature, d/dx log of the integral in Eqn. (5)."""
    gamma, x, eta = 1.5, 0.3, 0.002

    def density(y: float) -> float:
        return math.exp(-((y * y - 1) ** 2) - y / 4 - gamma / 2 * (x - y) ** 2)

    z = integrate.quad(density, -6, 6, epsabs=1e-12)[0]
    mean = integrate.quad(lambda y: y * density(y), -6, 6, epsabs=1e-12)[0] / z
    exact = gamma * (x - mean)
    samples = chain(
        lambda y: 4 * y * (y * y - 1) + 0.25, x, gamma, eta=eta, epsilon=math.sqrt(2), steps=4000, copies=4000
    )
    estimate = gamma * (x - samples[2000:].mean(0))
    error = float(estimate.std() / math.sqrt(len(estimate)))
    assert error < 0.01
    # the chain's own bias is of order eta; halving eta halves it, and 2 eta bounds it here
    assert abs(float(estimate.mean()) - exact) < 4.5 * error + 2 * eta


def test_alpha_weights_the_newest_sample():
    """Line 6 unrolled: mu = (1 - alpha)^L x + alpha sum (1 - alpha)^(L - l) x'_l."""
    p = torch.nn.Parameter(torch.tensor([2.0], dtype=torch.float64))
    optimizer = EntropySGD(
        [p], lr=1.0, momentum=0.0, L=4, alpha=0.3, noise=0.1, gamma=0.2, inner_momentum=0.0
    )
    seen, x = [], 2.0
    for _ in range(4):
        p.grad = p.detach().clone()
        before = p.item()
        optimizer.step()
        seen.append(p.item() if len(seen) < 3 else before)
    # the last x' is overwritten by x; rebuild it from line 5 with the same draw
    from entropy_sgd.optim.noise import Span, gaussian

    z = gaussian([Span(0, 0, 1)], 0, 0, 3, torch.device("cpu"))[0].item()
    seen[3] = seen[2] - 0.1 * (seen[2] - 0.2 * (x - seen[2])) + math.sqrt(0.1) * 0.1 * z
    mu = 0.7**4 * x + 0.3 * sum(0.7 ** (3 - i) * s for i, s in enumerate(seen))
    np.testing.assert_allclose(p.item(), mu, rtol=1e-12)


def test_sgld_samples_the_gibbs_law_of_f():
    """With a small constant step on f = h y^2 / 2, the variance is eps^2 / h, up to the step's own bias."""
    h, eta, epsilon, n = 1.7, 0.1, 0.8, 40_000
    p = torch.nn.Parameter(torch.zeros(n, dtype=torch.float64))
    sampler = SGLD([p], lr=eta, b=0.0, noise=epsilon)
    for _ in range(150):
        p.grad = h * p.detach()
        sampler.step()
    exact = eta * epsilon**2 / (1 - (1 - eta / 2 * h) ** 2)
    assert abs(exact / (epsilon**2 / h) - 1) < eta
    assert abs(p.detach().var() / exact - 1) < 4.5 * math.sqrt(2 / n)
    assert abs(p.detach().mean()) < 4.5 * math.sqrt(exact / n)


def test_sgld_follows_its_schedule():
    p = torch.nn.Parameter(torch.tensor([1.0, -2.0], dtype=torch.float64))
    sampler = SGLD([p], lr=0.3, b=0.6, noise=0.0, weight_decay=0.1)
    x = p.detach().clone()
    for t in range(20):
        p.grad = torch.sin(p.detach())
        sampler.step()
        x = x - 0.3 / (1 + t) ** 0.6 / 2 * (torch.sin(x) + 0.1 * x)
        torch.testing.assert_close(p.detach(), x, rtol=0, atol=1e-14)


@pytest.mark.parametrize(("inner", "momentum"), [("sgd", 0.0), ("sghmc", 0.8), ("sgnht", 0.8)])
def test_samplers_reproduce_mean_and_covariance_of_a_gaussian(inner, momentum):
    """f = (y - m)' A (y - m) / 2 at the temperature T = noise^2 / 2: mean m, covariance T A^-1 + O(eta)."""
    A = torch.tensor([[2.0, 0.6], [0.6, 1.0]], dtype=torch.float64)
    m = torch.tensor([0.5, -1.0], dtype=torch.float64)
    epsilon, eta, copies = 1.2, 0.01, 4000
    y = torch.nn.Parameter(torch.zeros(copies, 2, dtype=torch.float64))
    optimizer = EntropySGD(
        [y], L=10**6, gamma=0.0, noise=epsilon, inner=inner, inner_lr=eta, inner_momentum=momentum,
        monitor=False,
    )  # fmt: skip
    means, second, kept = torch.zeros(2).double(), torch.zeros(2, 2).double(), 0
    for step in range(1500):
        y.grad = (y.detach() - m) @ A
        optimizer.step()
        if step >= 700 and step % 20 == 0:
            centred = y.detach() - m
            means += y.detach().mean(0)
            second += centred.T @ centred / copies
            kept += 1
    covariance = epsilon**2 / 2 * torch.linalg.inv(A)
    # The step of first order has a bias of about eta lambda / 2 = 1 %.
    torch.testing.assert_close(means / kept, m, rtol=0, atol=0.03)
    torch.testing.assert_close(second / kept, covariance, rtol=0.04, atol=0.01)


def test_the_thermostat_absorbs_the_noise_of_mini_batches():
    """SGHMC heats up by the gradient's noise, which it does not know of; SGNHT keeps the temperature."""
    epsilon, eta, copies, spread = 1.0, 0.02, 4000, 2.0
    variance = {}
    for inner in ("sghmc", "sgnht"):
        generator = torch.Generator().manual_seed(1)
        y = torch.nn.Parameter(torch.zeros(copies, dtype=torch.float64))
        optimizer = EntropySGD(
            [y], L=10**6, gamma=0.0, noise=epsilon, inner=inner, inner_lr=eta, inner_momentum=0.9,
            monitor=False,
        )  # fmt: skip
        squares = []
        for step in range(3000):
            y.grad = y.detach() + spread * torch.randn(copies, generator=generator, dtype=torch.float64)
            optimizer.step()
            if step >= 1500 and step % 50 == 0:
                squares.append(y.detach().square().mean())
        variance[inner] = torch.stack(squares).mean().item()
    assert variance["sgnht"] == pytest.approx(epsilon**2 / 2, rel=0.1)
    assert variance["sghmc"] > 1.3 * epsilon**2 / 2
