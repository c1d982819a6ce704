"""One file is enough: what a package offers is found in its modules, not listed a second time."""

from __future__ import annotations

import pkgutil
from collections.abc import Iterator, Sequence
from importlib import import_module
from types import ModuleType


def modules(package: str, path: Sequence[str]) -> Iterator[ModuleType]:
    """The modules of a package, imported, in the order of their names."""
    for found in sorted(pkgutil.iter_modules(path), key=lambda found: found.name):
        yield import_module(f"{package}.{found.name}")
