"""What a measurement is given: a model, put into eval mode, and batches, checked on every pass."""

from __future__ import annotations

import copy
import sys
import warnings
from collections.abc import Generator, Iterable, Mapping, MutableMapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, cast

import torch
from torch import Tensor, nn
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.nn.modules import batchnorm, dropout
from torch.nn.utils.rnn import PackedSequence

from entropy_sgd.arguments import refuse

Batches = Iterable[tuple[Any, Any]]
Selection = str | Sequence[str] | None
"""Parameters or modules by name, as in `model.named_parameters()`; None means all."""


class Samples:
    """The (inputs, targets) pairs of `batches`, each with its size; can be iterated over repeatedly.

    The size of a batch is the number of entries of its targets that count: a mean over the batch has that
    many terms (or the same multiple of it in every batch), whether the targets are labels, pixels or
    characters. The first tensor counts if the targets hold several.
    """

    def __init__(self, batches: Batches, device: torch.device, dtype: torch.dtype):
        if iter(batches) is batches:
            raise TypeError(
                f"batches is a one-shot iterator ({type(batches).__name__}), but it is read many times: "
                "give a list or a DataLoader"
            )
        self._batches, self._device, self._dtype = batches, device, dtype
        self._total: int | None = None
        self.total = sum(size for _, _, size in self)
        if not self.total:
            raise ValueError("batches is empty: give at least one (inputs, targets) pair")
        self._total = self.total

    def __iter__(self) -> Generator[tuple[Any, Any, int]]:
        total = 0
        for batch in cast(Iterable[Any], self._batches):
            if not isinstance(batch, tuple | list) or len(cast(list[Any], batch)) != 2:
                raise TypeError(f"batches must yield (inputs, targets) pairs, got {describe(batch)}")
            inputs, targets = cast(tuple[Any, Any], batch)
            size = _size(inputs, targets)
            total += size
            yield self.cast(inputs), self.cast(targets), size
        if self._total is not None and total != self._total:
            raise ValueError(
                f"batches must hold the same samples in every pass: {self._total} in the first, {total} now"
            )

    def cast(self, value: Any) -> Any:
        """`value` on the device; floating-point tensors, also inside containers, in `dtype`."""
        if isinstance(value, Tensor):
            return value.detach().to(self._device, self._dtype if value.is_floating_point() else value.dtype)
        if isinstance(value, PackedSequence):  # a named tuple whose lengths stay on the CPU
            dtype = self._dtype if value.data.is_floating_point() else value.data.dtype
            return cast(Any, value).to(self._device, dtype)
        if isinstance(value, tuple | list):
            entries = [self.cast(entry) for entry in cast(list[Any], value)]
            kind: Any = type(cast(object, value))
            if hasattr(kind, "_fields"):  # a named tuple
                return kind(*entries)
            return entries if isinstance(value, list) else tuple(entries)
        if isinstance(value, Mapping):
            mapping = {key: self.cast(entry) for key, entry in cast(Mapping[Any, Any], value).items()}
            if type(cast(object, value)) is dict or not isinstance(value, MutableMapping):
                return mapping
            # Of the same type, whose entries may be attributes too: BatchEncoding of transformers.
            result = copy.copy(cast(MutableMapping[Any, Any], value))
            for key, entry in mapping.items():
                result[key] = entry
            return result
        return value


def trainable(model: nn.Module, selection: Selection = None) -> dict[str, Tensor]:
    """The parameters to measure, checked: those with `requires_grad` that `selection` names.

    A name selects the parameter of that name, or all parameters of the module of that name.
    """
    parameters = {name: p.detach() for name, p in model.named_parameters() if p.requires_grad}
    if not parameters:
        raise ValueError("model has no parameter with requires_grad: there is nothing to measure")
    if selection is not None:
        wanted = [selection] if isinstance(selection, str) else list(selection)
        if not wanted:
            raise refuse("parameters", selection, "None or at least one name")
        for prefix in wanted:
            if not any(_is_part(name, prefix) for name in parameters):
                raise refuse(
                    "parameters",
                    prefix,
                    f"names of trainable parameters or their modules (of {', '.join(parameters)})",
                )
        parameters = {
            name: p for name, p in parameters.items() if any(_is_part(name, prefix) for prefix in wanted)
        }
    for name, p in parameters.items():
        if p.is_complex():
            raise TypeError(f"model: parameter {name!r} is complex; only real parameters are supported")
        if not bool(torch.isfinite(p).all()):
            raise ValueError(f"model: parameter {name!r} holds values that are not finite")
    return parameters


@contextmanager
def evaluating(model: nn.Module, loss_fn: object = None) -> Generator[None]:
    """`model` in eval mode, with a warning if that changes its outputs.

    Each module's mode is restored, and its attributes, also those of a loss that is a module.
    """
    # A forward pass may keep what it computed: under torch.func, tensors that nobody can copy or save later.
    losses = loss_fn.modules() if isinstance(loss_fn, nn.Module) else ()
    attributes = [(module, dict(vars(module))) for module in (*model.modules(), *losses)]
    modes = [(module, module.training) for module in model.modules()]
    noisy = sorted({type(module).__name__ for module, training in modes if training and _has_modes(module)})
    if noisy:
        warnings.warn(
            f"model is in training mode and holds {', '.join(noisy)}: it is measured in eval mode "
            "(call model.eval() first to choose this yourself)",
            UserWarning,
            stacklevel=_callers_level(),
        )
    model.eval()
    try:
        # oneDNN's fused recurrent layer has no forward derivative; without oneDNN torch runs the plain cell.
        # Fused attention has no second derivative; the formula has.
        recurrent = any(isinstance(module, nn.RNNBase) for module, _ in modes)
        with _mkldnn(not recurrent), sdpa_kernel(SDPBackend.MATH):
            yield
    finally:
        for module, before in attributes:
            for name in vars(module).keys() - before.keys():
                del vars(module)[name]
            vars(module).update(before)
        for module, training in modes:
            module.training = training


def describe(value: Any) -> str:
    """A short description of `value` for an error message."""
    return (
        f"a tensor of shape {tuple(value.shape)}"
        if isinstance(value, Tensor)
        else f"a {type(value).__name__}"
    )


def counted(targets: Tensor) -> Tensor:
    """Which entries of `targets` count: not those of -100, the `ignore_index` of torch's losses."""
    if targets.is_floating_point() or targets.is_complex():
        return torch.ones_like(targets, dtype=torch.bool)
    return targets.long() != -100  # long: the 156 of unsigned bytes would be equal to -100


def _size(inputs: Any, targets: Any) -> int:
    wanted, given = _first_tensor(targets), _first_tensor(inputs)
    if wanted is not None:
        size = int(counted(wanted).sum())
    elif given is not None:
        size = len(given)
    else:
        raise TypeError(f"batches: no tensor among {describe(inputs)} and {describe(targets)}")
    if not size:
        raise ValueError(
            "batches holds a batch without samples (targets of -100, which losses ignore, do not count)"
        )
    return size


def _first_tensor(value: Any) -> Tensor | None:
    """The first tensor in containers within each other."""
    if isinstance(value, Tensor):
        return value
    if isinstance(value, Mapping):
        value = list(cast(Mapping[Any, Any], value).values())
    if not isinstance(value, tuple | list):
        return None
    found = (_first_tensor(entry) for entry in cast(list[Any], value))
    return next((tensor for tensor in found if tensor is not None), None)


def _is_part(name: str, prefix: str) -> bool:
    return name == prefix or name.startswith(f"{prefix}.")


def _callers_level() -> int:
    """The `stacklevel` at which `evaluating` warns: the first frame outside this package."""
    here = {Path(__file__).parent, Path(sys.modules["contextlib"].__file__ or "")}
    level, frame = 1, sys._getframe(1)
    while frame.f_back is not None and not here.isdisjoint(
        {Path(frame.f_code.co_filename), Path(frame.f_code.co_filename).parent}
    ):
        level, frame = level + 1, frame.f_back
    return level


@contextmanager
def _mkldnn(wanted: bool) -> Generator[None]:
    if wanted:
        yield
        return
    flags: Any = torch.backends.mkldnn.flags(enabled=False)
    with warnings.catch_warnings():  # setting the flag makes torch warn about missing GPUs
        warnings.simplefilter("ignore")
        flags.__enter__()
    try:
        yield
    finally:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            flags.__exit__(None, None, None)


def _has_modes(module: nn.Module) -> bool:
    if isinstance(module, dropout._DropoutNd):
        return module.p > 0
    if isinstance(module, nn.RNNBase | nn.MultiheadAttention):
        return module.dropout > 0
    if isinstance(module, batchnorm._NormBase):
        return module.track_running_stats
    return isinstance(module, nn.RReLU)
