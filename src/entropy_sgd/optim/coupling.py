"""Coupling: Algorithm 1 in n processes, coupled at the outer update alone (Chaudhari et al. 2017, "Parle").

    replica a:   Langevin loop around x_a, which gives mu_a                              lines 1 to 6
                 x_a = outer update with (x_a - mu_a) + rho (x_a - x̄)                    line 7
    between:     x̄ = mean of the x_a, which travels while the next Langevin loop runs

The x̄ of an update is the mean of the x_a at the start of its cycle. It is sent as soon as these are known, at
the end of the previous update, and awaited one cycle later; in the first cycle all x_a are the same.
rho = inf is the limit of strong coupling: one x for all, whose outer gradient is the mean of x - mu_a.
"""

from __future__ import annotations

import math
from typing import Any, ClassVar, cast

import torch
from torch import Tensor

from entropy_sgd import arguments
from entropy_sgd.optim import averaging, scoping
from entropy_sgd.optim.averaging import Flight, Seat
from entropy_sgd.optim.bucket import real, sum_of_squares
from entropy_sgd.optim.exchange import exchange
from entropy_sgd.optim.local_entropy import LocalEntropy
from entropy_sgd.optim.options import COMMON_STATE
from entropy_sgd.optim.states import STEP, X, has_master, working_dtype
from entropy_sgd.optim.watch import Watch

# In state[p]: x̄ as it last arrived; x_a while the model holds x̄, in eval mode.
MEAN = "entropy_mean"
UNKNOWN = {"x_minus_mean": math.nan, "overlap": math.nan}
# Seeds of the replicas' noise lie this far apart, so that neighbouring seeds of the user do not meet.
SEED_STRIDE = 0x9E3779B97F4A7C15


def replica_seed(seed: int, replica: int) -> int:
    """The seed of a replica's noise; replica 0 has `seed` itself."""
    return seed if replica == 0 else (seed + replica * SEED_STRIDE) % (1 << 64)


class Coupled(LocalEntropy):
    """What couples a `LocalEntropy` to others; `replica.py` says how it is saved."""

    _common_state: ClassVar[dict[str, Any]] = {
        **COMMON_STATE,
        "rho": 0.0,
        "replica": 0,
        "replicas": 1,
        "mean_known": False,
    }

    def _join(
        self, rho: float | scoping.Schedule, process_group: Any, exchange_dtype: torch.dtype | None
    ) -> None:
        """Joins the replicas, and takes the weights of the first one."""
        self._shares_x = rho == math.inf
        self._rho = scoping.Constant(0.0) if self._shares_x else scoping.as_schedule(rho, "rho")
        if exchange_dtype not in (None, torch.float32, torch.bfloat16):
            raise arguments.refuse("exchange_dtype", exchange_dtype, "torch.float32, torch.bfloat16 or None")
        if not self._shares_x and hasattr(self.outer, "eval"):
            raise arguments.refuse("outer", type(self.outer), "an optimizer without eval(), or rho=inf")
        self._exchange_dtype = exchange_dtype
        self._flight: tuple[Flight, list[Tensor], bool] | None = None
        self._held = Watch()  # x between cycles, x̄ in eval mode: as they were left
        self._start: dict[Tensor, Tensor] = {}
        self._figures = UNKNOWN
        seat = Seat(process_group)
        seat.check(self._params())
        self._seat = seat
        common = self._common
        common.update(replica=seat.index, replicas=seat.count, seed=replica_seed(common["seed"], seat.index))
        common["rho"] = math.inf if self._shares_x else scoping.evaluate(self._rho, 0, "rho")
        self._same_start(self._params())

    @property
    def replica(self) -> int:
        """The replica that this process belongs to, counted from 0."""
        return self._seat.index

    @property
    def replicas(self) -> int:
        """How many replicas there are."""
        return self._seat.count

    @property
    def _couples(self) -> bool:
        """Whether the replicas have an x each, and more than one."""
        return self._seat.count > 1 and not self._shares_x

    @property
    def _narrow(self) -> bool:
        """Whether the numbers that travel are less precise than the parameters."""
        dtype = self._exchange_dtype
        return dtype is not None and any(r.itemsize > dtype.itemsize for r in real(self._params()))

    def _params(self) -> list[Tensor]:
        return [p for group in self.param_groups for p in group["params"]]

    @torch.no_grad()
    def _same_start(self, params: list[Tensor]) -> None:
        if self._seat.count > 1:
            averaging.broadcast(real(params), self._seat)

    def add_param_group(self, param_group: dict[str, Any]) -> None:
        """Adds a group, on all replicas, with the first one's weights."""
        super().add_param_group(param_group)
        if hasattr(self, "_seat"):
            self._seat.check(self.param_groups[-1]["params"])
            self._same_start(self.param_groups[-1]["params"])

    # ---- the mean ----

    def _launch(self) -> None:
        """Sends x_a, which the parameters hold. Narrow numbers carry what has changed since the last mean."""
        params = self._params()
        tensors = real([self._x(p) for p in params])
        relative = self._narrow and self._common["mean_known"]
        if relative:
            last = [self.state[p].get(MEAN) for p in params]
            known = [torch.zeros_like(x) if m is None else m for x, m in zip(tensors, last, strict=True)]
            tensors = list(torch._foreach_sub(tensors, real(known)))
        dtype = self._exchange_dtype if relative or not self._narrow else None
        self._flight = (Flight(tensors, params, self._seat, dtype), params, relative)

    @torch.no_grad()
    def _arrive(self) -> None:
        """Waits for the mean under way. If a replica has diverged, an error on all ranks names it."""
        if self._flight is None:
            return
        flight, params, relative = self._flight
        means = flight.means()
        for p in params:
            if MEAN not in self.state[p]:
                self.state[p][MEAN] = torch.zeros_like(p, dtype=working_dtype(p))
        kept = real([self.state[p][MEAN] for p in params])
        if relative:
            for m, change in zip(kept, means, strict=True):
                m.add_(change.to(m.dtype))
        else:
            torch._foreach_copy_(kept, means)
        self._flight = None
        self._common["mean_known"] = True

    def _update(self) -> None:
        common = self._common
        if not hasattr(self._rho, "after") and not self._shares_x:
            common["rho"] = scoping.evaluate(self._rho, common["outer_step"], "rho")
        self._arrive()
        self._figures = self._overlap()
        try:
            super()._update()
            common["diagnostics"] |= self._figures
            if self._couples:
                self._launch()
        finally:  # what an update that fails has written is no one else's either
            if self._couples:
                self._held.record(self._params())
                self._steady = None  # `_notice` looks at more than the parameters of the buckets

    @property
    def _changes_gradient(self) -> bool:
        return self._seat.count > 1 and (self._shares_x or self._common["rho"] != 0)

    def _coupled(self, params: list[Tensor]) -> list[Tensor]:
        """Those of the parameters that are drawn to a mean.

        Before the first mean arrives, all are where they started; a group added later waits for its own.
        """
        known = self._couples and self._common["mean_known"]
        return [p for p in params if known and MEAN in self.state[p]]

    def _overlap(self) -> dict[str, float]:
        """What `diagnostics` says of this replica among the others, at the x of the cycle under way."""
        figures = {"rho": self._common["rho"], "x_minus_mean": 0.0, "overlap": 1.0}
        owners = self._coupled(self._taking_part())
        if owners and not (self._common["monitor"] or hasattr(self._rho, "after")):
            return figures | UNKNOWN
        if owners:
            x = real([self._x(p) for p in owners])
            figures |= _overlap(x, real([self.state[p][MEAN] for p in owners]), owners)
        return figures

    def _outer_gradient(self, params: list[Tensor], d: list[Tensor]) -> None:
        """Adds rho (x_a - x̄) to `d`, or takes its mean over the replicas."""
        if self._shares_x:
            given = {id(p): x for p, x in zip(params, d, strict=True)}
            everyone = self._params()
            zeros = {p: torch.zeros_like(r) for p, r in zip(everyone, real(everyone), strict=True)}
            sent = [given.get(id(p), zeros[p]) for p in everyone]
            means = Flight(sent, everyone, self._seat, self._exchange_dtype).means()
            for p, mean in zip(everyone, means, strict=True):
                if id(p) in given:
                    given[id(p)].copy_(mean)
        owners = self._coupled(params)
        if owners:
            gradients = {id(p): g for p, g in zip(params, d, strict=True)}
            x = [self.state[p][X] if has_master(p) else p for p in owners]  # see outer_update.Exposed
            apart = torch._foreach_sub(real(x), real([self.state[p][MEAN] for p in owners]))
            torch._foreach_add_([gradients[id(p)] for p in owners], apart, alpha=self._common["rho"])

    def _x(self, p: Tensor) -> Tensor:
        """The x of a parameter, in train mode."""
        state = self.state.get(p, {})
        return state[X] if X in state and (state.get(STEP, 0) > 0 or has_master(p)) else p

    # ---- rho ----

    def _needs_loss(self) -> scoping.Schedule | None:
        return self._rho if getattr(self._rho, "needs_loss", False) else super()._needs_loss()

    def _schedule_next(self, figures: dict[str, float]) -> None:
        """A rho that is measured is the same for all: it sees root mean squares over the replicas."""
        super()._schedule_next(figures)
        common = self._common
        after = getattr(self._rho, "after", None)
        if after is None or not self._couples:
            return
        lengths = [figures["gradient"], figures["x_minus_mu"], self._figures["x_minus_mean"]]
        loss = float(common["loss"]) / common["inner_step"]
        values = torch.tensor([v * v for v in lengths] + [loss], dtype=torch.float64)
        values = values.to(self._params()[0].device)  # which the group can send
        torch.distributed.all_reduce(values, group=self._seat.group)
        means = cast("list[float]", (values / self._seat.count).tolist())
        cycle = scoping.Cycle(
            t=common["outer_step"],
            gradient=math.sqrt(means[0]),
            displacement=math.sqrt(means[1]),
            distance=math.sqrt(means[2]),
            loss=means[3] if self._needs_loss() is not None else math.nan,
            inner_lr=max(group["inner_lr"] for group in self.param_groups),
        )
        common["rho"] = scoping.checked(after(common["rho"], cycle), self._rho, cycle.t, "rho")

    def diagnostics(self) -> dict[str, float]:
        """Those of `LocalEntropy`, and of the replica among the others at the start of the last whole cycle.

        Returns:
            `rho`; `x_minus_mean`: ‖x_a - x̄‖; `overlap`: the cosine between x_a and x̄.
        """
        return {"rho": math.nan, **UNKNOWN, **super().diagnostics()}

    # ---- which weights the model holds ----

    def eval(self) -> None:
        """Puts x̄, the mean of the replicas' x, into the model: the same on all ranks.

        x̄ has been under way since the last outer update, so nothing is sent now. Recompute
        batch statistics afterwards, with the same training batches on all ranks:
        `recalibrate_batchnorm(model, batches)`.
        """
        super().eval()

    @torch.no_grad()
    def _set_mode(self, *, evaluating: bool) -> None:
        if evaluating:
            self._arrive()
            super()._set_mode(evaluating=True)
            self._exchange_with_mean(evaluating=True)
        else:
            self._exchange_with_mean(evaluating=False)
            super()._set_mode(evaluating=False)
        if self._couples:
            self._watch.record(self._taking_part())
            self._held.record(self._params())

    def _exchange_with_mean(self, *, evaluating: bool) -> None:
        if not (self._couples and self._common["mean_known"]):
            return
        params = [p for p in self._params() if MEAN in self.state.get(p, {})]
        for p in params:
            if has_master(p):  # x and x̄ have more bits than p, and stay
                p.copy_(self.state[p][MEAN] if evaluating else self.state[p].get(X, p))
        params = [p for p in params if not has_master(p)]
        exchange(real(params), real([self.state[p][MEAN] for p in params]))

    # ---- what others do to the parameters ----

    def restart(self) -> None:
        """Begins a cycle at the weights that the model holds now.

        Call it on all replicas. In eval mode they all start from x̄.
        """
        self._start = {}
        self._leave_alone(self._params(), announced=True)
        super().restart()
        self._held.forget()

    @torch.no_grad()
    def _notice(self, *, release: bool = True) -> None:
        if self._start:
            start, self._start = self._start, {}
            for p, x in start.items():
                p.copy_(x)
        super()._notice(release=release)
        if self._couples and self._common["inner_step"] == 0:
            states = ((p, {STEP: 1}) for p in self._params() if self.state.get(p, {}).get(STEP, 0) == 0)
            written = self._held.written(states, release=False)
            if written:
                self._leave_alone(written)
                self._held.record(self._params())

    def _start_over(self, params: list[Tensor]) -> None:
        self._leave_alone(params)
        super()._start_over(params)

    @torch.no_grad()
    def _leave_alone(self, params: list[Tensor], *, announced: bool = False) -> None:
        """Weights that others have written are not pulled towards an x̄ that does not include them."""
        if not (self._couples and self._common["mean_known"] and params):
            return
        self._arrive()
        if announced and self._narrow:
            self._common["mean_known"] = False  # the next exchange sends x_a, not what has changed of it
        elif self._narrow:
            raise RuntimeError(
                f"{len(params)} parameters were changed from outside, but exchange_dtype="
                f"{self._exchange_dtype} only sends changes since the last mean; call restart() on all "
                "replicas after such a change"
            )
        for p in params:
            if MEAN in self.state.get(p, {}):
                self.state[p][MEAN].copy_(p)


def _overlap(x: list[Tensor], means: list[Tensor], owners: list[Tensor]) -> dict[str, float]:
    """|x_a - x̄|, and the cosine between them by |x|^2 + |x̄|^2 - |x - x̄|^2 = 2 x x̄."""
    apart = list(torch._foreach_sub(x, means))
    squares = torch.stack([sum_of_squares(t, owners).double() for t in (x, means, apart)])
    own, mean, distance = cast("list[float]", squares.tolist())
    length = math.sqrt(own * mean)
    return {
        "x_minus_mean": math.sqrt(distance),
        "overlap": (own + mean - distance) / (2 * length) if length > 0 else math.nan,
    }
