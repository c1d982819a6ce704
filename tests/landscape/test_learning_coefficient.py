from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import pytest
import scipy.integrate
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from entropy_sgd.landscape import local_learning_coefficient

BATCH = [(torch.zeros(2, 1), torch.zeros(2))]


class Function(nn.Module):
    """Any function of the weights as a model."""

    def __init__(self, f: Callable[[Tensor], Tensor], w: list[float]) -> None:
        super().__init__()
        self.w = nn.Parameter(torch.tensor(w, dtype=torch.float64))
        self.f = f

    def forward(self, inputs: Tensor) -> Tensor:
        return self.f(self.w).expand(len(inputs))


def estimate(f: Callable[[Tensor], Tensor], w: list[float], **options: Any) -> Any:
    return local_learning_coefficient(
        Function(f, w), lambda o, t: o.mean(), BATCH, **{"samples": 10_000, **options}
    )


@pytest.mark.parametrize("d", [1, 6])
def test_a_regular_minimum_has_half_its_dimension(d: int) -> None:
    curvatures = torch.linspace(1.0, 3.0, d, dtype=torch.float64)
    found = estimate(
        lambda w: (curvatures * w**2).sum() / 2 + 0.7, [0.0] * d, gamma=1.0, chains=16, steps=300
    )
    assert abs(found.value - d / 2) < 3 * found.error + 2e-3  # the bias gamma / (N beta h)
    assert 0 < found.error < 0.1 * d
    assert found.loss == pytest.approx(0.7)
    assert found.chain_losses.shape == (16, 300)


def test_a_valley_counts_its_walls_only() -> None:
    """(w1 w2 - 1)^2 is zero on a curve: one normal direction, hence 1/2 and not d/2 = 1."""
    found = estimate(lambda w: (w[0] * w[1] - 1) ** 2, [1.0, 1.0], gamma=10.0, chains=32, steps=300)
    assert abs(found.value - 0.5) < 3 * found.error + 0.01
    assert found.error < 0.05


def test_higher_powers() -> None:
    """sum_i w_i^(2k) has d / (2k): E[t w^(2k)] = 1/(2k) for any t."""
    found = estimate(lambda w: (w**4).sum(), [0.0] * 3, gamma=1e-2, chains=32, steps=300, samples=10**6)
    assert abs(found.value - 3 / 4) < 3 * found.error + 1e-2
    assert found.error < 0.1


def test_crossing_valleys_against_quadrature() -> None:
    """w1^2 w2^2 at 0: 1/2 of multiplicity 2, which N beta E[f] approaches as 1/log N only.

    So the value at finite N is compared, from an integral of the localised distribution.
    """
    n, gamma = 1000, 1.0
    t = n / math.log(n)

    def partition(moment: int) -> float:
        # The integral over w2 is Gaussian: its precision is 2 t w1^2 + gamma.
        def over_w1(a: float) -> float:
            precision = 2 * t * a**2 + gamma
            mean = (t * a**2 / precision) ** moment
            return mean * math.exp(-gamma * a**2 / 2) * math.sqrt(2 * math.pi / precision)

        return scipy.integrate.quad(over_w1, 0, 12, points=[0.01, 0.1, 1.0], limit=500)[0]

    expected = partition(1) / partition(0)
    assert 0.2 < expected < 0.5  # singular: far below d / 2 = 1
    found = estimate(
        lambda w: w[0] ** 2 * w[1] ** 2, [0.0, 0.0], gamma=gamma, samples=n, chains=32, steps=1000
    )
    assert abs(found.value - expected) < 3 * found.error
    assert found.error < 0.06


def test_temperature_and_localisation_on_a_quadratic() -> None:
    """sum_i h_i / (h_i + gamma / (N beta)) / 2, with the spring as stiff as the loss."""
    h = torch.tensor([0.5, 2.0, 8.0], dtype=torch.float64)
    found = estimate(
        lambda w: (h * w**2).sum() / 2, [0.0] * 3, gamma=20.0, samples=100, beta=0.1, chains=16, steps=200
    )
    expected = float((h / (h + 20.0 / 10.0)).sum()) / 2
    assert abs(found.value - expected) < 3 * found.error
    assert found.error < 0.1


def test_the_error_is_honest() -> None:
    h = torch.tensor([1.0, 4.0], dtype=torch.float64)
    runs = [estimate(lambda w: (h * w**2).sum() / 2, [0.0] * 2, steps=100, seed=s) for s in range(12)]
    deviations = [(run.value - 1.0) / run.error for run in runs]
    assert 0.4 < math.sqrt(sum(d**2 for d in deviations) / len(deviations)) < 1.8


def test_linear_regression_with_more_weights_than_data() -> None:
    """Least squares in 6 weights on 4 inputs: rank 4, so 4/2, at a weight vector that fits exactly."""
    torch.manual_seed(0)
    model = nn.Linear(6, 1, bias=False).double()
    x = torch.randn(4, 6, dtype=torch.float64)
    batches = [(x[:1], model(x[:1]).detach()), (x[1:], model(x[1:]).detach())]
    found = local_learning_coefficient(
        model, F.mse_loss, batches, samples=10**5, gamma=10.0, chains=16, steps=300
    )
    assert abs(found.value - 2.0) < 3 * found.error + 0.02
    assert found.error < 0.2


def test_the_number_of_targets_is_the_default(mlp: Any) -> None:
    given = local_learning_coefficient(*mlp, samples=16, steps=40, chains=1)
    assert local_learning_coefficient(*mlp, steps=40, chains=1).value == given.value


def test_the_model_and_the_generator_are_left_alone(problem: Any) -> None:
    before = {name: value.clone() for name, value in problem.model.state_dict().items()}
    state = torch.get_rng_state()
    first, second = (local_learning_coefficient(*problem, steps=40, chains=2, seed=5) for _ in range(2))
    assert torch.equal(first.chain_losses, second.chain_losses)
    assert all(torch.equal(value, before[name]) for name, value in problem.model.state_dict().items())
    assert torch.equal(torch.get_rng_state(), state)


@pytest.mark.parametrize(
    "arguments", [{"gamma": 0.0}, {"samples": 2}, {"beta": -1.0}, {"chains": 0}, {"steps": 39}]
)
def test_nonsense_is_refused(arguments: dict[str, Any], mlp: Any) -> None:
    with pytest.raises(ValueError, match=f"{next(iter(arguments))} must be"):
        local_learning_coefficient(*mlp, **arguments)


def test_too_few_targets_are_refused() -> None:
    with pytest.raises(ValueError, match=r"samples .*at least 3"):
        local_learning_coefficient(nn.Linear(1, 1), F.mse_loss, [(torch.zeros(2, 1), torch.zeros(2, 1))])
