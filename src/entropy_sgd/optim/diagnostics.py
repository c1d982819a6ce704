"""What is measured of a cycle: lengths, and the angle that Section 5.4 of the paper monitors."""

from __future__ import annotations

import math
from typing import Any, cast

import torch
from torch import Tensor

UNKNOWN = dict.fromkeys(("gamma", "x_minus_mu", "x_minus_x_prime", "gradient", "cosine"), math.nan)


def measure(
    displacement_sq: Any, gradient_sq: Any, distance: Any, dot: Any, *, steps: int
) -> dict[str, float]:
    """The figures of a cycle, but for gamma; all arguments are numbers or tensors.

    Args:
        displacement_sq: |x - mu|^2.
        gradient_sq: |grad f(x)|^2.
        distance: the sum of |x - x'| over the steps.
        dot: the inner product of x - mu and grad f(x), perhaps an estimate; None if it is unknown.
        steps: in the cycle.
    """
    measured = [displacement_sq, gradient_sq, distance, math.nan if dot is None else dot]
    tensors = [v for v in measured if isinstance(v, Tensor)]
    if all(v.is_cpu for v in tensors):
        measured = [float(v) for v in measured]
    else:  # one transfer from the device for all of them, once a cycle
        device = tensors[0].device
        dtype = torch.float32 if device.type == "mps" else torch.float64
        stacked = torch.stack([torch.as_tensor(v, dtype=dtype, device=device) for v in measured])
        measured = cast("list[float]", stacked.tolist())
    displacement, gradient = math.sqrt(measured[0]), math.sqrt(measured[1])
    cosine = measured[3] / (displacement * gradient) if displacement * gradient > 0 else math.nan
    return {
        "x_minus_mu": displacement,
        "x_minus_x_prime": measured[2] / steps,
        "gradient": gradient,
        "cosine": max(-1.0, min(1.0, cosine)) if not math.isnan(cosine) else cosine,
    }
