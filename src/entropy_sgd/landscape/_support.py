"""The Hessian without the weights that the loss does not bend with.

A weight on a pixel that is never lit, or behind a unit that is never on, has a row of zeros. To leave these
out before the matrix is built saves their products, their memory and their part of the decomposition.
"""

from __future__ import annotations

import torch
from torch import Tensor

from ._objective import Objective
from ._random import generator


class Support:
    """The rows and columns of the Hessian of ``f`` that are not zero: ``n`` of them.

    (H v)_i is zero for a random v if row i is. Otherwise it is so with probability zero, or because the whole
    row is lost in rounding; two vectors are tried.
    """

    def __init__(self, f: Objective):
        vectors = torch.randn(2, f.n, generator=generator(0)).to(f.weights)
        nonzero = (f.products(vectors) != 0).any(dim=0).cpu()
        self._f = f
        self.columns = nonzero.nonzero().flatten()
        self._parts = [part.nonzero().flatten() for part in nonzero.split_with_sizes(f.sizes)]
        self.sizes = [len(part) for part in self._parts]
        self.n = len(self.columns)

    def rows(self, k: int, first: int, last: int) -> Tensor:
        """Rows ``first`` to ``last`` of those of parameter k, from that parameter's first column on."""
        unit = torch.zeros(last - first, self._f.sizes[k], dtype=self._f.dtype)
        unit[torch.arange(last - first), self._parts[k][first:last]] = 1.0
        columns = self.columns[sum(self.sizes[:k]) :] - sum(self._f.sizes[:k])
        return self._f.block_products(k, unit.to(self._f.device)).cpu()[:, columns]

    def products(self, vectors: Tensor) -> Tensor:
        """H v for each row v of ``vectors`` (K, n)."""
        whole = torch.zeros(len(vectors), self._f.n, dtype=self._f.dtype)
        whole[:, self.columns] = vectors
        return self._f.products(whole.to(self._f.device)).cpu()[:, self.columns]
