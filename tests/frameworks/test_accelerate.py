"""Accelerate in one process and in two, against a bare loop over the same batches."""

from __future__ import annotations

import runpy
import shlex
import shutil
import sys
from pathlib import Path

import pytest
import torch
from torch import Tensor, nn

from entropy_sgd import EntropySGD
from frameworks.launch import EXAMPLES, launch
from network import weights

pytest.importorskip("accelerate", reason="accelerate is not installed")

PROGRAM = EXAMPLES / "accelerate_loop.py"


def bare(*processes: int) -> Tensor:
    """x after epochs with these numbers of processes. A step sees two batches of 16 on each of them."""
    inputs, labels = runpy.run_path(str(PROGRAM))["points"](1024).tensors
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(2, 32), nn.Tanh(), nn.Linear(32, 4))
    optimizer = EntropySGD(model.parameters(), L=5)
    for size in (32 * p for p in processes):
        for part, targets in zip(inputs.split(size), labels.split(size), strict=True):
            optimizer.zero_grad()
            nn.functional.cross_entropy(model(part), targets).backward()
            optimizer.step()
        assert optimizer.inner_steps != 0  # the example saves in the middle of a cycle
    optimizer.finish()
    return weights(model)


def documented_command() -> list[str]:
    """That of the example, for this environment's `accelerate`."""
    command = next(
        line for line in PROGRAM.read_text().splitlines() if line.strip().startswith("accelerate ")
    )
    program, *arguments = shlex.split(command)
    return [str(Path(sys.executable).with_name(program)), *arguments]


def final(folder: Path, rank: int = 0) -> Tensor:
    saved = torch.load(folder / f"weights-{rank}.pt", weights_only=True)
    return torch.cat([w.flatten() for w in saved.values()])


@pytest.fixture
def train():
    """The example's `train`, in this process."""
    from accelerate.state import AcceleratorState, GradientState, PartialState

    yield runpy.run_path(str(PROGRAM))["train"]
    for state in (AcceleratorState, GradientState, PartialState):
        state._reset_state()


def test_one_process_is_the_bare_loop_and_resumes_to_the_same_bits(train, tmp_path):
    train(3, tmp_path / "whole")
    torch.testing.assert_close(final(tmp_path / "whole"), bare(1, 1, 1), rtol=1e-3, atol=1e-4)
    shutil.copytree(tmp_path / "whole" / "1", tmp_path / "part" / "1")
    train(3, tmp_path / "part")
    assert torch.equal(final(tmp_path / "whole"), final(tmp_path / "part"))


def test_two_processes_and_what_they_save_in_one(train, tmp_path):
    launch(documented_command(), "--folder", tmp_path)
    assert torch.equal(final(tmp_path, 0), final(tmp_path, 1))
    torch.testing.assert_close(final(tmp_path), bare(2, 2), rtol=1e-3, atol=1e-4)
    train(3, tmp_path)
    torch.testing.assert_close(final(tmp_path), bare(2, 2, 1), rtol=1e-3, atol=1e-4)
