"""The program of examples/replicas.py, undisturbed and with a process that dies."""

from __future__ import annotations

import re
from pathlib import Path

import torch

from frameworks.launch import EXAMPLES, torchrun

STEPS = 83  # ends inside a cycle


def saved(folder: Path) -> list[torch.Tensor]:
    files = [torch.load(folder / f"weights-{rank}.pt", weights_only=True) for rank in range(2)]
    return [torch.cat([w.flatten() for w in file.values()]) for file in files]


def test_a_killed_replica_is_restarted_and_all_end_in_the_same_weights(tmp_path):
    example, straight, disturbed = EXAMPLES / "replicas.py", tmp_path / "straight", tmp_path / "disturbed"
    output = torchrun(example, "--folder", straight, "--steps", STEPS)
    overlaps = [float(value) for value in re.findall(r"overlap (\d\.\d+)", output)]
    assert len(overlaps) == 2
    assert min(overlaps) > 0.9
    disturbed.mkdir()
    killed = Path(__file__).with_name("killed.py")
    torchrun(killed, example, "--folder", disturbed, "--steps", STEPS, restarts=1)
    assert (disturbed / "rank-1-died").exists()
    expected = saved(straight)
    assert torch.equal(*expected)
    assert all(map(torch.equal, saved(disturbed), expected))
