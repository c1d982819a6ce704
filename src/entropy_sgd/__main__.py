"""`python -m entropy_sgd` is the `entropy-sgd` command."""

from __future__ import annotations

import sys


def start() -> int:
    """The command; Ctrl-C while Python still imports it ends it as Ctrl-C later on does."""
    try:
        from entropy_sgd.lab.cli import main

        return main()
    except KeyboardInterrupt:
        print("interrupted", file=sys.stderr)
        return 130


if __name__ == "__main__":
    sys.exit(start())
