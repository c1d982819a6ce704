from __future__ import annotations

import pytest
import scipy.linalg
import torch

from entropy_sgd.landscape import symmetric_eigenvalues
from entropy_sgd.landscape.symmetric_eigenvalues import eigenvalues_in_place


def symmetric(n: int, seed: int, rank: int | None = None) -> torch.Tensor:
    generator = torch.Generator().manual_seed(seed)
    a = torch.randn(n, n if rank is None else rank, generator=generator, dtype=torch.float64)
    signs = torch.randn(a.shape[1], generator=generator, dtype=torch.float64).sign()
    return (a * signs) @ a.T


@pytest.mark.parametrize("n", [1, 2, 3, 63, 64, 65, 66, 129, 300])
@pytest.mark.parametrize("rank", [None, 3])
def test_two_stages_agree_with_lapack(n: int, rank: int | None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(symmetric_eigenvalues, "TILE", 50)
    a = symmetric(n, n, rank)
    expected = torch.linalg.eigvalsh(a)
    work = a.triu()  # what is below the diagonal must not matter
    work += torch.full_like(a, torch.nan).tril(-1).nan_to_num(nan=7.0)
    fractions: list[float] = []
    found = eigenvalues_in_place(work, scipy.linalg.eig_banded, fractions.append)
    torch.testing.assert_close(found, expected, rtol=0, atol=1e-13 * n * float(expected.abs().max()))
    assert fractions == sorted(fractions)
