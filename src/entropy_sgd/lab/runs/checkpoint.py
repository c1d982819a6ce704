"""Checkpoints that survive a crash at any moment.

A checkpoint is written beside its final name, synced to the disk and renamed; the one before it is kept. It
is a dictionary of plain tensors and numbers, opened with `weights_only=True` so that no code in it can run,
and it holds the SHA-256 of its own contents.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, cast

import torch
from torch import Tensor

from entropy_sgd.lab import LabError
from entropy_sgd.lab.runs.folder import CHECKPOINTS

NAME, PREVIOUS = CHECKPOINTS

State = dict[str, Any]


def digest(state: object) -> str:
    """SHA-256 of a nest of dictionaries, sequences, tensors and plain values, type by type, bit by bit."""
    sha = hashlib.sha256()

    def feed(value: object) -> None:
        if isinstance(value, Tensor):
            sha.update(f"tensor {value.dtype} {tuple(value.shape)} ".encode())
            # viewed as bytes, so that every type of element is hashed alike
            sha.update(value.detach().cpu().contiguous().reshape(-1).view(torch.uint8).numpy().data)
        elif isinstance(value, Mapping):
            mapping = cast("Mapping[object, object]", value)
            sha.update(f"mapping {len(mapping)} ".encode())
            for key, entry in mapping.items():
                feed(key)
                feed(entry)
        elif isinstance(value, Sequence) and not isinstance(value, str):
            sequence = cast("Sequence[object]", value)
            sha.update(f"sequence {len(sequence)} ".encode())
            for entry in sequence:
                feed(entry)
        else:
            sha.update(f"{type(value).__name__} {value!r} ".encode())

    feed(state)
    return sha.hexdigest()


def write(path: Path, content: State, *, keep: Path | None = None) -> None:
    """Write `content` whole or not at all; what `path` held before goes to `keep`."""
    temporary = path.with_name(f"{path.name}.tmp")
    try:
        with temporary.open("wb") as file:
            torch.save(content, file)
            file.flush()
            os.fsync(file.fileno())
    except (OSError, RuntimeError) as error:  # torch reports a failed write as either
        temporary.unlink(missing_ok=True)
        raise LabError(f"cannot write {path}: {error}. The last checkpoint is intact.") from error
    if keep is not None and path.exists():
        path.replace(keep)
    temporary.replace(path)
    if os.name == "posix":  # the renames are on the disk only once the folder is
        descriptor = os.open(path.parent, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)


def save(folder: Path, state: State) -> None:
    """Write `state` as the folder's checkpoint and keep the one before it; on failure nothing changes."""
    write(folder / NAME, {"sha256": digest(state), "state": state}, keep=folder / PREVIOUS)


def load(folder: Path) -> tuple[State | None, list[str]]:
    """The newest good checkpoint, if there ever was one, and a complaint for each damaged one passed over.

    A process killed between the two renames of `save` leaves only the previous checkpoint: no damage.
    """
    complaints: list[str] = []
    for name in (NAME, PREVIOUS):
        path = folder / name
        if not path.exists():
            continue
        try:
            content = torch.load(path, weights_only=True, map_location="cpu")
            if digest(content["state"]) == content["sha256"]:
                return content["state"], complaints
            reason = "its contents do not match the SHA-256 it holds"
        except PermissionError as error:
            raise LabError(f"cannot read {path}: {error}") from error
        except (
            Exception
        ) as error:  # a damaged file can fail anywhere in torch's reader, with any type of error
            reason = str(error).strip().partition("\n")[0] or type(error).__name__
        complaints.append(f"{path} is damaged ({reason})")
    if complaints:
        raise LabError(
            f"{'; '.join(complaints)}. No good checkpoint is left: use --overwrite to train again."
        )
    return None, complaints
