"""Tables in README and docs/evidence.md are those that the results give."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest


@pytest.mark.parametrize("name", ["section.py", "evidence.py"])
def test_pages_agree_with_the_results(name: str):
    script = Path(__file__).parents[2] / "benchmarks" / name
    done = subprocess.run(
        [sys.executable, str(script), "--check"], check=False, capture_output=True, text=True
    )
    assert done.returncode == 0, f"run `python benchmarks/{name}`\n{done.stderr}"
