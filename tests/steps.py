"""Langevin steps for the tests of kernels: hyper-parameters, and the step with bfloat16 states, naively."""

from __future__ import annotations

import torch
from torch import Tensor

from entropy_sgd.optim import rounding
from entropy_sgd.optim.langevin import Langevin
from entropy_sgd.optim.noise import Span, gaussian_by_torch
from entropy_sgd.optim.rules import RULES


def hyper_parameters(**options) -> Langevin:
    defaults = {
        "gamma": 0.3,
        "weight_decay": 0.01,
        "rule": RULES["sgd"],
        "inner_lr": 0.1,
        "inner_momentum": 0.9,
        "inner_nesterov": True,
        "inner_betas": (0.9, 0.999),
        "inner_eps": 1e-8,
        "noise": 0.5,
        "alpha": 0.75,
    }
    return Langevin(**{**defaults, **options})


class HalfStates:
    """Lines 1 and 4 to 6 on a flat x' of float32 or bfloat16, with mu - x and v in bfloat16."""

    def __init__(self, h: Langevin, x_prime: Tensor, parameter: int, start: int, seed: int) -> None:
        self.h, self.x_prime, self.x = h, x_prime, x_prime.float()
        self.mu_minus_x = torch.zeros_like(x_prime, dtype=torch.bfloat16)
        self.v = torch.zeros_like(self.mu_minus_x)
        self.parameter, self.start, self.seed = parameter, start, seed

    def step(self, gradient: Tensor, t: int, l: int, first: bool) -> None:
        h, shape, device = self.h, self.x_prime.shape, self.x_prime.device

        def bits(slot: int) -> Tensor:
            key = rounding.key(self.seed, t, l, self.parameter, slot)
            return rounding.words(shape, self.start, key, device)

        w, g = self.x_prime.float(), gradient.float()
        if first:
            if self.x_prime.dtype is torch.float32:
                self.x = w.clone()
            self.mu_minus_x.zero_()
            self.v.zero_()
        dx = (w - self.x) * h.gamma + (g + w * h.weight_decay)
        d = dx
        if h.inner_momentum:
            v = self.v.float() * h.inner_momentum + dx
            d = v * h.inner_momentum + dx if h.inner_nesterov else v
            self.v = rounding.to_bfloat16(v, bits(rounding.STATES) >> 16)
        w = d * -h.inner_lr + w
        if h.noise:
            (z,) = gaussian_by_torch([Span(self.parameter, self.start, len(w))], self.seed, t, l, device)
            w = z * (h.inner_lr**0.5 * h.noise) + w
        if self.x_prime.dtype is torch.bfloat16:
            w = rounding.to_bfloat16(w, bits(rounding.WEIGHTS)).float()
        self.x_prime = w.to(self.x_prime.dtype)
        away = w - self.x
        mean = (self.mu_minus_x.float() - away) * (1 - h.alpha) + away
        self.mu_minus_x = rounding.to_bfloat16(mean, bits(rounding.STATES))
