"""The laboratory behind the `entropy-sgd` command: data, networks, methods, recipes, training, reports.

From Python: `Experiment`, `train` and `compare`. Importing this package, its recipes or its command line does
not import torch; training does.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable
from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from entropy_sgd.lab.api import compare, train
    from entropy_sgd.lab.experiment import Experiment

__all__ = ["Diverged", "Experiment", "Interrupted", "LabError", "compare", "train", "unknown"]


class LabError(Exception):
    """A user error: the message is complete and is printed without a traceback."""

    exit_code = 2


class Diverged(LabError):
    """The loss is no longer a finite number."""

    exit_code = 3


class Interrupted(LabError):
    """The run was asked to stop by a signal, and has saved itself."""

    def __init__(self, signum: int, message: str) -> None:
        super().__init__(message)
        self.signum = signum
        self.exit_code = 128 + signum  # as a shell reports a process ended by that signal: 130 for Ctrl-C

    def __reduce__(self) -> tuple[Any, ...]:
        return Interrupted, (self.signum, str(self))  # replicas send it to the command that started them


def unknown(kind: str, name: str, known: Iterable[str], listed_by: str | None = None) -> LabError:
    """The error for an unknown name: the closest names, then all of them, or the command that lists them."""
    known = list(known)
    close = difflib.get_close_matches(name, known, n=3, cutoff=0.5)
    hint = f" Did you mean {' or '.join(close)}?" if close else ""
    rest = f"{listed_by} shows all" if close and listed_by else f"Known: {', '.join(known)}"
    return LabError(f"no {kind} is called {name!r}.{hint} {rest}")


def __getattr__(name: str) -> Any:
    """Loads a public name when it is first used."""
    where = {"Experiment": "experiment", "compare": "api", "train": "api"}
    if name not in where:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{where[name]}"), name)
