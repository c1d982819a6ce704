"""`--json`: the result of any command as JSON, alone on stdout; everything else goes to stderr.

A command returns its result; what it prints is for people. Paths and dataclasses are written as JSON has
them, and so is an error: `{"error": …, "exit_code": …}`.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable, Generator
from contextlib import contextmanager, redirect_stdout
from dataclasses import asdict, is_dataclass
from pathlib import Path
from typing import Any

from entropy_sgd import extras
from entropy_sgd.lab import LabError

FLAG = "--json"
HELP = f"{FLAG} prints the result as JSON, alone on stdout, and the rest on stderr."


def as_json(command: Callable[[list[str]], object], arguments: list[str]) -> None:
    """Call the command and print what it returns."""
    try:
        with _stdout_to_stderr():
            result = command(arguments)
    except BrokenPipeError:
        raise
    except SystemExit as stop:  # options that cannot be read; what is wrong is on stderr
        if stop.code not in (None, 0):
            _print({"error": "the options cannot be read: see stderr", "exit_code": stop.code})
        raise
    except (Exception, KeyboardInterrupt) as error:
        if (known := told(error)) is not None:
            _print({"error": known[0], "exit_code": known[1]})
        raise
    _print(result)


def told(error: BaseException) -> tuple[str, int] | None:
    """What the user is told of an error, and the exit code; None for a fault of the program."""
    match error:
        case LabError():
            return str(error), error.exit_code
        case UnicodeEncodeError():
            return "the arguments must be UTF-8", 2
        case ModuleNotFoundError() if error.name is not None and not error.name.startswith("entropy_sgd"):
            return f"the package {error.name} is missing: {extras.hint('lab')}", 2
        case KeyboardInterrupt():
            return "interrupted", 130
        case OSError():  # no permission, no space: the message has the file
            return str(error), 2
        case MemoryError() | RecursionError():
            return f"this needs more memory than is available ({error})", 2
        case _:
            return None


def _print(result: object) -> None:
    if os.environ.get("RANK", "0") != "0":  # one of several processes that train together
        return
    print(json.dumps(result, indent=2, allow_nan=False, default=_plain), flush=True)


def _plain(value: Any) -> Any:
    if isinstance(value, Path):
        return str(value)
    if is_dataclass(value) and not isinstance(value, type):
        return asdict(value)
    raise TypeError(f"{type(value).__name__} cannot be written as JSON")


@contextmanager
def _stdout_to_stderr() -> Generator[None]:
    """Inside, what this process and those it starts print goes to stderr."""
    sys.stdout.flush()
    kept = os.dup(1)
    try:
        os.dup2(2, 1)
        with redirect_stdout(sys.stderr):
            yield
    finally:
        os.dup2(kept, 1)
        os.close(kept)
