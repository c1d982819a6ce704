"""The transforms of ``torch.func`` that this package uses, with types."""

from __future__ import annotations

import importlib
import warnings
from collections.abc import Callable
from contextlib import suppress
from typing import Any, TypeVar, cast

import torch
from torch import Tensor

# More vectors at a time than this gain no speed and cost memory.
VECTORS = 32

T = TypeVar("T", Tensor, tuple[Tensor, ...])

_func: Any = torch.func
call = cast(Callable[[torch.nn.Module, dict[str, Tensor], tuple[Any, ...]], Any], _func.functional_call)


def prepare() -> None:
    """Let torch load its rules for forward derivatives, which it compiles by a function it has deprecated."""
    with warnings.catch_warnings(), suppress(ImportError):
        warnings.simplefilter("ignore")
        importlib.import_module("torch._decomp.decompositions_for_jvp")


def gradient(f: Callable[[T], Tensor], w: T) -> T:
    """The gradient of ``f`` at ``w``, a tensor or a tuple of tensors."""
    return _func.grad(f)(w)


def gradient_and_value(f: Callable[[Tensor], Tensor], w: Tensor) -> tuple[Tensor, Tensor]:
    """The gradient of ``f`` at ``w`` and its value there."""
    return _func.grad_and_value(f)(w)


def derivative(f: Callable[[Tensor], Tensor], w: Tensor, v: Tensor) -> Tensor:
    """The derivative of ``f`` at ``w`` along ``v``, forwards."""
    return _func.jvp(f, (w,), (v,))[1]


def transposed_derivative(f: Callable[[Tensor], Tensor], w: Tensor, v: Tensor) -> Tensor:
    """The transposed derivative of ``f`` at ``w`` applied to ``v``, backwards."""
    return _func.vjp(f, w)[1](v)[0]


def over_rows(f: Callable[..., Tensor], *rows: Tensor) -> Tensor:
    """``f`` of each row, ``VECTORS`` rows at a time."""
    return _func.vmap(f, chunk_size=VECTORS)(*rows)
