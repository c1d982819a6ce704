"""`entropy-sgd landscape` on finished runs of tiny networks."""

from __future__ import annotations

import io
import json
from dataclasses import replace

import numpy as np
import pytest
import torch
from rich.console import Console

from entropy_sgd import recalibrate_batchnorm
from entropy_sgd.lab import recipes
from entropy_sgd.lab.cli import main
from entropy_sgd.lab.report.figures import draw as curves
from entropy_sgd.lab.runs import trajectory
from entropy_sgd.lab.runs.folder import RunFolder, Settings
from entropy_sgd.lab.runs.reading import read
from entropy_sgd.lab.slices import draw
from entropy_sgd.lab.slices.how import Slice
from entropy_sgd.lab.spectra.trained import load
from entropy_sgd.lab.training import trainer

TINY = {"train_limit": 60, "batch_size": 20, "epochs": 4, "evaluate_every": 4, "statistics_samples": 60}
QUICK = ["--samples", "30", "--batch", "30"]


@pytest.fixture(scope="module")
def train(tmp_path_factory):
    def start(name, seed=0, keep=0, **changes):
        settings = Settings(replace(recipes.get(name), **(TINY | changes)), seed)
        folder = RunFolder(tmp_path_factory.mktemp("run"), settings)
        trainer.train(settings, folder, keep_weights=keep, console=Console(file=io.StringIO()))
        return folder.path

    return start


@pytest.fixture(scope="module")
def runs(train):
    """`lenet`, which has batch normalisation, by two methods; weights kept along the second's way."""
    return train("demo/sgd"), train("demo/entropy-sgd", keep=6)


def test_a_line_goes_from_one_run_to_the_other(runs, tmp_path, capsys):
    assert main(["landscape", *map(str, runs), "--points", "7", *QUICK, "--out", str(tmp_path)]) == 0
    (path,) = tmp_path.glob("*.json")
    assert path.name == "demo-sgd-seed0-to-demo-entropy-sgd-seed0-line.json"
    found = json.loads(path.read_text())["slice"]
    assert found["positions"] == [-0.25, 0.0, 0.25, 0.5, 0.75, 1.0, 1.25]
    for run, position in zip(runs, (1, 5), strict=True):
        trained = load(read(run), samples=30, batch=30, dtype=torch.float32)
        ((inputs, targets),) = trained.batches
        recalibrate_batchnorm(trained.model, [inputs])  # statistics of these very samples
        with torch.no_grad():
            outputs = trained.model.eval()(inputs)
        assert found["loss"][position] == pytest.approx(float(trained.loss_fn(outputs, targets)), rel=1e-3)
        wrong = float((outputs.argmax(1) != targets).double().mean())
        assert found["error"][position] == pytest.approx(wrong, abs=1e-6)
    assert "a barrier of" in capsys.readouterr().out
    for ending, magic in ((".png", b"\x89PNG"), (".pdf", b"%PDF")):
        assert path.with_suffix(ending).read_bytes().startswith(magic)


def test_a_slice_that_is_there_is_kept(runs, tmp_path, capsys):
    command = ["landscape", str(runs[0]), "--points", "3", *QUICK, "--out", str(tmp_path)]
    assert main(command) == 0
    path = tmp_path / "demo-sgd-seed0-plane.json"
    before = path.stat().st_mtime_ns
    found = json.loads(path.read_text())
    assert np.shape(found["slice"]["loss"]) == (3, 3)
    assert main(command) == 0
    assert path.stat().st_mtime_ns == before
    assert main([*command, "--radius", "0.25"]) == 2
    assert "holds another slice" in capsys.readouterr().err
    assert main([*command, "--radius", "0.25", "--overwrite"]) == 0
    assert json.loads(path.read_text())["slice"]["first"] == [-0.25, 0.0, 0.25]


def test_a_trajectory_ends_at_the_origin_of_its_plane(runs, tmp_path):
    command = ["landscape", str(runs[1]), "--on", "trajectory", "--points", "3", *QUICK]
    assert main([*command, "--out", str(tmp_path)]) == 0
    found = json.loads((tmp_path / "demo-entropy-sgd-seed0-trajectory.json").read_text())["slice"]
    assert len(found["coordinates"]) == 7  # six kept, and the end
    assert found["coordinates"][-1] == [0.0, 0.0]
    assert 0.5 < sum(found["shares"]) <= 1.0
    for side, way in zip(
        (found["first"], found["second"]), zip(*found["coordinates"], strict=True), strict=True
    ):
        assert side[0] < min(way)
        assert max(way) < side[-1]


def test_kept_weights_are_the_judged_ones_and_change_nothing(runs, train):
    kept = trajectory.read(runs[1])
    assert len(kept) == 6
    sizes = [path.stat().st_size for path in (runs[1] / "trajectory").iterdir()]
    assert max(sizes) < 0.6 * (runs[1] / "weights.pt").stat().st_size
    # L = 5 and 3 steps an epoch: after steps 0, 2 and 4 the outer weights are still the initial ones
    steps = sorted(int(path.stem.removeprefix("step-")) for path in (runs[1] / "trajectory").iterdir())
    assert steps == [0, 2, 4, 6, 8, 10]
    name = next(iter(kept[0]))
    assert torch.equal(kept[0][name], kept[2][name])
    assert not torch.equal(kept[2][name], kept[3][name])
    assert torch.equal(kept[3][name], kept[4][name])
    plain = read(train("demo/entropy-sgd")).summary
    assert plain["weights_sha256"] == read(runs[1]).summary["weights_sha256"]


def test_own_experiments_have_landscapes_too(tmp_path, monkeypatch):
    (tmp_path / "mine.py").write_text(
        "import torch\nfrom entropy_sgd.lab import Experiment\n"
        "def experiment():\n"
        "    x = torch.randn(40, 3); y = x.sum(1, keepdim=True)\n"
        "    return Experiment(lambda: torch.nn.Linear(3, 1), (x, y), (x, y), torch.nn.functional.mse_loss,\n"
        "                      batch_size=10, epochs=2.0)\n"
    )
    monkeypatch.chdir(tmp_path)
    for seed in ("0", "1"):
        command = ["train", "mine.py", "--method", "sgd", "--seed", seed, "--out", seed]
        assert main([*command, "--keep-weights", "4"]) == 0
    assert main(["landscape", "0", "1", "--points", "5", "--out", "line"]) == 0
    assert main(["landscape", "0", "1", "--on", "trajectory", "--points", "3", "--out", "way"]) == 0
    (path,) = (tmp_path / "line").glob("*.json")
    found = json.loads(path.read_text())["slice"]
    assert found["error"] is None
    # f is quadratic, so along the line it is a parabola
    assert np.diff(found["loss"], 3) == pytest.approx(0.0, abs=1e-4 * max(found["loss"]))
    assert (tmp_path / "way" / "trajectory.png").exists()


def test_what_does_not_fit_is_refused_first(runs, train, tmp_path, capsys):
    out = tmp_path / "out"
    other = train("demo/sgd", network="small-lenet", dropout=None)
    for arguments, message in (
        ([runs[0], "--on", "line"], "a line goes between two runs, got 1"),
        ([*runs, runs[0], "--on", "line"], "a line goes between two runs, got 3"),
        ([runs[0], other], "the same network, got lenet in"),
        ([runs[0], "--on", "trajectory"], "--keep-weights"),
        ([runs[0], runs[0], "--on", "plane"], "two of the runs would be written to"),
        ([runs[0], "--radius", "-1"], "radius must be"),
        ([runs[0], "--points", "2"], "points must be at least 3, got 2"),
        ([tmp_path / "nothing"], "not the folder of a run"),
        ([], "name at least one folder of a run"),
    ):
        assert main(["landscape", *map(str, arguments), "--out", str(out)]) == 2
        assert message in capsys.readouterr().err
    assert not out.exists()
    assert main(["train", "demo/sgd", "--keep-weights", "1", "--out", str(out)]) == 2
    assert "keep_weights must be 0, or at least 2, got 1" in capsys.readouterr().err


def test_the_barrier_and_the_rings_by_hand():
    record = {"slice": {"positions": [-1.0, 0.0, 0.5, 1.0, 2.0], "loss": [9.0, 1.0, 5.0, 3.0, 9.0]}}
    assert draw.barrier(record) == pytest.approx(3.0)
    record["slice"]["loss"] = [9.0, 1.0, 1.5, 3.0, 9.0]
    assert draw.barrier(record) == 0.0
    side = [-2.0, -1.0, 0.0, 1.0, 2.0]
    loss = [[1.0 + p * p + q * q for q in side] for p in side]
    distance, mean, low, high = draw.rings({"slice": {"first": side, "second": side, "loss": loss}})
    # rings: the middle; 4 at 1 and 4 at sqrt 2; 4 at 2 and 8 at sqrt 5
    assert distance == pytest.approx([0.0, (4 + 4 * 2**0.5) / 8, (8 + 8 * 5**0.5) / 12])
    assert mean == pytest.approx([1.0, 2.5, (4 * 5 + 8 * 6) / 12])
    assert low == pytest.approx([1.0, 2.0, 5.0])
    assert high == pytest.approx([1.0, 3.0, 6.0])


def test_the_default_slice_follows_the_number_of_runs():
    assert [Slice().along(n) for n in (1, 2, 3)] == ["plane", "line", "plane"]
    assert curves([]) == {}
