from __future__ import annotations

import pytest
import torch
from torch import Tensor

from entropy_sgd.landscape.lanczos import block_lanczos


def with_spectrum(values: Tensor, seed: int = 0) -> Tensor:
    generator = torch.Generator().manual_seed(seed)
    q, _ = torch.linalg.qr(torch.randn(len(values), len(values), generator=generator, dtype=torch.float64))
    return q @ torch.diag(values.double()) @ q.T


def starts(b: int, n: int, dtype: torch.dtype = torch.float64) -> Tensor:
    return torch.randn(b, n, generator=torch.Generator().manual_seed(1), dtype=torch.float64).to(dtype)


# A bulk at zero, clustered outliers above and negative eigenvalues, as networks have them.
SPECTRUM = torch.cat(
    [
        torch.linspace(-1e-4, 1e-4, 380, dtype=torch.float64),
        torch.tensor([-0.46, -0.459, -0.2, 1.0, 5.0, 5.0 + 1e-6, 5.0, 20.0, 39.9, 40.0], dtype=torch.float64),
    ]
)


@pytest.mark.parametrize(("dtype", "bound"), [(torch.float64, 1e-13), (torch.float32, 1e-5)])
@pytest.mark.parametrize(("b", "steps"), [(1, 150), (8, 30), (8, 100)])
def test_the_basis_stays_orthonormal(b: int, steps: int, dtype: torch.dtype, bound: float) -> None:
    h = with_spectrum(SPECTRUM).to(dtype)
    basis = block_lanczos(lambda v: v @ h, starts(b, len(h), dtype), steps).basis
    gram = (basis @ basis.T).double()
    assert float((gram - torch.eye(len(gram))).abs().max()) < bound


def test_no_ghosts_and_no_missing_outliers() -> None:
    """Each outlier is found as often as it is there: twice 5.0, once its neighbour at 1e-6."""
    h = with_spectrum(SPECTRUM)
    theta, _ = block_lanczos(lambda v: v @ h, starts(6, len(h)), 25).ritz()
    outliers = theta[theta.abs() > 1e-3]
    expected = SPECTRUM[SPECTRUM.abs() > 1e-3].sort().values
    torch.testing.assert_close(outliers, expected, rtol=0, atol=1e-10)


def test_functions_between_start_vectors() -> None:
    h = with_spectrum(torch.linspace(-1.0, 3.0, 60, dtype=torch.float64))
    v = starts(3, 60)
    theta, c = block_lanczos(lambda rows: rows @ h, v, 12).ritz()
    for g in (lambda t: t**5, lambda t: t**23, torch.exp):
        values, vectors = torch.linalg.eigh(h)
        expected = v @ (vectors * g(values)) @ vectors.T @ v.T
        torch.testing.assert_close((c * g(theta)[:, None]).T @ c, expected, rtol=1e-9, atol=1e-8)


def test_the_solve_and_its_residual() -> None:
    h = with_spectrum(torch.linspace(0.0, 3.0, 60, dtype=torch.float64))
    v = starts(2, 60)
    solved, residual = block_lanczos(lambda rows: rows @ h, v, 5).solve(0.5)
    shifted = h + 0.5 * torch.eye(60)
    exact = (v @ torch.linalg.inv(shifted) * v).sum(1)
    assert bool((residual > 1e-6).all())
    assert bool(((exact - solved) > 0).all())
    assert bool(((exact - solved) <= residual / 0.5).all())  # r^T A^-1 r is at most |r|^2 / 0.5
    full, nothing = block_lanczos(lambda rows: rows @ h, v, 40).solve(0.5)
    torch.testing.assert_close(full, exact, rtol=1e-10, atol=0)
    assert float(nothing.max()) < 1e-20


def test_fewer_steps_from_more() -> None:
    h = with_spectrum(SPECTRUM)
    v = starts(4, len(h))
    short = block_lanczos(lambda rows: rows @ h, v, 7)
    cut = block_lanczos(lambda rows: rows @ h, v, 10).without_last(3)
    torch.testing.assert_close(cut.ritz()[0], short.ritz()[0], rtol=0, atol=1e-11)
    torch.testing.assert_close(cut.solve(1.0)[1], short.solve(1.0)[1], rtol=1e-6, atol=1e-18)


def test_an_invariant_space_ends_the_recurrence() -> None:
    h = with_spectrum(torch.tensor([0.0] * 50 + [1.0] * 3 + [-2.0]))
    krylov = block_lanczos(lambda v: v @ h, starts(2, 54), 20)
    # From two vectors: two directions for each eigenvalue that is at least double, one for the single one.
    torch.testing.assert_close(
        krylov.ritz()[0], torch.tensor([-2.0, 0.0, 0.0, 1.0, 1.0], dtype=torch.float64), rtol=0, atol=1e-12
    )
    assert len(krylov.coupling) == 0


def test_dependent_start_vectors_are_dropped() -> None:
    h = with_spectrum(torch.arange(20.0))
    v = starts(2, 20)
    theta, c = block_lanczos(lambda rows: rows @ h, torch.cat([v, v[:1] + v[1:], 0 * v[:1]]), 3).ritz()
    assert len(theta) == 6
    torch.testing.assert_close(c[:, 2], c[:, 0] + c[:, 1])
    assert float(c[:, 3].abs().max()) == 0.0


def test_float32_finds_what_float64_does() -> None:
    """Also in many dimensions, and in a bulk that is small beside the outliers."""
    n = 200_000
    h = torch.linspace(-2e-3, 2e-3, n, dtype=torch.float64)
    h[:3] = torch.tensor([3.0, 2.0, 1.0])
    v = torch.nn.functional.normalize(starts(4, n), dim=1)
    narrow = block_lanczos(lambda rows: rows * h.float(), v.float(), 10)
    wide = block_lanczos(lambda rows: rows * h, v, 10)
    torch.testing.assert_close(narrow.ritz()[0], wide.ritz()[0], rtol=0, atol=5e-7)
    averages = [(c**2 * torch.cos(1000 * theta)[:, None]).sum(0) for theta, c in (narrow.ritz(), wide.ritz())]
    torch.testing.assert_close(*averages, rtol=0, atol=1e-6)
    torch.testing.assert_close(narrow.residuals(), wide.residuals(), rtol=0, atol=1e-6)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_an_exhausted_space_admits_the_rounding_of_products(dtype: torch.dtype) -> None:
    h = with_spectrum(torch.tensor([0.0] * 500 + [1.0] * 500 + [100.0]))
    krylov = block_lanczos(lambda v: v @ h.to(dtype), starts(3, len(h), dtype), 20)
    assert len(krylov.coupling) == 0
    pairs = krylov.ritz_vectors(torch.arange(len(krylov.matrix))).double()
    actual = (pairs @ h - krylov.ritz()[0][:, None] * pairs).norm(dim=1)
    assert 0 < float(actual.max()) < 10 * float(krylov.residuals().max())
    assert float(krylov.residuals().max()) == pytest.approx(100 * torch.finfo(dtype).eps, rel=1e-3)
