"""The tables and figures of the tournament, from results/tournament."""

from __future__ import annotations

import json
import math
import statistics
from pathlib import Path
from typing import Any

from differences import less, mean
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import NullFormatter
from scipy import stats  # pyright: ignore[reportMissingTypeStubs]
from tournament import taking_part
from tournament_field import ENTRANTS, SHORT, TASKS

from entropy_sgd.lab import methods
from entropy_sgd.lab.comparison.seeds import spread

ROOT = Path(__file__).parents[1]
RESULTS, IMAGES = ROOT / "results" / "tournament", ROOT / "docs" / "images"
WORKS = 1.2
"""A trial works if its error, or its perplexity, is within this factor of its entrant's best."""
DEFAULTS = "Entropy-SGD, defaults"
ENOUGH = 8
"""Entrants for a rank correlation."""


def played(name: str) -> dict[str, Any] | None:
    path = RESULTS / f"{name}.json"
    return json.loads(path.read_text()) if path.exists() else None


def tests(entry: dict[str, Any]) -> dict[int, float]:
    """What fresh seeds gave, by seed; none at all if one of them has no result."""
    values = entry.get("test", [])
    return {} if any(value is None for value in values) else dict(enumerate(values))


def in_nats(name: str) -> bool:
    return TASKS[name].network == "char-lstm"


def measure(name: str) -> str:
    return "nats per character" if in_nats(name) else "error, %"


def working_rates(name: str, title: str, trials: list[dict[str, Any]]) -> str:
    """How many trials work, and their lowest and highest learning rate."""
    done = [trial for trial in trials if trial["validation"] is not None]
    if not done:
        return "0"
    best = min(trial["validation"] for trial in done)
    limit = best + math.log(WORKS) if in_nats(name) else WORKS * best
    rate = methods.get(ENTRANTS[title].method).rate
    rates = [trial["options"][rate] for trial in done if trial["validation"] <= limit]
    ends = f"{min(rates):.2g}" + (f" to {max(rates):.2g}" if len(rates) > 1 else "")
    return f"{len(rates)}, at {ends}"


def standings() -> str:
    """Each entrant's rank in the tasks that it has run, by test error, best mean rank first.

    Counted among those that were written down beforehand, so that a method does not gain by having many forms
    added to the field.
    """
    ranks: dict[str, dict[str, int]] = {}
    for name in TASKS:
        record = played(name) or {"entrants": {}}
        errors = {title: mean(tests(entry)) for title, entry in record["entrants"].items()}
        field = [error for title, error in errors.items() if not ENTRANTS[title].later]
        for title, error in errors.items():
            ranks.setdefault(title, {})[name] = 1 + sum(other < error for other in field)
    names = [name for name in TASKS if any(name in found for found in ranks.values())]
    lines = [f"| | {' | '.join(names)} | mean of the first four |", f"|---|{'---|' * (len(names) + 1)}"]
    means = {
        title: statistics.fmean(found.get(name, math.inf) for name in SHORT) for title, found in ranks.items()
    }
    for title in sorted(ranks, key=lambda title: means[title]):
        cells = [str(ranks[title].get(name, "")) for name in names]
        shown = f"*{title}*" if ENTRANTS[title].later else title
        lines.append(f"| {shown} | {' | '.join(cells)} | {means[title]:.1f} |")
    return "\n".join(lines)


def tournament(name: str) -> str:
    """The table of one task, best first."""
    record = played(name)
    if record is None:
        return "Not run yet."
    entries = record["entrants"]
    baseline = tests(entries.get("SGD", {}))
    lines = [
        f"| | test {measure(name)} ± sd | difference from SGD (95 %) | validation, best trial "
        "| trials diverged | trials that work |",
        "|---|---|---|---|---|---|",
    ]
    for rank, title in enumerate(sorted(entries, key=lambda title: mean(tests(entries[title]))), 1):
        entry, values = entries[title], tests(entries[title])
        found = [trial["validation"] for trial in entry["trials"]]
        done = [value for value in found if value is not None]
        shown = (
            ("a seed diverged" if done else "all trials diverged")
            if not values
            else f"{mean(values):.2f} ± {spread([*values.values()]).deviation or 0:.2f}"
        )
        row = (
            f"{rank}. {title}",
            shown,
            "" if title == "SGD" else less(values, baseline),
            f"{min(done):.2f}" if done else "none",
            f"{len(found) - len(done)} of {len(found)}",
            working_rates(name, title, entry["trials"]),
        )
        lines.append(f"| {' | '.join(row)} |")
    absent = [title for title in taking_part(name) if title not in entries]
    if absent:
        lines += ["", f"Not run yet: {'; '.join(absent)}."]
    return "\n".join(lines)


def same_settings() -> str:
    """The defaults less SGD, in percent of SGD's error, at each setting that both were tried at.

    The tasks share their settings and the seed, so the last column is tested by setting.
    """
    by_setting: dict[int, list[float]] = {}
    rows: dict[str, dict[int, float]] = {}
    for name in SHORT:
        entrants = (played(name) or {"entrants": {}})["entrants"]
        if DEFAULTS not in entrants:
            continue
        both = zip(*(entrants[title]["trials"] for title in ("SGD", DEFAULTS)), strict=True)
        rows[name] = {}
        for k, (theirs, ours) in enumerate(both):
            if None not in (theirs["validation"], ours["validation"]):
                rows[name][k] = 100 * (ours["validation"] / theirs["validation"] - 1)
                by_setting.setdefault(k, []).append(rows[name][k])
    settings = sorted(by_setting)
    lines = [f"| setting | {' | '.join(str(k + 1) for k in settings)} |", f"|---|{'---|' * len(settings)}"]
    for name, row in rows.items():
        lines.append(
            f"| {name} | {' | '.join(f'{row[k]:+.1f}' if k in row else 'diverged' for k in settings)} |"
        )
    means = [statistics.fmean(by_setting[k]) for k in settings]
    lines.append(f"| mean | {' | '.join(f'{m:+.1f}' for m in means)} |")
    overall = less(dict(enumerate(means)), dict.fromkeys(range(len(means)), 0.0))
    lines += ["", f"Mean over the settings: {overall} % of SGD's error (95 %)."]
    return "\n".join(lines)


def flatness(name: str) -> str:
    """How flat the minima of the winners are; means over the seeds that came down to the loss."""
    path = RESULTS / f"{name}-flatness.json"
    if not path.exists():
        return "Not measured yet."
    record = json.loads(path.read_text())
    names = ("training loss", "largest eigenvalue", "trace", "local entropy", "local energy")
    lines = [f"| | seeds | epochs | {' | '.join(names)} |", f"|---|---|---|{'---|' * len(names)}"]
    for title, rows in record["entrants"].items():
        there = [row for row in rows if row.get("training loss", math.inf) <= record["loss"]]
        cells = [f"{len(there)} of {len(rows)}"]
        cells += [f"{statistics.fmean(row['epochs'] for row in there):.1f}"] if there else [""]
        for key in names:
            values = [row[key] for row in there]
            if None in values:
                cells.append("does not exist")  # an eigenvalue below -gamma
            elif len(values) > 1:
                cells.append(f"{statistics.fmean(values):.3g} ± {statistics.stdev(values):.2g}")
            else:
                cells.append("".join(f"{value:.3g}" for value in values))
        lines.append(f"| {title} | {' | '.join(cells)} |")
    if len(record["entrants"]) >= ENOUGH:
        lines += ["", orders(name, record)]
    absent = [title for title in (played(name) or record)["entrants"] if title not in record["entrants"]]
    if absent:
        lines += ["", f"Not measured: {'; '.join(absent)}."]
    return "\n".join(lines)


def orders(name: str, record: dict[str, Any]) -> str:
    """Whether flatter minima go with lower errors: rank correlations over the entrants."""
    errors = {title: mean(tests(entry)) for title, entry in (played(name) or record)["entrants"].items()}
    signs = {"largest eigenvalue": 1, "trace": 1, "local entropy": -1}
    found: list[str] = []
    shown = 0
    for key, sign in signs.items():
        pairs: list[tuple[float, float]] = []
        for title, rows in record["entrants"].items():
            there = [row for row in rows if row.get("training loss", math.inf) <= record["loss"]]
            values = [sign * row[key] for row in there if row[key] is not None]
            if values and errors.get(title, math.inf) < math.inf:
                pairs.append((statistics.fmean(values), errors[title]))
        shown = len(pairs)
        correlation, p = map(float, stats.spearmanr(*zip(*pairs, strict=True)))  # pyright: ignore
        found.append(f"{key} {correlation:+.2f} (p = {p:.2g})")
    return (
        f"Spearman's correlation between sharpness and test error over these {shown} entrants "
        f"(+1 if the flattest have the lowest error): {', '.join(found)}."
    )


def panels(titles: list[str], label: str, what: str) -> tuple[Figure, list[Axes]]:
    """A figure with a panel for each entrant."""
    columns = 4
    rows = -(-len(titles) // columns)
    drawn = Figure(figsize=(2.4 * columns, 1.9 * rows), layout="constrained")
    axes = list(drawn.subplots(rows, columns, sharey=True, squeeze=False).flat)
    for axis, title in zip(axes, titles, strict=False):
        axis.set_title(title, fontsize=8)
        axis.tick_params(which="both", labelsize=7)
    for axis in axes[len(titles) :]:
        axis.remove()
    drawn.supxlabel(label, fontsize=8)
    drawn.supylabel(what, fontsize=8)
    return drawn, axes[: len(titles)]


def save(drawn: Figure, name: str) -> None:
    IMAGES.mkdir(exist_ok=True)
    drawn.savefig(IMAGES / f"tournament-{name}.png", dpi=120, metadata={"Software": None})


def sensitivity(name: str, record: dict[str, Any]) -> None:
    """Validation error of all trials against the learning rate."""
    titles = [title for title in ENTRANTS if title in record["entrants"]]
    rates = "learning rate (inner_lr of Algorithm 1 with SGD outside)"
    drawn, axes = panels(titles, rates, f"validation {measure(name)}")
    trials = [trial for entry in record["entrants"].values() for trial in entry["trials"]]
    values = [trial["validation"] for trial in trials if trial["validation"] is not None]
    low, high = 0.9 * min(values, default=1.0), 1.1 * max(values, default=1.0)
    for axis, title in zip(axes, titles, strict=True):
        rate = methods.get(ENTRANTS[title].method).rate
        trials = record["entrants"][title]["trials"]
        good = [(t["options"][rate], t["validation"]) for t in trials if t["validation"] is not None]
        axis.loglog([x for x, _ in good], [y for _, y in good], "o", markersize=4)
        failed = [t["options"][rate] for t in trials if t["validation"] is None]
        axis.loglog(failed, [0.95 * high] * len(failed), "x", color="tab:red")
        axis.set_ylim(low, high)
        axis.xaxis.set_minor_formatter(NullFormatter())
    save(drawn, name)


def curves(name: str) -> None:
    """Training loss of each entrant's best trial, SGD's behind it."""
    found = json.loads((RESULTS / f"{name}-curves.json").read_text())
    titles = [title for title in ENTRANTS if title in found]
    drawn, axes = panels(titles, "effective epochs", "training loss of the best trial")
    for axis, title in zip(axes, titles, strict=True):
        for shown, colour in (("SGD", "0.75"), (title, "tab:blue")):
            points = found.get(shown, [])
            axis.semilogy([point[0] for point in points], [point[1] for point in points], color=colour, lw=1)
    save(drawn, f"{name}-curves")
