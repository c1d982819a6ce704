"""The processes of a method with replicas, started on this machine by a command that runs alone.

Under torchrun they exist already. Each process is `python -m entropy_sgd.lab.training.starting FOLDER`,
with the variables torchrun would give it; FOLDER holds what to train, and takes what the lead has to say at
its end.
"""

from __future__ import annotations

import ctypes
import os
import pickle
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import Any

from entropy_sgd.lab import LabError

TASK, OUTCOME = "task.pickle", "outcome.pickle"


def start(count: int, task: dict[str, Any]) -> Any:
    """The summary of the run that `count` processes make; `task` are the arguments of `train`."""
    with tempfile.TemporaryDirectory() as name, socket.socket() as probe:
        folder = Path(name)
        (folder / TASK).write_bytes(pickle.dumps(task))
        probe.bind(("127.0.0.1", 0))
        place = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(probe.getsockname()[1])}
        probe.close()
        command = [sys.executable, "-m", __name__, name]
        processes = [
            subprocess.Popen(command, env={**os.environ, **place, **_seat(rank, count)})
            for rank in range(count)
        ]
        with _signals_for(processes):
            ended = _wait(processes)
        if (folder / OUTCOME).exists():
            summary, error = pickle.loads((folder / OUTCOME).read_bytes())
            if error is not None:
                raise error
            return summary
    rank, code = ended
    if code in (130, -signal.SIGINT):  # Ctrl-C before the run could save itself
        raise KeyboardInterrupt
    how = f"signal {-code}" if code < 0 else f"exit code {code}"
    raise LabError(
        f"the process of replica {rank} ended with {how}: continue from the checkpoint with --resume"
    )


def _seat(rank: int, count: int) -> dict[str, str]:
    return {"RANK": str(rank), "LOCAL_RANK": str(rank), "WORLD_SIZE": str(count)}


def _wait(processes: list[subprocess.Popen[bytes]]) -> tuple[int, int]:
    """Until all have ended; where one ends badly, the others are ended too. The culprit, and its code."""

    def running() -> bool:
        return any(process.poll() is None for process in processes)

    def failed() -> list[tuple[int, int]]:
        return [(i, p.returncode) for i, p in enumerate(processes) if p.returncode not in (None, 0)]

    while running() and not failed():
        time.sleep(0.05)
    patience = time.monotonic() + 10  # the others find out by themselves, and the lead may say why
    while running() and time.monotonic() < patience:
        time.sleep(0.05)
    # Those that lost a peer end with an error of their own: one that a signal has ended comes first.
    culprit = min(failed(), key=lambda pair: pair[1], default=(0, 0))
    for process in processes:
        process.kill()
        process.wait()
    return culprit


@contextmanager
def _signals_for(processes: list[subprocess.Popen[bytes]]) -> Generator[None]:
    """Ctrl-C reaches them from the terminal, SIGTERM from here; this process waits for them."""

    def pass_on(signum: int, frame: object) -> None:
        for process in processes:
            if process.poll() is None:
                process.send_signal(signum)

    try:
        before = {signal.SIGINT: signal.signal(signal.SIGINT, signal.SIG_IGN)}
        before[signal.SIGTERM] = signal.signal(signal.SIGTERM, pass_on)
    except ValueError:  # not the main thread
        before = {}
    try:
        yield
    finally:
        for signum, handler in before.items():
            signal.signal(signum, handler)


def _leave(signum: int, frame: FrameType | None) -> None:
    os._exit(130)


def main() -> None:
    """One of the processes."""
    if sys.platform == "linux":  # none lives on when the command is killed
        ctypes.CDLL(None).prctl(1, signal.SIGTERM)  # PR_SET_PDEATHSIG
    # Which the command ignores. Until the run can save itself there is nothing to save.
    signal.signal(signal.SIGINT, _leave)
    folder = Path(sys.argv[1])
    task = pickle.loads((folder / TASK).read_bytes())

    from entropy_sgd.lab.training.processes import Processes, leave
    from entropy_sgd.lab.training.trainer import train

    signal.signal(signal.SIGINT, signal.default_int_handler)
    outcome: list[Any] = [None, None]
    code = 0
    try:
        with Processes.from_environment() as processes:
            outcome[0] = train(**task, processes=processes)
    except LabError as error:
        outcome[1], code = error, error.exit_code
    except RuntimeError as error:
        if "gloo" not in str(error):
            raise
        sys.exit(1)  # a peer is gone, whose end the command tells
    if os.environ["RANK"] == "0":
        (folder / "new").write_bytes(pickle.dumps(outcome))
        (folder / "new").replace(folder / OUTCOME)
    leave(code)


if __name__ == "__main__":
    main()
