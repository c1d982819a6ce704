"""A small non-convex problem with an analytic gradient, optimizers, and the loop that drives them over it."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import torch
from torch import Tensor

from entropy_sgd import EntropyAdam, EntropySGD, LocalEntropy, scoping

KINDS = {
    "sgd": lambda params: EntropySGD(params, momentum=0.9, L=4, noise=1e-2),
    "adam": lambda params: EntropyAdam(params, L=4, noise=1e-2, inner="adam", inner_lr=0.01),
    "adamw": lambda params: LocalEntropy(
        params, torch.optim.AdamW, {"lr": 1e-2, "weight_decay": 0.1}, L=4, noise=1e-2, weight_decay=0.01
    ),
    "match": lambda params: EntropySGD(params, momentum=0.9, L=4, noise=1e-2, gamma=scoping.MatchGradient()),
    "rmsprop": lambda params: LocalEntropy(params, torch.optim.RMSprop, {"lr": 1e-2}, L=4, noise=1e-2),
}

SHAPES = [(3, 4), (5,), (2, 1, 3)]
SIZE = sum(int(np.prod(s)) for s in SHAPES)


class Problem:
    """f(x; b) = sum(1 - cos(A_b x)) / 2 + |x|^2 / 20 for mini-batch b; wavy, bounded below."""

    def __init__(self, seed: int = 0, batches: int = 400) -> None:
        rng = np.random.default_rng(seed)
        self.A = rng.normal(size=(batches, 7, SIZE)) / 2
        self.start = rng.normal(size=SIZE)

    def gradient(self, x: np.ndarray, batch: int) -> np.ndarray:
        A = self.A[batch]
        return A.T @ np.sin(A @ x) / 2 + x / 10

    def parameters(self, dtype: torch.dtype = torch.float64) -> list[torch.nn.Parameter]:
        pieces = torch.tensor(self.start, dtype=dtype).split([int(np.prod(s)) for s in SHAPES])
        return [torch.nn.Parameter(p.clone().view(s)) for p, s in zip(pieces, SHAPES, strict=True)]

    def closure(self, params: list[torch.nn.Parameter], counter: list[int]) -> Callable[[], Tensor]:
        """Draws the next mini-batch on each call, by autograd from f itself."""

        def call() -> Tensor:
            for p in params:
                p.grad = None
            x = flat(params)
            A = torch.tensor(self.A[counter[0]], dtype=x.dtype)
            counter[0] += 1
            loss = (1 - torch.cos(A @ x)).sum() / 2 + x.square().sum() / 20
            loss.backward()
            return loss

        return call


def flat(params: list[torch.nn.Parameter]) -> Tensor:
    return torch.cat([p.reshape(-1) for p in params])


def run(
    optimizer: torch.optim.Optimizer, params: list[torch.nn.Parameter], problem: Problem, steps: int
) -> Tensor:
    closure = problem.closure(params, [0])
    for _ in range(steps):
        closure()
        optimizer.step()
    return flat(params).detach()
