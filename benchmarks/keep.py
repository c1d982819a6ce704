"""Keeps the evidence of runs: one JSON each, from their folders, for results/.

    python benchmarks/keep.py RUN… [--out results/runs]

A file holds the run's configuration with its environment and command, its summary, its evaluations, and the
training loss at the end of each effective epoch.
"""

from __future__ import annotations

import argparse
import json
import math
from pathlib import Path


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("runs", nargs="+", type=Path)
    parser.add_argument("--out", type=Path, default=Path(__file__).parents[1] / "results" / "runs")
    arguments = parser.parse_args()
    arguments.out.mkdir(parents=True, exist_ok=True)
    for run in arguments.runs:
        lines = (run / "metrics.jsonl").read_text().splitlines()
        rows = [json.loads(line) for line in lines]
        evaluations = [row for row in rows if "validation_loss" in row]
        # The training loss, of which a final run has nothing else: the last line of each effective epoch.
        curve = {math.ceil(row["epoch"] - 1e-9): row["loss"] for row in rows}
        config = json.loads((run / "config.json").read_text())
        # Where the program, the data and the run lay on that machine is of no use elsewhere.
        config["environment"]["command"] = [
            Path(word).name if i == 0 or Path(word).is_absolute() else word
            for i, word in enumerate(config["environment"]["command"])
        ]
        kept = {
            **config,
            "summary": json.loads((run / "summary.json").read_text()),
            "evaluations": evaluations,
            "training_loss": [round(loss, 6) for _, loss in sorted(curve.items())],
        }
        path = arguments.out / f"{run.name}.json"
        path.write_text(json.dumps(kept, indent=1) + "\n")
        print(path)


if __name__ == "__main__":
    main()
