"""The step that runs against the readable one, over every rule and dtype."""

from __future__ import annotations

import pytest
import torch

from entropy_sgd.optim.langevin import Langevin, langevin_step, langevin_step_
from entropy_sgd.optim.rules import RULES as NAMED

RULES = [
    ("sgd", 0.0, False),
    ("sgd", 0.9, False),
    ("sgd", 0.9, True),
    ("adam", 0.0, False),
    ("sghmc", 0.9, False),
    ("sgnht", 0.9, False),
]


@pytest.mark.parametrize(("inner", "momentum", "nesterov"), RULES)
@pytest.mark.parametrize("weight_decay", [0.0, 0.1])
@pytest.mark.parametrize("noisy", [True, False])
@pytest.mark.parametrize(
    ("dtype", "tolerance"), [(torch.float64, 1e-12), (torch.float32, 2e-5), (torch.bfloat16, 0.1)]
)
def test_lists_in_place_equal_the_readable_step(
    inner, momentum, nesterov, weight_decay, noisy, dtype, tolerance
):
    rule = NAMED[inner]
    h = Langevin(0.3, weight_decay, rule, 0.1, momentum, nesterov, (0.8, 0.95), 1e-8, 0.05, 0.75)
    generator = torch.Generator().manual_seed(1)
    shapes = [(3, 5), (1,), (2, 2, 2), ()]

    def fresh() -> list[torch.Tensor]:
        return [torch.randn(s, generator=generator, dtype=torch.float64).to(dtype) for s in shapes]

    x = fresh()
    x_prime, mu = [t.clone() for t in x], [t.clone() for t in x]
    buffers = [[rule.buffer(name, t) for t in x] for name in rule.buffers(h)]
    rule.reset_(h, buffers)
    expected = [
        (a, b, tuple(buf[i] for buf in buffers)) for i, (a, b) in enumerate(zip(x_prime, mu, strict=True))
    ]
    expected = [(a.clone(), b.clone(), tuple(c.clone() for c in bufs)) for a, b, bufs in expected]
    for k in range(1, 21):
        gradient, z = fresh(), fresh() if noisy else None
        expected = [
            langevin_step(h, a, gradient[i], x[i], b, bufs, k, None if z is None else z[i])
            for i, (a, b, bufs) in enumerate(expected)
        ]
        langevin_step_(h, x_prime, gradient, x, mu, buffers, [k] * len(shapes), z, x)
    for i, (a, b, bufs) in enumerate(expected):
        torch.testing.assert_close(x_prime[i], a, rtol=tolerance, atol=tolerance)
        torch.testing.assert_close(mu[i], b, rtol=tolerance, atol=tolerance)
        for got, want in zip(buffers, bufs, strict=True):
            torch.testing.assert_close(got[i], want, rtol=tolerance, atol=tolerance)
