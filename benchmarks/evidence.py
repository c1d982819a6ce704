"""Draws docs/evidence.md, and a table of README, from results/tournament and results/bench/swap*.json.

    python benchmarks/evidence.py [--check]

`--check` writes nothing and exits with 1 if a page is out of date.
"""

from __future__ import annotations

import sys
from pathlib import Path

from evidence_swap import averages, both, pairs, settings, tally
from evidence_tournament import curves, flatness, played, same_settings, sensitivity, standings, tournament
from tournament_field import TASKS

ROOT = Path(__file__).parents[1]
PAGE, README = ROOT / "docs" / "evidence.md", ROOT / "README.md"
END = "<!-- end -->"
# file, baseline, the defaults there, and what their column is called
SWAPS = (
    ("swap", "SGD", "defaults (keep, inner, alpha=0.9)", "EntropySGD"),
    ("swap_adam", "Adam", "EntropyAdam, defaults (reset, lr=0.003, L=3)", "EntropyAdam"),
)


def sections() -> dict[str, str]:
    """By the mark that opens them."""
    found = {"<!-- ranks -->": standings()}
    found |= {f"<!-- tournament {name} -->": tournament(name) for name in TASKS}
    found |= {f"<!-- flatness {name} -->": flatness(name) for name in TASKS}
    for name, baseline, ours, shown in SWAPS:
        found[f"<!-- {name}, settings -->"] = settings(name, baseline)
        drawn = f"<!-- from results/bench/{name}.json: python benchmarks/evidence.py -->"
        found[drawn] = pairs(both(name, baseline, ours), (baseline, shown))
    found["<!-- swap, tally -->"] = tally(both("swap", *SWAPS[0][1:3]))
    found["<!-- swap, averages -->"] = averages("swap")
    found["<!-- swap_lag -->"] = averages("swap_lag")
    found["<!-- swap_momentum, settings -->"] = settings("swap_momentum", "SGD")
    found["<!-- same settings -->"] = same_settings()
    kept = "keep, inner, alpha=0.75"
    found["<!-- swap_ablation -->"] = pairs(
        both("swap_ablation", f"{kept}, gamma=0, noise=0", kept), ("γ = 0, ε = 0", "with γ and ε")
    )
    return found


def replaced(page: str) -> str:
    """The page with its sections drawn anew."""
    for mark, text in sections().items():
        before, found, rest = page.partition(mark)
        _, end, after = rest.partition(END)
        if found and not end:
            raise SystemExit(f"{mark} has no {END}")
        if found:
            page = f"{before}{mark}\n{text}\n{END}{after}"
    return page


def main() -> int:
    """Exit code 1 if `--check` finds a page out of date."""
    pages = {path: path.read_text(encoding="utf-8") for path in (PAGE, README)}
    for mark, text in sections().items():
        if not text.startswith("Not ") and not any(mark in page for page in pages.values()):
            raise SystemExit(f"there are results for {mark}, but no page has that mark")
    if sys.argv[1:] == ["--check"]:
        return int(any(replaced(text) != text for text in pages.values()))
    for path, text in pages.items():
        path.write_text(replaced(text), encoding="utf-8")
    for name in TASKS:
        if (record := played(name)) is not None:
            sensitivity(name, record)
            curves(name)
    return 0


if __name__ == "__main__":
    sys.exit(main())
