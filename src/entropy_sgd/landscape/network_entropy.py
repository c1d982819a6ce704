"""The local entropy of a network at its weights, F(x, gamma) of eq. (4), by expansion or by sampling."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

import torch
from torch import nn

from entropy_sgd.arguments import count, positive
from entropy_sgd.landscape.density import SpectralDensity, lanczos_quadrature, random_probes
from entropy_sgd.landscape.gibbs_chains import PIECES
from entropy_sgd.landscape.lanczos import Krylov, block_lanczos
from entropy_sgd.landscape.objective import Batches, LossFunction, objective
from entropy_sgd.landscape.runtime import Progress
from entropy_sgd.landscape.thermodynamic_integration import thermodynamic_integration
from entropy_sgd.landscape.typed_torch import lengths


@dataclass(frozen=True)
class NetworkLocalEntropy:
    """An estimate of F(x, gamma)."""

    value: float
    """F itself."""
    normalized: float
    """F - (n/2) log(2 pi / gamma), the log of the Gaussian-smoothed likelihood; compares across networks."""
    error: float
    """The standard error of both."""


@dataclass(frozen=True, eq=False, repr=False)
class LaplaceExpansion:
    """f to second order around the weights x, from which F(x, gamma) follows for any gamma."""

    loss: float
    """f(x)."""
    gradient_norm: float
    krylov: Krylov
    """Of the Hessian, from the probes and, as the last starting vector, the gradient at unit length."""
    shorter: tuple[Krylov, ...]
    """The same after half and after a quarter of the steps; empty if further steps would change nothing."""
    probes: int

    @property
    def density(self) -> SpectralDensity:
        """The spectral density of the Hessian, from the same products."""
        return lanczos_quadrature(self.krylov, self.probes)

    def local_entropy(self, gamma: float) -> NetworkLocalEntropy:
        """F(x, gamma), without further products.

        Raises:
            ValueError: H + gamma has a negative eigenvalue, so the integral does not exist.
        """
        gamma = positive("gamma", gamma)
        log_det, scatter = self._log_determinant(self.krylov, gamma)
        missing = 0.0
        if self.shorter:
            half, quarter = (self._log_determinant(krylov, gamma)[0] for krylov in self.shorter)
            missing = _still_to_come(log_det - half, half - quarter)
        solve, remainder = (float(entry[-1]) * self.gradient_norm**2 for entry in self.krylov.solve(gamma))
        lowest = float(self.krylov.ritz()[0][0]) + gamma
        error = math.hypot(scatter, missing, remainder / lowest) / 2
        # -f + 1/2 g^T (H + gamma)^-1 g - 1/2 tr log(1 + H / gamma)
        return _entropy(self.krylov.basis.shape[1], gamma, -self.loss + solve / 2 - log_det / 2, error)

    def _log_determinant(self, krylov: Krylov, gamma: float) -> tuple[float, float]:
        """The trace of log(1 + H / gamma) and its standard error over the probes."""
        density = lanczos_quadrature(krylov, self.probes)
        if density.extremes[0] <= -gamma:
            raise ValueError(
                f"gamma = {gamma:g} does not outweigh the Hessian's most negative eigenvalue, "
                f"{density.extremes[0]:.3g}: Laplace's integral diverges; take a larger gamma, above "
                f"{-density.extremes[0]:.3g}, or method='langevin'"
            )
        return density.trace_of(lambda nodes: torch.log1p(nodes / gamma))


def network_local_entropy(
    model: nn.Module,
    loss_fn: LossFunction,
    batches: Batches,
    gamma: float,
    *,
    method: Literal["laplace", "langevin"] = "laplace",
    probes: int = 16,
    steps: int | None = None,
    chains: int = 2,
    seed: int = 0,
    dtype: torch.dtype = torch.float64,
    progress: bool = True,
) -> NetworkLocalEntropy:
    """F(x, gamma) at the model's weights x, f being the loss over all of `batches`.

    `"laplace"` replaces f by its second-order expansion around x, as the proof of Lemma 1 does,

        F ~ -f + 1/2 g^T (H + gamma)^-1 g - 1/2 log det(H + gamma) + (n/2) log 2 pi,

    with the solve and the log-determinant from one run of block Lanczos. It takes `steps * (probes + 1)`
    products and needs an H + gamma without negative eigenvalues. The error combines the scatter over the
    probes, the change that further steps would make to the log-determinant (extrapolated from the last
    doublings, with a margin), and a bound on the solve's remainder; it does not include the error of the
    expansion itself. Several gammas can share these products: see `laplace_expansion`.

    `"langevin"` samples instead of expanding (thermodynamic integration, eq. (8) with the loss switched on
    gradually); its only approximation is the chains' finite length. It takes 22.5 * chains * steps gradients
    over all of `batches`. The largest curvature limits the step size while the chains must cover distances of
    1/sqrt(gamma), so a gamma far below that curvature needs many steps.

    Args:
        model: as for `hessian_eigenvalues`, including frozen parameters and eval mode.
        loss_fn: `loss_fn(model(inputs), targets)`, the mean over a batch.
        batches: a re-iterable of `(inputs, targets)`.
        gamma: the scope, above 0.
        method: `"laplace"` or `"langevin"`.
        probes: random vectors for the log-determinant (Laplace), at least 2.
        steps: of Lanczos (default 100), or of each chain (default 1,000, at least 40).
        chains: at each of 15 temperatures (Langevin).
        seed: of probes or noise; torch's global generator is not used.
        dtype: the type of all computations.
        progress: report progress on standard error once the call has taken 10 seconds.

    Returns:
        A `NetworkLocalEntropy`.
    """
    gamma = positive("gamma", gamma)
    if method not in ("laplace", "langevin"):
        raise ValueError(f"method must be 'laplace' or 'langevin', got {method!r}")
    probes, chains = count("probes", probes, least=2), count("chains", chains)
    if method == "laplace":
        return laplace_expansion(
            model, loss_fn, batches, probes=probes, steps=steps, seed=seed, dtype=dtype, progress=progress
        ).local_entropy(gamma)
    steps = count("steps", 1000 if steps is None else steps, least=2 * PIECES)
    with objective(model, loss_fn, batches, dtype) as f:
        report = Progress("local entropy", progress).at
        normalized, error = thermodynamic_integration(
            f.values_and_gradients, f.weights, gamma, chains=chains, steps=steps, seed=seed, report=report
        )
        return _entropy(f.n, gamma, normalized, error)


def laplace_expansion(
    model: nn.Module,
    loss_fn: LossFunction,
    batches: Batches,
    *,
    probes: int = 16,
    steps: int | None = None,
    seed: int = 0,
    dtype: torch.dtype = torch.float64,
    progress: bool = True,
) -> LaplaceExpansion:
    """The part of `network_local_entropy` by Laplace that does not depend on gamma: once for many gammas.

        expansion = laplace_expansion(model, loss_fn, batches)
        entropies = [expansion.local_entropy(gamma) for gamma in (0.1, 1.0, 10.0)]

    A shift by gamma does not change the Krylov space of H. Arguments and results are those of
    `network_local_entropy`.
    """
    probes = count("probes", probes, least=2)
    steps = count("steps", 100 if steps is None else steps, least=2)
    with objective(model, loss_fn, batches, dtype) as f:
        g = f.gradient(f.weights)
        norm = float(lengths(g))
        # The gradient, scaled to unit length, joins the block of probes.
        start = torch.cat([random_probes(f, probes, seed), g[None] / norm if norm else g[None]])
        krylov = block_lanczos(
            f.products, start, steps, Progress("local entropy", progress).at
        ).without_basis()
        # Without coupling to a further block the space is invariant.
        m = len(krylov.blocks)
        half = max(m // 2, 1)
        # The quarter is rounded up: a longer way back would make the progress look faster than it is.
        fewer = (half, (half + 1) // 2) if len(krylov.coupling) else ()
        shorter = tuple(krylov.without_last(m - kept) for kept in fewer)
        return LaplaceExpansion(f.start, norm, krylov, shorter, probes)


def _still_to_come(last: float, before: float) -> float:
    """What all further doublings of the steps would add, from the changes made by the last two.

    Lanczos approaches the log-determinant from one side. If each doubling changes it by at most r = last /
    before times what the one before did, no more than last (r + r^2 + ...) is missing. From r = 0.95 on the
    limit is out of sight.
    """
    r = min(abs(last / before), 0.95) if before else 0.95
    return abs(last) * r / (1 - r)


def _entropy(n: int, gamma: float, normalized: float, error: float) -> NetworkLocalEntropy:
    return NetworkLocalEntropy(normalized + n / 2 * math.log(2 * math.pi / gamma), normalized, error)
