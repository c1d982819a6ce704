"""Local entropy by Langevin dynamics and thermodynamic integration.

With p_t(x') ~ exp(-t f(x') - gamma/2 |x - x'|^2), the Gibbs distribution of eq. (8) with the loss switched on
by t, the derivative of its log-partition function is -<f>_t, so

    F(x, gamma) - (n/2) log(2 pi / gamma) = -int_0^1 <f>_t dt,

the log of the likelihood exp(-f) smoothed by a Gaussian of variance 1/gamma. The averages are taken along
Langevin chains. Their step is implicit in the Gaussian term: for u = x' - x and a step size d,

    u <- a u - b t grad f / gamma + s N(0, I/gamma),   a = (2-d)/(2+d),  b = 2d/(2+d),  s^2 = 1 - a^2,

which is exact at t = 0 whatever d; a Metropolis test makes it exact at every t.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import torch
from torch import Tensor

from ._objective import finite
from ._random import generator

# The 15-point Kronrod rule on [-1, 1] and the 7-point Gauss rule inside it, from the end to the middle.
_NODES = (
    0.9914553711208126,
    0.9491079123427585,
    0.8648644233597691,
    0.7415311855993945,
    0.5860872354676911,
    0.4058451513773972,
    0.2077849550078985,
    0.0,
)
_KRONROD = (
    0.0229353220105292,
    0.0630920926299786,
    0.1047900103222502,
    0.1406532597155259,
    0.1690047266392679,
    0.1903505780647854,
    0.2044329400752989,
    0.2094821410847278,
)
_GAUSS = (0.0, 0.1294849661688697, 0.0, 0.2797053914892767, 0.0, 0.3818300505051189, 0.0, 0.4179591836734694)

POWER = 5  # t = u^5: <f>_t changes fastest near t = 0, where the chains are free
ACCEPTANCE = 0.6  # of proposals, which the step sizes aim at
BATCHES = 20  # pieces of a chain, whose means are taken as independent


def rule() -> tuple[Tensor, Tensor, Tensor]:
    """Temperatures t in (0, 1), their Kronrod weights and their Gauss weights for int_0^1 dt."""
    half = torch.tensor(_NODES, dtype=torch.float64)
    u = (1 + torch.cat([-half[:-1], half.flip(0)])) / 2
    weights = torch.tensor([_KRONROD, _GAUSS], dtype=torch.float64) / 2
    weights = torch.cat([weights[:, :-1], weights.flip(1)], dim=1) * POWER * u ** (POWER - 1)
    return u**POWER, weights[0], weights[1]


def thermodynamic_integration(
    values_and_gradients: Callable[[Tensor], tuple[Tensor, Tensor]],
    x: Tensor,
    gamma: float,
    *,
    chains: int,
    steps: int,
    seed: int,
    report: Callable[[float], None] = lambda fraction: None,
) -> tuple[float, float]:
    """-int_0^1 <f>_t dt and its standard error.

    ``values_and_gradients`` maps points (K, n) to f (K,) and its gradients (K, n). ``chains`` chains run at
    each of 15 temperatures for ``steps`` steps, after half as many to forget their start at x and tune d.
    The error joins the scatter within and between chains and the difference of the two quadrature rules.
    """
    temperatures, kronrod, gauss = rule()
    t = temperatures.repeat_interleave(chains)
    trace = _sample(values_and_gradients, x, gamma, t, steps, seed, report)
    trace = trace.view(len(temperatures), chains, steps)
    means = trace.mean(dim=(1, 2))
    integral = -float(kronrod @ means)
    pieces = trace[:, :, : steps - steps % BATCHES].reshape(len(t) // chains, chains * BATCHES, -1).mean(-1)
    errors = pieces.std(1) / math.sqrt(chains * BATCHES)
    if chains > 1:  # chains that disagree by more than their pieces say have not mixed
        errors = torch.maximum(errors, trace.mean(2).std(1) / math.sqrt(chains))
    sampling = float(((kronrod * errors) ** 2).sum().sqrt())
    difference = abs(integral + float(gauss @ means))
    # 15 points are better than 7 by more than this on functions 1 / (1 + r t) up to r = 10^5.
    quadrature = difference * math.sqrt(difference / max(abs(integral), difference)) if difference else 0.0
    return integral, math.hypot(sampling, quadrature)


def _sample(
    values_and_gradients: Callable[[Tensor], tuple[Tensor, Tensor]],
    x: Tensor,
    gamma: float,
    t: Tensor,
    steps: int,
    seed: int,
    report: Callable[[float], None],
) -> Tensor:
    """The values of f along one chain for each entry of ``t``: (chains, steps), float64."""
    stream = generator(seed)
    burn = steps // 2
    u = torch.zeros(len(t), len(x), dtype=x.dtype, device=x.device)
    f, slope = values_and_gradients(x + u)
    finite("gradient", slope)
    t = t.to(x.device, x.dtype)
    d = torch.full_like(t, 0.5)
    trace = torch.empty(steps, len(t), dtype=torch.float64)

    def log_proposal(new: Tensor, old: Tensor, gradient: Tensor) -> Tensor:
        drift = a * old - b * t[:, None] * gradient / gamma
        return -0.5 * gamma * ((new - drift) ** 2).sum(1) / (1 - a[:, 0] ** 2)

    for i in range(burn + steps):
        a, b = ((2 - d) / (2 + d))[:, None], (2 * d / (2 + d))[:, None]
        noise = torch.randn(u.shape, generator=stream, dtype=torch.float64).to(u.device, u.dtype)
        proposal = a * u - b * t[:, None] * slope / gamma + (1 - a**2).sqrt() * noise / math.sqrt(gamma)
        f_new, slope_new = values_and_gradients(x + proposal)
        gain = t * (f - f_new) + 0.5 * gamma * ((u**2).sum(1) - (proposal**2).sum(1))
        gain = gain + log_proposal(u, proposal, slope_new) - log_proposal(proposal, u, slope)
        gain = gain.nan_to_num(-math.inf, posinf=-math.inf)  # a loss that overflows is never accepted
        accepted = torch.rand(len(t), generator=stream, dtype=torch.float64).log().to(u.device) < gain
        u = torch.where(accepted[:, None], proposal, u)
        slope = torch.where(accepted[:, None], slope_new, slope)
        f = torch.where(accepted, f_new, f)
        if i < burn:
            rate = gain.exp().clamp(max=1.0) - ACCEPTANCE
            d = (d.log() + rate * 2 / (1 + i) ** 0.5).exp().clamp(max=2.0)
        else:
            trace[i - burn] = f.double()
        report((i + 1) / (burn + steps))
    return trace.T
