"""Where a run is made: versions, machine, and the commit of this program."""

from __future__ import annotations

import os
import platform
import subprocess
import sys
from importlib import metadata
from pathlib import Path
from typing import Any

DECIDES_BITS = ("torch", "threads", "machine")
"""Entries that may change the last bits of a result."""


def commit() -> str | None:
    """The git commit of this program, `+changes` if its files differ from it; None outside a checkout."""
    here = Path(__file__)

    def git(*arguments: str) -> str:
        command = ["git", "-C", str(here.parent), *arguments]
        return subprocess.run(command, capture_output=True, text=True, check=True, timeout=10).stdout.strip()

    try:
        # An installation inside somebody else's checkout must not report their commit: is this file tracked?
        git("ls-files", "--error-unmatch", here.name)
        package = here.parents[2]
        return git("rev-parse", "HEAD") + ("+changes" if git("status", "--porcelain", str(package)) else "")
    except (OSError, subprocess.SubprocessError):
        return None


def describe() -> dict[str, Any]:
    """Everything worth knowing about where a run was made."""
    import torch

    return {
        "entropy-sgd": metadata.version("entropy-sgd"),
        "commit": commit(),
        "python": platform.python_version(),
        "torch": torch.__version__,
        "numpy": metadata.version("numpy"),
        "system": platform.platform(),
        "machine": platform.machine(),
        "processors": os.cpu_count(),
        "threads": torch.get_num_threads(),
        "command": sys.argv,
    }


def peak_memory() -> int | None:
    """The most memory this process ever held, in bytes; None where the system does not say."""
    try:
        import resource
    except ImportError:  # Windows
        return None
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak if sys.platform == "darwin" else peak * 1024
