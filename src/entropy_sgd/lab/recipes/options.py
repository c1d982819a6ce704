"""What each optimizer can be told. No torch here: the command line reads these to print help."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class SGD:
    """Stochastic gradient descent, `torch.optim.SGD`."""

    lr: float
    """Learning rate η at the start; the recipe's drops divide it."""
    momentum: float = 0.9
    """Momentum; 0 is plain SGD."""
    nesterov: bool = True
    """Nesterov's form of the momentum (only acts with a momentum above 0)."""
    weight_decay: float = 0.0
    """L2 penalty added to the loss."""


@dataclass(frozen=True)
class Adam:
    """Adam, `torch.optim.Adam`."""

    lr: float
    """Learning rate at the start; the recipe's drops divide it."""
    betas: tuple[float, float] = (0.9, 0.999)
    """Decay of the running averages of the gradient and of its square."""
    weight_decay: float = 0.0
    """L2 penalty added to the loss."""


@dataclass(frozen=True)
class Inner:
    """The Langevin loop of Algorithm 1 and the scope: common to Entropy-SGD and Entropy-Adam."""

    L: int
    """Langevin steps, hence gradient evaluations, per outer update."""
    inner_lr: float
    """η′, the step size of the Langevin loop; never annealed (Section 4.2)."""
    inner_momentum: float
    """Momentum of the Langevin loop; it starts at zero in each cycle."""
    noise: float
    """ε, the thermal noise of line 5."""
    gamma0: float
    """γ₀, the scope at the first outer update."""
    gamma1: float = 0.0
    """γ₁ of γ(t) = γ₀ (1 + γ₁)^t for the t-th outer update (Section 4.3); 0 is a constant scope."""
    alpha: float = 0.75
    """α, the weight of the new sample in μ, line 6 (Section 4.2)."""
    inner_nesterov: bool = True
    """Nesterov's form of the inner momentum."""
    weight_decay: float = 0.0
    """L2 penalty, part of the loss and so of the Langevin loop."""


@dataclass(frozen=True, kw_only=True)
class EntropySGD(Inner):
    """Entropy-SGD: Algorithm 1 with SGD as the outer update."""

    lr: float
    """η, the outer learning rate at the start; the recipe's drops divide it."""
    momentum: float
    """Momentum of the outer loop."""
    nesterov: bool = True
    """Nesterov's form of the outer momentum."""


@dataclass(frozen=True, kw_only=True)
class EntropyAdam(Inner):
    """Entropy-Adam: Algorithm 1 with Adam as the outer update (Section 5.4.2)."""

    lr: float
    """Outer learning rate at the start; the recipe's drops divide it."""
    betas: tuple[float, float]
    """Decay of the running averages of the local-entropy gradient and of its square."""


@dataclass(frozen=True)
class SGLD:
    """Stochastic gradient Langevin dynamics with the step size η / (1 + t)^b (Appendix C.1)."""

    lr: float
    """η, the step size at the first update."""
    b: float
    """Exponent of the decay."""
    noise: float
    """ε, the thermal noise."""
    weight_decay: float = 0.0
    """L2 penalty added to the loss."""


Optimizer = SGD | Adam | EntropySGD | EntropyAdam | SGLD

KINDS: dict[str, type[Optimizer]] = {
    "sgd": SGD,
    "adam": Adam,
    "entropy-sgd": EntropySGD,
    "entropy-adam": EntropyAdam,
    "sgld": SGLD,
}
"""The part of a recipe's name after the slash."""
