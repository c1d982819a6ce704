"""The paper's networks."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from functools import partial
from typing import Any

from torch import nn

from entropy_sgd.lab import unknown
from entropy_sgd.lab.models.images import AllCNN, FullyConnected, LeNet
from entropy_sgd.lab.models.language import CharLSTM, WordLSTM, detach

__all__ = ["AllCNN", "CharLSTM", "FullyConnected", "LeNet", "WordLSTM", "build", "detach", "names"]

_NETWORKS: dict[str, Callable[..., nn.Module]] = {
    "mnistfc": FullyConnected,
    "lenet": LeNet,
    "allcnn": AllCNN,
    "ptb-lstm": WordLSTM,
    "ptb-lstm-small": partial(WordLSTM, hidden=200, dropout=0.0, init=0.1),
    "char-lstm": CharLSTM,
    "small-mnistfc": partial(FullyConnected, hidden=(64,), dropout=0.0),
    "small-lenet": partial(LeNet, channels=(10, 20), first_pool=2, hidden=128, dropout=0.0, batch_norm=False),
    "small-char-lstm": partial(CharLSTM, vocabulary=96, hidden=48, layers=1, output_bias=False),
}


def names() -> list[str]:
    """The names `build` knows."""
    return list(_NETWORKS)


def build(name: str, **options: Any) -> nn.Module:
    """A freshly initialised network; the weights depend on torch's global seed and nothing else.

    Args:
        name: one of `names()`.
        **options: arguments of the network's class, such as `dropout` or `vocabulary`; the others keep
            the paper's values.

    """
    if name not in _NETWORKS:
        raise ValueError(str(unknown("network", name, _NETWORKS)))
    accepted = list(inspect.signature(_NETWORKS[name]).parameters)
    for option in options:
        if option not in accepted:
            raise ValueError(str(unknown(f"option of network {name!r}", option, accepted)))
    return _NETWORKS[name](**options)
