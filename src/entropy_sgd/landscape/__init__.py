"""Measurements of flatness: functions of a model, a loss function and batches, and of nothing else.

``hessian_eigenvalues`` is the whole spectrum, ``spectral_density`` its density for models of any size and
``fisher_diagonal`` the paper's substitute for it; ``local_entropy`` and ``network_local_entropy`` are the
paper's objective itself; ``slices`` draws the loss along lines and planes; and ``smoothness_factor``,
``stability_bound`` and ``stability_ratio`` are its theory.
"""

from . import slices
from .density import SpectralDensity, spectral_density
from .fisher import fisher_diagonal
from .hessian import hessian_eigenvalues
from .network_entropy import (
    LaplaceExpansion,
    NetworkLocalEntropy,
    laplace_expansion,
    network_local_entropy,
)
from .quadrature import local_entropy
from .slices import Line, Plane, line, plane
from .theory import smoothness_factor, stability_bound, stability_ratio

__all__ = [
    "LaplaceExpansion",
    "Line",
    "NetworkLocalEntropy",
    "Plane",
    "SpectralDensity",
    "fisher_diagonal",
    "hessian_eigenvalues",
    "laplace_expansion",
    "line",
    "local_entropy",
    "network_local_entropy",
    "plane",
    "slices",
    "smoothness_factor",
    "spectral_density",
    "stability_bound",
    "stability_ratio",
]
