"""The process that makes one run: `main`, called by attempt.py.

The job comes through stdin, which stays open as long as the starter lives: when it closes, the process ends
itself, so that none lives on after a kill. How the run ended goes to stdout, tracebacks to stderr.
"""

from __future__ import annotations

import io
import os
import pickle
import signal
import sys
import threading
from dataclasses import replace
from types import FrameType

from rich.console import Console

from entropy_sgd.lab import Interrupted
from entropy_sgd.lab.jobs.job import Job, Outcome
from entropy_sgd.lab.jobs.making import make

RUNNING = "ENTROPY_SGD_JOB"
"""The environment variable that such a process has."""


def main() -> None:
    """Make the run that stdin describes."""
    signal.signal(signal.SIGTERM, _stop)
    signal.signal(signal.SIGINT, _stop)
    folder, job = pickle.load(sys.stdin.buffer)
    threading.Thread(target=_die_with_starter, daemon=True).start()
    # prints of the user's file must not get into the answer
    answer = os.fdopen(os.dup(sys.stdout.fileno()), "wb")
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())
    os.chdir(folder)
    sys.argv = list(job.command)
    answer.write(pickle.dumps(outcome(job)))
    answer.close()


def outcome(job: Job) -> Outcome:
    """Train, and say how it ended."""
    said = io.StringIO()
    found = make(job, Console(file=said, width=1000))
    notes = [line.removeprefix("note: ") for line in said.getvalue().splitlines() if line.startswith("note:")]
    return replace(found, notes=tuple(notes))


def _stop(signum: int, frame: FrameType | None) -> None:
    """Before the first step: there is nothing to save. From then on the trainer takes the signal."""
    raise Interrupted(signum, "stopped before its next step")


def _die_with_starter() -> None:
    while os.read(sys.stdin.fileno(), 1):
        pass
    os.kill(os.getpid(), signal.SIGKILL)
