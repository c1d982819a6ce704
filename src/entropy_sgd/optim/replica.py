"""Saving a replica: each saves and loads its own state; another number of replicas starts from x̄."""

from __future__ import annotations

import math
from typing import Any

import torch

from entropy_sgd.optim.coupling import MEAN, SEED_STRIDE, Coupled, replica_seed
from entropy_sgd.optim.states import X, has_master, working_dtype


class Replica(Coupled):
    """A replica that can be saved; `replicas.py` has the classes for use."""

    def state_dict(self) -> dict[str, Any]:
        """The state of this replica, with x̄ in it; each replica saves and loads its own."""
        self._arrive()
        return super().state_dict()

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Resumes this replica from its own `state_dict()`, bit for bit with the same number of replicas.

        With another number of replicas, any replica's state will do: all start from x̄, with a warning. Load
        the model's weights first, since they are replaced. From the state of an `EntropySGD`, all start from
        its x.
        """
        seat = self._seat
        groups: Any = state_dict.get("param_groups") if isinstance(state_dict, dict) else None  # pyright: ignore[reportUnnecessaryIsInstance]
        first: dict[str, Any] = groups[0] if groups else {}
        count, index, rho = first.get("replicas", 1), first.get("replica", 0), first.get("rho", 0.0)
        if count == seat.count and index != seat.index:
            raise ValueError(
                f"state_dict: saved by replica {index}, but this is replica {seat.index} of {seat.count}; "
                "each replica saves and loads its own state"
            )
        self._arrive()
        super().load_state_dict(state_dict)
        common = self._common
        seed = common["seed"] if index == 0 else (common["seed"] - index * SEED_STRIDE) % (1 << 64)
        common.update(replica=seat.index, replicas=seat.count, seed=replica_seed(seed, seat.index))
        self._held.forget()
        self._start = {}
        if count != seat.count:
            self._start_from_mean(
                f"state_dict: saved with {count} replicas, but now there are {seat.count}: "
                "all start from the mean x̄ of those saved"
            )
        elif self._shares_x and rho != math.inf and count > 1:
            self._start_from_mean(f"state_dict: saved with rho={rho}: all start from the mean x̄")

    @torch.no_grad()
    def _start_from_mean(self, message: str) -> None:
        self._warn_once("replicas", message)
        common = self._common
        evaluating, known = common["evaluating"], common["mean_known"]
        common["mean_known"] = False
        for p in self._params():
            state = self.state.get(p, {})
            if evaluating and not has_master(p):  # the model has it already
                continue
            x = state.get(MEAN) if known else self._x(p)
            if x is not None and x is not p:
                self._start[p] = x.clone()
                p.copy_(x)
                if has_master(p) and X in state:
                    state[X].copy_(x)
        self._start_over(self._taking_part())
        self._forget_moments([p for p, _ in self._states()])
        for _, state in self._states():
            state.pop(MEAN, None)

    def _make_state(self) -> None:
        super()._make_state()
        if self._couples:
            for p in self._params():
                self.state[p][MEAN] = torch.zeros_like(p, dtype=working_dtype(p))

    def __getstate__(self) -> dict[str, Any]:
        self._arrive()
        own = ("_seat", "_rho", "_shares_x", "_exchange_dtype", "_flight", "_held", "_start", "_figures")
        return {**super().__getstate__(), **{name: getattr(self, name) for name in own}}
