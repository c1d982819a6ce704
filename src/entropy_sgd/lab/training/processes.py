"""The processes that train one network together, as torchrun starts them; or the only one.

Every rank holds the same weights and takes its own part of each mini-batch; DistributedDataParallel averages
the gradients. Only the lead, rank 0, shows, evaluates and writes anything. An error on one
rank must become an error on all, or the others would wait for it forever: what can fail is done inside
`together` or `first`.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Generator
from contextlib import contextmanager, suppress
from types import TracebackType
from typing import Any, NoReturn, Self, TypeVar, cast

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

from entropy_sgd.lab import LabError

T = TypeVar("T")

EXPECTED = (LabError, OSError)
"""Errors with a message for the user. Any other ends its process, and torchrun then ends the rest."""


def leave(code: int) -> NoReturn:
    """End a process that was one of several, at once, with everything written.

    A thread of gloo may still hold the last tensors it has sent, and abort the process when it lets go of
    them while Python cleans up: one run in ten then ended with SIGABRT, when all its work was done.
    """
    for stream in (sys.stdout, sys.stderr):
        with suppress(OSError, ValueError, AttributeError):  # it is closed, or nobody reads it any more
            stream.flush()
    os._exit(code)


class Processes:
    """`size` processes, of which this is number `rank`; without arguments, one process on its own."""

    def __init__(self, rank: int = 0, size: int = 1, local_rank: int | None = None) -> None:
        self.rank, self.size = rank, size
        self._local_rank = local_rank

    @classmethod
    def from_environment(cls) -> Processes:
        """The group that torchrun's variables describe; one process where there are none."""
        names = ("RANK", "WORLD_SIZE", "LOCAL_RANK")
        if not all(name in os.environ for name in names):
            return cls()
        try:
            rank, size, local_rank = (int(os.environ[name]) for name in names)
        except ValueError as error:
            given = ", ".join(f"{name}={os.environ[name]!r}" for name in names)
            raise LabError(f"the variables of torchrun must be whole numbers, got {given}") from error
        return cls(rank, size, local_rank) if size > 1 else cls()

    @property
    def lead(self) -> bool:
        """Whether this process speaks and writes for all."""
        return self.rank == 0

    def __enter__(self) -> Self:
        if self.size > 1:
            # Objects and flags travel between the CPUs, gradients between the devices they are on.
            backend = "cpu:gloo,cuda:nccl" if torch.cuda.is_available() else "gloo"
            try:
                dist.init_process_group(backend)
            except (RuntimeError, ValueError) as error:
                raise LabError(f"rank {self.rank} cannot join the {self.size} processes: {error}") from error
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self.size == 1:
            return
        shared = error is None or isinstance(error, EXPECTED)
        if shared:  # when one process fails, torchrun ends the others: the lead must be done before
            self.max(0)
        dist.destroy_process_group()
        if error is not None and shared and not self.lead:
            leave(0)  # the lead has the same error, prints it and ends with its code

    def device(self, name: str) -> torch.device:
        """The device called `name`; "auto" takes a GPU if there is one, and each rank has its own."""
        if name == "auto":
            name = "cuda" if torch.cuda.is_available() else "cpu"
        if self._local_rank is not None and name.startswith("cuda"):
            if name != "cuda":
                raise LabError(f"under torchrun device must be auto, cpu or cuda, got {name!r}")
            name = f"cuda:{self._local_rank}"
        try:
            torch.empty(0, device=name)
        except (RuntimeError, AssertionError) as error:
            raise LabError(f"device {name!r} cannot be used: {str(error).partition(chr(10))[0]}") from error
        device = torch.device(name)
        if self._local_rank is not None and device.type == "cuda":
            torch.cuda.set_device(device)
        return device

    def parallel(self, model: nn.Module) -> nn.Module:
        """`model` for the forward pass of training: its gradients will be the means over the group."""
        if self.size == 1:
            return model
        device = next(model.parameters()).device
        return DistributedDataParallel(model, device_ids=[device] if device.type == "cuda" else None)

    def mean(self, value: float) -> float:
        """The mean over the ranks; not finite if it is not on any of them."""
        return value if self.size == 1 else self._reduce(dist.ReduceOp.SUM, value)[0] / self.size

    def max(self, *values: float) -> list[float]:
        """The greatest of each value over the ranks."""
        return list(values) if self.size == 1 else self._reduce(dist.ReduceOp.MAX, *values)

    def _reduce(self, operation: dist.ReduceOp.RedOpType, *values: float) -> list[float]:
        tensor = torch.tensor(values, dtype=torch.float64)
        dist.all_reduce(tensor, operation)
        return cast("list[float]", tensor.tolist())

    def gather(self, value: T) -> list[T]:
        """The values of all ranks, in their order, on every rank."""
        if self.size == 1:
            return [value]
        values: list[Any] = [None] * self.size
        dist.all_gather_object(values, value)
        return values

    @contextmanager
    def together(self) -> Generator[None]:
        """Every rank does what is inside; where it fails on one, all raise the error of the first of them."""
        if self.size == 1:
            yield
            return
        failed: Exception | None = None
        try:
            yield
        except EXPECTED as error:
            failed = error
        for error in self.gather(failed):
            if error is not None:
                raise error

    def first(self, work: Callable[[], T]) -> T:
        """The lead does the work, and all have its result, or raise its error."""
        if self.size == 1:
            return work()
        outcome: list[Any] = [None, None]
        if self.lead:
            try:
                outcome[0] = work()
            except EXPECTED as error:
                outcome[1] = error
        dist.broadcast_object_list(outcome)
        if outcome[1] is not None:
            raise outcome[1]
        return cast("T", outcome[0])
