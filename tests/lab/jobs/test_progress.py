"""Progress of many runs, read from their folders, against sums made by hand."""

from __future__ import annotations

import io
import json
from dataclasses import replace

import pytest
from rich.console import Console

from entropy_sgd.lab import jobs, recipes
from entropy_sgd.lab.jobs import lease, progress
from entropy_sgd.lab.jobs.progress import Board, Overall, latest, roughly
from entropy_sgd.lab.runs.folder import Settings


def listed(home, *names):
    found = []
    for index, name in enumerate(names):
        recipe = replace(recipes.get(f"demo/{name}"), epochs=10)
        found.append(jobs.Job(home / f"{index}", Settings(recipe, index)))
    return found


def write(folder, epoch, seconds, tail=""):
    folder.mkdir()
    (folder / "metrics.jsonl").write_text(json.dumps({"epoch": epoch, "seconds": seconds}) + "\n" + tail)


def finished(job, seconds):
    summary = {"status": "finished", "metric": "error", "epochs": 10.0, "seconds": seconds}
    return jobs.Outcome(job, {**summary, "validation": {"error": 2.0}, "test": None})


def test_time_left_is_that_of_the_same_recipe_shared_among_the_jobs(tmp_path):
    chosen = listed(tmp_path, "sgd", "adam", "sgd", "adam", "sgd")
    overall = Overall(chosen, 2)
    assert overall.seconds_left() is None
    overall.end(0, finished(chosen[0], 100.0))  # sgd: 10 s an epoch
    assert overall.seconds_left() == pytest.approx(4 * 100 / 2)  # nothing is known of adam
    write(chosen[1].folder, 4.0, 80.0, '{"epoch": 4.1, "sec')  # adam: 20 s an epoch, 6 left
    overall.look([1])
    assert overall.seconds_left() == pytest.approx((120 + 100 + 200 + 100) / 2)
    for index in (2, 3, 4):
        overall.end(index, finished(chosen[index], 100.0))
    assert overall.seconds_left() == pytest.approx(6 * 15)  # one left, which cannot be shared
    assert overall.line() == "4 of 5 runs ended, 1 running, about 90 s left in all".replace("90 s", "2 min")


def test_time_left_starts_from_the_speeds_of_earlier_runs(tmp_path):
    chosen = listed(tmp_path, "sgd", "adam", "sam")
    overall = Overall(chosen, 1, {"demo/sgd": 4.0, "demo/adam": 8.0, "lenet/sgd": 1000.0})
    assert overall.seconds_left() == pytest.approx(10 * (4.0 + 8.0 + 6.0))  # sam as the others on demo
    overall.end(0, finished(chosen[0], 20.0))  # sgd is faster here: 2 s an epoch
    assert overall.seconds_left() == pytest.approx(10 * (8.0 + 5.0))
    assert Overall(chosen, 1, {"lenet/sgd": 7.0}).seconds_left() == pytest.approx(210.0)
    assert progress.kind(recipes.get("demo/sgd")) == "demo/sgd"
    quarter = progress.kind(replace(recipes.get("allcnn/sgd"), width=0.25))
    assert quarter.startswith("allcnn 0.25/")  # an epoch of it says nothing of the whole network's


def test_time_left_counts_the_start_of_processes(tmp_path, monkeypatch):
    clock = [1000.0]
    monkeypatch.setattr(progress.time, "monotonic", lambda: clock[0])
    chosen = listed(tmp_path, "sgd", "sgd", "sgd", "sgd")
    write(chosen[3].folder, 5.0, 20.0)  # of an earlier command
    overall = Overall(chosen, 2)
    overall.start(0)
    overall.start(1)
    clock[0] += 12  # 8 s until it trains, then 1 epoch in 4 s
    write(chosen[0].folder, 1.0, 4.0)
    overall.look([0, 1])
    assert overall.seconds_left() == pytest.approx((9 * 4 + (8 + 40) + (8 + 40) + (8 + 40)) / 2)
    clock[0] += 40  # 36 s for 9 epochs, 4 s to conclude
    overall.end(0, finished(chosen[0], 40.0))
    overall.start(3)
    overall.look([1, 3])
    assert overall.seconds_left() == pytest.approx(
        (52 + 52 + 12 + 20) / 2
    )  # the last one has 5 epochs behind it
    clock[0] += 18
    (chosen[3].folder / "metrics.jsonl").write_text('{"epoch": 6.0, "seconds": 24.0}\n')  # 14 s around 4
    overall.look([1, 3])
    assert overall.seconds_left() == pytest.approx((2 * (13 + 40) + 16) / 2)


def test_half_lines_and_missing_files_are_passed_over(tmp_path):
    assert latest(tmp_path / "none") is None
    write(tmp_path / "run", 1.5, 3.0, '{"epoch": 9')
    assert latest(tmp_path / "run") == (1.5, 3.0)
    (tmp_path / "run" / "metrics.jsonl").write_text('{"epoch": 9')
    assert latest(tmp_path / "run") is None
    assert [roughly(s) for s in (3, 44, 700, 9000)] == ["5 s", "45 s", "12 min", "2.5 h"]


def test_lines_on_a_terminal_fit_80_columns(tmp_path):
    chosen = listed(tmp_path, "sgd", "adam", "entropy-sgd")
    stream = io.StringIO()
    console = Console(file=stream, force_terminal=True, width=80, _environ={})
    write(chosen[1].folder, 4.0, 80.0)
    with Board(console, Overall(chosen, 2)) as board:
        board.ended(0, finished(chosen[0], 100.0))
        board.update([1, 2])
        shown = board._lines()
    assert [len(line.plain) <= 80 for line in shown] == [True] * 3
    assert "demo/adam seed 1  epoch 4.00/10" in shown[1].plain
    assert "run 1 of 3" in stream.getvalue()


def test_a_run_is_wanted_while_the_number_changes(tmp_path, monkeypatch):
    clock = [1000.0]
    monkeypatch.setattr(lease.time, "monotonic", lambda: clock[0])
    command = lease.Lease(tmp_path)
    watch = lease.Watch(command.path, command.token)
    assert watch.wanted()

    def wanted(seconds):
        """After a look every second."""
        for _ in range(int(seconds)):
            clock[0] += 1
            watch.wanted()
        return watch.wanted()

    assert wanted(lease.PATIENCE - 1)
    command.renew()
    assert wanted(2)  # a new number
    clock[0] += 10 * lease.PATIENCE
    assert watch.wanted()  # both were stopped for a while
    path, watch.path = watch.path, tmp_path  # a folder cannot be read: an error of the system
    assert wanted(3)
    watch.path = path
    assert not wanted(lease.PATIENCE + 1)  # the command is gone
    other = lease.Lease(tmp_path)
    command.end()  # leaves the other's alone
    assert not lease.Watch(command.path, command.token).wanted()
    assert lease.Watch(other.path, other.token).wanted()
    other.end()
    assert not lease.Watch(other.path, other.token).wanted()
