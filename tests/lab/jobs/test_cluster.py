"""Runs on a Dask cluster: a real scheduler and two workers, each a process; one is killed in the middle."""

from __future__ import annotations

import contextlib
import io
import json
import subprocess
import sys
import threading
import time
from pathlib import Path

import psutil
import pytest
from rich.console import Console

from entropy_sgd.lab import LabError, jobs
from entropy_sgd.lab.cli import main

sys.path.insert(0, str(Path(__file__).parent))
from many import listed

PATIENCE = 240


class Cluster:
    def __init__(self, folder):
        self.file, self.folder = folder / "scheduler.json", folder
        self.processes = [self.start("scheduler", "--host", "127.0.0.1", "--port", "0")]
        self.until(self.file.exists)
        self.address = json.loads(self.file.read_text())["address"]
        options = ("--nthreads", "1", "--no-nanny", "--local-directory", folder, "--memory-limit", "0")
        self.workers = [self.start("worker", *options) for _ in range(2)]
        self.processes += self.workers

    def start(self, kind, *options):
        command = [sys.executable, "-m", "distributed.cli.dask_" + kind, "--scheduler-file", self.file]
        with (self.folder / "cluster.log").open("a") as log:
            command = [str(part) for part in (*command, "--no-dashboard", *options)]
            return subprocess.Popen(command, stdout=log, stderr=log)

    def until(self, condition):
        deadline = time.monotonic() + PATIENCE
        while not condition():
            assert time.monotonic() < deadline, (self.folder / "cluster.log").read_text()
            time.sleep(0.05)

    def stop(self):
        for process in self.processes[::-1]:
            process.kill()
            process.wait()


@pytest.fixture
def cluster(tmp_path):
    from distributed import Client

    cluster = Cluster(tmp_path)
    try:
        with Client(cluster.address, timeout=PATIENCE) as client:
            client.wait_for_workers(2, timeout=PATIENCE)
        yield cluster
    finally:
        cluster.stop()


def bits(outcomes):
    return [outcome.summary["weights_sha256"] for outcome in outcomes]


def writers(worker):
    """The folders of the runs that a worker makes."""
    found = []
    for process in psutil.Process(worker.pid).children():
        with contextlib.suppress(psutil.NoSuchProcess):  # it has just ended
            found += [
                Path(f.path).parent.name for f in process.open_files() if f.path.endswith("metrics.jsonl")
            ]
    return found


def test_a_worker_that_is_killed_costs_no_bit(cluster, tmp_path):
    quiet = Console(file=io.StringIO(), width=200)
    here = jobs.run(listed(tmp_path / "here"), tmp_path / "here", at_once=1, console=quiet)
    there = tmp_path / "there"
    victim, survivor = cluster.workers
    broken = []

    def kill():
        cluster.until(lambda: any((there / name / "checkpoint.pt").exists() for name in writers(victim)))
        broken.extend(writers(victim))
        victim.kill()

    killer = threading.Thread(target=kill)
    killer.start()
    outcomes = jobs.run(listed(there), there, dask=cluster.address, console=quiet)
    killer.join()
    assert len(broken) == 1  # it was at work
    assert bits(outcomes) == bits(here)
    assert [outcome.job.settings.seed for outcome in outcomes] == [0, 1]
    assert survivor.poll() is None
    assert "2 runs, 2 at once" in quiet.file.getvalue()
    # the command itself, on the worker that is left
    command = f"compare demo --methods sgd --seeds 0 --budget 0.5 --out {there}/c --dask {cluster.address}"
    assert main([*command.split(), "--set", "train-limit=200", "batch-size=50"]) == 0
    assert json.loads((there / "c" / "comparison.json").read_text())["runs"][0]["status"] == "finished"


def test_an_address_where_nobody_answers(tmp_path, monkeypatch):
    from entropy_sgd.lab.jobs import cluster

    monkeypatch.setattr(cluster, "PATIENCE", 1)
    for address in ("tcp://127.0.0.1:9", "nonsense://x"):
        with pytest.raises(LabError, match="no Dask scheduler answers"):
            jobs.run(listed(tmp_path), tmp_path, dask=address)
    assert not list(tmp_path.iterdir())
