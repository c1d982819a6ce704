"""Images and their classes: cross-entropy, judged by the percentage misclassified."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

from entropy_sgd.lab import LabError
from entropy_sgd.lab.data import Images, Split
from entropy_sgd.lab.data.altered import part, wrong_labels
from entropy_sgd.lab.data.batches import ShuffledBatches, evaluation_batches
from entropy_sgd.lab.recipes import Recipe
from entropy_sgd.lab.tasks.base import (
    EVALUATION_BATCH,
    Measured,
    Part,
    Share,
    network,
    spread,
    whole_batches,
)


def _altered(train: Split, classes: int, recipe: Recipe) -> Split:
    """The training data as the recipe has them: fewer, or with wrong labels."""
    if recipe.data_fraction < 1:
        train = Split(*train.take(part(train.targets, recipe.data_fraction, recipe.data_seed)))
    if recipe.label_noise > 0:
        if classes < 2:
            raise LabError(f"label_noise needs at least 2 classes, {recipe.data!r} has {classes}")
        labels = wrong_labels(train.targets, classes, recipe.label_noise, recipe.data_seed)
        train = Split(train.inputs, labels)
    return train


class Classification:
    """The paper's image networks."""

    def __init__(self, recipe: Recipe, data: Images, seed: int, device: torch.device, share: Share) -> None:
        if recipe.unroll is not None:
            raise LabError(f"{recipe.data!r} are images: unroll must be left out, got {recipe.unroll}")
        train = _altered(data.train, data.classes, recipe)
        chosen = spread(len(train), recipe.train_limit)
        train = Split(train.inputs[chosen].to(device), train.targets[chosen].to(device))
        _, channels, height, width = train.inputs.shape
        known = {"classes": data.classes, "inputs": channels * height * width, "size": height}
        self.data, self.device, self.train = data, device, train
        self.validated = data.validation is not None
        self.model = network(recipe, data.train.inputs[:1], known).to(device)
        self.forward: Callable[..., Any] = self.model
        # Layers give their outputs the layout of their inputs. Weights and gradients keep the plain one: the
        # compiled Langevin step needs it, and oneDNN brings weights into an order of its own anyway.
        convolves = any(isinstance(module, nn.Conv2d) for module in self.model.modules())
        # Without gradients this layout takes half the time, also where training is no faster with it.
        self.judged_layout = torch.channels_last if convolves else torch.preserve_format
        self.layout = self.judged_layout if recipe.channels_last else torch.preserve_format
        self.batches = ShuffledBatches(train, recipe.batch_size, seed, share.rank, share.size)
        self.batch, self.size = share.size * recipe.batch_size, len(train)
        self.scale = 1.0
        sample = spread(len(train), recipe.statistics_samples)
        self.sample = Split(train.inputs[sample].to(memory_format=self.judged_layout), train.targets[sample])

    def draw(self) -> tuple[Tensor, Tensor]:
        """Inputs and targets of the next batch."""
        inputs, targets = next(self.batches)
        return inputs.to(memory_format=self.layout), targets

    def loss(self, batch: tuple[Tensor, Tensor]) -> Tensor:
        """The mean cross-entropy of a batch."""
        return functional.cross_entropy(self.forward(batch[0]), batch[1])

    def statistics_batches(self) -> list[Tensor]:
        """Training inputs to recompute batch statistics from."""
        return whole_batches(list(torch.split(self.sample.inputs, EVALUATION_BATCH)), len)

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

    def measured(self) -> Measured:
        """All training images."""
        train = self.train
        return Measured(
            functional.cross_entropy, len(train), lambda index: (train.inputs[index], train.targets[index])
        )

    def state_dict(self) -> dict[str, Any]:
        """What the next batch depends on."""
        return {"batches": self.batches.state_dict()}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Continue from a `state_dict`."""
        self.batches.load_state_dict(state["batches"])

    def begin_pass_after(self, state: dict[str, Any]) -> None:
        """Start the pass over the data that follows the one of a `state_dict`."""
        self.batches.begin_pass_after(state["batches"])
