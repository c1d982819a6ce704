"""What is measured of a cycle: lengths, and the angle that Section 5.4 of the paper monitors."""

from __future__ import annotations

import math
from typing import Any, cast

import torch
from torch import Tensor

from entropy_sgd.optim import sharding
from entropy_sgd.optim.bucket import real, sum_of_squares

UNKNOWN = dict.fromkeys(("gamma", "x_minus_mu", "x_minus_x_prime", "gradient", "cosine"), math.nan)


def measure(
    d: list[Tensor], gradients: list[Tensor | None], params: list[Tensor], gradient_sq: Any, distance: Any
) -> dict[str, float]:
    """The figures of a cycle, but for gamma.

    Args:
        d: x - mu, the elements on this rank.
        gradients: grad f(x); with a None among them the cosine is unknown.
        params: the parameters they belong to.
        gradient_sq: |grad f(x)|^2, a number or a tensor.
        distance: the mean of |x - x'|, a number or a tensor.
    """
    displacement_sq = sum_of_squares(d, params)
    measured: list[Any] = [displacement_sq, gradient_sq, distance, math.nan]
    known = [g for g in gradients if g is not None]  # `None in gradients` would compare tensors, slowly
    if len(known) == len(gradients):
        pairs = zip(d, real(known), strict=True)
        dots = [torch.dot(a.reshape(-1), b.reshape(-1)).to(displacement_sq) for a, b in pairs]
        measured[3] = sharding.total(torch.stack(dots), params)
    # One transfer from the device for all of them, once a cycle.
    dtype, device = displacement_sq.dtype, displacement_sq.device
    stacked = torch.stack([torch.as_tensor(v, dtype=dtype, device=device) for v in measured])
    figures = cast("list[float]", stacked.tolist())
    displacement, gradient = math.sqrt(figures[0]), math.sqrt(figures[1])
    return {
        "x_minus_mu": displacement,
        "x_minus_x_prime": figures[2],
        "gradient": gradient,
        "cosine": figures[3] / (displacement * gradient) if displacement * gradient > 0 else math.nan,
    }
