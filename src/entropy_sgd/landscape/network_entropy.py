"""Local entropy of a network at its weights, F(x, gamma) of eq. (4), where no quadrature can reach."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

import torch
from torch import nn

from ._checks import count, positive
from ._linalg import lengths
from ._objective import Batches, LossFunction, Objective, objective
from ._progress import Progress
from .density import lanczos_quadrature, random_probes
from .lanczos import Krylov, block_lanczos
from .langevin import BATCHES, thermodynamic_integration


@dataclass(frozen=True)
class NetworkLocalEntropy:
    """An estimate of F(x, gamma)."""

    value: float
    """F itself."""
    normalized: float
    """F - (n/2) log(2 pi / gamma), the log of the Gaussian-smoothed likelihood; compares across networks."""
    error: float
    """The standard error of both."""


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
    """F(x, gamma) at the model's weights x, f being the loss over all of ``batches``.

    ``"laplace"`` replaces f by its second-order expansion around x, as the proof of Lemma 1 does,

        F ~ -f + 1/2 g^T (H + gamma)^-1 g - 1/2 log det(H + gamma) + (n/2) log 2 pi,

    with solve and log-determinant from one run of block Lanczos. It needs ``steps * (probes + 1)`` products
    and an H + gamma without negative eigenvalues. The error holds the scatter over the probes, what the last
    tenth of the steps changed, and a bound on the solve's remainder; the expansion's own error is not in it.

    ``"langevin"`` samples instead of expanding (thermodynamic integration, eq. (8) with the loss switched on
    gradually): nothing is approximated but by the chains' length. It needs 22.5 * chains * steps gradients
    over all of ``batches``. The largest curvature dictates the size of its steps while the chains must cross
    distances of 1/sqrt(gamma), so a gamma far below that curvature wants many steps.

    Args:
        model: as for ``hessian_eigenvalues``, also regarding frozen parameters and eval mode.
        loss_fn: ``loss_fn(model(inputs), targets)``, the mean over a batch.
        batches: a re-iterable of ``(inputs, targets)``.
        gamma: the scope, above 0.
        method: ``"laplace"`` or ``"langevin"``.
        probes: random vectors of the log-determinant (Laplace), at least 2.
        steps: of Lanczos (100 if not given), or of each chain (1,000 if not given).
        chains: at each of 15 temperatures (Langevin).
        seed: of probes or noise; torch's global generator is left alone.
        dtype: the type everything is computed in.
        progress: show on standard error how far it is, once it takes more than 10 seconds.

    """
    gamma = positive("gamma", gamma)
    if method not in ("laplace", "langevin"):
        raise ValueError(f"method must be 'laplace' or 'langevin', got {method!r}")
    probes, chains = count("probes", probes, least=2), count("chains", chains)
    with objective(model, loss_fn, batches, dtype) as f:
        bar = Progress("local entropy", progress)
        if method == "laplace":
            steps = count("steps", 100 if steps is None else steps, least=2)
            normalized, error = _laplace(f, gamma, probes, steps, seed, bar)
        else:
            steps = count("steps", 1000 if steps is None else steps, least=2 * BATCHES)
            normalized, error = thermodynamic_integration(
                f.values_and_gradients, f.weights, gamma, chains=chains, steps=steps, seed=seed, report=bar.at
            )
        return NetworkLocalEntropy(normalized + f.n / 2 * math.log(2 * math.pi / gamma), normalized, error)


def _laplace(
    f: Objective, gamma: float, probes: int, steps: int, seed: int, bar: Progress
) -> tuple[float, float]:
    """The normalised value: -f + 1/2 g^T (H + gamma)^-1 g - 1/2 tr log(1 + H / gamma), and its error."""
    g = f.gradient(f.weights)
    norm = float(lengths(g))
    # The gradient travels in the block of probes, at their length.
    start = torch.cat([random_probes(f, probes, seed), g[None] / norm if norm else g[None]])
    krylov = block_lanczos(f.products, start, steps, bar.at)

    def log_determinant(part: Krylov) -> tuple[float, float]:
        density = lanczos_quadrature(part, probes)
        if density.extremes[0] <= -gamma:
            raise ValueError(
                f"gamma = {gamma:g} does not exceed the Hessian's most negative eigenvalue, "
                f"{density.extremes[0]:.3g}: Laplace's integral diverges; take a larger gamma or "
                "method='langevin'"
            )
        return density.trace_of(lambda nodes: torch.log1p(nodes / gamma))

    log_det, scatter = log_determinant(krylov)
    last = 0.0
    if len(krylov.coupling):  # otherwise the space is invariant and more steps would change nothing
        last = log_det - log_determinant(krylov.without_last(1 + len(krylov.blocks) // 10))[0]
    solve, remainder = (float(entry[-1]) * norm**2 for entry in krylov.solve(gamma))
    lowest = float(krylov.ritz()[0][0]) + gamma
    error = math.hypot(scatter, last, remainder / lowest) / 2
    return -f.start + solve / 2 - log_det / 2, error
