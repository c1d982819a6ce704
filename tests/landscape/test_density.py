from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from entropy_sgd.landscape import SpectralDensity, spectral_density

Oracle = Callable[[Any], Tensor]


class Quadratic(nn.Module):
    """f(w) = w^T H w / 2 for any H, as a module with a loss."""

    def __init__(self, h: Tensor) -> None:
        super().__init__()
        self.w = nn.Parameter(torch.randn(len(h), dtype=h.dtype))
        self.register_buffer("h", h)

    def forward(self, inputs: Tensor) -> Tensor:
        return (self.w @ self.h @ self.w / 2).expand(len(inputs))


def mean_loss(outputs: Tensor, targets: Tensor) -> Tensor:
    return outputs.mean()


BATCH = [(torch.zeros(2, 1), torch.zeros(2))]


def test_all_eigenvalues_where_the_space_is_exhausted(problem: Any, oracle: Oracle) -> None:
    problem.model.double()
    found = spectral_density(*problem, probes=4, steps=100)
    expected = torch.linalg.eigvalsh(oracle(problem))
    if found.exact:
        torch.testing.assert_close(found.nodes, expected, rtol=1e-9, atol=1e-11)
        assert found.trace == pytest.approx(float(expected.sum()), rel=1e-9)
        assert found.trace_error == 0.0
    # The bias of a softmax has a multiple eigenvalue 0, so the probes' space can be smaller.
    assert found.extremes[0] == pytest.approx(float(expected[0]), abs=1e-10)
    assert found.extremes[1] == pytest.approx(float(expected[-1]), rel=1e-10)


def test_single_precision_agrees(problem: Any, oracle: Oracle) -> None:
    found = spectral_density(*problem, probes=4, steps=20)
    expected = torch.linalg.eigvalsh(oracle(problem))
    assert found.extremes[1] == pytest.approx(float(expected[-1]), rel=1e-4)
    assert found.extremes[0] == pytest.approx(float(expected[0]), abs=1e-5 * float(expected[-1]))


def test_nodes_and_weights_have_the_moments_of_the_spectrum() -> None:
    torch.manual_seed(0)
    a = torch.randn(400, 400, dtype=torch.float64)
    h = (a + a.T) / math.sqrt(800)
    model = Quadratic(h)
    found = spectral_density(model, mean_loss, BATCH, probes=16, steps=20, seed=3)
    assert found.nodes.shape == found.weights.shape == (320,)
    assert float(found.weights.sum()) == pytest.approx(1.0, abs=1e-12)
    assert bool((found.weights >= 0).all())
    values = torch.linalg.eigvalsh(h)
    for power in (1, 2, 4):
        estimate, error = found.trace_of(lambda nodes, p=power: nodes**p)
        assert abs(estimate - float((values**power).sum())) < 4 * error
        assert 0 < error < 40
    assert found.trace == found.trace_of(lambda nodes: nodes)[0]


def test_standard_error_is_honest() -> None:
    """Over many seeds the deviation of the trace is as large as the error says."""
    torch.manual_seed(0)
    h = torch.diag(torch.randn(40, dtype=torch.float64))
    model = Quadratic(h)
    runs = [spectral_density(model, mean_loss, BATCH, probes=8, steps=2, seed=s) for s in range(150)]
    deviations = torch.tensor([(run.trace - float(h.trace())) / run.trace_error for run in runs])
    assert abs(float(deviations.mean())) < 0.35
    assert 0.8 < float(deviations.std()) < 1.5  # Student's t with 7 degrees of freedom has 1.18


def test_the_density_integrates_to_one_and_follows_the_spectrum() -> None:
    """Wigner's semicircle."""
    torch.manual_seed(1)
    a = torch.randn(500, 500, dtype=torch.float64)
    found = spectral_density(Quadratic((a + a.T) / math.sqrt(1000)), mean_loss, BATCH, probes=32, steps=20)
    grid = torch.linspace(-3, 3, 601)
    density = found.density(grid, width=0.08)
    assert float(torch.trapezoid(density, grid.double())) == pytest.approx(1.0, abs=1e-6)
    semicircle = torch.sqrt((4 - grid.double() ** 2).clamp(min=0)) / (2 * math.pi)
    inside = grid.abs() < 1.8
    assert float((density - semicircle)[inside].abs().max()) < 0.04
    assert float(torch.trapezoid(found.density(grid), grid.double())) == pytest.approx(1.0, abs=1e-6)


def test_float32_resolves_a_bulk_beside_an_outlier() -> None:
    """Eigenvalues uniform in [-1, 1] and one of 2,500: in closed form, (1/n) tr cos 3H = sin(3) / 3."""
    n = 100_000
    h = torch.linspace(-1, 1, n)
    h[n // 2] = 2500.0
    model, batches = nn.Linear(1, n, bias=False), [(torch.ones(1, 1), torch.zeros(1))]
    found = spectral_density(model, lambda w, t: (h * w**2).sum() / 2, batches, probes=2, steps=20)
    assert len(found.nodes) == 40
    assert float(found.nodes[-1]) == pytest.approx(2500.0, rel=1e-6)
    assert float(found.nodes[0]) == pytest.approx(-1.0, abs=0.02)
    assert float(found.nodes[-2]) == pytest.approx(1.0, abs=0.02)
    assert found.trace_of(lambda nodes: torch.cos(3 * nodes))[0] / n == pytest.approx(
        math.sin(3) / 3, abs=0.01
    )


def test_same_seed_same_result_and_global_generator_untouched(mlp: Any) -> None:
    state = torch.get_rng_state()
    a = spectral_density(*mlp, probes=2, steps=5, seed=7)
    assert torch.equal(torch.get_rng_state(), state)
    b = spectral_density(*mlp, probes=2, steps=5, seed=7)
    c = spectral_density(*mlp, probes=2, steps=5, seed=8)
    assert torch.equal(a.nodes, b.nodes)
    assert not torch.equal(a.nodes, c.nodes)


def test_more_probes_than_parameters() -> None:
    h = torch.tensor([[2.0, 1.0], [1.0, 2.0]], dtype=torch.float64)
    found = spectral_density(Quadratic(h), mean_loss, BATCH, probes=5, steps=3)
    torch.testing.assert_close(found.nodes, torch.tensor([1.0, 3.0], dtype=torch.float64))


def test_a_flat_loss_and_a_single_probe() -> None:
    flat = spectral_density(Quadratic(torch.zeros(5, 5)), mean_loss, BATCH, probes=2, steps=3)
    assert flat.extremes == (0.0, 0.0)
    assert bool(torch.isfinite(flat.density(torch.zeros(1))).all())
    torch.manual_seed(0)
    one = spectral_density(Quadratic(torch.diag(torch.arange(9.0))), mean_loss, BATCH, probes=1, steps=3)
    assert isinstance(one, SpectralDensity)
    assert math.isnan(one.trace_error)


@pytest.mark.parametrize("arguments", [{"probes": 0}, {"steps": 0}, {"probes": 2.5}])
def test_nonsense_is_refused(arguments: dict[str, Any], mlp: Any) -> None:
    with pytest.raises(ValueError, match=next(iter(arguments))):
        spectral_density(*mlp, **arguments)
