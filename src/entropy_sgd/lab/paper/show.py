"""The standing on a terminal."""

from __future__ import annotations

from collections.abc import Mapping

from rich.console import Console
from rich.table import Table as Grid

from entropy_sgd.lab.paper import table
from entropy_sgd.lab.paper.entry import Row
from entropy_sgd.lab.paper.rows import ROWS
from entropy_sgd.lab.paper.standing import Standing
from entropy_sgd.lab.training.display import say


def show(console: Console, standings: Mapping[str, Standing], rows: tuple[Row, ...] = ROWS) -> None:
    """How many runs of each row there are, and what those say that have ended."""
    progress = table.progress(standings, rows)
    grid = Grid(*progress.headings)
    for line in progress.lines:
        grid.add_row(*line)
    console.print(grid, markup=False)
    for row in rows:
        if any(standings[entry.key].runs for entry in row.entries):
            say(console, f"{row.name}: {row.title}")
            found = table.row(row, standings)
            for line in found.lines:
                what, judged, result, seeds, epochs, paper, _, verdict, *_ = line
                if result != table.NOT_RUN:
                    facts = [f"{judged} {result}", seeds and f"seeds {seeds}", epochs and f"epochs {epochs}"]
                    facts += [paper and f"the paper {paper}", verdict]
                    say(console, f"  {what}: {', '.join(fact for fact in facts if fact)}")
