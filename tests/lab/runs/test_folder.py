from __future__ import annotations

import json
import os
from dataclasses import replace

import pytest

from begun import begun
from entropy_sgd.lab import LabError, recipes
from entropy_sgd.lab.runs.folder import MetricsLog, RunFolder, Settings
from entropy_sgd.lab.runs.records import write_whole

RECIPE = replace(recipes.get("demo/adam"), threads=None, channels_last=False)


def contents(path):
    return {entry.name: entry.read_bytes() for entry in path.iterdir() if entry.is_file()}


def test_the_configuration_is_complete(tmp_path):
    begun(tmp_path / "run", Settings(RECIPE, 3))
    config = json.loads((tmp_path / "run" / "config.json").read_text())
    assert config["settings"]["seed"] == 3
    assert config["settings"]["recipe"]["optimizer"] == {
        "lr": RECIPE.optimizer.lr,
        "betas": [0.9, 0.999],
        "weight_decay": 0.0,
    }
    assert {"torch", "python", "commit", "threads", "entropy-sgd"} <= set(config["environment"])


def test_a_folder_that_holds_another_run_is_refused(tmp_path):
    begun(tmp_path, Settings(RECIPE))
    before = contents(tmp_path)
    with pytest.raises(LabError, match=r"--resume.*--overwrite"):
        RunFolder(tmp_path, Settings(RECIPE))
    changed = Settings(replace(RECIPE, batch_size=7, optimizer=replace(RECIPE.optimizer, lr=0.5)), 1)
    with pytest.raises(LabError) as caught:
        RunFolder(tmp_path, changed, resume=True)
    for difference in ("recipe.batch_size: 128 there, 7 now", "recipe.optimizer.lr", "seed: 0 there, 1 now"):
        assert difference in str(caught.value)
    assert "dropout" not in str(caught.value)
    assert contents(tmp_path) == before
    assert RunFolder(tmp_path, Settings(RECIPE), resume=True).resumed
    assert not RunFolder(tmp_path, changed, overwrite=True).resumed
    assert contents(tmp_path) == before
    begun(tmp_path, changed, overwrite=True)
    assert json.loads((tmp_path / "config.json").read_text())["settings"]["seed"] == 1


def test_files_of_others_are_never_touched(tmp_path):
    (tmp_path / "thesis.tex").write_text("years of work")
    for options in ({}, {"resume": True}, {"overwrite": True}):
        with pytest.raises(LabError, match="other files"):
            RunFolder(tmp_path, Settings(RECIPE), **options)
    assert contents(tmp_path) == {"thesis.tex": b"years of work"}
    model = tmp_path / "model"  # of another program
    model.mkdir()
    (model / "config.json").write_text('{"hidden_size": 768}')
    (model / "weights.pt").write_text("precious")
    with pytest.raises(LabError, match="other files"):
        RunFolder(model, Settings(RECIPE), overwrite=True)
    assert (model / "weights.pt").read_text() == "precious"
    run = tmp_path / "run"
    begun(run, Settings(RECIPE))
    (run / "notes.txt").write_text("mine")
    (run / "tensorboard").mkdir()
    begun(run, Settings(RECIPE), overwrite=True)
    assert (run / "notes.txt").read_text() == "mine"
    assert not (run / "tensorboard").exists()


def test_a_run_from_before_the_settings_of_speed_goes_on(tmp_path):
    begun(tmp_path, Settings(RECIPE))
    config = json.loads((tmp_path / "config.json").read_text())
    for field in ("threads", "channels_last", "compile"):
        del config["settings"]["recipe"][field]
    (tmp_path / "config.json").write_text(json.dumps(config))
    assert RunFolder(tmp_path, Settings(RECIPE), resume=True).notes == []
    with pytest.raises(LabError, match=r"recipe\.threads: None there, 3 now"):
        RunFolder(tmp_path, Settings(replace(RECIPE, threads=3)), resume=True)
    with pytest.raises(LabError) as caught:
        RunFolder(tmp_path, Settings(replace(RECIPE, compile=True)), resume=True)
    assert str(caught.value).endswith("another configuration:\n  recipe.compile: False there, True now")
    begun(tmp_path / "new", Settings(replace(RECIPE, threads=2)))
    with pytest.raises(LabError, match=r"recipe\.threads: 2 there, 1 now"):
        RunFolder(tmp_path / "new", Settings(replace(RECIPE, threads=1)), resume=True)


def test_resume_starts_a_run_where_there_is_none(tmp_path):
    assert not RunFolder(tmp_path / "new", Settings(RECIPE), resume=True).resumed


def test_a_place_that_cannot_hold_a_folder_is_named(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(LabError, match=r"cannot use .*file"):
        RunFolder(tmp_path / "file", Settings(RECIPE))
    with (
        pytest.raises(LabError, match=r"cannot use .*file"),
        RunFolder(tmp_path / "file/in", Settings(RECIPE)),
    ):
        pass


def test_metrics_are_cut_back_to_the_checkpoint(tmp_path):
    metrics = MetricsLog(tmp_path, 0)
    metrics.write({"step": 1})
    size = metrics.sync()
    metrics.write({"step": 2})
    metrics.close()
    metrics = MetricsLog(tmp_path, size)
    metrics.write({"step": 3})
    metrics.close()
    assert (tmp_path / "metrics.jsonl").read_text() == '{"step": 1}\n{"step": 3}\n'
    with pytest.raises(LabError, match="shorter"):
        MetricsLog(tmp_path, 1000)


def test_writing_replaces_files_and_nothing_else(tmp_path):
    """A device stays one, also behind a link, and a pipe without a reader does not block."""
    file, device, pipe = tmp_path / "file", tmp_path / "device", tmp_path / "pipe"
    write_whole(file, b"old")
    write_whole(file, b"new")
    assert file.read_bytes() == b"new"
    device.symlink_to("/dev/null")
    write_whole(device, b"gone")
    assert device.is_char_device()
    os.mkfifo(pipe)
    with pytest.raises(OSError, match="not a regular file"):
        write_whole(pipe, b"never")
    assert pipe.is_fifo()
