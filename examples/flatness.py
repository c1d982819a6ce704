"""How flat is the minimum a network has reached? Four measures, on any model, loss function and batches.

Run it with::

python examples/flatness.py
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from entropy_sgd.landscape import (
    adaptive_sharpness,
    hessian_eigenvectors,
    network_local_entropy,
    spectral_density,
)


def quadrants(number: int) -> tuple[Tensor, Tensor]:
    """Points of the plane, labelled by their quadrant."""
    points = torch.randn(number, 2, generator=torch.Generator().manual_seed(0))
    return points, (2 * (points[:, 0] > 0) + (points[:, 1] > 0)).long()


def trained() -> nn.Module:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(2, 16), nn.Tanh(), nn.Linear(16, 4))
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
    points, labels = quadrants(256)
    for _ in range(300):
        optimizer.zero_grad()
        nn.functional.cross_entropy(model(points), labels).backward()
        optimizer.step()
    return model


def measure(model: nn.Module) -> dict[str, float]:
    loss_fn = nn.CrossEntropyLoss()  # a mean over the batch
    batches = [quadrants(256)]  # anything that can be iterated again and again

    density = spectral_density(model, loss_fn, batches, probes=4, steps=40)
    top = hessian_eigenvectors(model, loss_fn, batches, k=1)
    entropy = network_local_entropy(model, loss_fn, batches, gamma=10.0)
    sharpness = adaptive_sharpness(model, loss_fn, batches, rho=0.1)
    return {
        "trace of the Hessian": density.trace,
        "largest eigenvalue": top.values[0].item(),
        "local entropy (higher is wider)": entropy.normalized,
        "adaptive sharpness": sharpness.value,
    }


def main() -> None:
    for name, value in measure(trained()).items():
        print(f"{name:32} {value:.4g}")


if __name__ == "__main__":
    main()
