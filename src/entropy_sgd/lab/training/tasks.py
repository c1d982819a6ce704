"""The two kinds of tasks: their loss, what is carried from batch to batch, how they are judged.

`model` is the network itself, which is judged and kept; `forward` is what a training batch goes through, the
network or a wrapper that averages gradients over a group of processes or has been compiled. `batch` counts
the samples (or tokens) that one step of the whole group sees.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, Literal

import torch
from torch import Tensor, nn
from torch.nn import functional

from entropy_sgd.lab import LabError
from entropy_sgd.lab.data import Images, Split, Text
from entropy_sgd.lab.data.batches import (
    SequenceBatches,
    ShuffledBatches,
    evaluation_batches,
    evaluation_windows,
)
from entropy_sgd.lab.models import build as build_network
from entropy_sgd.lab.models import detach
from entropy_sgd.lab.recipes import Recipe
from entropy_sgd.lab.training.group import Group

Part = Literal["training", "validation", "test"]

EVALUATION_BATCH = 200
"""Images in a batch that is judged or that batch statistics are taken from. At 500, what `lenet` computes no
longer fits the caches, and an image takes twice as long."""


def _network(recipe: Recipe, example: Tensor, options: dict[str, Any]) -> nn.Module:
    """The recipe's network, known to accept the data's `example`."""
    chosen = {"dropout": recipe.dropout, "batch_norm": recipe.batch_norm} | options
    try:
        model = build_network(
            recipe.network, **{key: value for key, value in chosen.items() if value is not None}
        )
    except ValueError as error:
        raise LabError(str(error)) from error
    try:
        with torch.no_grad():
            model.eval()(example)
    except (RuntimeError, IndexError) as error:
        shape = " x ".join(str(size) for size in example.shape[1:])
        raise LabError(
            f"network {recipe.network!r} does not fit {recipe.data!r} ({shape}): {error}"
        ) from error
    return model.train()


def spread(size: int, count: int | None) -> Tensor | slice:
    """`count` of `size` indices, evenly spaced: files are often sorted by class."""
    return slice(None) if count is None or count >= size else torch.arange(count) * size // count


class Classification:
    """Images and their classes: cross-entropy, judged by the percentage misclassified."""

    def __init__(self, recipe: Recipe, data: Images, seed: int, device: torch.device, group: Group) -> None:
        if recipe.unroll is not None:
            raise LabError(f"{recipe.data!r} are images: unroll must be left out, got {recipe.unroll}")
        chosen = spread(len(data.train), recipe.train_limit)
        train = Split(data.train.inputs[chosen].to(device), data.train.targets[chosen].to(device))
        _, channels, height, width = train.inputs.shape
        options: dict[str, Any] = {"classes": data.classes}
        if recipe.network.endswith("mnistfc"):
            options["inputs"] = channels * height * width
        elif recipe.network.endswith("lenet"):
            options["size"] = height
        self.data, self.device = data, device
        self.model = _network(recipe, data.train.inputs[:1], options).to(device)
        self.forward: Callable[..., Any] = self.model
        # Layers give their outputs the layout of their inputs. Weights and gradients keep the plain one: the
        # compiled Langevin step needs it, and oneDNN brings weights into an order of its own anyway.
        convolves = any(isinstance(module, nn.Conv2d) for module in self.model.modules())
        # Without gradients this layout takes half the time, also where training is no faster with it.
        self.judged_layout = torch.channels_last if convolves else torch.preserve_format
        self.layout = self.judged_layout if recipe.channels_last else torch.preserve_format
        self.batches = ShuffledBatches(train, recipe.batch_size, seed, group.rank, group.size)
        self.batch, self.size = group.size * recipe.batch_size, len(train)
        self.scale = 1.0
        sample = spread(len(train), recipe.statistics_samples)
        self.sample = Split(train.inputs[sample].to(memory_format=self.judged_layout), train.targets[sample])

    def loss(self) -> Tensor:
        """The loss of the next batch, or of this process's part of it."""
        inputs, targets = next(self.batches)
        return functional.cross_entropy(self.forward(inputs.to(memory_format=self.layout)), targets)

    def statistics_batches(self) -> list[Tensor]:
        """Training inputs to recompute batch statistics from."""
        batches = list(torch.split(self.sample.inputs, EVALUATION_BATCH))
        # A shorter last batch would weigh as much as the others, and a single sample has no variance.
        return batches[:-1] if len(batches) > 1 and len(batches[-1]) < EVALUATION_BATCH else batches

    @torch.no_grad()
    def judge(self, part: Part) -> dict[str, float]:
        """Mean loss and error at the weights the model holds, of training data on a sample."""
        if part == "training":
            split = self.sample
        else:
            split = self.data.test() if part == "test" else self.data.validation
        if split is None:
            raise ValueError("a final run holds no validation data")
        loss = wrong = 0.0
        for inputs, targets in evaluation_batches(split, EVALUATION_BATCH):
            inputs = inputs.to(self.device, memory_format=self.judged_layout)
            targets = targets.to(self.device)
            logits = self.model(inputs)
            loss += functional.cross_entropy(logits, targets, reduction="sum").item()
            wrong += (logits.argmax(1) != targets).sum().item()
        return {"loss": loss / len(split), "error": 100 * wrong / len(split)}

    def state_dict(self) -> dict[str, Any]:
        """What the next batch depends on."""
        return {"batches": self.batches.state_dict()}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Continue from a `state_dict`."""
        self.batches.load_state_dict(state["batches"])


class LanguageModel:
    """A text and its next tokens: cross-entropy per token, the hidden state carried from batch to batch.

    It is carried across Langevin steps as across any others: each reads the next stretch of the text.
    """

    def __init__(self, recipe: Recipe, data: Text, seed: int, device: torch.device, group: Group) -> None:
        if recipe.unroll is None:
            raise LabError(f"{recipe.data!r} is text: unroll, the time steps of a batch, must be given")
        vocabulary = recipe.vocabulary or len(data.vocabulary)
        if vocabulary < len(data.vocabulary):
            raise LabError(f"vocabulary must be at least the data's {len(data.vocabulary)}, got {vocabulary}")
        train = data.train[: recipe.train_limit].to(device)
        self.data, self.device, self.train = data, device, train
        self.model = _network(recipe, data.train[None, :1], {"vocabulary": vocabulary}).to(device)
        self.forward: Callable[..., Any] = self.model
        self.batches = SequenceBatches(train, recipe.batch_size, recipe.unroll, group.rank, group.size)
        self.batch, self.size = group.size * recipe.batch_size * recipe.unroll, len(train)
        self.scale = float(recipe.unroll) if recipe.sum_over_time else 1.0
        self.streams, self.unroll = recipe.batch_size, recipe.unroll
        self.hidden: tuple[Tensor, Tensor] | None = None

    def loss(self) -> Tensor:
        """The mean loss per token of the next batch, or of this process's part of it."""
        inputs, targets, first = next(self.batches)
        logits, hidden = self.forward(inputs, None if first else self.hidden)
        self.hidden = detach(hidden)
        return functional.cross_entropy(logits.flatten(0, 1), targets.flatten())

    def statistics_batches(self) -> list[Tensor]:
        """These networks have no batch statistics."""
        return []

    @torch.no_grad()
    def judge(self, part: Part) -> dict[str, float]:
        """Mean loss per token and perplexity at the weights the model holds."""
        if part == "training":
            tokens = self.train
        else:
            tokens = self.data.test() if part == "test" else self.data.validation
        loss, hidden = 0.0, None
        for inputs, targets, first in evaluation_windows(tokens, self.unroll, self.streams):
            inputs, targets = inputs.to(self.device), targets.to(self.device)
            logits, hidden = self.model(inputs, None if first else hidden)
            loss += functional.cross_entropy(logits.flatten(0, 1), targets.flatten(), reduction="sum").item()
        nats = loss / (len(tokens) - 1)
        return {"loss": nats, "nats": nats, "perplexity": math.exp(min(nats, 700.0))}

    def state_dict(self) -> dict[str, Any]:
        """What the next batch depends on."""
        hidden = None if self.hidden is None else (self.hidden[0].cpu(), self.hidden[1].cpu())
        return {"batches": self.batches.state_dict(), "hidden": hidden}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Continue from a `state_dict`."""
        self.batches.load_state_dict(state["batches"])
        hidden = state["hidden"]
        self.hidden = None if hidden is None else (hidden[0].to(self.device), hidden[1].to(self.device))


Task = Classification | LanguageModel


def build(
    recipe: Recipe, data: Images | Text, seed: int, device: torch.device, group: Group | None = None
) -> Task:
    """The task of a recipe on its data, for one process of `group`."""
    group = group or Group()
    if isinstance(data, Images):
        if recipe.metric != "error":
            raise LabError(f"{recipe.name!r} is a recipe for text, and {recipe.data!r} are images")
        return Classification(recipe, data, seed, device, group)
    if recipe.metric == "error":
        raise LabError(f"{recipe.name!r} is a recipe for images, and {recipe.data!r} is text")
    return LanguageModel(recipe, data, seed, device, group)
