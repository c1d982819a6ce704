"""Checkpoints that survive a crash at any moment.

A checkpoint is written beside its final name, synced to the disk and renamed; the one before it is kept. It
is a dictionary of plain tensors and numbers, opened with `weights_only=True` so that no code in it can run,
and it holds the SHA-256 of its own contents and the settings of its run.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import IO, Any, cast

import torch
from torch import Tensor

from entropy_sgd.lab import LabError
from entropy_sgd.lab.runs.claim import differences
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


class _Watched:
    """A file that remembers why a write failed: torch's own message does not say."""

    def __init__(self, file: IO[bytes]) -> None:
        self.file = file
        self.error: OSError | None = None

    def write(self, data: Any) -> int:
        try:
            return self.file.write(data)
        except OSError as error:
            self.error = error
            raise

    def flush(self) -> None:
        self.file.flush()


def write(path: Path, content: State, *, keep: Path | None = None) -> None:
    """Write `content` whole or not at all; what `path` held before goes to `keep`."""
    temporary = path.with_name(f"{path.name}.tmp")
    watched: _Watched | None = None
    try:
        with temporary.open("wb", buffering=0) as file:
            watched = _Watched(file)
            torch.save(content, cast("Any", watched))
            os.fsync(file.fileno())
    except (OSError, RuntimeError) as error:  # torch reports a failed write as either
        with suppress(OSError):
            temporary.unlink()
        reason = (watched and watched.error) or error
        why = reason.strerror if isinstance(reason, OSError) and reason.strerror else _first_line(reason)
        raise LabError(f"cannot write {path}: {why}. {left(path.parent)}") from error
    if keep is not None and path.exists():
        path.replace(keep)
    temporary.replace(path)
    if os.name == "posix":  # the renames are on the disk only once the folder is
        descriptor = os.open(path.parent, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)


def _first_line(error: BaseException) -> str:
    return str(error).strip().partition("\n")[0] or type(error).__name__


def left(folder: Path, kept: str = "The last checkpoint is intact: continue from it with --resume.") -> str:
    """What is said after an error: `kept` if there is a checkpoint."""
    there = any((folder / name).exists() for name in CHECKPOINTS)
    return kept if there else "There is no checkpoint yet."


def save(folder: Path, state: State) -> None:
    """Write `state` as the folder's checkpoint and keep the one before it; on failure nothing changes."""
    write(folder / NAME, {"sha256": digest(state), "state": state}, keep=folder / PREVIOUS)


def load(folder: Path, settings: Mapping[str, Any] | None = None) -> tuple[State | None, list[str]]:
    """The newest good checkpoint, if there ever was one, and a complaint for each bad one passed over.

    One that was made with other `settings` is another run's. Those before version 0.2 do not carry any. A
    process killed between the two renames of `save` leaves only the previous checkpoint: no damage.
    """
    complaints: list[str] = []
    for name in (NAME, PREVIOUS):
        path = folder / name
        if not path.exists():
            continue
        try:
            if not path.is_file():
                raise LabError("it is not a regular file")
            return _checked(torch.load(path, weights_only=True, map_location="cpu"), settings), complaints
        except PermissionError as error:
            raise LabError(f"cannot read {path}: {error}") from error
        except _Foreign as error:
            complaints.append(f"{path} is from another run ({error})")
        except Exception as error:  # a damaged file can fail anywhere in torch's reader, with any error
            complaints.append(f"{path} is damaged ({_first_line(error)})")
    if complaints:
        raise LabError(
            f"{'; '.join(complaints)}. No good checkpoint is left: use --overwrite to train again."
        )
    return None, complaints


class _Foreign(Exception):
    """The checkpoint was made with other settings."""


def _checked(content: object, settings: Mapping[str, Any] | None) -> State:
    state: object = cast("State", content)["state"] if isinstance(content, dict) else None
    if not isinstance(state, dict):
        raise ValueError("it holds no state of a run")
    if digest(cast("object", state)) != cast("State", content)["sha256"]:
        raise ValueError("its contents do not match the SHA-256 it holds")
    found = cast("State", state)
    if settings is not None and "settings" in found:
        changed = differences(found["settings"], settings)
        if changed:
            raise _Foreign("; ".join(changed[:3]))
    return found
