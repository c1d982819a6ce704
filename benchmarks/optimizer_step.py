"""One Langevin step against one step of torch's optimizers, on the same parameters, in one run.

    python benchmarks/optimizer_step.py [--quick]

Prints and writes: times as ratios to torch.optim.SGD(momentum, nesterov, fused=True) with one and with two
threads, of a step, a cycle, the outer update and the eval/train swap; how they grow with the number of
parameters and of tensors; the memory each keeps per parameter.
"""

from __future__ import annotations

import argparse
import math
import subprocess
import sys
import time

import torch
from common import best_of, machine, table, write

from entropy_sgd import EntropyAdam, EntropySGD
from entropy_sgd.optim.noise import thermal

# Parameter shapes of the paper's networks. batch-normalised LeNet: 14 tensors; PTB-LSTM: 66 million in 11.
NETWORKS = {
    "lenet (132 k in 14)": [
        (20, 1, 5, 5), (20,), (20,), (20,), (50, 20, 5, 5), (50,), (50,), (50,), (500, 200), (500,), (500,),
        (500,), (10, 500), (10,),
    ],
    "mnistfc (1.9 M in 10)": [
        (1024, 784), (1024,), (1024,), (1024,), (1024, 1024), (1024,), (1024,), (1024,), (10, 1024), (10,),
    ],
    "ptb-lstm (66 M in 11)": [
        (10000, 1500), (6000, 1500), (6000, 1500), (6000,), (6000,), (6000, 1500), (6000, 1500), (6000,),
        (6000,), (10000, 1500), (10000,),
    ],
}  # fmt: skip


def parameters(shapes: list[tuple[int, ...]]) -> list[torch.nn.Parameter]:
    generator = torch.Generator().manual_seed(0)
    params = [torch.nn.Parameter(0.01 * torch.randn(s, generator=generator)) for s in shapes]
    for p in params:
        p.grad = 0.01 * torch.randn(p.shape, generator=generator)
    return params


class PlainLangevin:
    """Algorithm 1 as one would first write it: tensor by tensor, torch.randn_like for the noise."""

    def __init__(self, params: list[torch.nn.Parameter]) -> None:
        self.params = params
        self.x = [p.detach().clone() for p in params]
        self.mu = [p.detach().clone() for p in params]
        self.v = [torch.zeros_like(p) for p in params]

    @torch.no_grad()
    def step(self) -> None:
        for p, x, mu, v in zip(self.params, self.x, self.mu, self.v, strict=True):
            dx = p.grad - 1e-4 * (x - p)
            v.mul_(0.9).add_(dx)
            dx = dx + 0.9 * v
            p.add_(dx, alpha=-1e-6).add_(torch.randn_like(p), alpha=math.sqrt(1e-6) * 1e-4)
            mu.mul_(0.25).add_(p, alpha=0.75)


def contenders(shapes: list[tuple[int, ...]], which: list[str]) -> dict[str, torch.optim.Optimizer]:
    """Optimizers that all step on one set of parameters, with steps so small that nothing diverges."""
    params = parameters(shapes)
    inner = {"lr": 1e-6, "inner_lr": 1e-6, "L": 10**9}  # never the outer update: it is timed apart
    makers = {
        "SGD fused": lambda: torch.optim.SGD(params, lr=1e-6, momentum=0.9, nesterov=True, fused=True),
        "SGD foreach": lambda: torch.optim.SGD(params, lr=1e-6, momentum=0.9, nesterov=True, foreach=True),
        "Adam fused": lambda: torch.optim.Adam(params, lr=1e-6, fused=True),
        "Langevin": lambda: EntropySGD(params, **inner),
        "Langevin, no monitor": lambda: EntropySGD(params, monitor=False, **inner),
        "Langevin foreach": lambda: EntropySGD(params, foreach=True, **inner),
        "plain Langevin": lambda: PlainLangevin(params),
    }
    return {name: makers[name]() for name in which}


def ratios(best: dict[str, float], base: str) -> dict[str, float]:
    return {name: seconds / best[base] for name, seconds in best.items()}


def steps(seconds: float) -> list[dict[str, object]]:
    rows = []
    which = ["SGD fused", "SGD foreach", "Adam fused", "Langevin", "Langevin, no monitor", "Langevin foreach"]
    for network, shapes in NETWORKS.items():
        for threads in (1, 2):
            torch.set_num_threads(threads)
            found = contenders(shapes, [*which, "plain Langevin"])
            best = best_of({name: optimizer.step for name, optimizer in found.items()}, seconds)
            row = {"network": network, "threads": threads, "SGD fused, us": 1e6 * best["SGD fused"]}
            rows.append(row | {k: v for k, v in ratios(best, "SGD fused").items() if k != "SGD fused"})
    return rows


def cycles(seconds: float) -> list[dict[str, object]]:
    """Whole cycles of L = 20; the outer update, a cycle less its Langevin steps; the eval/train swap."""
    rows = []
    for network, shapes in NETWORKS.items():
        for threads in (1, 2):
            torch.set_num_threads(threads)
            params = parameters(shapes)
            sgd = torch.optim.SGD(params, lr=1e-6, momentum=0.9, nesterov=True, fused=True)
            ours = EntropySGD(params, lr=1e-6, inner_lr=1e-6, L=20)
            inside = EntropySGD(params, lr=1e-6, inner_lr=1e-6, L=10**9)  # there is always something to swap

            def twenty(optimizer: torch.optim.Optimizer) -> None:
                for _ in range(20):
                    optimizer.step()

            def swap(optimizer: EntropySGD) -> None:
                optimizer.eval()
                optimizer.train()

            candidates = {
                "sgd": lambda o=sgd: twenty(o),
                "cycle": lambda o=ours: twenty(o),
                "langevin": lambda o=inside: twenty(o),
                "swap": lambda o=inside: swap(o),
            }
            best = best_of(candidates, seconds, least=2)
            step = best["sgd"] / 20
            rows.append(
                {
                    "network": network,
                    "threads": threads,
                    "20 steps / 20 SGD fused": best["cycle"] / best["sgd"],
                    "outer update / SGD fused": (best["cycle"] - best["langevin"]) / step,
                    "eval() and train() / SGD fused": best["swap"] / step,
                }
            )
    return rows


def growth(seconds: float, largest: int) -> list[dict[str, object]]:
    torch.set_num_threads(2)
    sizes = [10**k for k in range(4, largest + 1)]
    cases = [(n, 1) for n in sizes] + [(10**6, k) for k in (10, 100, 1000)]
    rows = []
    for n, tensors in cases:
        found = contenders([(n // tensors,)] * tensors, ["SGD fused", "Langevin"])
        best = best_of({name: o.step for name, o in found.items()}, seconds, least=3)
        rows.append(
            {
                "parameters": n,
                "tensors": tensors,
                "Langevin, us": 1e6 * best["Langevin"],
                "ns / parameter": 1e9 * best["Langevin"] / n,
                "ratio to SGD fused": best["Langevin"] / best["SGD fused"],
            }
        )
    return rows


def noise(seconds: float) -> list[dict[str, object]]:
    rows = []
    x = torch.empty(1_900_000)
    for threads in (1, 2):
        torch.set_num_threads(threads)
        best = best_of(
            {
                "ours": lambda: thermal([0], [x], [x], 0, 0, 0),
                "randn": lambda: torch.randn(1_900_000),
            },
            seconds,
        )
        rows.append(
            {
                "threads": threads,
                "ns / number": 1e9 * best["ours"] / 1.9e6,
                "torch.randn / ours": best["randn"] / best["ours"],
            }
        )
    return rows


def memory() -> list[dict[str, object]]:
    """Bytes per float32 parameter that an optimizer keeps after a step, counted from its state."""
    rows = []
    makers = {
        "SGD, momentum": lambda ps: torch.optim.SGD(ps, lr=0.1, momentum=0.9),
        "Adam": lambda ps: torch.optim.Adam(ps),
        "EntropySGD": lambda ps: EntropySGD(ps, L=1),
        "EntropySGD, no monitor": lambda ps: EntropySGD(ps, L=1, monitor=False),
        "EntropyAdam": lambda ps: EntropyAdam(ps, L=1),
        "EntropyAdam, no monitor": lambda ps: EntropyAdam(ps, L=1, monitor=False),
    }
    for name, make in makers.items():
        params = parameters([(1000, 1000)])
        optimizer = make(params)
        optimizer.step()
        tensors = [v for v in optimizer.state[params[0]].values() if isinstance(v, torch.Tensor) and v.dim()]
        kept = sum(t.numel() * t.element_size() for t in tensors)
        rows.append({"optimizer": name, "bytes / parameter": kept / 1e6, "beside weights and gradients": "8"})
    return rows


def start_up() -> list[dict[str, object]]:
    rows = []
    for what, code in {
        "import torch": "import torch",
        "import torch, entropy_sgd optimizers": "import torch; from entropy_sgd import EntropySGD",
        "and the first step": (
            "import torch; from entropy_sgd import EntropySGD; p = torch.nn.Parameter(torch.ones(9)); "
            "p.grad = torch.ones(9); EntropySGD([p]).step()"
        ),
    }.items():
        times = []
        for _ in range(3):
            start = time.perf_counter()
            subprocess.run([sys.executable, "-c", code], check=True)
            times.append(time.perf_counter() - start)
        rows.append({"what": what, "seconds": min(times)})
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="shorter timings, up to 10^6 parameters")
    quick = parser.parse_args().quick
    if quick:
        NETWORKS.pop("ptb-lstm (66 M in 11)")
    seconds = 0.5 if quick else 6.0
    description = machine()
    results = {
        "steps": steps(seconds),
        "cycles": cycles(seconds / 2),
        "growth": growth(seconds / 4, 6 if quick else 8),
        "noise": noise(seconds / 4),
        "memory": memory(),
        "start-up": start_up(),
    }
    for title, rows in {
        "One step, as a ratio to SGD fused": results["steps"],
        "Whole cycles (L = 20), the outer update, the swap": results["cycles"],
        "Growth with parameters and tensors, 2 threads": results["growth"],
        "Noise alone": results["noise"],
        "Memory kept by the optimizer": results["memory"],
        "Start-up (no compilation happens at run time)": results["start-up"],
    }.items():
        table(title, rows)
    if not quick:
        write(
            "optimizer_step",
            {"command": "python benchmarks/optimizer_step.py", "machine": description, **results},
        )


if __name__ == "__main__":
    main()
