"""Line 7 of Algorithm 1 with torch.optim.SGD outside, as the compiled kernels compute it in one pass.

    g = scale (x - mu) + weight_decay x
    v = momentum v + (1 - dampening) g,     g itself at the first update
    x = x - lr v,                           or x - lr (g + momentum v) in Nesterov's form

kernel_outer.py and triton_step.py each have it as `outer_step_`.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Descent:
    """Its hyper-parameters."""

    lr: float
    momentum: float
    dampening: float
    weight_decay: float
    nesterov: bool
    scale: float
    """gamma with `scale_by_gamma`, else 1; negative to maximize."""
