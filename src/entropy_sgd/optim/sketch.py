"""A count sketch: the angle between two vectors that are never in memory together.

The diagnostics report the cosine between grad f(x), known at the first step of a cycle, and x - mu, known at
its end (Section 5.4 of the paper). A copy of the gradient would take 4 bytes a parameter until then. Instead
each vector is added, with random signs, into 4,096 buckets (Charikar, Chen & Farach-Colton, 2002); the inner
product of two sketches has the inner product of the vectors as its mean, and an error with the standard
deviation

    sqrt((|a|^2 |b|^2 + <a, b>^2) / BUCKETS)      at most:      0.016 to 0.022 in the cosine

Signs and buckets change with every cycle, so the errors of cycles are independent and average out.

The 64 elements of a tile go into consecutive buckets, cyclically, from a random one on: two elements of
different tiles meet with probability 1 / BUCKETS, those of one tile never. Of rounding.words in slot 2 each
tile has four: the first chooses the bucket, the bits of the next two are the signs. Sketches are linear:
those of a parameter's shards add up to that of the whole.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from entropy_sgd.optim import kernel_outer, rounding, triton_step
from entropy_sgd.optim.noise import TILE, Span

BUCKETS = 4096
SLOT = 2
CHUNK = 1 << 12  # tiles added at a time on the CPU, where they stay in the cache


def add_(
    sketch: Tensor,
    a: Sequence[Tensor],
    b: Sequence[Tensor],
    scales: tuple[float, float],
    spans: Sequence[Span],
    seed: int,
    t: int,
) -> Tensor:
    """Adds `scales[0] a + scales[1] b`, the elements `spans` of their parameters, to `sketch` (float32).

    `a` may be empty; then it is zero. All tensors are on the sketch's device.

    Returns:
        the squared norm of what was added, a float64 scalar.
    """
    if kernel_outer.sketches(a, b):
        return torch.tensor(kernel_outer.sketch_(sketch, a, b, scales, spans, seed, t), dtype=torch.float64)
    if triton_step.sketches(a, b):
        try:
            return triton_step.sketch_(sketch, a, b, scales, spans, seed, t)
        except triton_step.UnusableError as error:  # nothing has been added
            triton_step.give_up(sketch.device, error)
    return add_by_torch_(sketch, a, b, scales, spans, seed, t)


def add_by_torch_(
    sketch: Tensor,
    a: Sequence[Tensor],
    b: Sequence[Tensor],
    scales: tuple[float, float],
    spans: Sequence[Span],
    seed: int,
    t: int,
) -> Tensor:
    """`add_` on any device and dtype."""
    device = sketch.device
    square = torch.zeros((), dtype=torch.float32 if device.type == "mps" else torch.float64, device=device)
    lane = torch.arange(TILE, device=device)
    for i, span in enumerate(spans):
        if span.numel == 0:
            continue
        value = b[i].to(torch.float32).reshape(-1) * scales[1]
        if a:
            value = a[i].to(torch.float32).reshape(-1) * scales[0] + value
        square += value.square().sum(dtype=square.dtype)
        first, before = span.start // TILE, span.start % TILE
        value = torch.nn.functional.pad(value, (before, -(span.start + span.numel) % TILE)).view(-1, TILE)
        key = rounding.key(seed, t, 0, span.parameter, SLOT)
        chunk = CHUNK if device.type == "cpu" else len(value)
        for row in range(0, len(value), chunk):
            part = value[row : row + chunk]
            words = rounding.words(torch.Size((len(part), 4)), 4 * (first + row), key, device)
            signs = words[:, 1:3].repeat_interleave(TILE // 2, 1) >> (lane % (TILE // 2)).to(torch.int32)
            bucket = ((words[:, :1] & (BUCKETS - 1)) + lane) & (BUCKETS - 1)
            sketch.index_add_(0, bucket.view(-1), torch.where(signs & 1 == 1, -part, part).view(-1))
    return square
