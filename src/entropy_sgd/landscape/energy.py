"""Local energy: how much the training error rises under random multiplicative noise on the weights.

    dE(w, sigma) = E_z [E(w_1 (1 + sigma z_1), ..., w_n (1 + sigma z_n))] - E(w),        z ~ N(0, I)

Pittorino et al., "Entropic gradient descent algorithms and wide flat minima", ICLR 2021.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from entropy_sgd.arguments import count, positive
from entropy_sgd.landscape.inputs import describe
from entropy_sgd.landscape.objective import Batches, LossFunction, Objective, objective
from entropy_sgd.landscape.runtime import Progress, generator
from entropy_sgd.landscape.slices import ErrorFunction, classification_error


@dataclass(frozen=True)
class LocalEnergy:
    """An estimate of the local energy dE(w, sigma)."""

    value: float
    """The mean rise of the error over the draws."""
    error: float
    """The standard error of `value`."""
    start: float
    """The error E(w) at the weights themselves."""
    rises: Tensor
    """The rise of the error in each draw, (draws,), float64."""


def local_energy(
    model: nn.Module,
    loss_fn: LossFunction,
    batches: Batches,
    sigma: float,
    *,
    draws: int = 32,
    error_fn: ErrorFunction | None = None,
    seed: int = 0,
    dtype: torch.dtype | None = None,
    progress: bool = True,
) -> LocalEnergy:
    """The mean rise of the error over all of `batches` when each weight w_i becomes w_i (1 + sigma z_i).

    Flat minima have a low local energy. Rescaling the weights does not change it where the network's outputs
    are invariant under that rescaling, as between layers of rectified units. Equal seeds give the same draws
    z for every sigma, so a curve over sigma is smooth. Running statistics of batch normalisation stay those
    of the model.

    Args:
        model: as for `hessian_eigenvalues`, including frozen parameters and eval mode.
        loss_fn: `loss_fn(model(inputs), targets)`, the mean over a batch; it must be finite at the weights.
        batches: a re-iterable of `(inputs, targets)`: the training data, read `draws + 1` times.
        sigma: the relative size of the noise, above 0; the paper looks at values up to 0.5.
        draws: number of draws of z, at least 2.
        error_fn: `error_fn(outputs, targets)`, a mean over the batch; defaults to the share of targets (whole
            numbers) that are not the largest of the outputs, as in `line`; a single output per target needs
            one. Pass `loss_fn` for the rise of the loss.
        seed: of the draws; torch's global generator is not used.
        dtype: the type of all computations; defaults to the parameters' own (at least float32).
        progress: report progress on standard error once the call has taken 10 seconds.

    Returns:
        A `LocalEnergy` with `.value` and its standard error `.error`.
    """
    sigma, draws = positive("sigma", sigma), count("draws", draws, least=2)
    stream, bar = generator(seed), Progress("local energy", progress)
    with objective(model, loss_fn, batches, dtype) as f:
        start = _error(f, f.weights, error_fn)
        rises = torch.empty(draws, dtype=torch.float64, device="cpu")
        for i in range(draws):
            z = torch.randn(f.n, generator=stream, dtype=torch.float64, device="cpu").to(f.weights)
            rises[i] = _error(f, f.weights * (1 + sigma * z), error_fn) - start
            bar.at((i + 1) / draws)
    return LocalEnergy(float(rises.mean()), float(rises.std()) / math.sqrt(draws), start, rises)


def _error(f: Objective, w: Tensor, error_fn: ErrorFunction | None) -> float:
    """The error over all batches at `w`."""
    total = 0.0
    for outputs, targets, _, share in f.outputs(w):
        error = (error_fn or classification_error)(outputs, targets)
        if error is None:
            raise ValueError(
                "error_fn must be given, because the targets are not classes or the outputs not their scores "
                f"(outputs: {describe(outputs)}, targets: {describe(targets)}): use error_fn(outputs, "
                "targets), a mean over the batch, such as loss_fn itself"
            )
        total += share * float(error)
    return total
