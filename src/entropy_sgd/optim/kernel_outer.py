"""The compiled outer update and sketch (kernel_outer.h), through ctypes as in kernel.py."""

from __future__ import annotations

import ctypes
from array import array
from collections.abc import Sequence
from functools import cache

import torch
from torch import Tensor

from entropy_sgd.optim import kernel
from entropy_sgd.optim.kernel import TILE, Step, address, loaded, parallel


class _Outer(ctypes.Structure):
    _fields_ = (
        ("tensors", ctypes.c_void_p),
        ("count", ctypes.c_int64),
        ("lr", ctypes.c_float),
        ("momentum", ctypes.c_float),
        ("keep", ctypes.c_float),
        ("weight_decay", ctypes.c_float),
        ("scale", ctypes.c_float),
        ("nesterov", ctypes.c_int32),
        ("half", ctypes.c_int32),
    )


class _Sketch(ctypes.Structure):
    _fields_ = (
        *Step._fields_[:4],
        ("pairs", ctypes.c_void_p),
        ("count", ctypes.c_int64),
        ("a_scale", ctypes.c_float),
        ("b_scale", ctypes.c_float),
        ("half", ctypes.c_int32),
    )


def outer_step_(
    p: Sequence[Tensor],
    x: Sequence[Tensor],
    mu: Sequence[Tensor],
    buffer: Sequence[Tensor],
    fresh: Sequence[bool],
    *,
    lr: float,
    momentum: float,
    dampening: float,
    weight_decay: float,
    nesterov: bool,
    scale: float,
) -> Sequence[float]:
    """Line 7 in one pass: p = x after a step of torch.optim.SGD from x with the gradient `scale` (x - mu).

    Args:
        p: the model's parameters; without `mu`, which is x' then, they hold x'.
        x: the outer weights; not written to.
        mu: the average, or mu - x in bfloat16; may be empty.
        buffer: SGD's momentum, float32; empty without.
        fresh: where it has no content yet.
        lr: of torch.optim.SGD, and so are the following.
        momentum: `buffer` is empty if it is 0.
        dampening: of the momentum.
        weight_decay: of the outer update.
        nesterov: Nesterov's momentum.
        scale: of x - mu; negative to maximize.

    Returns:
        |x - mu|^2 of each tensor, before scaling.
    """
    rows: list[int] = []
    for i, q in enumerate(p):
        rows += (
            q.data_ptr(),
            0,
            x[i].data_ptr(),
            mu[i].data_ptr() if mu else 0,
            buffer[i].data_ptr() if buffer else 0,
            q.numel(),
            0,
            0,
            fresh[i],
            0,
        )
    tensors = array("q", rows)
    count = len(p)
    half = bool(mu) and mu[0].dtype is torch.bfloat16
    outer = _Outer(
        tensors.buffer_info()[0], count, lr, momentum, 1 - dampening, weight_decay, scale, nesterov, half
    )
    ends = array("q", bytes(8 * count))
    library = loaded()
    chunks = library.entropy_chunks(ctypes.c_void_p(outer.tensors), ctypes.c_int64(count), address(ends))
    sums, total = array("d", bytes(16 * chunks)), array("d", bytes(16 * count))
    threads = ctypes.c_int32(torch.get_num_threads())
    library.entropy_outer(
        ctypes.byref(outer), address(ends), address(sums), parallel(), threads, address(total)
    )
    return total[0::2]


def sketches(a: Sequence[Tensor], b: Sequence[Tensor]) -> bool:
    """Whether `sketch_` can read these tensors."""
    dtype = b[0].dtype
    if not (b[0].is_cpu and dtype in (torch.float32, torch.bfloat16) and kernel.library() is not None):
        return False
    numel = list(map(Tensor.numel, b))
    return kernel.plain(b, numel, dtype) and (not a or kernel.plain(a, numel, torch.float32))


def sketch_(
    sketch: Tensor,
    a: Sequence[Tensor],
    b: Sequence[Tensor],
    scales: tuple[float, float],
    spans: Sequence[tuple[int, int, int]],
    seed: int,
    t: int,
) -> float:
    """sketch.add_ on the CPU: see there."""
    rows: list[int] = []
    for i, (parameter, start, numel) in enumerate(spans):
        rows += (a[i].data_ptr() if a else 0, b[i].data_ptr(), numel, start, parameter)
    pairs = array("q", rows)
    arguments = _Sketch(seed & 0xFFFFFFFFFFFFFFFF, t, 0, pairs=pairs.buffer_info()[0], count=len(spans))
    arguments.a_scale, arguments.b_scale = scales
    arguments.half = b[0].dtype is torch.bfloat16
    ends = array("q", bytes(8 * len(spans)))
    square = ctypes.c_double(0.0)
    loaded().entropy_sketch(
        ctypes.byref(arguments),
        address(ends),
        ctypes.c_void_p(_parts().data_ptr()),
        parallel(),
        ctypes.c_int32(torch.get_num_threads()),
        ctypes.c_void_p(sketch.data_ptr()),
        ctypes.byref(square),
    )
    return square.value


@cache
def _parts() -> Tensor:
    """Room for the sketches of the parts that threads work on: SLABS of them, see kernel.c."""
    return torch.empty(64 * (4096 + TILE + 2), dtype=torch.float32, device="cpu")
