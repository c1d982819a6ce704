"""What the modules of the frameworks share: whose outer weights to show, when, and in which versions."""

from __future__ import annotations

import re
from collections.abc import Generator, Iterable
from contextlib import contextmanager
from importlib import import_module, metadata
from typing import Any

from entropy_sgd.optim import LocalEntropy


def unwrapped(optimizers: Iterable[Any]) -> list[LocalEntropy]:
    """Those of `optimizers` that have inner and outer weights, out of wrappers such as Accelerate's."""
    found: list[LocalEntropy] = []
    for optimizer in optimizers:
        while not isinstance(optimizer, LocalEntropy) and hasattr(optimizer, "optimizer"):
            optimizer = optimizer.optimizer
        if isinstance(optimizer, LocalEntropy):
            found.append(optimizer)
    return found


@contextmanager
def outer_weights(*optimizers: Any) -> Generator[None]:
    """Puts x in place of x' and leaves everything as it was found; other optimizers are left alone."""
    inside = [o for o in unwrapped(optimizers) if not o.param_groups[0]["evaluating"]]
    for optimizer in inside:
        optimizer.eval()
    try:
        yield
    finally:
        for optimizer in inside:
            optimizer.train()


def begin_anew(optimizer: LocalEntropy) -> None:
    """Takes the weights that stand in the model for x: the cycle under way is given up."""
    for state in optimizer.state.values():
        state["entropy_step"] = 0
    optimizer.param_groups[0].update(inner_step=0, evaluating=False)


def require(package: str, oldest: str) -> None:
    """`package` is installed, in version `oldest` or a later one."""
    try:
        import_module(package)
    except ImportError as error:
        raise ImportError(
            f"{package} {oldest} or later is needed here: pip install 'entropy-sgd[frameworks]'"
        ) from error
    version = metadata.version(package)

    def numbers(text: str) -> list[int]:
        return [int(part) for part in re.findall(r"\d+", text)[:2]]

    if numbers(version) < numbers(oldest):
        raise ImportError(
            f"{package} {version} is too old: {oldest} or later is needed, "
            "pip install --upgrade 'entropy-sgd[frameworks]'"
        )
