"""FSDP2 over two processes against one process without it."""

from __future__ import annotations

import ast
import runpy
from pathlib import Path

import pytest
import torch
import torch.distributed as dist
from torch.distributed.checkpoint.api import CheckpointException
from torch.distributed.checkpoint.state_dict import get_state_dict

from frameworks.launch import EXAMPLES, torchrun
from frameworks.sharded import (
    ENTROPIC,
    KINDS,
    SAVED,
    STEPS,
    finished,
    load,
    network,
    reloaded,
    save,
    train,
    whole,
)

# torch says so when a checkpoint is written or read by a process that is no part of a group, as meant here.
pytestmark = pytest.mark.filterwarnings("ignore:torch.distributed is disabled, unavailable or uninitialized")


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with what one process saves, and what two make of it and save."""
    folder = tmp_path_factory.mktemp("fsdp2")
    saves = [(f"{name}-by-one", make, SAVED) for name, make in KINDS.items()]
    for name, make, steps in (*saves, ("early", KINDS["adam"], 3)):
        model = network()
        optimizer = make(model.parameters())
        train(model, optimizer, range(steps))
        save(model, optimizer, folder / name)
    torchrun(Path(__file__).with_name("sharded.py"), folder)
    return folder


@pytest.fixture(scope="module")
def results(shared: Path) -> dict:
    return torch.load(shared / "results.pt", weights_only=True)


def unsharded(name: str) -> tuple[torch.Tensor, dict[str, float]]:
    model = network()
    optimizer = KINDS[name](model.parameters())
    train(model, optimizer, range(STEPS))
    return whole(model), getattr(optimizer, "diagnostics", dict)()


@pytest.mark.parametrize("name", KINDS)
def test_the_trajectory_is_that_of_one_process(name, results):
    expected, diagnostics = unsharded(name)
    torch.testing.assert_close(results[f"{name}-two"], expected, rtol=1e-4, atol=1e-5)
    assert results[f"{name}-diagnostics"] == pytest.approx(diagnostics, rel=1e-3)


@pytest.mark.parametrize("name", KINDS)
def test_saved_by_one_process_loaded_by_two(name, results):
    torch.testing.assert_close(results[f"{name}-one-then-two"], unsharded(name)[0], rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("name", KINDS)
def test_saved_by_two_processes_loaded_by_one(name, shared):
    model = network()
    optimizer = KINDS[name](model.parameters())
    load(model, optimizer, shared / f"{name}-by-two")
    train(model, optimizer, range(SAVED, STEPS))
    torch.testing.assert_close(whole(model), unsharded(name)[0], rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("name", ENTROPIC)
def test_a_cycle_is_finished_early_as_by_one_process(name, results):
    model = network()
    expected = finished(model, KINDS[name](model.parameters()))
    torch.testing.assert_close(results[f"{name}-finished"], expected, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("name", ENTROPIC)
def test_weights_loaded_in_the_middle_of_a_cycle_begin_one(name, results):
    model = network()
    expected = reloaded(model, KINDS[name](model.parameters()))
    for found in (expected[:2], results[f"{name}-reloaded"][:2]):
        for weights in found:
            assert torch.equal(weights, whole(network()))
    torch.testing.assert_close(results[f"{name}-reloaded"][2], expected[2], rtol=1e-4, atol=1e-5)


def test_saved_in_the_first_cycle_needs_a_partial_load_and_is_exact(results, shared):
    """There is no state of the outer optimizer to save yet; torch's loader wants to be told so."""
    model = network()
    with pytest.raises(CheckpointException, match="Missing key"):
        load(model, KINDS["adam"](model.parameters()), shared / "early")
    torch.testing.assert_close(results["early"], unsharded("adam")[0], rtol=1e-4, atol=1e-5)


def test_replicated_and_sharded_at_once(results):
    expected, diagnostics = unsharded("sgd")
    torch.testing.assert_close(results["hybrid"], expected, rtol=1e-4, atol=1e-5)
    assert results["hybrid-diagnostics"] == pytest.approx(diagnostics, rel=1e-3)


@pytest.mark.parametrize("name", KINDS)
def test_asking_for_the_state_changes_nothing(name):
    """torch.distributed.checkpoint makes an empty step first; so may one process without any group."""
    models = network(), network()
    optimizers = [KINDS[name](model.parameters()) for model in models]
    before = str(optimizers[1].param_groups)
    get_state_dict(models[1], optimizers[1])
    assert str(optimizers[1].param_groups) == before
    assert torch.equal(whole(models[0]), whole(models[1]))
    for model, optimizer in zip(models, optimizers, strict=True):
        train(model, optimizer, range(12))
    assert torch.equal(whole(models[0]), whole(models[1]))


def test_a_learning_rate_of_zero_is_no_such_step():
    """Warm-up begins with a rate of zero: x stays in place, x' walks, and cycles are counted."""
    model = network()
    start = whole(model)
    optimizer = KINDS["sgd"](model.parameters())
    optimizer.param_groups[0].update(lr=0.0, anneal="outer")
    train(model, optimizer, range(1))
    assert not torch.equal(whole(model), start)
    train(model, optimizer, range(1, 5))
    assert torch.equal(whole(model), start)
    assert optimizer.outer_steps == 1


def test_example(tmp_path, capsys):
    """Two processes, then one that goes on, report what one process alone does."""
    output = torchrun(EXAMPLES / "fsdp2.py", "--folder", tmp_path / "two", "--steps", 32)
    assert "32 steps on 2 processes" in output
    train_on = runpy.run_path(str(EXAMPLES / "fsdp2.py"))["train"]
    dist.init_process_group("gloo", init_method=f"file://{tmp_path}/store", rank=0, world_size=1)
    try:
        train_on(44, tmp_path / "two")
        train_on(44, tmp_path / "one")
    finally:
        dist.destroy_process_group()
    lines = capsys.readouterr().out.splitlines()
    reports = [ast.literal_eval(line[line.index("{") :]) for line in lines]
    assert len(reports) == 2
    assert reports[0] == pytest.approx(reports[1], rel=1e-2)
