"""The `entropy-sgd` command.

Exit codes: 0 done; 2 an error in the command, the data, the output folder or the user's file; 3 a loss that
is not finite; 130 after Ctrl-C and 143 after SIGTERM, with the run saved. torch is imported when a command
needs it, not before.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Sequence

from entropy_sgd import __version__
from entropy_sgd.lab import LabError, unknown
from entropy_sgd.lab.cli.compare import compare, demo
from entropy_sgd.lab.cli.data import data
from entropy_sgd.lab.cli.landscape import figures, flatness, local_entropy, spectrum
from entropy_sgd.lab.cli.report import report, valley
from entropy_sgd.lab.cli.train import train
from entropy_sgd.lab.data import DataError

COMMANDS: dict[str, tuple[Callable[[list[str]], None], str]] = {
    "demo": (demo, "SGD, Adam and Entropy-SGD on real digits, offline, in three minutes, with a report"),
    "train": (train, "train one network by one method: entropy-sgd train lenet --method entropy-sgd"),
    "compare": (compare, "several methods and seeds at equal budgets: entropy-sgd compare lenet"),
    "report": (report, "one HTML page from the folders of runs"),
    "data": (data, "list, fetch or verify the data"),
    "spectrum": (spectrum, "all eigenvalues of the Hessian, their density or the Fisher diagonal, of runs"),
    "local-entropy": (local_entropy, "local entropy at the weights of runs"),
    "flatness": (flatness, "spectra and local entropies by recipe, over seeds"),
    "figures": (figures, "the paper's Fig. 1 and Fig. 3 from measured spectra"),
    "valley": (valley, "draw local entropy on the valleys of the paper's Fig. 2"),
}


def usage() -> str:
    """What `entropy-sgd --help` prints."""
    lines = [f"  {name:<13} {summary}" for name, (_, summary) in COMMANDS.items()]
    return "\n".join(
        [
            "usage: entropy-sgd COMMAND [OPTIONS]",
            "",
            "Train the networks of the Entropy-SGD paper, or your own, and compare methods at equal budgets.",
            "",
            *lines,
            "",
            "entropy-sgd COMMAND --help explains a command.",
        ]
    )


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command and return its exit code."""
    given = list(sys.argv[1:] if arguments is None else arguments)
    if not given or given[0] in ("-h", "--help", "help"):
        print(usage())
        return 0 if given else 2
    if given[0] == "--version":
        print(f"entropy-sgd {__version__}")
        return 0
    try:
        if given[0] not in COMMANDS:
            raise unknown("command", given[0], COMMANDS)
        if given[0] != "train" and os.environ.get("WORLD_SIZE", "1") != "1" and "LOCAL_RANK" in os.environ:
            raise LabError(
                f"only train runs under torchrun, in several processes: start {given[0]} by itself"
            )
        COMMANDS[given[0]][0](given[1:])
    except (LabError, DataError) as error:
        print(f"error: {error}", file=sys.stderr)
        return getattr(error, "exit_code", 2)
    except KeyboardInterrupt:
        print("interrupted", file=sys.stderr)
        return 130
    except BrokenPipeError:  # the reader of our output has gone, as in `entropy-sgd data list | head -1`
        sys.stderr.close()
        return 141
    except OSError as error:  # no permission, no space: the message has the file
        print(f"error: {error}", file=sys.stderr)
        return 2
    return 0
