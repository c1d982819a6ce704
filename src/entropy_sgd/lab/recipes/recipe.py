"""A recipe: everything that decides a training run but the seed."""

from __future__ import annotations

import math
from dataclasses import dataclass, field, fields, replace
from typing import Annotated, Any, cast

import tyro

from entropy_sgd.lab import LabError, methods
from entropy_sgd.lab.methods import Options


@dataclass(frozen=True)
class Drops:
    """Learning-rate drops: lr(e) = lr · factor^(how many entries of `at` are ≤ e), e in effective epochs."""

    factor: float = 1.0
    """What each drop multiplies the learning rate by."""
    at: tuple[float, ...] = ()
    """When it drops, in effective epochs."""

    def scale(self, epoch: float) -> float:
        """The factor in force after `epoch` effective epochs."""
        # A step count times batch / data lands a rounding error beside a whole epoch; 1e-9 absorbs it.
        return self.factor ** sum(epoch >= drop - 1e-9 for drop in self.at)


def every(period: float, *, start: float | None = None, until: float) -> tuple[float, ...]:
    """The drops `start` (by default `period`), `start + period`, … before `until`."""
    first = period if start is None else start
    return tuple(first + k * period for k in range(max(0, math.ceil((until - first) / period))))


TEXT_ONLY = ("vocabulary", "unroll", "sum_over_time")
IMAGES_ONLY = ("data_fraction", "label_noise", "data_seed")
LARGEST = 3.4e38
"""What float32, in which networks are trained, can hold."""
WHOLE = ("batch_size", "unroll", "vocabulary", "train_limit", "statistics_samples")


def check_floats(options: Options, drops: Drops) -> None:
    """Refuse options beyond the range of float32, and drops that make such a learning rate."""
    for option in fields(options):
        value = getattr(options, option.name)
        for number in cast("tuple[Any, ...]", value if isinstance(value, tuple) else (value,)):
            if isinstance(number, (int, float)) and not abs(number) <= LARGEST:
                raise LabError(
                    f"optimizer.{option.name} must be a finite number up to {LARGEST:g}, got {number}"
                )
    rate = abs(getattr(options, "lr", 0.0)) or 1.0
    if math.log(rate) + len(drops.at) * math.log(drops.factor) > math.log(LARGEST):
        raise LabError(
            f"drops.factor {drops.factor:g}, {len(drops.at)} times, makes a learning rate beyond {LARGEST:g}"
        )


@dataclass(frozen=True)
class Source:
    """The Python file that a user's own experiment comes from."""

    path: str
    """Where it is."""
    name: str
    """The function or class in it."""
    sha256: str
    """Of its content: a run is continued with the file it was begun with."""


MOST_EPOCHS = 1e9
"""A budget whose steps can still be counted."""


@dataclass(frozen=True, kw_only=True)
class Recipe:
    """One way to train one network on one dataset."""

    name: Annotated[str, tyro.conf.Fixed]
    """`network/method`, as typed after `entropy-sgd train`."""
    paper: Annotated[str, tyro.conf.Fixed]
    """Where the paper describes this run, or that it does not."""
    chosen: Annotated[str, tyro.conf.Fixed]
    """What the paper leaves open, what was taken, and why."""
    network: str
    """A network of `entropy_sgd.lab.models`."""
    data: str
    """A dataset of `entropy-sgd data list`, or your own: text:FILE or idx:FOLDER."""
    optimizer: Options
    """The method's hyper-parameters."""
    epochs: float
    """Budget in effective epochs: gradient evaluations x batch / data size, whatever the method."""
    batch_size: int
    """Samples, or parallel sequences of text, per gradient evaluation."""
    metric: Annotated[str, tyro.conf.Fixed] = "error"
    """How the run is judged: error (% of images misclassified), perplexity per word, nats per character
    (cross-entropy), or the user's own."""
    drops: Drops = field(default_factory=Drops)
    """When the (outer) learning rate drops."""
    dropout: float | None = None
    """Dropout probability; None: the network has none."""
    batch_norm: bool | None = None
    """Batch normalisation; None: as the network is described."""
    width: float | None = None
    """Factor on the channels of `allcnn`; None: 1, as published."""
    vocabulary: int | None = None
    """Text only: size of the network's vocabulary; None: that of the data."""
    train_limit: int | None = None
    """Train on this many images, evenly spaced in the data, or on the first this many tokens; None: all."""
    data_fraction: float = 1.0
    """Images only: train on this share of each class, drawn at random; an epoch is a pass over those."""
    label_noise: float = 0.0
    """Images only: this share of the training labels is replaced by another class. Validation and test data
    keep theirs."""
    data_seed: int = 0
    """Decides which images `data_fraction` keeps and which labels `label_noise` replaces, whatever the run's
    seed."""
    unroll: int | None = None
    """Time steps of truncated back-propagation; text only."""
    sum_over_time: bool = False
    """Text only: the loss of a batch is summed over its time steps (averaged over its sequences), not
    averaged."""
    clip_norm: float | None = None
    """Clip gradients to this norm; None: no clipping."""
    stop_at_loss: float | None = None
    """Stop at the first evaluation at which the training loss, at the outer weights, is at or below this;
    None: never."""
    evaluate_every: float = 1.0
    """Effective epochs between evaluations on the validation data."""
    log_every: float = 0.1
    """Effective epochs between lines of metrics.jsonl."""
    statistics_samples: int = 5_000
    """Training images from which batch statistics are recomputed before each evaluation, and the training
    loss that `stop_at_loss` waits for."""
    threads: int | None = None
    """Threads to compute with; None: torch's own choice. For speed: it changes the rounding."""
    channels_last: bool = False
    """The channels of a pixel lie side by side in memory; no effect on networks without convolutions. For
    speed: it changes the rounding, and the order in which dropout draws."""
    compile: bool = False
    """Train through `torch.compile`, which needs a C++ compiler and takes longer to start; LSTMs are not
    compiled. For speed: it changes the rounding, and what dropout draws."""
    source: Annotated[Source | None, tyro.conf.Fixed] = None
    """The user's own experiment; None: a network and data of the paper's."""

    def __post_init__(self) -> None:
        for argument in ("epochs", "batch_size", "evaluate_every", "log_every", "statistics_samples"):
            if not 0 < getattr(self, argument) < math.inf:
                raise LabError(f"{argument} must be a finite number above 0, got {getattr(self, argument)}")
        if self.epochs > MOST_EPOCHS:
            raise LabError(f"epochs must be at most {MOST_EPOCHS:g}, got {self.epochs:g}")
        for argument in ("unroll", "vocabulary", "train_limit", "clip_norm", "stop_at_loss", "threads"):
            value = getattr(self, argument)
            if value is not None and not 0 < value < math.inf:
                raise LabError(f"{argument} must be a finite number above 0, got {value}")
        for argument in WHOLE:
            if (getattr(self, argument) or 0) >= 1 << 31:
                raise LabError(f"{argument} must be below 2^31, got {getattr(self, argument)}")
        if self.dropout is not None and not 0 <= self.dropout < 1:
            raise LabError(f"dropout must be a probability in [0, 1), got {self.dropout}")
        if self.width is not None and not 0 < self.width < math.inf:
            raise LabError(f"width must be a finite number above 0, got {self.width}")
        if not 0 < self.data_fraction <= 1:
            raise LabError(f"data_fraction must be a share in (0, 1], got {self.data_fraction}")
        if not 0 <= self.label_noise < 1:
            raise LabError(f"label_noise must be a share in [0, 1), got {self.label_noise}")
        if self.data_seed < 0:
            raise LabError(f"data_seed must be an integer >= 0, got {self.data_seed}")
        if not 0 < self.drops.factor < math.inf:
            raise LabError(f"drops.factor must be a finite number above 0, got {self.drops.factor}")
        if not all(map(math.isfinite, self.drops.at)):
            raise LabError(f"drops.at must be finite numbers, got {self.drops.at}")
        check_floats(self.optimizer, self.drops)

    @property
    def method(self) -> str:
        """The part of the name after the slash."""
        return self.name.rpartition("/")[2]

    def stretched(self, epochs: float) -> Recipe:
        """The same recipe squeezed or stretched to a budget of `epochs` effective epochs.

        Drops keep their place relative to the budget, and so do the schedules of the method.
        """
        if not 0 < epochs < math.inf:
            raise LabError(f"budget must be a finite number above 0, got {epochs}")
        ratio = epochs / self.epochs
        try:
            optimizer = methods.of(self.optimizer).stretched(self.optimizer, ratio)
        except (OverflowError, ZeroDivisionError, ValueError) as error:
            raise LabError(
                f"a budget of {epochs:g} is too far from the recipe's {self.epochs:g} effective epochs for "
                f"the schedules of {self.method}: {error}"
            ) from error
        drops = replace(self.drops, at=tuple(drop * ratio for drop in self.drops.at))
        every = min(self.evaluate_every, epochs)
        return replace(self, epochs=epochs, drops=drops, optimizer=optimizer, evaluate_every=every)
