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
from entropy_sgd.lab.data.files import DataError, DatasetStatus, FileStatus, data_root, status, verify
from entropy_sgd.lab.data.types import Images, Split, Text

__all__ = [
    "DataError",
    "DatasetStatus",
    "FileStatus",
    "Images",
    "Split",
    "Text",
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


def load(name: str, data_dir: Path | None = None, *, final: bool = False) -> Images | Text:
    """Read a dataset into memory.

    Args:
        name: one of `names()`, `idx:FOLDER` for images of the user's own in MNIST's format, or
            `text:FILE` for any file, read as bytes.
        data_dir: folder of the published data; see `data_root`.
        final: train on all of the publisher's training set. Otherwise a validation set is cut from it where
            the publisher gives none.

    """
    if name in catalogue.READERS:
        module, _, reader = catalogue.READERS[name].partition(":")
        return getattr(import_module(f"{__name__}.{module}"), reader)(data_dir, final=final)
    kind, _, path = name.partition(":")
    if name == "digits":
        from entropy_sgd.lab.data.digits import digits

        return digits(final=final)
    if kind == "idx" and path:
        from entropy_sgd.lab.data import idx

        return idx.folder(Path(path).expanduser(), final=final)
    if kind == "text" and path:
        from entropy_sgd.lab.data import text

        return text.split_bytes(name, Path(path).expanduser())
    raise DataError(str(unknown("dataset", name, [*names(), "idx:FOLDER", "text:FILE"])))
