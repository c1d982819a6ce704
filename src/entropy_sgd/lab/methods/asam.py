"""Adaptive sharpness-aware minimisation (Kwon et al. 2021) around SGD, on `pytorch_optimizer.SAM`.

    T = |x| + eta,    e = rho T² g(x) / ‖T g(x)‖,    then SGD from x with the gradient g(x + e)

The library's `adaptive=True` leaves out the paper's eta: a weight that is zero, as biases are at the start,
is then never perturbed. The perturbation is therefore written here; the rest of the step is the library's.
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
class ASAMOptions(sgd.SGDOptions):
    """Adaptive sharpness-aware minimisation around SGD: two gradient evaluations a step."""

    rho: float = 0.5
    """Radius of the neighbourhood, measured in units of each weight's magnitude."""
    eta: float = 0.01
    """What is added to the magnitude, for weights near zero."""


class ASAM(Method[ASAMOptions]):
    """Descent of the worst loss in a neighbourhood scaled by the weights."""

    name = "asam"
    options = ASAMOptions
    search = {**sgd.SEARCH, "rho": Range(0.05, 5.0, log=True)}

    def defaults(self, hints: Hints) -> ASAMOptions:
        return ASAMOptions.hinted(hints)

    def build(self, options: ASAMOptions, model: nn.Module, *, seed: int, steps: int) -> Any:
        import torch

        kind = _with_eta(peer("pytorch_optimizer", "SAM", self.name), options.eta)
        return kind(model.parameters(), torch.optim.SGD, rho=options.rho, **options.keywords())

    def evaluations(self, options: ASAMOptions) -> int:
        """At x and at x + e."""
        return 2

    def step(self, optimizer: Any, closure: Closure) -> Tensor:
        """The loss at x is the step's."""
        loss = closure()
        optimizer.step(closure)
        return loss


def _with_eta(sam: Any, eta: float) -> Any:
    """The library's class with the paper's perturbation."""
    import torch

    class ASAMWithEta(sam):
        @torch.no_grad()
        def first_step(self, zero_grad: bool = False) -> None:
            parts = [
                (group["rho"], p, p.abs().add_(eta), p.grad)
                for group in self.param_groups
                for p in group["params"]
                if p.grad is not None
            ]
            norms: list[Tensor] = [(t * gradient).norm() for _, _, t, gradient in parts]
            norm: Tensor = torch.stack(norms).norm()  # pyright: ignore[reportUnknownVariableType]
            for rho, p, t, gradient in parts:
                self.state[p]["old_p"] = p.clone()  # where the library's second_step looks for x
                p.add_(t.square_().mul_(gradient).mul_(rho / (norm + self.perturb_eps)))
            if zero_grad:
                self.zero_grad()

    return ASAMWithEta


METHOD = ASAM()
