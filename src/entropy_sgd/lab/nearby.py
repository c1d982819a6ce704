"""Names of files and folders that exist and resemble one that does not."""

from __future__ import annotations

import difflib
from pathlib import Path

RUNS = Path("runs")
"""Where commands put their runs if not told otherwise."""


def hint(path: Path) -> str:
    """What a `path` that does not exist was perhaps meant to be, to end a message with."""
    close = nearby(path)
    return f". Did you mean {' or '.join(map(str, close))}?" if close else ""


def nearby(path: Path) -> list[Path]:
    """At most three paths that exist and differ from `path` in one name, or lie in `runs`."""
    found: list[Path] = []
    try:
        if len(path.parts) == 1 and (RUNS / path).exists():
            return [RUNS / path]
        there = path
        while there.parent != there and not there.parent.exists():
            there = there.parent
        beyond = path.relative_to(there)
        places = [there.parent, RUNS] if len(path.parts) == 1 else [there.parent]
        for place in places:
            names = sorted(entry.name for entry in place.iterdir()) if place.is_dir() else []
            close = difflib.get_close_matches(there.name, names, n=3, cutoff=0.5)
            found += [place / name / beyond for name in close]
        return [each for each in found if each.exists() and not each.name.startswith(".")][:3]
    except (OSError, ValueError):  # a folder that may not be read, a name that no file can have
        return []
