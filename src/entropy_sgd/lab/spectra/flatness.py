"""The question behind the paper, whether one optimizer's minima are flatter than another's, from files."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from rich.console import Console

from entropy_sgd.lab import LabError, unknown
from entropy_sgd.lab.comparison.seeds import Difference, Spread, paired_difference, spread
from entropy_sgd.lab.runs.records import Record, write_json
from entropy_sgd.lab.spectra import measurements
from entropy_sgd.lab.terminal import Form, show


@dataclass(frozen=True)
class Row:
    """One measured number, by recipe."""

    what: str
    spreads: dict[str, Spread]
    """Mean and standard deviation over seeds."""
    differences: dict[str, Difference | None]
    """To the first recipe, over common seeds; without the first recipe itself."""


def compare(
    paths: Sequence[Path], out: Path, baseline: str | None = None, console: Console | None = None
) -> list[Row]:
    """Print the table of all measurements in `paths` and write it to `out`.

    `baseline` is the recipe to which the others' differences are taken: the first one if not given.
    """
    records = measurements.read(paths, measurements.COMPARED)
    names = [record["recipe"] for record in records]
    if baseline is not None and baseline not in names:
        raise unknown("recipe in these files", baseline, dict.fromkeys(names))
    records.sort(key=lambda record: record["recipe"] != baseline)
    rows = tabulate(records)
    out.parent.mkdir(parents=True, exist_ok=True)
    kept = ("recipe", "seed", "method", "command", "samples", "loss", "gradient_norm")
    runs = [{key: record[key] for key in kept} for record in records]
    write_json(out, {"rows": [asdict(row) for row in rows], "measurements": runs})
    show(console or Console(), forms(rows))
    return rows


def tabulate(records: Sequence[Record]) -> list[Row]:
    """A row for each number measured, a column for each recipe in the order in which they come."""
    recipes = list(dict.fromkeys(record["recipe"] for record in records))
    values: dict[str, dict[str, dict[int, float]]] = {}  # number, recipe, seed
    firsts: dict[str, Record] = {}
    trained: dict[str, Record] = {}
    seen: set[tuple[str, str, int]] = set()
    for record in records:
        run = record["method"], record["recipe"], record["seed"]
        if run in seen:
            raise LabError(f"{run[1]} with seed {run[2]} was found twice, measured by {run[0]}")
        seen.add(run)
        first = firsts.setdefault(record["method"], record)  # what is not measured alike is not compared
        for key in ("network", "data", "samples", "options"):
            if first[key] != record[key]:
                raise LabError(
                    f"measurements that differ in their {key} cannot be compared: "
                    f"{first[key]} for {first['recipe']}, {record[key]} for {record['recipe']}"
                )
        settings = record["run"]["settings"]["recipe"]
        if trained.setdefault(record["recipe"], settings) != settings:
            raise LabError(f"runs of {record['recipe']} that were trained differently are not seeds of one")
        for what, value in numbers(record).items():
            values.setdefault(what, {}).setdefault(record["recipe"], {})[record["seed"]] = value
    if not values:
        raise LabError("there is no measurement in these folders")
    return [
        Row(
            what,
            {recipe: spread(list(found[recipe].values())) for recipe in recipes if recipe in found},
            {
                recipe: paired_difference(found[recipe], found.get(recipes[0], {}))
                for recipe in recipes[1:]
                if recipe in found
            },
        )
        for what, found in values.items()
    ]


def numbers(record: Record) -> dict[str, float]:
    """What is compared of one measurement, the loss first: it should be the same for all."""
    method, on = record["method"], f"on {record['samples']} samples"
    found = {f"loss {on}": record["loss"], f"gradient norm {on}": record["gradient_norm"]}
    if "spectrum" in record:
        spectrum = _spectrum(record["spectrum"])
        found |= {f"{what}, {method}": value for what, value in spectrum.items()}
    return found | {
        f"local entropy, γ = {entry['gamma']:g}, {method}": entry["normalized"]
        for entry in record.get("local_entropy", ())
        if "normalized" in entry
    }


def _spectrum(found: Record) -> dict[str, float]:
    return {
        "largest λ": found["maximum"],
        "smallest λ": found["minimum"],
        "trace": found["trace"],
        "share λ < 0": found["negative"],
        **{f"share |λ| < {threshold}": share for threshold, share in found["near_zero"].items()},
    }


def sentence(rows: Sequence[Row], called: Mapping[str, str] | None = None) -> str:
    """Whose minima are flattest by each measure, and whether that can be told from these seeds."""
    parts: list[str] = []
    for start, what, sign in (
        ("largest λ", "the largest eigenvalue", 1),
        ("local entropy", "local entropy", -1),
    ):
        row = next((row for row in rows if row.what.startswith(start) and len(row.spreads) > 1), None)
        if row is None:
            continue
        means = {recipe: found.mean for recipe, found in row.spreads.items()}
        recipes = list(means)
        order = sorted(recipes, key=lambda recipe: sign * means[recipe])
        best = order[0]
        # differences are to the first recipe: where that is best, the next best is compared with it
        other, compared = (recipes[0], best) if best != recipes[0] else (order[1], order[1])
        name, whom = (f"{(called or {}).get(r, r)} ({means[r]:.3g})" for r in (best, other))
        parts.append(f"by {what}, {name}{_told(row.differences.get(compared), whom)}")
    if not parts:
        return "Flatness was measured of one recipe, so there is nothing to compare it with."
    return f"Flattest on average: {'; '.join(parts)}.{_unequal(rows)}"


def _told(difference: Difference | None, whom: str) -> str:
    if difference is None or difference.margin is None:
        return f", which one seed cannot tell from {whom}"
    if abs(difference.mean) <= difference.margin:
        return f", which {difference.pairs} seeds cannot tell from {whom}"
    interval = f"{difference.mean:+.2g} ± {difference.margin:.2g}, 95 %, {difference.pairs} seeds"
    return f" against {whom}: {interval}"


def _unequal(rows: Sequence[Row]) -> str:
    """Curvature shrinks with the loss, so flatness compares at equal losses only."""
    losses = [found.mean for row in rows[:1] for found in row.spreads.values()]
    if len(losses) < 2 or max(losses) <= 1.2 * min(losses):
        return ""
    span = f"{min(losses):.2g} to {max(losses):.2g}"
    return f" But the training losses differ ({span}), and a lower loss alone can make a minimum flatter."


def forms(rows: Sequence[Row]) -> list[Form]:
    """The table for a terminal, from its widest form to its narrowest."""
    recipes = list(dict.fromkeys(recipe for row in rows for recipe in row.spreads))
    networks = {recipe.rpartition("/")[0] for recipe in recipes}
    short = [recipe.rpartition("/")[2] for recipe in recipes] if len(networks) == 1 else recipes
    caption = "local entropies are normalised: F - (n/2) log(2π/γ)"
    means = [[cell(row.spreads.get(recipe)) for recipe in recipes] for row in rows]
    differences = [[cell(row.differences.get(recipe), "+") for recipe in recipes[1:]] for row in rows]
    lines = [
        [row.what, *mean, *difference] for row, mean, difference in zip(rows, means, differences, strict=True)
    ]
    headings = [
        "",
        *(f"{recipe}, mean ± sd" for recipe in recipes),
        *(f"{recipe} - {recipes[0]} (95 %)" for recipe in recipes[1:]),
    ]
    whole = Form(headings, lines, caption=caption)
    broken = [text.replace(", ", ",\n").replace(" - ", "\n- ") for text in headings]
    folded = Form(broken, lines, caption=caption)
    stacked = [
        [row.what.replace(", ", ",\n", 1)]
        + [f"{a}\n{b}" if b else a for a, b in zip(mean, ["", *difference], strict=True)]
        for row, mean, difference in zip(rows, means, differences, strict=True)
    ]
    note = f"mean ± sd (seeds), and below it the difference to {short[0]} with its 95 % interval; {caption}"
    narrow = Form(["", *short], stacked, caption=note)
    listed = [
        [f"{row.what}\n" + "\n".join(f"  {name}" for name in short), "\n" + "\n".join(mean)]
        for row, mean in zip(rows, means, strict=True)
    ]
    return [whole, folded, narrow, Form(["", "mean ± sd (seeds)"], listed, caption=caption)]


def cell(found: Spread | Difference | None, sign: str = "") -> str:
    """Mean with its deviation, or with its margin, and over how many seeds."""
    match found:
        case Spread():
            mean, width, count = found.mean, found.deviation, found.count
        case Difference():
            mean, width, count = found.mean, found.margin, found.pairs
        case None:
            return ""
    return f"{mean:{sign}.4g}" + ("" if width is None else f" ± {width:.2g}") + f" ({count})"
