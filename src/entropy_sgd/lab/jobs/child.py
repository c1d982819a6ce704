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
from types import FrameType

from rich.console import Console

from entropy_sgd.lab import Diverged, Interrupted, LabError
from entropy_sgd.lab.jobs.job import Job, Outcome
from entropy_sgd.lab.runs.folder import RunFolder
from entropy_sgd.lab.training.trainer import train

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
    answer.write(pickle.dumps(outcome(job)))
    answer.close()


def outcome(job: Job) -> Outcome:
    """Train, and say how it ended."""
    said = io.StringIO()
    summary, error = None, None
    try:
        folder = RunFolder(job.folder, job.settings, resume=True)
        try:
            summary = train(
                job.settings,
                folder,
                data_dir=job.data_dir,
                device=job.device,
                checkpoint_seconds=job.checkpoint_seconds,
                console=Console(file=said, width=1000),
            )
        except Diverged as diverged:
            summary = folder.summary
            said.write(f"note: {diverged}\n")
    except LabError as caught:
        error = caught
    except OSError as caught:  # no permission, no space: the message has the file
        error = LabError(str(caught))
    notes = [line.removeprefix("note: ") for line in said.getvalue().splitlines() if line.startswith("note:")]
    return Outcome(job, summary, error, tuple(notes))


def _stop(signum: int, frame: FrameType | None) -> None:
    """Before the first step: there is nothing to save. From then on the trainer takes the signal."""
    raise Interrupted(signum, "stopped before its next step")


def _die_with_starter() -> None:
    while os.read(sys.stdin.fileno(), 1):
        pass
    os.kill(os.getpid(), signal.SIGKILL)
