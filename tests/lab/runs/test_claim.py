"""Nothing is lost: what --overwrite replaces, who may write, and what a killed process leaves."""

from __future__ import annotations

import os
import shutil
import signal
import time
from dataclasses import replace
from pathlib import Path

import pytest

from begun import begun
from entropy_sgd.lab import LabError, recipes
from entropy_sgd.lab.cli import main
from entropy_sgd.lab.runs import checkpoint
from entropy_sgd.lab.runs.claim import ASIDE, differences
from entropy_sgd.lab.runs.folder import RunFolder, Settings

DIGITS = Path(__file__).parents[2] / "data" / "lab-0.1.0" / "digits"
TINY = [
    *("--data", f"idx:{DIGITS}", "--batch-size", "16", "--epochs", "1", "--threads", "1"),
    *("--statistics-samples", "50", "--device", "cpu"),
]
OLD = Settings(replace(recipes.get("lenet/adam"), data="digits"))
NEW = replace(OLD, seed=1)


def contents(folder: Path) -> dict[str, bytes]:
    return {str(f.relative_to(folder)): f.read_bytes() for f in folder.rglob("*") if f.is_file()}


@pytest.fixture
def old(tmp_path: Path) -> Path:
    """A run that was killed after its checkpoint."""
    path = tmp_path / "run"
    begun(path, OLD)
    (path / "checkpoint.pt").write_text("dear")
    (path / "tensorboard").mkdir()
    (path / "tensorboard" / "events").write_text("curves")
    return path


@pytest.fixture(scope="module")
def trained(tmp_path_factory) -> Path:
    path = tmp_path_factory.mktemp("trained") / "run"
    assert main(["train", "small-mnistfc/sgd", *TINY, "--out", str(path)]) == 0
    return path


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        (["--data", "mnst"], "no dataset is called 'mnst'"),
        (["--data", "idx:nowhere"], "nowhere is not a folder"),
        (["--network", "foo"], "no network is called 'foo'"),
        (["--network", "char-lstm"], "does not fit"),
        (["--device", "cuda:77"], "device 'cuda:77' cannot be used"),
        (["--optimizer.lr", "nan"], "optimizer.lr must be a finite number"),
        (["--optimizer.weight-decay", "1e308"], "optimizer.weight_decay must be a finite number"),
        (["--optimizer.momentum", "-3"], "momentum"),
        (["--threads", "40000"], "threads must be at most"),
        (["--batch-size", "1", "--batch-norm", "True"], "batch_size must be at least 2"),
        (["--batch-size", "5000"], "batch_size must be at most"),
        (["--resume"], "cannot be used together"),
    ],
)
def test_a_wrong_command_leaves_the_run_it_was_to_replace(trained, capsys, wrong, message):
    before = contents(trained)
    command = ["train", "small-mnistfc/sgd", *TINY, "--out", str(trained), "--overwrite", *wrong]
    assert main(command) == 2
    assert message in capsys.readouterr().err
    assert contents(trained) == before
    plain = [word for word in command if word != "--overwrite"]
    if wrong[0] not in ("--resume", "--batch-size") and wrong != ["--network", "char-lstm"]:
        assert main(plain) == 2  # what is wrong is said before what is there, unless only the data tell
        assert message in capsys.readouterr().err


def test_a_replaced_run_goes_when_the_new_one_has_a_checkpoint(old):
    before = contents(old)
    folder = RunFolder(old, NEW, overwrite=True)
    with folder:
        assert contents(old).keys() - {".lock"} == before.keys()
        folder.begin()
        assert (old / ASIDE / "checkpoint.pt").read_text() == "dear"
        folder.saved()  # nothing is saved yet
        assert (old / ASIDE / "checkpoint.pt").read_text() == "dear"
        (old / "checkpoint.pt").write_text("new")
        folder.saved()
        assert not (old / ASIDE).exists()
    assert set(contents(old)) == {"config.json", "checkpoint.pt"}


def test_a_new_run_that_fails_before_its_first_checkpoint_gives_the_old_one_back(old):
    before = contents(old)
    with pytest.raises(LabError, match="full") as caught, RunFolder(old, NEW, overwrite=True) as folder:  # noqa: PT012  (the claim must end in it)
        folder.begin()
        (old / "metrics.jsonl").write_text("{}\n")
        raise LabError("disk full")
    assert contents(old) == before
    assert "is unchanged" in caught.value.__notes__[0]


def test_a_full_disk_at_the_first_checkpoint_gives_the_old_run_back(trained, tmp_path, capsys, monkeypatch):
    shutil.copytree(trained, tmp_path / "run")
    before = contents(tmp_path / "run")

    def full(*_: object, **__: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("torch.save", full)
    command = ["train", "small-mnistfc/sgd", *TINY, "--seed", "5", "--out"]
    assert main([*command, str(tmp_path / "run"), "--overwrite"]) == 2
    said = capsys.readouterr().err
    assert "No space left on device. There is no checkpoint yet." in said
    assert "The previous run in" in said
    assert contents(tmp_path / "run") == before
    assert main([*command, str(tmp_path / "new")]) == 2
    assert not (tmp_path / "new").exists()


def test_a_process_killed_before_the_first_checkpoint_has_lost_nothing(old):
    before = contents(old)
    begun(old, NEW, overwrite=True)
    assert (old / ASIDE).exists()
    folder = RunFolder(old, OLD, resume=True)
    assert folder.resumed
    assert "was restored" in folder.notes[0]
    assert contents(old) == before


def test_a_process_killed_while_it_set_a_run_aside_has_lost_nothing(old):
    before = contents(old)
    (old / ASIDE).mkdir()
    (old / "checkpoint.pt").replace(old / ASIDE / "checkpoint.pt")
    with pytest.raises(LabError, match="already holds a run"):
        RunFolder(old, NEW)
    assert contents(old) == before


def test_a_process_killed_after_the_first_checkpoint_has_replaced_the_run(old):
    begun(old, NEW, overwrite=True)
    (old / "checkpoint.pt").write_text("new")
    assert RunFolder(old, NEW, resume=True).resumed
    assert set(contents(old)) == {"config.json", "checkpoint.pt"}


def test_a_run_in_progress_is_locked_and_says_by_whom(old):
    with RunFolder(old, OLD, resume=True):
        for options in ({}, {"resume": True}, {"overwrite": True}):
            with pytest.raises(LabError, match=rf"in use by process {os.getpid()} on .* since 20"):
                RunFolder(old, OLD, **options)
    assert RunFolder(old, OLD, resume=True).resumed
    assert not (old / ".lock").exists()


def test_two_who_pass_the_check_at_once_do_not_both_get_in(old):
    first, second = (RunFolder(old, OLD, resume=True) for _ in range(2))
    with first, pytest.raises(LabError, match="in use by"), second:
        pass


def test_one_that_comes_after_a_killed_one_gives_the_old_run_back(old):
    before = contents(old)
    late = RunFolder(old, replace(OLD, seed=3), overwrite=True)
    begun(old, NEW, overwrite=True)  # killed before its first checkpoint, after `late` has looked
    with pytest.raises(RuntimeError), late:
        raise RuntimeError
    assert contents(old) == before


def test_the_lock_ends_with_its_process_and_with_no_other(old):
    reading, writing = os.pipe()
    pid = os.fork()
    if pid == 0:
        try:
            RunFolder(old, OLD, resume=True).__enter__()
            if os.fork() == 0:  # a child that lives on, as a worker of a data loader may
                time.sleep(20)
            else:
                os.write(writing, b"x")
                time.sleep(600)
        finally:
            os._exit(1)
    os.close(writing)
    try:
        assert os.read(reading, 1) == b"x"
        with pytest.raises(LabError, match=f"in use by process {pid} "):
            RunFolder(old, OLD, resume=True)
    finally:
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)
    with RunFolder(old, OLD, resume=True):
        pass


def test_a_file_system_without_locks_is_used_unlocked(old, monkeypatch):
    def unsupported(*_: object) -> None:
        raise OSError(95, "Operation not supported")

    monkeypatch.setattr("fcntl.flock", unsupported)
    with RunFolder(old, OLD, resume=True) as folder:
        assert folder.resumed


def test_a_checkpoint_of_another_run_is_refused(trained, tmp_path, capsys):
    others = {"seed": ["--seed", "7"], "network": ["--batch-norm", "True"]}
    for what, changes in others.items():
        other, mine = tmp_path / f"{what}-other", tmp_path / what
        for out, options in ((other, changes), (mine, [])):
            command = ["train", "small-mnistfc/sgd", *TINY, *options, "--out", str(out)]
            assert main(command) == 0
        shutil.copyfile(other / "checkpoint.pt", mine / "checkpoint.pt")
        (mine / "summary.json").unlink()
        capsys.readouterr()
        assert main([*command, "--resume"]) == 2
        said = capsys.readouterr().err
        assert "is from another run" in said
        assert ("seed: 7 there, 0 now" if what == "seed" else "batch_norm: True there, None now") in said


def test_a_checkpoint_without_settings_and_of_another_network_is_refused(trained, tmp_path, capsys):
    run = tmp_path / "run"
    shutil.copytree(trained, run)
    (run / "summary.json").unlink()
    state, _ = checkpoint.load(run)
    del state["settings"]  # as version 0.1.0 wrote them
    state["model"] = {"weight": next(iter(state["model"].values()))}
    checkpoint.save(run, state)
    (run / "checkpoint.previous.pt").unlink()
    assert main(["train", "small-mnistfc/sgd", *TINY, "--out", str(run), "--resume"]) == 2
    assert "does not fit this run" in capsys.readouterr().err


@pytest.mark.parametrize("wrong", ["data=mnst", "optimizer.lr=nan", "network=foo", "batch-size=100000"])
def test_a_typo_in_a_comparison_leaves_the_folder_to_the_corrected_command(tmp_path, capsys, wrong):
    out = tmp_path / "both"
    fields = [f"{a.lstrip('-')}={b}" for a, b in zip(TINY[:-2:2], TINY[1:-2:2], strict=True)]
    command = ["compare", "small-mnistfc", "--methods", "sgd", "--seeds", "0", "--out", str(out), "--set"]
    assert main([*command, *fields, wrong]) == 2
    assert not out.exists()
    if wrong == "data=mnst":
        assert main([*command, *fields]) == 0
        before = contents(out)
        capsys.readouterr()
        assert main([*command, *fields, wrong, "--overwrite"]) == 2
        assert "no dataset is called 'mnst'" in capsys.readouterr().err
        assert contents(out) == before
        assert main([*command, *fields, "seed=1", "--overwrite"]) == 2  # no field of a recipe
        assert contents(out) == before


def test_only_more_seeds_are_no_difference():
    def lines(before, now):
        return differences({"seeds": before}, {"seeds": now})

    assert lines([0, 1], [0, 1, 2]) == lines([1], [0, 1]) == []
    for before, now in (([0, 1], [0]), ([0, 1], [0, 2]), (5, [0]), ([[0]], [0]), (None, [0])):
        assert lines(before, now) == [f"seeds: {before} there, {now} now"]
