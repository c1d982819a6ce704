"""What others do to the parameters between two operations of the optimizer.

`load_state_dict`, a re-initialisation or `p.data = ...` in the middle of a cycle leaves x, mu and x' without
relation to each other. torch counts the in-place changes of a tensor, and a new storage has another address:
both are read after each operation of the optimizer and compared before the next, at no cost in memory. Writes
in place through `p.data` are not seen, because torch does not count them.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import torch
from torch import Tensor

from entropy_sgd.optim import sharding
from entropy_sgd.optim.bucket import real
from entropy_sgd.optim.states import STEP, X_PRIME, X, working_dtype

States = Iterable[tuple[Tensor, dict[str, Any]]]


# Version, version of the shard, address, dtype, device, shape, stride: a plain tuple, for speed.
_Mark = tuple[int, int, int, torch.dtype, torch.device, torch.Size, tuple[int, ...]]


def _mark(p: Tensor) -> _Mark:
    if type(p) is torch.nn.Parameter or type(p) is Tensor:
        version = p._version
        return (version, version, p.data_ptr(), p.dtype, p.device, p.shape, p.stride())
    local = sharding.local(p)
    return (p._version, local._version, 0, p.dtype, p.device, p.shape, p.stride())


class Watch:
    """Remembers how the optimizer left the parameters that are inside a cycle."""

    def __init__(self) -> None:
        self._marks: dict[Tensor, _Mark] = {}
        self._learned: set[Tensor] = set()  # parameters that have required a gradient at some time

    def __getstate__(self) -> dict[str, Any]:
        return {"_marks": {}, "_learned": self._learned}  # copies have versions and addresses of their own

    def record(self, params: Iterable[Tensor]) -> None:
        """These parameters are as the optimizer left them; nothing is known of others."""
        self._marks = {p: _mark(p) for p in params}

    def forget(self) -> None:
        """Nothing is known: whatever the parameters hold next is taken as it is."""
        self._marks = {}

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
        marks, found = self._marks, list[Tensor]()
        for p, state in states:
            x = state.get(X)
            if x is not None and (x.dtype is not working_dtype(p) or x.device != p.device):
                _convert(p, state)
            if state.get(STEP, 0) == 0:
                continue
            if release and not p.requires_grad and p in self._learned:
                state[STEP] = 0
                state.pop(X_PRIME, None)
                continue
            mark = marks.get(p)
            if mark is not None and mark != (now := _mark(p)) and mark[3:] == now[3:]:
                found.append(p)
        return found


def _convert(p: Tensor, state: dict[str, Any]) -> None:
    for name, value in state.items():
        if isinstance(value, Tensor) and value.shape == p.shape and value.is_floating_point():
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
