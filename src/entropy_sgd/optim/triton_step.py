"""The Langevin step in one launch for all tensors of a device that Triton compiles for (CUDA, ROCm, XPU).

`langevin_step_` is called as that of kernel.py is, on tensors of a device. A table in its memory holds the
addresses, so the number of launches does not depend on the number of tensors. Triton comes with torch's builds
for these devices; `available` says whether it does here, and whether it compiles.
"""

from __future__ import annotations

import importlib
from collections.abc import Sequence
from contextlib import nullcontext
from functools import lru_cache
from math import sqrt
from typing import Any

import torch
from torch import Tensor

from entropy_sgd.optim.langevin import Langevin

TILE = 64
TILES = 16  # of a block: 1,024 elements, four for each of 256 threads
WARPS = 8
WIDTH = 1024
# Fused multiply-adds stand where they are meant; the compiler must not make more of them in the noise.
OPTIONS = {"num_warps": WARPS, "enable_fp_fusion": False}


def constants(
    h: Langevin, weights: torch.dtype, states: torch.dtype, mean: bool, kept: bool
) -> dict[str, bool | int]:
    """The compile-time arguments of `triton_kernels.langevin`."""
    return {
        "MOMENTUM": h.inner_momentum != 0,
        "NESTEROV": bool(h.inner_nesterov),
        "NOISE": h.noise != 0 and h.inner_lr != 0,
        "MEAN": mean,
        "KEPT": kept,
        "HALF_STATE": states is torch.bfloat16,
        "HALF_WEIGHTS": weights is torch.bfloat16,
        "TILES": TILES,
    }


def langevin_step_(
    h: Langevin,
    x_prime: Sequence[Tensor],
    gradient: Sequence[Tensor],
    x: Sequence[Tensor],
    mu: Sequence[Tensor],
    v: Sequence[Tensor],
    kept: Sequence[Tensor],
    first: Sequence[bool],
    reset: Sequence[bool],
    parameter: Sequence[int],
    offset: Sequence[int],
    seed: int,
    t: int,
    l: int,
    maximize: bool,
) -> tuple[Tensor, Tensor]:
    """kernel.langevin_step_ on a device; the sums stay there.

    x' and its gradient may be bfloat16, with x in float32: x' is then rounded stochastically. `mu` and `v` may
    be bfloat16, and `mu` is mu - x then. An empty `mu` is not kept: alpha is 1.
    """
    device = x_prime[0].device
    kernels: Any = importlib.import_module("entropy_sgd.optim.triton_kernels")
    rows: list[int] = []
    for i, p in enumerate(x_prime):
        rows += (
            p.data_ptr(),
            gradient[i].data_ptr(),
            x[i].data_ptr(),
            mu[i].data_ptr() if mu else 0,
            v[i].data_ptr() if v else 0,
            kept[i].data_ptr() if kept else 0,
            p.numel(),
            offset[i],
            parameter[i],
            first[i],
            reset[i],
        )
    blocks, ends = _blocks(tuple((s, p.numel()) for s, p in zip(offset, x_prime, strict=True)), device)
    totals = torch.zeros(len(x_prime), 2, dtype=torch.float64, device=device)
    if not len(blocks):
        return totals[:, 0], totals[:, 1]
    sums = torch.empty(len(blocks), 2, device=device)
    states = (*mu, *v)
    flags = constants(
        h, x_prime[0].dtype, states[0].dtype if states else torch.float32, bool(mu), bool(kept)
    )
    on_device = nullcontext() if device.type == "cpu" else torch.get_device_module(device).device(device)
    with on_device:
        kernels.langevin[(len(blocks),)](
            _table(tuple(rows), device), blocks, sums,
            _signed(seed), _signed(seed >> 32), _signed(t), _signed(l),
            float(h.gamma), float(h.weight_decay), float(h.inner_lr), float(h.inner_momentum),
            sqrt(h.inner_lr) * h.noise, float(h.alpha), -1.0 if maximize else 1.0,
            **flags, **OPTIONS,
        )  # fmt: skip
        kernels.by_tensor[(len(x_prime),)](sums, ends, totals, WIDTH=WIDTH)
    return totals[:, 0], totals[:, 1]


def _signed(word: int) -> int:
    """The lower 32 bits as Triton passes them, whatever the value: an int32."""
    word &= 0xFFFFFFFF
    return word - (word >> 31 << 32)


@lru_cache(maxsize=64)
def _table(rows: tuple[int, ...], device: torch.device) -> Tensor:
    """Addresses as triton_kernels.langevin reads them; the same ones come again and again in training."""
    return torch.tensor(rows, dtype=torch.int64).to(device)


@lru_cache(maxsize=16)
def _blocks(shards: tuple[tuple[int, int], ...], device: torch.device) -> tuple[Tensor, Tensor]:
    """The tensor of each block and its number in it, (blocks, 2); the first block of each tensor, and the end."""
    size = TILE * TILES
    counts = torch.tensor([-(-(start % size + n) // size) if n else 0 for start, n in shards])
    ends = torch.cat([torch.zeros(1, dtype=torch.int64), counts.cumsum(0)])
    owner = torch.repeat_interleave(torch.arange(len(shards)), counts)
    number = torch.arange(int(ends[-1])) - ends[owner]
    return torch.stack([owner, number], 1).to(torch.int32).to(device), ends.to(torch.int32).to(device)
