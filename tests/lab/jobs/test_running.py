"""Many runs at once: the same bits in the same order, whatever fails or is killed."""

from __future__ import annotations

import contextlib
import io
import json
import os
import signal
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import psutil
import pytest
import torch
from rich.console import Console

from entropy_sgd.lab import LabError, jobs, recipes
from entropy_sgd.lab.comparison.comparison import Comparison, run
from entropy_sgd.lab.jobs import attempt, child, running
from entropy_sgd.lab.jobs.lease import NAME
from entropy_sgd.lab.runs.folder import Settings

HERE = Path(__file__).parent
TINY = {"train_limit": 256, "batch_size": 64, "epochs": 2, "statistics_samples": 100}


def quiet():
    return Console(file=io.StringIO(), width=200)


def bits(home):
    return {
        path.parent.name: json.loads(path.read_text())["weights_sha256"]
        for path in sorted(home.glob("*/summary.json"))
    }


def test_a_comparison_has_the_same_bits_with_one_job_and_with_two(tmp_path):
    chosen = tuple(
        replace(recipes.get(f"mnistfc/{name}"), data="digits", **TINY) for name in ("sgd", "entropy-sgd")
    )
    torch.set_num_threads(2)  # what torch chooses must not count: the recipes have no threads
    try:
        one = run(Comparison(chosen, (0,)), tmp_path / "one", console=quiet())
    finally:
        torch.set_num_threads(1)
    console = quiet()
    two = run(Comparison(chosen, (0,)), tmp_path / "two", console=console, at_once=2)
    assert bits(tmp_path / "one") == bits(tmp_path / "two")
    assert len(bits(tmp_path / "two")) == 2
    assert [(row.recipe, row.result, row.difference) for row in one] == [
        (row.recipe, row.result, row.difference) for row in two
    ]
    config = json.loads((tmp_path / "two" / "sgd-seed0" / "config.json").read_text())
    assert config["settings"]["recipe"]["threads"] == config["environment"]["threads"] == 1
    assert config["environment"]["command"] == sys.argv
    assert "2 runs, 2 at once" in console.file.getvalue()
    assert "run 2 of 2" in console.file.getvalue()
    assert not (tmp_path / "two" / NAME).exists()


def test_what_fails_or_diverges_stops_no_other_and_results_come_in_the_order_given(tmp_path):
    sgd = replace(recipes.get("demo/sgd"), **TINY)
    chosen = [
        replace(sgd, name="demo/missing", data=f"idx:{tmp_path}/nowhere"),
        replace(sgd, name="demo/wild", optimizer=replace(sgd.optimizer, lr=1e30)),
        sgd,
    ]
    listed = [jobs.Job(tmp_path / recipe.method, Settings(recipe)) for recipe in chosen]
    seen = []
    outcomes = jobs.run(listed, tmp_path, at_once=2, console=quiet(), ended=seen.append)
    assert [outcome.job.title for outcome in outcomes] == [job.title for job in listed]
    assert sorted(outcome.job.title for outcome in seen) == sorted(job.title for job in listed)
    missing, wild, fine = outcomes
    assert "nowhere" in str(missing.error)
    assert (missing.summary, wild.error, fine.error) == (None, None, None)
    assert (wild.summary["status"], fine.summary["status"]) == ("diverged", "finished")
    assert "loss" in wild.notes[-1]
    told = str(jobs.failures(outcomes))
    assert "1 of 3 runs failed" in told
    assert "demo/missing seed 0" in told
    assert "nowhere" in told
    # a finished run needs no process, and in this process everything ends in the same way
    again = jobs.run(listed, tmp_path, at_once=1, console=quiet())
    assert [(a.summary or {}).get("status") for a in again] == [None, "diverged", "finished"]


def start(home):
    command = [sys.executable, HERE / "many.py", home, "2"]
    return subprocess.Popen(
        [str(part) for part in command], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    )


def workers(process):
    """The processes of its runs, by the folder they write to."""
    found = {}
    for entry in psutil.Process(process.pid).children():
        with contextlib.suppress(psutil.NoSuchProcess):  # it has just ended
            for file in entry.open_files():
                if file.path.endswith("metrics.jsonl"):
                    found[Path(file.path).parent.name] = entry
    return found


def until(condition, process=None):
    deadline = time.monotonic() + 240
    while not condition():
        assert time.monotonic() < deadline
        assert process is None or process.poll() is None, process.communicate()[0]
        time.sleep(0.02)


def test_kills_and_signals_change_no_bit(tmp_path):
    whole, parts = tmp_path / "whole", tmp_path / "parts"
    subprocess.run([sys.executable, HERE / "many.py", whole, "1"], check=True, stdout=subprocess.DEVNULL)

    # SIGTERM to the command: both runs save themselves, and 143
    process = start(parts)
    until(lambda: len(list(parts.glob("*/checkpoint.pt"))) == 2, process)
    process.terminate()
    output, _ = process.communicate(timeout=240)
    assert process.returncode == 143, output
    assert "saved: use --resume" in output

    # SIGKILL to the command: its runs end too
    process = start(parts)
    until(lambda: workers(process), process)
    (name, worker), *_ = workers(process).items()
    process.kill()
    process.communicate()
    until(lambda: not worker.is_running() or worker.status() == psutil.STATUS_ZOMBIE)

    # SIGKILL to the process of one run: it goes on from its checkpoint
    process = start(parts)
    until(lambda: name in workers(process) or (parts / name / "summary.json").exists(), process)
    for worker in workers(process).values():
        worker.kill()
    output, _ = process.communicate(timeout=240)
    assert process.returncode == 0, output
    assert bits(parts) == bits(whole)
    assert len(bits(whole)) == 2


def test_a_process_that_is_killed_again_and_again_is_a_failure(tmp_path, monkeypatch):
    monkeypatch.setattr(attempt, "RETRIES", 1)
    file = tmp_path / "mine.py"
    file.write_text("import os, signal\nos.kill(os.getpid(), signal.SIGKILL)\n")
    source = recipes.Source(str(file), "experiment", "0" * 64)
    broken = tmp_path / "broken.py"
    broken.write_text("import sys\nprint('told', file=sys.stderr)\nraise SystemExit(7)\n")
    import hashlib

    listed = []
    for path in (file, broken):
        digest = hashlib.sha256(path.read_bytes()).hexdigest()
        recipe = replace(recipes.get("demo/sgd"), source=replace(source, path=str(path), sha256=digest))
        listed.append(jobs.Job(tmp_path / path.stem, Settings(recipe)))
    killed, left = jobs.run(listed, tmp_path, at_once=2, console=quiet())
    assert "signal 9" in str(killed.error)
    assert "exit code 7" in str(left.error)
    assert "told" in str(left.error)


def test_bad_numbers_and_runs_that_start_runs_are_refused(tmp_path, monkeypatch):
    with pytest.raises(LabError, match="jobs must be at least 1, got 0"):
        jobs.run([], tmp_path, at_once=0)
    monkeypatch.setitem(os.environ, child.RUNNING, "1")
    with pytest.raises(LabError, match="__main__"):
        jobs.run([], tmp_path)


def test_the_usual_number_of_jobs_is_torchs_threads_divided(tmp_path):
    sgd = recipes.get("demo/sgd")

    def usual(threads):
        return running.usual([jobs.Job(tmp_path, Settings(replace(sgd, threads=threads)), device="cpu")])

    torch.set_num_threads(6)
    try:
        assert (usual(1), usual(2), usual(4), usual(None)) == (6, 3, 1, 1)
    finally:
        torch.set_num_threads(1)


def test_sigint_number_survives_the_way_between_processes():
    import pickle

    from entropy_sgd.lab import Interrupted

    again = pickle.loads(pickle.dumps(Interrupted(signal.SIGTERM, "stopped")))
    assert (again.exit_code, str(again)) == (143, "stopped")
