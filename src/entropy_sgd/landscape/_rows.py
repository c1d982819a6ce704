"""The finished rows of a Hessian on disk, so that a long build can be interrupted and go on.

The file is one line of JSON (what it belongs to) and then rows, appended as they are finished; a row of
parameter k starts at that parameter's first column, for the rest follows from symmetry. A row cut short by an
interruption is dropped.
"""

from __future__ import annotations

import hashlib
import json
import os
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from ._objective import Objective
from ._random import generator
from ._support import Support


class RowFile:
    """Rows of the Hessian of ``f``, appended to and read back from ``path``."""

    def __init__(self, path: Path, f: Objective, support: Support):
        self._path, self._dtype, self._support = path, f.dtype, support
        self._header = {
            "rows of": "entropy_sgd Hessian",
            "n": support.n,
            "dtype": str(f.dtype),
            "weights": _digest(f.weights),
            "support": _digest(support.columns),
        }

    def load(self, matrix: Tensor) -> int:
        """Fill the upper triangle of ``matrix`` with the rows on disk and say how many there are."""
        if not self._path.exists():
            self._path.parent.mkdir(parents=True, exist_ok=True)
            self._path.write_bytes(json.dumps(self._header).encode() + b"\n")
            return 0
        row, width = 0, matrix.element_size()
        with self._path.open("r+b") as file:
            if _parsed(file.readline(4096)) != self._header:
                raise ValueError(
                    f"checkpoint {self._path} was made for other weights or data, in another dtype or by "
                    "another version: give another path, or delete it to start again"
                )
            end = file.tell()
            n = self._support.n
            for first, size in _blocks(self._support.sizes):
                for row in range(first, first + size):
                    data = file.read((n - first) * width)
                    if len(data) < (n - first) * width:
                        file.truncate(end)
                        self._verify(matrix, row)
                        return row
                    matrix.numpy()[row, first:] = np.frombuffer(data, dtype=matrix.numpy().dtype)
                    end = file.tell()
        self._verify(matrix, n)
        return n

    def append(self, rows: Tensor) -> None:
        """Add finished rows (K, columns) and wait until they are on the disk."""
        with self._path.open("ab") as file:
            file.write(rows.numpy().tobytes())
            file.flush()
            os.fsync(file.fileno())

    def remove(self) -> None:
        """Delete the file."""
        self._path.unlink()

    def _verify(self, matrix: Tensor, rows: int) -> None:
        """The rows must multiply a random vector as this model, loss and data do: one product a parameter."""
        sizes = self._support.sizes
        blocks = [(first, min(first + size, rows)) for first, size in _blocks(sizes) if size and first < rows]
        if not blocks:
            return
        vectors = torch.randn(len(blocks), self._support.n, generator=generator(0)).to(self._dtype)
        for vector, (first, _) in zip(vectors, blocks, strict=True):
            vector[:first] = 0.0
        products = self._support.products(vectors)
        tolerance = 1e4 * torch.finfo(self._dtype).eps * float(products.abs().max())
        for vector, product, (first, last) in zip(vectors, products, blocks, strict=True):
            found = matrix[first:last, first:] @ vector[first:]
            if not bool((found - product[first:last]).abs().max() <= tolerance):
                raise ValueError(
                    f"checkpoint {self._path} does not agree with this model, loss_fn and batches "
                    "(or is damaged): give another path, or delete it to start again"
                )


def _blocks(sizes: list[int]) -> list[tuple[int, int]]:
    """(first row, number of rows) of each parameter."""
    return [(sum(sizes[:k]), size) for k, size in enumerate(sizes)]


def _digest(tensor: Tensor) -> str:
    return hashlib.sha256(tensor.cpu().numpy().tobytes()).hexdigest()


def _parsed(line: bytes) -> object:
    try:
        return json.loads(line)
    except ValueError:
        return None
