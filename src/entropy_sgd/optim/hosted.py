"""A torch optimizer inside the groups and the state of another: the outer optimizer, or an inner one.

Schedulers, checkpoints and sharding find one list of groups and one state, those of the owner. There an
option of the hosted optimizer, or an entry of its state, has a public name, which distinguishes it from the
owner's. While the hosted optimizer runs, it sees groups and a state with only its own options and entries,
under their own names; its changes then go back to the owner. So any optimizer can be hosted, unchanged.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import defaultdict
from collections.abc import Generator
from contextlib import contextmanager
from typing import Any, cast

from torch import Tensor
from torch.optim import Optimizer

from entropy_sgd import arguments

ALWAYS = ("params", "param_names")
Record = dict[str, Any]


class Hosted(ABC):
    """An optimizer of class `kind` on the parameters of `owner`, to whose groups it adds its options."""

    def __init__(self, owner: Optimizer, kind: type[Optimizer], options: Record) -> None:
        self.owner = owner
        self.stand_ins: dict[Any, Tensor] = {}  # what it steps on in place of these parameters
        try:
            self.optimizer = kind([self._visible(group) for group in owner.param_groups], **options)
        except (TypeError, ValueError) as error:
            raise arguments.ArgumentError(f"{kind.__name__} refuses {options!r}: {error}") from error
        self.state_from_start = bool(self.optimizer.state)  # some make their state when they are built
        for name, value in self.optimizer.defaults.items():
            owner.defaults[self.public_option(name)] = value
        self._give_back()

    @abstractmethod
    def option(self, key: str) -> str | None:
        """The optimizer's own name for `key` of a group; None if the optimizer must not see it."""

    @abstractmethod
    def public_option(self, name: str) -> str:
        """The key in the owner's groups for an option of the optimizer."""

    @abstractmethod
    def entry(self, key: str) -> str | None:
        """The optimizer's own name for `key` of a parameter's state; None if it must not see it."""

    @abstractmethod
    def public_entry(self, name: str) -> str:
        """The key in a parameter's state of the owner for an entry of the optimizer's."""

    # ---- lending ----

    def _visible(self, group: Record) -> Record:
        named = ((key if key in ALWAYS else self.option(key), value) for key, value in group.items())
        return {name: value for name, value in named if name is not None}

    def _take(self) -> None:
        """The optimizer gets groups and a state of its own."""
        state: defaultdict[Any, Record] = defaultdict(dict)
        held = cast("dict[Any, Record]", self.owner.state)
        for key, entries in held.items():
            own: Record
            if not isinstance(key, Tensor):  # some keep more than the states of parameters
                if self.entry(str(key)) is None:
                    continue
                own = entries
            else:
                named = ((self.entry(name), value) for name, value in entries.items())
                own = {name: value for name, value in named if name is not None}
            if own or not isinstance(
                key, Tensor
            ):  # Adam and others start a parameter's state if they find none
                state[self.stand_ins.get(key, key)] = own
        groups = [self._visible(group) for group in self.owner.param_groups]
        if self.stand_ins:
            for group in groups:
                group["params"] = [self.stand_ins.get(p, p) for p in group["params"]]
        self.optimizer.param_groups, self.optimizer.state = groups, state

    def _give_back(self) -> None:
        """The owner gets what the optimizer holds; from then on both hold the owner's containers."""
        owner, optimizer, stand_ins = self.owner, self.optimizer, self.stand_ins
        stood_for: dict[Any, Any] = {stand_in: p for p, stand_in in stand_ins.items()}
        for group, lent in zip(owner.param_groups, optimizer.param_groups, strict=True):
            for name, value in lent.items():
                if name not in ALWAYS:
                    group[self.public_option(name)] = value
        for key in owner.state.keys() | {stood_for.get(key, key) for key in optimizer.state}:
            if not isinstance(key, Tensor):
                if key in optimizer.state:
                    owner.state[key] = optimizer.state[key]
                continue
            entries = owner.state[key]
            own = optimizer.state.get(stand_ins.get(key, key), {})
            for name in [n for n in entries if (o := self.entry(n)) is not None and o not in own]:
                del entries[name]
            for name, value in own.items():
                entries[self.public_entry(name)] = value
        self.share()

    def share(self) -> None:
        """Between its steps the optimizer holds the owner's own containers, the same objects."""
        self.optimizer.param_groups, self.optimizer.state = self.owner.param_groups, self.owner.state

    @contextmanager
    def lent(self) -> Generator[Optimizer]:
        """Inside, the optimizer has its own options and state only."""
        self._take()
        try:
            yield self.optimizer
        finally:
            self._give_back()

    # ---- its own methods ----

    def step(self) -> None:
        """One step on the gradients in `.grad`."""
        with self.lent() as optimizer:
            before = [self.adjust(i, group) for i, group in enumerate(optimizer.param_groups)]
            try:
                step_without_global_hooks(optimizer)
            finally:
                for group, options in zip(optimizer.param_groups, before, strict=True):
                    group.update(options)

    def adjust(self, index: int, group: Record) -> Record:
        """Changes options of a lent group for one step; returns those that were changed as they were."""
        del index, group
        return {}

    def mode(self, *, training: bool) -> None:
        """Calls `train()` or `eval()` of an optimizer that has them, such as Schedule-Free's."""
        switch = getattr(self.optimizer, "train" if training else "eval", None)
        if callable(switch):
            with self.lent():
                switch()

    def add_param_group(self, group: Record) -> None:
        """The optimizer checks and completes the owner's last group, `group`."""
        self.owner.param_groups.pop()
        try:
            with self.lent() as optimizer:
                optimizer.add_param_group(self._visible(group))
                added = optimizer.param_groups.pop()
        finally:
            self.owner.param_groups.append(group)
        for name, value in added.items():
            if name not in ALWAYS:
                group[self.public_option(name)] = value

    def forget(self, params: list[Tensor]) -> None:
        """Drops what it remembers of these parameters."""
        for p in params:
            entries = self.owner.state.get(p, {})
            for key in [key for key in entries if self.entry(key) is not None]:
                del entries[key]

    # ---- saving and copying ----

    def save(self, saved: Record) -> Record:
        """Puts the optimizer's own `state_dict` into `saved`, the owner's; returns what is left of it."""
        with self.lent() as optimizer:
            own = optimizer.state_dict()
        for group, mine in zip(saved["param_groups"], own["param_groups"], strict=True):
            group.update({self.public_option(k): v for k, v in mine.items() if k not in ALWAYS})
        for key, entries in own["state"].items():
            if isinstance(entries, dict) and isinstance(key, int):
                there: Record = saved["state"].setdefault(key, {})
                there.update({self.public_entry(name): value for name, value in entries.items()})  # pyright: ignore[reportUnknownVariableType,reportUnknownArgumentType]
            else:
                saved["state"][key] = entries
        return {key: value for key, value in own.items() if key not in ("state", "param_groups")}

    def load(self, saved: Record, rest: Record) -> None:
        """The optimizer's own `load_state_dict`, on its part of `saved` and the `rest` from `save`."""
        state: Record = {}
        for key, entries in saved["state"].items():
            if isinstance(key, int):
                named = ((self.entry(name), value) for name, value in entries.items())
                state[key] = {name: value for name, value in named if name is not None}  # pyright: ignore[reportArgumentType]
            elif self.entry(str(key)) is not None:
                state[key] = entries
        own = {
            "state": {key: entries for key, entries in state.items() if entries},
            "param_groups": [self._visible(group) for group in saved["param_groups"]],
            **rest,
        }
        with self.lent() as optimizer:
            optimizer.load_state_dict(own)

    def __getstate__(self) -> Record:
        with self.lent() as optimizer:
            # torch keeps the containers alone; other optimizers have attributes that their steps need.
            attributes = {k: v for k, v in vars(optimizer).items() if not k.startswith("_optimizer_")}
            attributes.pop("step", None)  # a scheduler's wrapper, bound to this optimizer
            payload = {**attributes, **optimizer.__getstate__()}
        own = {name: value for name, value in vars(self).items() if name not in ("optimizer", "stand_ins")}
        return {**own, "kind": type(self.optimizer), "payload": payload}

    def __setstate__(self, state: Record) -> None:
        kind, payload = state.pop("kind"), state.pop("payload")
        vars(self).update(state)
        self.stand_ins = {}
        self.optimizer = kind.__new__(kind)
        self.optimizer.__setstate__(payload)


def step_without_global_hooks(optimizer: Optimizer) -> None:
    """`optimizer.step()` with the hooks of this optimizer, but not those that are registered for all of them.

    `register_optimizer_step_pre_hook` and its twin count the steps of training: the owner's.
    """
    step = type(optimizer).step
    if "step" in vars(optimizer) or not getattr(step, "hooked", False):
        optimizer.step()
        return
    for hook in optimizer._optimizer_step_pre_hooks.values():
        hook(optimizer, (), {})
    step.__wrapped__(optimizer)  # pyright: ignore[reportFunctionMemberAccess]
    for hook in optimizer._optimizer_step_post_hooks.values():
        hook(optimizer, (), {})
