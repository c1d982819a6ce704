"""Starts processes of its own, on this machine's loopback interface only, and ends them after a time."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

EXAMPLES = Path(__file__).parents[2] / "examples"
TIMEOUT = 240  # seconds; they take some ten on an idle core


# torch 2.13's gloo now and then aborts a process that is leaving, when all its work is done.
ABORTED_ON_LEAVING = "terminate called without an active exception"


def torchrun(script: Path | str, *arguments: object, processes: int = 2, restarts: int = 0) -> str:
    """The output of `script`, or of "-m" and a module, under torchrun; an error with it if it ends badly."""
    for _ in range(2):
        try:
            return _torchrun(script, arguments, processes, restarts)
        except RuntimeError as error:
            if ABORTED_ON_LEAVING not in str(error):
                raise
    return _torchrun(script, arguments, processes, restarts)


def _torchrun(script: Path | str, arguments: tuple[object, ...], processes: int, restarts: int) -> str:
    options = [
        "--rdzv-backend=c10d",
        "--rdzv-endpoint=127.0.0.1:0",
        "--local-addr=127.0.0.1",
        f"--nproc-per-node={processes}",
        f"--max-restarts={restarts}",
    ]
    environment = {**os.environ, "GLOO_SOCKET_IFNAME": "lo", "OMP_NUM_THREADS": "1"}
    environment["PYTHONPATH"] = os.pathsep.join(sys.path)
    if restarts:
        environment["TORCH_DISABLE_SHARE_RDZV_TCP_STORE"] = "1"  # see examples/ddp.py
    process = subprocess.Popen(
        [sys.executable, "-m", "torch.distributed.run", *options, str(script), *map(str, arguments)],
        env=environment,
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
        raise RuntimeError(f"{script} ended with {process.returncode}:\n{output[-8000:]}")
    return output
