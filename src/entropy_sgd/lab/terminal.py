"""Text for a terminal: tables in the widest form that has room, broken lines, lines kept up to date."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Self

from rich.cells import cell_len
from rich.console import Console, RenderableType
from rich.live import Live
from rich.table import Table
from rich.text import Text


@dataclass(frozen=True)
class Form:
    """One way to lay out a table."""

    headings: Sequence[str]
    """A line break in a heading makes it narrower."""
    lines: Sequence[Sequence[str]]
    title: str = ""
    caption: str = ""

    @property
    def width(self) -> int:
        """Columns of the terminal that it takes: each cell has a space on both sides and a rule."""
        columns = zip(self.headings, *self.lines, strict=True)
        widest = [max(cell_len(part) for text in column for part in text.split("\n")) for column in columns]
        return sum(widest) + 3 * len(widest) + 1


def show(console: Console, forms: Sequence[Form]) -> None:
    """Print the first of `forms` that fits the width of the console, or the last one, its cells folded."""
    form = next((form for form in forms if form.width <= console.width), forms[-1])
    fits = form.width <= console.width
    table = Table(title=form.title or None, caption=form.caption or None)
    for heading in form.headings:
        table.add_column(Text(heading), no_wrap=fits, overflow="fold")
    for line in form.lines:
        table.add_row(*(Text(text) for text in line))
    console.print(table, highlight=False)


class OnTerminal:
    """Lines that are kept up to date on a terminal and gone at the end; elsewhere `_live` is None."""

    def __init__(self, console: Console, lines: RenderableType = "") -> None:
        self._live = (
            Live(lines, console=console, auto_refresh=False, transient=True) if console.is_terminal else None
        )

    def __enter__(self) -> Self:
        if self._live:
            self._live.start()
        return self

    def __exit__(self, *_: object) -> None:
        if self._live:
            self._live.stop()


def prose(console: Console, text: str) -> None:
    """Print sentences, broken between words on a terminal; in a file they stay on one line."""
    console.print(Text(text), soft_wrap=not console.is_terminal, highlight=False)


def filled(parts: Sequence[str], width: int, indent: str = "  ") -> str:
    """The parts, two spaces between them, on as few lines of at most `width` columns as they need."""
    lines: list[str] = []
    for part in parts:
        if lines and cell_len(lines[-1]) + 2 + cell_len(part) <= width:
            lines[-1] += f"  {part}"
        else:
            lines.append(f"{indent}{part}" if lines else part)
    return "\n".join(lines)
