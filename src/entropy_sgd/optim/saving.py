"""Saving and copying: the state of both loops as plain tensors and numbers, and back.

What is common to all groups is saved in the first one. The inner and outer optimizers add what their own
`state_dict` contains. Hooks see the whole.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Generator
from contextlib import contextmanager
from typing import Any, ClassVar

import torch
from torch import Tensor

from entropy_sgd import arguments
from entropy_sgd.optim import angle, annealing, scoping
from entropy_sgd.optim.loops import Loops
from entropy_sgd.optim.options import COMMON_OPTIONS, complete_state_dict
from entropy_sgd.optim.rules import RULES
from entropy_sgd.optim.states import GRADIENT, X, has_master, working_dtype

# In the first group of a state dict only, in the middle of a cycle.
SKETCH = "gradient_sketch"
LAST_STEP = "last_step"  # what a scheduler has changed since the last step, as it was then
# In the first group of a state dict only: what gamma was given as.
SCHEDULE = "gamma_schedule"
# Options that every version has saved, by which a state dict is known.
CORE = ("inner_lr", "noise", "alpha", "scale_by_gamma")


def scheduled(group: dict[str, Any]) -> dict[str, Any]:
    """The options that torch's schedulers change; a rate that is a tensor, they change in place."""
    options = {name: group[name] for name in ("lr", "momentum", "betas") if name in group}
    return {name: v.clone() if isinstance(v, Tensor) else v for name, v in options.items()}


class Saving(Loops):
    """How a `LocalEntropy` is saved, loaded, copied and pickled."""

    _common_state: ClassVar[dict[str, Any]]
    _inner_name: str
    _hosts_inner: bool

    def state_dict(self) -> dict[str, Any]:
        """Plain tensors and numbers, from which training resumes bit for bit at any point of a cycle."""
        if not self._loaded:
            self._notice(release=False)
        for name in ("distance", "gradient_sq", "loss"):
            self._common[name] = float(self._common[name])
        with self._without_hooks("state_dict_post_hooks") as after:
            saved = super().state_dict()
        first = saved["param_groups"][0]
        if (gamma := scoping.description(self._schedule)) is not None:
            first[SCHEDULE] = gamma
        if self._gradient is not None:
            first[SKETCH] = angle.to_list(self._gradient)
        if self._common["inner_step"] > 0 and self._scheduled_since():
            first[LAST_STEP] = [arguments.plain(options) for options in self._scheduled]
        for name, hosted in (("inner", self._inner), ("outer", self._outer)):
            rest = hosted.save(saved) if hosted is not None else {}
            if rest:
                saved[name] = rest
        for group in saved["param_groups"]:  # schedulers and users put numbers of numpy there
            group.update(arguments.plain(group))
        for hook in after:
            changed = hook(self, saved)
            saved = saved if changed is None else changed
        return saved

    def _scheduled_since(self) -> bool:
        """Whether a scheduler has changed anything since the last step, at which `finish()` looks back."""
        pairs = zip(self.param_groups, self._scheduled, strict=False)
        return any(scheduled(group) != then for group, then in pairs)

    @contextmanager
    def _without_hooks(self, *kinds: str) -> Generator[list[Any]]:
        """Inside, torch runs none of these hooks; they are what is yielded, to be run later."""
        names = [f"_optimizer_{kind}" for kind in kinds]
        before = [getattr(self, name) for name in names]
        for name in names:
            setattr(self, name, OrderedDict())
        try:
            yield [hook for hooks in before for hook in hooks.values()]
        finally:
            for name, hooks in zip(names, before, strict=True):
                setattr(self, name, hooks)

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Resumes from a `state_dict()` of this version or an older one, completely or not at all.

        The model's weights must be loaded too, before or after, saved in the same mode.
        """
        assert self._outer is not None
        for hook in self._optimizer_load_state_dict_pre_hooks.values():
            changed = hook(self, state_dict := dict(state_dict))
            state_dict = state_dict if changed is None else changed
        outer_names = [self._outer.public_option(name) for name in self._outer.optimizer.defaults]
        complete = complete_state_dict(self, state_dict, (CORE, outer_names), "entropy_")
        for i, group in enumerate(complete["param_groups"]):
            if group["inner"] != self._inner_name and (self._hosts_inner or group["inner"] not in RULES):
                raise ValueError(
                    f"state_dict: saved with inner={group['inner']!r}, "
                    f"but this optimizer has {self._inner_name!r}"
                )
            # Older versions kept stale copies in all groups.
            for name in (*COMMON_OPTIONS, *self._common_state):
                if i > 0:
                    group.pop(name, None)
                else:
                    group.setdefault(name, self._common_state.get(name, self._common[name]))
        for group, here in zip(complete["param_groups"], self.param_groups, strict=False):
            if group[annealing.BASE] is None:  # saved by a version that did not know it, or by another name
                group[annealing.BASE] = group.pop("base_lr", None) or here[annealing.BASE]
        before = (self.state, self.param_groups)
        kinds = ("load_state_dict_pre_hooks", "load_state_dict_post_hooks")
        try:
            with self._without_hooks(*kinds):
                super().load_state_dict(complete)
            for name, hosted in (("inner", self._inner), ("outer", self._outer)):
                if hosted is not None:
                    hosted.load(complete, complete.get(name, {}))
            self._keep_bits(state_dict)
        except BaseException:
            self.state, self.param_groups = before
            self._share()
            raise
        self._gradient = angle.from_list(self._common.pop(SKETCH, None))
        self._steady = None
        self._watch.forget()
        self._watch.learned(p for p in self._taking_part() if isinstance(p, torch.nn.Parameter))
        now = [scheduled(group) for group in self.param_groups]
        self._loaded, self._scheduled = True, self._common.pop(LAST_STEP, now)
        before, now = self._common.pop(SCHEDULE, None), scoping.description(self._schedule)
        if None not in (before, now) and before != now:
            self._warn_once(
                "gamma",
                f"state_dict: saved with gamma={before}, but this optimizer was built with gamma={now}, "
                "which it keeps",
            )
        for hook in self._optimizer_load_state_dict_post_hooks.values():
            hook(self)

    def _keep_bits(self, state_dict: dict[str, Any]) -> None:
        """After torch has given loaded states the parameters' dtype.

        The states of bfloat16 weights are of float32, and with `state_dtype=torch.bfloat16` those of float32
        weights of bfloat16. Single numbers, such as NAdam's product of momenta, are of float32 beside any
        weights.
        """
        for group, saved in zip(self.param_groups, state_dict["param_groups"], strict=True):
            for p, i in zip(group["params"], saved["params"], strict=True):
                state = self.state.get(p, {})
                state.pop(GRADIENT, None)
                entries = state_dict["state"].get(i, {})
                converted = X in entries and entries[X].dtype is not working_dtype(p)
                for name, value in entries.items():
                    if name not in state or not isinstance(value, Tensor):
                        continue
                    hosted = name.startswith("inner_")  # of an optimizer that works on the parameter itself
                    master = has_master(p) and value.dtype is torch.float32 and not hosted
                    half = group["state_dtype"] is torch.bfloat16 and value.dtype is torch.bfloat16
                    ours = name.startswith("entropy_")
                    moment = hosted and p.dim() == 0  # or may be one: in the dtype of the parameter
                    number = value.dim() == 0 and not (ours or converted or moment)
                    if master or (half and ours) or number:
                        state[name] = value.detach().to(state[name].device, copy=True)

    def _share(self) -> None:
        for hosted in self._hosted:
            hosted.share()

    def __getstate__(self) -> dict[str, Any]:
        if not self._loaded:
            self._notice(release=False)  # the copy could not: its parameters are new
        own = (
            "_gradient",
            "_scheduled",
            "_outer",
            "_inner",
            "_inner_name",
            "_hosts_inner",
            "_schedule",
            "_warned",
            "_loaded",
            "_watch",
        )
        return {**super().__getstate__(), **{name: getattr(self, name) for name in own}}

    def __setstate__(self, state: dict[str, Any]) -> None:
        super().__setstate__(state)
        self._buckets, self._steady = [], None
        self._share()  # load_state_dict and unpickling bring new containers
        self._watch.record(self._taking_part())  # of a copy; load_state_dict forgets it again
