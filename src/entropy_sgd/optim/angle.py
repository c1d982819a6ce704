"""The vectors whose angle the diagnostics report, grad f(x) and x - mu, in little memory (see sketch.py).

If all parameters together have no more elements than a sketch has buckets, each element has its own place and
the cosine is exact. Vectors of larger models are sketched.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from entropy_sgd.optim import kernel, kernel_outer, sharding, sketch
from entropy_sgd.optim.noise import Span


def empty(groups: Sequence[dict[str, Any]], device: torch.device) -> Tensor:
    """Zero: elements in float64, or buckets in float32."""
    numel = sum(_numel(p) for group in groups for p in group["params"])
    if numel <= sketch.BUCKETS:
        dtype = torch.float32 if device.type == "mps" else torch.float64
        return torch.zeros(numel, dtype=dtype, device=device)
    return torch.zeros(sketch.BUCKETS, dtype=torch.float32, device=device)


def is_sketch(vector: Tensor, device_type: str | None = None) -> bool:
    """Whether it is a sketch, and not the elements themselves, on a device of this type if one is given."""
    if vector.dtype is not torch.float32 or len(vector) != sketch.BUCKETS:
        return False
    return device_type is None or vector.device.type == device_type


def dot(a: Tensor, b: Tensor) -> Tensor | float:
    """The inner product of two such vectors; the shorter one goes on with zeros."""
    if is_sketch(a, "cpu") and is_sketch(b, "cpu") and kernel.library() is not None:
        return kernel_outer.dot(a, b)
    # torch.dot calls BLAS with one thread, which ends OpenMP's others: a step would start them anew.
    shared = min(len(a), len(b))
    return (a[:shared] * b[:shared]).sum()


def to_list(vector: Tensor) -> list[float]:
    """For a checkpoint: the numbers, and how many bits they have."""
    return [float(vector.element_size() * 8), *vector.tolist()]


def from_list(numbers: list[float] | None) -> Tensor | None:
    """What `to_list` was given."""
    if numbers is None:
        return None
    dtype = torch.float64 if numbers[0] == 64 else torch.float32
    return torch.tensor(numbers[1:], dtype=dtype, device="cpu")  # `add` takes it where it is needed


def add(
    vector: Tensor,
    a: Sequence[Tensor],
    b: Sequence[Tensor],
    scales: tuple[float, float],
    owners: Sequence[Tensor],
    indices: Sequence[int],
    groups: Sequence[dict[str, Any]],
    seed: int,
    t: int,
) -> tuple[Tensor, Tensor]:
    """`vector` and `scales[0] a + scales[1] b` of the parameters `owners`, with these `indices`.

    Returns:
        the sum, which may be `vector` itself, and the squared norm of what was added; both take in the slices
        of all ranks.
    """
    exact = not is_sketch(vector)
    params = [p for group in groups for p in group["params"]] if exact else []
    if exact:  # a group may have been added since it was made
        vector = torch.nn.functional.pad(vector, (0, sum(map(_numel, params)) - len(vector)))
    square = None
    for (group, device), members in _by_device(owners, b).items():
        alone = group is None and device == vector.device
        part = vector if alone else torch.zeros_like(vector, device=device)
        spans = [Span(indices[i], sharding.offset(owners[i]), b[i].numel()) for i in members]
        first, second = [a[i] for i in members] if a else [], [b[i] for i in members]
        if exact:
            added = _place_(part, first, second, scales, spans, params)
        else:
            added = sketch.add_(part, first, second, scales, spans, seed, t)
        if group is not None:
            torch.distributed.all_reduce(part, group=group)
            torch.distributed.all_reduce(added, group=group)
        if not alone:
            vector = vector + part.to(vector.device)
        square = added.to(vector.device) if square is None else square + added.to(vector.device)
    return vector, torch.zeros((), device=vector.device) if square is None else square


def _by_device(owners: Sequence[Tensor], tensors: Sequence[Tensor]) -> dict[tuple[Any, Any], list[int]]:
    """Positions of `tensors` on one device, and of one group of processes if they are slices of `owners`."""
    found: dict[tuple[Any, Any], list[int]] = {}
    for group, members in sharding.process_groups(owners).items():
        for i in members:
            found.setdefault((group, tensors[i].device), []).append(i)
    return found


def _place_(
    vector: Tensor,
    a: Sequence[Tensor],
    b: Sequence[Tensor],
    scales: tuple[float, float],
    spans: Sequence[Span],
    params: Sequence[Tensor],
) -> Tensor:
    """sketch.add_ with a place for each element."""
    begins = [0]
    for p in params:
        begins.append(begins[-1] + _numel(p))
    square = torch.zeros((), dtype=vector.dtype, device=vector.device)
    for i, (parameter, start, numel) in enumerate(spans):
        value = b[i].reshape(-1).to(vector.dtype) * scales[1]
        if a:
            value = a[i].reshape(-1).to(vector.dtype) * scales[0] + value
        begin = begins[parameter] + start
        vector[begin : begin + numel] += value
        square += value.square().sum()
    return square


def _numel(p: Tensor) -> int:
    return p.numel() * (2 if p.is_complex() else 1)
