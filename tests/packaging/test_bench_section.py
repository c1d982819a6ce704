"""Tables in README, docs/evidence.md and docs/paper.md are those that the results give."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize("name", ["section.py", "evidence.py"])
def test_pages_agree_with_the_results(name: str):
    script = ROOT / "benchmarks" / name
    done = subprocess.run(
        [sys.executable, str(script), "--check"], check=False, capture_output=True, text=True
    )
    assert done.returncode == 0, f"run `python benchmarks/{name}`\n{done.stderr}"


def test_the_page_on_the_paper_agrees_with_the_results(tmp_path):
    out = tmp_path / "paper.md"
    subprocess.run(
        [sys.executable, "-m", "entropy_sgd", "paper", "--out", str(out)],
        check=True,
        cwd=ROOT,
        capture_output=True,
    )
    found, expected = out.read_text(), (ROOT / "docs" / "paper.md").read_text()
    assert found == expected, "run `entropy-sgd paper --out docs/paper.md`"
