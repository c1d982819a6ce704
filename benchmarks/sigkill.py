"""Kills a training run at random moments with SIGKILL, resumes it, and compares the final weights.

    python benchmarks/sigkill.py [--trials 20]

Every trial must end with the weights of a run that was never stopped. Writes results/sigkill.json.
"""

from __future__ import annotations

import argparse
import json
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

RUN = [
    "train",
    "lenet/entropy-sgd",
    "--data",
    "digits",
    "--epochs",
    "2.5",
    "--batch-size",
    "32",
    "--checkpoint-seconds",
    "0",
    "--statistics-samples",
    "1000",
]


def start(folder: Path) -> subprocess.Popen[bytes]:
    command = [sys.executable, "-m", "entropy_sgd", *RUN, "--out", str(folder), "--resume"]
    return subprocess.Popen(command, stdout=subprocess.DEVNULL)


def finish(folder: Path) -> str:
    if start(folder).wait() != 0:
        raise SystemExit(f"the run in {folder} did not end well")
    return json.loads((folder / "summary.json").read_text())["weights_sha256"]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--trials", type=int, default=20)
    trials = parser.parse_args().trials
    moments, killed, equal = random.Random(1), 0, 0
    with tempfile.TemporaryDirectory() as root:
        expected = finish(Path(root) / "whole")
        for trial in range(trials):
            folder = Path(root) / str(trial)
            process = start(folder)
            while not (folder / "metrics.jsonl").exists() and process.poll() is None:
                time.sleep(0.01)
            time.sleep(moments.uniform(0, 8))
            if process.poll() is None:
                process.send_signal(signal.SIGKILL)
                killed += 1
            process.wait()
            equal += finish(folder) == expected
            shutil.rmtree(folder)
            print(f"trial {trial + 1}: {killed} killed, {equal} equal", flush=True)
    result = {
        "trials": trials,
        "killed": killed,
        "equal_hashes": equal,
        "weights_sha256": expected,
        "command": "entropy-sgd " + " ".join(RUN),
    }
    path = Path(__file__).parents[1] / "results" / "sigkill.json"
    path.write_text(json.dumps(result, indent=1) + "\n")
    print(path)


if __name__ == "__main__":
    main()
