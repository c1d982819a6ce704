"""The landscape's speed and memory: density against linear_operator and how its cost grows; exact spectrum.

    python benchmarks/landscape.py [--quick]            about three minutes on two cores
    python benchmarks/landscape.py --exact [--dtype …]  all eigenvalues of small-LeNet: an hour, 20 GiB

The density is timed beside its Hessian-vector products alone, and beside linear_operator's Lanczos on the
same products, so the ratios hold whatever else the machine does. Each of the two commands writes its own
entries of results/bench/landscape.json and keeps the other's.
"""

from __future__ import annotations

import argparse
import json
import resource
import time
import warnings
from collections.abc import Callable
from functools import partial
from typing import Any

import torch
import torch.nn.functional as F
from common import RESULTS, best_of, machine, table, write
from torch import Tensor, nn

from entropy_sgd.lab import models
from entropy_sgd.landscape import hessian_eigenvalues, spectral_density
from entropy_sgd.landscape.objective import objective

with warnings.catch_warnings():
    warnings.simplefilter("ignore")  # its imports use a deprecated function of torch
    from linear_operator.utils.lanczos import lanczos_tridiag

NAME = "landscape"
ROUNDS = 3


def small_mnistfc(hidden: int) -> nn.Module:
    return models.build("small-mnistfc", hidden=(hidden,))


def digits(samples: int, batch: int = 256) -> list[tuple[Tensor, Tensor]]:
    """Random images of MNIST's shape; a fifth of the pixels are dark in all of them, as in MNIST."""
    generator = torch.Generator().manual_seed(0)
    images = torch.rand(samples, 1, 28, 28, generator=generator)
    images *= torch.rand(1, 1, 28, 28, generator=generator) > 0.2
    labels = torch.randint(10, (samples,), generator=generator)
    return list(zip(images.split(batch), labels.split(batch), strict=True))


def density(hidden: int, samples: int, probes: int, steps: int) -> dict[str, Any]:
    """Our density, the products alone, and linear_operator's Lanczos on the same products."""
    model, data = small_mnistfc(hidden), digits(samples)
    with objective(model, F.cross_entropy, data, torch.float32) as f:
        start = torch.randn(probes, f.n)

        def theirs() -> None:
            lanczos_tridiag(
                lambda v: f.products(v.T.contiguous()).T,
                steps,
                dtype=torch.float32,
                device=torch.device("cpu"),
                matrix_shape=torch.Size((f.n, f.n)),
                init_vecs=start.T.contiguous(),
            )

        def ours() -> None:
            spectral_density(model, F.cross_entropy, data, probes=probes, steps=steps, progress=False)

        def products() -> None:
            for _ in range(steps):
                f.products(start)

        best = best_of({"products": products, "ours": ours, "theirs": theirs}, 0.0, ROUNDS)
    return {
        "parameters": f.n,
        "samples": samples,
        "probes": probes,
        "steps": steps,
        "products alone, s": best["products"],
        "ours, s": best["ours"],
        "linear_operator, s": best["theirs"],
        "ours / products": best["ours"] / best["products"],
        "linear_operator / ours": best["theirs"] / best["ours"],
    }


def growth(hidden: int, samples: int, probes: int, steps: int) -> list[dict[str, Any]]:
    """Seconds at the base size and with samples, parameters or probes doubled and quadrupled."""
    base = {"samples": samples, "hidden": hidden, "probes": probes}
    rows: list[dict[str, Any]] = []
    for name in base:
        sizes = {str(factor): {**base, name: base[name] * factor} for factor in (1, 2, 4)}
        work: dict[str, Callable[[], object]] = {
            factor: partial(
                spectral_density,
                small_mnistfc(size["hidden"]),
                F.cross_entropy,
                digits(size["samples"]),
                probes=size["probes"],
                steps=steps,
                progress=False,
            )
            for factor, size in sizes.items()
        }
        best = best_of(work, 0.0, ROUNDS)
        rows += [
            {"grows": name, **size, "seconds": best[factor], "ratio": best[factor] / best["1"]}
            for factor, size in sizes.items()
        ]
    return rows


def exact(model: nn.Module, samples: int, dtype: str) -> dict[str, Any]:
    """All eigenvalues, once: it takes too long for rounds."""
    begin = time.perf_counter()
    hessian_eigenvalues(model, F.cross_entropy, digits(samples), dtype=getattr(torch, dtype))
    return {
        "parameters": sum(p.numel() for p in model.parameters()),
        "samples": samples,
        "dtype": dtype,
        "minutes": (time.perf_counter() - begin) / 60,
        "peak GiB": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20,
    }


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--quick", action="store_true", help="small sizes, and nothing is written")
    parser.add_argument("--exact", action="store_true", help="the exact spectrum instead: the long part")
    parser.add_argument("--dtype", choices=["float64", "float32"], default="float64", help="of --exact")
    arguments = parser.parse_args()
    quick = arguments.quick
    samples = 128 if quick else 2048
    torch.manual_seed(0)
    measured_on = {"machine": machine(), "threads": torch.get_num_threads()}
    found: dict[str, Any]
    if arguments.exact:
        model = small_mnistfc(3) if quick else models.build("small-lenet")
        row = exact(model, samples, arguments.dtype)
        table("Exact spectrum", [row])
        command = f"python benchmarks/landscape.py --exact --dtype {arguments.dtype}"
        found = {f"exact {arguments.dtype}": {"command": command, **measured_on, **row}}
    else:
        command = "python benchmarks/landscape.py"
        row = density(8 if quick else 64, samples, 8, 20 if quick else 100)
        table("Spectral density of small-mnistfc's Hessian", [row])
        rows = growth(4 if quick else 16, 128 if quick else 512, 4, 5 if quick else 30)
        table("How its time grows", rows)
        found = {
            "density": {"command": command, **measured_on, **row},
            "growth": {"command": command, **measured_on, "rows": rows},
        }
    if not quick:
        path = RESULTS / f"{NAME}.json"
        kept = json.loads(path.read_text()) if path.exists() else {}
        write(NAME, {**kept, **found})


if __name__ == "__main__":
    main()
