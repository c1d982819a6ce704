"""The two principal directions of a trajectory: the plane that shows the most of it.

With the weights w_0, ..., w_n along a run, the directions are the first two right singular vectors of the
rows w_i minus their mean (Li et al., "Visualizing the loss landscape of neural nets", 2018, Section 7). The
last weights are the origin of the plane.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from entropy_sgd.landscape.typed_torch import eigh


@dataclass(frozen=True)
class Trajectory:
    """Where weights along a run lie in the plane of its two principal directions."""

    directions: tuple[Tensor, Tensor]
    """Orthonormal, flat, in float64: for `plane`."""
    coordinates: Tensor
    """(n + 1, 2): the projections of w_i - w_n; the last row is zero."""
    shares: tuple[float, float]
    """The part of the variance of the weights that lies along each direction."""


def principal_directions(weights: Sequence[Tensor]) -> Trajectory:
    """The principal directions of flat vectors of weights, given in the order of the run.

    Args:
        weights: at least three vectors of the same length, which do not all lie on one line.

    Returns:
        A `Trajectory`.
    """
    if len(weights) < 3:
        raise ValueError(f"weights must be at least 3 vectors, got {len(weights)}")
    lengths = {tuple(w.shape) for w in weights}
    if len(lengths) > 1 or len(next(iter(lengths))) != 1:
        raise ValueError(f"weights must be vectors of one length, got the shapes {sorted(lengths)}")
    rows = torch.stack([w.detach().cpu().double() for w in weights])
    if not bool(torch.isfinite(rows).all()):
        raise ValueError("weights holds values that are not finite")
    centred = rows - rows.mean(0)
    # The Gram matrix is small, (n + 1) x (n + 1); its eigenvectors give those of the weights.
    gram = centred @ centred.T
    values, vectors = (part.flip(-1) for part in eigh(gram))
    total = float(values.clamp_min(0).sum())
    if not total or float(values[1]) <= 1e-10 * total:
        raise ValueError("weights lie on one line: they have no second principal direction")
    first, second = (vectors[:, k] @ centred / values[k].sqrt() for k in range(2))
    # The start lies on the positive side, so that the sign does not depend on the decomposition.
    offset = rows - rows[-1]
    first, second = (d if float(offset[0] @ d) >= 0 else -d for d in (first, second))
    coordinates = torch.stack([offset @ first, offset @ second], dim=1)
    return Trajectory((first, second), coordinates, (float(values[0]) / total, float(values[1]) / total))
