"""Samples per second in training with Entropy-SGD against SGD: the same network and batches, in turns.

    python benchmarks/throughput.py [--quick]

Cycles of L = 20 steps, outer update included, every optimizer with its defaults on a copy of the network and
random data of the real shapes; the fastest steps count. The share of the optimizer in a step is measured
beside it.
"""

from __future__ import annotations

import argparse
import copy
import time
from collections.abc import Callable, Iterator

import torch
from common import machine, table, write
from torch import nn
from torch.nn import functional

from entropy_sgd import EntropySGD
from entropy_sgd.lab import models

STEPS = 20
SGD = {"lr": 1e-4, "momentum": 0.9, "nesterov": True}
OPTIMIZERS: dict[str, Callable[[Iterator[nn.Parameter]], torch.optim.Optimizer]] = {
    "SGD fused": lambda ps: torch.optim.SGD(ps, fused=True, **SGD),
    "SGD": lambda ps: torch.optim.SGD(ps, **SGD),
    "EntropySGD": lambda ps: EntropySGD(ps, inner_lr=1e-4, L=STEPS),
    "EntropySGD, torch path": lambda ps: EntropySGD(ps, inner_lr=1e-4, L=STEPS, foreach=True),
}


def workload(name: str) -> tuple[nn.Module, Callable[[nn.Module], torch.Tensor], int]:
    """The network, its loss on one batch, and the number of samples (or characters) in the batch."""
    torch.manual_seed(0)
    if name == "char-lstm":
        tokens = torch.randint(0, 87, (2, 50, 50))
        model = models.build(name)
        return (
            model,
            lambda m: functional.cross_entropy(m(tokens[0])[0].flatten(0, 1), tokens[1].flatten()),
            2500,
        )
    inputs, targets = torch.randn(128, 1, 28, 28), torch.randint(0, 10, (128,))
    return models.build(name, dropout=0.15), lambda m: functional.cross_entropy(m(inputs), targets), 128


Trained = tuple[nn.Module, torch.optim.Optimizer]


def best_cycles(
    trained: dict[str, Trained], loss: Callable[[nn.Module], torch.Tensor], seconds: float
) -> dict[str, float]:
    """Seconds of a cycle of steps with each optimizer: the sum of the fastest first, second, ... step.

    The optimizers take turns after every single step: whole cycles are so long that none goes undisturbed.
    """
    best = {name: [float("inf")] * STEPS for name in trained}
    end, rounds = time.perf_counter() + seconds, 0
    while rounds < 3 or time.perf_counter() < end:
        for i in range(STEPS):
            for name, (model, optimizer) in trained.items():
                begin = time.perf_counter()
                optimizer.zero_grad()
                loss(model).backward()
                optimizer.step()
                best[name][i] = min(best[name][i], time.perf_counter() - begin)
        rounds += 1
    return {name: sum(times) for name, times in best.items()}


def share(trained: Trained, loss: Callable[[nn.Module], torch.Tensor]) -> float:
    """The optimizer's part of the time of a training step, over one cycle."""
    model, optimizer = trained
    inside = 0.0
    begin = time.perf_counter()
    for _ in range(STEPS):
        optimizer.zero_grad()
        loss(model).backward()
        start = time.perf_counter()
        optimizer.step()
        inside += time.perf_counter() - start
    return inside / (time.perf_counter() - begin)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="a second for each case, and nothing is written")
    quick = parser.parse_args().quick
    description, rows = machine(), []
    for name in ("mnistfc", "lenet", "char-lstm"):
        for threads in (1, 2):
            torch.set_num_threads(threads)
            model, loss, samples = workload(name)
            trained: dict[str, Trained] = {}
            for key, make in OPTIMIZERS.items():
                twin = copy.deepcopy(model)
                trained[key] = twin, make(twin.parameters())
            best = best_cycles(trained, loss, 1.0 if quick else 20.0)
            rate = {k: samples * STEPS / v for k, v in best.items()}
            rows.append(
                {
                    "network": name,
                    "threads": threads,
                    "SGD fused, samples/s": round(rate["SGD fused"]),
                    "EntropySGD / SGD fused": rate["EntropySGD"] / rate["SGD fused"],
                    "EntropySGD / SGD": rate["EntropySGD"] / rate["SGD"],
                    "torch path / SGD fused": rate["EntropySGD, torch path"] / rate["SGD fused"],
                    "share of step(), %": 100 * min(share(trained["EntropySGD"], loss) for _ in range(3)),
                    "torch path, %": 100
                    * min(share(trained["EntropySGD, torch path"], loss) for _ in range(3)),
                }
            )
    table("Training: samples per second as ratios, and the share of the optimizer", rows)
    if not quick:
        write(
            "throughput", {"command": "python benchmarks/throughput.py", "machine": description, "rows": rows}
        )


if __name__ == "__main__":
    main()
