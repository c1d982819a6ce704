"""Eval mode for the time of a measurement, and every module's own mode back afterwards."""

from __future__ import annotations

import warnings
from collections.abc import Generator
from contextlib import contextmanager
from typing import Any

import torch
from torch import nn
from torch.nn.modules import batchnorm, dropout


@contextmanager
def measuring(model: nn.Module) -> Generator[None]:
    """``model`` in eval mode, with a warning where that changes what it computes."""
    modes = [(module, module.training) for module in model.modules()]
    noisy = sorted({type(module).__name__ for module, training in modes if training and _has_modes(module)})
    if noisy:
        warnings.warn(
            f"model is in training mode and holds {', '.join(noisy)}: it is measured in eval mode "
            "(call model.eval() first to choose this yourself)",
            UserWarning,
            stacklevel=6,  # the caller of the public function,
        )
    model.eval()
    try:
        # oneDNN's fused recurrent layer has no forward derivative; without oneDNN torch runs the plain cell.
        with _mkldnn(not any(isinstance(module, nn.RNNBase) for module, _ in modes)):
            yield
    finally:
        for module, training in modes:
            module.training = training


@contextmanager
def _mkldnn(wanted: bool) -> Generator[None]:
    if wanted:
        yield
        return
    flags: Any = torch.backends.mkldnn.flags(enabled=False)
    with warnings.catch_warnings():  # setting the flag makes torch warn about GPUs that are not there
        warnings.simplefilter("ignore")
        flags.__enter__()
    try:
        yield
    finally:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            flags.__exit__(None, None, None)


def _has_modes(module: nn.Module) -> bool:
    if isinstance(module, dropout._DropoutNd):  # pyright: ignore[reportPrivateUsage]
        return module.p > 0
    if isinstance(module, nn.RNNBase | nn.MultiheadAttention):
        return module.dropout > 0
    if isinstance(module, batchnorm._NormBase):  # pyright: ignore[reportPrivateUsage]
        return module.track_running_stats
    return isinstance(module, nn.RReLU)
