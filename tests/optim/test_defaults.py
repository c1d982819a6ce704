"""The defaults train: swapping one line of a loop with SGD, on networks with and without normalisation."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional

from entropy_sgd import EntropySGD
from entropy_sgd.lab import data

STEPS, BATCH = 200, 64


def mlp() -> nn.Module:
    return nn.Sequential(
        nn.Flatten(), nn.Linear(784, 256), nn.ReLU(), nn.Linear(256, 256), nn.ReLU(), nn.Linear(256, 10)
    )


def lenet() -> nn.Module:
    return nn.Sequential(
        nn.Conv2d(1, 8, 5), nn.MaxPool2d(2), nn.ReLU(), nn.Conv2d(8, 16, 5), nn.MaxPool2d(2), nn.ReLU(),
        nn.Flatten(), nn.Linear(256, 64), nn.ReLU(), nn.Linear(64, 10),
    )  # fmt: skip


class LSTM(nn.Module):
    """Reads an image row by row."""

    def __init__(self) -> None:
        super().__init__()
        self.lstm, self.out = nn.LSTM(28, 48, batch_first=True), nn.Linear(48, 10)

    def forward(self, images: Tensor) -> Tensor:
        return self.out(self.lstm(images[:, 0])[0][:, -1])


class Transformer(nn.Module):
    """Two layers of attention over the rows of an image."""

    def __init__(self) -> None:
        super().__init__()
        layer = nn.TransformerEncoderLayer(32, 4, 64, dropout=0.0, batch_first=True, norm_first=True)
        self.embed, self.place = nn.Linear(28, 32), nn.Parameter(0.02 * torch.randn(28, 32))
        self.blocks = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)
        self.out = nn.Linear(32, 10)

    def forward(self, images: Tensor) -> Tensor:
        return self.out(self.blocks(self.embed(images[:, 0]) + self.place).mean(1))


@pytest.fixture(scope="module")
def digits():
    return data.load("digits").train


def trained(build, make, digits, seed: int) -> float:
    """The training loss after `STEPS` gradients, of the outer weights where there are any."""
    torch.manual_seed(seed)
    model = build()
    optimizer = make(model.parameters())
    generator = torch.Generator().manual_seed(seed)
    for _ in range(STEPS):
        batch = torch.randint(len(digits.targets), (BATCH,), generator=generator)
        optimizer.zero_grad()
        functional.cross_entropy(model(digits.inputs[batch]), digits.targets[batch]).backward()
        optimizer.step()
    if isinstance(optimizer, EntropySGD):
        optimizer.eval()
    with torch.no_grad():
        return functional.cross_entropy(model(digits.inputs[::4]), digits.targets[::4]).item()


@pytest.mark.parametrize("seed", [0, 1, 2])
@pytest.mark.parametrize("build", [mlp, lenet, LSTM, Transformer])
def test_the_defaults_reach_the_training_loss_of_sgd(digits, build, seed):
    """To within a quarter, with the same step size and the same gradients."""
    sgd = trained(build, lambda ps: torch.optim.SGD(ps, lr=0.1, momentum=0.9, nesterov=True), digits, seed)
    entropy_sgd = trained(build, EntropySGD, digits, seed)
    assert entropy_sgd < 1.25 * sgd


def test_the_defaults_survive_the_network_that_an_outer_momentum_breaks(digits):
    """784-1024-1024-10 without normalisation, dropout and a cosine schedule: 0.9 outside ends at chance."""

    def build() -> nn.Module:
        return nn.Sequential(
            nn.Flatten(), nn.Linear(784, 1024), nn.ReLU(), nn.Dropout(0.25), nn.Linear(1024, 1024), nn.ReLU(),
            nn.Dropout(0.25), nn.Linear(1024, 10),
        )  # fmt: skip

    assert trained(build, EntropySGD, digits, 0) < 0.5
