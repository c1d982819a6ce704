"""The parts of ``torch.linalg`` that this package uses, with types."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, cast

import torch
from torch import Tensor

_linalg: Any = torch.linalg
eigh = cast(Callable[[Tensor], tuple[Tensor, Tensor]], _linalg.eigh)
qr = cast(Callable[[Tensor], tuple[Tensor, Tensor]], _linalg.qr)
svd = cast(Callable[[Tensor], tuple[Tensor, Tensor, Tensor]], _linalg.svd)


def eigenvalues_of_upper(a: Tensor) -> Tensor:
    """The ascending eigenvalues of a symmetric matrix, of which only the upper triangle is read."""
    return _linalg.eigvalsh(a, UPLO="U")


def lengths(rows: Tensor) -> Tensor:
    """The Euclidean norm of each row; of a vector, its own."""
    return _linalg.vector_norm(rows, dim=-1)
