"""Timing side by side: every round times each candidate once, under the same load."""

from __future__ import annotations

import json
import os
import platform
import statistics
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

RESULTS = Path(__file__).parents[1] / "results" / "bench"


def best_of(candidates: dict[str, Callable[[], object]], seconds: float, least: int = 5) -> dict[str, float]:
    """Seconds of each candidate's fastest call, alternating for about `seconds`, `least` rounds at least."""
    return {name: min(times) for name, times in _rounds(candidates, seconds, least).items()}


def ratios_to(
    base: str, candidates: dict[str, Callable[[], object]], seconds: float, least: int = 5
) -> tuple[float, dict[str, float]]:
    """Median seconds of `base`, and the median over the rounds of each candidate's ratio to it.

    The fastest calls of two candidates may come from moments at which the machine's memory differs in speed;
    those of a round hardly do.
    """
    found = _rounds(candidates, seconds, least)
    ratios = {
        name: statistics.median(a / b for a, b in zip(times, found[base], strict=True))
        for name, times in found.items()
    }
    return statistics.median(found[base]), ratios


def _rounds(
    candidates: dict[str, Callable[[], object]], seconds: float, least: int
) -> dict[str, list[float]]:
    for call in candidates.values():
        call()
    found: dict[str, list[float]] = {name: [] for name in candidates}
    end, rounds = time.perf_counter() + seconds, 0
    while rounds < least or time.perf_counter() < end:
        for name, call in candidates.items():
            start = time.perf_counter()
            call()
            found[name].append(time.perf_counter() - start)
        rounds += 1
    return found


def machine() -> dict[str, Any]:
    """What the figures were measured on."""
    model = platform.processor()
    cpuinfo = Path("/proc/cpuinfo")
    if cpuinfo.exists():
        names = [
            line.split(":", 1)[1].strip() for line in cpuinfo.read_text().splitlines() if "model name" in line
        ]
        model = names[0] if names else model
    return {
        "processor": model,
        "cores": os.cpu_count(),
        "system": platform.platform(),
        "python": platform.python_version(),
        "torch": torch.__version__,
        "load average before": os.getloadavg()[0],
    }


def table(title: str, rows: list[dict[str, Any]]) -> None:
    """Prints rows with the same keys as a table."""
    cells = [list(rows[0])] + [
        [f"{v:.3g}" if isinstance(v, float) else str(v) for v in row.values()] for row in rows
    ]
    widths = [max(len(row[i]) for row in cells) for i in range(len(cells[0]))]
    print(f"\n{title}")
    for row in cells:
        print("  ".join(cell.rjust(width) for cell, width in zip(row, widths, strict=True)), flush=True)


def write(name: str, content: dict[str, Any]) -> Path:
    """Writes `results/bench/<name>.json`."""
    RESULTS.mkdir(parents=True, exist_ok=True)
    path = RESULTS / f"{name}.json"
    path.write_text(json.dumps(content, indent=1) + "\n")
    print(f"\nwritten: {path}")
    return path
