"""Finding the files of a dataset, and telling whole ones from missing and damaged ones."""

from __future__ import annotations

import hashlib
import os
import stat
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from entropy_sgd.lab import LabError, unknown
from entropy_sgd.lab.data import catalogue


class DataError(LabError):
    """Data that cannot be used. The message is complete: what, where, and what to do about it."""


@dataclass(frozen=True)
class FileStatus:
    """What was found where a file of a dataset belongs."""

    file: catalogue.File
    path: Path
    state: Literal["ok", "missing", "damaged"]
    sha256: str | None
    """Of the bytes found; None when there are none."""


@dataclass(frozen=True)
class DatasetStatus:
    """How much of a dataset is there, by name only: nothing is hashed."""

    dataset: catalogue.Dataset
    present: int
    missing: tuple[Path, ...]


def data_root(data_dir: Path | None = None) -> Path:
    """The folder of the data: `data_dir`, else `$ENTROPY_SGD_DATA`, else the platform's cache folder."""
    if data_dir is not None:
        return Path(data_dir).expanduser()
    if from_environment := os.environ.get("ENTROPY_SGD_DATA"):
        return Path(from_environment).expanduser()
    import platformdirs

    return platformdirs.user_cache_path("entropy-sgd", appauthor=False)


def find(name: str) -> catalogue.Dataset:
    """The published dataset of that name."""
    if name == "digits":
        raise DataError("'digits' comes with the installation: there is nothing to fetch or verify.")
    if name not in catalogue.DATASETS:
        raise DataError(str(unknown("dataset", name, catalogue.DATASETS)))
    return catalogue.DATASETS[name]


def regular(path: Path) -> int:
    """The size of a file that can be read whole: a pipe may never end, and a device never does."""
    try:
        found = path.stat()
    except OSError as error:
        raise DataError(f"{path} cannot be read: {error.strerror or error}.") from error
    if not stat.S_ISREG(found.st_mode):
        why = "Is a directory" if stat.S_ISDIR(found.st_mode) else "it is not a regular file"
        raise DataError(f"{path} cannot be read: {why}.")
    return found.st_size


def fits_memory(path: Path, size: int, times: int) -> None:
    """Refuse `size` bytes that exceed this machine's memory, once held as numbers of `times` bytes."""
    try:
        memory = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    except (AttributeError, OSError, ValueError):  # the system does not say
        return
    if size * times > memory:
        raise DataError(f"{path} holds {size:,} bytes: as numbers they exceed the memory of this machine.")


def sha256(path: Path) -> str:
    """The SHA-256 of a file, in hexadecimal."""
    with path.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()


def status(data_dir: Path | None = None) -> list[DatasetStatus]:
    """For every published dataset, how many of its files are in the data folder."""
    root = data_root(data_dir)
    result: list[DatasetStatus] = []
    for dataset in catalogue.DATASETS.values():
        missing = tuple(root / file.path for file in dataset.files if not (root / file.path).is_file())
        result.append(DatasetStatus(dataset, len(dataset.files) - len(missing), missing))
    return result


def verify(name: str, data_dir: Path | None = None) -> list[FileStatus]:
    """Hash every file of a dataset; the data folder is only read."""
    root = data_root(data_dir)
    result: list[FileStatus] = []
    for file in find(name).files:
        path = root / file.path
        try:
            if path.exists():
                regular(path)
            found = sha256(path) if path.exists() else None
        except OSError as error:
            raise DataError(f"{path} cannot be read: {error.strerror or error}.") from error
        state = "missing" if found is None else "ok" if found == file.sha256 else "damaged"
        result.append(FileStatus(file, path, state, found))
    return result


def require(name: str, data_dir: Path | None = None) -> list[Path]:
    """The paths of a dataset's files, in the catalogue's order, once all of them are known to be whole.

    The files of the test set are hashed too: better to learn of a damaged one now than after the training.
    """
    dataset, found = find(name), verify(name, data_dir)
    if damaged := [file for file in found if file.state == "damaged"]:
        raise DataError("\n".join(map(damage, damaged)))
    if missing := [file.path for file in found if file.state == "missing"]:
        raise _missing(dataset, missing, data_dir)
    return [file.path for file in found]


def require_present(name: str, data_dir: Path | None = None) -> None:
    """Refuse a dataset of which a file is missing; nothing is hashed."""
    root, dataset = data_root(data_dir), find(name)
    if missing := [root / file.path for file in dataset.files if not (root / file.path).exists()]:
        raise _missing(dataset, missing, data_dir)


def _missing(dataset: catalogue.Dataset, missing: list[Path], data_dir: Path | None) -> DataError:
    name, listing = dataset.name, "".join(f"\n  {path}" for path in missing)
    option = "" if data_dir is None else f" --data-dir {data_dir}"
    addresses = "".join(f"\n  {url}" for url in dataset.urls)
    return DataError(
        f"Data of {name!r} is missing. Looked for:{listing}\n"
        f"Get it with: entropy-sgd data fetch {name}{option}\n"
        f"or put the files there yourself; they are published at:{addresses}\n"
        "Another folder is chosen with --data-dir or $ENTROPY_SGD_DATA."
    )


def damage(status: FileStatus) -> str:
    """The message for a file whose bytes are not the publisher's."""
    return (
        f"{status.path} is damaged or truncated.\n"
        f"  SHA-256 found:    {status.sha256}\n"
        f"  SHA-256 expected: {status.file.sha256}\n"
        "It was left as it is. Move it away and fetch the data again."
    )
