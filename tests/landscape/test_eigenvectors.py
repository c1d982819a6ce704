from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from entropy_sgd.landscape import hessian_eigenvectors

Oracle = Callable[[Any], Tensor]


class Quadratic(nn.Module):
    """w^T H w / 2, whose Hessian is H."""

    def __init__(self, h: Tensor) -> None:
        super().__init__()
        self.w = nn.Parameter(torch.randn(len(h), dtype=h.dtype))
        self.register_buffer("h", h)

    def forward(self, inputs: Tensor) -> Tensor:
        return (self.w @ self.h @ self.w / 2).expand(len(inputs))


def quadratic(values: list[float]) -> tuple[Any, ...]:
    q, _ = torch.linalg.qr(torch.randn(len(values), len(values), dtype=torch.float64))
    h = q @ torch.diag(torch.tensor(values, dtype=torch.float64)) @ q.T
    return Quadratic(h), lambda o, t: o.mean(), [(torch.zeros(2, 1), torch.zeros(2))]


@pytest.mark.parametrize("which", ["magnitude", "largest", "smallest"])
def test_against_the_dense_hessian(which: str, problem: Any, oracle: Oracle) -> None:
    h = oracle(problem)  # puts the model into float64
    values, vectors = torch.linalg.eigh(h)
    key = {"magnitude": -values.abs(), "largest": -values, "smallest": values}[which]
    order = key.argsort()[:3]
    found = hessian_eigenvectors(*problem, k=3, which=which, tolerance=1e-11)
    torch.testing.assert_close(found.values, values[order], rtol=1e-9, atol=1e-12)
    for vector, value in zip(found.vectors, values[order], strict=True):
        space = vectors[:, (values - value).abs() < 1e-9]  # softmax regression has a multiple eigenvalue 0
        assert float((vector @ space).norm()) == pytest.approx(1.0, abs=1e-9)
        assert float(vector[vector.abs().argmax()]) > 0
    residuals = (found.vectors @ h - found.values[:, None] * found.vectors).norm(dim=1)
    assert float(residuals.max()) < 1e-10 * float(values.abs().max())


def test_the_residuals_are_those_of_the_pairs(mlp: Any, oracle: Oracle) -> None:
    h = oracle(mlp)
    found = hessian_eigenvectors(*mlp, k=2, tolerance=1e-2)
    residuals = (found.vectors @ h - found.values[:, None] * found.vectors).norm(dim=1)
    assert float(residuals.max()) > 1e-8  # stopped early
    assert float(residuals.max()) <= 1e-2 * float(found.values.abs().max())
    torch.testing.assert_close(found.residuals, residuals, rtol=1e-6, atol=1e-12)


def test_a_multiple_eigenvalue_comes_with_its_whole_space() -> None:
    problem = quadratic([5.0, 5.0, 5.0, 2.0, *[0.1 * i for i in range(20)]])
    found = hessian_eigenvectors(*problem, k=4, which="largest", tolerance=1e-10)
    assert found.values.tolist() == pytest.approx([5.0, 5.0, 5.0, 2.0])
    torch.testing.assert_close(
        found.vectors @ found.vectors.T, torch.eye(4, dtype=torch.float64), rtol=0, atol=1e-10
    )


def test_magnitude_counts_both_signs_and_k_can_be_n() -> None:
    problem = quadratic([-7.0, 6.0, -5.0, 1.0, 0.5])
    found = hessian_eigenvectors(*problem, k=5, tolerance=1e-10)
    assert found.values.tolist() == pytest.approx([-7.0, 6.0, -5.0, 1.0, 0.5])
    assert hessian_eigenvectors(*problem, k=2, which="smallest").values.tolist() == pytest.approx(
        [-7.0, -5.0]
    )


def test_float32_residuals_in_many_dimensions() -> None:
    """Of a diagonal H: they are those of the pairs, and below the tolerance."""
    h = torch.linspace(0.0, 2e-3, 200_000)
    h[:3] = torch.tensor([3.0, 2.0, 1.0])
    problem = nn.Linear(1, len(h), bias=False), lambda w, t: (h * w**2).sum() / 2
    found = hessian_eigenvectors(
        *problem, [(torch.ones(1, 1), torch.zeros(1))], k=5, which="largest", tolerance=3e-5
    )
    pairs = found.vectors.double()
    residuals = (pairs * h - found.values[:, None] * pairs).norm(dim=1)
    torch.testing.assert_close(found.residuals, residuals, rtol=1e-2, atol=1e-6)
    assert float(residuals.max()) < 3e-5 * 3.0
    assert found.values.tolist() == pytest.approx([3.0, 2.0, 1.0, 2e-3, 2e-3], abs=1e-4)


def test_a_tolerance_below_the_rounding_gives_a_warning(mlp: Any) -> None:
    with pytest.warns(RuntimeWarning, match=r"torch\.float32 does not resolve it"):
        hessian_eigenvectors(*mlp, dtype=torch.float32, tolerance=1e-9)


def test_vectors_by_parameter(mlp: Any) -> None:
    found = hessian_eigenvectors(*mlp, k=2)
    parts = found.by_parameter()
    assert {name: part.shape[1:] for name, part in parts.items()} == {
        name: p.shape for name, p in mlp.model.named_parameters()
    }
    assert torch.equal(torch.cat([part.flatten(1) for part in parts.values()], dim=1), found.vectors)


def test_too_few_steps_give_a_warning(mlp: Any) -> None:
    with pytest.warns(RuntimeWarning, match="after 2 steps"):
        hessian_eigenvectors(*mlp, steps=2, tolerance=1e-6)


@pytest.mark.parametrize(
    "arguments", [{"k": 0}, {"k": 84}, {"which": "top"}, {"steps": 0}, {"tolerance": 0.0}, {"seed": 0.5}]
)
def test_nonsense_is_refused(arguments: dict[str, Any], mlp: Any) -> None:
    with pytest.raises(ValueError, match=f"{next(iter(arguments))} must be"):
        hessian_eigenvectors(*mlp, **arguments)
