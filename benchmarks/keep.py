"""Keeps the evidence of runs: one JSON each, from their folders, for results/.

    python benchmarks/keep.py RUN… [--out results/runs]

A file holds the run's configuration with its environment and command, its evaluations, and its summary.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("runs", nargs="+", type=Path)
    parser.add_argument("--out", type=Path, default=Path(__file__).parents[1] / "results" / "runs")
    arguments = parser.parse_args()
    arguments.out.mkdir(parents=True, exist_ok=True)
    for run in arguments.runs:
        lines = (run / "metrics.jsonl").read_text().splitlines()
        evaluations = [row for row in map(json.loads, lines) if "validation_loss" in row]
        config = json.loads((run / "config.json").read_text())
        # Where the program, the data and the run lay on that machine is of no use elsewhere.
        config["environment"]["command"] = [
            Path(word).name if Path(word).is_absolute() else word for word in config["environment"]["command"]
        ]
        kept = {
            **config,
            "summary": json.loads((run / "summary.json").read_text()),
            "evaluations": evaluations,
        }
        path = arguments.out / f"{run.name}.json"
        path.write_text(json.dumps(kept, indent=1) + "\n")
        print(path)


if __name__ == "__main__":
    main()
