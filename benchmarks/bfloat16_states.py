"""Whether states of bfloat16 train as well as states of float32: paired seeds on MNIST.

    python benchmarks/bfloat16_states.py [--seeds 8] [--epochs 2]

A seed decides the initial weights, the order of the data, dropout and the noise, and these are the same for
both. Prints and writes the errors on the validation data, the training losses, and the mean difference with
its 95 % interval. A run that has been measured is not run again: the file is the checkpoint.
"""

from __future__ import annotations

import argparse
import json
from dataclasses import asdict

import torch
from common import RESULTS, machine, table, write
from torch.nn.functional import cross_entropy

from entropy_sgd import EntropySGD, scoping
from entropy_sgd.lab import data, models
from entropy_sgd.lab.comparison.seeds import paired_difference

NAME, BATCH = "bfloat16_states", 128
DTYPES = {"float32": None, "bfloat16": torch.bfloat16}
SETTINGS = {
    "lr": 1.0,
    "momentum": 0.0,
    "inner_lr": 0.1,
    "L": 20,
    "alpha": 0.75,
    "inner_state": "reset",
    "anneal": "outer",
}
COMMAND = "python benchmarks/bfloat16_states.py"


def error_and_loss(network: torch.nn.Module, split: data.Split) -> tuple[float, float]:
    network.eval()
    with torch.no_grad():
        outputs = torch.cat([network(part) for part in split.inputs.split(500)])
    network.train()
    wrong = (outputs.argmax(1) != split.targets).double().mean().item()
    return 100 * wrong, cross_entropy(outputs, split.targets).item()


def run(images: data.Images, dtype: str, seed: int, epochs: int) -> dict[str, object]:
    """Trains `lenet` and evaluates its outer weights."""
    assert images.validation is not None
    torch.manual_seed(seed)
    network = models.build("lenet")
    gamma = scoping.Exponential(1e-4, 1e-3)
    optimizer = EntropySGD(
        network.parameters(), gamma=gamma, seed=seed, state_dtype=DTYPES[dtype], **SETTINGS
    )
    order = torch.Generator().manual_seed(seed)
    for _ in range(epochs):
        for index in torch.randperm(len(images.train), generator=order).split(BATCH):
            inputs, targets = images.train.take(index)
            optimizer.zero_grad()
            cross_entropy(network(inputs), targets).backward()
            optimizer.step()
    optimizer.finish()
    error, _ = error_and_loss(network, images.validation)
    # the first 10,000 images, without dropout
    _, loss = error_and_loss(network, data.Split(images.train.inputs[:10_000], images.train.targets[:10_000]))
    return {"seed": seed, "states": dtype, "validation error, %": error, "training loss": loss}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seeds", type=int, default=8)
    parser.add_argument("--epochs", type=int, default=2)
    arguments = parser.parse_args()
    settings = {"network": "lenet", "epochs": arguments.epochs, "batch size": BATCH, **SETTINGS}
    path = RESULTS / f"{NAME}.json"
    rows = []
    if path.exists():
        there = json.loads(path.read_text())
        rows = there["runs"] if there["settings"] == settings else []
    images = data.load("mnist")
    for seed in range(arguments.seeds):
        for dtype in DTYPES:
            if any(row["seed"] == seed and row["states"] == dtype for row in rows):
                continue
            rows.append(run(images, dtype, seed, arguments.epochs))
            differences = {}
            for figure in ("validation error, %", "training loss"):
                by = {d: {r["seed"]: r[figure] for r in rows if r["states"] == d} for d in DTYPES}
                found = paired_difference(by["bfloat16"], by["float32"])
                differences[figure] = None if found is None else asdict(found)
            content = {"command": COMMAND, "machine": machine(), "settings": settings}
            write(NAME, {**content, "bfloat16 - float32": differences, "runs": rows})
    table("LeNet on MNIST, states of float32 and of bfloat16", rows)
    print(json.dumps(json.loads(path.read_text())["bfloat16 - float32"], indent=1))


if __name__ == "__main__":
    main()
