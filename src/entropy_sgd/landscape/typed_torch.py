"""The functions of `torch.func` and `torch.linalg` that this package uses, with types."""

from __future__ import annotations

import importlib
import warnings
from collections.abc import Callable
from contextlib import suppress
from typing import Any, TypeVar, cast

import torch
from torch import Tensor

# Vectors per product: more bring no speed and cost memory.
VECTORS = 32

T = TypeVar("T", Tensor, tuple[Tensor, ...])

_func: Any = torch.func
_linalg: Any = torch.linalg
eigh = cast(Callable[[Tensor], tuple[Tensor, Tensor]], _linalg.eigh)
qr = cast(Callable[[Tensor], tuple[Tensor, Tensor]], _linalg.qr)
svd = cast(Callable[[Tensor], tuple[Tensor, Tensor, Tensor]], _linalg.svd)
call = cast(Callable[..., Any], _func.functional_call)


def prepare() -> None:
    """Load torch's rules for forward derivatives; compiling them raises a deprecation warning of its own."""
    with warnings.catch_warnings(), suppress(ImportError):
        warnings.simplefilter("ignore")
        importlib.import_module("torch._decomp.decompositions_for_jvp")


def gradient(f: Callable[[T], Tensor], w: T) -> T:
    """The gradient of `f` at `w`, a tensor or a tuple of tensors."""
    return _func.grad(f)(w)


def gradient_and_value(f: Callable[[Tensor], Tensor], w: Tensor) -> tuple[Tensor, Tensor]:
    """The gradient of `f` at `w` and its value there."""
    return _func.grad_and_value(f)(w)


def derivative(f: Callable[[Tensor], Tensor], w: Tensor, v: Tensor) -> Tensor:
    """The derivative of `f` at `w` along `v`, forwards."""
    return _func.jvp(f, (w,), (v,))[1]


def transposed_derivative(f: Callable[[Tensor], Tensor], w: Tensor, v: Tensor) -> Tensor:
    """The transposed derivative of `f` at `w` applied to `v`, backwards."""
    return _func.vjp(f, w)[1](v)[0]


def over_rows(f: Callable[..., Tensor], *rows: Tensor) -> Tensor:
    """`f` of each row, `VECTORS` rows at a time."""
    return _func.vmap(f, chunk_size=VECTORS)(*rows)


def eigenvalues_of_upper(a: Tensor) -> Tensor:
    """The ascending eigenvalues of a symmetric matrix, of which only the upper triangle is read."""
    return _linalg.eigvalsh(a, UPLO="U")


def lengths(rows: Tensor) -> Tensor:
    """The Euclidean norm of each row, or of a single vector."""
    return _linalg.vector_norm(rows, dim=-1)
