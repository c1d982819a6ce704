"""The compiled Langevin step and noise (kernel.c), through ctypes; absent where there was no C compiler.

It serves contiguous float32 tensors on the CPU and draws the same noise as noise.py, bit for bit. All else,
and every machine without it, takes the torch path.
"""

from __future__ import annotations

import ctypes
import logging
import re
from array import array
from collections.abc import Sequence
from functools import cache
from importlib.machinery import EXTENSION_SUFFIXES
from math import sqrt
from pathlib import Path

import torch
from torch import Tensor

from entropy_sgd.optim.langevin import Langevin

VERSION = 1
TILE = 64
AVX512 = 2


class _Step(ctypes.Structure):
    _fields_ = (
        ("seed", ctypes.c_uint64),
        ("t", ctypes.c_uint64),
        ("l", ctypes.c_uint64),
        ("tensors", ctypes.c_void_p),
        ("count", ctypes.c_int64),
        ("gamma", ctypes.c_float),
        ("weight_decay", ctypes.c_float),
        ("inner_lr", ctypes.c_float),
        ("inner_momentum", ctypes.c_float),
        ("noise_scale", ctypes.c_float),
        ("alpha", ctypes.c_float),
        ("sign", ctypes.c_float),
        ("inner_nesterov", ctypes.c_int32),
    )


@cache
def library() -> ctypes.CDLL | None:
    """The compiled library with the widest instruction set chosen; None, said once, where there is none."""
    for suffix in EXTENSION_SUFFIXES:
        path = Path(__file__).with_name(f"_kernel{suffix}")
        if path.exists():
            loaded = ctypes.CDLL(str(path))
            loaded.entropy_chunks.restype = ctypes.c_int64
            if loaded.entropy_version() == VERSION:
                loaded.entropy_choose(AVX512)
                return loaded
    logging.getLogger("entropy_sgd").warning(
        "entropy_sgd: the compiled Langevin step is missing (no C compiler when the package was installed?); "
        "the pure-torch path runs instead: the same results, more slowly. "
        "To build it: install a C compiler, then `pip install --force-reinstall --no-deps entropy-sgd`."
    )
    return None


@cache
def _parallel() -> ctypes.c_void_p | None:
    """GOMP_parallel of the OpenMP runtime that torch runs on, or None: then one thread does the work.

    Two OpenMP runtimes in a process each keep threads that spin for work on the same cores.
    """
    try:
        maps = Path("/proc/self/maps").read_text()
    except OSError:
        return None
    for path in sorted(set(re.findall(r"/\S*lib(?:gomp|iomp5|omp)\b\S*", maps))):
        symbol = getattr(ctypes.CDLL(path), "GOMP_parallel", None)
        if symbol is not None:
            return ctypes.cast(symbol, ctypes.c_void_p)
    return None


def serves(device: torch.device, dtype: torch.dtype, lists: Sequence[Sequence[Tensor]]) -> bool:
    """Whether the kernel can work on lists of tensors of this device and dtype: plain contiguous ones."""
    if dtype is not torch.float32 or device.type != "cpu" or library() is None:
        return False
    return all(type(t) in _PLAIN and t.is_contiguous() for tensors in lists for t in tensors)


_PLAIN = (Tensor, torch.nn.Parameter)


def langevin_step_(
    h: Langevin,
    x_prime: Sequence[Tensor],
    gradient: Sequence[Tensor],
    x: Sequence[Tensor],
    mu: Sequence[Tensor],
    v: Sequence[Tensor],
    kept: Sequence[Tensor],
    first: Sequence[bool],
    parameter: Sequence[int],
    seed: int,
    t: int,
    l: int,
    maximize: bool,
) -> tuple[float, float]:
    """langevin.langevin_step_ in one pass, with line 1 for the tensors that are `first` in their cycle.

    `v` is empty without momentum; `kept`, if not empty, receives grad f(x) of the first ones.

    Returns:
        |x - x'|^2 after the step, and |grad f(x)|^2 of the first ones.
    """
    rows: list[int] = []
    for i, p in enumerate(x_prime):
        rows += (
            p.data_ptr(),
            gradient[i].data_ptr(),
            x[i].data_ptr(),
            mu[i].data_ptr(),
            v[i].data_ptr() if v else 0,
            kept[i].data_ptr() if kept else 0,
            p.numel(),
            0,
            parameter[i],
            first[i],
        )
    total = (ctypes.c_double * 2)()
    _run(rows, (seed, t, l), h, -1.0 if maximize else 1.0, None, total)
    return total[0], total[1]


def gaussian(spans: Sequence[tuple[int, int, int]], seed: int, t: int, l: int) -> list[Tensor]:
    """noise.gaussian on the CPU: N(0, 1) in float32 for each (parameter, start, numel)."""
    rows: list[int] = []
    whole: list[Tensor] = []
    for parameter, start, numel in spans:
        rows += (0, 0, 0, 0, 0, 0, numel, start, parameter, 0)
        whole.append(torch.empty((-(-(start + numel) // TILE) - start // TILE) * TILE))
    out = array("q", [z.data_ptr() for z in whole])
    _run(rows, (seed, t, l), None, 1.0, out, None)
    return [z[start % TILE :][:numel] for z, (_, start, numel) in zip(whole, spans, strict=True)]


def _run(
    rows: list[int],
    address: tuple[int, int, int],
    h: Langevin | None,
    sign: float,
    out: array[int] | None,
    total: ctypes.Array[ctypes.c_double] | None,
) -> None:
    """Lays the arguments out as kernel.c has them (ten 64-bit integers a tensor) and calls it."""
    kernel = library()
    if kernel is None:
        raise RuntimeError("the compiled Langevin step is missing")
    tensors = array("q", rows)
    count = len(rows) // 10
    seed, t, l = address
    step = _Step(seed & 0xFFFFFFFFFFFFFFFF, t, l, tensors.buffer_info()[0], count)
    if h is not None:
        step.gamma, step.weight_decay = h.gamma, h.weight_decay
        step.inner_lr, step.inner_momentum, step.inner_nesterov = (
            h.inner_lr,
            h.inner_momentum,
            h.inner_nesterov,
        )
        step.noise_scale, step.alpha, step.sign = sqrt(h.inner_lr) * h.noise, h.alpha, sign
    ends = array("q", bytes(8 * count))
    chunks = kernel.entropy_chunks(ctypes.c_void_p(step.tensors), ctypes.c_int64(count), _address(ends))
    sums = array("d", bytes(16 * chunks))
    kernel.entropy_run(
        ctypes.byref(step),
        _address(ends),
        _address(sums),
        None if out is None else _address(out),
        _parallel(),
        ctypes.c_int32(torch.get_num_threads()),
        total,
    )


def _address(values: array[int] | array[float]) -> ctypes.c_void_p:
    return ctypes.c_void_p(values.buffer_info()[0])
