"""The laboratory behind the `entropy-sgd` command: data, networks, recipes, training, reports.

Importing this package, its recipes or its command line does not import torch; training does.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable


class LabError(Exception):
    """Something the user can mend: the message is complete and is printed without a traceback."""

    exit_code = 2


class Diverged(LabError):
    """The loss is no longer a finite number."""

    exit_code = 3


class Interrupted(LabError):
    """The run was asked to stop by a signal, and has saved itself."""

    def __init__(self, signum: int, message: str) -> None:
        super().__init__(message)
        self.exit_code = 128 + signum  # as a shell reports a process ended by that signal: 130 for Ctrl-C


def unknown(kind: str, name: str, known: Iterable[str]) -> LabError:
    """The error for a name nobody knows: the closest ones first, and all of them."""
    known = list(known)
    close = difflib.get_close_matches(name, known, n=3, cutoff=0.5)
    hint = f" Did you mean {' or '.join(close)}?" if close else ""
    return LabError(f"no {kind} is called {name!r}.{hint} Known: {', '.join(known)}")
