"""Runs of test_running.py, in a process that can be killed: `many.py HOME AT_ONCE`."""

from __future__ import annotations

import sys
from dataclasses import replace
from pathlib import Path

from entropy_sgd.lab import LabError, jobs, recipes
from entropy_sgd.lab.runs.folder import Settings

# its bits depend on the number of threads: 80 steps
RECIPE = replace(
    recipes.get("mnistfc/sgd"),
    data="digits",
    train_limit=1280,
    batch_size=64,
    epochs=4,
    statistics_samples=100,
)


def listed(home: Path) -> list[jobs.Job]:
    return [
        jobs.Job(home / f"seed{seed}", Settings(jobs.fixed_threads(RECIPE), seed), checkpoint_seconds=0)
        for seed in range(2)
    ]


if __name__ == "__main__":
    try:
        jobs.run(listed(Path(sys.argv[1])), Path(sys.argv[1]), at_once=int(sys.argv[2]))
    except LabError as error:
        print(f"error: {error}", file=sys.stderr)
        sys.exit(error.exit_code)
