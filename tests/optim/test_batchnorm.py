from __future__ import annotations

import copy

import pytest
import torch
from torch import nn

from entropy_sgd import recalibrate_batchnorm


def network() -> nn.Sequential:
    return nn.Sequential(
        nn.Conv2d(1, 4, 3), nn.BatchNorm2d(4), nn.ReLU(), nn.Dropout(0.5), nn.Flatten(), nn.Linear(144, 5),
        nn.BatchNorm1d(5, momentum=0.3), nn.Dropout(0.5),
    )  # fmt: skip


def test_statistics_are_the_average_over_the_batches_with_dropout_off():
    model, batches = network(), [torch.randn(16, 1, 8, 8) + i for i in range(3)]
    recalibrate_batchnorm(model, batches)
    # by hand: the second layer sees the first one normalised by the batch, dropout being the identity
    first = [model[0](x) for x in batches]
    means = torch.stack([y.mean((0, 2, 3)) for y in first])
    variances = torch.stack([y.transpose(0, 1).flatten(1).var(1) for y in first])
    torch.testing.assert_close(model[1].running_mean, means.mean(0))
    torch.testing.assert_close(model[1].running_var, variances.mean(0))
    second = []
    for y in first:
        z = nn.functional.batch_norm(y, None, None, model[1].weight, model[1].bias, training=True)
        second.append(model[5](z.relu().flatten(1)))
    torch.testing.assert_close(model[6].running_mean, torch.stack([y.mean(0) for y in second]).mean(0))
    torch.testing.assert_close(model[6].running_var, torch.stack([y.var(0) for y in second]).mean(0))


@pytest.mark.parametrize(
    "wrap", [lambda x: x, lambda x: (x, "target"), lambda x: [x, 0], lambda x: {"input": x}]
)
def test_everything_else_is_put_back(wrap):
    model = network()
    model.train()
    model[3].eval()
    model[1].eval()
    modes, weights = [m.training for m in model.modules()], copy.deepcopy(list(model.parameters()))
    generator = torch.get_rng_state()
    batch = torch.ones(4, 1, 8, 8)
    batch[0] = 2
    recalibrate_batchnorm(model, iter([wrap(batch)]))
    assert [m.training for m in model.modules()] == modes
    assert (model[1].momentum, model[6].momentum) == (0.1, 0.3)
    assert all(torch.equal(p, q) for p, q in zip(model.parameters(), weights, strict=True))
    assert all(p.grad is None for p in model.parameters())
    assert torch.equal(torch.get_rng_state(), generator)


def test_frozen_statistics_stay():
    """A layer in evaluation mode while the model trains; where all evaluates, none is frozen."""
    model, batches = network(), [3 + torch.randn(16, 1, 8, 8)]
    model[1].eval()
    recalibrate_batchnorm(model, batches)
    assert torch.equal(model[1].running_mean, torch.zeros(4))
    assert not torch.equal(model[6].running_mean, torch.zeros(5))
    model.eval()
    recalibrate_batchnorm(nn.Sequential(nn.Identity(), model), batches)  # in a wrapper that trains
    assert not torch.equal(model[1].running_mean, torch.zeros(4))


@pytest.mark.parametrize("batches", [[], [torch.ones(4, 1, 8, 8), torch.ones(4, 2, 8, 8)]])
def test_a_failure_keeps_the_old_statistics(batches):
    model = network()
    model(torch.randn(4, 1, 8, 8))
    before = copy.deepcopy(model.state_dict())
    with pytest.raises((ValueError, RuntimeError)):
        recalibrate_batchnorm(model, batches)
    assert all(torch.equal(v, before[k]) for k, v in model.state_dict().items())
    assert model[6].momentum == 0.3
    assert all(m.training for m in model.modules())


def test_a_model_without_batch_statistics_is_not_run():
    model = nn.Sequential(nn.Linear(3, 3), nn.BatchNorm1d(3, track_running_stats=False))
    recalibrate_batchnorm(model, iter([object()]))
