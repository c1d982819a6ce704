"""Lookahead (Zhang et al. 2019) around SGD: `pytorch_optimizer.Lookahead`.

    after every k steps of SGD on x:    y = y + alpha (x - y),  x = y

The slow weights y are judged. The library computes this as printed.
"""

from __future__ import annotations

from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from entropy_sgd.lab.methods import sgd
from entropy_sgd.lab.methods.base import Hints, Method, Range, peer

if TYPE_CHECKING:
    from torch import nn


@dataclass(frozen=True)
class LookaheadOptions(sgd.SGDOptions):
    """Lookahead around SGD: slow weights follow the fast ones."""

    k: int = 5
    """Steps of SGD between two updates of the slow weights."""
    alpha: float = 0.5
    """How far the slow weights move towards the fast ones."""


class Lookahead(Method[LookaheadOptions]):
    """Slow weights that follow SGD."""

    name = "lookahead"
    options = LookaheadOptions
    search = {**sgd.SEARCH, "k": Range(2, 40, log=True, integer=True), "alpha": Range(0.1, 1.0)}

    def defaults(self, hints: Hints) -> LookaheadOptions:
        return LookaheadOptions.hinted(hints)

    def build(self, options: LookaheadOptions, model: nn.Module, *, seed: int, steps: int) -> Any:
        import torch

        kind = peer("pytorch_optimizer", "Lookahead", self.name)
        fast = torch.optim.SGD(model.parameters(), **options.keywords())
        return kind(fast, k=options.k, alpha=options.alpha)

    def notes(self, options: LookaheadOptions, steps: int) -> list[str]:
        """A run that never moves the slow weights."""
        return [] if steps >= options.k else [f"{steps} steps are less than k, so the slow weights stay"]

    @contextmanager
    def judged(self, optimizer: Any) -> Generator[None]:
        """The slow weights."""
        optimizer.backup_and_load_cache()
        try:
            yield
        finally:
            optimizer.clear_and_load_backup()


METHOD = Lookahead()
