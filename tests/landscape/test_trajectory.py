from __future__ import annotations

import pytest
import torch
from sklearn.decomposition import PCA
from torch import nn

from entropy_sgd.landscape import plane, principal_directions


def test_directions_are_those_of_another_librarys_principal_components():
    torch.manual_seed(3)
    rows = torch.randn(9, 40).cumsum(0)
    found = principal_directions(list(rows))
    oracle = PCA(n_components=2).fit(rows.double().numpy())
    assert found.shares == pytest.approx(oracle.explained_variance_ratio_.tolist())
    for mine, theirs in zip(found.directions, oracle.components_, strict=True):
        assert abs(float(mine @ torch.from_numpy(theirs))) == pytest.approx(1.0)
    expected = oracle.transform(rows.double().numpy())
    expected = torch.from_numpy(expected - expected[-1])
    assert torch.allclose(found.coordinates.abs(), expected.abs(), atol=1e-9)
    assert found.coordinates[-1].tolist() == [0.0, 0.0]
    assert bool((found.coordinates[0] >= 0).all())


def test_a_plane_of_any_positions_along_such_directions():
    """On f = |w|^2 / 2 the plane through w_n has the closed form |w_n + p a + q b|^2 / 2."""
    model = nn.Linear(5, 1, bias=False).double()
    weights = [torch.randn(5, dtype=torch.float64) for _ in range(4)]
    with torch.no_grad():
        model.weight.copy_(weights[-1][None])
    found = principal_directions(weights)
    a, b = found.directions
    batches = [(torch.eye(5, dtype=torch.float64), torch.zeros(5, 1, dtype=torch.float64))]

    def loss_fn(outputs, targets):
        return (outputs - targets).square().sum() / 2

    positions = torch.tensor([-1.0, 2.0]), torch.tensor([0.0, 0.5, 3.0])
    got = plane(model, loss_fn, batches, positions=positions, directions=(a, b))
    assert got.loss.shape == (2, 3)
    for i, p in enumerate(positions[0].tolist()):
        for j, q in enumerate(positions[1].tolist()):
            w = weights[-1] + p * a + q * b
            assert float(got.loss[i, j]) == pytest.approx(float(w @ w) / 2)
    with pytest.raises(ValueError, match="positions must not be empty"):
        plane(model, loss_fn, batches, positions=(torch.tensor([]), torch.tensor([1.0])))


def test_nonsense_is_refused():
    line = [torch.arange(4.0) * k for k in range(5)]
    with pytest.raises(ValueError, match="on one line"):
        principal_directions(line)
    with pytest.raises(ValueError, match="at least 3 vectors, got 2"):
        principal_directions(line[:2])
    with pytest.raises(ValueError, match="one length"):
        principal_directions([*line, torch.zeros(5)])
    with pytest.raises(ValueError, match="not finite"):
        principal_directions([*line, torch.full((4,), float("nan"))])
    with pytest.raises(ValueError, match="on one line"):
        principal_directions([torch.ones(4)] * 3)
