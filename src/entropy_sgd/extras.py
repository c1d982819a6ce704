"""The packages that come with an extra of this one, such as `lab`."""

from __future__ import annotations


def hint(extra: str) -> str:
    """How to install them."""
    return f"pip install -c constraints.txt '.[{extra}]' in a checkout of entropy-sgd"
