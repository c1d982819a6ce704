"""The diagonal of the Fisher information, the paper's proxy for a large network's spectrum (Sec. 5.1).

diag(I) = E(g^2) - (E g)^2,        g the gradient of the loss
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, overload

import torch
from torch import Tensor, nn

from entropy_sgd.landscape.objective import Batches, LossFunction, objective


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

    `fisher_diagonal(optimizer)` reads the moments m and v that Adam keeps (or AdamW, or any optimizer with
    these in its `state`), with their bias corrected. As in the paper, g is then the gradient of a mini-batch
    and E an exponential average over the last steps, longer for g^2 than for g, so an entry can be negative;
    none is clipped. A parameter that never had a gradient counts as zero. Moments of 16 bits are subtracted
    in float32.

    `fisher_diagonal(model, loss_fn, batches)` takes g to be the gradient of one sample and E the mean over
    all samples of `batches`, exactly. Dimension 0 of inputs and targets indexes samples.

    Args:
        source: an optimizer, or a model as for `hessian_eigenvalues`.
        loss_fn: `loss_fn(model(inputs), targets)`, the mean over a batch; for a model only.
        batches: a re-iterable of `(inputs, targets)`; for a model only.
        dtype: of the gradients; defaults to the parameters' own (at least float32).

    Returns:
        A tensor with one entry per weight.
    """
    if isinstance(source, nn.Module):
        if loss_fn is None or batches is None:
            raise TypeError("fisher_diagonal of a model also needs loss_fn and batches")
        return _exact(source, loss_fn, batches, dtype)
    if not isinstance(source, torch.optim.Optimizer):  # pyright: ignore[reportUnnecessaryIsInstance]
        raise TypeError(f"fisher_diagonal takes an optimizer or a module, got a {type(source).__name__}")
    if hasattr(source, "outer_steps"):  # EntropyAdam and others with an inner loop
        raise TypeError(
            f"optimizer ({type(source).__name__}): its moments are those of x - mu, not of the gradient; "
            "give an Adam, or fisher_diagonal(model, loss_fn, batches)"
        )
    if loss_fn is not None or batches is not None:
        raise TypeError("fisher_diagonal of an optimizer takes no loss_fn and no batches")
    return _from_moments(source)


def _exact(model: nn.Module, loss_fn: LossFunction, batches: Batches, dtype: torch.dtype | None) -> Tensor:
    with objective(model, loss_fn, batches, dtype) as f:
        # In float64 whatever the gradients' type, because the difference below cancels.
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
            # In float32 at least, because the difference cancels.
            wide = torch.promote_types(state["exp_avg"].dtype, torch.float32)
            mean = state["exp_avg"].to(wide) / (1 - beta1**t)
            square = state["exp_avg_sq"].to(wide) / (1 - beta2**t)
            parts.append((square - mean**2).detach().flatten())
    if not found:
        raise ValueError(
            f"optimizer ({type(optimizer).__name__}) holds no Adam moments (exp_avg, exp_avg_sq): "
            "give an Adam that has made at least one step, or fisher_diagonal(model, loss_fn, batches)"
        )
    return torch.cat(parts)
