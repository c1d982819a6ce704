"""The rules of the inner loop: one file each, discovered in this folder."""

from __future__ import annotations

from importlib import import_module
from pkgutil import iter_modules

from entropy_sgd.optim.rules.rule import Rule

__all__ = ["RULES", "Rule"]


def _found() -> dict[str, Rule]:
    modules = [import_module(f"{__name__}.{module.name}") for module in iter_modules(__path__)]
    kinds = {kind for module in modules for kind in vars(module).values() if isinstance(kind, type)}
    rules = [kind() for kind in kinds if issubclass(kind, Rule) and kind is not Rule]
    return {rule.name: rule for rule in sorted(rules, key=lambda rule: rule.name)}


RULES: dict[str, Rule] = _found()
"""What `inner` may be called; a class of torch optimizers is the other choice (inner_optimizer.py)."""
