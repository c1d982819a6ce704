"""Kills one replica of a run at random moments with SIGKILL, resumes all, and compares the final weights.

    python benchmarks/sigkill_replicas.py [--trials 20]

A dead replica ends the command, and `--resume` continues from the checkpoint, which holds every replica.
Every trial must end with the weights of a run that was never stopped. Writes results/sigkill_replicas.json.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

REPLICAS = 2
RUN = (
    f"train lenet/parle --replicas {REPLICAS} --data digits --train-limit 160 --epochs 6 --batch-size 16 "
    "--checkpoint-seconds 0 --statistics-samples 100 --optimizer.L 5"
).split()


def start(folder: Path) -> subprocess.Popen[bytes]:
    command = [sys.executable, "-m", "entropy_sgd", *RUN, "--out", str(folder), "--resume"]
    return subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)


def finish(folder: Path) -> str:
    if start(folder).wait() != 0:
        raise SystemExit(f"the run in {folder} did not end well")
    return json.loads((folder / "summary.json").read_text())["weights_sha256"]


def processes_of(command: subprocess.Popen[bytes]) -> list[int]:
    """The processes that the command has started."""
    children = Path(f"/proc/{command.pid}/task/{command.pid}/children")
    return [int(pid) for pid in children.read_text().split()]


def wait_for_checkpoints(path: Path, count: int, command: subprocess.Popen[bytes]) -> None:
    """Until the run has written this many, whatever else the machine does in the meantime."""
    seen: set[int] = set()
    while len(seen) < count and command.poll() is None:
        with contextlib.suppress(FileNotFoundError):
            seen.add(path.stat().st_mtime_ns)
        time.sleep(0.002)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--trials", type=int, default=20)
    trials = parser.parse_args().trials
    moments, killed, equal = random.Random(1), 0, 0
    with tempfile.TemporaryDirectory() as root:
        began = time.monotonic()
        expected = finish(Path(root) / "whole")
        lines = (Path(root) / "whole" / "metrics.jsonl").read_text().splitlines()
        last = json.loads(lines[-1])
        steps, pause = last["step"], last["seconds"] / last["step"]
        print(f"undisturbed: {steps} steps in {time.monotonic() - began:.1f} s", flush=True)
        for trial in range(trials):
            folder = Path(root) / str(trial)
            command = start(folder)
            saved = moments.randrange(1, steps - 1)
            wait_for_checkpoints(folder / "checkpoint.pt", saved, command)
            time.sleep(moments.uniform(0, pause))  # anywhere between two checkpoints, or while one is written
            if command.poll() is None:
                os.kill(moments.choice(processes_of(command)), signal.SIGKILL)
            killed += command.wait() != 0
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
    path = Path(__file__).parents[1] / "results" / "sigkill_replicas.json"
    path.write_text(json.dumps(result, indent=1) + "\n")
    print(path)


if __name__ == "__main__":
    main()
