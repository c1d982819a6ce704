"""A method with replicas: in processes that it starts itself, under torchrun, killed and resumed."""

from __future__ import annotations

import json
import os
import pickle
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from entropy_sgd.lab import Diverged, Interrupted, LabError, methods, recipes
from entropy_sgd.lab.cli import main
from entropy_sgd.lab.cli.train import with_replicas
from entropy_sgd.lab.training.progress import Progress
from frameworks.launch import torchrun

RUN = (  # noqa: SIM905  (a command line, to read as one)
    "train demo/parle --data digits --train-limit 96 --batch-size 8 --epochs 5 --optimizer.L 4 "
    "--optimizer.rho0 0.1 --evaluate-every 1 --log-every 0.5 --statistics-samples 50 --checkpoint-seconds 0"
).split()
REPLICAS = 2


def start(folder: Path) -> subprocess.Popen[str]:
    command = [
        sys.executable,
        "-m",
        "entropy_sgd",
        *RUN,
        "--replicas",
        str(REPLICAS),
        "--out",
        str(folder),
        "--resume",
    ]
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": os.pathsep.join(sys.path)}
    return subprocess.Popen(
        command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    )


def summary(folder: Path) -> dict[str, object]:
    found = json.loads((folder / "summary.json").read_text())
    return {key: value for key, value in found.items() if key not in ("seconds", "peak_memory_bytes")}


def records(folder: Path) -> list[dict[str, float]]:
    lines = (folder / "metrics.jsonl").read_text().splitlines()
    return [{key: v for key, v in json.loads(line).items() if key != "seconds"} for line in lines]


def test_started_by_itself_or_by_torchrun_whole_or_killed(tmp_path, capsys):
    """All end in the same bits; with another number of replicas, at the same budget."""
    process = start(tmp_path / "whole")
    output, _ = process.communicate(timeout=300)
    assert process.returncode == 0, output
    whole = summary(tmp_path / "whole")
    # 5 epochs of 96 digits in batches of 8 are 60 gradients, 30 of each replica
    assert whole["gradient_evaluations"] == 60
    assert whole["epochs"] == 5.0
    last = records(tmp_path / "whole")[-1]
    assert last["step"] == 30
    assert 0.5 < last["overlap"] < 1
    assert last["x_minus_mean"] > 0
    assert last["rho"] == pytest.approx(0.1 * 1.001**6)

    torchrun("-m", "entropy_sgd", *RUN, "--out", tmp_path / "torchrun", processes=REPLICAS)
    assert summary(tmp_path / "torchrun") == whole

    process = start(tmp_path / "killed")
    while process.poll() is None and not (tmp_path / "killed" / "checkpoint.previous.pt").exists():
        time.sleep(0.01)
    children = Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split()
    os.kill(int(children[1]), signal.SIGKILL)
    output, _ = process.communicate(timeout=300)
    assert process.returncode == 2, output
    assert "the process of replica 1 ended with signal 9: continue from the" in " ".join(output.split())
    assert "Traceback" not in output
    assert not (tmp_path / "killed" / "summary.json").exists()
    shutil.copytree(tmp_path / "killed", tmp_path / "fewer")
    output, _ = (process := start(tmp_path / "killed")).communicate(timeout=300)
    assert process.returncode == 0, output
    assert "resumed at step" in output
    assert summary(tmp_path / "killed") == whole
    assert records(tmp_path / "killed") == records(tmp_path / "whole")

    capsys.readouterr()
    assert main([*RUN, "--replicas", "1", "--out", str(tmp_path / "fewer"), "--resume"]) == 0
    assert "there were 2 replicas and are now 1: all start from the mean" in " ".join(
        capsys.readouterr().out.split()
    )
    fewer, lines = summary(tmp_path / "fewer"), records(tmp_path / "fewer")
    assert (fewer["gradient_evaluations"], fewer["epochs"]) == (60, 5.0)  # the budget is what it was
    assert 30 < lines[-1]["step"] < 60
    config = json.loads((tmp_path / "fewer" / "config.json").read_text())
    assert config["settings"]["recipe"]["optimizer"]["replicas"] == 1


def test_a_budget_across_numbers_of_replicas():
    """10 epochs of 120 gradients: 10 steps of 3 replicas, 20 of 2, the rest by 4."""
    progress = Progress(total=400, step=10)
    progress.change_replicas(3, 2, cost=1, steps_per_epoch=60, epochs=10)
    assert (progress.total, progress.epoch(60), progress.evaluations(2)) == (10 + 585, 0.25, 30)
    progress.step += 20
    progress.change_replicas(2, 4, cost=1, steps_per_epoch=30, epochs=10)
    assert progress.evaluations(4) == 70
    assert progress.epoch(30) == pytest.approx(70 / 120)
    assert progress.total == 30 + round((1200 - 70) / 4)
    reached = []
    while progress.step < progress.total:
        progress.step += 1
        if progress.passes(1.0, 30):
            reached.append(progress.epoch(30))
    assert [int(epoch) for epoch in reached] == list(range(1, 10))  # two gradients do not make a step of 4
    assert all(epoch - int(epoch) < 1 / 30 for epoch in reached)


@pytest.mark.parametrize(
    "error", [Interrupted(15, "stopped"), Diverged("a loss of nan"), LabError("no data")]
)
def test_errors_of_a_replica_reach_the_command(error):
    again = pickle.loads(pickle.dumps(error))
    assert (type(again), str(again), again.exit_code) == (type(error), str(error), error.exit_code)


def test_numbers_of_replicas():
    parle, sgd = recipes.get("lenet/parle"), recipes.get("lenet/sgd")
    assert with_replicas(parle, None, 1) == (parle, 1)
    assert with_replicas(parle, 5, 1)[0].optimizer.replicas == 5
    chosen, together = with_replicas(parle, None, 4)  # under torchrun, as many as there are
    assert (chosen.optimizer.replicas, together) == (4, 1)
    assert with_replicas(sgd, None, 4) == (sgd, 4)
    with pytest.raises(LabError, match="--replicas 2 does not fit the 4 processes"):
        with_replicas(parle, 2, 4)
    with pytest.raises(LabError, match="replicas must be an integer >= 1, got 0"):
        with_replicas(parle, 0, 1)
    with pytest.raises(LabError, match="method 'sgd' has no replicas"):
        with_replicas(sgd, 2, 1)


@pytest.mark.parametrize("network", ["mnistfc", "lenet", "allcnn", "ptb-lstm-small", "char-lstm"])
def test_recipes(network):
    recipe = recipes.get(f"{network}/parle")
    options = recipe.optimizer
    assert methods.of(options).replicas(options) == 3
    half = recipe.stretched(recipe.epochs / 2)
    updates = 1000
    assert (1 + half.optimizer.rho1) ** (updates / 2) == pytest.approx((1 + options.rho1) ** updates)
