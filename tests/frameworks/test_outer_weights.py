"""What the modules of the frameworks share: versions, wrappers, modes."""

from __future__ import annotations

import subprocess
import sys
from importlib import metadata

import pytest
import torch
from torch import nn

from entropy_sgd import EntropySGD
from entropy_sgd.frameworks.outer_weights import outer_weights, unwrapped
from entropy_sgd.frameworks.versions import require
from network import batch, network, weights


def trained(steps: int) -> tuple[nn.Module, EntropySGD]:
    model = network()
    optimizer = EntropySGD(model.parameters(), L=4)
    train(model, optimizer, range(steps))
    return model, optimizer


def train(model: nn.Module, optimizer: torch.optim.Optimizer, steps: range) -> None:
    for i in steps:
        optimizer.zero_grad()
        nn.functional.cross_entropy(model(batch(i)[0]), batch(i)[1]).backward()
        optimizer.step()


class Wrapper:
    def __init__(self, optimizer: object) -> None:
        self.optimizer = optimizer


def test_outer_weights_are_there_for_the_block_and_the_mode_is_kept():
    model, optimizer = trained(6)
    inner = weights(model)
    optimizer.eval()
    outer = weights(model)
    assert not torch.equal(inner, outer)
    with outer_weights(Wrapper(Wrapper(optimizer))):
        assert torch.equal(weights(model), outer)
    assert torch.equal(weights(model), outer)
    optimizer.train()
    with pytest.raises(RuntimeError, match="within"), outer_weights(optimizer, None):
        raise RuntimeError("within")
    assert torch.equal(weights(model), inner)


@pytest.mark.filterwarnings("error")
def test_frameworks_look_at_x_before_the_first_outer_update_without_a_warning():
    model, optimizer = trained(2)
    with outer_weights(optimizer):
        assert torch.equal(weights(model), weights(network()))


def test_other_optimizers_are_no_concern():
    assert unwrapped([torch.optim.SGD(network().parameters(), lr=0.1), None]) == []


@pytest.mark.parametrize("evaluating", [False, True])
def test_weights_put_into_the_model_become_the_start_of_a_cycle(evaluating):
    """As after the whole cycles that were made: only the counters and the outer momentum are older."""
    model, optimizer = trained(6)
    if evaluating:
        optimizer.eval()
    placed = torch.linspace(-1, 1, weights(model).numel())
    nn.utils.vector_to_parameters(placed, model.parameters())
    optimizer.restart()
    optimizer.eval()
    assert torch.equal(weights(model), placed)
    optimizer.train()
    assert torch.equal(weights(model), placed)

    reference_model, reference = trained(4)
    nn.utils.vector_to_parameters(placed, reference_model.parameters())
    for each in ((model, optimizer), (reference_model, reference)):
        train(*each, range(10, 15))
    assert torch.equal(weights(model), weights(reference_model))


def test_a_framework_that_is_missing_or_too_old_is_named(monkeypatch):
    with pytest.raises(ImportError, match=r"no_such_framework 1\.5 or later is needed.*'\.\[frameworks\]'"):
        require("no_such_framework", "1.5")
    monkeypatch.setattr(metadata, "version", lambda package: "2.1.9rc1")
    require("torch", "2.1")
    with pytest.raises(ImportError, match=r"torch 2\.1\.9rc1 is too old: 2\.2 or later"):
        require("torch", "2.2")


def test_the_package_itself_imports_no_framework():
    code = (
        "import sys, entropy_sgd, entropy_sgd.frameworks, entropy_sgd.frameworks.ddp\n"
        "heavy = {'lightning', 'transformers', 'accelerate', 'torch.distributed.tensor'} & set(sys.modules)\n"
        "sys.exit(str(heavy) if heavy else 0)"
    )
    subprocess.run([sys.executable, "-c", code], check=True, timeout=120)
