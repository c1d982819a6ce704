"""A run killed with SIGKILL at random moments, while writing a checkpoint too, ends with the same bits."""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import time

KILLS = 3
OPTIONS = [
    "--train-limit",
    "96",
    "--batch-size",
    "16",
    "--epochs",
    "10",
    "--checkpoint-seconds",
    "0",
    "--resume",
]


def start(folder):
    command = [
        sys.executable,
        "-m",
        "entropy_sgd",
        "train",
        "demo/entropy-sgd",
        "--out",
        str(folder),
        *OPTIONS,
    ]
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    return subprocess.Popen(
        command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    )


def finish(process):
    output, _ = process.communicate(timeout=300)
    assert process.returncode == 0, output
    return output


def written(folder):
    """When the last checkpoint was written; None if there is none, as between the two renames."""
    try:
        return (folder / "checkpoint.pt").stat().st_mtime_ns
    except FileNotFoundError:
        return None


def test_sigkill_at_random_moments(tmp_path):
    finish(start(tmp_path / "whole"))
    generator = random.Random(5)
    killed = 0
    while killed < KILLS:
        before = written(tmp_path / "parts")
        process = start(tmp_path / "parts")
        while process.poll() is None and written(tmp_path / "parts") in (before, None):
            time.sleep(0.005)  # until this process has written a checkpoint of its own
        time.sleep(generator.uniform(0.0, 0.15))
        process.send_signal(signal.SIGKILL)
        process.communicate()
        if process.returncode == 0:
            break  # it came to its end before the signal
        killed += 1
    assert killed > 0
    finish(start(tmp_path / "parts"))
    whole, parts = (json.loads((tmp_path / name / "summary.json").read_text()) for name in ("whole", "parts"))
    assert parts["weights_sha256"] == whole["weights_sha256"]
    assert parts["validation"] == whole["validation"]
    lines = [
        [
            {**json.loads(line), "seconds": 0}
            for line in (tmp_path / name / "metrics.jsonl").read_text().splitlines()
        ]
        for name in ("whole", "parts")
    ]
    assert lines[0] == lines[1]
