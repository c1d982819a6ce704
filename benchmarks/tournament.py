"""The tournament: every method gets the same number of trials and of gradients, then its winner fresh seeds.

    python benchmarks/tournament.py TASK… --out FOLDER [--trials 8] [--seeds 5] [--jobs 1] [--data-dir DIR]

Trials are quasi-random points of the spaces in tournament_field.py, trained once (seed 0) and judged on
validation data. The best one of each entrant is then trained again with seeds 100, 101, … on training and
validation data, and test data are read once, at the end of each. SAM and ASAM are charged two gradients a
step and n replicas n. All have the same drops of the rate, to a fifth at one half and at three quarters of
the run, but for those with a schedule of their own. Runs are in FOLDER, and finished ones are not repeated.
results/tournament/TASK.json keeps every trial, failed ones too, and TASK-curves.json the curve of the best;
entrants and seeds that it lacks are added.

In the long tasks the best five of the short ones take part, by their mean rank in the validation error of
their best trial.
"""

from __future__ import annotations

import argparse
import json
import math
import statistics
from collections.abc import Mapping
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

from tournament_field import ENTRANTS, PLACES, TASKS, Entrant, Task

from entropy_sgd.lab import jobs, methods, recipes
from entropy_sgd.lab.recipes import Drops, Recipe
from entropy_sgd.lab.runs import environment
from entropy_sgd.lab.runs.folder import Settings
from entropy_sgd.lab.runs.reading import read
from entropy_sgd.lab.tuning.space import Draws

RESULTS = Path(__file__).parents[1] / "results" / "tournament"
FRESH = 100


def judged(entry: Mapping[str, Any]) -> list[tuple[float, int]]:
    """The validation error and the number of every trial that did not diverge."""
    found = [(trial["validation"], k) for k, trial in enumerate(entry["trials"])]
    return [(error, k) for error, k in found if error is not None]


def recorded(name: str) -> dict[str, Any]:
    """What is kept of a task."""
    path = RESULTS / f"{name}.json"
    return json.loads(path.read_text()) if path.exists() else {"entrants": {}}


def played(name: str) -> dict[str, Any]:
    """What is kept of a task, by entrant."""
    return recorded(name)["entrants"]


def ranks(name: str) -> dict[str, float]:
    """The rank of each entrant of a task that has been run, by validation error; equal ones share theirs."""
    errors = {title: min(judged(entry), default=(math.inf, 0))[0] for title, entry in played(name).items()}
    return {
        title: sum(other < error for other in errors.values())
        + (1 + sum(other == error for other in errors.values())) / 2
        for title, error in errors.items()
    }


def taking_part(name: str) -> tuple[str, ...]:
    """The entrants of a task: all that it names, or the best of its qualifying tasks, best first.

    Those that have not run all of these do not count, and once the task has begun its field is kept.
    """
    task, record = TASKS[name], recorded(name)
    if "field" in record:
        return tuple(record["field"])
    if not task.qualifying:
        return task.entrants
    found = [ranks(each) for each in task.qualifying]
    known = [title for title in task.entrants if all(title in rank for rank in found)]
    means = {title: statistics.fmean(rank[title] for rank in found) for title in known}
    return tuple(sorted(means, key=lambda title: means[title])[:PLACES])


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


def folder_name(title: str) -> str:
    """Of an entrant, as folders are called."""
    return "".join(c if c.isalnum() else "-" for c in title.lower())


def run(wanted: list[jobs.Job], home: Path, at_once: int) -> list[jobs.Outcome]:
    """Train what is not trained yet; only a divergence is a result, other failures end the program."""
    home.mkdir(parents=True, exist_ok=True)
    outcomes = jobs.run(wanted, home, at_once=at_once)
    failed = jobs.failures(outcomes, again="the same command")
    if failed is not None:  # no data, no space: not a result, as a divergence is
        raise SystemExit(str(failed))
    return outcomes


def curve(folder: Path, metric: str) -> list[list[float | None]]:
    """Epochs, training loss, and the metric where it was measured, along a run: about a hundred points."""
    records = read(folder).records
    step = max(1, len(records) // 100)
    shown = [r for k, r in enumerate(records) if k % step == 0 or metric in r or k == len(records) - 1]
    keys = ("epoch", "loss", metric)
    return [[float(f"{r[key]:.4g}") if key in r else None for key in keys] for r in shown]


def write(name: str, record: dict[str, Any], curves: dict[str, Any]) -> None:
    """The results, and the curves in a file of their own, a line an entrant."""
    RESULTS.mkdir(parents=True, exist_ok=True)
    lines = ",\n".join(f"{json.dumps(title)}: {json.dumps(points)}" for title, points in curves.items())
    (RESULTS / f"{name}-curves.json").write_text(f"{{\n{lines}\n}}\n")
    (RESULTS / f"{name}.json").write_text(json.dumps(record, indent=1) + "\n")


def play(name: str, options: argparse.Namespace) -> None:
    """One task, entrant by entrant."""
    task, home = TASKS[name], options.out / name
    drawn_kept = RESULTS / f"{name}-curves.json"
    curves: dict[str, Any] = json.loads(drawn_kept.read_text()) if drawn_kept.exists() else {}
    record = recorded(name)
    entrants = record["entrants"]
    if task.qualifying and "field" not in record:
        for each in task.qualifying:
            if absent := [title for title in task.entrants if title not in played(each)]:
                raise SystemExit(
                    f"{each} decides who takes part and has not been run for {'; '.join(absent)}"
                )
        record["field"] = taking_part(name)
    record |= {
        "command": f"python benchmarks/tournament.py {name} --out FOLDER --trials {options.trials} "
        f"--seeds {options.seeds}",
        "trials": options.trials,
        "task": {"network": task.network, "epochs": task.epochs, "changes": dict(task.changes)},
    }

    def trained(wanted: list[tuple[str, Recipe, int, bool]]) -> list[jobs.Outcome]:
        listed = [
            jobs.Job(
                home / folder, Settings(made, seed, final=final), data_dir=options.data_dir, label=folder
            )
            for folder, made, seed, final in wanted
        ]
        return run(listed, home, options.jobs)

    for title in taking_part(name):
        entrant, short = ENTRANTS[title], folder_name(title)
        entry: dict[str, Any] = entrants.get(title, {})
        if not entry:
            drawn = Draws(task.search(title), "sobol", 0).draw(options.trials)
            made = [recipe(task, entrant, chosen) for chosen in drawn]
            outcomes = trained([(f"{short}-trial{k}", each, 0, False) for k, each in enumerate(made)])
            trials = [
                {"options": chosen, "validation": value(outcome, "validation"), "trouble": trouble(outcome)}
                for chosen, outcome in zip(drawn, outcomes, strict=True)
            ]
            entry |= {"method": entrant.method, "fixed": dict(entrant.fixed), "trials": trials}
            entry["environment"] = environment.describe()
            if finished := judged(entry):
                best = min(finished)[1]
                entry |= {"best": best, "optimizer": asdict(made[best].optimizer), "test": [], "troubles": []}
                curves[title] = curve(home / f"{short}-trial{best}", made[best].metric)
        elif "best" not in entry or len(entry["test"]) >= options.seeds:
            continue
        if "best" in entry:
            winner = recipe(task, entrant, entry["trials"][entry["best"]]["options"])
            seeds = range(FRESH + len(entry["test"]), FRESH + options.seeds)
            fresh = trained([(f"{short}-seed{seed}", winner, seed, True) for seed in seeds])
            entry["test"] += [value(outcome, "test") for outcome in fresh]
            entry["troubles"] += [trouble(outcome) for outcome in fresh]
        entrants[title] = entry
        write(name, record, curves)


def arguments(doc: str, *, seeds: int) -> argparse.ArgumentParser:
    """Those of this program and of the one that measures flatness."""
    parser = argparse.ArgumentParser(description=doc.splitlines()[0])
    parser.add_argument("tasks", nargs="+", choices=list(TASKS), metavar="TASK")
    parser.add_argument("--out", type=Path, required=True, help="folder for the runs")
    parser.add_argument("--seeds", type=int, default=seeds)
    parser.add_argument("--jobs", type=int, default=1, help="runs at once")
    parser.add_argument("--data-dir", type=Path)
    return parser


def main() -> None:
    parser = arguments(__doc__, seeds=5)
    parser.add_argument("--trials", type=int, default=8)
    options = parser.parse_args()
    for name in options.tasks:
        play(name, options)


if __name__ == "__main__":
    main()
