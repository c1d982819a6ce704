"""Expensive arrays, cached in a folder: `.npy` files and a list of their SHA-256.

A folder gets its final name only once all of it is written, so a process killed while writing leaves no
incomplete one. The arrays can be recomputed: a cache that cannot be written, or is damaged, costs only time.
"""

from __future__ import annotations

import json
import os
import shutil
import warnings
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from entropy_sgd.lab.data.files import sha256

CONTENTS = "contents.json"


def load(folder: Path) -> dict[str, Tensor] | None:
    """The arrays of a folder by name; None if it is not there or, with a warning, if it is not whole."""
    if not folder.is_dir():
        return None
    try:
        contents = json.loads((folder / CONTENTS).read_text(encoding="utf-8"))
        arrays: dict[str, Tensor] = {}
        for name, expected in contents["sha256"].items():
            path = folder / name
            if (found := sha256(path)) != expected:
                raise ValueError(f"{path} has the SHA-256 {found}, expected {expected}")
            arrays[path.stem] = torch.as_tensor(np.load(path, allow_pickle=False))
        return arrays
    except (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        warnings.warn(f"The cache {folder} is damaged and will be made again: {error}", stacklevel=2)
        return None


def save(folder: Path, arrays: Mapping[str, Tensor], parameters: Mapping[str, Any]) -> None:
    """Keep arrays in a folder, in the place of a damaged one; `parameters` tell a reader what they are."""
    part = folder.with_name(f".{folder.name}.part-{os.getpid()}")
    try:
        part.mkdir(parents=True)
        hashes: dict[str, str] = {}
        for name, array in arrays.items():
            path = part / f"{name}.npy"
            np.save(path, array.numpy(), allow_pickle=False)
            hashes[path.name] = sha256(path)
        contents = json.dumps({"parameters": parameters, "sha256": hashes}, indent=2)
        (part / CONTENTS).write_text(contents, encoding="utf-8")
        shutil.rmtree(folder, ignore_errors=True)
        part.rename(folder)
    except OSError as error:
        warnings.warn(f"{folder} could not be written, so this will be computed again: {error}", stacklevel=2)
    finally:
        shutil.rmtree(part, ignore_errors=True)
