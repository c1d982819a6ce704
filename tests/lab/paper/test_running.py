"""`paper run`: what is missing is computed, whatever was killed, and what is kept is never made again."""

from __future__ import annotations

import io
import json
import subprocess
import sys
import time
from pathlib import Path

from rich.console import Console

from entropy_sgd.lab.paper.running import run
from entropy_sgd.lab.paper.standing import stand
from lab.paper.tiny import ROWS

TINY = Path(__file__).parent / "tiny.py"


def start(home: Path) -> subprocess.Popen[str]:
    command = [sys.executable, TINY, home / "results", home / "runs", "2"]
    pipe = {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT, "text": True}
    return subprocess.Popen([str(word) for word in command], **pipe)


def until(condition, process) -> None:
    deadline = time.monotonic() + 240
    while not condition():
        assert time.monotonic() < deadline
        assert process.poll() is None, process.communicate()[0]
        time.sleep(0.02)


def outcomes(results: Path) -> dict[str, tuple]:
    """The bits of every run that is kept."""
    found = {path.name: json.loads(path.read_text())["summary"] for path in sorted(results.glob("*.json"))}
    return {name: (one["status"], one.get("weights_sha256")) for name, one in found.items()}


def test_killed_and_continued_it_keeps_the_same_runs_as_in_one_go(tmp_path):
    whole, parts = tmp_path / "whole", tmp_path / "parts"
    run(ROWS, whole / "results", whole / "runs", known=ROWS, at_once=1, console=Console(file=io.StringIO()))
    expected = outcomes(whole / "results")
    assert {name: status for name, (status, _) in expected.items()} == {
        "adam-seed0.json": "finished",
        "sgd-seed0.json": "finished",
        "sgd-seed1.json": "finished",
        "wild-seed0.json": "diverged",
    }

    process = start(parts)
    until(lambda: list(parts.glob("runs/*/checkpoint.pt")), process)
    process.kill()  # in the midst of its first runs
    process.communicate()
    process = start(parts)
    until(lambda: list(parts.glob("results/sgd-*.json")), process)
    process.terminate()  # with some kept
    output, _ = process.communicate(timeout=240)
    assert process.returncode in (143, 0), output
    if process.returncode == 143:
        assert "the others saved: use the same command" in output
    process = start(parts)
    output, _ = process.communicate(timeout=240)
    assert process.returncode == 0, output
    assert outcomes(parts / "results") == expected

    before = {path: path.stat().st_mtime_ns for path in parts.rglob("*.json")}
    console = Console(file=io.StringIO(), width=200)
    run(ROWS, parts / "results", parts / "runs", known=ROWS, console=console)
    assert "nothing is missing" in console.file.getvalue()
    assert {path: path.stat().st_mtime_ns for path in parts.rglob("*.json")} == before


def test_rows_are_computed_in_their_order_and_only_those_named(tmp_path):
    console = Console(file=io.StringIO(), width=200)
    run(ROWS[1:], tmp_path / "results", tmp_path / "runs", known=ROWS, at_once=1, console=console)
    standings = stand(tmp_path / "results", ROWS)
    assert [key for key, standing in standings.items() if standing.runs] == ["adam"]
    (adam,) = standings["adam"].runs
    assert adam.result("validation") is not None
    assert adam.series("error")[0][-1] == 6.0
