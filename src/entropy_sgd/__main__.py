"""`python -m entropy_sgd` is the `entropy-sgd` command."""

from __future__ import annotations

import sys

from entropy_sgd.lab.cli import main

if __name__ == "__main__":
    sys.exit(main())
