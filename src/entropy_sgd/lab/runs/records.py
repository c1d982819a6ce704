"""JSON on disk: written whole or not at all, read with an error that names the file."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
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


def write_json(path: Path, content: object) -> None:
    """Write a JSON file whole or not at all."""
    temporary = path.with_name(f"{path.name}.tmp")
    with temporary.open("w", encoding="utf-8") as file:
        json.dump(content, file, indent=2, ensure_ascii=False, allow_nan=False)
        file.write("\n")
        file.flush()
        os.fsync(file.fileno())
    temporary.replace(path)


def read_json(path: Path) -> Record:
    """Read a JSON file; an error names it."""
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError as error:
        raise LabError(f"{path} does not exist: {path.parent} is not the folder of a run") from error
    except (OSError, ValueError) as error:
        raise LabError(f"cannot read {path}: {error}") from error
