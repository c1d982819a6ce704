"""Adaptive worst-case sharpness: the largest rise of the loss in a ball that scales with the weights.

    S(w, rho) = max { f(w + e) - f(w) :  |T_w^-1 e| <= rho },        T_w = diag(|w_i| + eta)

Kwon et al., "ASAM: Adaptive Sharpness-Aware Minimization for Scale-Invariant Learning of Deep Neural
Networks", ICML 2021, Definition 2. With eta = 0 it does not change when weights are rescaled in a way that
leaves the network's function unchanged.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor, nn

from entropy_sgd.arguments import count, number, positive
from entropy_sgd.landscape.objective import Batches, LossFunction, objective
from entropy_sgd.landscape.runtime import Progress, generator
from entropy_sgd.landscape.typed_torch import lengths


@dataclass(frozen=True)
class AdaptiveSharpness:
    """The largest rise of the loss found within the ball: a lower bound of S(w, rho)."""

    value: float
    """f(w + e) - f(w), at least 0."""
    loss: float
    """f(w)."""
    perturbation: Tensor
    """The perturbation e (n,), flat and in parameter order."""


def adaptive_sharpness(
    model: nn.Module,
    loss_fn: LossFunction,
    batches: Batches,
    rho: float,
    *,
    eta: float = 0.0,
    steps: int = 50,
    starts: int = 4,
    seed: int = 0,
    dtype: torch.dtype | None = None,
    progress: bool = True,
) -> AdaptiveSharpness:
    """The largest rise of the loss over all of `batches` within |T_w^-1 e| <= rho, by projected ascent.

    In u = T_w^-1 e the ball is round and the gradient is T_w grad f. Each ascent moves by a length s along
    that gradient and projects back onto the ball; s halves when the loss would fall and grows again when it
    rises. The first ascent starts at w (its first step is ASAM's), the others at random points of the sphere,
    because the gradient vanishes at a minimum. The result is the best point of all ascents and hence a lower
    bound of the maximum.

    Args:
        model: as for `hessian_eigenvalues`, including frozen parameters and eval mode.
        loss_fn: `loss_fn(model(inputs), targets)`, the mean over a batch.
        batches: a re-iterable of `(inputs, targets)`.
        rho: the radius, above 0.
        eta: added to |w_i| in T_w, so that weights near zero can move too; 0 keeps the scale invariance.
        steps: of each ascent; each takes `starts` gradients over all of `batches`.
        starts: number of ascents.
        seed: of the random starts; torch's global generator is not used.
        dtype: the type of all computations; defaults to the parameters' own (at least float32).
        progress: report progress on standard error once the call has taken 10 seconds.

    Returns:
        An `AdaptiveSharpness` with `.value`, `.loss` and `.perturbation`.
    """
    rho, steps, starts = positive("rho", rho), count("steps", steps), count("starts", starts)
    number("eta", eta)
    stream, bar = generator(seed), Progress("sharpness", progress)
    with objective(model, loss_fn, batches, dtype) as f:
        f.gradient(f.weights)  # raises if it is not finite at the weights themselves
        scale = f.weights.abs() + eta

        def at(u: Tensor) -> tuple[Tensor, Tensor]:
            values, slopes = f.values_and_gradients(f.weights + scale * u)
            if not bool(torch.isfinite(values).all() and torch.isfinite(slopes).all()):
                raise ValueError(
                    f"the loss or its gradient is not finite within rho = {rho:g} of the weights: "
                    "take a smaller rho"
                )
            return values, slopes * scale

        u = torch.randn(starts, f.n, generator=stream, dtype=torch.float64, device="cpu").to(f.weights)
        u = rho * u / lengths(u)[:, None]
        u[0] = 0.0
        values, slopes = at(u)
        base = float(values[0])  # f.start, with the rounding of the other values
        length = torch.full_like(values, 2 * rho)
        for i in range(steps):
            norms = lengths(slopes)[:, None]
            ascent = torch.where(norms > 0, slopes / norms, 0.0)
            moved = u + length[:, None] * ascent
            moved = moved * (rho / lengths(moved)[:, None]).clamp(max=1.0)
            new_values, new_slopes = at(moved)
            better = new_values > values
            u = torch.where(better[:, None], moved, u)
            slopes = torch.where(better[:, None], new_slopes, slopes)
            values = torch.where(better, new_values, values)
            length = torch.where(better, 1.5 * length, length / 2).clamp(max=2 * rho)
            bar.at((i + 1) / steps)
        best = int(values.argmax())
        rise = float(values[best]) - base
        return AdaptiveSharpness(rise, f.start, scale * u[best])
