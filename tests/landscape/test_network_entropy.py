from __future__ import annotations

import math
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from entropy_sgd.landscape import (
    gibbs_chains,
    laplace_expansion,
    local_entropy,
    network_local_entropy,
)
from entropy_sgd.landscape import thermodynamic_integration as integration
from entropy_sgd.landscape.thermodynamic_integration import rule, thermodynamic_integration


def regression() -> tuple[nn.Module, list[tuple[Tensor, Tensor]], Tensor, Tensor, float]:
    """Least squares, whose loss is a quadratic: the model, its data, Hessian, gradient and loss."""
    torch.manual_seed(0)
    model = nn.Linear(6, 1, bias=False).double()
    x, y = torch.randn(15, 6, dtype=torch.float64) * 2, torch.randn(15, 1, dtype=torch.float64)
    residual = (model(x) - y).detach()
    batches = [(x[:4], y[:4]), (x[4:], y[4:])]
    return model, batches, 2 * x.T @ x / 15, (2 * x.T @ residual / 15).flatten(), float((residual**2).mean())


def closed_form(h: Tensor, g: Tensor, f: float, gamma: float) -> float:
    shifted = h + gamma * torch.eye(len(h), dtype=torch.float64)
    solve = float(g @ torch.linalg.solve(shifted, g))
    return -f + solve / 2 + len(h) / 2 * math.log(2 * math.pi) - float(torch.logdet(shifted)) / 2


@pytest.mark.parametrize("gamma", [1e-3, 0.5, 100.0])
def test_laplace_is_exact_on_a_quadratic(gamma: float) -> None:
    model, batches, h, g, f = regression()
    found = network_local_entropy(model, F.mse_loss, batches, gamma)
    expected = closed_form(h, g, f, gamma)
    assert found.value == pytest.approx(expected, rel=1e-9)
    assert found.normalized == pytest.approx(expected - 3 * math.log(2 * math.pi / gamma), rel=1e-9)
    assert found.error < 1e-9


@pytest.mark.parametrize("gamma", [0.5, 20.0])
def test_langevin_agrees_with_the_closed_form(gamma: float) -> None:
    model, batches, h, g, f = regression()
    found = network_local_entropy(model, F.mse_loss, batches, gamma, method="langevin", steps=800)
    expected = closed_form(h, g, f, gamma)
    assert abs(found.value - expected) < 4 * found.error
    assert 0 < found.error < 0.2
    assert found.value - found.normalized == pytest.approx(3 * math.log(2 * math.pi / gamma))


def test_langevin_agrees_with_quadrature_on_a_double_well() -> None:
    """Here Laplace at x = 0, the barrier, would be meaningless."""

    def f(p: Tensor) -> Tensor:
        return 2 * (p[..., 0] ** 2 - 1) ** 2 + 0.5 * p[..., 0] + 0.3 * p[..., 1] ** 4 - p[..., 0] * p[..., 1]

    def values_and_gradients(points: Tensor) -> tuple[Tensor, Tensor]:
        points = points.detach().requires_grad_()
        values = f(points)
        return values.detach(), torch.autograd.grad(values.sum(), points)[0]

    x, gamma = torch.zeros(2, dtype=torch.float64), 0.8
    found, error = thermodynamic_integration(values_and_gradients, x, gamma, chains=4, steps=3000, seed=0)
    expected = float(local_entropy(f, x, gamma)) - math.log(2 * math.pi / gamma)
    assert abs(found - expected) < 4 * error
    assert error < 0.1


def test_the_langevin_error_is_honest() -> None:
    """Deviations over seeds are as large as the errors say, within what 12 runs can tell."""
    h = torch.tensor([0.1, 3.0, 30.0], dtype=torch.float64)

    def values_and_gradients(points: Tensor) -> tuple[Tensor, Tensor]:
        return (h * points**2).sum(1) / 2, h * points

    expected = -float(torch.log1p(h).sum()) / 2
    deviations: list[float] = []
    for seed in range(12):
        found, error = thermodynamic_integration(
            values_and_gradients, torch.zeros(3, dtype=torch.float64), 1.0, chains=2, steps=600, seed=seed
        )
        deviations.append((found - expected) / error)
    root = math.sqrt(sum(d**2 for d in deviations) / len(deviations))
    assert 0.3 < root < 1.7


def high_barrier(points: Tensor) -> tuple[Tensor, Tensor]:
    """Two wells of different depth behind a barrier of 40, which no chain crosses at t = 1."""
    x = points[:, 0]
    return 40 * (x**2 - 1) ** 2 + 2 * x, (160 * x * (x**2 - 1) + 2)[:, None]


def test_exchanges_carry_chains_across_a_barrier() -> None:
    x = torch.zeros(1, dtype=torch.float64)
    expected = float(local_entropy(lambda p: high_barrier(p.reshape(-1, 1))[0].view(p.shape[:-1]), x, 0.5))
    for seed in range(3):
        found, error = thermodynamic_integration(high_barrier, x, 0.5, chains=2, steps=1000, seed=seed)
        assert abs(found + math.log(2 * math.pi / 0.5) / 2 - expected) < 4 * error
        assert error < 0.4


def test_chains_that_do_not_mix_are_seen_in_the_error(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without exchanges, and with a start on the barrier, each chain stays in one of two wells."""
    monkeypatch.setattr(gibbs_chains, "_exchange", lambda t, *_: torch.arange(len(t)))
    monkeypatch.setattr(
        integration, "rule", lambda: (torch.ones(1), torch.ones(1).double(), torch.ones(1).double())
    )
    x = torch.zeros(1, dtype=torch.float64)
    _, error = thermodynamic_integration(high_barrier, x, 0.5, chains=8, steps=400, seed=0)
    # <f> is about -1.5 in one well and 2.5 in the other; eight chains among both scatter by 2.
    assert error == pytest.approx(2.0 / math.sqrt(8), rel=0.4)


def test_the_quadrature_over_temperatures() -> None:
    """int_0^1 r / (1 + r t) dt = log(1 + r), what a direction of curvature r gamma contributes (twice)."""
    t, kronrod, gauss = rule()
    assert float(kronrod.sum()) == pytest.approx(1.0, abs=1e-12)
    assert float(gauss.sum()) == pytest.approx(1.0, abs=1e-4)
    for r, tolerance in ((0.1, 1e-12), (10.0, 1e-7), (1e3, 1e-3), (1e5, 0.02)):
        assert float(kronrod @ (r / (1 + r * t))) == pytest.approx(math.log1p(r), abs=tolerance)


def test_both_methods_agree_on_a_network(mlp: Any) -> None:
    """At a gamma that keeps x' near x the expansion to second order holds."""
    laplace = network_local_entropy(*mlp, 30.0)
    langevin = network_local_entropy(*mlp, 30.0, method="langevin", steps=400)
    assert abs(laplace.value - langevin.value) < 4 * langevin.error + 0.01
    assert langevin.error < 0.05


def test_laplace_with_few_probes_is_within_its_error() -> None:
    """A spectrum like a network's: 300 parameters of which Lanczos sees a part."""
    torch.manual_seed(2)
    x = torch.randn(100, 300, dtype=torch.float64) * torch.logspace(0.5, -2, 300, dtype=torch.float64)
    model = nn.Linear(300, 1, bias=False).double()
    y = torch.randn(100, 1, dtype=torch.float64)
    residual = (model(x) - y).detach()
    h, g = 2 * x.T @ x / 100, (2 * x.T @ residual / 100).flatten()
    for gamma in (1e-3, 0.1):  # seed 2 is also the data's: the probes must not be the data
        expected = closed_form(h, g, float((residual**2).mean()), gamma)
        for seed in range(3):
            found = network_local_entropy(model, F.mse_loss, [(x, y)], gamma, probes=6, steps=12, seed=seed)
            assert found.error > 0
            assert abs(found.value - expected) < 4 * found.error


SPECTRA = {
    "twelve decades": torch.logspace(-10, 2, 3000, dtype=torch.float64),
    "uniform": torch.linspace(0, 10, 3000, dtype=torch.float64),
    "half zeros": torch.cat([torch.zeros(1500), torch.logspace(-7, 1, 1500)]).double(),
    "bulk and outliers": torch.cat(
        [torch.linspace(-0.03, 0.03, 2980) ** 3 + 3e-5, torch.logspace(0, 2, 20)]
    ).double(),
}


@pytest.mark.parametrize("steps", [4, 6, 7, 10, 20])
@pytest.mark.parametrize("spectrum", SPECTRA)
def test_laplace_with_too_few_steps_is_within_its_error(spectrum: str, steps: int) -> None:
    """A diagonal H at its minimum, in closed form."""
    h = SPECTRA[spectrum]
    model, batches = nn.Linear(1, len(h), bias=False).double(), [(torch.ones(1, 1), torch.zeros(1))]
    nn.init.zeros_(model.weight)
    expansion = laplace_expansion(model, lambda w, t: (h * w**2).sum() / 2, batches, probes=16, steps=steps)
    for gamma in (1e-5, 1e-4, 1e-3, 1e-2, 0.1):
        found = expansion.local_entropy(gamma)
        assert abs(found.normalized + float(torch.log1p(h / gamma).sum()) / 2) < 2 * found.error


def test_where_lanczos_has_converged_only_the_probes_scatter() -> None:
    """v^T A v over unit vectors v has the variance 2 (<a^2> - <a>^2) / (n + 2), a the eigenvalues of A."""
    h = SPECTRA["half zeros"]
    model, batches = nn.Linear(1, len(h), bias=False).double(), [(torch.ones(1, 1), torch.zeros(1))]
    nn.init.zeros_(model.weight)
    found = network_local_entropy(model, lambda w, t: (h * w**2).sum() / 2, batches, 0.1, probes=48, steps=40)
    n, a = len(h), torch.log1p(h / 0.1)
    scatter = n * math.sqrt(2 * float(a.var(correction=0)) / (n + 2) / 48) / 2
    assert found.error == pytest.approx(scatter, rel=0.3)


def test_one_expansion_serves_every_gamma() -> None:
    """The closed form for each gamma, from one process of Lanczos, also after one without an integral."""
    torch.manual_seed(4)
    x, y = torch.randn(40, 9, dtype=torch.float64), torch.randn(40, 1, dtype=torch.float64)
    model = nn.Linear(9, 1, bias=False).double()
    residual = (model(x) - y).detach()
    h, g = -2 * x.T @ x / 40, (-2 * x.T @ residual / 40).flatten()
    passes: list[int] = []

    class Counted:
        def __iter__(self) -> Any:
            passes.append(1)
            return iter([(x, y)])

    expansion = laplace_expansion(
        model, lambda outputs, targets: -F.mse_loss(outputs, targets), Counted(), probes=64
    )
    read = len(passes)
    with pytest.raises(ValueError, match="most negative eigenvalue"):
        expansion.local_entropy(1e-3)
    for gamma in (8.0, 20.0, 300.0):
        expected = closed_form(h, g, -float((residual**2).mean()), gamma)
        found = expansion.local_entropy(gamma)
        assert abs(found.value - expected) < 4 * found.error + 1e-9
        assert found.error < 0.2
    assert len(passes) == read


@pytest.mark.parametrize("gamma", [0.0, -1.0, math.nan])
def test_an_expansion_refuses_what_is_no_gamma(gamma: float, mlp: Any) -> None:
    with pytest.raises(ValueError, match="gamma must be a finite number above 0"):
        laplace_expansion(*mlp, probes=2, steps=2).local_entropy(gamma)


def test_lstm_and_convolution_by_both_methods(problem: Any) -> None:
    laplace = network_local_entropy(*problem, 50.0)
    langevin = network_local_entropy(*problem, 50.0, method="langevin", steps=60, chains=1)
    assert abs(laplace.value - langevin.value) < 5 * langevin.error + 0.05


def test_a_large_gamma_gives_the_loss_itself(mlp: Any) -> None:
    """F, normalised, tends to -f as gamma grows."""
    model, loss_fn, batches = mlp
    x, y = (torch.cat(part) for part in zip(*batches, strict=True))
    found = network_local_entropy(model, loss_fn, batches, 1e8)
    assert found.normalized == pytest.approx(-float(loss_fn(model(x), y).detach()), abs=1e-5)


def test_negative_curvature_beyond_gamma_is_refused() -> None:
    class Saddle(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.w = nn.Parameter(torch.zeros(3))

        def forward(self, inputs: Tensor) -> Tensor:
            return torch.cos(self.w).sum().expand(len(inputs))

    batches = [(torch.zeros(2, 1), torch.zeros(2))]
    with pytest.raises(ValueError, match="larger gamma"):
        network_local_entropy(Saddle(), lambda o, t: o.mean(), batches, 0.5)
    # Langevin has no such limit: three independent copies of one variable.
    found = network_local_entropy(Saddle(), lambda o, t: o.mean(), batches, 0.5, method="langevin", steps=800)
    one = float(local_entropy(lambda p: torch.cos(p[..., 0]), torch.zeros(1).double(), 0.5))
    assert abs(found.value - 3 * one) < 4 * found.error


@pytest.mark.parametrize("gamma", [0.0, -1.0, math.nan, math.inf])
def test_gamma_must_be_positive(gamma: float, mlp: Any) -> None:
    with pytest.raises(ValueError, match="gamma"):
        network_local_entropy(*mlp, gamma)


@pytest.mark.parametrize(
    "arguments",
    [{"method": "exact"}, {"probes": 1}, {"steps": 1}, {"chains": 0}],
    ids=lambda a: next(iter(a)),
)
def test_nonsense_is_refused(arguments: dict[str, Any], mlp: Any) -> None:
    with pytest.raises(ValueError, match=next(iter(arguments))):
        network_local_entropy(*mlp, 1.0, **arguments)
