"""CIFAR-10, binary version: contrast-normalised, whitened, and the whitened images kept on disk.

A record is one byte of label and 3,072 bytes of image, the red, green and blue planes of 32 x 32. The other
version's pickles are never opened.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Generator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import torch

from entropy_sgd.lab.data import cache, files, whitening
from entropy_sgd.lab.data.files import DataError
from entropy_sgd.lab.data.types import Images, Split
from entropy_sgd.lab.data.whitening import Whitening

if TYPE_CHECKING:
    from torch import Tensor

VALIDATION = 5_000
"""The last 5,000 of the 50,000 training images: a tenth, half as many as the test set."""

_RECORD = 1 + 3 * 32 * 32


def read(paths: list[Path]) -> tuple[Tensor, Tensor]:
    """The images (N, 3072) and labels (N,) of some batch files, as they are: uint8."""
    content = b"".join(path.read_bytes() for path in paths)
    if not content or len(content) % _RECORD:
        listing = ", ".join(map(str, paths))
        raise DataError(f"{listing}: {len(content)} bytes are not whole records of {_RECORD} bytes.")
    records = torch.frombuffer(bytearray(content), dtype=torch.uint8).view(-1, _RECORD)
    return records[:, 1:], records[:, 0]


def cifar10(data_dir: Path | None, *, final: bool) -> Images:
    """CIFAR-10; its last 5,000 training images are the validation set.

    The whitening is fitted on the images that are trained on: 45,000, or all 50,000 when `final`.
    Validation and test images pass through it as images never seen before.
    """
    *train, test = files.require("cifar10", data_dir)
    raw, labels = read(train)
    labels = labels.long()
    cut = len(raw) if final else len(raw) - VALIDATION
    images, fitted = _whitened(raw, cut, files.data_root(data_dir))

    def read_test() -> Split:
        raw, labels = read([test])
        images = fitted.apply_(whitening.normalise_contrast_(raw.float()))
        return Split(images.view(-1, 3, 32, 32), labels.long())

    return Images(
        "cifar10",
        Split(images[:cut], labels[:cut]),
        None if final else Split(images[cut:], labels[cut:]),
        classes=10,
        read_test=read_test,
    )


def _whitened(raw: Tensor, cut: int, root: Path) -> tuple[Tensor, Whitening]:
    """All images (N, 3, 32, 32), whitened by what the first `cut` of them teach, and that whitening."""
    parameters = {
        "files": [file.sha256 for file in files.find("cifar10").files],
        "fitted on the first": cut,
        "contrast": whitening.CONTRAST,
        "bias": whitening.BIAS,
    }
    key = hashlib.sha256(json.dumps(parameters, sort_keys=True).encode()).hexdigest()[:16]
    folder = root / "cifar-10-whitened" / key
    arrays = cache.load(folder)
    if arrays is None:
        with _progress() as at:
            at("contrast", 0.0)
            images = whitening.normalise_contrast_(raw.float())
            at("covariance and its eigenvectors", 0.1)
            fitted = Whitening.fit(images[:cut])
            at("images", 0.6)
            arrays = {"images": fitted.apply_(images), "mean": fitted.mean, "matrix": fitted.matrix}
            at("keeping the result", 0.9)
            cache.save(folder, arrays, parameters)
    return arrays["images"].view(-1, 3, 32, 32), Whitening(arrays["mean"], arrays["matrix"])


@contextmanager
def _progress() -> Generator[Callable[[str, float], None]]:
    """On standard error, what is being computed, how far it all is, and the time that goes by."""
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

    console = Console(stderr=True)
    if not console.is_terminal:
        console.print("whitening CIFAR-10, once: it takes half a minute", soft_wrap=True)
    columns = BarColumn(16), TimeElapsedColumn(), TextColumn("whitening CIFAR-10, once: {task.description}")
    with Progress(*columns, console=console, transient=True, disable=not console.is_terminal) as bar:
        task = bar.add_task("", total=1.0)
        yield lambda what, share: bar.update(task, description=what, completed=share)
