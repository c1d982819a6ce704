"""Batch statistics at the outer weights.

During a cycle the running statistics of batch normalisation follow the inner weights x'. Before the model is
evaluated at x they must be recomputed on training data: `optimizer.eval()`, then `recalibrate_batchnorm`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, cast

import torch
from torch import nn
from torch.nn.modules.batchnorm import _BatchNorm  # pyright: ignore[reportPrivateUsage]


@torch.no_grad()
def recalibrate_batchnorm(model: nn.Module, batches: Iterable[Any]) -> None:
    """Recomputes the running mean and variance of every batch normalisation layer of `model`.

    The statistics are the plain average over `batches` (momentum None), with dropout and everything else in
    evaluation mode. Modes, momenta and weights are restored; if anything fails, the old statistics too. A
    model without running statistics is left unchanged, and so are layers in evaluation mode while other
    weights of the model are in training mode: their statistics are frozen on purpose. In a model that is in
    evaluation mode throughout, none counts as frozen.

    Args:
        model: any module.
        batches: *training* inputs: tensors, tuples whose first item is the input, or dictionaries of keyword
            arguments. Moved to the device of the model's first parameter.
    """
    layers = [m for m in model.modules() if isinstance(m, _BatchNorm) and m.track_running_stats]
    if any(m.training for m in model.modules() if m._parameters and not isinstance(m, _BatchNorm)):
        layers = [layer for layer in layers if layer.training]
    if not layers:
        return
    modes = {module: module.training for module in model.modules()}
    momenta = {layer: layer.momentum for layer in layers}
    old = {layer: {k: v.clone() for k, v in layer.named_buffers(recurse=False)} for layer in layers}
    device = next(iter(model.parameters()), torch.empty(0)).device
    seen = 0
    try:
        model.eval()
        for layer in layers:
            layer.reset_running_stats()
            layer.momentum = None
            layer.train()
        for batch in batches:
            _forward(model, batch, device)
            seen += 1
        if seen == 0:
            raise ValueError("batches is empty: at least one batch of training data is needed")
    except BaseException:
        for layer, buffers in old.items():
            for name, value in buffers.items():
                cast(torch.Tensor, getattr(layer, name)).copy_(value)
        raise
    finally:
        for layer, momentum in momenta.items():
            layer.momentum = momentum
        for module, training in modes.items():
            module.training = training


def _forward(model: nn.Module, batch: Any, device: torch.device) -> None:
    def move(value: Any) -> Any:
        return value.to(device) if isinstance(value, torch.Tensor) else value

    if isinstance(batch, Mapping):
        model(**{name: move(value) for name, value in cast("Mapping[str, Any]", batch).items()})
    elif isinstance(batch, (tuple, list)):
        model(move(cast("list[Any]", batch)[0]))
    else:
        model(move(batch))
