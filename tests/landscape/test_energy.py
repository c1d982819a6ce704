from __future__ import annotations

import copy
import math
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from entropy_sgd.landscape import local_energy


class Scores(nn.Module):
    """The same two scores for every sample: the weights themselves."""

    def __init__(self, scores: tuple[float, float]) -> None:
        super().__init__()
        self.scores = nn.Parameter(torch.tensor(scores, dtype=torch.float64))

    def forward(self, inputs: Tensor) -> Tensor:
        return self.scores.expand(len(inputs), 2)


@pytest.mark.parametrize("sigma", [0.3, 1.0])
def test_the_chance_that_noise_turns_an_answer_over(sigma: float) -> None:
    """a (1 + sigma z) < c (1 + sigma z') with probability Phi(-(a - c) / (sigma sqrt(a^2 + c^2)))."""
    a, c = 1.0, 0.6
    batches = [(torch.zeros(n, 1), torch.zeros(n, dtype=torch.long)) for n in (1, 3)]
    found = local_energy(Scores((a, c)), F.cross_entropy, batches, sigma, draws=600)
    expected = 0.5 * math.erfc((a - c) / (sigma * math.hypot(a, c)) / math.sqrt(2))
    assert found.start == 0.0
    assert abs(found.value - expected) < 3 * found.error
    # A share of 0 or 1 in each draw: a binomial standard error.
    assert found.error == pytest.approx(math.sqrt(expected * (1 - expected) / 600), rel=0.2)


def test_the_rise_of_a_quadratic_loss() -> None:
    """The linear term averages out: sigma^2 / 2 sum_i H_ii w_i^2."""
    torch.manual_seed(0)
    model = nn.Linear(5, 1, bias=False).double()
    x, y = torch.randn(12, 5, dtype=torch.float64), torch.randn(12, 1, dtype=torch.float64)
    batches = [(x[:5], y[:5]), (x[5:], y[5:])]
    found = local_energy(model, F.mse_loss, batches, 0.4, draws=500, error_fn=F.mse_loss)
    expected = 0.4**2 * float((model.weight.detach() ** 2 * (x**2).mean(0)).sum())
    assert found.start == pytest.approx(float(F.mse_loss(model(x), y).detach()), rel=1e-12)
    assert abs(found.value - expected) < 3 * found.error
    assert found.error < 0.2 * expected


def test_the_noise_is_multiplicative() -> None:
    """The weights that the forward pass sees: w (1 + sigma z) with z ~ N(0, 1), and zeros stay zero."""
    seen: list[Tensor] = []

    class Recorder(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.w = nn.Parameter(torch.arange(-200, 201, dtype=torch.float64) / 100)

        def forward(self, inputs: Tensor) -> Tensor:
            seen.append(self.w.detach().clone())
            return self.w.sum().expand(len(inputs))

    model = Recorder()
    batches = [(torch.zeros(2, 1), torch.zeros(2))]
    local_energy(model, F.mse_loss, batches, 0.25, draws=10, error_fn=F.mse_loss)
    w = model.w.detach()
    assert w[200] == 0
    weights = torch.stack(seen[-10:])
    assert float(weights[:, 200].abs().max()) == 0.0
    z = (weights / w - 1)[:, w != 0] / 0.25
    assert abs(float(z.mean())) < 4 / math.sqrt(z.numel())
    assert float(z.std()) == pytest.approx(1.0, abs=4 / math.sqrt(2 * z.numel()))
    assert abs(float(torch.corrcoef(z)[0, 1])) < 0.2  # draws are independent


def test_the_rises_are_the_share_of_wrong_answers_on_all_batches(problem: Any) -> None:
    """From the outputs that a recording `error_fn` saw; the default function gives the same."""
    model, loss_fn, batches = problem
    model.double()
    seen: list[Tensor] = []

    def record(outputs: Any, targets: Tensor) -> float:
        outputs = outputs[0] if isinstance(outputs, tuple) else outputs
        seen.append(outputs)
        return float((outputs.argmax(-1) != targets).double().mean())

    found = local_energy(model, loss_fn, batches, 0.3, draws=3, error_fn=record)
    default = local_energy(model, loss_fn, batches, 0.3, draws=3)
    assert torch.equal(found.rises, default.rises)
    sizes = [targets.numel() for _, targets in batches]
    for draw in range(4):
        outputs = seen[draw * len(batches) : (draw + 1) * len(batches)]
        wrong = sum(int((o.argmax(-1) != t).sum()) for o, (_, t) in zip(outputs, batches, strict=True)) / sum(
            sizes
        )
        expected = found.start if draw == 0 else found.start + float(found.rises[draw - 1])
        assert wrong == pytest.approx(expected, abs=1e-12)


def test_rescaling_layers_of_rectified_units_changes_nothing() -> None:
    """Multiplying one layer by 4 and dividing the next by 4 is exact in floating point."""
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(6, 8, bias=False), nn.ReLU(), nn.Linear(8, 3, bias=False))
    batches = [(torch.randn(40, 6), torch.randint(3, (40,)))]
    before = local_energy(model, F.cross_entropy, batches, 0.5, draws=5)
    with torch.no_grad():
        model[0].weight.mul_(4.0)
        model[2].weight.div_(4.0)
    after = local_energy(model, F.cross_entropy, batches, 0.5, draws=5)
    assert torch.equal(before.rises, after.rises)
    assert before.error > 0


def test_nothing_is_left_behind_even_after_an_error(mlp: Any) -> None:
    model = mlp.model
    for p in model.parameters():
        p.grad = torch.ones_like(p)
    before, state = copy.deepcopy(model.state_dict()), torch.get_rng_state()
    calls: list[int] = []

    def fails(outputs: Tensor, targets: Tensor) -> float:
        calls.append(1)
        if len(calls) > 4:
            raise RuntimeError("in the user's function")
        return 0.0

    with pytest.raises(RuntimeError, match="user's function"):
        local_energy(*mlp, 0.5, error_fn=fails)
    assert all(torch.equal(value, before[name]) for name, value in model.state_dict().items())
    assert all(torch.equal(p.grad, torch.ones_like(p)) for p in model.parameters())
    assert all(module.training for module in model.modules())
    assert torch.equal(torch.get_rng_state(), state)


def test_the_seed_decides(mlp: Any) -> None:
    rises = [local_energy(*mlp, 1.0, draws=8, seed=seed).rises for seed in (3, 3, 4)]
    assert torch.equal(rises[0], rises[1])
    assert not torch.equal(rises[0], rises[2])


@pytest.mark.parametrize("sigma", [0.0, -1.0, math.nan])
def test_nonsense_is_refused(sigma: float, mlp: Any) -> None:
    with pytest.raises(ValueError, match="sigma must be"):
        local_energy(*mlp, sigma)
    with pytest.raises(ValueError, match="draws must be"):
        local_energy(*mlp, 0.1, draws=1)
    with pytest.raises(ValueError, match="error_fn must be given"):
        local_energy(nn.Linear(2, 1), F.mse_loss, [(torch.zeros(3, 2), torch.zeros(3, 1))], 0.1)
