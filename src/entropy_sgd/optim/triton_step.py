"""The Langevin step in one launch for all tensors of a device that Triton compiles for (CUDA, ROCm, XPU).

The functions are called like those of kernel.py, on tensors of a device. A table in device memory holds the
addresses, so the number of launches does not depend on the number of tensors. Triton comes with torch's
builds for these devices. Where it is missing, or fails to compile, the torch path is used.
"""

from __future__ import annotations

import importlib
import importlib.util
import logging
from collections.abc import Sequence
from contextlib import nullcontext
from functools import cache, lru_cache
from math import sqrt
from typing import Any

import torch
from torch import Tensor

from entropy_sgd.optim.descent import Descent
from entropy_sgd.optim.langevin import Langevin

TILE = 64
TILES = 16  # of a block: 1,024 elements, four for each of 256 threads
WARPS = 8 if torch.version.hip is None else 4  # of 32 threads, or of 64
WIDTH = 1024
# Fused multiply-adds stand where they are meant; the compiler must not make more of them in the noise.
OPTIONS = {"num_warps": WARPS, "enable_fp_fusion": False}


DEVICES = ("cuda", "xpu")  # ROCm calls itself cuda
_broken: set[str] = set()
_proven: set[tuple[Any, ...]] = set()


class UnusableError(RuntimeError):
    """Triton could not compile or launch a kernel. Nothing has been written to."""


@cache
def installed() -> bool:
    """Whether there is a Triton."""
    return importlib.util.find_spec("triton") is not None


def serves(params: Sequence[Tensor], gradients: Sequence[Tensor], others: Sequence[Sequence[Tensor]]) -> bool:
    """Whether the kernels can work on these parameters, their gradients and lists of as many tensors."""
    device, dtype = params[0].device, params[0].dtype
    if device.type not in DEVICES or device.type in _broken or not installed():
        return False
    if dtype not in (torch.float32, torch.bfloat16) or any(g.dtype is not dtype for g in gradients):
        return False
    sizes = [p.numel() for p in params]
    return all(
        t.device == device and t.numel() == size and t.is_contiguous() and not t.is_neg()
        for tensors in (params, gradients, *others)
        for t, size in zip(tensors, sizes, strict=False)
    )


def sketches(a: Sequence[Tensor], b: Sequence[Tensor]) -> bool:
    """Whether `sketch_` can read these tensors."""
    device = b[0].device
    if device.type not in DEVICES or device.type in _broken or not installed():
        return False
    return all(
        t.device == device and t.dtype is like.dtype and t.is_contiguous() and not t.is_neg()
        for tensors, like in ((a, a[0] if a else b[0]), (b, b[0]))
        for t in tensors
    ) and {t.dtype for t in (*a[:1], b[0])} <= {torch.float32, torch.bfloat16}


def require(device: torch.device) -> None:
    """An error for `fused=True` on a device for which Triton would be needed, but is not installed."""
    if device.type in DEVICES and not installed():
        raise RuntimeError(
            f"fused=True: the fused Langevin step on {device} needs Triton, which is not installed; "
            "`pip install triton`, or leave fused unset to use plain torch operations"
        )


def give_up(device: torch.device, error: UnusableError) -> None:
    """From now on the torch path serves devices of this type; warns once."""
    if device.type not in _broken:
        _broken.add(device.type)
        logging.getLogger("entropy_sgd").warning(
            "entropy_sgd: Triton does not work on %s (%s); plain torch operations run instead: "
            "same results, but slower.", device, error,
        )  # fmt: skip


def constants(h: Langevin, weights: torch.dtype, states: torch.dtype, mean: bool) -> dict[str, bool | int]:
    """The compile-time arguments of `triton_kernels.langevin`."""
    return {
        "MOMENTUM": h.inner_momentum != 0,
        "NESTEROV": bool(h.inner_nesterov),
        "NOISE": h.noise != 0 and h.inner_lr != 0,
        "MEAN": mean,
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

    x' and its gradient may be bfloat16, with x in float32: then x' is rounded stochastically, and a first
    step leaves x as it is where x' is x rounded to the nearest.
    """
    device = x_prime[0].device
    rows: list[int] = []
    for i, p in enumerate(x_prime):
        rows += (
            p.data_ptr(),
            gradient[i].data_ptr(),
            x[i].data_ptr(),
            mu[i].data_ptr() if mu else 0,
            v[i].data_ptr() if v else 0,
            p.numel(),
            offset[i],
            parameter[i],
            first[i],
            reset[i],
        )
    states = (*mu, *v)
    flags = constants(h, x_prime[0].dtype, states[0].dtype if states else torch.float32, bool(mu))
    shards = [(s, p.numel()) for s, p in zip(offset, x_prime, strict=True)]
    sums = _launch("langevin", rows, shards, device,
        (_signed(seed), _signed(seed >> 32), _signed(t), _signed(l),
         float(h.gamma), float(h.weight_decay), float(h.inner_lr), float(h.inner_momentum),
         sqrt(h.inner_lr) * h.noise, float(h.alpha), -1.0 if maximize else 1.0),
        flags,
    )  # fmt: skip
    return sums[:, 0], sums[:, 1]


def outer_step_(
    h: Descent,
    p: Sequence[Tensor],
    x: Sequence[Tensor],
    mu: Sequence[Tensor],
    buffer: Sequence[Tensor],
    fresh: Sequence[bool],
) -> Tensor:
    """kernel_outer.outer_step_ on a device; the sums stay there. With bfloat16 `p`, `x` receives x too."""
    rows: list[int] = []
    for i, q in enumerate(p):
        rows += (q.data_ptr(), 0, x[i].data_ptr(), mu[i].data_ptr() if mu else 0)
        rows += (buffer[i].data_ptr() if buffer else 0, q.numel(), 0, 0, fresh[i], 0)
    flags = {
        "MOMENTUM": bool(buffer),
        "NESTEROV": h.nesterov,
        "MEAN": bool(mu),
        "HALF_STATE": bool(mu) and mu[0].dtype is torch.bfloat16,
        "HALF_WEIGHTS": p[0].dtype is torch.bfloat16,
        "SIZE": TILE * TILES,
    }
    values = (float(h.lr), float(h.momentum), 1.0 - h.dampening, float(h.weight_decay), float(h.scale))
    return _launch("outer", rows, [(0, q.numel()) for q in p], p[0].device, values, flags)[:, 0]


def sketch_(
    sketch: Tensor,
    a: Sequence[Tensor],
    b: Sequence[Tensor],
    scales: tuple[float, float],
    spans: Sequence[tuple[int, int, int]],
    seed: int,
    t: int,
) -> Tensor:
    """sketch.add_ on a device, for float32 and bfloat16."""
    rows: list[int] = []
    for i, (parameter, start, numel) in enumerate(spans):
        rows += (a[i].data_ptr() if a else 0, b[i].data_ptr(), numel, start, parameter)
    flags = {
        "SUM": bool(a),
        "HALF_A": bool(a) and a[0].dtype is torch.bfloat16,
        "HALF_B": b[0].dtype is torch.bfloat16,
        "TILES": TILES,
        "BUCKETS": len(sketch),
    }
    shards = [(start, numel) for _, start, numel in spans]
    values = (_signed(seed), _signed(seed >> 32), _signed(t), *map(float, scales))
    return _launch("sketch", rows, shards, b[0].device, values, flags, sketch)[:, 0].sum()


def _launch(
    name: str,
    rows: list[int],
    shards: list[tuple[int, int]],
    device: torch.device,
    values: tuple[float, ...],
    flags: dict[str, Any],
    *outputs: Tensor,
) -> Tensor:
    """Runs a kernel on all blocks of all tensors and returns its two sums for each tensor, in float64."""
    try:
        kernels: Any = importlib.import_module("entropy_sgd.optim.triton_kernels")
    except Exception as error:
        raise UnusableError(f"{type(error).__name__}: {error}") from error
    blocks, ends = _blocks(tuple(shards), device)
    totals = torch.zeros(len(shards), 2, dtype=torch.float64, device=device)
    if not len(blocks):
        return totals
    sums = torch.empty(len(blocks), 2, dtype=torch.float32, device=device)
    on_device = nullcontext() if device.type == "cpu" else torch.get_device_module(device).device(device)
    with on_device:
        table = _table(tuple(rows), device)
        proof = (name, device, *flags.values())
        try:
            if proof not in _proven:  # the harmless kernel first: if one fails, nothing is half done
                kernels.by_tensor[(len(shards),)](sums, ends, totals, WIDTH=WIDTH)
            getattr(kernels, name)[(len(blocks),)](table, blocks, *outputs, sums, *values, **flags, **OPTIONS)
        except Exception as error:  # whatever the compilers below Triton raise
            if proof in _proven:
                raise
            raise UnusableError(f"{type(error).__name__}: {error}") from error
        _proven.add(proof)
        kernels.by_tensor[(len(shards),)](sums, ends, totals, WIDTH=WIDTH)
    return totals


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
    """For each block its tensor and its number in it, (blocks, 2); where each tensor's blocks begin."""
    size = TILE * TILES
    counts = torch.tensor([-(-(start % size + n) // size) if n else 0 for start, n in shards])
    ends = torch.cat([torch.zeros(1, dtype=torch.int64), counts.cumsum(0)])
    owner = torch.repeat_interleave(torch.arange(len(shards)), counts)
    number = torch.arange(int(ends[-1])) - ends[owner]
    return torch.stack([owner, number], 1).to(torch.int32).to(device), ends.to(torch.int32).to(device)
