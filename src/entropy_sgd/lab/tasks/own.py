"""The user's own experiment as a task: any network, any samples, any loss that is a mean over a batch."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import fields
from pathlib import PurePosixPath, PureWindowsPath
from typing import Any, cast

import torch
from torch import Tensor
from torch.utils import data
from torch.utils._pytree import tree_map
from torch.utils.data import Dataset, IterableDataset, TensorDataset

from entropy_sgd.lab import LabError
from entropy_sgd.lab.data.batches import ShuffledBatches
from entropy_sgd.lab.experiment import DECIDED_IN_FILE, Experiment, again, metric_name, users_code
from entropy_sgd.lab.recipes import Recipe
from entropy_sgd.lab.tasks.base import EVALUATION_BATCH, Measured, Part, Share, spread, whole_batches

Batch = tuple[Any, Any]


class Samples:
    """Pairs of tensors, or any Dataset of (input, target), taken by index."""

    def __init__(self, what: str, given: Any, device: torch.device) -> None:
        self.device = device
        self.tensors = _pair(given)
        if self.tensors is not None:
            inputs, targets = self.tensors
            if len(inputs) != len(targets):
                raise LabError(
                    f"{what} must have a target for each of {len(inputs)} inputs, got {len(targets)}"
                )
            self.tensors = inputs.to(device), targets.to(device)
            given = TensorDataset(*self.tensors)
        elif not _is_dataset(given):
            raise LabError(
                f"{what} must be a torch Dataset with a length, or a pair of tensors (inputs, targets), "
                f"got {type(given).__name__}"
            )
        self.dataset: Any = given
        if not len(self):
            raise LabError(f"{what} must have at least one sample, got none")

    def __len__(self) -> int:
        return len(self.dataset)

    def take(self, index: Tensor) -> Batch:
        """The samples of these numbers, as one batch on the device."""
        if self.tensors is not None:
            index = index.to(self.device)
            return self.tensors[0].index_select(0, index), self.tensors[1].index_select(0, index)
        samples: list[Any] = [self.dataset[i] for i in cast("list[int]", index.tolist())]
        inputs, targets = data.default_collate(samples)
        return self._moved(inputs), self._moved(targets)

    def _moved(self, value: Any) -> Any:
        def move(leaf: Any) -> Any:
            return leaf.to(self.device) if isinstance(leaf, Tensor) else leaf

        return tree_map(move, value)

    def chunks(self, indices: Tensor) -> Iterator[Batch]:
        """These samples in order, in batches to judge."""
        for chunk in torch.split(indices, EVALUATION_BATCH):
            yield self.take(chunk)


class Own:
    """Model, data, loss and metric from the user's file."""

    def __init__(
        self,
        recipe: Recipe,
        found: tuple[Callable[[], Any], Experiment],
        seed: int,
        final: bool,
        device: torch.device,
        share: Share,
    ) -> None:
        assert recipe.source is not None
        make, chosen = found
        self.source, self.chosen = recipe.source, chosen
        refuse_foreign(recipe)
        path = self.source.path
        self.samples = Samples(f"{path}: train", chosen.train, device)
        self.validation: Samples | None = Samples(f"{path}: validation", chosen.validation, device)
        if final:
            if chosen.test is None:
                raise LabError(f"{path}: a final run needs test data, and the experiment gives none")
            self.samples = _together(self.samples, self.validation)
            self.validation = None
        self.validated = not final
        self.device = device
        self.model = again(self.source, make, seed).to(device).train()
        if not any(parameter.requires_grad for parameter in self.model.parameters()):
            raise LabError(f"{path}: model must have parameters to train")
        self.forward: Callable[..., Any] = self.model
        chosen_samples = spread(len(self.samples), recipe.train_limit)
        self.indices = torch.arange(len(self.samples))[chosen_samples]
        self.batches = ShuffledBatches(
            Subset(self.samples, self.indices), recipe.batch_size, seed, share.rank, share.size
        )
        self.batch, self.size = share.size * recipe.batch_size, len(self.indices)
        self.scale = 1.0
        self.sample = self.indices[spread(len(self.indices), recipe.statistics_samples)]
        self.layout = torch.channels_last if recipe.channels_last else torch.preserve_format

    def draw(self) -> Batch:
        """Inputs and targets of the next batch."""
        with users_code(self.source.path):
            inputs, targets = next(self.batches)
        if self.layout is torch.channels_last and isinstance(inputs, Tensor) and inputs.ndim == 4:
            inputs = inputs.to(memory_format=self.layout)
        return inputs, targets

    def loss(self, batch: Batch) -> Tensor:
        """The user's loss of a batch."""
        with users_code(self.source.path):
            value = self.chosen.loss(self.forward(batch[0]), batch[1])
        if not isinstance(value, Tensor) or value.numel() != 1:
            got = f"shape {tuple(value.shape)}" if isinstance(value, Tensor) else type(value).__name__
            raise LabError(f"{self.source.path}: loss must return a tensor with one element, got {got}")
        return value.reshape(())

    def statistics_batches(self) -> list[Any]:
        """Training inputs to take batch statistics from."""
        with users_code(self.source.path):
            batches = [(targets, (inputs,)) for inputs, targets in self.samples.chunks(self.sample)]
        return [inputs for _, inputs in whole_batches(batches, lambda batch: len(batch[0]))]

    @torch.no_grad()
    def judge(self, part: Part) -> dict[str, float]:
        """Mean loss and metric at the weights the model holds, of training data on a sample."""
        if part == "training":
            samples, indices = self.samples, self.sample
        else:
            if part == "test":
                samples = Samples(f"{self.source.path}: test", self.chosen.test, self.device)
            elif self.validation is not None:
                samples = self.validation
            else:
                raise ValueError("a final run holds no validation data")
            indices = torch.arange(len(samples))
        functions = {"loss": self.chosen.loss}
        if self.chosen.metric is not None:
            functions[metric_name(self.chosen)] = self.chosen.metric
        sums = dict.fromkeys(functions, 0.0)
        with users_code(self.source.path):
            for chunk, (inputs, targets) in zip(
                torch.split(indices, EVALUATION_BATCH), samples.chunks(indices), strict=True
            ):
                outputs = self.model(inputs)
                for name, function in functions.items():
                    sums[name] += self._number(name, function(outputs, targets)) * len(chunk)
        return {name: value / len(indices) for name, value in sums.items()}

    def _number(self, name: str, value: Any) -> float:
        try:
            return float(value)
        except (TypeError, ValueError, RuntimeError) as error:
            got = f"shape {tuple(value.shape)}" if isinstance(value, Tensor) else type(value).__name__
            raise LabError(f"{self.source.path}: {name} must return a single number, got {got}") from error

    def measured(self) -> Measured:
        """The training samples."""
        return Measured(
            self.chosen.loss, len(self.indices), lambda index: self.samples.take(self.indices[index])
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


class Subset:
    """Some of the samples."""

    def __init__(self, samples: Samples, indices: Tensor) -> None:
        self.samples, self.indices = samples, indices

    def __len__(self) -> int:
        return len(self.indices)

    def take(self, index: Tensor) -> Batch:
        """Those of these numbers."""
        return self.samples.take(self.indices[index])


def _pair(given: Any) -> tuple[Tensor, Tensor] | None:
    """The inputs and targets, if they are two tensors."""
    parts: Any = given.tensors if isinstance(given, TensorDataset) else given
    if not isinstance(parts, (tuple, list)) or len(cast("list[Any]", parts)) != 2:
        return None
    inputs, targets = cast("list[Any]", parts)
    tensors = isinstance(inputs, Tensor) and isinstance(targets, Tensor)
    return (inputs, targets) if tensors and inputs.ndim and targets.ndim else None


def _is_dataset(given: Any) -> bool:
    return isinstance(given, Dataset) and not isinstance(given, IterableDataset) and hasattr(given, "__len__")  # pyright: ignore[reportUnknownArgumentType]


def _together(first: Samples, second: Samples) -> Samples:
    """All samples of both."""
    if first.tensors is not None and second.tensors is not None:
        parts: Any = tuple(torch.cat(pair) for pair in zip(first.tensors, second.tensors, strict=True))
    else:
        parts = first.dataset + second.dataset  # a ConcatDataset
    return Samples("train and validation", parts, first.device)


def refuse_foreign(recipe: Recipe) -> None:
    """Options that belong to the paper's networks have no effect here, so they are refused."""
    assert recipe.source is not None
    path = recipe.source.path
    own = (PurePosixPath(path).name, PureWindowsPath(path).name)  # it may have been trained elsewhere
    absent = {field.name: (field.default,) for field in fields(Recipe)} | {"network": own, "data": own}
    for option in DECIDED_IN_FILE:
        if getattr(recipe, option) not in absent[option]:
            raise LabError(f"{option} is decided in {path}, not by an option")
