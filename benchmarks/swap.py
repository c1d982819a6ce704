"""Swapping one line: `torch.optim.SGD` for `EntropySGD`, all else the same, at short budgets.

    python benchmarks/swap.py [--networks lenet mnistfc] [--data mnist turned] [--epochs 3] [--rate 0.1] …

Both see the same initial weights, batches, dropout and schedule, and make one gradient a step. Errors are on
validation data. `turned` is MNIST turned, scaled and with noise; CIFAR-10 is in grey and cut to 28 × 28, so
that the networks for MNIST take it: harder problems for the same networks. Results are written after each
run, and a run that is there is not repeated.
"""

from __future__ import annotations

import argparse
import json
import math
import shlex
import statistics
import sys
from collections.abc import Callable, Iterable
from typing import Any

import torch
from common import RESULTS, table, write
from torch.nn.functional import affine_grid, cross_entropy, grid_sample
from torch.optim.swa_utils import AveragedModel

from entropy_sgd import EntropyAdam, EntropySGD
from entropy_sgd.lab import data, models

Params = Iterable[torch.nn.Parameter]
BATCH, RATE = 128, 0.1
KEPT = {"inner_state": "keep", "anneal": "inner"}


def sgd(rate: float) -> dict[str, Any]:
    return {"lr": rate, "momentum": 0.9, "nesterov": True}


def inner(rate: float) -> dict[str, Any]:
    return {"inner_lr": rate, "inner_momentum": 0.9}


OPTIMIZERS: dict[str, Callable[[Params, float], Any]] = {
    "SGD": lambda ps, rate: torch.optim.SGD(ps, **sgd(rate)),
    "SGD + EMA": lambda ps, rate: torch.optim.SGD(ps, **sgd(rate)),
    "reset": lambda ps, rate: EntropySGD(ps, inner_state="reset", anneal="outer", alpha=0.75, **inner(rate)),
    "defaults (keep, inner, alpha=0.9)": lambda ps, rate: EntropySGD(ps, alpha=0.9, **KEPT, **inner(rate)),
    "keep, inner, alpha=0.75": lambda ps, rate: EntropySGD(ps, alpha=0.75, **KEPT, **inner(rate)),
    "keep, inner, alpha=0.1": lambda ps, rate: EntropySGD(ps, alpha=0.1, **KEPT, **inner(rate)),
    "keep, inner, alpha=0.25": lambda ps, rate: EntropySGD(ps, alpha=0.25, **KEPT, **inner(rate)),
    "keep, inner, alpha=0.25, lr=1.18": lambda ps, rate: EntropySGD(
        ps, lr=1.1758, alpha=0.25, **KEPT, **inner(rate)
    ),
    "keep, inner, alpha=0.5": lambda ps, rate: EntropySGD(ps, alpha=0.5, **KEPT, **inner(rate)),
    "keep, inner, alpha=0.5, lr=1.05": lambda ps, rate: EntropySGD(
        ps, lr=1.0526, alpha=0.5, **KEPT, **inner(rate)
    ),
    "keep, inner, alpha=0.75, gamma=0, noise=0": lambda ps, rate: EntropySGD(
        ps, gamma=0.0, noise=0.0, alpha=0.75, **KEPT, **inner(rate)
    ),
    "keep, inner, alpha=0.25, lr=1.15": lambda ps, rate: EntropySGD(
        ps, lr=1.15, alpha=0.25, **KEPT, **inner(rate)
    ),
    "keep, inner, alpha=0.25, momentum=0.15": lambda ps, rate: EntropySGD(
        ps, alpha=0.25, momentum=0.15, **KEPT, **inner(rate)
    ),
    "keep, inner, alpha=0.25, momentum=0.15, plain": lambda ps, rate: EntropySGD(
        ps, alpha=0.25, momentum=0.15, nesterov=False, **KEPT, **inner(rate)
    ),
    "keep, inner, alpha=0.5, momentum=0.05": lambda ps, rate: EntropySGD(
        ps, alpha=0.5, momentum=0.05, **KEPT, **inner(rate)
    ),
    "keep, inner, alpha=0.75, lr=1.017": lambda ps, rate: EntropySGD(
        ps, lr=1.017, alpha=0.75, **KEPT, **inner(rate)
    ),
    "keep, inner, alpha=0.25, L=5": lambda ps, rate: EntropySGD(ps, alpha=0.25, L=5, **KEPT, **inner(rate)),
    "keep, both, alpha=0.1": lambda ps, rate: EntropySGD(
        ps, alpha=0.1, inner_state="keep", anneal="both", **inner(rate)
    ),
    "keep, inner, alpha=0.05, L=50": lambda ps, rate: EntropySGD(ps, alpha=0.05, L=50, **KEPT, **inner(rate)),
    "keep, inner, alpha=0.02, L=100": lambda ps, rate: EntropySGD(
        ps, alpha=0.02, L=100, **KEPT, **inner(rate)
    ),
    "SGD's arguments, reset": lambda ps, rate: EntropySGD(
        ps, **sgd(rate), inner_state="reset", anneal="outer", alpha=0.75
    ),
    "SGD's arguments, keep, inner, alpha=0.1": lambda ps, rate: EntropySGD(
        ps, **sgd(rate), alpha=0.1, **KEPT
    ),
    "Adam": lambda ps, _: torch.optim.Adam(ps, lr=1e-3),
    "Adam, beta1=0.5": lambda ps, _: torch.optim.Adam(ps, lr=1e-3, betas=(0.5, 0.999)),
    "Adam, lr=0.002": lambda ps, _: torch.optim.Adam(ps, lr=2e-3),
}
ADAMS: dict[str, dict[str, Any]] = {
    "reset": {},
    "reset, lr=0.003": {"lr": 3e-3},
    "reset, lr=0.005": {"lr": 5e-3},
    "reset, lr=0.005, inner_lr=0.01": {"lr": 5e-3, "inner_lr": 0.01},
    "reset, lr=0.005, alpha=0.25": {"lr": 5e-3, "alpha": 0.25},
    "reset, lr=0.001": {"lr": 1e-3},
    "reset, lr=0.002": {"lr": 2e-3},
    "reset, lr=0.003, beta1=0.9": {"lr": 3e-3, "betas": (0.9, 0.999)},
    "reset, lr=0.003, alpha=0.25": {"lr": 3e-3, "alpha": 0.25},
    "reset, lr=0.0015, L=2": {"lr": 1.5e-3, "L": 2},
    "reset, lr=0.002, L=2": {"lr": 2e-3, "L": 2},
    "reset, lr=0.002, L=3": {"lr": 2e-3, "L": 3},
    "reset, lr=0.003, beta1=0": {"lr": 3e-3, "betas": (0.0, 0.999)},
    "keep, lr=0.005, Adam inside": {"lr": 5e-3, "inner_state": "keep", "inner": "adam", "inner_lr": 1e-3},
    "keep, lr=0.003, Adam inside": {"lr": 3e-3, "inner_state": "keep", "inner": "adam", "inner_lr": 1e-3},
    "defaults (reset, lr=0.003, L=3)": {"lr": 3e-3, "L": 3},
    "reset, lr=0.003, inner_lr=0.01": {"lr": 3e-3, "inner_lr": 0.01},
    "keep": {"inner_state": "keep"},
    "keep, lr=0.003": {"lr": 3e-3, "inner_state": "keep"},
    "keep, lr=0.005": {"lr": 5e-3, "inner_state": "keep"},
    "keep, lr=0.003, L=2": {"lr": 3e-3, "inner_state": "keep", "L": 2},
}
"""`EntropyAdam`; what is not named is as in the paper."""
OPTIMIZERS |= {
    f"EntropyAdam, {name}": lambda ps, _, options=options: EntropyAdam.paper(ps, **options)
    for name, options in ADAMS.items()
}
SCHEDULES: dict[str, Callable[[Any, int], Any]] = {
    "constant": lambda optimizer, _: torch.optim.lr_scheduler.ConstantLR(optimizer, 1.0),
    "cosine": torch.optim.lr_scheduler.CosineAnnealingLR,
}


def images(name: str) -> tuple[data.Split, data.Split]:
    """Training and validation images of 28 × 28."""
    found = data.load("mnist" if name == "turned" else name)
    splits: list[data.Split] = []
    for number, split in enumerate((found.train, found.validation)):
        inputs = split.inputs
        if name == "cifar10":
            inputs = inputs.mean(1, keepdim=True)[:, :, 2:30, 2:30]
            inputs = (inputs - inputs.mean()) / inputs.std()
        if name == "turned":
            inputs = turned(inputs, torch.Generator().manual_seed(number))
        splits.append(data.Split(inputs.contiguous(), split.targets))
    return splits[0], splits[1]


def turned(inputs: torch.Tensor, generator: torch.Generator) -> torch.Tensor:
    """Each image turned by up to 60 degrees, scaled by 0.7 to 1.3, and with noise."""
    angle = (torch.rand(len(inputs), generator=generator) * 2 - 1) * math.pi / 3
    scale = torch.rand(len(inputs), generator=generator) * 0.6 + 0.7
    rows = [torch.stack([scale * angle.cos(), -scale * angle.sin(), torch.zeros_like(angle)], 1)]
    rows.append(torch.stack([scale * angle.sin(), scale * angle.cos(), torch.zeros_like(angle)], 1))
    grid = affine_grid(torch.stack(rows, 1), list(inputs.shape), align_corners=False)
    found = grid_sample(inputs, grid, align_corners=False, padding_mode="border")
    return found + torch.randn(found.shape, generator=generator)


def warmed(average: torch.Tensor, now: torch.Tensor, count: torch.Tensor | int) -> torch.Tensor:
    """An exponential average over about 200 steps, over a tenth of the run so far at first."""
    decay = min(0.995, (1 + int(count)) / (10 + int(count)))
    return torch.lerp(now, average, decay) if now.is_floating_point() else now


def run(splits: tuple[data.Split, data.Split], task: dict[str, Any]) -> float:
    """Validation error in percent; a loss that is not finite counts as 90."""
    torch.manual_seed(task["seed"])
    network = models.build(task["network"])
    optimizer = OPTIMIZERS[task["optimizer"]](network.parameters(), task["rate"])
    train, validation = (
        data.Split(*(t[:: task["part"]] for t in (splits[0].inputs, splits[0].targets))),
        splits[1],
    )
    steps = task["epochs"] * -(-len(train) // BATCH)
    scheduler = SCHEDULES[task["schedule"]](optimizer, steps)
    average = None
    if task["optimizer"] == "SGD + EMA":
        average = AveragedModel(network, avg_fn=warmed, use_buffers=True)
    order = torch.Generator().manual_seed(task["seed"])
    for _ in range(task["epochs"]):
        for index in torch.randperm(len(train), generator=order).split(BATCH):
            inputs, targets = train.take(index)
            optimizer.zero_grad()
            loss = cross_entropy(network(inputs), targets)
            if not loss.isfinite():
                return 90.0
            loss.backward()
            optimizer.step()
            scheduler.step()
            if average is not None:
                average.update_parameters(network)
    if average is not None:
        network = average.module
    if hasattr(optimizer, "finish"):
        optimizer.finish()
    network.eval()
    with torch.no_grad():
        outputs = torch.cat([network(part) for part in validation.inputs.split(500)])
    return 100 * (outputs.argmax(1) != validation.targets).double().mean().item()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--networks", nargs="+", default=["lenet", "mnistfc"])
    parser.add_argument("--data", nargs="+", default=["mnist", "turned", "cifar10"])
    parser.add_argument("--epochs", type=int, default=3)
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2])
    parser.add_argument("--rate", type=float, default=RATE, help="of SGD, and of the inner loop")
    parser.add_argument("--part", type=int, default=1, help="one in so many of the training images")
    parser.add_argument("--optimizers", nargs="+", choices=list(OPTIMIZERS))
    parser.add_argument("--schedules", nargs="+", choices=list(SCHEDULES), default=list(SCHEDULES))
    parser.add_argument("--name", default="swap", help="of the file in results/bench")
    chosen = parser.parse_args()
    follow = [name for name in OPTIMIZERS if "Adam" not in name]
    chosen.optimizers = chosen.optimizers or (list(OPTIMIZERS) if chosen.rate == RATE else follow)
    if chosen.rate != RATE and (own := [name for name in chosen.optimizers if name not in follow]):
        parser.error(f"--rate is of SGD and the inner loop with SGD outside, not of {', '.join(own)}")
    path = RESULTS / f"{chosen.name}.json"
    record = json.loads(path.read_text()) if path.exists() else {"commands": [], "runs": []}
    runs, command = record["runs"], f"python {shlex.join(sys.argv)}"
    commands = list(dict.fromkeys([*record["commands"], command]))
    tasks = [
        {
            "data": d,
            "network": n,
            "epochs": chosen.epochs,
            "part": chosen.part,
            "schedule": s,
            "rate": chosen.rate,
            "optimizer": o,
            "seed": seed,
        }
        for seed in chosen.seeds
        for d in chosen.data
        for n in chosen.networks
        for s in chosen.schedules
        for o in chosen.optimizers
    ]
    loaded: dict[str, tuple[data.Split, data.Split]] = {}
    for task in tasks:
        if any(task.items() <= there.items() for there in runs):
            continue
        if task["data"] not in loaded:
            loaded = {task["data"]: images(task["data"])}
        runs.append({**task, "validation error, %": run(loaded[task["data"]], task)})
        write(chosen.name, {**record, "commands": commands, "runs": runs})
    keys = ("data", "part", "network", "epochs", "schedule", "rate")
    rows: dict[tuple[Any, ...], dict[str, list[float]]] = {}
    for there in runs:
        row = rows.setdefault(tuple(there[key] for key in keys), {})
        row.setdefault(there["optimizer"], []).append(there["validation error, %"])
    for place, by in rows.items():
        first = next((name for name in ("SGD", "Adam") if name in by), next(iter(by)))
        baseline = statistics.fmean(by[first])
        table(
            ", ".join(map(str, place)),
            [
                {
                    "optimizer": name,
                    "seeds": len(errors),
                    "error, %": statistics.fmean(errors),
                    f"less that of {first}": statistics.fmean(errors) - baseline,
                }
                for name, errors in by.items()
            ],
        )


if __name__ == "__main__":
    main()
