"""Flat minima for PyTorch: Entropy-SGD as a drop-in optimizer, and the measurements of flatness."""

from entropy_sgd import landscape
from entropy_sgd.optim import SGLD, EntropyAdam, EntropySGD, LocalEntropy, recalibrate_batchnorm, scoping

__version__ = "0.1.0"
__all__ = [
    "SGLD",
    "EntropyAdam",
    "EntropySGD",
    "LocalEntropy",
    "landscape",
    "recalibrate_batchnorm",
    "scoping",
]
