"""Runs a program of examples/; its rank 1 dies after 50 steps, the first time: `killed.py PROGRAM ...`."""

from __future__ import annotations

import os
import runpy
import signal
import sys
from pathlib import Path
from typing import Any

from torch.optim.optimizer import register_optimizer_step_post_hook

steps = [0]


def die(optimizer: Any, args: Any, kwargs: Any) -> None:
    steps[0] += 1
    if (steps[0], os.environ["RANK"], os.environ["TORCHELASTIC_RESTART_COUNT"]) == (50, "1", "0"):
        Path(sys.argv[sys.argv.index("--folder") + 1], "rank-1-died").touch()
        os.kill(os.getpid(), signal.SIGKILL)


register_optimizer_step_post_hook(die)
sys.argv = sys.argv[1:]
runpy.run_path(sys.argv[0], run_name="__main__")
