"""README's section on the cost of a step is the one that its measurements give."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path


def test_readme_agrees_with_the_measurements():
    script = Path(__file__).parents[2] / "benchmarks" / "section.py"
    done = subprocess.run(
        [sys.executable, str(script), "--check"], check=False, capture_output=True, text=True
    )
    assert done.returncode == 0, f"run `python benchmarks/section.py`\n{done.stderr}"
