"""Frameworks are optional: one that is missing or too old is named, with the command that installs it."""

from __future__ import annotations

import re
from importlib import import_module, metadata

from entropy_sgd import extras


def require(package: str, oldest: str) -> None:
    """`package` is installed, in version `oldest` or a later one."""
    try:
        import_module(package)
    except ImportError as error:
        raise ImportError(
            f"{package} {oldest} or later is needed here: {extras.hint('frameworks')}"
        ) from error
    version = metadata.version(package)

    def numbers(text: str) -> list[int]:
        return [int(part) for part in re.findall(r"\d+", text)[:2]]

    if numbers(version) < numbers(oldest):
        raise ImportError(
            f"{package} {version} is too old: {oldest} or later is needed: {extras.hint('frameworks')}"
        )
