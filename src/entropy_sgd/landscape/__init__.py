"""Measurements of flatness: functions of a model, a loss function and batches.

- The Hessian: `hessian_eigenvalues` gives the whole spectrum, `spectral_density` its density for models of
  any size, `hessian_eigenvectors` its extreme eigenpairs, `spectra_by_layer` one spectrum per layer, and
  `fisher_diagonal` the paper's proxy.
- Local entropy, the paper's objective: `local_entropy`, `network_local_entropy`, `laplace_expansion`.
- Other measures of flatness: `local_energy`, `adaptive_sharpness`, `local_learning_coefficient`.
- Slices of the loss: `line` and `plane`, and `principal_directions` of a run for the latter.
- The paper's theory: `smoothness_factor`, `stability_bound`, `stability_ratio`.
"""

from entropy_sgd.landscape import slices
from entropy_sgd.landscape.density import SpectralDensity, spectral_density
from entropy_sgd.landscape.eigenvectors import HessianEigenvectors, hessian_eigenvectors
from entropy_sgd.landscape.energy import LocalEnergy, local_energy
from entropy_sgd.landscape.fisher import fisher_diagonal
from entropy_sgd.landscape.hessian import hessian_eigenvalues
from entropy_sgd.landscape.layers import spectra_by_layer
from entropy_sgd.landscape.learning_coefficient import LearningCoefficient, local_learning_coefficient
from entropy_sgd.landscape.network_entropy import (
    LaplaceExpansion,
    NetworkLocalEntropy,
    laplace_expansion,
    network_local_entropy,
)
from entropy_sgd.landscape.quadrature import local_entropy
from entropy_sgd.landscape.sharpness import AdaptiveSharpness, adaptive_sharpness
from entropy_sgd.landscape.slices import Line, Plane, line, plane
from entropy_sgd.landscape.theory import smoothness_factor, stability_bound, stability_ratio
from entropy_sgd.landscape.trajectory import Trajectory, principal_directions

__all__ = [
    "AdaptiveSharpness",
    "HessianEigenvectors",
    "LaplaceExpansion",
    "LearningCoefficient",
    "Line",
    "LocalEnergy",
    "NetworkLocalEntropy",
    "Plane",
    "SpectralDensity",
    "Trajectory",
    "adaptive_sharpness",
    "fisher_diagonal",
    "hessian_eigenvalues",
    "hessian_eigenvectors",
    "laplace_expansion",
    "line",
    "local_energy",
    "local_entropy",
    "local_learning_coefficient",
    "network_local_entropy",
    "plane",
    "principal_directions",
    "slices",
    "smoothness_factor",
    "spectra_by_layer",
    "spectral_density",
    "stability_bound",
    "stability_ratio",
]
