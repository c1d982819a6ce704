"""Data in memory: images with their classes, and text as a stream of tokens."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:  # keeps `entropy_sgd.lab.data` importable without torch
    from torch import Tensor


@dataclass(frozen=True)
class Split:
    """Samples and their classes."""

    inputs: Tensor
    """float32, (N, C, H, W)"""
    targets: Tensor
    """int64, (N,)"""

    def __len__(self) -> int:
        return len(self.targets)

    def take(self, index: Tensor) -> tuple[Tensor, Tensor]:
        """The samples of these numbers, as one batch."""
        index = index.to(self.inputs.device)
        return self.inputs.index_select(0, index), self.targets.index_select(0, index)


@dataclass(frozen=True)
class Images:
    """Images to classify."""

    name: str
    train: Split
    validation: Split | None
    """Cut from the publisher's training set; None when all of it is trained on (`final=True`)."""
    classes: int
    read_test: Callable[[], Split] = field(repr=False)

    def test(self) -> Split:
        """The test set, read from disk now: once, at the end."""
        return self.read_test()


@dataclass(frozen=True)
class Text:
    """A text to predict, token by token."""

    name: str
    train: Tensor
    """int64, (N,): indices into the vocabulary"""
    validation: Tensor
    vocabulary: list[str] | list[int]
    """The words, or the byte values, that the tokens stand for."""
    read_test: Callable[[], Tensor] = field(repr=False)

    def test(self) -> Tensor:
        """The test set, read from disk now: once, at the end."""
        return self.read_test()
