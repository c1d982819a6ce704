"""The landscape's speed and memory: exact spectrum, density against linear_operator, and how the cost grows.

Everything is measured side by side in one run; ratios are what to read. ``--quick`` takes small sizes.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import resource
import time
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from entropy_sgd.landscape import hessian_eigenvalues, spectral_density
from entropy_sgd.landscape._objective import objective

with warnings.catch_warnings():
    warnings.simplefilter("ignore")  # its imports use a deprecated function of torch
    from linear_operator.utils.lanczos import lanczos_tridiag

Data = list[tuple[Tensor, Tensor]]


def seconds(work: Callable[[], Any]) -> float:
    begin = time.perf_counter()
    work()
    return time.perf_counter() - begin


def small_lenet() -> nn.Module:
    return nn.Sequential(
        nn.Conv2d(1, 10, 5),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Conv2d(10, 20, 5),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Flatten(),
        nn.Linear(320, 128),
        nn.ReLU(),
        nn.Linear(128, 10),
    )


def small_mnistfc(hidden: int = 64) -> nn.Module:
    return nn.Sequential(nn.Flatten(), nn.Linear(784, hidden), nn.ReLU(), nn.Linear(hidden, 10))


def digits(samples: int, batch: int = 256) -> Data:
    """Random images of MNIST's shape; a fifth of the pixels are dark in all of them, as in MNIST."""
    generator = torch.Generator().manual_seed(0)
    images = torch.rand(samples, 1, 28, 28, generator=generator)
    images *= torch.rand(1, 1, 28, 28, generator=generator) > 0.2
    labels = torch.randint(10, (samples,), generator=generator)
    return list(zip(images.split(batch), labels.split(batch), strict=True))


def exact_spectrum(model: nn.Module, samples: int, dtype: torch.dtype) -> dict[str, Any]:
    taken = seconds(lambda: hessian_eigenvalues(model, F.cross_entropy, digits(samples), dtype=dtype))
    return {
        "parameters": sum(p.numel() for p in model.parameters()),
        "samples": samples,
        "dtype": str(dtype),
        "minutes": taken / 60,
        "peak_gib": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20,
    }


def density_against_linear_operator(hidden: int, samples: int, probes: int, steps: int) -> dict[str, Any]:
    """Our density, the products alone, and linear_operator's Lanczos on the same products."""
    model, data = small_mnistfc(hidden), digits(samples)
    with objective(model, F.cross_entropy, data, torch.float32) as f:
        start = torch.randn(probes, f.n)
        f.products(start)  # warm-up
        products = seconds(lambda: [f.products(start) for _ in range(steps)])
        theirs = seconds(
            lambda: lanczos_tridiag(
                lambda v: f.products(v.T.contiguous()).T,
                steps,
                dtype=torch.float32,
                device=torch.device("cpu"),
                matrix_shape=torch.Size((f.n, f.n)),
                init_vecs=start.T.contiguous(),
            )
        )
        singly = seconds(lambda: [f.products(start[:1]) for _ in range(steps)]) * probes
    ours = seconds(
        lambda: spectral_density(model, F.cross_entropy, data, probes=probes, steps=steps, progress=False)
    )
    return {
        "parameters": f.n,
        "samples": samples,
        "probes": probes,
        "steps": steps,
        "ours_seconds": ours,
        "linear_operator_seconds": theirs,
        "products_seconds": products,
        "linear_operator_over_ours": theirs / ours,
        "linear_operator_with_single_products_over_ours": (theirs - products + singly) / ours,
        "ours_over_products": ours / products,
    }


def growth(hidden: int, samples: int, probes: int, steps: int) -> list[dict[str, Any]]:
    """Seconds at the base size and with samples, parameters or probes doubled and quadrupled."""
    base = {"samples": samples, "hidden": hidden, "probes": probes}
    rows: list[dict[str, Any]] = []
    for name in base:
        for factor in (1, 2, 4):
            size = {**base, name: base[name] * factor}
            model, data = small_mnistfc(size["hidden"]), digits(size["samples"])

            def run(size: dict[str, int] = size, model: nn.Module = model, data: Data = data) -> None:
                spectral_density(
                    model, F.cross_entropy, data, probes=size["probes"], steps=steps, progress=False
                )

            run()  # warm-up
            taken = seconds(run)
            first = rows[-factor.bit_length() + 1]["seconds"] if factor > 1 else taken
            rows.append({**size, "grows": name, "factor": factor, "seconds": taken, "ratio": taken / first})
    return rows


def machine() -> dict[str, Any]:
    cpu = next(
        (
            line.split(":", 1)[1].strip()
            for line in Path("/proc/cpuinfo").read_text().splitlines()
            if line.startswith("model name")
        ),
        platform.processor(),
    )
    return {
        "cpu": cpu,
        "cores": os.cpu_count(),
        "threads": torch.get_num_threads(),
        "memory_gib": os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30,
        "system": platform.platform(),
        "python": platform.python_version(),
        "torch": torch.__version__,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="small sizes, to see that it works")
    parser.add_argument("--samples", type=int, help="samples of the exact spectrum and the density (2048)")
    parser.add_argument(
        "--dtype", choices=["float32", "float64"], default="float64", help="of the exact spectrum"
    )
    parser.add_argument(
        "--no-exact", action="store_true", help="leave out the exact spectrum (the long part)"
    )
    parser.add_argument("--out", type=Path, default=Path("results/bench/landscape.json"))
    arguments = parser.parse_args()
    torch.manual_seed(0)
    quick = arguments.quick
    samples = arguments.samples or (128 if quick else 2048)
    report: dict[str, Any] = {"machine": machine(), "quick": quick}

    density = density_against_linear_operator(8 if quick else 64, samples, 8, 20 if quick else 100)
    report["density"] = density
    print(
        f"density of {density['parameters']} parameters, {samples} samples: {density['ours_seconds']:.1f} s; "
        f"linear_operator takes {density['linear_operator_over_ours']:.2f} x that with our products, "
        f"{density['linear_operator_with_single_products_over_ours']:.2f} x with one product at a time; "
        f"we take {density['ours_over_products']:.2f} x the products alone"
    )

    report["growth"] = growth(4 if quick else 16, 128 if quick else 512, 4, 5 if quick else 30)
    print(f"\n{'grows':<10}{'samples':>9}{'hidden':>8}{'probes':>8}{'seconds':>10}{'ratio':>8}")
    for row in report["growth"]:
        print(
            f"{row['grows']:<10}{row['samples']:>9}{row['hidden']:>8}{row['probes']:>8}"
            f"{row['seconds']:>10.2f}{row['ratio']:>8.2f}"
        )

    if not arguments.no_exact:
        model = small_mnistfc(3) if quick else small_lenet()
        report["exact"] = exact_spectrum(model, samples, getattr(torch, arguments.dtype))
        print(
            f"\nexact spectrum of {report['exact']['parameters']} parameters, {samples} samples, "
            f"{arguments.dtype}: {report['exact']['minutes']:.1f} minutes, "
            f"{report['exact']['peak_gib']:.1f} GiB"
        )

    arguments.out.parent.mkdir(parents=True, exist_ok=True)
    arguments.out.write_text(json.dumps(report, indent=1) + "\n")


if __name__ == "__main__":
    main()
