"""Run by `make wheel` in an environment of its own: the installed package trains by its compiled step."""

from __future__ import annotations

import sys
from pathlib import Path

import torch

import entropy_sgd
from entropy_sgd.optim import kernel

served: list[bool] = []
serves = kernel.serves


def watched(*arguments: object) -> bool:
    """`kernel.serves`, its answers kept."""
    served.append(serves(*arguments))
    return served[-1]


kernel.serves = watched


def weights(**options: object) -> torch.Tensor:
    """The end of three cycles on a quadratic."""
    p = torch.nn.Parameter(torch.linspace(-1, 1, 1000))
    optimizer = entropy_sgd.EntropySGD([p], L=5, noise=0.1, **options)
    for _ in range(15):
        optimizer.zero_grad()
        (p**2).sum().backward()
        optimizer.step()
    return p.detach()


package = Path(entropy_sgd.__file__).parent
assert package.is_relative_to(sys.prefix), f"{package} is not that of {sys.prefix}"
assert kernel.library() is not None, "the compiled step is missing"
compiled = weights()
assert served, "nothing was offered to the compiled step"
assert all(served), "the compiled step did not run"
torch.testing.assert_close(compiled, weights(fused=False), rtol=1e-4, atol=1e-5)
print(f"entropy-sgd {entropy_sgd.__version__}: 15 steps by {kernel.library()._name}")
