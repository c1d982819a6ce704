"""Starts processes of its own, on this machine's loopback interface only, and ends them after a time."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

EXAMPLES = Path(__file__).parents[2] / "examples"
TIMEOUT = 240  # seconds; they take some ten on an idle core


# torch 2.13's gloo now and then aborts a process that is leaving, when all its work is done.
ABORTED_ON_LEAVING = "terminate called without an active exception"


def torchrun(script: Path | str, *arguments: object, processes: int = 2, restarts: int = 0) -> str:
    """The output of `script`, or of "-m" and a module, under torchrun; an error with it if it ends badly."""
    options = [
        "--rdzv-backend=c10d",
        "--rdzv-endpoint=127.0.0.1:0",
        "--local-addr=127.0.0.1",
        f"--nproc-per-node={processes}",
        f"--max-restarts={restarts}",
    ]
    # The variable: see examples/ddp.py.
    environment = {"TORCH_DISABLE_SHARE_RDZV_TCP_STORE": "1"} if restarts else {}
    return launch(
        [sys.executable, "-m", "torch.distributed.run", *options, script], *arguments, **environment
    )


def launch(command: Sequence[object], *arguments: object, **environment: str) -> str:
    """The output of a command that starts processes, run where its examples/ are found."""
    for _ in range(2):
        try:
            return _launch([*command, *arguments], environment)
        except RuntimeError as error:
            if ABORTED_ON_LEAVING not in str(error):
                raise
    return _launch([*command, *arguments], environment)


def _launch(command: Sequence[object], environment: dict[str, str]) -> str:
    process = subprocess.Popen(
        list(map(str, command)),
        env={
            **os.environ,
            "GLOO_SOCKET_IFNAME": "lo",
            "OMP_NUM_THREADS": "1",
            "PYTHONPATH": os.pathsep.join(sys.path),
            **environment,
        },
        cwd=EXAMPLES.parent,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
    )
    try:
        output, _ = process.communicate(timeout=TIMEOUT)
    except BaseException:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()
        raise
    if process.returncode != 0:
        raise RuntimeError(
            f"{' '.join(map(str, command))} ended with {process.returncode}:\n{output[-8000:]}"
        )
    return output
