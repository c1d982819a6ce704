"""One Langevin step against one step of torch's optimizers, on equal parameters, in one run.

    python benchmarks/optimizer_step.py [--quick] [--device cuda]

Prints and writes: times as ratios to torch.optim.SGD(momentum, nesterov, fused=True) with one and with two
threads, of a step, a cycle, the outer update and the eval/train swap, with states of float32 and bfloat16;
how they grow with the number of parameters and of tensors; the memory each takes per parameter, measured.
On a GPU the ratios are those that docs/devices.md computes; they are written to a file of their own.
"""

from __future__ import annotations

import argparse
import math
import subprocess
import sys
import time
from collections.abc import Callable

import torch
from common import best_of, machine, ratios_to, table, write

from entropy_sgd import EntropyAdam, EntropySGD
from entropy_sgd.optim import kernel
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


DEVICE = torch.device("cpu")  # --device chooses another
THREADS = [1, 2]
BFLOAT16 = {"state_dtype": torch.bfloat16}


def parameters(shapes: list[tuple[int, ...]]) -> list[torch.nn.Parameter]:
    generator = torch.Generator().manual_seed(0)
    params = [torch.nn.Parameter(0.01 * torch.randn(s, generator=generator).to(DEVICE)) for s in shapes]
    for p in params:
        p.grad = 0.01 * torch.randn(p.shape, generator=generator).to(DEVICE)
    return params


def finished(step: Callable[[], object]) -> Callable[[], object]:
    """`step`, and the wait until the device has done it."""
    if DEVICE.type == "cpu":
        return step

    def run() -> None:
        step()
        torch.get_device_module(DEVICE).synchronize()

    return run


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
    """Optimizers, each on parameters of its own, with steps so small that nothing diverges."""
    inner = {"lr": 1e-6, "inner_lr": 1e-6, "L": 10**9}  # never the outer update: it is timed apart
    makers = {
        "SGD fused": lambda: torch.optim.SGD(
            parameters(shapes), lr=1e-6, momentum=0.9, nesterov=True, fused=True
        ),
        "SGD foreach": lambda: torch.optim.SGD(
            parameters(shapes), lr=1e-6, momentum=0.9, nesterov=True, foreach=True
        ),
        "Adam fused": lambda: torch.optim.Adam(parameters(shapes), lr=1e-6, fused=True),
        "Langevin": lambda: EntropySGD(parameters(shapes), **inner),
        "Langevin, bfloat16 states": lambda: EntropySGD(parameters(shapes), **BFLOAT16, **inner),
        "Langevin, no monitor": lambda: EntropySGD(parameters(shapes), monitor=False, **inner),
        "Langevin foreach": lambda: EntropySGD(parameters(shapes), foreach=True, **inner),
        "plain Langevin": lambda: PlainLangevin(parameters(shapes)),
    }
    return {name: makers[name]() for name in which}


def steps(seconds: float) -> list[dict[str, object]]:
    rows = []
    which = ["SGD fused", "SGD foreach", "Adam fused", "Langevin", "Langevin, bfloat16 states"]
    which += ["Langevin, no monitor", "Langevin foreach", "plain Langevin"]
    for network, shapes in NETWORKS.items():
        for threads in THREADS:
            torch.set_num_threads(threads)
            found = contenders(shapes, which)
            candidates = {name: finished(optimizer.step) for name, optimizer in found.items()}
            sgd, ratios = ratios_to("SGD fused", candidates, seconds)
            row = {"network": network, "threads": threads, "SGD fused, us": 1e6 * sgd}
            rows.append(row | {k: v for k, v in ratios.items() if k != "SGD fused"})
    return rows


def cycles(seconds: float) -> list[dict[str, object]]:
    """Whole cycles of L = 20; the outer update, a cycle less its Langevin steps; the eval/train swap."""
    rows = []
    for network, shapes in NETWORKS.items():
        for threads in THREADS:
            torch.set_num_threads(threads)
            sgd = torch.optim.SGD(parameters(shapes), lr=1e-6, momentum=0.9, nesterov=True, fused=True)
            ours = EntropySGD(parameters(shapes), inner_lr=1e-6, L=20)
            half = EntropySGD(parameters(shapes), inner_lr=1e-6, L=20, **BFLOAT16)
            inside = EntropySGD(
                parameters(shapes), lr=1e-6, inner_lr=1e-6, L=10**9
            )  # there is always something to swap

            def twenty(optimizer: torch.optim.Optimizer) -> None:
                for _ in range(20):
                    optimizer.step()

            def swap(optimizer: EntropySGD) -> None:
                optimizer.eval()
                optimizer.train()

            candidates = {
                "sgd": finished(lambda o=sgd: twenty(o)),
                "cycle": finished(lambda o=ours: twenty(o)),
                "half": finished(lambda o=half: twenty(o)),
                "langevin": finished(lambda o=inside: twenty(o)),
                "swap": finished(lambda o=inside: swap(o)),
            }
            _, ratios = ratios_to("sgd", candidates, seconds)
            rows.append(
                {
                    "network": network,
                    "threads": threads,
                    "20 steps / 20 SGD fused": ratios["cycle"],
                    "with bfloat16 states": ratios["half"],
                    "outer update / SGD fused": 20 * (ratios["cycle"] - ratios["langevin"]),
                    "eval() and train() / SGD fused": 20 * ratios["swap"],
                }
            )
    return rows


def growth(seconds: float, largest: int) -> list[dict[str, object]]:
    torch.set_num_threads(THREADS[-1])
    sizes = [10**k for k in range(4, largest + 1)]
    cases = [(n, 1) for n in sizes] + [(10**6, k) for k in (10, 100, 1000)]
    rows = []
    for n, tensors in cases:
        found = contenders([(n // tensors,)] * tensors, ["SGD fused", "Langevin"])
        best = best_of({name: finished(o.step) for name, o in found.items()}, seconds, least=3)
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
    x = torch.empty(1_900_000, device=DEVICE)
    for threads in THREADS:
        torch.set_num_threads(threads)
        best = best_of(
            {
                "ours": finished(lambda: thermal([0], [x], [x], 0, 0, 0)),
                "randn": finished(lambda: torch.randn(1_900_000, device=DEVICE)),
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


MEMORY = {
    "SGD, momentum": "torch.optim.SGD(ps, lr=0.1, momentum=0.9)",
    "Adam": "torch.optim.Adam(ps)",
    "EntropySGD": "EntropySGD(ps, L=2)",
    "EntropySGD, bfloat16 states": "EntropySGD(ps, L=2, state_dtype=torch.bfloat16)",
    "EntropySGD, outer momentum": "EntropySGD(ps, L=2, momentum=0.9)",
    "EntropySGD, outer momentum, bfloat16 states": (
        "EntropySGD(ps, L=2, momentum=0.9, state_dtype=torch.bfloat16)"
    ),
    "EntropySGD, outer momentum, alpha=1, no inner momentum": (
        "EntropySGD(ps, L=2, momentum=0.9, alpha=1.0, inner_momentum=0.0)"
    ),
    "EntropyAdam": "EntropyAdam(ps, L=2)",
    "EntropyAdam, bfloat16 states": "EntropyAdam(ps, L=2, state_dtype=torch.bfloat16)",
}
# A process for each: what the kernel has given it beside weights and gradients, after and during the steps.
MEASURE = """
import sys, torch
from entropy_sgd import EntropyAdam, EntropySGD
def resident(field="VmRSS"):
    return next(int(l.split()[1]) * 1024 for l in open("/proc/self/status") if l.startswith(field))
small = [torch.nn.Parameter(torch.ones(9))]
n = 32_000_000
ps = small
for turn in range(2):  # the first loads what is loaded once
    for p in ps:
        p.grad = torch.full_like(p, 0.1)
    before = resident()
    optimizer = {make}
    for _ in range(5):
        optimizer.step()
    if turn == 0:
        ps = [torch.nn.Parameter(torch.ones(n))]
print((resident() - before) / n, (resident("VmHWM") - before) / n)
"""


def memory() -> list[dict[str, object]]:
    """Bytes a float32 parameter that a process gets from the system for an optimizer and its steps."""
    rows = []
    for name, make in MEMORY.items():
        code = MEASURE.replace("{make}", make)
        output = subprocess.run(
            [sys.executable, "-c", code], check=True, capture_output=True, text=True
        ).stdout
        kept, most = (float(number) for number in output.split())
        rows.append({"optimizer": name, "bytes kept / parameter": kept, "at most": most})
    return rows


def device_memory() -> list[dict[str, object]]:
    """The same on a device, from torch's allocator."""
    rows, module, n = [], torch.get_device_module(DEVICE), 32_000_000
    for name, make in MEMORY.items():
        ps = parameters([(n,)])
        module.reset_peak_memory_stats()
        before = module.memory_allocated()
        optimizer = eval(
            make, {"torch": torch, "ps": ps, "EntropySGD": EntropySGD, "EntropyAdam": EntropyAdam}
        )
        for _ in range(5):
            optimizer.step()
        kept, most = module.memory_allocated() - before, module.max_memory_allocated() - before
        rows.append({"optimizer": name, "bytes kept / parameter": kept / n, "at most": most / n})
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
    parser.add_argument("--device", default="cpu", help="where the parameters are: cpu, cuda, xpu")
    arguments = parser.parse_args()
    quick = arguments.quick
    global DEVICE, THREADS
    DEVICE = torch.device(arguments.device)
    if DEVICE.type != "cpu":
        THREADS = [1]
    if quick:
        NETWORKS.pop("ptb-lstm (66 M in 11)")
    seconds = 0.5 if quick else 6.0
    description = machine()
    chosen = kernel.library()
    if DEVICE.type == "cpu" and chosen is not None:
        sets = ("the platform's own vectors", "AVX2", "AVX-512")
        description["instructions"] = sets[chosen.entropy_choose(kernel.AVX512)]
    results = {
        "steps": steps(seconds),
        "cycles": cycles(seconds / 2),
        "growth": growth(seconds / 4, 6 if quick else 8),
        "noise": noise(seconds / 4),
        "memory": memory() if DEVICE.type == "cpu" else device_memory(),
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
        name = "optimizer_step" if DEVICE.type == "cpu" else f"optimizer_step-{DEVICE.type}"
        if DEVICE.type != "cpu":
            description["device"] = torch.get_device_module(DEVICE).get_device_name(DEVICE)
        command = "python benchmarks/optimizer_step.py"
        command += "" if DEVICE.type == "cpu" else f" --device {DEVICE.type}"
        write(name, {"command": command, "machine": description, **results})


if __name__ == "__main__":
    main()
