"""Methods: what `compare` compares. One module each; its `METHOD` is all the laboratory knows of it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from entropy_sgd.lab import LabError, unknown
from entropy_sgd.lab.discovery import modules
from entropy_sgd.lab.methods.base import Hints, Method, Options

if TYPE_CHECKING:
    from torch import nn

__all__ = ["METHODS", "Hints", "Method", "Options", "build", "get", "names", "of"]

METHODS: dict[str, Method[Any]] = {
    module.METHOD.name: module.METHOD for module in modules(__name__, __path__) if hasattr(module, "METHOD")
}


def names() -> list[str]:
    """All methods, as typed after `--method`."""
    return list(METHODS)


def get(name: str) -> Method[Any]:
    """The method of that name."""
    if name not in METHODS:
        raise unknown("method", name, METHODS)
    return METHODS[name]


def of(options: Options) -> Method[Any]:
    """The method that these options belong to."""
    for method in METHODS.values():
        if type(options) is method.options:
            return method
    raise LabError(f"no method takes options of the type {type(options).__name__}")


def build(options: Options, model: nn.Module, *, seed: int, steps: int) -> Any:
    """The optimizer that the options describe."""
    method = of(options)
    try:
        return method.build(options, model, seed=seed, steps=steps)
    except ValueError as error:
        raise LabError(f"{method.name} refuses its options: {error}") from error
