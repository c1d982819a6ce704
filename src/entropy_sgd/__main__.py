"""`python -m entropy_sgd` is the `entropy-sgd` command."""

from __future__ import annotations

import sys
from collections.abc import Sequence


def main(arguments: Sequence[str] | None = None) -> int:
    """The command; Ctrl-C while Python still imports it ends it as Ctrl-C later on does."""
    try:
        from entropy_sgd.lab import cli

        return cli.main(arguments)
    except KeyboardInterrupt:
        print("interrupted", file=sys.stderr)
        return 130


if __name__ == "__main__":
    sys.exit(main())
