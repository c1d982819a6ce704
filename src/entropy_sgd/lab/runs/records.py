"""JSON on disk: written whole or not at all, read with an error that names the file."""

from __future__ import annotations

import errno
import json
import os
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, cast

from entropy_sgd.lab import LabError

Record = dict[str, Any]


def flatten(tree: Mapping[str, Any], prefix: str = "") -> Record:
    """A nest of dictionaries as one, with dotted names."""
    flat: Record = {}
    for key, value in tree.items():
        if isinstance(value, dict):
            flat |= flatten(cast("Record", value), f"{prefix}{key}.")
        else:
            flat[prefix + key] = value
    return flat


def write_whole(path: Path, content: bytes) -> None:
    """Write a file whole or not at all; /dev/null and its like stay what they are."""
    if path.is_char_device():
        path.write_bytes(content)
        return
    if path.is_fifo() or path.is_socket() or path.is_block_device():
        raise OSError(errno.EINVAL, "not a regular file", str(path))
    temporary = path.with_name(f"{path.name}.tmp")
    try:
        with temporary.open("wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(path)
    except OSError as error:
        with suppress(OSError):
            temporary.unlink()
        raise OSError(error.errno, error.strerror, str(path)) from error


def write_json(path: Path, content: object) -> None:
    """Write a JSON file whole or not at all."""
    text = json.dumps(content, indent=2, ensure_ascii=False, allow_nan=False)
    write_whole(path, f"{text}\n".encode())


def read_json(path: Path) -> Record:
    """Read a JSON file that holds an object; an error names it."""
    try:
        if not path.is_file() and path.exists():
            raise LabError(f"cannot read {path}: it is not a regular file")
        content = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError as error:
        raise LabError(f"{path} does not exist: {path.parent} is not the folder of a run") from error
    except RecursionError as error:
        raise LabError(f"cannot read {path}: it is nested too deeply") from error
    except (OSError, ValueError) as error:
        raise LabError(f"cannot read {path}: {error}") from error
    if not isinstance(content, dict):
        raise LabError(f"{path} must hold a JSON object, got {_name(content)}")
    return cast("Record", content)


Shape = Mapping[str, Any]
"""What a record must have: by name a type, several of them, or again a shape."""


def require(path: Path, record: object, shape: Shape, prefix: str = "") -> None:
    """Refuse a record that is not of this shape, and name the file and the entry."""
    for key, kind in shape.items():
        name = f"{prefix}{key}"
        known = cast("Record", record) if isinstance(record, dict) else {}
        if key not in known:
            raise LabError(f"{path} has no {name}: it is damaged, or not this program's")
        value = known[key]
        if isinstance(kind, Mapping):
            if not isinstance(value, dict):
                raise LabError(f"{path} must have an object as {name}, got {_name(value)}")
            require(path, cast("Record", value), cast("Shape", kind), f"{name}.")
        elif not _fits(value, kind):
            kinds = cast("tuple[type, ...]", kind if isinstance(kind, tuple) else (kind,))
            wanted = " or ".join(_KINDS[one] for one in kinds)
            raise LabError(f"{path} must have {wanted} as {name}, got {_name(value)}")


def number(value: object) -> bool:
    """Whether JSON has given a finite number that a float can hold."""
    return isinstance(value, (int, float)) and not isinstance(value, bool) and abs(value) <= 1e300


_KINDS: dict[type, str] = {
    dict: "an object",
    list: "a list",
    str: "a text",
    bool: "true or false",
    int: "a whole number",
    float: "a finite number",
    type(None): "null",
}


def _fits(value: object, kind: type | tuple[type, ...]) -> bool:
    if isinstance(kind, tuple):
        return any(_fits(value, one) for one in kind)
    if kind is float:
        return number(value)
    return isinstance(value, kind) and (kind is bool or not isinstance(value, bool))


def _name(value: object) -> str:
    text = repr(value)
    return text if len(text) <= 40 else f"{text[:37]}…"


def mapping(path: Path, key: str) -> Record:
    """The object of this name in a JSON file."""
    record = read_json(path)
    require(path, record, {key: dict})
    return record[key]
