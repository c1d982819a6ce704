"""The compiled Langevin step and noise (kernel.c), through ctypes; absent where there was no C compiler.

It handles contiguous float32 tensors on the CPU and draws the same noise as noise.py, bit for bit. Everything
else, and every machine without it, uses the torch path.
"""

from __future__ import annotations

import ctypes
import logging
import re
from array import array
from collections.abc import Sequence
from functools import cache
from importlib.machinery import EXTENSION_SUFFIXES
from itertools import chain
from math import sqrt
from operator import attrgetter, is_
from pathlib import Path

import torch
from torch import Tensor

from entropy_sgd.optim.langevin import Langevin

VERSION = 6
FIELDS = 10  # 64-bit integers that describe a tensor in kernel.c
TILE = 64
AVX512 = 2


class Step(ctypes.Structure):
    """`Step` of kernel.c."""

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
        ("half", ctypes.c_int32),  # mu and v are bfloat16, and mu is mu - x
    )


@cache
def library() -> ctypes.CDLL | None:
    """The compiled library with the widest instruction set chosen; None (logged once) if unavailable."""
    for suffix in reversed(EXTENSION_SUFFIXES):  # `_kernel.so` first: what setup.py builds
        path = Path(__file__).with_name(f"_kernel{suffix}")
        try:
            loaded = ctypes.CDLL(str(path))
            current = loaded.entropy_version() == VERSION and loaded.entropy_size() == ctypes.sizeof(Step)
        except (OSError, AttributeError):
            continue
        if current:
            loaded.entropy_chunks.restype, loaded.entropy_dot.restype = ctypes.c_int64, ctypes.c_double
            loaded.entropy_choose(AVX512)
            return loaded
    logging.getLogger("entropy_sgd").warning(
        "entropy_sgd: the compiled Langevin step is missing (no C compiler when the package was installed?); "
        "the pure-torch path runs instead: same results, but slower. "
        "To build it: install a C compiler, then `pip install --force-reinstall --no-deps .` in a checkout."
    )
    return None


@cache
def parallel() -> ctypes.c_void_p | None:
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


PLAIN = {Tensor, torch.nn.Parameter}
_kind = attrgetter("dtype", "is_cpu", "layout")


def serves(
    params: Sequence[Tensor],
    gradients: Sequence[Tensor],
    x: Sequence[Tensor],
    states: Sequence[Sequence[Tensor]],
) -> bool:
    """Whether the kernel can work on these parameters, their gradients, x, and the lists in `states`.

    Its arrays are plain contiguous float32 in the CPU's memory, all of a parameter's size, the `states` all
    float32 or all bfloat16; users may put anything into `.data`, `.grad` and `state`.
    """
    if not params[0].is_cpu or params[0].dtype is not torch.float32 or library() is None:
        return False
    dtype = states[0][0].dtype if states else torch.float32
    if dtype is not torch.float32 and dtype is not torch.bfloat16:
        return False
    numel = list(map(Tensor.numel, params))
    return (
        plain(params, numel, torch.float32)
        and plain(gradients, numel, torch.float32)
        and plain(x, numel, torch.float32)
        and all(plain(tensors, numel, dtype) for tensors in states)
    )


def plain(tensors: Sequence[Tensor], numel: list[int], dtype: torch.dtype) -> bool:
    """Whether the kernels can work on these tensors, of these sizes."""
    return (
        set(map(type, tensors)) <= PLAIN
        and set(map(_kind, tensors)) <= {(dtype, True, torch.strided)}
        and list(map(Tensor.numel, tensors)) == numel
        and all(map(Tensor.is_contiguous, tensors))
        and not any(map(Tensor.is_neg, tensors))
    )


class Plan:
    """The arguments of kernel.c for one set of tensors, laid out once and used as long as these stay there.

    Args:
        x_prime: the inner weights.
        x: the outer weights.
        mu: the running average, or mu - x in bfloat16; empty if alpha is 1, where it is x'.
        v: the momentum, of the same dtype; empty without.
        parameter: the index of each in the optimizer; with `offset` it chooses the noise.
        offset: the place of each tensor's first element in the flattened parameter: above 0 for a shard.
    """

    def __init__(
        self,
        x_prime: Sequence[Tensor],
        x: Sequence[Tensor],
        mu: Sequence[Tensor],
        v: Sequence[Tensor],
        parameter: Sequence[int],
        offset: Sequence[int],
    ) -> None:
        self.kernel = loaded()
        self.count = count = len(x_prime)
        self.lists = (x_prime, x, mu, v)
        self.tensors = [*x_prime, *x, *mu, *v]
        self.states = self.tensors[count:]
        self.places = list(map(Tensor.data_ptr, self.tensors))
        self.numel = list(map(Tensor.numel, self.tensors))
        self.dtype = (*mu, *v)[0].dtype if mu or v else torch.float32
        rows: list[int] = []
        for i, p in enumerate(x_prime):
            mean, momentum = mu[i].data_ptr() if mu else 0, v[i].data_ptr() if v else 0
            rows += (p.data_ptr(), 0, x[i].data_ptr(), mean, momentum)
            rows += (p.numel(), offset[i], parameter[i], 0, 0)
        self.rows = array("q", rows)
        # what `rows` and `arguments` hold of the last step
        self.flags: tuple[Sequence[bool], Sequence[bool]] | None = None
        self.hyper_parameters: Langevin | None = None
        self.ends = array("q", bytes(8 * count))
        place = self.rows.buffer_info()[0]
        chunks = self.kernel.entropy_chunks(ctypes.c_void_p(place), ctypes.c_int64(count), address(self.ends))
        self.sums, self.total = array("d", bytes(16 * chunks)), array("d", bytes(16 * count))
        self.zeros = bytes(16 * count)
        self.arguments = Step(tensors=place, count=count, half=self.dtype is torch.bfloat16)
        self.pointers = (
            ctypes.byref(self.arguments),
            address(self.ends),
            address(self.sums),
            None,
            parallel(),
        )
        self.total_address = address(self.total)

    def holds(self, *lists: Sequence[Tensor]) -> bool:
        """Whether `lists` (x', x, mu, v) are the tensors it was made for, and where they were."""
        if all(map(is_, lists, self.lists)):
            tensors = self.tensors
        else:
            tensors = list(chain(*lists))
            if len(tensors) != len(self.tensors) or not all(map(is_, tensors, self.tensors)):
                return False
        if list(map(Tensor.data_ptr, tensors)) != self.places:
            return False
        return (
            list(map(Tensor.numel, tensors)) == self.numel
            and all(map(Tensor.is_contiguous, tensors[: self.count]))
            and (*lists[2], *lists[3], *tensors[:1])[0].dtype is self.dtype
        )

    def stays(self, x_prime: Sequence[Tensor]) -> bool:
        """`holds`, where the other lists are known to be the same."""
        return [*map(Tensor.data_ptr, x_prime), *map(Tensor.data_ptr, self.states)] == self.places and all(
            map(Tensor.is_contiguous, x_prime)
        )

    def reads(self, gradient: Sequence[Tensor]) -> bool:
        """Whether the kernel can read these gradients, which change from step to step."""
        return plain(gradient, self.numel[: self.count], torch.float32)

    def step(
        self,
        h: Langevin,
        gradient: Sequence[Tensor],
        first: Sequence[bool],
        reset: Sequence[bool],
        seed: int,
        t: int,
        l: int,
        maximize: bool,
    ) -> tuple[Sequence[float], Sequence[float]]:
        """See `langevin_step_`."""
        rows, s, total = self.rows, self.arguments, self.total
        rows[1::FIELDS] = array("q", map(Tensor.data_ptr, gradient))
        if self.flags != (first, reset):
            rows[8::FIELDS], rows[9::FIELDS] = array("q", first), array("q", reset)
            self.flags = (first, reset)
        s.seed, s.t, s.l = seed & 0xFFFFFFFFFFFFFFFF, t, l
        if self.hyper_parameters is not h:
            s.gamma, s.weight_decay, s.alpha = h.gamma, h.weight_decay, h.alpha
            s.inner_lr, s.inner_momentum, s.inner_nesterov = h.inner_lr, h.inner_momentum, h.inner_nesterov
            s.noise_scale = sqrt(h.inner_lr) * h.noise
            self.hyper_parameters = h
        s.sign = -1.0 if maximize else 1.0
        ctypes.memmove(self.total_address, self.zeros, len(self.zeros))
        self.kernel.entropy_run(*self.pointers, ctypes.c_int32(torch.get_num_threads()), self.total_address)
        return total[0::2], total[1::2]


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
) -> tuple[Sequence[float], Sequence[float]]:
    """langevin.langevin_step_ in one pass, with line 1 for the tensors that are `first` in their cycle.

    Args:
        h: the hyper-parameters.
        x_prime: these and the other tensors are as in `Plan`.
        gradient: at x'.
        x: the outer weights.
        mu: the average.
        v: the momentum.
        first: at the first step of a cycle: x, mu = x'.
        reset: where this is a first step, v = 0 before it; otherwise v is the last cycle's.
        parameter: the indices.
        offset: of shards.
        seed: of the noise.
        t: outer step.
        l: inner step.
        maximize: f, instead of minimizing it.

    Returns:
        for each tensor |x - x'|^2 after the step, and |grad f(x)|^2 of the first ones, elsewhere 0.
    """
    plan = Plan(x_prime, x, mu, v, parameter, offset)
    return plan.step(h, gradient, first, reset, seed, t, l, maximize)


def gaussian(spans: Sequence[tuple[int, int, int]], seed: int, t: int, l: int) -> list[Tensor]:
    """noise.gaussian on the CPU: N(0, 1) in float32 for each (parameter, start, numel)."""
    rows: list[int] = []
    whole: list[Tensor] = []
    for parameter, start, numel in spans:
        rows += (0, 0, 0, 0, 0, numel, start, parameter, 0, 0)
        size = (-(-(start + numel) // TILE) - start // TILE) * TILE
        whole.append(torch.empty(size, dtype=torch.float32, device="cpu"))  # whatever torch's defaults are
    out, tensors = array("q", [z.data_ptr() for z in whole]), array("q", rows)
    count, ends = len(spans), array("q", bytes(8 * len(spans)))
    step = Step(seed & 0xFFFFFFFFFFFFFFFF, t, l, tensors=tensors.buffer_info()[0], count=count)
    kernel, threads = loaded(), ctypes.c_int32(torch.get_num_threads())
    kernel.entropy_chunks(ctypes.c_void_p(step.tensors), ctypes.c_int64(count), address(ends))
    kernel.entropy_run(ctypes.byref(step), address(ends), None, address(out), parallel(), threads, None)
    return [z[start % TILE :][:numel] for z, (_, start, numel) in zip(whole, spans, strict=True)]


def loaded() -> ctypes.CDLL:
    """The library, which `serves` has found."""
    kernel = library()
    if kernel is None:
        raise RuntimeError("the compiled Langevin step is missing")
    return kernel


def address(values: array[int] | array[float]) -> ctypes.c_void_p:
    """Where they are in memory."""
    return ctypes.c_void_p(values.buffer_info()[0])
