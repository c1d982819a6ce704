"""A text and its next tokens: cross-entropy per token, the hidden state carried from batch to batch.

It is carried across Langevin steps as across any others: each reads the next stretch of the text.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional

from entropy_sgd.lab import LabError
from entropy_sgd.lab.data import Text
from entropy_sgd.lab.data.batches import SequenceBatches, evaluation_windows
from entropy_sgd.lab.models import detach
from entropy_sgd.lab.recipes import Recipe
from entropy_sgd.lab.tasks.base import Measured, Part, Share, network

State = tuple[Tensor, Tensor] | None
Window = tuple[Tensor, Tensor, State]
"""Inputs, targets, and the state to start from."""


class LanguageModel:
    """The paper's recurrent networks."""

    def __init__(self, recipe: Recipe, data: Text, device: torch.device, share: Share) -> None:
        if recipe.unroll is None:
            raise LabError(f"{recipe.data!r} is text: unroll, the time steps of a batch, must be given")
        for name, plain in (("data_fraction", 1.0), ("label_noise", 0.0)):
            if (got := getattr(recipe, name)) != plain:
                raise LabError(
                    f"{recipe.data!r} is text: {name} is for images and must be left out, got {got}"
                )
        vocabulary = recipe.vocabulary or len(data.vocabulary)
        if vocabulary < len(data.vocabulary):
            raise LabError(f"vocabulary must be at least the data's {len(data.vocabulary)}, got {vocabulary}")
        train = data.train[: recipe.train_limit].to(device)
        self.data, self.device, self.train = data, device, train
        self.validated = True
        self.model = network(recipe, data.train[None, :1], {"vocabulary": vocabulary}).to(device)
        self.forward: Callable[..., Any] = self.model
        self.batches = SequenceBatches(train, recipe.batch_size, recipe.unroll, share.rank, share.size)
        self.batch, self.size = share.size * recipe.batch_size * recipe.unroll, len(train)
        self.scale = float(recipe.unroll) if recipe.sum_over_time else 1.0
        self.streams, self.unroll = recipe.batch_size, recipe.unroll
        self.hidden: State = None
        self._drawn: Window | None = None

    def draw(self) -> Window:
        """The next stretch of the text."""
        inputs, targets, first = next(self.batches)
        self._drawn = inputs, targets, None if first else self.hidden
        return self._drawn

    def loss(self, batch: Window) -> Tensor:
        """The mean loss per token; the first call on a batch sets the state for the next one."""
        inputs, targets, before = batch
        logits, hidden = self.forward(inputs, before)
        if batch is self._drawn:
            self.hidden, self._drawn = detach(hidden), None
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

    def measured(self) -> Measured:
        """Stretches of `unroll` tokens, each met with a zero state."""
        windows = [next(self.batches)[:2] for _ in range(len(self.batches))]
        inputs, targets = (torch.cat(part) for part in zip(*windows, strict=True))
        return Measured(_token_loss, len(inputs), lambda index: (inputs[index], targets[index]))

    def state_dict(self) -> dict[str, Any]:
        """What the next batch depends on."""
        hidden = None if self.hidden is None else (self.hidden[0].cpu(), self.hidden[1].cpu())
        return {"batches": self.batches.state_dict(), "hidden": hidden}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Continue from a `state_dict`."""
        self.batches.load_state_dict(state["batches"])
        hidden = state["hidden"]
        self.hidden = None if hidden is None else (hidden[0].to(self.device), hidden[1].to(self.device))

    def begin_pass_after(self, state: dict[str, Any]) -> None:
        """Start the pass over the text that follows the one of a `state_dict`."""
        self.batches.begin_pass_after(state["batches"])
        self.hidden = None


def _token_loss(outputs: tuple[Tensor, Any], targets: Tensor) -> Tensor:
    return functional.cross_entropy(outputs[0].flatten(0, 1), targets.flatten())
