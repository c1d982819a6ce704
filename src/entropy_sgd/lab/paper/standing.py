"""Where the reproduction stands: every entry with the runs that are kept of it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import cast

from entropy_sgd.lab import recipes
from entropy_sgd.lab.comparison.seeds import Difference, Spread, paired_difference, spread
from entropy_sgd.lab.paper import kept
from entropy_sgd.lab.paper.entry import Entry, Row
from entropy_sgd.lab.paper.kept import Kept
from entropy_sgd.lab.paper.numbers import Number
from entropy_sgd.lab.paper.rows import ROWS, entries
from entropy_sgd.lab.paper.verdicts import Verdict, verdict
from entropy_sgd.lab.recipes import Recipe
from entropy_sgd.lab.runs.records import Record, flatten


@dataclass(frozen=True)
class Standing:
    """One entry: what is there, and what it says."""

    entry: Entry
    runs: tuple[Kept, ...]
    difference: Difference | None
    """To the entry it is `against`, over common seeds."""

    @property
    def finished(self) -> list[Kept]:
        """The runs that came to their end."""
        return [run for run in self.runs if run.finished]

    @property
    def diverged(self) -> int:
        """How many did not."""
        return len(self.runs) - len(self.finished)

    @property
    def part(self) -> str:
        """What the entry is judged on."""
        return "test" if self.entry.final else "validation"

    @property
    def missing(self) -> list[int]:
        """Seeds that have not been run."""
        there = {run.seed for run in self.runs}
        return [seed for seed in self.entry.seeds if seed not in there]

    def result(self, part: str | None = None) -> Spread | None:
        """Mean and standard deviation over the finished seeds; None without any."""
        values = [run.result(part or self.part) for run in self.runs]
        known = [value for value in values if value is not None]
        return spread(known) if known else None

    def verdict(self, paper: Number) -> Verdict | None:
        """Against the paper's number; None without a result, or if they cannot be compared."""
        ours = self.result(paper.part)
        return None if ours is None or self.entry.apart else verdict(ours, paper)

    @property
    def epochs(self) -> float | None:
        """Mean effective epochs of a finished run."""
        found = [float(run.summary["epochs"]) for run in self.finished]
        return sum(found) / len(found) if found else None

    @property
    def seconds(self) -> float | None:
        """Mean time of a finished run."""
        found = [float(run.summary["seconds"]) for run in self.finished]
        return sum(found) / len(found) if found else None


def stand(folder: Path, rows: tuple[Row, ...] = ROWS) -> dict[str, Standing]:
    """Every entry, by its key, with the runs kept in `folder`."""
    runs = kept.read(folder, rows)
    mine = {entry.key: kept.of(runs, entry) for entry in entries(rows)}
    return {
        entry.key: Standing(entry, tuple(mine[entry.key]), _difference(entry, mine))
        for entry in entries(rows)
    }


def records(standings: Mapping[str, Standing]) -> list[Record]:
    """The same as JSON has it."""
    return [
        {
            "entry": key,
            "command": command(standing.entry),
            "seeds": [run.seed for run in standing.finished],
            "diverged": [run.seed for run in standing.runs if not run.finished],
            "missing": standing.missing,
            "judged": f"{standing.part} {standing.entry.recipe.metric}",
            "result": standing.result(),
            "epochs": standing.epochs,
            "difference": standing.difference,
            "against": standing.entry.against or None,
            "paper": [
                {"number": number, "verdict": standing.verdict(number)} for number in standing.entry.paper
            ],
        }
        for key, standing in standings.items()
    ]


def _difference(entry: Entry, runs: dict[str, list[Kept]]) -> Difference | None:
    def values(mine: Sequence[Kept]) -> dict[int, float]:
        found = {run.seed: run.result("test" if entry.final else "validation") for run in mine}
        return {seed: value for seed, value in found.items() if value is not None}

    return paired_difference(values(runs[entry.key]), values(runs[entry.against])) if entry.against else None


def command(entry: Entry) -> str:
    """The command that makes one of the entry's runs by itself."""
    words = ["entropy-sgd", "train", entry.recipe.name]
    before, now = _described(recipes.get(entry.recipe.name)), _described(entry.recipe)
    for key, value in now.items():
        if value == before.get(key):
            continue
        option = f"--{key.replace('_', '-')}"
        if key in _FLAGS:
            words += [option] if value else [option.replace("--", "--no-", 1)]
        else:
            values = cast("tuple[object, ...]", value) if isinstance(value, tuple) else (value,)
            words += [option, *map(str, values)]
    return " ".join([*words, *(["--final"] if entry.final else []), "--seed", "SEED"])


_FLAGS = {field.name for field in fields(Recipe) if field.type == "bool"}


def _described(recipe: Recipe) -> Record:
    return flatten({key: value for key, value in asdict(recipe).items() if key not in ("paper", "chosen")})
