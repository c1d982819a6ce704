"""What a task offers, whatever it is made of.

`model` is the network itself, which is judged and kept; `forward` is what a training batch goes through, the
network or a wrapper that averages gradients over several processes or has been compiled. `batch` counts the
samples (or tokens) that one gradient of all processes together sees.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal, Protocol

import torch
from torch import Tensor, nn

from entropy_sgd.lab import LabError, models
from entropy_sgd.lab.recipes import Recipe

Part = Literal["training", "validation", "test"]

EVALUATION_BATCH = 200
"""Samples in a batch that is judged or that batch statistics are taken from. At 500, what `lenet` computes no
longer fits the caches, and an image takes twice as long."""


@dataclass(frozen=True)
class Share:
    """One process's part of each batch: that of number `rank` of `size`."""

    rank: int = 0
    size: int = 1


@dataclass(frozen=True)
class Measured:
    """What the measurements of `entropy_sgd.landscape` take: a mean loss and training samples, one by one."""

    loss_fn: Callable[[Any, Any], Tensor]
    count: int
    take: Callable[[Any], tuple[Any, Any]]
    """Inputs and targets of the samples of these indices."""


class Task(Protocol):
    """A network, its data, its loss and its metric."""

    model: nn.Module
    forward: Callable[..., Any]
    batch: int
    size: int
    scale: float
    """The gradient is that of `scale` times the loss."""
    validated: bool
    """Whether there are validation data."""

    def draw(self) -> Any:
        """The next training batch, or this process's share of it."""
        ...

    def loss(self, batch: Any) -> Tensor:
        """The mean loss of a batch; a second call on the same batch changes nothing the next one sees."""
        ...

    def statistics_batches(self) -> list[Any]:
        """Training inputs to take batch statistics from."""
        ...

    def judge(self, part: Part) -> dict[str, float]:
        """Loss and metric at the weights that the model holds."""
        ...

    def measured(self) -> Measured:
        """The training data for measurements."""
        ...

    def state_dict(self) -> dict[str, Any]:
        """What the next batch depends on."""
        ...

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Continue from a `state_dict`."""
        ...

    def begin_pass_after(self, state: dict[str, Any]) -> None:
        """Start the pass over the data that follows the one of a `state_dict` of other shares."""
        ...


def spread(size: int, count: int | None) -> Tensor | slice:
    """`count` of `size` indices, evenly spaced: files are often sorted by class."""
    return slice(None) if count is None or count >= size else torch.arange(count) * size // count


def whole_batches(batches: list[Any], length: Callable[[Any], int]) -> list[Any]:
    """Without a shorter last batch: it would weigh as much as the others, and one sample has no variance."""
    return batches[:-1] if len(batches) > 1 and length(batches[-1]) < length(batches[0]) else batches


def network(recipe: Recipe, example: Tensor, known: dict[str, Any]) -> nn.Module:
    """The recipe's network, known to accept the data's `example`.

    `known` is what the data decide: classes, pixels, words. A network is told what it asks for.
    """
    chosen = {"dropout": recipe.dropout, "batch_norm": recipe.batch_norm, "width": recipe.width}
    chosen = {key: value for key, value in chosen.items() if value is not None}
    try:
        asked = models.options(recipe.network)
        model = models.build(
            recipe.network, **chosen, **{key: value for key, value in known.items() if key in asked}
        )
    except (ValueError, OverflowError) as error:
        raise LabError(str(error)) from error
    except (RuntimeError, MemoryError) as error:  # torch cannot have the memory
        reason = str(error).strip().partition("\n")[0]
        raise LabError(f"network {recipe.network!r} cannot be made for {recipe.data!r}: {reason}") from error
    try:
        with torch.no_grad():
            model.eval()(example)
    except (RuntimeError, IndexError) as error:
        shape = " x ".join(str(size) for size in example.shape[1:])
        raise LabError(
            f"network {recipe.network!r} does not fit {recipe.data!r} ({shape}): {error}"
        ) from error
    if any(isinstance(module, nn.BatchNorm1d) for module in model.modules()):
        for argument in ("batch_size", "statistics_samples"):
            if getattr(recipe, argument) == 1:
                raise LabError(f"{argument} must be at least 2 for batch normalisation, got 1")
    return model.train()
