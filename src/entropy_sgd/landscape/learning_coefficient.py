"""The local learning coefficient: the effective number of parameters at a minimum, halved.

    lambda(w*) = N beta (E_beta[f] - f(w*)),        beta = 1 / log N,
    E_beta over p(w) ~ exp(-N beta f(w) - gamma/2 |w - w*|^2)

Lau et al., "The Local Learning Coefficient: A Singularity-Aware Complexity Measure", 2023 (AISTATS 2025),
after Watanabe, "A Widely Applicable Bayesian Information Criterion", JMLR 2013. A regular minimum in d
dimensions has d / 2; flat directions lower it. The distribution is that of the paper's eq. (8) at inverse
temperature N beta.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from entropy_sgd.arguments import count, positive
from entropy_sgd.landscape.gibbs_chains import PIECES, sample_losses, standard_error
from entropy_sgd.landscape.objective import Batches, LossFunction, objective
from entropy_sgd.landscape.runtime import Progress


@dataclass(frozen=True)
class LearningCoefficient:
    """An estimate of the local learning coefficient."""

    value: float
    """N beta (E_beta[f] - f(w*))."""
    error: float
    """The standard error of `value` from sampling."""
    loss: float
    """f(w*)."""
    chain_losses: Tensor
    """The sampled losses (chains, steps), float64: a drift along the steps means the chains are too short."""


def local_learning_coefficient(
    model: nn.Module,
    loss_fn: LossFunction,
    batches: Batches,
    *,
    gamma: float = 1.0,
    samples: int | None = None,
    beta: float | None = None,
    chains: int = 4,
    steps: int = 1000,
    seed: int = 0,
    dtype: torch.dtype = torch.float64,
    progress: bool = True,
) -> LearningCoefficient:
    """The local learning coefficient at the model's weights w*, f being the loss over all of `batches`.

    The samples come from the Langevin chains of `network_local_entropy`, with gradients over all of `batches`
    and a Metropolis test: the step size causes no bias, unlike in Lau et al., who use SGLD. It takes
    1.5 * chains * steps gradients over all of `batches`.

    The weights should be at a minimum of f: elsewhere the chains find lower losses and the value can be
    negative. The spring gamma keeps the chains near w*; on a quadratic of curvatures h_i it gives
    sum_i h_i / (h_i + gamma / (N beta)) / 2, so gamma should be small against N beta h_i for the directions
    that count. The error covers sampling only, not this bias or that of a finite N. Chains start at w* and
    cover distances of 1/sqrt(gamma) along flat directions, so a small gamma needs many steps.

    Args:
        model: as for `hessian_eigenvalues`, including frozen parameters and eval mode.
        loss_fn: `loss_fn(model(inputs), targets)`, the mean over a batch: a negative log-likelihood.
        batches: a re-iterable of `(inputs, targets)`.
        gamma: the localisation, above 0.
        samples: N, at least 3; defaults to the number of targets in `batches`.
        beta: the inverse temperature; defaults to 1 / log N.
        chains: number of chains.
        steps: of each chain, at least 40, after half as many to forget the start and tune the step size.
        seed: of the noise; torch's global generator is not used.
        dtype: the type of all computations.
        progress: report progress on standard error once the call has taken 10 seconds.

    Returns:
        A `LearningCoefficient` with `.value` and its standard error `.error`.
    """
    gamma, chains = positive("gamma", gamma), count("chains", chains)
    steps = count("steps", steps, least=2 * PIECES)
    samples = None if samples is None else count("samples", samples, least=3)
    beta = None if beta is None else positive("beta", beta)
    with objective(model, loss_fn, batches, dtype) as f:
        n = count("samples (the number of targets in batches)", samples or f.samples, least=3)
        t = n * (1 / math.log(n) if beta is None else beta)
        temperature = torch.tensor([t], dtype=torch.float64, device="cpu")
        report = Progress("learning coefficient", progress).at
        losses = sample_losses(
            f.values_and_gradients, f.weights, gamma, temperature, chains, steps, seed, report
        )[:, 0].T
        value, error = t * (float(losses.mean()) - f.start), t * standard_error(losses)
        return LearningCoefficient(value, error, f.start, losses.contiguous())
