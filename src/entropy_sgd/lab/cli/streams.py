"""Standard output and error that never end a run, if the reader exits or the terminal lacks Greek letters."""

from __future__ import annotations

import codecs
import errno
import io
import os
import sys
from collections.abc import Generator
from contextlib import contextmanager, suppress
from typing import Any

PLAIN = "entropy-sgd-plain"
LETTERS = str.maketrans(
    {
        "γ": "gamma",
        "λ": "lambda",
        "ρ": "rho",
        "η": "lr",
        "μ": "mu",
        "β": "beta",
        "α": "alpha",
        "ε": "eps",
        "π": "pi",
        "₀": "0",
        "₁": "1",
        "₂": "2",
        "′": "'",
        "²": "^2",
        "±": "+-",
        "°": " deg",
        "×": "x",
        "≤": "<=",
        "≥": ">=",
        "−": "-",
        "–": "-",
        "—": "-",
        "…": "...",
        "·": ".",
        "‖": "|",
        "ö": "oe",
        "ü": "ue",
        "ä": "ae",
        "’": "'",
        "‘": "'",
        "“": '"',
        "”": '"',
    }
)
"""What a stream that is not UTF-8 shows for the letters of this program."""


def _plainly(error: UnicodeError) -> tuple[str, int]:
    if not isinstance(error, UnicodeEncodeError):
        raise error
    text = error.object[error.start : error.end].translate(LETTERS)
    return text.encode("ascii", "replace").decode(), error.end


codecs.register_error(PLAIN, _plainly)


class Patient:
    """A text stream whose reader may go: what is written after that is dropped, with one note.

    `entropy-sgd train … | head` closes the pipe after ten lines; hours of training must not end with it.
    """

    def __init__(self, stream: Any) -> None:
        self._stream = stream
        self.gone = False

    def write(self, text: str) -> int:
        """Write, or drop."""
        self._try(self._stream.write, text)
        return len(text)

    def flush(self) -> None:
        """Flush, unless nobody reads."""
        self._try(self._stream.flush)

    def _try(self, function: Any, *arguments: Any) -> None:
        if self.gone:
            return
        try:
            function(*arguments)
        except (BrokenPipeError, ValueError) as error:  # a closed stream is a ValueError
            if isinstance(error, UnicodeError):
                raise
            self._lost()
        except OSError as error:
            if error.errno not in (errno.EPIPE, errno.EIO, errno.ENOSPC):  # a terminal that was closed: EIO
                raise
            self._lost()

    def _lost(self) -> None:
        self.gone = True
        discard(self._stream)
        with suppress(OSError, ValueError):
            print("note: the output was closed: the run continues without it", file=sys.stderr, flush=True)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)


def discard(stream: Any) -> None:
    """Let what `stream` still holds go nowhere, or Python would complain of it at its end."""
    with suppress(OSError, ValueError, AttributeError, io.UnsupportedOperation):
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, stream.fileno())
        os.close(nowhere)


@contextmanager
def streams(*, patient: bool) -> Generator[None]:
    """Inside, output is written in the letters that the streams have; `patient` commands outlive a reader."""
    before = sys.stdout
    for stream in (sys.stdout, sys.stderr):
        # also UTF-8 has no letter for half a surrogate, as in a file's name of another encoding
        with suppress(AttributeError, ValueError, io.UnsupportedOperation):
            stream.reconfigure(errors=PLAIN)  # pyright: ignore[reportAttributeAccessIssue, reportUnknownMemberType]
    if patient:
        sys.stdout = Patient(before)
    try:
        yield
    finally:
        sys.stdout = before
