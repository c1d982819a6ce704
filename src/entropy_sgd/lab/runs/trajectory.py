"""Weights kept along a run, in `trajectory/`: one small file for each of a few steps, in half precision.

They are the judged weights, without batch statistics, for pictures of the way that a run took.
"""

from __future__ import annotations

from pathlib import Path

import torch
from torch import Tensor, nn

from entropy_sgd.lab import LabError
from entropy_sgd.lab.runs import checkpoint
from entropy_sgd.lab.runs.folder import TRAJECTORY


def steps(count: int, total: int) -> set[int]:
    """`count` steps of a run of `total`, evenly spaced from 0 on; the weights at its end are kept anyway."""
    return {round(k * total / count) for k in range(count)}


def keep(folder: Path, step: int, model: nn.Module) -> None:
    """Keep the trainable weights that the model holds at `step`."""
    weights = {
        name: value.detach().to("cpu", torch.float16)
        for name, value in model.named_parameters()
        if value.requires_grad
    }
    (folder / TRAJECTORY).mkdir(exist_ok=True)
    checkpoint.write(folder / TRAJECTORY / f"step-{step:09}.pt", weights)


def read(folder: Path) -> list[dict[str, Tensor]]:
    """The weights kept, in the order of the run; empty if none were."""
    found: list[dict[str, Tensor]] = []
    for path in sorted((folder / TRAJECTORY).glob("step-*.pt")):
        try:
            weights = torch.load(path, weights_only=True, map_location="cpu")
            found.append({name: value.float() for name, value in weights.items()})
        except Exception as error:  # a damaged file can fail anywhere in torch's reader
            reason = str(error).strip().partition("\n")[0]
            raise LabError(f"{path} is damaged: {reason}") from error
    return found
