"""Mini-batches of data held in memory: cut by index, in this process, resumable at any batch.

The two training iterators never end. Their position is two numbers, the epoch and the next batch in it,
and everything they will give is a function of these, the data and the arguments: `state_dict` is those
two numbers. Processes that train together walk in step: each takes its own part of every batch of the group,
`batch_size` of its `ranks x batch_size` samples.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping
from typing import Any, Protocol, Self

import torch
from torch import Tensor

from entropy_sgd.lab.data.files import DataError
from entropy_sgd.lab.data.types import Split


def _check_positive(**values: int) -> None:
    for name, value in values.items():
        if value < 1:
            raise ValueError(f"{name} must be at least 1, got {value!r}")


def seed_from(text: str) -> int:
    """A seed for what `text` names.

    torch's CPU generator keeps the low 32 bits of a seed, so all that tells two apart is mixed into those.
    """
    return int.from_bytes(hashlib.sha256(text.encode()).digest()[:4], "big")


class Samples(Protocol):
    """What batches are drawn from."""

    def __len__(self) -> int: ...

    def take(self, index: Tensor) -> tuple[Any, Any]:
        """Inputs and targets of the samples of these numbers."""
        ...


class _Batches:
    """An endless walk over epochs of `len(self)` batches each."""

    def __init__(self, length: int) -> None:
        self._length = length
        self._epoch = 0
        self._position = 0

    def __len__(self) -> int:
        """Batches in an epoch."""
        return self._length

    def __iter__(self) -> Self:
        return self

    def _advance(self) -> tuple[int, int]:
        """The epoch and the place in it of the batch due now; the next one is due after this."""
        if self._position == self._length:
            self._epoch, self._position = self._epoch + 1, 0
        self._position += 1
        return self._epoch, self._position - 1

    def state_dict(self) -> dict[str, int]:
        """The position, as plain numbers."""
        return {"epoch": self._epoch, "position": self._position}

    def load_state_dict(self, state: Mapping[str, int]) -> None:
        """Continue where another walk over the same data, with the same arguments, has stopped."""
        if set(state) != {"epoch", "position"}:
            raise ValueError(f"state must have 'epoch' and 'position', got {sorted(state)}")
        if state["epoch"] < 0 or not 0 <= state["position"] <= self._length:
            raise ValueError(
                f"state must have an epoch >= 0 and a position in [0, {self._length}], got {dict(state)}"
            )
        self._epoch, self._position = state["epoch"], state["position"]

    def begin_pass_after(self, state: Mapping[str, int]) -> None:
        """Start the epoch after that of another walk, which may have had other arguments."""
        self._epoch, self._position = state["epoch"] + 1, 0


class ShuffledBatches(_Batches):
    """Batches of samples, drawn without replacement in an order of each epoch's own.

    The order is a function of the seed and the epoch alone, so torch's global generator is neither used nor
    moved. The last, shorter batch of an epoch is dropped: every gradient is then a mean over `batch_size`
    samples, as the count of effective epochs assumes, and batch normalisation never sees just a few. Which
    samples are left out changes with the order, so none is left out for good.

    Args:
        samples: whatever has a length and gives samples by index.
        batch_size: samples in a batch; at most the number of samples.
        seed: any integer.
        rank, ranks: which of how many processes this is.

    """

    def __init__(self, samples: Samples, batch_size: int, seed: int, rank: int = 0, ranks: int = 1) -> None:
        _check_positive(batch_size=batch_size)
        if ranks * batch_size > len(samples):
            got = f"{batch_size}" if ranks == 1 else f"{batch_size} in each of {ranks} processes"
            raise DataError(f"batch_size must be at most the {len(samples)} training samples, got {got}")
        super().__init__(len(samples) // (ranks * batch_size))
        self._rank, self._ranks = rank, ranks
        self._samples, self._batch_size, self._seed = samples, batch_size, seed
        self._order: tuple[int, Tensor] | None = None

    def __next__(self) -> tuple[Any, Any]:
        """Inputs (B, …) and targets (B, …)."""
        epoch, position = self._advance()
        if self._order is None or self._order[0] != epoch:
            self._order = epoch, self._permutation(epoch)
        start = (position * self._ranks + self._rank) * self._batch_size
        return self._samples.take(self._order[1][start : start + self._batch_size])

    def _permutation(self, epoch: int) -> Tensor:
        generator = torch.Generator().manual_seed(seed_from(f"{self._seed} {epoch}"))
        return torch.randperm(len(self._samples), generator=generator)


class SequenceBatches(_Batches):
    """Windows that walk along a text in parallel streams, for truncated back-propagation through time.

    The text is cut into `batch_size` streams of equal length. Row b of each batch continues row b of the
    batch before, so the hidden state is carried over, until the streams start again; there it must be
    zeroed. What is left of the text after whole streams of whole windows is not trained on.

    Args:
        tokens: the text, (N,).
        batch_size: B, the number of streams.
        unroll: T, the length of a window.
        rank, ranks: which of how many processes this is; the text is cut into the streams of all of them.

    """

    def __init__(self, tokens: Tensor, batch_size: int, unroll: int, rank: int = 0, ranks: int = 1) -> None:
        _check_positive(batch_size=batch_size, unroll=unroll)
        streams = ranks * batch_size
        length = (len(tokens) - 1) // streams  # the last token is a target only
        if length < unroll:
            processes = "" if ranks == 1 else f" in each of {ranks} processes"
            raise DataError(
                f"batch_size x unroll = {batch_size} x {unroll}{processes} needs a text of at least "
                f"{streams * unroll + 1} tokens, got {len(tokens)}"
            )
        super().__init__(length // unroll)
        self._unroll = unroll
        mine = slice(rank * batch_size, (rank + 1) * batch_size)
        self._inputs = tokens[: streams * length].view(streams, length)[mine]
        self._targets = tokens[1 : streams * length + 1].view(streams, length)[mine]

    def __next__(self) -> tuple[Tensor, Tensor, bool]:
        """Inputs (B, T), the tokens that follow each of them (B, T), and whether the streams start here."""
        _, position = self._advance()
        window = slice(position * self._unroll, (position + 1) * self._unroll)
        return self._inputs[:, window], self._targets[:, window], position == 0


def evaluation_batches(split: Split, batch_size: int) -> Iterator[tuple[Tensor, Tensor]]:
    """All samples once, in order; the last batch may be shorter."""
    _check_positive(batch_size=batch_size)
    for start in range(0, len(split), batch_size):
        yield split.inputs[start : start + batch_size], split.targets[start : start + batch_size]


def evaluation_windows(
    tokens: Tensor, unroll: int, batch_size: int = 1
) -> Iterator[tuple[Tensor, Tensor, bool]]:
    """All tokens but the first, each to be predicted once: (inputs, targets, whether to zero the state).

    With `batch_size=1` each token is predicted from all before it. More streams are faster and start from
    zero states within the text; the few tokens that do not fill every stream alike come last, as a stream
    of their own.
    """
    _check_positive(unroll=unroll, batch_size=batch_size)
    length = (len(tokens) - 1) // batch_size
    even = batch_size * length
    for streams, start, stop in ((batch_size, 0, even), (1, even, len(tokens) - 1)):
        inputs, targets = tokens[start:stop].view(streams, -1), tokens[start + 1 : stop + 1].view(streams, -1)
        for begin in range(0, inputs.shape[1], unroll):
            yield inputs[:, begin : begin + unroll], targets[:, begin : begin + unroll], begin == 0
