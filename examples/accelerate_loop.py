"""Entropy-SGD in a loop with Accelerate: any number of processes, accumulation, saving and resuming.

If run again with more epochs, it continues where it stopped::

    accelerate launch --multi_gpu --num_processes 2 --main_process_port 0 examples/accelerate_loop.py

`--multi_gpu` starts as many processes as asked for, on CPUs too; with `--cpu` Accelerate starts one.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import torch
from accelerate import Accelerator
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

from entropy_sgd import EntropySGD


def points(number: int) -> TensorDataset:
    """Points of the plane, labelled by their quadrant."""
    data = torch.randn(number, 2, generator=torch.Generator().manual_seed(0))
    return TensorDataset(data, (2 * (data[:, 0] > 0) + (data[:, 1] > 0)).long())


def train(epochs: int, folder: Path) -> None:
    accelerator = Accelerator(cpu=True, gradient_accumulation_steps=2)
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(2, 32), nn.Tanh(), nn.Linear(32, 4))
    optimizer = EntropySGD(model.parameters(), L=5)
    loader = DataLoader(points(1024), 16)
    model, optimizer, loader = accelerator.prepare(model, optimizer, loader)

    done = max((int(path.name) for path in folder.glob("*") if path.name.isdigit()), default=0)
    if done:
        accelerator.load_state(folder / str(done))

    for epoch in range(done, epochs):
        optimizer.train()  # the inner weights, if they were away
        for inputs, labels in loader:
            with accelerator.accumulate(model):
                loss = nn.functional.cross_entropy(model(inputs), labels)
                accelerator.backward(loss)
                optimizer.step()
                optimizer.zero_grad()
        optimizer.eval()  # the outer weights, for validation and in what is saved
        accelerator.save_state(folder / str(epoch + 1))

    optimizer.optimizer.finish()  # the last cycle ends with the steps it has
    weights = {name: value.cpu() for name, value in accelerator.unwrap_model(model).state_dict().items()}
    torch.save(weights, folder / f"weights-{accelerator.process_index}.pt")
    accelerator.end_training()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--epochs", type=int, default=2)
    parser.add_argument("--folder", type=Path, default=Path("runs/accelerate"))
    arguments = parser.parse_args()
    arguments.folder.mkdir(parents=True, exist_ok=True)
    train(arguments.epochs, arguments.folder)


if __name__ == "__main__":
    main()
