"""`python -m entropy_sgd` is the `entropy-sgd` command."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Sequence


def main(arguments: Sequence[str] | None = None) -> int:
    """The command; Ctrl-C while Python imports it or cleans up prints no traceback either."""
    try:
        from entropy_sgd.lab import cli

        code = cli.main(arguments)
    except KeyboardInterrupt:
        print("interrupted", file=sys.stderr)
        code = 130
    finally:
        if arguments is None:  # the process is about to end: there is nothing left to interrupt
            signal.signal(signal.SIGINT, signal.SIG_IGN)
    processes = sys.modules.get("entropy_sgd.lab.training.processes")
    if arguments is None and processes is not None and os.environ.get("WORLD_SIZE", "1") != "1":
        processes.leave(code)
    return code


if __name__ == "__main__":
    sys.exit(main())
