"""Block Lanczos with full reorthogonalisation.

From a block of starting vectors V = Q_1 R the recurrence  H Q_j = Q_{j-1} B_{j-1}^T + Q_j A_j + Q_{j+1} B_j
builds an orthonormal basis Q = (Q_1, ..., Q_m) of a Krylov space and the block tridiagonal T = Q^T H Q. With
T = U diag(theta) U^T, any function of H between starting vectors is

    v_i^T g(H) v_j  ~  sum_k g(theta_k) c_ki c_kj,        c = U_1^T R,

exactly for polynomials up to degree 2m - 1, and exactly for all g once the space is invariant. Rounding makes
the plain recurrence lose orthogonality and report copies of eigenvalues it has already found; here every new
block is orthogonalised against all earlier ones, which prevents that.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property

import torch
from torch import Tensor

from entropy_sgd.landscape.typed_torch import eigh, lengths, qr, svd

# Overlaps are summed over so many entries at a time, and these sums in float64: the rounding of a float32 sum
# over all n can exceed the curvature of most directions.
ENTRIES = 2048


@dataclass(frozen=True)
class Krylov:
    """The result of block Lanczos: T, R, the basis and the coupling to the next block, which is not built."""

    matrix: Tensor  # T (m, m), float64
    start: Tensor  # R (r, b), float64: the starting vectors in terms of the first block
    basis: Tensor  # Q (m, n), one vector per row
    blocks: list[int]  # the number of vectors in each block
    coupling: Tensor  # B_m (r, size of the last block), float64; no rows if the space is invariant

    def ritz(self) -> tuple[Tensor, Tensor]:
        """Ritz values theta (m,), ascending, and the components c (m, b) of the starting vectors."""
        theta, vectors = self._eigen
        return theta, vectors[: len(self.start)].T @ self.start

    def solve(self, shift: float) -> tuple[Tensor, Tensor]:
        """v_i^T (H + shift)^-1 v_i and the squared norms of the residuals behind it, each of shape (b,)."""
        theta, vectors = self._eigen
        components = vectors[: len(self.start)].T @ self.start
        solution = vectors @ (components / (theta + shift)[:, None])
        residual = self.coupling @ solution[len(solution) - self.blocks[-1] :]
        return (components**2 / (theta + shift)[:, None]).sum(0), (residual**2).sum(0)

    def ritz_vectors(self, chosen: Tensor) -> Tensor:
        """The unit vectors Q^T u_k (K, n) of the Ritz values with indices `chosen`."""
        return self._eigen[1][:, chosen].T.to(self.basis) @ self.basis

    def residuals(self) -> Tensor:
        """|H v - theta v| for each Ritz pair (theta, v), (m,): a bound on the error of theta.

        At least the rounding of a product, which the recurrence does not see.
        """
        theta, vectors = self._eigen
        last = vectors[len(self.matrix) - self.blocks[-1] :]
        rounding = torch.finfo(self.basis.dtype).eps * float(theta.abs().max())
        return lengths((self.coupling @ last).T).clamp(min=rounding)

    def without_last(self, count: int) -> Krylov:
        """The result that `count` steps fewer would have given."""
        kept = self.blocks[: len(self.blocks) - count]
        m, last = sum(kept), self.blocks[len(kept)]
        coupling = self.matrix[m : m + last, m - kept[-1] : m]
        return Krylov(self.matrix[:m, :m], self.start, self.basis[:m], kept, coupling)

    def without_basis(self) -> Krylov:
        """The same without Q, which takes nearly all of the memory and is not needed for functions of H."""
        return replace(self, basis=self.basis[:0].clone())

    @cached_property
    def _eigen(self) -> tuple[Tensor, Tensor]:
        """The decomposition of T into theta and U, which every shift shares."""
        return eigh(self.matrix)


def block_lanczos(
    products: Callable[[Tensor], Tensor],
    start: Tensor,
    steps: int,
    report: Callable[[float], None] = lambda fraction: None,
    enough: Callable[[Krylov], bool] = lambda krylov: False,
) -> Krylov:
    """`steps` steps from the rows of `start` (b, n); fewer if the space becomes invariant, or is `enough`.

    `products` maps rows (K, n) to H times each row; `report` is called with the fraction done. Vectors that
    depend linearly on the others are dropped, so blocks can become smaller.
    """
    b, n = start.shape
    # A direction this small relative to the operator is rounding error, of the entries or of sums over them.
    epsilon = 10 * max(torch.finfo(start.dtype).eps, n**0.5 * torch.finfo(torch.float64).eps)
    basis = torch.empty(min(b * steps, n), n, dtype=start.dtype, device=start.device)
    matrix = torch.zeros(len(basis), len(basis), dtype=torch.float64, device="cpu")
    block, r = _orthonormal(start, basis[:0], 0, epsilon * float(lengths(start).max()))
    blocks: list[int] = []
    coupling = r[:0, :0]
    scale = 0.0
    m = 0
    while len(block):
        basis[m : m + len(block)] = block
        blocks.append(len(block))
        rest = products(block)
        here = slice(m, m + len(block))
        diagonal = _overlaps(_double(rest), block).cpu()
        matrix[here, here] = (diagonal + diagonal.T) / 2
        m += len(block)
        scale = max(scale, float(lengths(rest).max()))
        block, coupling = _orthonormal(rest, basis[:m], sum(blocks[-2:]), epsilon * scale)
        report(len(blocks) / steps)
        found = Krylov(matrix[:m, :m], r, basis[:m], blocks, coupling)
        if len(blocks) == steps or not len(block) or enough(found):
            break
        block, coupling = block[: len(basis) - m], coupling[: len(basis) - m]
        matrix[m : m + len(block), here] = coupling
        matrix[here, m : m + len(block)] = coupling.T
    return Krylov(matrix[:m, :m], r, basis[:m], blocks, coupling)


def _orthonormal(rows: Tensor, basis: Tensor, last: int, floor: float) -> tuple[Tensor, Tensor]:
    """Orthonormal Q (r, n) and C (r, b) with rows = C^T Q + (a part in the span of `basis`).

    Directions shorter than `floor` are dropped. Apart from rounding, the rows overlap only with the `last`
    vectors of the basis. These overlaps are removed first; what rounding left along the other vectors is
    removed once Q has unit length, so one pass over the whole basis suffices even for short directions.
    """
    # In float64, for these overlaps are large. Those with the whole basis, below, are small.
    q, triangle = qr(_without(_double(rows), basis[len(basis) - last :]).T)  # (n, k), (k, b)
    left, singular, right = svd(triangle)
    kept = int((singular > floor).sum())
    coefficients = singular[:kept, None] * right[:kept]
    q = _without((left[:, :kept].T @ q.T).to(basis), basis)
    q, signs = qr(_double(q).T)  # signs: diagonal, +1 or -1 up to rounding
    return (q * signs.diagonal().sign()).T.to(basis), coefficients.cpu()


def _overlaps(rows: Tensor, basis: Tensor) -> Tensor:
    """The products rows basis^T (b, m), float64; each sum of `ENTRIES` is taken in the type of the rows."""
    overlaps = _double(rows.new_zeros(len(rows), len(basis)))
    for part in _parts(basis):
        overlaps += _double(rows[:, part] @ basis[:, part].to(rows).T)
    return overlaps


def _without(rows: Tensor, basis: Tensor) -> Tensor:
    """The rows (b, n) minus their projection onto the basis, in the type of the rows."""
    overlaps = _overlaps(rows, basis).to(rows)
    rest = rows.clone()
    for part in _parts(basis):
        rest[:, part] -= overlaps @ basis[:, part].to(rows)
    return rest


def _parts(basis: Tensor) -> list[slice]:
    """Slices of its columns; none if the basis is empty."""
    return [slice(i, i + ENTRIES) for i in range(0, basis.shape[1] if len(basis) else 0, ENTRIES)]


def _double(tensor: Tensor) -> Tensor:
    """The tensor in float64; on the CPU if its device has no float64."""
    return (tensor.cpu() if tensor.device.type == "mps" else tensor).double()
