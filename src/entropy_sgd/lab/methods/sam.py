"""Sharpness-aware minimisation (Foret et al. 2021) around SGD: `pytorch_optimizer.SAM`.

    e = rho g(x) / ‖g(x)‖,    then SGD from x with the gradient g(x + e) of the same mini-batch

Two gradient evaluations a step. The library computes this as printed (it sums the norm in float32).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from entropy_sgd.lab.methods import sgd
from entropy_sgd.lab.methods.base import Hints, Method, Range, peer

if TYPE_CHECKING:
    from torch import Tensor, nn

    from entropy_sgd.lab.methods.base import Closure


@dataclass(frozen=True)
class SAMOptions(sgd.SGDOptions):
    """Sharpness-aware minimisation around SGD: two gradient evaluations a step."""

    rho: float = 0.05
    """Radius of the neighbourhood whose worst loss is minimised."""


class SAM(Method[SAMOptions]):
    """Descent of the worst loss in a neighbourhood."""

    name = "sam"
    options = SAMOptions
    search = {**sgd.SEARCH, "rho": Range(5e-3, 1.0, log=True)}

    def defaults(self, hints: Hints) -> SAMOptions:
        return SAMOptions.hinted(hints)

    def build(self, options: SAMOptions, model: nn.Module, *, seed: int, steps: int) -> Any:
        import torch

        kind = peer("pytorch_optimizer", "SAM", self.name)
        return kind(model.parameters(), torch.optim.SGD, rho=options.rho, **options.keywords())

    def evaluations(self, options: SAMOptions) -> int:
        """At x and at x + e."""
        return 2

    def step(self, optimizer: Any, closure: Closure) -> Tensor:
        """The loss at x is the step's."""
        loss = closure()
        optimizer.step(closure)
        return loss


METHOD = SAM()
