"""The rules of the inner loop: one file each, named here."""

from __future__ import annotations

from entropy_sgd.optim.rules.adam import Adam
from entropy_sgd.optim.rules.momentum import Momentum
from entropy_sgd.optim.rules.rule import Rule
from entropy_sgd.optim.rules.sghmc import SGHMC
from entropy_sgd.optim.rules.sgnht import SGNHT

__all__ = ["RULES", "Rule"]

RULES: dict[str, Rule] = {"sgd": Momentum(), "adam": Adam(), "sghmc": SGHMC(), "sgnht": SGNHT()}
"""What `inner` may be called; a class of torch optimizers is the other choice (inner_optimizer.py)."""
