"""The paper's data, in memory: found, checked, downloaded and split.

Importing this package imports neither torch nor numpy, so that the command line starts at once. Batches
are drawn with `entropy_sgd.lab.data.batches`.
"""

from __future__ import annotations

from importlib import import_module
from pathlib import Path

from entropy_sgd.lab import unknown
from entropy_sgd.lab.data import catalogue
from entropy_sgd.lab.data.download import fetch
from entropy_sgd.lab.data.files import (
    DataError,
    DatasetStatus,
    FileStatus,
    data_root,
    regular,
    require_present,
    status,
    verify,
)
from entropy_sgd.lab.data.types import Images, Split, Text

__all__ = [
    "DataError",
    "DatasetStatus",
    "FileStatus",
    "Images",
    "Split",
    "Text",
    "check",
    "data_root",
    "fetch",
    "load",
    "names",
    "status",
    "verify",
]


def names() -> list[str]:
    """The names `load` knows; besides them it takes `idx:FOLDER` and `text:FILE`."""
    return [*catalogue.DATASETS, "digits"]


def check(name: str, data_dir: Path | None = None, *, present: bool = True) -> None:
    """Refuse a name that `load` does not know and, with `present`, data that are not there."""
    kind, colon, path = name.partition(":")
    if kind in ("idx", "text") and colon and path:
        place = Path(path).expanduser()
        if present and kind == "idx" and not place.is_dir():
            raise DataError(f"{name!r}: {place} is not a folder.")
        if present and kind == "text":
            regular(place)
    elif name not in names():
        raise DataError(str(unknown("dataset", name, [*names(), "idx:FOLDER", "text:FILE"])))
    elif present and name != "digits":
        require_present(name, data_dir)


def load(name: str, data_dir: Path | None = None, *, final: bool = False) -> Images | Text:
    """Read a dataset into memory.

    Args:
        name: one of `names()`, `idx:FOLDER` for images of the user's own in MNIST's format, or
            `text:FILE` for any file, read as bytes.
        data_dir: folder of the published data; see `data_root`.
        final: train on all of the publisher's training set. Otherwise a validation set is cut from it where
            the publisher gives none.

    """
    check(name, present=False)
    if name in catalogue.READERS:
        module, _, reader = catalogue.READERS[name].partition(":")
        return getattr(import_module(f"{__name__}.{module}"), reader)(data_dir, final=final)
    kind, _, path = name.partition(":")
    if name == "digits":
        from entropy_sgd.lab.data.digits import digits

        return digits(final=final)
    if kind == "idx":
        from entropy_sgd.lab.data import idx

        return idx.folder(Path(path).expanduser(), final=final)
    from entropy_sgd.lab.data import text

    return text.split_bytes(name, Path(path).expanduser())
