"""Reading ``batches``: every pass checked, every tensor in one type, every batch with its size."""

from __future__ import annotations

from collections.abc import Generator, Iterable
from typing import Any, cast

import torch
from torch import Tensor

Batches = Iterable[tuple[Any, Any]]


class Samples:
    """The (inputs, targets) pairs of ``batches``, as often as wanted, each with its size.

    The size of a batch is the number of entries of its targets: that many terms (or the same multiple of them
    in every batch) enter a mean over it, be they labels, pixels or characters.
    """

    def __init__(self, batches: Batches, device: torch.device, dtype: torch.dtype):
        if iter(batches) is batches:
            raise TypeError(
                f"batches is a one-shot iterator ({type(batches).__name__}), but it is read many times: "
                "give a list or a DataLoader"
            )
        self._batches, self._device, self._dtype = batches, device, dtype
        self._total: int | None = None
        self.total = sum(size for _, _, size in self)
        if not self.total:
            raise ValueError("batches is empty: give at least one (inputs, targets) pair")
        self._total = self.total

    def __iter__(self) -> Generator[tuple[Any, Any, int]]:
        total = 0
        for batch in cast(Iterable[Any], self._batches):
            if not isinstance(batch, tuple | list) or len(cast(list[Any], batch)) != 2:
                raise TypeError(f"batches must yield (inputs, targets) pairs, got {describe(batch)}")
            inputs, targets = cast(tuple[Any, Any], batch)
            size = _size(inputs, targets)
            total += size
            yield self.cast(inputs), self.cast(targets), size
        if self._total is not None and total != self._total:
            raise ValueError(
                f"batches must hold the same samples in every pass: {self._total} in the first, {total} now"
            )

    def cast(self, value: Any) -> Any:
        """``value`` on the device; floating-point tensors, also inside containers, in ``dtype``."""
        if isinstance(value, Tensor):
            return value.detach().to(self._device, self._dtype if value.is_floating_point() else value.dtype)
        if isinstance(value, tuple | list):
            entries = [self.cast(entry) for entry in cast(list[Any], value)]
            return entries if isinstance(value, list) else tuple(entries)
        if isinstance(value, dict):
            return {key: self.cast(entry) for key, entry in cast(dict[Any, Any], value).items()}
        return value


def describe(value: Any) -> str:
    """What came, for an error message."""
    return (
        f"a tensor of shape {tuple(value.shape)}"
        if isinstance(value, Tensor)
        else f"a {type(value).__name__}"
    )


def _size(inputs: Any, targets: Any) -> int:
    if isinstance(targets, Tensor):
        size = targets.numel()
    elif isinstance(inputs, Tensor):
        size = len(inputs)
    else:
        raise TypeError(f"batches: no tensor among {describe(inputs)} and {describe(targets)}")
    if not size:
        raise ValueError("batches holds a batch without samples")
    return size
