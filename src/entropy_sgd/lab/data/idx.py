"""The idx format of MNIST: its four files, or any folder of the user's own that holds files of these names.

An idx file is a header of big-endian numbers (two zero bytes, the element type, the number of dimensions n,
then n sizes of four bytes) followed by the elements in C order. Only unsigned bytes (type 8) occur here.
"""

from __future__ import annotations

import gzip
import math
import struct
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO, cast

import torch

from entropy_sgd.lab.data import files
from entropy_sgd.lab.data.files import DataError
from entropy_sgd.lab.data.types import Images, Split

if TYPE_CHECKING:
    from torch import Tensor

MNIST_VALIDATION = 5_000
"""The last 5,000 of MNIST's 60,000: half as many as the test set, and an error of 1 % is known to 0.14 %."""

Bytes = tuple["Tensor", "Tensor"]
"""Images (N, C, H, W) and labels (N,), uint8."""

_UNSIGNED_BYTE = 8


def read(path: Path) -> Tensor:
    """The uint8 array in an idx file, compressed with gzip or not."""
    files.regular(path)
    try:
        with path.open("rb") as stream:
            packed = stream.read(2) == b"\x1f\x8b"
        with gzip.open(path) if packed else path.open("rb") as stream:
            return _array(path, cast("BinaryIO", stream))
    except (OSError, EOFError, zlib.error) as error:
        raise DataError(f"{path} cannot be read: {error}.") from error


def _array(path: Path, stream: BinaryIO) -> Tensor:
    """No more is read than the header announces: a small file can unpack to any size."""
    start = stream.read(4)
    if len(start) < 4 or start[:2] != b"\0\0" or start[2] != _UNSIGNED_BYTE:
        raise DataError(f"{path} is not an idx file of unsigned bytes: it begins with [{start.hex(' ')}].")
    sizes = stream.read(4 * start[3])
    if len(sizes) < 4 * start[3]:
        raise DataError(f"{path} ends inside its header, after {4 + len(sizes)} bytes.")
    shape = struct.unpack(f">{start[3]}I", sizes)
    count = math.prod(shape)
    announced = f"{path} announces {count} elements {shape}, but holds"
    if count > 1100 * path.stat().st_size:  # deflate packs 1032 bytes into one at best
        raise DataError(f"{announced} fewer.")
    files.fits_memory(path, count, 6)  # the bytes, a copy, and a float for each
    content = stream.read(count)
    if len(content) < count:
        raise DataError(f"{announced} {len(content)}.")
    if more := stream.read(1 << 20):
        raise DataError(f"{announced} {count + len(more)}{' or more' if len(more) == 1 << 20 else ''}.")
    return (
        torch.frombuffer(bytearray(content), dtype=torch.uint8).view(shape)
        if count
        else torch.empty(shape, dtype=torch.uint8)
    )


def read_pair(images: Path, labels: Path) -> Bytes:
    """The images and labels of two files that belong together."""
    x, y = read(images), read(labels)
    if x.ndim == 3:
        x = x[:, None]  # (N, H, W) -> (N, 1, H, W)
    if x.ndim != 4 or x.numel() == 0:
        raise DataError(
            f"{images} must hold (N, H, W) or (N, C, H, W) bytes, got a shape of {tuple(x.shape)}."
        )
    if y.shape != x.shape[:1]:
        raise DataError(
            f"{labels} must hold one label for each of {len(x)} images, got a shape of {tuple(y.shape)}."
        )
    return x, y


def normalised(
    name: str,
    train: Bytes,
    validation: Bytes | None,
    read_test: Callable[[], Bytes],
) -> Images:
    """Scale bytes to [0, 1], then to mean 0 and variance 1 over all pixels of the training part."""
    std, mean = (float(moment) for moment in torch.std_mean(train[0].float().div_(255), correction=0))
    classes = 1 + max(int(labels.max()) for _, labels in filter(None, (train, validation)))

    def split(images: Tensor, labels: Tensor) -> Split:
        _check_classes(name, labels, classes)
        return Split(images.float().div_(255).sub_(mean).div_(std or 1.0), labels.long())

    held_out = validation and split(*validation)
    return Images(name, split(*train), held_out, classes, lambda: split(*read_test()))


def _check_classes(name: str, labels: Tensor, classes: int) -> None:
    if (highest := int(labels.max())) >= classes:
        raise DataError(
            f"{name!r}: the test set has class {highest}, the training set only 0 to {classes - 1}."
        )


def mnist(data_dir: Path | None, *, final: bool) -> Images:
    """MNIST; its last 5,000 training images are the validation set."""
    train_images, train_labels, test_images, test_labels = files.require("mnist", data_dir)
    x, y = read_pair(train_images, train_labels)
    cut = len(x) if final else len(x) - MNIST_VALIDATION
    validation = None if final else (x[cut:], y[cut:])
    return normalised("mnist", (x[:cut], y[:cut]), validation, lambda: read_pair(test_images, test_labels))


def folder(path: Path, *, final: bool) -> Images:
    """Images of the user's own: files named as MNIST's, compressed or not, of any size and number of classes.

    Every tenth training image is for validation: whatever the order of the file, sorted by class included,
    both parts resemble the whole. The two files of the test set are needed only where the test set is read.
    """

    def pair(part: str) -> tuple[Path, Path]:
        found: list[Path] = []
        for kind in ("images", "labels"):
            candidates = sorted(path.glob(f"{part}-{kind}-idx?-ubyte*"))
            if not candidates:
                digit = 3 if kind == "images" else 1
                raise DataError(
                    f"No {kind} in idx format: looked for {path / part}-{kind}-idx{digit}-ubyte[.gz]."
                )
            found.append(candidates[0])
        return found[0], found[1]

    x, y = read_pair(*pair("train"))
    if final:  # what is wrong with the test set is said now, not after the training
        test, labels = read_pair(*pair("t10k"))
        if test.shape[1:] != x.shape[1:]:
            sizes = (" x ".join(map(str, images.shape[1:])) for images in (test, x))
            raise DataError(f"{path}: test images of {', but training images of '.join(sizes)}.")
        _check_classes(f"idx:{path}", labels, 1 + int(y.max()))
    elif len(x) < 10:
        raise DataError(
            f"{path} must have at least 10 training images to cut a validation set, got {len(x)}."
        )
    held_out = torch.arange(len(x)) % 10 == 9
    train = (x, y) if final else (x[~held_out], y[~held_out])
    validation = None if final else (x[held_out], y[held_out])
    return normalised(f"idx:{path}", train, validation, lambda: read_pair(*pair("t10k")))
