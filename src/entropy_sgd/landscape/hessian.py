"""All eigenvalues of the Hessian, exactly (Sec. 5.1, Fig. 1 and Fig. 3)."""

from __future__ import annotations

import importlib
import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from entropy_sgd import extras
from entropy_sgd.landscape.hessian_rows import RowFile, Support
from entropy_sgd.landscape.inputs import Selection
from entropy_sgd.landscape.objective import Batches, LossFunction, Objective, objective
from entropy_sgd.landscape.runtime import Progress, available_memory, duration, gibibytes
from entropy_sgd.landscape.symmetric_eigenvalues import TILE, eigenvalues_in_place
from entropy_sgd.landscape.typed_torch import VECTORS, eigenvalues_of_upper

# torch.linalg.eigvalsh copies its input; up to this size that does not matter and SciPy is not needed.
SMALL = 2048


def hessian_eigenvalues(
    model: nn.Module,
    loss_fn: LossFunction,
    batches: Batches,
    *,
    parameters: Selection = None,
    dtype: torch.dtype = torch.float64,
    checkpoint: str | os.PathLike[str] | None = None,
    progress: bool = True,
) -> Tensor:
    """All eigenvalues of the Hessian of f, the loss over all of `batches`, in ascending order.

    The matrix is built in one array from vectorised Hessian-vector products and decomposed in place. The
    memory needed is that of one n x n matrix (17 GiB for n = 47,658 in float64), plus about 32 times what a
    forward and backward pass of the largest batch takes: keep batches moderate (about 256 samples). Weights
    on which the gradient does not depend have rows of zeros; these are left out from the start, and their
    eigenvalues, 0, added at the end.

    Args:
        model: any module with real parameters; those with `requires_grad` count, in order, the others are
            constants. It is measured in eval mode (with a warning if dropout or batch normalisation was in
            training mode) and left unchanged.
        loss_fn: `loss_fn(model(inputs), targets)`, the mean over a batch.
        batches: a list, DataLoader or other re-iterable of `(inputs, targets)`; batches of different sizes
            are weighted by their number of targets (without those of -100, which torch's losses ignore).
        parameters: names of parameters or modules, if only their diagonal block of the Hessian is wanted
            (`"0"`, or `["0.weight", "2.weight"]`); all other parameters are then constants.
        dtype: the type of all computations. float32 halves the memory and blurs eigenvalues below about 1e-5
            of the largest.
        checkpoint: a file for finished rows, about half the matrix's size. If the call is interrupted, the
            same call resumes from it; the file is checked against model and data, and removed at the end.
        progress: report memory, estimated time and progress on standard error.

    Returns:
        The eigenvalues, a tensor of shape (n,) on the CPU.

    Raises:
        MemoryError: the matrix does not fit; `spectral_density` builds none.
    """
    with objective(model, loss_fn, batches, dtype, parameters) as f:
        support = Support(f)
        banded = None if support.n <= SMALL else _eig_banded()
        _require_memory(support.n, f)
        matrix = torch.empty(support.n, support.n, dtype=dtype, device="cpu")
        file = None if checkpoint is None else RowFile(Path(checkpoint), f, support)
        _build(f, support, matrix, file, Progress("Hessian", progress))
        if banded is None:
            values = eigenvalues_of_upper(matrix)
        else:
            values = eigenvalues_in_place(matrix, banded, Progress("eigenvalues", progress).at)
        if file is not None:
            file.remove()
        zeros = torch.zeros(f.n - support.n, dtype=dtype, device="cpu")
        return torch.cat([values, zeros]).sort().values


def _require_memory(n: int, f: Objective) -> None:
    # The matrix and the decomposition's work arrays: tall panels and one tile of rows.
    needed = (n + TILE + 512) * n * f.weights.element_size()
    if needed > available_memory():
        raise MemoryError(
            f"the Hessian of {f.n} parameters, {n} of them with a nonzero row, needs {gibibytes(needed)} in "
            f"{f.dtype}, but only {gibibytes(available_memory())} are available: use dtype=torch.float32 "
            "for half of it, or spectral_density, which needs no matrix"
        )


def _build(f: Objective, support: Support, matrix: Tensor, file: RowFile | None, progress: Progress) -> None:
    """Fill the upper triangle of H, parameter by parameter and `VECTORS` rows at a time."""
    done = 0 if file is None else file.load(matrix)
    if done:
        progress.say(f"Hessian: {done} of {support.n} rows read from disk")
    if progress.shown and f.n > SMALL:  # smaller ones take seconds
        _announce(f, support, done, progress)
    start = 0
    for k, size in enumerate(support.sizes):
        for row in range(max(0, done - start), size, VECTORS):
            rows = support.rows(k, row, min(row + VECTORS, size))
            matrix[start + row : start + row + len(rows), start:] = rows
            if file is not None:
                file.append(rows)
            progress.at((start + row + len(rows)) / support.n)
        _symmetrise(matrix, start, start + size)
        start += size


def _symmetrise(matrix: Tensor, first: int, last: int) -> None:
    """Write the mean of the two triangles of a diagonal block into its upper triangle, tile by tile."""
    for i in range(first, last, TILE):
        for j in range(i, last, TILE):
            rows, columns = slice(i, min(i + TILE, last)), slice(j, min(j + TILE, last))
            mean = (matrix[rows, columns] + matrix[columns, rows].T) / 2
            matrix[rows, columns] = mean


def _announce(f: Objective, support: Support, done: int, progress: Progress) -> None:
    """Report memory and time, estimated from a few products per parameter and one matrix product."""
    n, build, start = support.n, 0.0, 0
    for k, size in enumerate(support.sizes):
        rows, left = min(size, VECTORS // 4), start + size - max(start, done)
        if left > 0:
            build += _seconds(lambda k=k, rows=rows: support.rows(k, 0, rows)) * left / rows
        start += size
    tall = torch.ones(2 * TILE, 64, dtype=f.dtype, device="cpu")
    square = tall @ tall.T
    decompose = _seconds(lambda: square @ tall) / (2 * len(tall) ** 2 * 64) * 4 / 3 * n**3
    progress.say(
        f"Hessian of {f.n} parameters in {f.dtype}, {f.n - n} of them with a row of zeros: "
        f"{gibibytes(n**2 * f.weights.element_size())} of memory ({gibibytes(available_memory())} available)"
        f", roughly {duration(build)} to build and {duration(decompose)} to decompose"
    )


def _seconds(work: Callable[[], object]) -> float:
    begin = time.monotonic()
    work()
    return time.monotonic() - begin


def _eig_banded() -> Any:
    try:
        return importlib.import_module("scipy.linalg").eig_banded
    except ImportError as error:
        raise ImportError(
            f"hessian_eigenvalues needs SciPy above {SMALL} parameters: {extras.hint('lab')}"
        ) from error
