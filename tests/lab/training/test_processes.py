"""Training in several processes against one process with all their batches, and the bits of a stopped run."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from begun import begun
from entropy_sgd.lab import LabError
from entropy_sgd.lab.data.batches import SequenceBatches, ShuffledBatches
from entropy_sgd.lab.data.types import Split
from entropy_sgd.lab.runs.folder import RunFolder, Settings
from entropy_sgd.lab.training.processes import Processes
from frameworks.launch import torchrun
from lab.training.several import images, plain

RANKS = 3  # the order of a sum over two would not matter


def load(path):
    return json.loads(path.read_text())


def records(folder):
    lines = (json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines())
    return [
        {key: value for key, value in line.items() if key != "seconds" and value is not None}
        for line in lines
    ]


@pytest.fixture(scope="module")
def several(tmp_path_factory):
    """The folder and the output of all runs of several.py."""
    folder = tmp_path_factory.mktemp("group") / "several"
    return folder, torchrun(Path(__file__).with_name("several.py"), folder, processes=RANKS)


def test_the_group_is_one_process_with_a_larger_batch(several, run, tmp_path):
    folder, _ = several
    summary = run(plain(RANKS * 8))
    together = load(folder / "plain" / "summary.json")
    for key in ("gradient_evaluations", "epochs", "parameters"):
        assert together[key] == summary[key]
    assert summary["gradient_evaluations"] == 17  # 4 epochs of 100 / (3 x 8)
    first, second = (
        torch.load(path / "weights.pt", weights_only=True) for path in (folder / "plain", tmp_path / "run")
    )
    assert list(first) == list(second)
    for name in first:
        torch.testing.assert_close(first[name], second[name], rtol=1e-4, atol=1e-5)
    for line, other in zip(records(folder / "plain"), records(tmp_path / "run"), strict=True):
        assert line == pytest.approx(other, rel=1e-3)  # the loss is the mean over the group too


@pytest.mark.parametrize("kind", ["images", "text"])
def test_a_stopped_run_ends_in_the_same_bits(several, kind):
    """Stopped by a signal that one rank alone received, first rank 1, then rank 0, amid cycles."""
    folder, output = several
    for step in (7, 13):
        for rank in range(RANKS):
            assert f"{kind}: rank {rank} stopped at step {step} of 17, and saved" in output
    assert output.count("exit code 143") == 2 * 2 * RANKS
    whole, parts = folder / f"{kind}-whole", folder / f"{kind}-parts"
    assert load(parts / "summary.json")["weights_sha256"] == load(whole / "summary.json")["weights_sha256"]
    assert records(parts) == records(whole)
    states = [
        [torch.load(f"{path}-{rank}.pt", weights_only=True) for rank in range(RANKS)]
        for path in (whole, parts)
    ]
    assert not torch.equal(states[0][0], states[0][1])  # each has a dropout of its own,
    assert all(map(torch.equal, *states))  # which was resumed as well


def test_what_one_rank_meets_is_met_by_all(several):
    folder, output = several
    for rank in range(RANKS):
        assert f"diverging: rank {rank} demo/entropy-sgd seed 0: a loss of nan at step 5 of 17" in output
        assert f"rank {rank} knows what rank 1 has to say" in output
    assert load(folder / "diverging" / "summary.json")["status"] == "diverged"


def test_the_command_counts_the_epochs_of_the_group(tmp_path):
    """Under torchrun the command makes the group itself, and one process prints and writes."""
    options = "--train-limit 96 --batch-size 8 --epochs 3 --evaluate-every 1 --log-every 1 --drops.at 1"
    output = torchrun(
        "-m", "entropy_sgd", "train", "demo/sgd", "--out", tmp_path / "run", "--overwrite", *options.split()
    )
    summary, config = load(tmp_path / "run" / "summary.json"), load(tmp_path / "run" / "config.json")
    assert (summary["gradient_evaluations"], summary["epochs"]) == (18, 3)  # of 96 / (2 x 8) steps
    assert config["settings"]["processes"] == 2
    lines = records(tmp_path / "run")
    assert [(line["step"], line["epoch"]) for line in lines] == [(6, 1), (12, 2), (18, 3)]
    assert lines[1]["lr"] == lines[2]["lr"] < lines[0]["lr"]
    assert output.count("epoch 3.00/3") == 1


def test_another_number_of_processes_is_refused(several):
    folder, _ = several
    with pytest.raises(LabError, match="processes: 3 there, 1 now"):
        RunFolder(folder / "images-whole", Settings(images()), resume=True)
    with pytest.raises(LabError, match="processes: 3 there, 2 now"):
        RunFolder(folder / "images-whole", Settings(images(), processes=2), resume=True)


def test_a_run_from_before_processes_were_counted_goes_on(tmp_path):
    begun(tmp_path, Settings(images()))
    config = load(tmp_path / "config.json")
    del config["settings"]["processes"]
    (tmp_path / "config.json").write_text(json.dumps(config))
    assert RunFolder(tmp_path, Settings(images()), resume=True).resumed
    with pytest.raises(LabError, match="processes: 1 there, 2 now"):
        RunFolder(tmp_path, Settings(images(), processes=2), resume=True)


def test_ranks_share_out_the_batches_of_one_process():
    split = Split(torch.arange(50.0).view(50, 1, 1, 1), torch.arange(50))
    whole, parts = ShuffledBatches(split, 12, 5), [ShuffledBatches(split, 4, 5, rank, 3) for rank in range(3)]
    for _ in range(10):  # more than two epochs of four
        assert torch.equal(next(whole)[1], torch.cat([next(part)[1] for part in parts]))
    tokens = torch.arange(200)
    whole, parts = (
        SequenceBatches(tokens, 6, 7),
        [SequenceBatches(tokens, 2, 7, rank, 3) for rank in range(3)],
    )
    for _ in range(10):
        inputs, targets, first = next(whole)
        own = [next(part) for part in parts]
        assert torch.equal(inputs, torch.cat([part[0] for part in own]))
        assert torch.equal(targets, torch.cat([part[1] for part in own]))
        assert {part[2] for part in own} == {first}
    with pytest.raises(LabError, match="at most the 50 training samples, got 20 in each of 3 processes"):
        ShuffledBatches(split, 20, 5, 0, 3)
    with pytest.raises(LabError, match="in each of 3 processes needs a text of at least 211 tokens, got 200"):
        SequenceBatches(tokens, 10, 7, 0, 3)


def test_only_train_runs_in_several_processes(monkeypatch, capsys):
    from entropy_sgd.lab.cli import main

    for name, value in (("RANK", "0"), ("WORLD_SIZE", "2"), ("LOCAL_RANK", "0")):
        monkeypatch.setenv(name, value)
    assert main(["compare", "lenet"]) == 2
    assert "only train runs under torchrun" in capsys.readouterr().err


def test_what_torchrun_says_is_checked(monkeypatch):
    assert Processes.from_environment().size == 1
    for name, value in (("RANK", "5"), ("WORLD_SIZE", "8"), ("LOCAL_RANK", "1")):
        monkeypatch.setenv(name, value)
    group = Processes.from_environment()
    assert (group.rank, group.size, group.lead) == (5, 8, False)
    with pytest.raises(LabError, match="auto, cpu or cuda, got 'cuda:0'"):
        group.device("cuda:0")
    monkeypatch.setenv("RANK", "first")
    with pytest.raises(LabError, match="RANK='first'"):
        Processes.from_environment()


@pytest.mark.parametrize("prepare", ["", "sys.stderr = None", "sys.stderr.close()"])
def test_a_process_leaves_with_its_code_and_all_it_has_written(prepare):
    code = (
        f"import sys; from entropy_sgd.lab.training.processes import leave; {prepare}\nprint('all'); leave(3)"
    )
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert (found.returncode, found.stdout) == (3, "all\n")
