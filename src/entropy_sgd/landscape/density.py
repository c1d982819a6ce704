"""The spectral density of the Hessian from Hessian-vector products: stochastic Lanczos quadrature.

For random unit vectors v_i, with weights w_ik = <u_k, v_i>^2 for the Ritz values theta_k,

    (1/n) tr g(H)  ~  (1/b) sum_i sum_k w_ik g(theta_k).

The b estimates are independent, so their scatter gives a standard error.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from entropy_sgd.arguments import count, positive
from entropy_sgd.landscape.inputs import Selection
from entropy_sgd.landscape.lanczos import Krylov, block_lanczos
from entropy_sgd.landscape.objective import Batches, LossFunction, Objective, objective
from entropy_sgd.landscape.runtime import Progress, generator


@dataclass(frozen=True)
class SpectralDensity:
    """A spectral density as nodes with weights."""

    nodes: Tensor
    """Ritz values, ascending; float64, shape (m,)."""
    probe_weights: Tensor
    """The weights that each probe gives the nodes; (probes, m), each row summing to 1."""
    dimension: int
    """n, the number of parameters."""
    exact: bool
    """Whether the nodes are all n eigenvalues (the Krylov space is the whole space)."""

    @property
    def weights(self) -> Tensor:
        """The share of the spectrum at each node: flat, summing to 1."""
        return self.probe_weights.mean(0)

    @property
    def extremes(self) -> tuple[float, float]:
        """The lowest and the highest Ritz value, which never lie outside the range of the eigenvalues."""
        return float(self.nodes[0]), float(self.nodes[-1])

    @property
    def trace(self) -> float:
        """An unbiased estimate of the trace of the Hessian."""
        return self.trace_of(lambda nodes: nodes)[0]

    @property
    def trace_error(self) -> float:
        """The standard error of `trace`; NaN with a single probe."""
        return self.trace_of(lambda nodes: nodes)[1]

    def trace_of(self, g: Callable[[Tensor], Tensor]) -> tuple[float, float]:
        """The trace of g(H) for an element-wise `g`, and its standard error over the probes."""
        estimates = self.dimension * (self.probe_weights * g(self.nodes)).sum(1)
        if self.exact:
            return float(estimates.mean()), 0.0
        if len(estimates) == 1:
            return float(estimates), math.nan
        return float(estimates.mean()), float(estimates.std() / math.sqrt(len(estimates)))

    def density(self, grid: Tensor, width: float | None = None) -> Tensor:
        """The density at the points of `grid`, each node a Gaussian of standard deviation `width`.

        It integrates to 1. `width` defaults to a hundredth of the spectrum's range.
        """
        if width is None:
            low, high = self.extremes
            width = (high - low) / 100 or max(abs(high), 1.0) / 100
        width = positive("width", width)
        grid = torch.as_tensor(grid, dtype=torch.float64, device=self.nodes.device)
        bells = torch.exp(-0.5 * ((grid[..., None] - self.nodes) / width) ** 2)
        return (bells @ self.weights) / (width * math.sqrt(2 * math.pi))


def spectral_density(
    model: nn.Module,
    loss_fn: LossFunction,
    batches: Batches,
    *,
    probes: int = 8,
    steps: int = 100,
    seed: int = 0,
    parameters: Selection = None,
    dtype: torch.dtype | None = None,
    progress: bool = True,
) -> SpectralDensity:
    """The spectral density of the Hessian of f, the loss over all of `batches`, for models of any size.

    It takes `probes * steps` Hessian-vector products (`probes` at a time) and the memory of as many vectors
    of n numbers. If `probes * steps` reaches n, all eigenvalues are found (except repeated ones) and the
    result no longer depends on the seed.

    Args:
        model: as for `hessian_eigenvalues`, including frozen parameters and eval mode.
        loss_fn: `loss_fn(model(inputs), targets)`, the mean over a batch.
        batches: a re-iterable of `(inputs, targets)`, read once per step; it must yield the same samples each
            time (no random augmentation).
        probes: number of random starting vectors; the error of weights and trace falls as its square root.
        steps: of block Lanczos; more steps resolve the density more finely.
        seed: of the starting vectors; torch's global generator is not used.
        parameters: as for `hessian_eigenvalues`.
        dtype: of products and basis; defaults to the parameters' own (at least float32).
        progress: report progress on standard error once the call has taken 10 seconds.

    Returns:
        A `SpectralDensity`.
    """
    probes, steps = count("probes", probes), count("steps", steps)
    with objective(model, loss_fn, batches, dtype, parameters) as f:
        start = random_probes(f, probes, seed)
        krylov = block_lanczos(f.products, start, steps, Progress("Lanczos", progress).at)
        return lanczos_quadrature(krylov, probes)


def random_probes(f: Objective, probes: int, seed: int) -> Tensor:
    """Starting vectors (probes, n), uniform on the unit sphere."""
    vectors = torch.randn(probes, f.n, generator=generator(seed), dtype=torch.float64, device="cpu")
    return torch.nn.functional.normalize(vectors, dim=1).to(f.device, f.dtype)


def lanczos_quadrature(krylov: Krylov, probes: int) -> SpectralDensity:
    """Nodes and weights from the first `probes` starting vectors."""
    nodes, components = krylov.ritz()
    n = krylov.basis.shape[1]
    weights = (components[:, :probes] ** 2).T
    weights = weights / weights.sum(1, keepdim=True)
    exact = len(nodes) == n
    if exact:
        weights = torch.full_like(weights, 1.0 / n)
    return SpectralDensity(nodes, weights, n, exact)
