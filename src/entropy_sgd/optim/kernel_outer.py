"""The compiled outer update and sketch (kernel_outer.h), through ctypes as in kernel.py."""

from __future__ import annotations

import ctypes
import threading
from array import array
from collections.abc import Sequence

import torch
from torch import Tensor

from entropy_sgd.optim import kernel
from entropy_sgd.optim.descent import Descent
from entropy_sgd.optim.kernel import TILE, Step, address, loaded, parallel

PAIR = 5  # 64-bit integers that describe a pair of tensors in kernel.c


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
    h: Descent,
    p: Sequence[Tensor],
    x: Sequence[Tensor],
    mu: Sequence[Tensor],
    buffer: Sequence[Tensor],
    fresh: Sequence[bool],
) -> Sequence[float]:
    """Line 7 in one pass: p = x after a step of torch.optim.SGD from x.

    Args:
        h: the hyper-parameters.
        p: the model's parameters; without `mu`, which is x' then, they hold x'.
        x: the outer weights; not written to.
        mu: the average, or mu - x in bfloat16; may be empty.
        buffer: SGD's momentum, float32; empty without.
        fresh: where it has no content yet.

    Returns:
        |x - mu|^2 of each tensor, before scaling.
    """
    rows: list[int] = []
    for i, q in enumerate(p):
        place = buffer[i].data_ptr() if buffer else 0
        rows += (q.data_ptr(), 0, x[i].data_ptr(), mu[i].data_ptr() if mu else 0, place)
        rows += (q.numel(), 0, 0, fresh[i], 0)
    half = bool(mu) and mu[0].dtype is torch.bfloat16
    return _Update(array("q", rows), half).run(h)


class _Update:
    """Line 7 on the tensors in `rows`, as `Tensor` of kernel.c; their means are bfloat16 if `half`."""

    def __init__(self, rows: array[int], half: bool) -> None:
        self.rows, count = rows, len(rows) // kernel.FIELDS
        self._arguments = _Outer(rows.buffer_info()[0], count, half=half)
        self._kernel, self._ends = loaded(), array("q", bytes(8 * count))
        place = ctypes.c_void_p(self._arguments.tensors)
        chunks = self._kernel.entropy_chunks(place, ctypes.c_int64(count), address(self._ends))
        self._sums, self._count = array("d", bytes(16 * chunks)), count

    def run(self, h: Descent) -> Sequence[float]:
        """See `outer_step_`."""
        outer = self._arguments
        outer.lr, outer.momentum, outer.keep = h.lr, h.momentum, 1 - h.dampening
        outer.weight_decay, outer.scale, outer.nesterov = h.weight_decay, h.scale, h.nesterov
        total = array("d", bytes(16 * self._count))
        threads = ctypes.c_int32(torch.get_num_threads())
        self._kernel.entropy_outer(
            ctypes.byref(outer), address(self._ends), address(self._sums), parallel(), threads, address(total)
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
    return _Pairs(array("q", rows), b[0].dtype is torch.bfloat16).add_(sketch, scales, seed, t)


def dot(a: Tensor, b: Tensor) -> float:
    """The inner product of two sketches in the CPU's memory, float32."""
    product: float = loaded().entropy_dot(ctypes.c_void_p(a.data_ptr()), ctypes.c_void_p(b.data_ptr()))
    return product


class _Pairs:
    """Tensors to be sketched, in `rows` as `Pair` of kernel.c; the second of a pair is bfloat16 if `half`."""

    def __init__(self, rows: array[int], half: bool) -> None:
        self.rows, count = rows, len(rows) // PAIR
        self._arguments = _Sketch(pairs=rows.buffer_info()[0], count=count, half=half)
        self._ends, self._kernel = array("q", bytes(8 * count)), loaded()

    def add_(self, sketch: Tensor, scales: tuple[float, float], seed: int, t: int) -> float:
        """See `sketch_`."""
        arguments = self._arguments
        arguments.seed, arguments.t = seed & 0xFFFFFFFFFFFFFFFF, t
        arguments.a_scale, arguments.b_scale = scales
        square = ctypes.c_double(0.0)
        self._kernel.entropy_sketch(
            ctypes.byref(arguments),
            address(self._ends),
            ctypes.c_void_p(_parts.room.data_ptr()),
            parallel(),
            ctypes.c_int32(torch.get_num_threads()),
            ctypes.c_void_p(sketch.data_ptr()),
            ctypes.byref(square),
        )
        return square.value


class Ends:
    """Both ends of a cycle on the tensors of a `kernel.Plan`, laid out once: the two sketches, and line 7."""

    def __init__(self, plan: kernel.Plan) -> None:
        self.plan = plan
        mean = bool(plan.lists[2])
        half = mean and plan.dtype is torch.bfloat16
        at_x, away, update = array("q"), array("q"), array("q")
        for i in range(plan.count):
            x_prime, _, x, mu, _, numel, start, parameter, *_ = plan.rows[
                i * kernel.FIELDS : (i + 1) * kernel.FIELDS
            ]
            at_x.extend((0, x_prime, numel, start, parameter))
            away.extend((0 if half else x, mu if mean else x_prime, numel, start, parameter))
            update.extend((x_prime, 0, x, mu, 0, numel, 0, 0, 0, 0))
        self._at_x, self._away = _Pairs(at_x, half=False), _Pairs(away, half)
        self._update = _Update(update, half)

    def add_gradient_(
        self, sketch: Tensor, gradient: Sequence[Tensor], scales: tuple[float, float], seed: int, t: int
    ) -> None:
        """Adds `scales[0]` gradient + `scales[1]` x', which the plan `reads`, to the sketch."""
        self._at_x.rows[0::PAIR] = array("q", map(Tensor.data_ptr, gradient))
        self._at_x.add_(sketch, scales, seed, t)

    def add_displacement_(self, sketch: Tensor, seed: int, t: int) -> float:
        """Adds x - mu to the sketch; returns |x - mu|^2."""
        return self._away.add_(sketch, (1.0, -1.0), seed, t)

    def step_(self, h: Descent, buffer: Sequence[Tensor], fresh: Sequence[bool]) -> Sequence[float]:
        """See `outer_step_`."""
        rows, none = self._update.rows, [0] * self.plan.count
        rows[4 :: kernel.FIELDS] = array("q", map(Tensor.data_ptr, buffer) if buffer else none)
        rows[8 :: kernel.FIELDS] = array("q", fresh if buffer else none)
        return self._update.run(h)


class _Parts(threading.local):
    """Room for the sketches of the parts that threads work on: SLABS of them, see kernel.c.

    Each thread of Python has its own: ctypes lets them run the kernel side by side.
    """

    def __init__(self) -> None:
        self.room = torch.empty(64 * (4096 + TILE + 2), dtype=torch.float32, device="cpu")


_parts = _Parts()
