"""The paper's networks. A module of this package gives its `NETWORKS`; there is no other list of them."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

from torch import nn

from entropy_sgd.lab import unknown
from entropy_sgd.lab.discovery import modules
from entropy_sgd.lab.models.images import AllCNN, FullyConnected, LeNet
from entropy_sgd.lab.models.language import CharLSTM, WordLSTM, detach

__all__ = ["AllCNN", "CharLSTM", "FullyConnected", "LeNet", "WordLSTM", "build", "detach", "names", "options"]

_NETWORKS: dict[str, Callable[..., nn.Module]] = {
    name: network
    for module in modules(__name__, __path__)
    for name, network in getattr(module, "NETWORKS", {}).items()
}


def names() -> list[str]:
    """The names `build` knows."""
    return list(_NETWORKS)


def options(name: str) -> list[str]:
    """The options of a network."""
    if name not in _NETWORKS:
        raise ValueError(str(unknown("network", name, _NETWORKS)))
    return list(inspect.signature(_NETWORKS[name]).parameters)


def build(name: str, **chosen: Any) -> nn.Module:
    """A freshly initialised network; the weights depend on torch's global seed and nothing else.

    Args:
        name: one of `names()`.
        **chosen: arguments of the network's class, such as `dropout` or `vocabulary`; the others keep
            the paper's values.

    """
    accepted = options(name)
    for option in chosen:
        if option not in accepted:
            raise ValueError(str(unknown(f"option of network {name!r}", option, accepted)))
    return _NETWORKS[name](**chosen)
