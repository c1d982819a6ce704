"""Starts the process of a run and waits for it: in a thread of the command, or on a worker of a cluster."""

from __future__ import annotations

import contextlib
import os
import pickle
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import IO

from entropy_sgd.lab import Interrupted, LabError
from entropy_sgd.lab.jobs import child
from entropy_sgd.lab.jobs.job import Job, Outcome
from entropy_sgd.lab.jobs.lease import Watch

PERIOD = 0.2
"""Seconds between two looks at the process."""
SAVING = 60.0
"""Seconds that a process has to save itself."""
RETRIES = 2
"""How often a run whose process was killed goes on from its checkpoint."""


def attempt(job: Job, lease: Path, token: str, folder: Path) -> Outcome:
    """The run of `job`, in a process that works in `folder`; one that is killed is continued."""
    watch = Watch(lease, token)
    for retry in range(RETRIES + 1):
        if not watch.wanted():
            return Outcome(job, error=Interrupted(signal.SIGTERM, "not started"))
        outcome, code, text = _process(job, folder, watch)
        if outcome is not None:
            return outcome
        if code >= 0 or retry == RETRIES:
            how = f"signal {-code}" if code < 0 else f"exit code {code}"
            return Outcome(job, error=LabError("\n    ".join([f"its process ended with {how}", *text])))
    raise AssertionError  # the loop returns


def _process(job: Job, folder: Path, watch: Watch) -> tuple[Outcome | None, int, list[str]]:
    """What one process answers; its exit code; the end of what it wrote to stderr."""
    with tempfile.TemporaryFile() as answer, tempfile.TemporaryFile() as errors:
        process = subprocess.Popen(
            [sys.executable, "-c", f"from {child.__name__} import main; main()"],
            stdin=subprocess.PIPE,
            stdout=answer,
            stderr=errors,
            env={**os.environ, child.RUNNING: "1"},
            start_new_session=True,  # Ctrl-C on a terminal is the command's, which then ends the lease
        )
        assert process.stdin is not None
        try:
            with contextlib.suppress(BrokenPipeError):  # it is dead already: its exit code will tell
                process.stdin.write(pickle.dumps((folder, job)))
                process.stdin.flush()
            _wait(process, watch)
        finally:
            if process.poll() is None:
                process.kill()
            process.wait()
            with contextlib.suppress(BrokenPipeError):
                process.stdin.close()
        content = _content(answer)
        if process.returncode == 0 and content:
            return pickle.loads(content), 0, []
        return None, process.returncode, _content(errors).decode(errors="replace").splitlines()[-12:]


def _wait(process: subprocess.Popen[bytes], watch: Watch) -> None:
    """Until it ends; once it is not wanted, it is asked to save itself."""
    asked: float | None = None
    while process.poll() is None:
        if asked is None and not watch.wanted():
            asked = time.monotonic()
            process.terminate()
        if asked is not None and time.monotonic() - asked > SAVING:
            process.kill()
        try:
            process.wait(PERIOD)
        except subprocess.TimeoutExpired:
            continue


def _content(file: IO[bytes]) -> bytes:
    file.seek(0)
    return file.read()
