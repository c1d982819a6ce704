"""The temperature of the Langevin loop at the paper's ε, and what it means for local entropy.

    python benchmarks/temperature.py

Three measurements, into results/temperature.json:
1. on a quadratic, where the loop is run until it is stationary: its variance gives its temperature;
2. on `small-mnistfc` after one epoch of SGD: the parts of local entropy at that temperature, by Laplace;
3. there too: how much of x - μ, the step of Algorithm 1, comes from the noise.
"""

from __future__ import annotations

import argparse
import itertools
import json
import math
import os
from pathlib import Path
from typing import Any

import torch
from common import machine, table
from torch import Tensor

from entropy_sgd import EntropySGD
from entropy_sgd.lab import train
from entropy_sgd.lab.runs.reading import read
from entropy_sgd.lab.spectra.trained import load
from entropy_sgd.landscape import laplace_expansion

ROOT = Path(__file__).parents[1]
PAPER = {"noise": 1e-3, "inner_lr": 0.1, "inner_momentum": 0.9, "gamma": 1e-4, "L": 20}  # Section 5.2
NOISES = (0.0, 1e-4, 1e-3, 1e-2, 1e-1, 2**0.5)


def stationary(momentum: float, noise: float = 1e-3, curvature: float = 0.5, steps: int = 4_000) -> float:
    """Temperature of the loop on f = curvature/2 |x|²: variance times curvature, 4,000 coordinates."""
    point = torch.zeros(4_000, dtype=torch.float64, requires_grad=True)
    options = {"inner_lr": 0.01, "inner_momentum": momentum, "noise": noise, "inner_nesterov": False}
    optimizer = EntropySGD([point], L=steps + 1, gamma=0.0, **options)
    variances: list[float] = []
    for step in range(steps):
        point.grad = curvature * point.detach()
        optimizer.step()
        if step >= steps // 2 and step % 100 == 0:
            variances.append(point.detach().square().mean().item())
    return curvature * sum(variances) / len(variances)


def cosine(a: Tensor, b: Tensor) -> float:
    return (a @ b / (a.norm() * b.norm())).item()


def displacement(trained: Any, start: dict[str, Tensor], noise: float, draw: int) -> Tensor:
    """The x - μ of one cycle from the trained weights; `draw` decides mini-batches and noise."""
    trained.model.load_state_dict(start)
    parameters = list(trained.model.parameters())
    before = torch.cat([parameter.detach().flatten() for parameter in parameters])
    options = {**PAPER, "noise": noise, "seed": draw}
    optimizer = EntropySGD.paper(parameters, momentum=0.0, **options)
    generator = torch.Generator().manual_seed(draw)
    inputs, targets = (torch.cat(part) for part in zip(*trained.batches, strict=True))
    for _ in range(PAPER["L"]):
        index = torch.randint(len(inputs), (128,), generator=generator)
        optimizer.zero_grad()
        trained.loss_fn(trained.model(inputs[index]), targets[index]).backward()
        optimizer.step()
    return before - torch.cat([parameter.detach().flatten() for parameter in parameters])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--run", type=Path, default=ROOT / "runs" / "temperature")
    parser.add_argument("--out", type=Path, default=ROOT / "results" / "temperature.json")
    parser.add_argument("--draws", type=int, default=8)
    arguments = parser.parse_args()

    quadratic = [
        {"momentum": m, "temperature / (ε²/2)": stationary(m) / (1e-3**2 / 2), "1 - momentum": 1 - m}
        for m in (0.0, 0.5, 0.9)
    ]
    table("1. temperature of the loop on a quadratic, ε = 1e-3", quadratic)

    train("small-mnistfc", "sgd", out=arguments.run, epochs=1, threads=1, resume=True)
    trained = load(read(arguments.run), samples=2048, batch=256, dtype=torch.float64)
    expansion = laplace_expansion(trained.model, trained.loss_fn, trained.batches, probes=4, steps=60)
    parts: list[dict[str, float]] = []
    for gamma in (1.0, 10.0):
        exact = expansion.local_entropy(gamma)
        proximal = float(expansion.krylov.solve(gamma)[0][-1]) * expansion.gradient_norm**2 / 2
        entropic = -exact.normalized - expansion.loss + proximal
        row = {"γ": gamma, "f": expansion.loss, "½ gᵀ(H+γ)⁻¹g": proximal, "½ log det(1+H/γ)": entropic}
        parts.append(row | {f"the same times ε²/2, ε = {e:g}": entropic * e**2 / 2 for e in (1e-3, 1e-4)})
    table("2. the parts of -F at temperature 1, and the entropic one at the paper's", parts)

    start = {key: value.clone() for key, value in trained.model.state_dict().items()}
    drawn = {
        noise: [displacement(trained, start, noise, draw) for draw in range(arguments.draws)]
        for noise in NOISES
    }
    silent = drawn[0.0]
    pairs = list(itertools.pairwise(silent))
    steps: list[dict[str, float]] = []
    for noise, found in drawn.items():
        share = [((d - s).norm() / d.norm()).item() ** 2 for d, s in zip(found, silent, strict=True)]
        angle = [cosine(d, s) for d, s in zip(found, silent, strict=True)]
        row = {"ε": noise, "ε²/2": noise**2 / 2, "1 / (ε²/2)": 2 / noise**2 if noise else math.inf}
        row |= {"|x - μ|": sum(d.norm().item() for d in found) / len(found)}
        row |= {"cosine to ε = 0": sum(angle) / len(angle), "share of the noise": sum(share) / len(share)}
        steps.append(row)
    batches = sum(cosine(a, b) for a, b in pairs) / len(pairs)
    table("3. x - μ of one cycle, the same mini-batches with and without noise", steps)
    print(f"cosine between x - μ of two draws of mini-batches, without noise: {batches:.3f}")

    content = {
        "command": "python benchmarks/temperature.py",
        "machine": machine(),
        "settings": PAPER,
        "quadratic": quadratic,
        "parts": parts,
        "cycle": [
            {key: value if math.isfinite(value) else None for key, value in row.items()} for row in steps
        ],
        "cosine between draws of mini-batches": batches,
        "weights": sum(parameter.numel() for parameter in trained.model.parameters()),
    }
    arguments.out.parent.mkdir(parents=True, exist_ok=True)
    arguments.out.write_text(json.dumps(content, indent=1, ensure_ascii=False) + os.linesep)
    print(arguments.out)


if __name__ == "__main__":
    main()
