"""The rows of the Hessian: which of them are not zero, their values, and a file of those finished.

A weight on a pixel that is never lit, or behind a unit that is never on, has a row of zeros. Leaving these
rows out before the matrix is built saves their products, their memory and their share of the decomposition.

The file lets a long build continue after an interruption. It is one line of JSON (what it belongs to)
followed by rows, appended as they are finished; a row of parameter k starts at that parameter's first column,
because the rest follows from symmetry. A row cut short by an interruption is dropped.
"""

from __future__ import annotations

import hashlib
import json
import os
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from entropy_sgd.landscape.objective import Objective
from entropy_sgd.landscape.runtime import generator


class Support:
    """The `n` rows and columns of the Hessian of `f` that are not zero.

    If row i is zero then so is (H v)_i for every v. For any other row, (H v)_i is zero with probability zero
    for a random v, unless the whole row is lost in rounding; two vectors are tried.
    """

    def __init__(self, f: Objective):
        vectors = torch.randn(2, f.n, generator=generator(0), device="cpu").to(f.weights)
        nonzero = (f.products(vectors) != 0).any(dim=0).cpu()
        self._f = f
        self.columns = nonzero.nonzero().flatten()
        self._parts = [part.nonzero().flatten() for part in nonzero.split_with_sizes(f.sizes)]
        self.sizes = [len(part) for part in self._parts]
        self.n = len(self.columns)

    def rows(self, k: int, first: int, last: int) -> Tensor:
        """Rows `first` to `last` of parameter k, from that parameter's first column on."""
        unit = torch.zeros(last - first, self._f.sizes[k], dtype=self._f.dtype, device="cpu")
        unit[torch.arange(last - first, device="cpu"), self._parts[k][first:last]] = 1.0
        columns = self.columns[sum(self.sizes[:k]) :] - sum(self._f.sizes[:k])
        return self._f.block_products(k, unit.to(self._f.device)).cpu()[:, columns]

    def products(self, vectors: Tensor) -> Tensor:
        """H v for each row v of `vectors` (K, n)."""
        whole = torch.zeros(len(vectors), self._f.n, dtype=self._f.dtype, device="cpu")
        whole[:, self.columns] = vectors
        return self._f.products(whole.to(self._f.device)).cpu()[:, self.columns]


class RowFile:
    """Rows of the Hessian of `f`, appended to and read back from `path`."""

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
        """Fill the upper triangle of `matrix` with the rows on disk and return their number."""
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
        """Append finished rows (K, columns) and wait until they are on disk."""
        with self._path.open("ab") as file:
            file.write(rows.numpy().tobytes())
            file.flush()
            os.fsync(file.fileno())

    def remove(self) -> None:
        """Delete the file."""
        self._path.unlink()

    def _verify(self, matrix: Tensor, rows: int) -> None:
        """Check the rows against this model, loss and data by one random product per parameter."""
        sizes = self._support.sizes
        blocks = [(first, min(first + size, rows)) for first, size in _blocks(sizes) if size and first < rows]
        if not blocks:
            return
        vectors = torch.randn(len(blocks), self._support.n, generator=generator(0), device="cpu").to(
            self._dtype
        )
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
