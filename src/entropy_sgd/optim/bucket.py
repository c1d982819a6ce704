"""Parameters of one group, device and dtype, as the lists that a Langevin step works on."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, cast

import torch
from torch import Tensor

from entropy_sgd.optim import sharding
from entropy_sgd.optim.langevin import Langevin, Tensors, langevin_step, langevin_step_
from entropy_sgd.optim.noise import thermal

# Names in state[p]; the prefix keeps them apart from those of any outer optimizer.
BUFFERS = {"sgd": ("entropy_momentum",), "adam": ("entropy_exp_avg", "entropy_exp_avg_sq")}


def real(tensors: list[Tensor]) -> list[Tensor]:
    """The elements on this rank, complex ones seen as real with a last dimension of two."""
    return [torch.view_as_real(t) if t.is_complex() else t for t in map(sharding.local, tensors)]


def sum_of_squares(tensors: Tensors, owners: Sequence[Tensor]) -> Tensor:
    """The squared norm of all the tensors together, on the first one's device; at least float32.

    `tensors` are as `real` gives them, and belong to the parameters `owners`.
    """
    dtype = torch.promote_types(tensors[0].dtype, torch.float32)
    norms = torch._foreach_norm(tensors, 2, dtype)
    return sharding.total(torch.stack([n.to(tensors[0].device) for n in norms]).square(), owners)


class Bucket:
    """Gathered from the parameters' states; the lists share memory with them.

    Complex tensors stand in the lists as real ones with two components: the noise is N(0, I) on both.
    """

    def __init__(self, group: dict[str, Any]) -> None:
        self.group = group
        self.members: list[tuple[int, Tensor]] = []  # (index of the parameter in the optimizer, parameter)

    @property
    def buffer_names(self) -> tuple[str, ...]:
        """What the inner rule remembers of each parameter: nothing for a momentum of zero."""
        if self.group["inner"] == "sgd" and self.group["inner_momentum"] == 0:
            return ()
        return BUFFERS[self.group["inner"]]

    def fill(self, states: list[dict[str, Any]]) -> None:
        """Takes the lists from the members' states, given in the members' order."""
        params = [p for _, p in self.members]
        self.x_prime = real(params)
        self.gradient = real([cast(Tensor, p.grad) for p in params])
        self.x = real([state["entropy_x"] for state in states])
        self.mu = real([state["entropy_mu"] for state in states])
        self.buffers = [real([state[name] for state in states]) for name in self.buffer_names]
        self.k = [cast(int, state["entropy_step"]) for state in states]

    def langevin(self, gamma: float, seed: int, t: int, l: int) -> None:
        """Lines 4 to 6 of Algorithm 1, at inner step `l` of outer step `t`."""
        group = self.group
        h = Langevin(gamma, **{name: group[name] for name in Langevin.FROM_GROUP})
        gradient = torch._foreach_neg(self.gradient) if group["maximize"] else self.gradient
        z = None
        if h.noise != 0 and h.inner_lr != 0:
            z = thermal(self.members, self.x_prime, seed, t, l)
        if group["foreach"] is not False:
            langevin_step_(h, self.x_prime, gradient, self.x, self.mu, self.buffers, self.k, z)
            return
        for i, k in enumerate(self.k):
            buffers = [b[i] for b in self.buffers]
            x_prime, mu, new = langevin_step(
                h,
                self.x_prime[i],
                gradient[i],
                self.x[i],
                self.mu[i],
                buffers,
                k,
                None if z is None else z[i],
            )
            for old, value in zip([self.x_prime[i], self.mu[i], *buffers], [x_prime, mu, *new], strict=True):
                old.copy_(value)


def gather(groups: Sequence[dict[str, Any]]) -> list[Bucket]:
    """The parameters that have a gradient, in buckets of one group, device and dtype. Changes nothing."""
    buckets: list[Bucket] = []
    index = 0
    for group in groups:
        found: dict[tuple[torch.device, torch.dtype], Bucket] = {}
        for p in group["params"]:
            if p.grad is not None:
                if p.grad.layout != torch.strided:
                    raise RuntimeError(
                        f"the gradient of parameter {index} is sparse ({p.grad.layout}), but Langevin noise "
                        "is dense: use layers with dense gradients, e.g. nn.Embedding(sparse=False)"
                    )
                key = (p.device, p.dtype)
                if key not in found:
                    found[key] = Bucket(group)
                    buckets.append(found[key])
                found[key].members.append((index, p))
            index += 1
    return buckets
