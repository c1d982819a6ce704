from __future__ import annotations

import copy
import math
from typing import Any

import pytest
import scipy.optimize
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from entropy_sgd.landscape import adaptive_sharpness

BATCH = [(torch.zeros(2, 1), torch.zeros(2))]


class Form(nn.Module):
    """g.(w - w0) + (w - w0)^T H (w - w0) / 2 at w = w0."""

    def __init__(self, g: Tensor, h: Tensor, w: Tensor) -> None:
        super().__init__()
        self.w = nn.Parameter(w.clone())
        self.register_buffer("g", g)
        self.register_buffer("h", h)
        self.register_buffer("w0", w.clone())

    def forward(self, inputs: Tensor) -> Tensor:
        e = self.w - self.w0
        return (self.g @ e + e @ self.h @ e / 2).expand(len(inputs))


def mean(outputs: Tensor, targets: Tensor) -> Tensor:
    return outputs.mean()


def draw(n: int) -> tuple[Tensor, Tensor, Tensor]:
    torch.manual_seed(1)
    g, w = torch.randn(n, dtype=torch.float64), torch.randn(n, dtype=torch.float64)
    a = torch.randn(n, n, dtype=torch.float64)
    return g, (a + a.T) / 2, w


@pytest.mark.parametrize("eta", [0.0, 0.3])
def test_a_linear_loss(eta: float) -> None:
    """max g.e over |T^-1 e| <= rho is rho |T g|."""
    g, h, w = draw(9)
    found = adaptive_sharpness(Form(g, 0 * h, w), mean, BATCH, 0.7, eta=eta)
    scale = w.abs() + eta
    assert found.value == pytest.approx(0.7 * float((scale * g).norm()), rel=1e-9)
    torch.testing.assert_close(found.perturbation, 0.7 * scale**2 * g / (scale * g).norm())


@pytest.mark.parametrize("definite", [True, False])
@pytest.mark.parametrize("rho", [0.05, 0.7])
def test_a_quadratic_loss_against_the_trust_region_problem(rho: float, definite: bool) -> None:
    """On the sphere the maximiser is u = (mu - A)^-1 b with mu above the largest eigenvalue of A = T H T."""
    g, h, w = draw(9)
    h = h @ h if definite else h
    a, b = w.abs()[:, None] * h * w.abs(), w.abs() * g
    values, vectors = torch.linalg.eigh(a)
    c = vectors.T @ b
    top = float(values[-1])
    mu = scipy.optimize.brentq(
        lambda m: float((c / (m - values)).norm()) - rho, top + 1e-12, top + float(b.norm()) / rho + 1
    )
    u = vectors @ (c / (mu - values))
    assert mu > 0  # so the maximum is on the sphere
    found = adaptive_sharpness(Form(g, h, w), mean, BATCH, rho, steps=200)
    assert found.value == pytest.approx(float(b @ u + u @ a @ u / 2), rel=1e-6)


def test_at_a_minimum_the_largest_eigenvalue_decides() -> None:
    g, h, w = draw(9)
    h = h @ h
    found = adaptive_sharpness(Form(0 * g, h, w), mean, BATCH, 0.5, steps=200)
    top = float(torch.linalg.eigvalsh(w.abs()[:, None] * h * w.abs())[-1])
    assert found.value == pytest.approx(0.5**2 / 2 * top, rel=1e-6)


def test_a_maximum_inside_the_ball() -> None:
    """-|w|^2 / 2 + g.w with a maximiser at distance less than rho: the ascent must not stay on the sphere."""
    g, w = draw(4)[0], torch.ones(4, dtype=torch.float64)
    found = adaptive_sharpness(Form(g, -torch.eye(4, dtype=torch.float64), w), mean, BATCH, 10.0, steps=80)
    assert found.value == pytest.approx(float(g @ g) / 2, rel=1e-5)
    torch.testing.assert_close(found.perturbation, g, rtol=0, atol=1e-2)


def test_a_concave_loss_at_its_maximum_does_not_rise() -> None:
    g, h, w = draw(4)
    found = adaptive_sharpness(Form(0 * g, -h @ h, w), mean, BATCH, 0.5)
    assert found.value == 0.0
    assert float(found.perturbation.abs().max()) == 0.0


def test_rescaling_layers_of_rectified_units_changes_nothing() -> None:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(6, 8), nn.ReLU(), nn.Linear(8, 3, bias=False)).double()
    batches = [(torch.randn(40, 6), torch.randint(3, (40,)))]
    before = adaptive_sharpness(model, F.cross_entropy, batches, 0.5)
    with torch.no_grad():
        model[0].weight.mul_(4.0)
        model[0].bias.mul_(4.0)
        model[2].weight.div_(4.0)
    after = adaptive_sharpness(model, F.cross_entropy, batches, 0.5)
    assert after.value == pytest.approx(before.value, rel=1e-9)
    assert before.value > 0.02


def test_the_perturbation_is_in_the_ball_and_gives_the_rise(problem: Any) -> None:
    model, loss_fn, batches = problem
    model.double().eval()
    before = copy.deepcopy(model.state_dict())
    found = adaptive_sharpness(model, loss_fn, batches, 0.3, eta=0.1, steps=10)
    weights = torch.cat([p.detach().flatten() for p in model.parameters()])
    assert float((found.perturbation / (weights.abs() + 0.1)).norm()) <= 0.3 * (1 + 1e-9)
    assert all(torch.equal(value, before[name]) for name, value in model.state_dict().items())
    torch.nn.utils.vector_to_parameters(weights + found.perturbation, model.parameters())
    x, y = (torch.cat(part) for part in zip(*batches, strict=True))
    moved = float(loss_fn(model(x.double()), y).detach())
    assert moved - found.loss == pytest.approx(found.value, rel=1e-9)
    # At least the rise along ASAM's first step, the gradient direction.
    model.load_state_dict(before)
    loss = loss_fn(model(x.double()), y)
    g = torch.cat([part.flatten() for part in torch.autograd.grad(loss, list(model.parameters()))])
    scale = weights.abs() + 0.1
    step = 0.3 * scale**2 * g / (scale * g).norm()
    torch.nn.utils.vector_to_parameters(weights + step, model.parameters())
    assert found.value >= float(loss_fn(model(x.double()), y).detach()) - float(loss.detach()) - 1e-12


def test_a_loss_that_overflows_in_the_ball_is_refused() -> None:
    class Steep(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.w = nn.Parameter(torch.ones(3, dtype=torch.float64))

        def forward(self, inputs: Tensor) -> Tensor:
            return (300 * self.w).exp().sum().expand(len(inputs))

    with pytest.raises(ValueError, match="take a smaller rho"):
        adaptive_sharpness(Steep(), mean, BATCH, 10.0)


@pytest.mark.parametrize(
    "arguments", [{"rho": 0.0}, {"rho": math.inf}, {"eta": -1.0}, {"steps": 0}, {"starts": 0}]
)
def test_nonsense_is_refused(arguments: dict[str, Any], mlp: Any) -> None:
    with pytest.raises(ValueError, match=f"{next(iter(arguments))} must be"):
        adaptive_sharpness(*mlp, **{"rho": 0.1, **arguments})
