"""The paper's data, in memory: found, checked, downloaded and split.

Importing this package imports neither torch nor numpy: the command line can list, fetch and verify data at once.
Batches are drawn with ``entropy_sgd.lab.data.batches``.
"""

from __future__ import annotations

from pathlib import Path

from . import catalogue
from .files import DataError, DatasetStatus, FileStatus, data_root, status, unknown, verify
from .types import Images, Split, Text

__all__ = [
    "DataError",
    "DatasetStatus",
    "FileStatus",
    "Images",
    "Split",
    "Text",
    "data_root",
    "load",
    "names",
    "status",
    "verify",
]


def names() -> list[str]:
    """The names ``load`` knows; besides them it takes ``idx:FOLDER`` and ``text:FILE``."""
    return [*catalogue.DATASETS, "digits"]


def load(name: str, data_dir: Path | None = None, *, final: bool = False) -> Images | Text:
    """Read a dataset into memory.

    Args:
        name: one of ``names()``, ``idx:FOLDER`` for images of the user's own in MNIST's format, or ``text:FILE``
            for any file, read as bytes.
        data_dir: where the published data lies; see ``data_root``.
        final: train on all of the publisher's training set. Otherwise a validation set is cut from it where the
            publisher gives none.
    """
    if name == "mnist":
        from . import idx

        return idx.mnist(data_dir, final=final)
    if name == "digits":
        from .digits import digits

        return digits(final=final)
    raise DataError(unknown("dataset", name, names()))
