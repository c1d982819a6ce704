"""Detects changes that other code makes to the parameters between two operations of the optimizer.

After `load_state_dict`, a re-initialisation or `p.data = ...` in the middle of a cycle, x, mu and x' no
longer belong together. torch counts the in-place changes of a tensor, and a new storage has another address:
both are read after each operation of the optimizer and compared before the next, at no cost in memory. Writes
in place through `p.data` are not seen, because torch does not count them.
"""

from __future__ import annotations

from collections.abc import Iterable
from operator import attrgetter
from typing import Any

import torch
from torch import Tensor

from entropy_sgd.optim import sharding
from entropy_sgd.optim.bucket import real
from entropy_sgd.optim.states import STEP, X_PRIME, X, working_dtype

States = Iterable[tuple[Tensor, dict[str, Any]]]


# Versions, addresses, dtypes, shapes, devices and strides, in the order of the parameters.
_Marks = tuple[list[Any], ...]
_version, _dtype, _shape = attrgetter("_version"), attrgetter("dtype"), attrgetter("shape")
_device, _required = attrgetter("device"), attrgetter("requires_grad")
_PLAIN = {Tensor, torch.nn.Parameter}
WRITES = 2  # the first lists of the marks change when a parameter is written, the others when it is converted


def _marks(params: list[Tensor]) -> _Marks:
    kept = (_dtype, _shape, _device, Tensor.stride)
    return (_versions(params), _places(params), *(list(map(mark, params)) for mark in kept))


def _places(params: list[Tensor]) -> list[int]:
    return list(map(Tensor.data_ptr, params)) if _plain(params) else list(map(_place, params))


def _place(p: Tensor) -> int:
    """Of one that may be a subclass, whose elements may be spread or elsewhere."""
    try:
        return sharding.local(p).data_ptr()
    except RuntimeError:  # a subclass without memory of its own
        return 0


def _versions(params: list[Tensor]) -> list[Any]:
    if _plain(params):
        return list(map(_version, params))
    return [(p._version, sharding.local(p)._version) for p in params]


def _plain(params: list[Tensor]) -> bool:
    return set(map(type, params)) <= _PLAIN


class Watch:
    """Remembers how the optimizer left the parameters that are inside a cycle."""

    def __init__(self) -> None:
        self._params: list[Tensor] = []
        self._marks: _Marks = ()
        self._plain = True  # no subclass among them
        self._learned: set[Tensor] = set()  # parameters that have required a gradient at some time

    def __getstate__(self) -> dict[str, Any]:
        # copies have versions and addresses of their own
        return {"_params": [], "_marks": (), "_plain": True, "_learned": self._learned}

    def record(self, params: list[Tensor]) -> None:
        """These parameters are as the optimizer left them; nothing is known of others."""
        self._params, self._marks, self._plain = params, _marks(params), _plain(params)

    def renew(self) -> None:
        """The recorded parameters have been written by the optimizer, in place."""
        versions = list(map(_version, self._params)) if self._plain else _versions(self._params)
        self._marks = (versions, *self._marks[1:])

    def intact(self, params: list[Tensor]) -> bool:
        """Whether `params`, the very list that was recorded, are as they were, and all require a gradient."""
        if params is not self._params or not all(map(_required, params)):
            return False
        versions, places, dtypes, shapes = self._marks[:4]
        if self._plain:
            written = list(map(_version, params)) != versions or list(map(Tensor.data_ptr, params)) != places
        else:
            written = _versions(params) != versions or _places(params) != places
        return not written and list(map(_dtype, params)) == dtypes and list(map(_shape, params)) == shapes

    def forget(self) -> None:
        """Nothing is known: whatever the parameters hold next is taken as it is."""
        self._params, self._marks = [], ()

    def frozen(self, params: Iterable[Tensor]) -> set[Tensor]:
        """Those that require no gradient now, and did at some time."""
        learned, found = self._learned, set[Tensor]()
        for p in params:
            if p.requires_grad:
                learned.add(p)
            elif p in learned:
                found.add(p)
        return found

    def learned(self, params: Iterable[Tensor]) -> None:
        """These parameters have been trained: one that requires no gradient now is frozen."""
        self._learned.update(params)

    def written(self, states: States, *, release: bool) -> list[Tensor]:
        """The parameters inside a cycle that someone else has written since they were recorded.

        The state of one that was converted to another dtype or device follows it. With `release`, one that
        was frozen leaves the cycle, and keeps what the model holds.
        """
        found, written = list[Tensor](), self._written()
        for p, state in states:
            x = state.get(X)
            if x is not None and (x.dtype is not working_dtype(p) or x.device != p.device):
                _convert(p, state)
            if state.get(STEP, 0) == 0:
                continue
            if release and not p.requires_grad and p in self._learned:
                self.release(state)
                continue
            if p in written:
                found.append(p)
        return found

    @staticmethod
    def release(state: dict[str, Any]) -> None:
        """A parameter leaves the cycle, and keeps what the model holds."""
        state[STEP] = 0
        state.pop(X_PRIME, None)

    def _written(self) -> set[Tensor]:
        """The recorded parameters that have been written, and not converted, since."""
        now = _marks(self._params)
        if now == self._marks or not self._marks:
            return set()
        before, after = zip(*self._marks, strict=True), zip(*now, strict=True)
        return {
            p
            for p, a, b in zip(self._params, before, after, strict=True)
            if a != b and a[WRITES:] == b[WRITES:]
        }


def _is_number(value: Tensor) -> bool:
    return value.is_floating_point() or value.is_complex()


def _convert(p: Tensor, state: dict[str, Any]) -> None:
    for name, value in state.items():
        if isinstance(value, Tensor) and value.shape == p.shape and _is_number(value):
            half = value.dtype is torch.bfloat16 and name.startswith("entropy_")  # by choice: state_dtype
            state[name] = value.to(p.device, value.dtype if half else working_dtype(p))


def saved_in_two_modes(inside: list[tuple[Tensor, dict[str, Any]]]) -> bool:
    """Whether the parameters inside a cycle and the state beside them come from the two sides of `eval()`.

    The model holds one of x and x', the state the other. If they are equal, one was saved while evaluating
    and the other while training, and one of x and x' was never saved.
    """
    if not inside:
        return False
    owners = [p for p, _ in inside]
    unequal = [
        (a != b).sum().double().to(owners[0].device)
        for a, b in zip(real(owners), real([s.get(X_PRIME, s[X]) for _, s in inside]), strict=True)
    ]
    return sharding.total(torch.stack(unequal), owners).item() == 0
