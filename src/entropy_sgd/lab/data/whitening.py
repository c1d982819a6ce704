"""Global contrast normalisation and ZCA whitening, as Goodfellow et al. (2013) did (Section 5.3).

Both work in place and in pieces: the images are one array of 50,000 x 3,072 float32 (0.6 GB), and little is
needed beside it.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import cast

import torch
from torch import Tensor

CONTRAST = 55.0
"""The norm each image is given: about sqrt(3072), so that a pixel's standard deviation is about 1."""

BIAS = 0.1
"""Added to each eigenvalue of the covariance, so that directions of mere noise are not blown up."""

_PIECE = 5_000


def _pieces(images: Tensor) -> Iterator[Tensor]:
    """Views of 5,000 rows each: what is computed of one is small beside the whole."""
    for start in range(0, len(images), _PIECE):
        yield images[start : start + _PIECE]


def normalise_contrast_(images: Tensor) -> Tensor:
    """Each row x of (N, D) becomes CONTRAST (x - mean(x)) / ||x - mean(x)||; a flat image becomes zero."""
    for piece in _pieces(images):
        piece.sub_(piece.mean(dim=1, keepdim=True))
        norm = piece.square().sum(dim=1, keepdim=True).sqrt_()
        piece.mul_(CONTRAST / norm.clamp_min_(1e-8))
    return images


@dataclass(frozen=True)
class Whitening:
    """The map x -> W (x - m), with m the mean and W = (C + BIAS I)^(-1/2), C the covariance of the images."""

    mean: Tensor
    matrix: Tensor

    @classmethod
    def fit(cls, images: Tensor) -> Whitening:
        """Mean and whitening matrix of the rows of (N, D), summed and decomposed in float64."""
        size = images.shape[1]
        mean = images.mean(dim=0, dtype=torch.float64)
        covariance = torch.zeros(size, size, dtype=torch.float64)
        for piece in _pieces(images):
            centred = piece - mean.float()
            covariance += centred.T @ centred
        biased = covariance / len(images) + BIAS * torch.eye(size, dtype=torch.float64)
        spectrum = torch.linalg.eigh(biased)  # pyright: ignore[reportUnknownMemberType, reportUnknownVariableType]
        values, vectors = cast("tuple[Tensor, Tensor]", spectrum)
        return cls(mean.float(), ((vectors * values.rsqrt()) @ vectors.T).float())

    def apply_(self, images: Tensor) -> Tensor:
        """Whiten the rows of (N, D)."""
        for piece in _pieces(images):
            piece.copy_((piece - self.mean) @ self.matrix)  # W is symmetric
        return images
