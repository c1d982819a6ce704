"""The tables of `swap.py`: one optimizer in the place of another, all else the same."""

from __future__ import annotations

import json
from typing import Any

from common import RESULTS
from differences import less, mean

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


def pairs(name: str, baseline: str, optimizer: str, shown: tuple[str, str]) -> str:
    """Two optimizers, `shown` under these names, where both were run with the same seeds.

    Where there are seeds that no choice was made on, those alone count.
    """
    lines = [
        f"| data, network, budget, schedule | seeds | {' | '.join(shown)} | difference (95 %) |",
        "|---|---|---|---|---|",
    ]
    for place, by in sorted(swapped(name).items()):
        ours = by.get(optimizer, {})
        theirs = {seed: error for seed, error in by.get(baseline, {}).items() if seed in ours}
        theirs = {seed: error for seed, error in theirs.items() if seed >= FRESH} or theirs
        if theirs:
            ours = {seed: ours[seed] for seed in theirs}
            values = f"{mean(theirs):.2f} % | {mean(ours):.2f} % | {less(ours, theirs)}"
            lines.append(f"| {heading(place)} | {len(theirs)} | {values} |")
    return "\n".join(lines)
