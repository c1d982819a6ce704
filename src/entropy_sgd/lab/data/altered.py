"""Training data made harder: fewer images, or wrong labels. Validation and test data stay as they are.

What is drawn depends on the data and a seed of its own, not on the run's: runs of different seeds share it.
"""

from __future__ import annotations

import torch
from torch import Tensor

from entropy_sgd.lab.data.batches import seed_from


def part(targets: Tensor, fraction: float, seed: int) -> Tensor:
    """Indices of a share of each class, drawn at random, ascending; at least one sample of each."""
    generator = torch.Generator().manual_seed(seed_from(f"part {seed}"))
    shuffled = torch.randperm(len(targets), generator=generator)
    of_class = [shuffled[targets[shuffled] == label] for label in range(int(targets.max()) + 1)]
    return torch.cat([index[: max(1, round(fraction * len(index)))] for index in of_class]).sort().values


def wrong_labels(targets: Tensor, classes: int, share: float, seed: int) -> Tensor:
    """The targets with `share` of them, to the nearest sample, replaced by another class at random."""
    generator = torch.Generator().manual_seed(seed_from(f"wrong labels {seed}"))
    index = torch.randperm(len(targets), generator=generator)[: round(share * len(targets))]
    moved = targets.clone()
    moved[index] += torch.randint(1, classes, index.shape, generator=generator)  # never 0: always another
    return moved % classes
