"""Langevin chains that sample the Gibbs distribution around the weights, eq. (8), without bias.

At inverse temperature t the distribution is p_t(x') ~ exp(-t f(x') - gamma/2 |x - x'|^2). The step is
implicit in the Gaussian term: for u = x' - x and a step size d,

    u <- a u - b t grad f / gamma + s N(0, I/gamma),   a = (2-d)/(2+d),  b = 2d/(2+d),  s^2 = 1 - a^2,

which is exact at t = 0 for any d; a Metropolis test makes it exact at every t. After each step neighbouring
temperatures t, t' of a chain exchange their points with probability min(1, exp((t - t') (f - f'))): near
t = 0 chains cross barriers freely, and exchanges carry them on to t = 1.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import torch
from torch import Tensor

from entropy_sgd.landscape.objective import finite
from entropy_sgd.landscape.runtime import generator

ACCEPTANCE = 0.6  # of proposals: the target of the step sizes
PIECES = 20  # of a chain, whose means count as independent


def sample_losses(
    values_and_gradients: Callable[[Tensor], tuple[Tensor, Tensor]],
    x: Tensor,
    gamma: float,
    temperatures: Tensor,
    chains: int,
    steps: int,
    seed: int,
    report: Callable[[float], None],
) -> Tensor:
    """The values of f along `chains` chains at each of the ascending `temperatures` t.

    Args:
        values_and_gradients: maps points (K, n) to f (K,) and its gradients (K, n).
        x: the weights (n,), where all chains start.
        gamma: the scope.
        temperatures: inverse temperatures t (T,).
        chains: number of chains per temperature.
        steps: number of steps kept, after half as many to forget the start and tune the step sizes.
        seed: of the noise.
        report: called with the fraction done.

    Returns:
        A float64 tensor (steps, T, chains).
    """
    stream = generator(seed)
    burn = steps // 2
    t = temperatures.repeat_interleave(chains)
    u = torch.zeros(len(t), len(x), dtype=x.dtype, device=x.device)
    f, slope = values_and_gradients(x + u)
    finite("gradient", slope)
    t = t.to(x.device, x.dtype)
    d = torch.full_like(t, 0.5)
    trace = torch.empty(steps, len(t), dtype=torch.float64, device="cpu")

    def log_proposal(new: Tensor, old: Tensor, gradient: Tensor) -> Tensor:
        drift = a * old - b * t[:, None] * gradient / gamma
        return -0.5 * gamma * ((new - drift) ** 2).sum(1) / (1 - a[:, 0] ** 2)

    for i in range(burn + steps):
        a, b = ((2 - d) / (2 + d))[:, None], (2 * d / (2 + d))[:, None]
        noise = torch.randn(u.shape, generator=stream, dtype=torch.float64, device="cpu").to(
            u.device, u.dtype
        )
        proposal = a * u - b * t[:, None] * slope / gamma + (1 - a**2).sqrt() * noise / math.sqrt(gamma)
        f_new, slope_new = values_and_gradients(x + proposal)
        gain = t * (f - f_new) + 0.5 * gamma * ((u**2).sum(1) - (proposal**2).sum(1))
        gain = gain + log_proposal(u, proposal, slope_new) - log_proposal(proposal, u, slope)
        gain = gain.nan_to_num(-math.inf, posinf=-math.inf)  # an overflowing loss is never accepted
        accepted = (
            torch.rand(len(t), generator=stream, dtype=torch.float64, device="cpu").log().to(u.device) < gain
        )
        u = torch.where(accepted[:, None], proposal, u)
        slope = torch.where(accepted[:, None], slope_new, slope)
        f = torch.where(accepted, f_new, f)
        if i < burn:
            rate = gain.exp().clamp(max=1.0) - ACCEPTANCE
            d = (d.log() + rate * 2 / (1 + i) ** 0.5).exp().clamp(max=2.0)
        else:
            trace[i - burn] = f.double()
        order = _exchange(t, f, chains, i % 2, stream)
        u, slope, f = u[order], slope[order], f[order]
        report((i + 1) / (burn + steps))
    return trace.view(steps, len(temperatures), chains)


def _exchange(t: Tensor, f: Tensor, chains: int, parity: int, stream: torch.Generator) -> Tensor:
    """The index that each place takes its point from, after every other pair of neighbours may swap."""
    order = torch.arange(len(t), device=t.device)
    lower = order.view(-1, chains)[parity:-1:2].flatten()
    upper = lower + chains
    chance = torch.rand(len(lower), generator=stream, dtype=torch.float64, device="cpu").log().to(t.device)
    swapped = chance < (t[lower] - t[upper]) * (f[lower] - f[upper])
    order[lower[swapped]], order[upper[swapped]] = upper[swapped], lower[swapped]
    return order


def standard_error(series: Tensor) -> float:
    """The standard error of the mean of `series` (chains, steps), from pieces of chains and whole chains."""
    chains, steps = series.shape
    pieces = series[:, : steps - steps % PIECES].reshape(chains * PIECES, -1).mean(1)
    error = float(pieces.std()) / math.sqrt(len(pieces))
    if chains > 1:  # chains that disagree by more than their pieces suggest have not mixed
        error = max(error, float(series.mean(1).std()) / math.sqrt(chains))
    return error
