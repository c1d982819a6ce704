"""The `entropy-sgd` command.

Exit codes: 0 done; 2 an error in the command, the data, the output folder or the user's file; 3 a loss that
is not finite; 130 after Ctrl-C and 143 after SIGTERM, with the run saved. torch is imported when a command
needs it, not before.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Sequence
from importlib import import_module

from entropy_sgd import __version__
from entropy_sgd.lab import LabError, unknown
from entropy_sgd.lab.cli import output
from entropy_sgd.lab.cli.streams import discard, streams

COMMANDS = {
    "demo": ("compare", "SGD, Adam, Entropy-SGD on real digits, offline, in a few minutes"),
    "train": ("train", "train one network by one method: train lenet --method sam"),
    "compare": ("compare", "several methods and seeds at equal budgets: compare lenet"),
    "tune": ("tune", "tune several methods with equal trials: tune lenet"),
    "report": ("report", "one HTML page from the folders of runs"),
    "data": ("data", "list, fetch or verify the data"),
    "spectrum": (
        "landscape",
        "Hessian eigenvalues or the Fisher diagonal of runs",
    ),
    "local-entropy": ("landscape", "local entropy at the weights of runs"),
    "landscape": ("landscape", "pictures of the loss: between two runs, or around each"),
    "flatness": ("landscape", "compare spectra and local entropies of recipes over seeds"),
    "figures": ("landscape", "the paper's Fig. 1 and Fig. 3 from measured spectra"),
    "paper": ("paper", "the paper's table and figures next to our runs"),
    "completion": ("completion", "shell completion for bash, zsh and fish"),
    "valley": ("report", "draw local entropy on the valleys of the paper's Fig. 2"),
}
"""The module of each command, which has a function of its name, and what it does."""


LONG = ("train", "compare", "tune", "demo", "spectrum", "local-entropy", "landscape", "paper")
"""Commands that go on when nobody reads their output any more."""


def command(name: str) -> Callable[[list[str]], object]:
    """The function of a command, which returns its result; its module is imported when it is asked for."""
    module = import_module(f"{__name__}.{COMMANDS[name][0]}")
    return getattr(module, name.replace("-", "_"))


def usage() -> str:
    """What `entropy-sgd --help` prints."""
    lines = [f"  {name:<13} {summary}" for name, (_, summary) in COMMANDS.items()]
    return "\n".join(
        [
            "usage: entropy-sgd COMMAND [OPTIONS]",
            "",
            "Train the networks of the Entropy-SGD paper, or your own, and compare methods",
            "at equal budgets.",
            "",
            *lines,
            "",
            "entropy-sgd COMMAND --help explains a command; --json prints its result as JSON.",
        ]
    )


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command and return its exit code."""
    given = list(sys.argv[1:] if arguments is None else arguments)
    asked = not given or bool({"-h", "--help"} & set(given))
    with streams(patient=not asked and given[0] in LONG):
        return _run(given)


def _run(given: list[str]) -> int:
    if not given or given[0] in ("-h", "--help", "help"):
        print(usage())
        return 0 if given else 2
    if given[0] == "--version":
        print(f"entropy-sgd {__version__}")
        return 0
    try:
        for argument in given:
            if not argument.isprintable() and not argument.isascii():
                argument.encode()  # half a surrogate stands for a byte that is not UTF-8
        if given[0] not in COMMANDS:
            raise unknown("command", given[0], COMMANDS)
        if given[0] != "train" and os.environ.get("WORLD_SIZE", "1") != "1" and "LOCAL_RANK" in os.environ:
            raise LabError(
                f"only train runs under torchrun, in several processes: start {given[0]} by itself"
            )
        run, rest = command(given[0]), given[1:]
        if output.FLAG in rest and given[0] != "completion" and not {"-h", "--help"} & set(rest):
            output.as_json(run, [argument for argument in rest if argument != output.FLAG])
        else:
            run(rest)
    except BrokenPipeError:  # the reader of our output has closed it, as in `entropy-sgd data list | head -1`
        discard(sys.stdout)
        return 141
    except (Exception, KeyboardInterrupt) as error:
        told = output.told(error)
        if told is None:
            raise
        message, code = told
        print(message if isinstance(error, KeyboardInterrupt) else f"error: {message}", file=sys.stderr)
        for note in getattr(error, "__notes__", ()):
            print(note, file=sys.stderr)
        return code
    return 0
