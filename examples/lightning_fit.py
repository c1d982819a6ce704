"""Entropy-SGD in Lightning: one line in `configure_optimizers`, and a callback.

Run it with::

python examples/lightning_fit.py
"""

from __future__ import annotations

import argparse

import torch
from lightning.pytorch import LightningModule, Trainer
from lightning.pytorch.callbacks import ModelCheckpoint
from torch import Tensor, nn
from torch.utils.data import DataLoader, TensorDataset

from entropy_sgd import EntropySGD
from entropy_sgd.frameworks.lightning import OuterWeights


class Quadrants(LightningModule):
    """Predicts the quadrant in which a point of the plane lies."""

    def __init__(self) -> None:
        super().__init__()
        self.net = nn.Sequential(nn.Linear(2, 32), nn.BatchNorm1d(32), nn.ReLU(), nn.Linear(32, 4))

    def forward(self, points: Tensor) -> Tensor:
        """Scores of the four quadrants."""
        return self.net(points)

    def training_step(self, batch: tuple[Tensor, Tensor], batch_idx: int) -> Tensor:
        """The loss, as ever: Lightning calls `backward` and `step`."""
        points, labels = batch
        return nn.functional.cross_entropy(self(points), labels)

    def validation_step(self, batch: tuple[Tensor, Tensor], batch_idx: int) -> None:
        """The accuracy of the outer weights, which the callback has put in."""
        points, labels = batch
        self.log("accuracy", (self(points).argmax(1) == labels).float().mean(), prog_bar=True)

    def configure_optimizers(self) -> EntropySGD:
        """The line that changes."""
        return EntropySGD(self.parameters(), L=5, inner_lr=0.02)


def points(number: int, seed: int) -> TensorDataset:
    data = torch.randn(number, 2, generator=torch.Generator().manual_seed(seed))
    return TensorDataset(data, (2 * (data[:, 0] > 0) + (data[:, 1] > 0)).long())


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--folder", default="runs/lightning")
    parser.add_argument("--epochs", type=int, default=10)
    arguments = parser.parse_args()
    torch.manual_seed(0)
    training = points(2048, seed=0)
    trainer = Trainer(
        max_epochs=arguments.epochs,
        logger=False,
        enable_progress_bar=False,
        default_root_dir=arguments.folder,
        callbacks=[
            # Validation and checkpoints see the outer weights, with statistics taken at these.
            OuterWeights(recalibrate=DataLoader(training, 256)),
            ModelCheckpoint(monitor="accuracy", mode="max", save_last=True),
        ],
    )
    trainer.fit(Quadrants(), DataLoader(training, 32, shuffle=True), DataLoader(points(512, seed=1), 256))
    print(f"accuracy {trainer.callback_metrics['accuracy']:.3f}")


if __name__ == "__main__":
    main()
