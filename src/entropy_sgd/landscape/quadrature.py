"""Local entropy of functions of one or two variables, by quadrature.

F(x, gamma) = log int exp(-f(x') - gamma/2 |x - x'|^2) dx',        eq. (4)
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable

import torch
from torch import Tensor

from entropy_sgd.arguments import positive

REACH = 10.0  # the first grid's half-width, in units of 1 / sqrt(gamma)
EDGE = 40.0  # nats by which the integrand must have fallen at the grid's rim
FIRST = {1: 2048, 2: 256}  # intervals per side of the first grid
LAST = {1: 2**20, 2: 4096}  # and of the finest grid
POINTS = 2**20  # evaluated at a time
GROUP = {1: 64, 2: 4}  # points x that share a grid
ENOUGH = 1e-10  # change between two grids, relative to 1 + |F|, below which the finer one is accepted
POOR = 1e-6  # change above which the result comes with a warning


def local_entropy(f: Callable[[Tensor], Tensor], x: Tensor, gamma: float) -> Tensor:
    """F(x, gamma) at each of the points `x`.

    Uses the trapezium rule, which converges faster than any power of the step for smooth integrands that
    vanish at both ends. The grid around x starts at 10 / sqrt(gamma) to either side and is widened and
    refined until the result no longer changes.

    Args:
        f: maps points `(..., d)` to values `(...)`; `inf` is a wall.
        x: points `(..., d)` with d = 1 or 2.
        gamma: the scope, above 0.

    Returns:
        A tensor of shape `(...)` in the type of `x`, computed in float64; differentiable in `x`.
    """
    gamma = positive("gamma", gamma)
    x = torch.as_tensor(x)
    if not x.is_floating_point():
        x = x.double()
    if x.dim() == 0 or x.shape[-1] not in (1, 2):
        raise ValueError(f"x must have 1 or 2 entries in its last dimension, got shape {tuple(x.shape)}")
    if not bool(torch.isfinite(x).all()):
        raise ValueError("x must be finite, but holds values that are not finite")
    points = x.double().reshape(-1, x.shape[-1])
    group = GROUP[x.shape[-1]]
    parts = [_at(f, points[i : i + group], gamma) for i in range(0, len(points), group)]
    return torch.cat([points.new_zeros(0), *parts]).reshape(x.shape[:-1]).to(x.dtype)


def _at(f: Callable[[Tensor], Tensor], x: Tensor, gamma: float) -> Tensor:
    """F at points (b, d), all on the grid that the most demanding of them needs."""
    d = x.shape[-1]
    reach, intervals = REACH, FIRST[d]
    result, rim = _trapezium(f, x, gamma, reach, intervals)
    while True:  # widen until the rim is negligible and doubling the width changes nothing
        wider, wider_rim = _trapezium(f, x, gamma, 2 * reach, min(2 * intervals, LAST[d]))
        if rim < -EDGE and float(_change(result, wider).max()) < ENOUGH:
            break
        reach, intervals, result, rim = 2 * reach, min(2 * intervals, LAST[d]), wider, wider_rim
        if reach > 1e4 * REACH:
            raise ValueError(
                f"F diverges near x = {_text(x[0])}: f falls faster than gamma/2 |x - x'|^2 rises, "
                f"with gamma = {gamma}"
            )
    change = x.new_full((len(x),), math.inf)
    if intervals == LAST[d]:  # it took all of them to reach far enough
        change = _change(_trapezium(f, x, gamma, reach, intervals // 2)[0], result)
    while float(change.max()) > ENOUGH and intervals < LAST[d]:
        intervals *= 2
        finer, _ = _trapezium(f, x, gamma, reach, intervals)
        change, result = _change(result, finer), finer
    worst = int(change.argmax())
    if float(change[worst]) > POOR:
        warnings.warn(
            f"local_entropy at x = {_text(x[worst])} is accurate to about {float(change[worst]):.0e} only: "
            "f is too sharp for the finest grid",
            RuntimeWarning,
            stacklevel=4,
        )
    return result


def _change(old: Tensor, new: Tensor) -> Tensor:
    return (new - old).detach().abs() / (1 + new.detach().abs())


def _trapezium(
    f: Callable[[Tensor], Tensor], x: Tensor, gamma: float, reach: float, intervals: int
) -> tuple[Tensor, float]:
    """F (b,) on one grid around each x, and the largest height of the rim relative to the peak, in nats."""
    d, step = x.shape[-1], 2 * reach / intervals
    side = torch.linspace(-reach, reach, intervals + 1, dtype=torch.float64, device=x.device)
    rows = max(1, POINTS // len(x) // (intervals + 1) ** (d - 1))
    sums: list[Tensor] = []
    rim = peak = torch.full((len(x),), -math.inf, dtype=torch.float64, device=x.device)
    for i in range(0, len(side), rows):
        axes = [side[i : i + rows]] + [side] * (d - 1)
        s = torch.stack(torch.meshgrid(*axes, indexing="ij"), dim=-1).reshape(-1, d)
        exponent = -_values(f, x[:, None] + s / math.sqrt(gamma)) - 0.5 * (s**2).sum(-1)  # (b, points)
        sums.append(torch.logsumexp(exponent, 1))
        peak = torch.maximum(peak, exponent.detach().amax(1))
        edge = (s.abs() >= reach * (1 - 1e-12)).any(-1)
        if bool(edge.any()):
            rim = torch.maximum(rim, exponent.detach()[:, edge].amax(1))
    total = torch.logsumexp(torch.stack(sums), 0)
    return total + d * math.log(step / math.sqrt(gamma)), float((rim - peak).max())


def _values(f: Callable[[Tensor], Tensor], points: Tensor) -> Tensor:
    values = f(points)
    if values.shape != points.shape[:-1]:
        raise ValueError(
            f"f must map points (..., d) to values (...): {tuple(points.shape)} gave {tuple(values.shape)}"
        )
    if bool((values.isnan() | values.isneginf()).any()):
        raise ValueError("f returned NaN or minus infinity")
    return values.double()


def _text(x: Tensor) -> str:
    return "(" + ", ".join(f"{float(entry):g}" for entry in x) + ")"
