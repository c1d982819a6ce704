"""Algorithm 1 transcribed line by line from the paper, in numpy float64, on one flat vector.

It shares nothing with the package. Momentum and Nesterov follow Section 4.2 ("changing lines 5 and 7") in the
form of torch.optim.SGD; the outer Adam follows Kingma & Ba.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

Vector = np.ndarray


def algorithm_1(
    x: Vector,
    gradient: Callable[[Vector, int], Vector],
    cycles: int,
    *,
    L: int,
    gamma: Callable[[int], float],
    eta: float,
    eta_prime: float,
    alpha: float,
    epsilon: float = 0.0,
    noise: Callable[[int, int], Vector] | None = None,
    momentum: float = 0.0,
    nesterov: bool = False,
    inner_momentum: float = 0.0,
    inner_nesterov: bool = False,
    weight_decay: float = 0.0,
    scale_by_gamma: bool = False,
    outer: str = "sgd",
    betas: tuple[float, float] = (0.9, 0.999),
    inner: str = "sgd",
    inner_betas: tuple[float, float] = (0.9, 0.999),
    eps: float = 1e-8,
    trace: list[Vector] | None = None,
) -> Vector:
    """x after `cycles` iterations; `gradient(x', i)` is the i-th mini-batch's; `trace` collects the x'."""
    x = x.copy()
    v_outer = np.zeros_like(x)
    m_outer, s_outer = np.zeros_like(x), np.zeros_like(x)
    for t in range(cycles):
        g = gamma(t)
        x_prime, mu = x.copy(), x.copy()  # line 1
        v = np.zeros_like(x)
        m, s = np.zeros_like(x), np.zeros_like(x)
        for ell in range(L):  # line 2
            batch = t * L + ell  # line 3
            dx = gradient(x_prime, batch) + weight_decay * x_prime - g * (x - x_prime)  # line 4
            if inner == "adam":
                m = inner_betas[0] * m + (1 - inner_betas[0]) * dx
                s = inner_betas[1] * s + (1 - inner_betas[1]) * dx**2
                m_hat = m / (1 - inner_betas[0] ** (ell + 1))
                s_hat = s / (1 - inner_betas[1] ** (ell + 1))
                d = m_hat / (np.sqrt(s_hat) + eps)
            else:
                v = inner_momentum * v + dx
                d = dx + inner_momentum * v if inner_nesterov else v
            x_prime = x_prime - eta_prime * d  # line 5
            if noise is not None:
                x_prime = x_prime + np.sqrt(eta_prime) * epsilon * noise(t, ell)
            mu = (1 - alpha) * mu + alpha * x_prime  # line 6
            if trace is not None:
                trace.append(x_prime.copy())
        d = g * (x - mu) if scale_by_gamma else x - mu
        if outer == "adam":
            m_outer = betas[0] * m_outer + (1 - betas[0]) * d
            s_outer = betas[1] * s_outer + (1 - betas[1]) * d**2
            m_hat = m_outer / (1 - betas[0] ** (t + 1))
            s_hat = s_outer / (1 - betas[1] ** (t + 1))
            x = x - eta * m_hat / (np.sqrt(s_hat) + eps)  # line 7
        else:
            v_outer = momentum * v_outer + d
            x = x - eta * (d + momentum * v_outer if nesterov else v_outer)  # line 7
    return x
