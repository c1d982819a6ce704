"""The tables of `swap.py`: one optimizer in the place of another, all else the same."""

from __future__ import annotations

import json
import statistics
from typing import Any

from common import RESULTS
from differences import less, mean
from scipy import stats

FRESH = 10
"""Choices were made on runs with lower seeds, but for one that docs/evidence.md names."""
SEVERAL = 5
"""Where more optimizers than these were tried, they are in the table of settings."""
AVERAGES = {
    "α = 0.9 (defaults)": "defaults (keep, inner, alpha=0.9)",
    "α = 0.75": "keep, inner, alpha=0.75",
    "α = 0.75, lr = 1.017": "keep, inner, alpha=0.75, lr=1.017",
    "α = 0.25": "keep, inner, alpha=0.25",
    "α = 0.25, lr = 1.18": "keep, inner, alpha=0.25, lr=1.18",
}


def swapped(name: str) -> dict[tuple[Any, ...], dict[str, dict[int, float]]]:
    """Errors by place, optimizer and seed."""
    path = RESULTS / f"{name}.json"
    places: dict[tuple[Any, ...], dict[str, dict[int, float]]] = {}
    for run in json.loads(path.read_text())["runs"]:
        place = tuple(run[key] for key in ("data", "network", "part", "epochs", "schedule", "rate"))
        seeds = places.setdefault(place, {}).setdefault(run["optimizer"], {})
        seeds[run["seed"]] = run["validation error, %"]
    return places


def heading(place: tuple[Any, ...]) -> str:
    data, network, part, epochs, schedule, rate = place
    share, plural = "" if part == 1 else f" 1/{part}", "" if epochs == 1 else "s"
    other = "" if rate == 0.1 else f", rate {rate:g}"
    return f"{data}{share}, {network}, {epochs} epoch{plural}, {schedule}{other}"


def settings(name: str, baseline: str) -> str:
    """Mean difference from the baseline, seed by seed, where several settings were tried."""
    places = {place: by for place, by in swapped(name).items() if baseline in by and len(by) > SEVERAL}
    shown = sorted(places)
    titles = dict.fromkeys(title for place in shown for title in places[place])
    lines = [f"| | {' | '.join(map(heading, shown))} |", f"|---|{'---|' * len(shown)}"]
    for title in titles:
        cells = [
            f"{mean(places[place][title]):.2f} (seeds: {len(places[place][title])})"
            if title == baseline
            else less(places[place].get(title, {}), places[place][baseline])
            for place in shown
        ]
        lines.append(f"| {title} | {' | '.join(cells)} |")
    return "\n".join(lines)


def averages(name: str) -> str:
    """What ways to average give, less SGD, on seeds from `FRESH` on; their number in brackets."""
    places = swapped(name)
    titles = {shown: key for shown, key in AVERAGES.items() if any(key in by for by in places.values())}
    lines = [f"| | SGD | {' | '.join(titles)} |", f"|---|---|{'---|' * len(titles)}"]
    for place, by in sorted(places.items()):
        fresh = {
            title: {seed: error for seed, error in errors.items() if seed >= FRESH}
            for title, errors in by.items()
        }
        if not fresh.get(AVERAGES["α = 0.75"]):
            continue
        cells = [f"{mean(fresh['SGD']):.2f} ({len(fresh['SGD'])})"]
        for title in titles.values():
            shared = fresh.get(title, {}).keys() & fresh["SGD"].keys()
            cells.append(f"{less(fresh[title], fresh['SGD'])} ({len(shared)})" if shared else "")
        lines.append(f"| {heading(place)} | {' | '.join(cells)} |")
    return "\n".join(lines)


Pair = tuple[tuple[Any, ...], dict[int, float], dict[int, float]]  # place, our errors, the baseline's


def both(name: str, baseline: str, optimizer: str) -> list[Pair]:
    """Two optimizers' errors, where both were run with the same seeds.

    Where there are seeds that no choice was made on, those alone count.
    """
    found: list[Pair] = []
    for place, by in sorted(swapped(name).items()):
        ours = by.get(optimizer, {})
        theirs = {seed: error for seed, error in by.get(baseline, {}).items() if seed in ours}
        theirs = {seed: error for seed, error in theirs.items() if seed >= FRESH} or theirs
        if theirs:
            found.append((place, {seed: ours[seed] for seed in theirs}, theirs))
    return found


def pairs(found: list[Pair], shown: tuple[str, str]) -> str:
    """A table of them, the baseline first, under the names `shown`."""
    lines = [
        f"| data, network, budget, schedule | seeds | {' | '.join(shown)} | difference (95 %) |",
        "|---|---|---|---|---|",
    ]
    for place, ours, theirs in found:
        values = f"{mean(theirs):.2f} % | {mean(ours):.2f} % | {less(ours, theirs)}"
        lines.append(f"| {heading(place)} | {len(theirs)} | {values} |")
    return "\n".join(lines)


def tally(found: list[Pair]) -> str:
    """How many differences are beyond their intervals, what of it chance explains, and the mean of all."""
    differences = [[ours[seed] - theirs[seed] for seed in theirs] for _, ours, theirs in found]
    p = [float(stats.ttest_1samp(d, 0.0).pvalue) for d in differences]
    beyond = [statistics.fmean(d) for d, value in zip(differences, p, strict=True) if value < 0.05]
    worse = sum(d > 0 for d in beyond)
    relative = {
        i: 100 * (mean(ours) / mean(theirs) - 1) for i, (_, ours, theirs) in enumerate(found)
    }  # of a row, so that rows with large errors do not outweigh the others
    corrected = min(p) < 0.05 / len(p)
    return (
        f"Beyond their intervals: {worse} worse, {len(beyond) - worse} better, of {len(p)}; "
        f"{0.05 * len(p):.1f} would be expected by chance. With a Bonferroni correction for their number, "
        f"{'at least one remains' if corrected else 'none remains'}. Mean over the rows: "
        f"{less(relative, dict.fromkeys(relative, 0.0))} % of the error (95 %)."
    )
