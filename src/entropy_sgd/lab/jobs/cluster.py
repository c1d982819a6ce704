"""A Dask cluster as a `concurrent.futures.Executor`."""

from __future__ import annotations

from collections.abc import Generator
from concurrent import futures
from contextlib import contextmanager
from typing import Any

from entropy_sgd import extras
from entropy_sgd.lab import LabError

PATIENCE = 30
"""Seconds to wait for the scheduler."""


@contextmanager
def executor(address: str) -> Generator[tuple[futures.Executor, int]]:
    """The workers that the scheduler at `address` has, and how many runs they make at once.

    A worker that dies is noticed by Dask, which gives its runs to others; they go on from their checkpoints.
    """
    try:
        from distributed import Client
    except ImportError as error:
        raise LabError(f"--dask needs the package distributed: {extras.hint('lab,cluster')}") from error
    try:
        client: Any = Client(address, timeout=PATIENCE)
    except (OSError, TimeoutError, ValueError) as error:
        raise LabError(f"no Dask scheduler answers at {address!r}: {error}") from error
    try:
        slots = sum(client.nthreads().values())
        if not slots:
            raise LabError(f"the Dask scheduler at {address!r} has no workers: start some with dask worker")
        with client.get_executor(pure=False) as pool:
            yield pool, slots
    finally:
        client.close()
