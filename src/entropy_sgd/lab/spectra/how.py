"""How a spectrum or local entropies are measured: the options of the commands, without torch."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

from entropy_sgd.lab import LabError

Dtype = Literal["float64", "float32"]


@dataclass(frozen=True)
class Spectrum:
    """How a spectrum is measured."""

    method: Literal["exact", "lanczos", "fisher"]
    """exact: all eigenvalues, from the whole matrix; lanczos: their density, for networks of any size;
    fisher: the Fisher diagonal, from Adam's moments as the paper does, or with --samples from gradients."""
    samples: int | None = None
    """Training samples (images, or stretches of text), evenly spaced, for the loss: 2048 if not given."""
    batch: int = 256
    """Samples taken at once: it changes speed and memory, not the result."""
    dtype: Dtype = "float64"
    """float32 halves the memory and blurs eigenvalues below about 1e-5 of the largest."""
    probes: int = 8
    """Random starting vectors of lanczos."""
    steps: int = 100
    """Steps of lanczos."""

    @property
    def label(self) -> str:
        """The method, as part of a file's name."""
        return "fisher-samples" if self.method == "fisher" and self.samples is not None else self.method


@dataclass(frozen=True)
class LocalEntropy:
    """How local entropies are measured."""

    gamma: tuple[float, ...] = (0.1, 1.0, 10.0)
    """Scopes γ: smaller ones look further."""
    method: Literal["laplace", "langevin"] = "laplace"
    """laplace: from gradient and spectrum; langevin: sampled, for small networks or a large γ."""
    samples: int | None = None
    """Training samples (images, or stretches of text), evenly spaced, for the loss: 2048 if not given."""
    batch: int = 256
    """Samples taken at once: it changes speed and memory, not the result."""
    dtype: Dtype = "float64"
    """The type everything is computed in."""
    probes: int = 16
    """Random vectors of laplace."""
    steps: int | None = None
    """Steps of laplace's Lanczos (100 if not given) or of each langevin chain (1,000 if not given)."""
    chains: int = 2
    """Chains of langevin at each of 15 temperatures."""

    def __post_init__(self) -> None:
        if not self.gamma:
            raise LabError("give at least one --gamma")
        for gamma in self.gamma:
            if not 0 < gamma < math.inf:
                raise LabError(f"gamma must be a finite number above 0, got {gamma}")

    @property
    def label(self) -> str:
        """The method, as part of a file's name."""
        return self.method


Measurement = Spectrum | LocalEntropy
