"""Timing side by side: every round times each candidate once, so all meet the same machine; the best counts."""

from __future__ import annotations

import json
import os
import platform
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

RESULTS = Path(__file__).parents[1] / "results" / "bench"


def best_of(candidates: dict[str, Callable[[], object]], seconds: float, least: int = 5) -> dict[str, float]:
    """Seconds of the fastest call of each candidate, alternating for about `seconds`, at least `least` rounds."""
    for call in candidates.values():
        call()
    best = dict.fromkeys(candidates, float("inf"))
    end, rounds = time.perf_counter() + seconds, 0
    while rounds < least or time.perf_counter() < end:
        for name, call in candidates.items():
            start = time.perf_counter()
            call()
            best[name] = min(best[name], time.perf_counter() - start)
        rounds += 1
    return best


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
