"""The diagonal of the Fisher information, the paper's stand-in for a large network's spectrum (Sec. 5.1).

diag(I) = E(g^2) - (E g)^2,        g the gradient of the loss
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, overload

import torch
from torch import Tensor, nn

from ._objective import Batches, LossFunction, objective


@overload
def fisher_diagonal(source: torch.optim.Optimizer) -> Tensor: ...
@overload
def fisher_diagonal(
    source: nn.Module, loss_fn: LossFunction, batches: Batches, *, dtype: torch.dtype | None = None
) -> Tensor: ...
def fisher_diagonal(
    source: torch.optim.Optimizer | nn.Module,
    loss_fn: LossFunction | None = None,
    batches: Batches | None = None,
    *,
    dtype: torch.dtype | None = None,
) -> Tensor:
    """E(g^2) - (E g)^2 for each trainable parameter, flat and in parameter order.

    ``fisher_diagonal(optimizer)`` reads the moments that Adam (or AdamW, or an optimizer around one, as long
    as its ``state`` holds them) keeps: m and v without their bias. As in the paper, g is then the gradient of
    a mini-batch and E an exponential average over the last steps, longer for g^2 than for g, so that an entry
    can come out below zero; none is clipped. A parameter that never had a gradient counts as zero.

    ``fisher_diagonal(model, loss_fn, batches)`` takes g to be the gradient of one sample and E the mean over
    all samples of ``batches``, exactly. Dimension 0 of inputs and targets indexes samples. Regarding frozen
    parameters, eval mode and ``dtype`` see ``spectral_density``.
    """
    if isinstance(source, nn.Module):
        if loss_fn is None or batches is None:
            raise TypeError("fisher_diagonal of a model needs loss_fn and batches too")
        return _exact(source, loss_fn, batches, dtype)
    if not isinstance(source, torch.optim.Optimizer):  # pyright: ignore[reportUnnecessaryIsInstance]
        raise TypeError(f"fisher_diagonal takes an optimizer or a module, got a {type(source).__name__}")
    if loss_fn is not None or batches is not None:
        raise TypeError("fisher_diagonal of an optimizer takes no loss_fn and no batches")
    return _from_moments(source)


def _exact(model: nn.Module, loss_fn: LossFunction, batches: Batches, dtype: torch.dtype | None) -> Tensor:
    with objective(model, loss_fn, batches, dtype) as f:
        # In float64 whatever the gradients' type: the difference below cancels.
        first = torch.zeros(f.n, dtype=torch.float64, device=f.device)
        second = torch.zeros_like(first)
        samples = 0
        for gradients in f.sample_gradients():
            first += gradients.double().sum(0)
            second += gradients.double().square().sum(0)
            samples += len(gradients)
        return (second / samples - (first / samples) ** 2).clamp_(min=0.0).to(f.dtype)


def _from_moments(optimizer: torch.optim.Optimizer) -> Tensor:
    parts: list[Tensor] = []
    found = False
    groups: list[dict[str, Any]] = optimizer.param_groups
    for group in groups:
        for p in group["params"]:
            if not p.requires_grad:
                continue
            state: Mapping[str, Any] = optimizer.state.get(p, {})
            if "exp_avg" not in state or "exp_avg_sq" not in state or not float(state.get("step", 0)):
                parts.append(torch.zeros_like(p).flatten())
                continue
            found = True
            beta1, beta2 = (float(beta) for beta in group["betas"])
            t = float(state["step"])
            mean = state["exp_avg"] / (1 - beta1**t)
            square = state["exp_avg_sq"] / (1 - beta2**t)
            parts.append((square - mean**2).detach().flatten())
    if not found:
        raise ValueError(
            f"optimizer ({type(optimizer).__name__}) holds no Adam moments (exp_avg, exp_avg_sq): "
            "give an Adam that has made at least one step, or fisher_diagonal(model, loss_fn, batches)"
        )
    return torch.cat(parts)
