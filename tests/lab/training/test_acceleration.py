"""Threads, layout and compilation: the same training up to rounding, and nothing left behind."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest
import torch

from entropy_sgd.lab import Interrupted, LabError, models, recipes, tasks
from entropy_sgd.lab.cli import main
from entropy_sgd.lab.comparison import comparison
from entropy_sgd.lab.training import acceleration
from entropy_sgd.optim import kernel
from lab.training.test_trainer import interrupt_after, records


def has_compiler() -> bool:
    try:
        acceleration.require_compiler(replace(recipes.get("demo/sgd"), compile=True), torch.device("cpu"))
    except LabError:
        return False
    return True


@pytest.fixture
def tiny_mnistfc(tiny_images):
    """64 hidden units without dropout, which a compiled network draws differently; cycles of 5 steps."""
    inner = replace(tiny_images.optimizer, L=5, inner_lr=0.05)
    return replace(
        tiny_images, network="small-mnistfc", dropout=0.0, epochs=3, evaluate_every=1, optimizer=inner
    )


@pytest.fixture
def no_compiler(monkeypatch):
    from torch._inductor import config

    monkeypatch.setattr(config.cpp, "cxx", ("no-such-compiler",))


def assert_same_training(tmp_path, first, second):
    """Weights, losses and evaluations agree up to rounding, and the names of the weights exactly."""
    weights, others = (
        torch.load(tmp_path / name / "weights.pt", weights_only=True) for name in (first, second)
    )
    assert list(weights) == list(others)
    for name, value in weights.items():
        torch.testing.assert_close(others[name], value, rtol=1e-3, atol=1e-4)
        assert others[name].is_contiguous()
    for one, other in zip(records(tmp_path / first), records(tmp_path / second), strict=True):
        assert list(other) == list(one)
        for key in ("step", "loss", "validation_loss", "angle"):
            if one.get(key) is not None:
                assert other[key] == pytest.approx(one[key], rel=1e-3, abs=1e-4)


def test_threads_are_those_of_the_recipe_and_only_for_the_run(run, tiny_images, tmp_path, monkeypatch):
    seen = []
    original = tasks.Classification.loss
    monkeypatch.setattr(
        tasks.Classification,
        "loss",
        lambda task, batch: seen.append(torch.get_num_threads()) or original(task, batch),
    )
    before = torch.get_num_threads()
    run(replace(tiny_images, epochs=0.5, threads=before + 1))
    assert set(seen) == {before + 1}
    assert torch.get_num_threads() == before
    config = json.loads((tmp_path / "run" / "config.json").read_text())
    assert config["settings"]["recipe"]["threads"] == config["environment"]["threads"] == before + 1
    with pytest.raises(LabError, match="batch_size"):
        run(replace(tiny_images, threads=1, batch_size=1000), "refused")
    assert torch.get_num_threads() == before


def test_channels_last_trains_the_same_weights_by_the_same_kernel(run, tiny_images, tmp_path, monkeypatch):
    # no batch normalisation, which magnifies rounding; 24 steps, four cycles and a part
    optimizer = replace(tiny_images.optimizer, L=5, inner_lr=0.01)
    recipe = replace(tiny_images, network="small-lenet", dropout=0.0, optimizer=optimizer)
    recipe = replace(recipe, epochs=4, evaluate_every=2)
    run(recipe, "plain")
    layouts, served = [], []
    original, serves = models.LeNet.forward, kernel.serves

    def forward(network, inputs):
        layouts.append(inputs.stride())
        return original(network, inputs)

    def noted(*tensors):
        served.append(serves(*tensors))
        return served[-1]

    monkeypatch.setattr(models.LeNet, "forward", forward)
    monkeypatch.setattr(kernel, "serves", noted)
    run(replace(recipe, channels_last=True), "last")
    assert_same_training(tmp_path, "plain", "last")
    # the first is the plain example that shows that network and data fit
    assert set(layouts[1:]) == {(784, 1, 28, 1)}  # with one channel, the strides alone tell
    assert set(served) == {kernel.library() is not None}
    model = models.build("small-lenet")
    model.load_state_dict(torch.load(tmp_path / "last" / "weights.pt", weights_only=True))


def test_channels_last_changes_nothing_where_nothing_is_convolved(run, tiny_images, tiny_text):
    for recipe in (replace(tiny_images, network="mnistfc"), tiny_text):
        recipe = replace(recipe, epochs=0.5)
        plain = run(recipe, f"{recipe.network}-plain")
        last = run(replace(recipe, channels_last=True), f"{recipe.network}-last")
        assert last["weights_sha256"] == plain["weights_sha256"]


@pytest.mark.skipif(not has_compiler(), reason="torch.compile needs a C++ compiler")
@pytest.mark.filterwarnings(
    "ignore:.*torch.jit.script_method:DeprecationWarning"
)  # by torch on importing itself
def test_a_compiled_network_trains_the_same_weights(run, tiny_mnistfc, tmp_path, monkeypatch):
    """Compiled once for all batches, heeding the optimizer's swaps, and resumed to the same bits."""
    from torch._dynamo.utils import counters

    run(tiny_mnistfc, "eager")
    recipe = replace(tiny_mnistfc, compile=True)
    counters.clear()
    run(recipe, "compiled")
    assert counters["stats"]["unique_graphs"] == 1
    assert_same_training(tmp_path, "eager", "compiled")
    recipe = replace(recipe, dropout=0.2)  # whose draws go on from where they were, too
    whole = run(recipe, "whole")
    with monkeypatch.context() as patch:
        interrupt_after(patch, tasks.Classification, 8)  # the first one only tries the compiler out
        with pytest.raises(Interrupted, match="step 7"):
            run(recipe, "parts")
    assert run(recipe, "parts", resume=True)["weights_sha256"] == whole["weights_sha256"]


def test_without_a_compiler_nothing_is_begun(no_compiler, capsys, tmp_path):
    command = [
        "train",
        "demo/sgd",
        "--out",
        str(tmp_path / "run"),
        "--train-limit",
        "32",
        "--batch-size",
        "8",
    ]
    assert main([*command, "--epochs", "1", "--compile"]) == 2
    assert "compile needs a C++ compiler" in capsys.readouterr().err
    assert main([*command, "--epochs", "1"]) == 0  # the folder is free for the corrected command
    recipe = replace(recipes.get("demo/sgd"), compile=True)
    with pytest.raises(LabError, match="compile needs a C"):
        comparison.run(comparison.Comparison((recipe,), (0,)), tmp_path / "several")
    assert not (tmp_path / "several").exists()


def test_an_error_of_the_compiler_is_told_and_others_are_not_touched():
    from torch._dynamo.exc import InternalTorchDynamoError

    class Broken:
        model = torch.nn.Linear(1, 1)

        def __init__(self, error):
            self.error = error

        def draw(self):
            return None

        def loss(self, batch):
            raise self.error

    with pytest.raises(LabError, match=r"torch\.compile fails on this network: no headers"):
        acceleration.try_out(Broken(InternalTorchDynamoError("no headers\nand more")))
    with pytest.raises(RuntimeError, match="shapes"):
        acceleration.try_out(Broken(RuntimeError("shapes")))
