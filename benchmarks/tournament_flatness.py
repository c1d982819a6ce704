"""How flat the minima of the tournament's winners are, at the same training loss.

    python benchmarks/tournament_flatness.py TASK… --out FOLDER [--loss 0.02] [--seeds 3] [--entrants NAME…]

The best settings of each entrant are trained anew until the loss over all their training data, without
dropout, has come down to `--loss`, which is checked once an epoch, or else to the end of the budget.
Then the largest eigenvalue and the trace of the Hessian, the local entropy and the local energy are measured
on 1,000 of the training images. Runs are in FOLDER and are not repeated. Writes
results/tournament/TASK-flatness.json.
"""

from __future__ import annotations

import argparse
import json
import shlex
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from tournament import FRESH, RESULTS, arguments, folder_name, recipe, run
from tournament_field import ENTRANTS, TASKS

from entropy_sgd.lab import jobs
from entropy_sgd.lab.runs.folder import Settings
from entropy_sgd.lab.runs.reading import read
from entropy_sgd.lab.spectra.trained import load
from entropy_sgd.landscape import laplace_expansion, local_energy

SAMPLES, GAMMA, SIGMA = 1000, 10.0, 0.2


def measured(folder: Path, data_dir: Path | None) -> dict[str, float | None]:
    """Figures of a finished run."""
    trained = load(read(folder), samples=SAMPLES, batch=500, dtype=torch.float32, data_dir=data_dir)
    there = trained.model, trained.loss_fn, trained.batches
    loss, gradient = trained.loss_and_gradient_norm()
    expansion = laplace_expansion(*there, probes=4, steps=20, dtype=torch.float32)
    try:
        entropy: float | None = expansion.local_entropy(GAMMA).normalized
    except ValueError:  # an eigenvalue below -gamma
        entropy = None
    return {
        "loss": loss,
        "gradient norm": gradient,
        "largest eigenvalue": expansion.density.extremes[1],
        "trace": expansion.density.trace,
        "local entropy": entropy,
        "local energy": local_energy(*there, SIGMA, draws=16).value,
    }


def measure(name: str, options: argparse.Namespace) -> None:
    """All entrants of one task that have a winner."""
    task, home = TASKS[name], options.out / f"{name}-flatness"
    entrants = json.loads((RESULTS / f"{name}.json").read_text())["entrants"]
    path = RESULTS / f"{name}-flatness.json"
    found: dict[str, list[dict[str, Any]]] = json.loads(path.read_text())["entrants"] if path.exists() else {}
    command = f"python benchmarks/tournament_flatness.py {name} --out FOLDER --loss {options.loss:g}"
    record = {
        "command": "",
        "loss": options.loss,
        "samples": SAMPLES,
        "gamma of the local entropy": GAMMA,
        "sigma of the local energy": SIGMA,
        "entrants": found,
    }
    for title, entry in entrants.items():
        if "best" not in entry or title in found or title not in options.entrants:
            continue
        made = recipe(task, ENTRANTS[title], entry["trials"][entry["best"]]["options"])
        made = replace(made, stop_at_loss=options.loss, evaluate_every=1.0)
        wanted = [
            jobs.Job(
                home / f"{folder_name(title)}-seed{seed}",
                Settings(made, seed),
                data_dir=options.data_dir,
                label=title,
            )
            for seed in range(FRESH, FRESH + options.seeds)
        ]
        rows: list[dict[str, Any]] = []
        for job, outcome in zip(wanted, run(wanted, home, options.jobs), strict=True):
            assert outcome.summary is not None
            row: dict[str, Any] = {"seed": job.settings.seed, "status": outcome.summary["status"]}
            if row["status"] == "finished":
                row["epochs"] = outcome.summary["epochs"]
                row["training loss"] = read(job.folder).records[-1]["training_loss"]
                row |= measured(job.folder, options.data_dir)
            rows.append(row)
        found[title] = rows
        record["command"] = f"{command} --seeds {options.seeds} --entrants {shlex.join(found)}"
        path.write_text(json.dumps(record, indent=1) + "\n")


def main() -> None:
    parser = arguments(__doc__, seeds=3)
    parser.add_argument("--loss", type=float, default=0.02)
    parser.add_argument("--entrants", nargs="+", choices=list(ENTRANTS), default=list(ENTRANTS))
    options = parser.parse_args()
    for name in options.tasks:
        measure(name, options)


if __name__ == "__main__":
    main()
