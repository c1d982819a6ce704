"""The tournament: every method gets the same number of trials and of gradients, then its winner fresh seeds.

    python benchmarks/tournament.py TASK… --out FOLDER [--trials 8] [--seeds 5] [--jobs 1] [--data-dir DIR]

Trials are quasi-random points of the spaces in tournament_field.py, trained once (seed 0) and judged on
validation data. The best one of each entrant is then trained anew with seeds 100, 101, … on training and
validation data, and test data are read once, at the end of each. SAM and ASAM are charged two gradients a
step and n replicas n. All have the same drops of the rate, to a fifth at one half and at three quarters of
the run, but for those with a schedule of their own. Runs are in FOLDER, and finished ones are not repeated;
results/tournament/TASK.json keeps every trial, failed ones too.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Mapping
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

from tournament_field import ENTRANTS, TASKS, Entrant, Task

from entropy_sgd.lab import jobs, methods, recipes
from entropy_sgd.lab.recipes import Drops, Recipe
from entropy_sgd.lab.runs import environment
from entropy_sgd.lab.runs.folder import Settings
from entropy_sgd.lab.tuning.space import Draws

RESULTS = Path(__file__).parents[1] / "results" / "tournament"
FRESH = 100


def recipe(task: Task, entrant: Entrant, chosen: Mapping[str, Any]) -> Recipe:
    """The task by this entrant with these options."""
    base = recipes.get(f"{task.network}/{entrant.method}").stretched(task.epochs)
    method = methods.get(entrant.method)
    options = replace(method.defaults(recipes.family(task.network).hints), **entrant.fixed)
    given = dict(chosen)
    if "outer_momentum" in given:  # the outer optimizer's options are written as its user writes them
        momentum = given.pop("outer_momentum")
        given["outer_options"] = (f"momentum={momentum}", f"nesterov={momentum > 0}")
    drops = Drops(0.2, (task.epochs / 2, 3 * task.epochs / 4)) if method.drops else Drops()
    made = replace(base, optimizer=replace(options, **given), drops=drops, **task.changes)
    return jobs.fixed_threads(made)


def value(outcome: jobs.Outcome, part: str) -> float | None:
    """The metric; None if the run diverged."""
    summary = outcome.summary
    assert summary is not None
    return summary[part][summary["metric"]] if summary["status"] == "finished" else None


def trouble(outcome: jobs.Outcome) -> str | None:
    """Why there is no result."""
    assert outcome.summary is not None
    return None if outcome.summary["status"] == "finished" else str(outcome.summary["reason"])


def write(name: str, record: dict[str, Any]) -> None:
    RESULTS.mkdir(parents=True, exist_ok=True)
    (RESULTS / f"{name}.json").write_text(json.dumps(record, indent=1) + "\n")


def play(name: str, options: argparse.Namespace) -> None:
    """One task, entrant by entrant."""
    task, home = TASKS[name], options.out / name
    path = RESULTS / f"{name}.json"
    entrants: dict[str, Any] = json.loads(path.read_text())["entrants"] if path.exists() else {}
    record = {
        "command": f"python benchmarks/tournament.py {name} --out FOLDER",
        "trials": options.trials,
        "task": {"network": task.network, "epochs": task.epochs, "changes": dict(task.changes)},
        "environment": environment.describe(),
        "entrants": entrants,
    }

    def run(wanted: list[tuple[str, Recipe, int, bool]]) -> list[jobs.Outcome]:
        home.mkdir(parents=True, exist_ok=True)
        listed = [
            jobs.Job(
                home / folder, Settings(made, seed, final=final), data_dir=options.data_dir, label=folder
            )
            for folder, made, seed, final in wanted
        ]
        outcomes = jobs.run(listed, home, at_once=options.jobs)
        failed = jobs.failures(outcomes, again="the same command")
        if failed is not None:  # no data, no space: not a result, as a divergence is
            raise SystemExit(str(failed))
        return outcomes

    for title in task.entrants:
        if title in entrants:
            continue
        entrant, short = ENTRANTS[title], "".join(c if c.isalnum() else "-" for c in title.lower())
        drawn = Draws(entrant.search, "sobol", 0).draw(options.trials)
        made = [recipe(task, entrant, chosen) for chosen in drawn]
        outcomes = run([(f"{short}-trial{k}", each, 0, False) for k, each in enumerate(made)])
        trials = [
            {"options": chosen, "validation": value(outcome, "validation"), "trouble": trouble(outcome)}
            for chosen, outcome in zip(drawn, outcomes, strict=True)
        ]
        entry: dict[str, Any] = {"method": entrant.method, "fixed": dict(entrant.fixed), "trials": trials}
        judged = [
            (trial["validation"], k) for k, trial in enumerate(trials) if trial["validation"] is not None
        ]
        if judged:
            best = min(judged)[1]
            seeds = range(FRESH, FRESH + options.seeds)
            fresh = run([(f"{short}-seed{seed}", made[best], seed, True) for seed in seeds])
            entry |= {
                "best": best,
                "optimizer": asdict(made[best].optimizer),
                "test": [value(outcome, "test") for outcome in fresh],
                "troubles": [trouble(outcome) for outcome in fresh],
            }
        entrants[title] = entry
        write(name, record)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("tasks", nargs="+", choices=list(TASKS), metavar="TASK")
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--trials", type=int, default=8)
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("--data-dir", type=Path)
    options = parser.parse_args()
    for name in options.tasks:
        play(name, options)


if __name__ == "__main__":
    main()
