"""The extreme eigenvalues of the Hessian with their eigenvectors, by block Lanczos."""

from __future__ import annotations

import warnings
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor, nn

from entropy_sgd.arguments import choice, count, positive, refuse
from entropy_sgd.landscape.density import random_probes
from entropy_sgd.landscape.inputs import Selection
from entropy_sgd.landscape.lanczos import Krylov, block_lanczos
from entropy_sgd.landscape.objective import Batches, LossFunction, objective
from entropy_sgd.landscape.runtime import Progress

SPARE = 2  # starting vectors beyond k: the wider gap behind them speeds up convergence

Which = Literal["magnitude", "largest", "smallest"]


@dataclass(frozen=True)
class HessianEigenvectors:
    """Eigenpairs H v = lambda v, in the order asked for."""

    values: Tensor
    """Eigenvalues (k,), float64, on the CPU."""
    vectors: Tensor
    """Unit eigenvectors (k, n), one per row, in parameter order; the largest entry of each is positive."""
    residuals: Tensor
    """|H v - lambda v| of each pair (k,): some eigenvalue is at most this far from lambda."""
    shapes: dict[str, torch.Size]
    """The shape of each measured parameter, in order."""

    def by_parameter(self) -> dict[str, Tensor]:
        """The eigenvectors as one tensor (k, *shape) per parameter."""
        parts = self.vectors.split_with_sizes([shape.numel() for shape in self.shapes.values()], dim=1)
        return {
            name: part.reshape(-1, *shape)
            for (name, shape), part in zip(self.shapes.items(), parts, strict=True)
        }


def hessian_eigenvectors(
    model: nn.Module,
    loss_fn: LossFunction,
    batches: Batches,
    *,
    k: int = 1,
    which: Which = "magnitude",
    tolerance: float = 1e-4,
    steps: int = 100,
    seed: int = 0,
    parameters: Selection = None,
    dtype: torch.dtype | None = None,
    progress: bool = True,
) -> HessianEigenvectors:
    """The k eigenvalues at one end of the Hessian's spectrum, with their eigenvectors.

    Block Lanczos from k + 2 random vectors, which finds eigenvalues of multiplicity up to k + 2, until the
    residual of each wanted pair is at most `tolerance` times the largest Ritz value in magnitude. Each step
    takes k + 2 Hessian-vector products, and the basis as many vectors of n numbers.

    Args:
        model: as for `hessian_eigenvalues`, including frozen parameters and eval mode.
        loss_fn: `loss_fn(model(inputs), targets)`, the mean over a batch.
        batches: a re-iterable of `(inputs, targets)`, read once per step.
        k: number of eigenpairs.
        which: `"magnitude"` for the largest in absolute value, `"largest"` or `"smallest"` for those at one
            end; the most extreme comes first.
        tolerance: relative residual to reach.
        steps: of block Lanczos, at most; a warning says if these do not reach `tolerance`.
        seed: of the starting vectors; torch's global generator is not used.
        parameters: as for `hessian_eigenvalues`.
        dtype: of products and basis; defaults to the parameters' own (at least float32).
        progress: report progress on standard error once the call has taken 10 seconds.

    Returns:
        A `HessianEigenvectors` with `.values`, `.vectors` and `.residuals`.
    """
    k, steps, tolerance = count("k", k), count("steps", steps), positive("tolerance", tolerance)
    choice("which", which, ("magnitude", "largest", "smallest"))
    with objective(model, loss_fn, batches, dtype, parameters) as f:
        if k > f.n:
            raise refuse("k", k, f"at most {f.n}, the number of parameters")

        def converged(krylov: Krylov) -> bool:
            return len(krylov.matrix) >= k and _relative_residual(krylov, which, k) <= tolerance

        start = random_probes(f, min(k + SPARE, f.n), seed)
        krylov = block_lanczos(f.products, start, steps, Progress("Lanczos", progress).at, converged)
        reached = _relative_residual(krylov, which, k)
        if reached > tolerance:
            resolved = tolerance > torch.finfo(f.dtype).eps
            warnings.warn(
                f"hessian_eigenvectors: a relative residual of {reached:.1e} after {len(krylov.blocks)} "
                f"steps, above the tolerance of {tolerance:g}: "
                + ("take more steps" if resolved else f"{f.dtype} does not resolve it"),
                RuntimeWarning,
                stacklevel=2,
            )
        chosen = _chosen(krylov.ritz()[0], which, k)
        vectors = krylov.ritz_vectors(chosen)
        peaks = vectors.gather(1, vectors.abs().argmax(1, keepdim=True))
        return HessianEigenvectors(
            krylov.ritz()[0][chosen], vectors * peaks.sign(), krylov.residuals()[chosen], f.shapes
        )


def _chosen(theta: Tensor, which: Which, k: int) -> Tensor:
    """The indices of the k wanted Ritz values, the most extreme first."""
    key = {"magnitude": theta.abs(), "largest": theta, "smallest": -theta}[which]
    return key.argsort(descending=True)[:k]


def _relative_residual(krylov: Krylov, which: Which, k: int) -> float:
    theta = krylov.ritz()[0]
    largest = float(theta.abs().max())
    worst = float(krylov.residuals()[_chosen(theta, which, k)].max())
    return worst / largest if largest else worst
