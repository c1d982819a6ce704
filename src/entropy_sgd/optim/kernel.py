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

VERSION = 3
FIELDS = 11  # 64-bit integers that describe a tensor in kernel.c
TILE = 64
AVX512 = 2


class _Step(ctypes.Structure):
    _fields_ = (
        ("seed", ctypes.c_uint64),
        ("t", ctypes.c_uint64),
        ("l", ctypes.c_uint64),
        ("keys", ctypes.c_uint64 * 14),  # two a round, filled in by the kernel
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
    for suffix in reversed(EXTENSION_SUFFIXES):  # `_kernel.so` first: what setup.py builds
        path = Path(__file__).with_name(f"_kernel{suffix}")
        try:
            loaded = ctypes.CDLL(str(path))
            current = loaded.entropy_version() == VERSION and loaded.entropy_size() == ctypes.sizeof(_Step)
        except (OSError, AttributeError):
            continue
        if current:
            loaded.entropy_chunks.restype = ctypes.c_int64
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
        lines = Path("/proc/self/maps").read_text().splitlines()
    except OSError:
        return None
    mapped = {line.split(maxsplit=5)[5] for line in lines if "/" in line}
    runtimes = sorted(path for path in mapped if re.search(r"/lib(gomp|iomp5|omp)\b[^/]*$", path))
    # Other packages bring runtimes of their own; torch's lies in its own folder or is the system's.
    runtimes.sort(key=lambda path: str(Path(torch.__file__).resolve().parent) not in path)
    for path in runtimes:
        try:
            return ctypes.cast(ctypes.CDLL(path).GOMP_parallel, ctypes.c_void_p)
        except (OSError, AttributeError):
            continue
    return None


def serves(params: Sequence[Tensor], gradients: Sequence[Tensor], others: Sequence[Sequence[Tensor]]) -> bool:
    """Whether the kernel can work on these parameters, their gradients and lists of as many tensors.

    Its arrays are plain contiguous float32 in the CPU's memory, all of a parameter's size; users may put
    anything into `.data`, `.grad` and `state`.
    """
    if not params[0].is_cpu or params[0].dtype is not torch.float32 or library() is None:
        return False
    if any(g.is_neg() for g in gradients):
        return False
    float32, sizes = torch.float32, [p.numel() for p in params]
    return all(
        type(t) in _PLAIN and t.dtype is float32 and t.is_cpu and t.numel() == size and t.is_contiguous()
        for tensors in (params, gradients, *others)
        for t, size in zip(tensors, sizes, strict=False)
    )


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
    reset: Sequence[bool],
    parameter: Sequence[int],
    offset: Sequence[int],
    seed: int,
    t: int,
    l: int,
    maximize: bool,
) -> tuple[Sequence[float], Sequence[float]]:
    """langevin.langevin_step_ in one pass, with line 1 for the tensors that are `first` in their cycle.

    Args:
        h: the hyper-parameters.
        x_prime: the inner weights.
        gradient: at them.
        x: the outer weights.
        mu: the running average.
        v: the momentum; empty without.
        kept: receives grad f(x) of the first ones; may be empty.
        first: at the first step of a cycle: x, mu = x'.
        reset: where this is a first step, v = 0 before it; otherwise v is the last cycle's.
        parameter: the index of each in the optimizer; with `offset` it chooses the noise.
        offset: the place of each tensor's first element in the flattened parameter: above 0 for a shard.
        seed: of the noise.
        t: outer step.
        l: inner step.
        maximize: f, instead of minimizing it.

    Returns:
        for each tensor |x - x'|^2 after the step, and |grad f(x)|^2 of the first ones, elsewhere 0.
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
            offset[i],
            parameter[i],
            first[i],
            reset[i],
        )
    total = array("d", bytes(16 * len(x_prime)))
    _run(rows, (seed, t, l), h, -1.0 if maximize else 1.0, None, total)
    return total[0::2], total[1::2]


def gaussian(spans: Sequence[tuple[int, int, int]], seed: int, t: int, l: int) -> list[Tensor]:
    """noise.gaussian on the CPU: N(0, 1) in float32 for each (parameter, start, numel)."""
    rows: list[int] = []
    whole: list[Tensor] = []
    for parameter, start, numel in spans:
        rows += (0, 0, 0, 0, 0, 0, numel, start, parameter, 0, 0)
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
    total: array[float] | None,
) -> None:
    """Lays the arguments out as kernel.c has them and calls it."""
    kernel = library()
    if kernel is None:
        raise RuntimeError("the compiled Langevin step is missing")
    tensors = array("q", rows)
    count = len(rows) // FIELDS
    seed, t, l = address
    step = _Step(seed & 0xFFFFFFFFFFFFFFFF, t, l, tensors=tensors.buffer_info()[0], count=count)
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
        None if total is None else _address(total),
    )


def _address(values: array[int] | array[float]) -> ctypes.c_void_p:
    return ctypes.c_void_p(values.buffer_info()[0])
