"""Flat minima for PyTorch: Entropy-SGD as a drop-in optimizer, and the measurements of flatness."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from entropy_sgd import landscape
    from entropy_sgd.optim import (
        SGLD,
        EntropyAdam,
        EntropySGD,
        LocalEntropy,
        Replicas,
        ReplicatedLocalEntropy,
        recalibrate_batchnorm,
        scoping,
    )

__version__ = "0.2.0.dev0"
__all__ = [
    "SGLD",
    "EntropyAdam",
    "EntropySGD",
    "LocalEntropy",
    "Replicas",
    "ReplicatedLocalEntropy",
    "landscape",
    "recalibrate_batchnorm",
    "scoping",
]


def __getattr__(name: str) -> Any:
    """Loads a public name when it is first used: the command line answers `--help` without loading torch."""
    if name in ("landscape", "optim"):
        return import_module(f"entropy_sgd.{name}")
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(import_module("entropy_sgd.optim"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
