"""Runs that version 0.1.0 left on disk, made by tests/data/lab-0.1.0/make.py: read, reported, continued."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest
import torch

from entropy_sgd.lab.cli import main

SPECIMENS = Path(__file__).parents[1] / "data" / "lab-0.1.0"
TINY = [
    *("--network", "small-mnistfc", "--data", "idx:digits", "--batch-size", "16", "--epochs", "4"),
    *("--dropout", "0.2", "--batch-norm", "True", "--threads", "1", "--statistics-samples", "100"),
    *("--drops.factor", "0.1", "--drops.at", "3"),
]


@pytest.fixture
def old(tmp_path, monkeypatch) -> Path:
    """A copy of the runs, which they themselves are read from."""
    shutil.copytree(SPECIMENS, tmp_path / "old")
    monkeypatch.chdir(tmp_path / "old")
    return tmp_path / "old"


def summary(folder: Path) -> dict:
    return json.loads((folder / "summary.json").read_text())


def same_machine() -> bool:
    """Whether bits can be expected to be those of the machine the specimens were made on."""
    made = json.loads((SPECIMENS / "machine.json").read_text())
    return made == {"torch": torch.__version__, "cpu": torch.backends.cpu.get_cpu_capability()}


def assert_same_weights(now: Path, then: Path) -> None:
    if same_machine():
        assert summary(now)["weights_sha256"] == summary(then)["weights_sha256"]
        assert summary(now)["validation"] == summary(then)["validation"]
    ours, theirs = (torch.load(folder / "weights.pt", weights_only=True) for folder in (now, then))
    torch.testing.assert_close(ours, theirs, rtol=1e-3, atol=1e-4)


@pytest.mark.parametrize("method", ["sgd", "entropy-sgd"])
def test_a_run_stopped_in_mid_cycle_goes_on_to_the_bits_of_one_never_stopped(old, capsys, method):
    run = [f"mnistfc/{method}", *TINY, "--seed", "3", "--resume", "--out", str(old / f"{method}-stopped")]
    assert main(["train", *run]) == 0
    assert "resumed at step 33 of 68" in capsys.readouterr().out
    assert_same_weights(old / f"{method}-stopped", SPECIMENS / method)


@pytest.mark.parametrize("method", ["sgd", "entropy-sgd"])
def test_the_same_command_gives_the_same_bits_as_then(old, method):
    run = [f"mnistfc/{method}", *TINY, "--seed", "3", "--out", str(old / "new")]
    assert main(["train", *run]) == 0
    assert_same_weights(old / "new", SPECIMENS / method)


def test_a_finished_run_is_finished_and_another_configuration_is_refused(old, capsys):
    run = ["mnistfc/sgd", *TINY, "--seed", "3", "--resume", "--out", str(old / "sgd")]
    assert main(["train", *run]) == 0
    assert "finished already" in capsys.readouterr().out
    assert main(["train", *run, "--optimizer.lr", "0.2"]) == 2
    assert "recipe.optimizer.lr: 0.1 there, 0.2 now" in capsys.readouterr().err


def test_a_comparison_is_continued_where_a_run_is_missing(old, capsys):
    shutil.rmtree(old / "comparison" / "entropy-sgd-seed1")
    before = json.loads((SPECIMENS / "comparison" / "comparison.json").read_text())["rows"]
    changes = [option.lstrip("-") for option in TINY]
    fields = [f"{name}={value}" for name, value in zip(changes[::2], changes[1::2], strict=True)]
    command = ["compare", "mnistfc", "--optimizers", "sgd", "adam", "entropy-sgd", "--seeds", "0", "1"]
    command += ["--set", *fields, "evaluate-every=2", "--resume", "--out", str(old / "comparison")]
    assert main([*command, "--budget", "4"]) == 0
    after = json.loads((old / "comparison" / "comparison.json").read_text())["rows"]
    for row, then in zip(after, before, strict=True):
        assert row["recipe"] == then["recipe"]
        if same_machine():
            assert (row["result"], row["difference"]) == (then["result"], then["difference"])
    assert_same_weights(
        old / "comparison" / "entropy-sgd-seed1", SPECIMENS / "comparison" / "entropy-sgd-seed1"
    )


def test_reports_and_measurements_read_them(old, capsys):
    assert main(["report", "comparison", "sgd", "entropy-sgd-stopped", "--out", "page.html"]) == 0
    page = (old / "page.html").read_text()
    assert "not finished, so not in the table: entropy-sgd-stopped" in page
    assert "mnistfc/adam" in page
    few = ["--samples", "50", "--probes", "2", "--steps", "5", "--out", "measured.json"]
    assert main(["spectrum", "entropy-sgd", "--method", "lanczos", *few]) == 0
    measured = json.loads((old / "measured.json").read_text())
    assert measured["weights_sha256"] == summary(SPECIMENS / "entropy-sgd")["weights_sha256"]
    assert measured["run"]["settings"]["recipe"]["name"] == "mnistfc/entropy-sgd"
