"""Which of a framework's optimizers have outer weights, and how to show them."""

from __future__ import annotations

import warnings
from collections.abc import Generator, Iterable
from contextlib import contextmanager
from typing import Any

from entropy_sgd.optim import LocalEntropy


def unwrapped(optimizers: Iterable[Any]) -> list[LocalEntropy]:
    """Those of `optimizers` that have inner and outer weights, out of wrappers such as Accelerate's."""
    found: list[LocalEntropy] = []
    for optimizer in optimizers:
        while not isinstance(optimizer, LocalEntropy) and hasattr(optimizer, "optimizer"):
            optimizer = optimizer.optimizer
        if isinstance(optimizer, LocalEntropy):
            found.append(optimizer)
    return found


def show_outer(optimizer: LocalEntropy) -> None:
    """`eval()` without the warning that x is still the initial weights: `finish()` follows in time."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", r"eval\(\) before the first outer update", UserWarning)
        optimizer.eval()


@contextmanager
def outer_weights(*optimizers: Any) -> Generator[None]:
    """Shows x in place of x' and leaves everything as it was found; other optimizers are left alone."""
    inside = [o for o in unwrapped(optimizers) if not o.evaluating]
    for optimizer in inside:
        show_outer(optimizer)
    try:
        yield
    finally:
        for optimizer in inside:
            optimizer.train()
