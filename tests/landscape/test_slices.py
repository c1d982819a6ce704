from __future__ import annotations

import copy
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from entropy_sgd.landscape import line, local_energy, plane
from entropy_sgd.landscape.slices import classification_error, random_direction


def other(model: nn.Module) -> nn.Module:
    torch.manual_seed(5)
    twin = copy.deepcopy(model)
    with torch.no_grad():
        for p in twin.parameters():
            p.add_(torch.randn_like(p) * 0.5)
    return twin


def test_line_against_a_model_that_is_walked_along(problem: Any) -> None:
    model, loss_fn, batches = problem
    twin = other(model)
    positions = torch.tensor([-0.5, 0.0, 0.3, 1.0])
    found = line(model, loss_fn, batches, model, twin, positions=positions)
    x, y = (torch.cat(part) for part in zip(*batches, strict=True))
    walker = copy.deepcopy(model)
    for i, t in enumerate(positions.tolist()):
        with torch.no_grad():
            for p, a, b in zip(walker.parameters(), model.parameters(), twin.parameters(), strict=True):
                p.copy_((1 - t) * a + t * b)
            for layer in walker.modules():
                if isinstance(layer, nn.BatchNorm2d):
                    # The layer before it gives its input: means over the batches, weighted by their sizes.
                    parts = [walker[0](inputs) for inputs, _ in batches]
                    sizes = torch.tensor([float(len(part)) for part in parts])
                    layer.running_mean.copy_(_weighted([part.mean((0, 2, 3)) for part in parts], sizes))
                    layer.running_var.copy_(_weighted([part.var((0, 2, 3)) for part in parts], sizes))
            outputs = walker(x)
            assert float(found.loss[i]) == pytest.approx(float(loss_fn(outputs, y)), rel=1e-5)
            logits = outputs[0] if isinstance(outputs, tuple) else outputs
            wrong = float((logits.argmax(-1) != y).double().mean())
            assert found.error is not None
            assert float(found.error[i]) == pytest.approx(wrong, abs=1e-9)


def _weighted(rows: list[Tensor], weights: Tensor) -> Tensor:
    return weights @ torch.stack(rows) / weights.sum()


@pytest.mark.parametrize("sizes", [(8, 4, 1), (1, 8, 4)])
def test_statistics_pass_over_a_batch_of_one_sample(sizes: tuple[int, ...]) -> None:
    """A layer that is used twice takes the mean over all its inputs."""
    torch.manual_seed(0)
    norm = nn.BatchNorm1d(3)
    model = nn.Sequential(norm, nn.Linear(3, 3), norm).eval()
    x, y = torch.randn(13, 3), torch.randint(3, (13,))
    batches = list(zip(x.split(sizes), y.split(sizes), strict=True))
    found = line(model, F.cross_entropy, batches, model, model, positions=torch.zeros(2))
    middle = [model[1](F.batch_norm(part, None, None, training=True)) for part, _ in batches if len(part) > 1]
    parts = [part for part, _ in batches if len(part) > 1] + middle
    weights = torch.tensor([8.0, 4.0, 8.0, 4.0])
    with torch.no_grad():
        norm.running_mean.copy_(_weighted([part.mean(0) for part in parts], weights))
        norm.running_var.copy_(_weighted([part.var(0) for part in parts], weights))
        expected = float(F.cross_entropy(model(x), y))
    assert found.loss.tolist() == pytest.approx([expected, expected], rel=1e-5)
    with pytest.raises(ValueError, match="batch normalisation '0' one value per channel"):
        line(model, F.cross_entropy, [(x[:1], y[:1])], model, model)


def test_statistics_that_overflow_at_one_position_are_forgotten_at_the_next() -> None:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(3, 3), nn.BatchNorm1d(3)).eval()
    batches = [(torch.randn(8, 3), torch.randint(3, (8,)))]
    end = torch.full((18,), 1e30)
    found = line(model, F.cross_entropy, batches, model, end, positions=torch.tensor([0.0, 1.0, 0.0]))
    assert found.loss[0].isfinite()
    assert found.loss[2] == found.loss[0]


def test_the_model_comes_back_as_it_was(problem: Any) -> None:
    model = problem.model
    before = copy.deepcopy(model.state_dict())
    momenta = [layer.momentum for layer in model.modules() if isinstance(layer, nn.BatchNorm2d)]
    modes = [module.training for module in model.modules()]
    line(*problem, model, other(model), positions=torch.tensor([0.5]))
    assert all(torch.equal(value, before[name]) for name, value in model.state_dict().items())
    assert [layer.momentum for layer in model.modules() if isinstance(layer, nn.BatchNorm2d)] == momenta
    assert [module.training for module in model.modules()] == modes


def test_weights_as_module_state_dict_or_vector(mlp: Any) -> None:
    twin = other(mlp.model)
    vector = torch.cat([p.detach().flatten() for p in twin.parameters()])
    results = [line(*mlp, mlp.model, end).loss for end in (twin, twin.state_dict(), vector)]
    assert torch.equal(results[0], results[1])
    assert torch.equal(results[0], results[2])
    assert len(results[0]) == 51


def test_plane_of_a_quadratic() -> None:
    """With given directions, the loss of a linear model is a quadratic form on the plane."""
    torch.manual_seed(0)
    model = nn.Linear(3, 1, bias=False).double()
    x, y = torch.randn(8, 3, dtype=torch.float64), torch.randn(8, 1, dtype=torch.float64)
    u, v = torch.randn(3, dtype=torch.float64), torch.randn(3, dtype=torch.float64)
    found = plane(model, F.mse_loss, [(x, y)], directions=(u, v), radius=2.0, points=5)
    assert found.error is None
    for i, a in enumerate(found.first.tolist()):
        for j, b in enumerate(found.second.tolist()):
            w = model.weight.detach()[0] + a * u + b * v
            assert float(found.loss[i, j]) == pytest.approx(float(((x @ w - y[:, 0]) ** 2).mean()), rel=1e-9)


def test_random_directions_are_filter_normalised(problem: Any) -> None:
    direction = random_direction(problem.model, torch.Generator().manual_seed(0))
    position = 0
    for p in problem.model.parameters():
        part = direction[position : position + p.numel()].view(p.shape)
        position += p.numel()
        if p.dim() == 1:
            assert float(part.abs().max()) == 0.0
        else:
            for row, filter_ in zip(part, p.detach().double(), strict=True):
                assert float(row.norm()) == pytest.approx(float(filter_.norm()), rel=1e-6)
    assert position == len(direction)


def test_plane_through_the_model(problem: Any) -> None:
    model, loss_fn, batches = problem
    found = plane(model, loss_fn, batches, radius=0.5, points=3, seed=1)
    again = plane(model, loss_fn, batches, radius=0.5, points=3, seed=1)
    at_model = line(model, loss_fn, batches, model, model, positions=torch.zeros(1))
    assert found.loss.shape == (3, 3)
    assert torch.equal(found.loss, again.loss)
    assert float(found.loss[1, 1]) == pytest.approx(float(at_model.loss), rel=1e-6)
    assert len(found.loss.unique()) == 9


def test_a_custom_error_function(mlp: Any) -> None:
    def miss(outputs: Tensor, targets: Tensor) -> Tensor:
        return (outputs.topk(2).indices != targets[:, None]).all(1).double().mean()

    found = line(*mlp, mlp.model, other(mlp.model), positions=torch.tensor([0.0]), error_fn=miss)
    x, y = (torch.cat(part) for part in zip(*mlp.batches, strict=True))
    assert found.error is not None
    assert float(found.error) == pytest.approx(float(miss(mlp.model(x), y)))


def test_error_with_classes_second_as_in_torchs_losses() -> None:
    scores = torch.randn(4, 5, 7)  # (samples, classes, places)
    targets = scores.argmax(1)
    targets[0, 0] = (targets[0, 0] + 1) % 5
    assert float(classification_error(scores, targets)) == pytest.approx(1 / 28)


@pytest.mark.parametrize("places", [(5,), (7,), (5, 5), (4, 4)])  # 8 samples, 5 classes
def test_error_of_outputs_with_as_many_classes_as_places(places: tuple[int, ...]) -> None:
    """A right answer has a small loss, so a network that is right has no error wherever it is."""
    targets = torch.randint(5, (8, *places))
    scores = 50 * F.one_hot(targets, 5).movedim(-1, 1).double()
    assert float(F.cross_entropy(scores, targets)) < 1e-9
    assert float(classification_error(scores, targets)) == 0.0


def test_error_of_targets_in_another_shape() -> None:
    for places in (7, 5):
        scores = torch.randn(4, places, 5)  # (samples, places, classes), as of a language model
        targets = scores.argmax(-1)
        targets[0, 0] = (targets[0, 0] + 1) % 5
        flat = scores.flatten(0, 1)
        same = [
            (scores, targets.flatten()),
            (flat, targets),
            (flat, targets.flatten()),
            (flat, targets[..., None]),
        ]
        for outputs, wanted in same:
            assert float(classification_error(outputs, wanted)) == pytest.approx(1 / targets.numel())
        assert classification_error(scores, targets.T) is None  # as many, in another order


def test_targets_that_the_loss_ignores_do_not_count() -> None:
    """Padding the sequences changes nothing, and batches weigh as much as they have targets."""
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(3, 4), nn.Unflatten(1, (2, 2)))  # (samples, 2 classes, 2 places)
    x, y = torch.randn(12, 3), torch.randint(2, (12, 2))
    y[:3] = torch.tensor([0, -100])
    y[5, 0] = -100
    batches = [(x[:3], y[:3]), (x[3:], y[3:])]
    where = torch.tensor([0.0, 1.0])
    found = line(model, F.cross_entropy, batches, model, other(model), positions=where)
    whole = line(model, F.cross_entropy, [(x, y)], model, other(model), positions=where)
    torch.testing.assert_close(found.loss, whole.loss)
    answers, kept = model(x).argmax(1), y >= 0
    assert float(whole.loss[0]) == pytest.approx(float(F.cross_entropy(model(x), y).detach()))
    for measured in (found, whole):
        assert measured.error is not None
        assert float(measured.error[0]) == pytest.approx(float((answers != y)[kept].double().mean()))
    assert float(classification_error(torch.eye(200), torch.arange(200, dtype=torch.uint8))) == 0.0
    with pytest.raises(ValueError, match=r"without samples.*-100"):
        line(model, F.cross_entropy, [(x, torch.full_like(y, -100))], model, model)


@pytest.mark.parametrize("shape", [(40,), (40, 1)])
def test_a_binary_classifier_with_one_output_needs_an_error_function(shape: tuple[int, ...]) -> None:
    torch.manual_seed(0)
    model, x = nn.Linear(3, 1), torch.randn(40, 3)
    y = (x[:, 0] > 0.5).long().view(shape)

    def loss(outputs: Tensor, targets: Tensor) -> Tensor:
        return F.binary_cross_entropy_with_logits(outputs.flatten(), targets.flatten().to(outputs.dtype))

    def wrong(outputs: Tensor, targets: Tensor) -> Tensor:
        return ((outputs.flatten() > 0).long() != targets.flatten()).double().mean()

    best = torch.tensor([9.0, 0.0, 0.0, -4.5])
    found = line(model, loss, [(x, y)], -best, best, positions=torch.tensor([0.0, 1.0]), error_fn=wrong)
    assert found.error is not None
    assert found.error.tolist() == [1.0, 0.0]
    assert line(model, loss, [(x, y)], -best, best).error is None
    with pytest.raises(ValueError, match=r"error_fn must be given.*outputs: a tensor of shape \(40, 1\)"):
        local_energy(model, loss, [(x, y)], 0.1)


def test_nonsense_is_refused(mlp: Any) -> None:
    model = mlp.model
    with pytest.raises(ValueError, match="end must have 83 entries"):
        line(*mlp, model, torch.zeros(82))
    with pytest.raises(ValueError, match=r"start must hold '0.bias' .* got nothing"):
        line(*mlp, {"0.weight": model[0].weight}, model)
    with pytest.raises(ValueError, match="end holds values that are not finite"):
        line(*mlp, model, torch.full((83,), torch.nan))
    with pytest.raises(ValueError, match="radius"):
        plane(*mlp, radius=0.0)
    with pytest.raises(ValueError, match="points"):
        plane(*mlp, points=1)
