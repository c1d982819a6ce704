"""Tasks: a network with its data, loss and metric, as the trainer and the measurements use it.

base.py      what every task offers
images.py    the paper's images: cross-entropy, percentage misclassified
text.py      the paper's texts: cross-entropy per token, the hidden state carried along
own.py       the user's own experiment
"""

from __future__ import annotations

from pathlib import Path

import torch

from entropy_sgd.lab import LabError, data, experiment
from entropy_sgd.lab.data import Images, Text
from entropy_sgd.lab.recipes import Recipe
from entropy_sgd.lab.tasks.base import Measured, Part, Share, Task
from entropy_sgd.lab.tasks.images import Classification
from entropy_sgd.lab.tasks.own import Own, refuse_foreign
from entropy_sgd.lab.tasks.text import LanguageModel

__all__ = [
    "Classification",
    "LanguageModel",
    "Measured",
    "Own",
    "Part",
    "Share",
    "Task",
    "build",
    "load",
    "refuse_foreign",
]


def load(
    recipe: Recipe,
    *,
    seed: int,
    final: bool,
    device: torch.device,
    data_dir: Path | None = None,
    share: Share | None = None,
    copy: Path | None = None,
) -> Task:
    """The task of a recipe, its data read from disk or made by the user's file.

    `copy` is a copy of that file, in case the original is missing or changed.
    """
    if recipe.source is not None:
        found = experiment.load(recipe.source, copy)
        return Own(recipe, found, seed, final, device, share or Share())
    return build(recipe, data.load(recipe.data, data_dir, final=final), seed, device, share)


def build(
    recipe: Recipe, dataset: Images | Text, seed: int, device: torch.device, share: Share | None = None
) -> Task:
    """The task of one of the paper's networks on data in memory; `share` is what one process has of it."""
    share = share or Share()
    torch.manual_seed(seed)  # for initial weights and dropout; batches and noise have their own
    if isinstance(dataset, Images):
        if recipe.metric != "error":
            raise LabError(f"{recipe.name!r} is a recipe for text, and {recipe.data!r} are images")
        return Classification(recipe, dataset, seed, device, share)
    if recipe.metric == "error":
        raise LabError(f"{recipe.name!r} is a recipe for images, and {recipe.data!r} is text")
    return LanguageModel(recipe, dataset, device, share)
