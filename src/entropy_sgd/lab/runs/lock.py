"""A lock on a folder: it ends with the process that holds it, for whatever reason, and says who holds it.

`flock` on a file in the folder. The kernel drops it when the process is gone, so nothing stale is left behind
after a crash; the file's content is only for the message. On a file system without `flock` (some network
ones) and a system without it (Windows) there is no locking.
"""

from __future__ import annotations

import errno
import json
import os
import socket
import time
from contextlib import suppress
from datetime import datetime
from pathlib import Path
from typing import Any

from entropy_sgd.lab import LabError

try:
    import fcntl
except ImportError:  # Windows
    fcntl = None

NAME = ".lock"
PATIENCE = 1.0
"""Seconds to wait for one who only looks whether the folder is locked."""

_UNSUPPORTED = {errno.ENOSYS, errno.ENOLCK, errno.ENOTSUP, errno.EOPNOTSUPP, errno.EINVAL}
_descriptors: set[int] = set()


class Locked(LabError):
    """Another process writes into the folder."""

    def __init__(self, folder: Path, holder: str) -> None:
        super().__init__(
            f"{folder} is in use by {holder}: wait until it ends, stop it, or choose another with --out"
        )
        self.folder, self.holder = folder, holder

    def __reduce__(self) -> Any:  # errors travel between the processes of a run
        return Locked, (self.folder, self.holder)


class Lock:
    """The lock on `folder`, held from construction to `release`."""

    def __init__(self, folder: Path) -> None:
        self._path = folder / NAME
        self._descriptor: int | None = None
        until = time.monotonic() + PATIENCE
        while self._descriptor is None:
            descriptor = os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
            if not _flock(descriptor, exclusive=True):
                holder = _holder(descriptor)
                os.close(descriptor)
                if time.monotonic() > until:
                    raise Locked(folder, holder)
                time.sleep(0.05)
            elif _same(descriptor, self._path):
                self._descriptor = descriptor
            else:  # the one before has removed the file that we have just locked
                os.close(descriptor)
        _descriptors.add(self._descriptor)
        since = datetime.now().astimezone().isoformat(sep=" ", timespec="seconds")
        record = json.dumps({"pid": os.getpid(), "host": socket.gethostname(), "since": since})
        with suppress(OSError):  # a full disk: the lock holds without the words
            os.truncate(self._descriptor, 0)
            os.write(self._descriptor, record.encode())

    def release(self) -> None:
        """Give the folder free."""
        if self._descriptor is None:
            return
        with suppress(OSError):
            self._path.unlink()
        _descriptors.discard(self._descriptor)
        os.close(self._descriptor)
        self._descriptor = None


def refuse_if_held(folder: Path) -> None:
    """Raise `Locked` if another process holds the lock; writes nothing."""
    try:
        descriptor = os.open(folder / NAME, os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return
    try:
        if not _flock(descriptor, exclusive=False):
            raise Locked(folder, _holder(descriptor))
    finally:
        os.close(descriptor)


def _flock(descriptor: int, *, exclusive: bool) -> bool:
    """Whether the lock could be had; True where there are no locks."""
    if fcntl is None:
        return True
    try:
        fcntl.flock(descriptor, (fcntl.LOCK_EX if exclusive else fcntl.LOCK_SH) | fcntl.LOCK_NB)
    except OSError as error:
        if error.errno in (errno.EAGAIN, errno.EACCES):
            return False
        if error.errno not in _UNSUPPORTED:
            raise
    return True


def _same(descriptor: int, path: Path) -> bool:
    try:
        return os.path.samestat(os.fstat(descriptor), path.stat())
    except FileNotFoundError:
        return False


def _holder(descriptor: int) -> str:
    try:
        record = json.loads(os.pread(descriptor, 4096, 0))
        return f"process {record['pid']} on {record['host']} since {record['since']}"
    except (OSError, ValueError, KeyError, TypeError):
        return "another process"


def _forget() -> None:
    """A forked child would keep the lock alive after its parent."""
    for descriptor in _descriptors:
        os.close(descriptor)
    _descriptors.clear()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forget)
